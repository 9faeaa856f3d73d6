"""Databases that look like Supabase's to migrations.

Owns what is in a database before the first migration (`bootstrap.sql`), and applies migrations as
`supabase db push` does, with the same history table, so that either can continue where the other
stopped. The server itself is in `server.py`.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import sql

from silkline_local.errors import MigrationError
from silkline_local.postgres.server import SUPERUSER, Postgres

logger = logging.getLogger(__name__)

BOOTSTRAP = Path(__file__).with_name('bootstrap.sql')
CLASSIC_PRIVILEGES = Path(__file__).with_name('classic_privileges.sql')

# What the roles of the API get on everything that migrations create in schema public: nothing, as
# on projects created since May 2026, or all rights, as on older ones.
DefaultPrivileges = Literal['new', 'classic']


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of the migrations directory: `<version>_<name>.sql`."""

    version: str
    name: str
    statements: list[str]


def bootstrap(
    postgres: Postgres, database: str = 'postgres', *, privileges: DefaultPrivileges = 'new'
) -> None:
    """Give a database the roles, schemas and functions of Supabase; create it if necessary."""
    with psycopg.connect(postgres.url(role=SUPERUSER), autocommit=True) as connection:
        found = connection.execute('select from pg_database where datname = %s', [database])
        if found.fetchone() is None:
            connection.execute(sql.SQL('create database {}').format(sql.Identifier(database)))
    with psycopg.connect(postgres.url(database, SUPERUSER)) as connection:
        connection.execute(BOOTSTRAP.read_bytes())
        if privileges == 'classic':
            connection.execute(CLASSIC_PRIVILEGES.read_bytes())
        roles = connection.execute(
            'select rolname from pg_authid where rolcanlogin and rolpassword is null'
        ).fetchall()
        for (role,) in roles:
            # Hashed here: the server never sees the password, so neither does its log.
            verifier = connection.pgconn.encrypt_password(
                postgres.password.encode(), role.encode(), b'scram-sha-256'
            )
            connection.execute(
                sql.SQL('alter role {} password {}').format(
                    sql.Identifier(role), sql.Literal(verifier.decode())
                )
            )


def migrate(conninfo: str, directory: Path) -> list[str]:
    """Apply the migrations that are missing, as role postgres; return their versions.

    Their notices and warnings are logged: they say what this database does not allow.
    """
    applied: list[str] = []
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.add_notice_handler(log_notice)
        connection.execute('set session role postgres')
        with connection.transaction():
            connection.execute("set local lock_timeout = '4s'")
            connection.execute("set local client_min_messages = 'warning'")
            connection.execute('create schema if not exists supabase_migrations')
            connection.execute(
                'create table if not exists supabase_migrations.schema_migrations'
                ' (version text not null primary key, statements text[], name text)'
            )
        known = {
            version
            for (version,) in connection.execute(
                'select version from supabase_migrations.schema_migrations'
            )
        }
        for migration in read_migrations(directory):
            if migration.version not in known:
                apply(connection, migration)
                applied.append(migration.version)
    return applied


def log_notice(notice: psycopg.errors.Diagnostic) -> None:
    is_warning = notice.severity_nonlocalized == 'WARNING'
    logger.log(logging.WARNING if is_warning else logging.INFO, '%s', notice.message_primary)


def read_migrations(directory: Path) -> Iterator[Migration]:
    for path in sorted(directory.glob('*.sql')):
        match = re.fullmatch(r'(\d+)_(.*)\.sql', path.name)
        if match is not None:
            yield Migration(match[1], match[2], split_statements(path.read_text()))


def apply(connection: psycopg.Connection, migration: Migration) -> None:
    with connection.transaction():
        connection.execute('reset all')
        for number, statement in enumerate(migration.statements, 1):
            try:
                connection.execute(statement.encode())
            except psycopg.Error as error:
                raise MigrationError(
                    f'{migration.version}_{migration.name}.sql, statement {number}: {error}'
                    f' (SQLSTATE {error.sqlstate})\n'
                    'The migration was rolled back: fix it and apply it again.'
                ) from error
        connection.execute('set session role postgres')
        connection.execute(
            'insert into supabase_migrations.schema_migrations (version, name, statements)'
            ' values (%s, %s, %s)',
            [migration.version, migration.name, migration.statements],
        )


TOKEN = re.compile(
    r"""
      (?P<comment> --[^\n]* )
    | (?P<block> /\* )
    | (?P<quoted> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" )
    | (?P<dollar> \$(?:[^\W\d]\w*)?\$ )
    | (?P<word> [^\W\d][\w$]* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
COMMENT_MARK = re.compile(r'/\*|\*/')


def split_statements(text: str) -> list[str]:
    """Split a script at its semicolons; comments stay with the statement that follows them."""
    statements: list[str] = []
    start = position = parentheses = blocks = 0
    previous = ''
    while (match := TOKEN.match(text, position)) is not None:
        position = match.end()
        if match['block']:
            position = end_of_block_comment(text, position)
        elif match['dollar']:
            end = text.find(match['dollar'], position)
            position = len(text) if end < 0 else end + len(match['dollar'])
        elif match['word']:
            # The body of a SQL-standard function: begin atomic ... end.
            word = match['word'].lower()
            if (previous, word) == ('begin', 'atomic') or (blocks and word in ('begin', 'case')):
                blocks += 1
            elif blocks and word == 'end':
                blocks -= 1
            previous = word
        elif match['other'] == '(':
            parentheses += 1
        elif match['other'] == ')':
            parentheses -= 1
        elif match['other'] == ';' and parentheses <= 0 and not blocks:
            statements.append(text[start : match.start()].strip())
            start, parentheses = position, 0
    statements.append(text[start:].strip())
    return [statement for statement in statements if statement]


def end_of_block_comment(text: str, position: int) -> int:
    depth = 1
    while depth and (mark := COMMENT_MARK.search(text, position)) is not None:
        depth += 1 if mark[0] == '/*' else -1
        position = mark.end()
    return len(text) if depth else position

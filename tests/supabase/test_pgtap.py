"""Run the pgTAP tests in supabase/tests on every server.

A file whose name starts with 00_helpers is not a test: it runs first, in the same database.
"""

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from silkline_local.postgres.migrations import split_statements
from silkline_local.postgres.server import SUPERUSER
from tests.support.database import Database
from tests.support.servers import ROOT, Server

PGTAP = Path('/usr/share/postgresql/15/extension')
FILES = sorted((ROOT / 'supabase/tests').glob('*.sql'))
HELPERS = [path for path in FILES if path.name.startswith('00_helpers')]
TESTS = [path for path in FILES if path not in HELPERS]

RESULT = re.compile(r'^(not )?ok (\d+)')
PLAN = re.compile(r'^1\.\.(\d+)')
# The database already has pgTAP; the statement is for running the files by other means.
CREATE_PGTAP = re.compile(r'create extension (if not exists )?pgtap\b', re.IGNORECASE)


@contextmanager
def with_pgtap(server: Server, template: str) -> Generator[str]:
    """A copy of `template` that has pgTAP."""
    scripts = sorted(
        (path for path in PGTAP.glob('pgtap--*.sql') if path.name.count('--') == 1),
        key=lambda path: [int(number) for number in re.findall(r'\d+', path.name)],
    )
    if not scripts:
        pytest.skip('no pgTAP: apt-get install postgresql-15-pgtap')
    with server.template(template) as name:
        with psycopg.connect(server.postgres.url(name, SUPERUSER)) as connection:
            if server.postgres.has_extension('pgtap'):
                connection.execute('create extension pgtap with schema extensions')
            else:
                # pgTAP is plain SQL: Debian's package for 15 works with any version.
                connection.execute('set local search_path = extensions')
                script = scripts[-1].read_text()
                connection.execute(re.sub(r'^\\echo.*$', '', script, flags=re.MULTILINE).encode())
        yield name


@pytest.fixture(scope='session')
def pgtap_template(server: Server, template: str) -> Iterator[str]:
    with with_pgtap(server, template) as name:
        yield name


@pytest.fixture
def pgtap_database(server: Server, pgtap_template: str) -> Iterator[Database]:
    with server.database(pgtap_template) as database:
        yield database


@pytest.mark.parametrize('path', TESTS, ids=lambda path: path.stem)
def test_pgtap(pgtap_database: Database, path: Path) -> None:
    run(pgtap_database, path)


def test_the_schema_is_the_same_with_the_other_default_privileges(server: Server) -> None:
    """All files run on old projects with one version of Postgres, on new ones with the others."""
    other = 'new' if server.privileges == 'classic' else 'classic'
    with (
        server.template(privileges=other) as migrated,
        with_pgtap(server, migrated) as template,
        server.database(template) as database,
    ):
        run(database, ROOT / 'supabase/tests/00_schema.sql')


def run(database: Database, path: Path) -> None:
    connection = database.connect()
    lines: list[str] = []
    for script in (*HELPERS, path):
        lines.clear()
        for statement in split_statements(script.read_text()):
            if CREATE_PGTAP.search(statement) and not statement.startswith('do'):
                continue
            try:
                cursor = connection.execute(statement.encode())
            except psycopg.Error as error:
                pytest.fail(
                    '\n'.join([*lines[-5:], f'{script.name}: {error}', statement]), pytrace=False
                )
            if cursor.description:
                for row in cursor.fetchall():
                    for value in row.values():
                        if isinstance(value, str):
                            lines.extend(value.splitlines())
    problems = failures(lines)
    if problems:
        pytest.fail('\n'.join([path.name, *problems]), pytrace=False)


def failures(lines: list[str]) -> list[str]:
    """What is wrong with a TAP stream; empty if nothing is."""
    problems: list[str] = []
    ran: list[int] = []
    plans: list[int] = []
    failing = False
    for line in lines:
        result = RESULT.match(line)
        if result:
            ran.append(int(result[2]))
            failing = bool(result[1]) and '# TODO' not in line.upper()
        if plan := PLAN.match(line):
            plans.append(int(plan[1]))
        # A failed line is followed by its diagnostics.
        if failing or line.startswith('Bail out!'):
            problems.append(line)
    if plans != [len(ran)] or ran != list(range(1, len(ran) + 1)):
        problems.append(f'planned {plans}, ran {len(ran)} tests')
    return problems

"""The Postgres server of a benchmark, and the databases in it.

Starts it with durable settings, creates migrated databases with users, opens sessions with the
roles that production uses, and adds up the processor time of the server. What the tables hold is
left to `queue/fill.py`.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import LiteralString
from uuid import UUID, uuid4

import psycopg
from psycopg import sql

from silkline_local.postgres.migrations import bootstrap, migrate
from silkline_local.postgres.server import SUPERUSER, Postgres

ROOT = Path(__file__).parents[2]
MIGRATIONS = ROOT / 'supabase/migrations'
TEMPLATE = 'silkline'
SETTINGS = {
    'fsync': 'on',
    'synchronous_commit': 'on',
    'shared_buffers': '1GB',
    'max_wal_size': '4GB',
    'max_connections': '200',
}

Session = psycopg.Connection[tuple[object, ...]]


@contextmanager
def run_server(binaries: Path | None = None) -> Generator[Postgres]:
    """Run a server in a temporary directory."""
    with (
        TemporaryDirectory(prefix='silkline-bench-') as directory,
        Postgres(Path(directory) / 'server', binaries=binaries, settings=SETTINGS) as postgres,
    ):
        bootstrap(postgres, TEMPLATE)
        migrate(postgres.url(TEMPLATE), MIGRATIONS)
        yield postgres


def make_database(postgres: Postgres, name: str) -> None:
    """Create a database like that of a project after `supabase db push`."""
    _make_database(postgres, name, template=TEMPLATE)


def make_empty_database(postgres: Postgres, name: str) -> None:
    """Create a database without anything of Supabase; replaces one of that name."""
    _make_database(postgres, name, template='template1')


def _make_database(postgres: Postgres, name: str, *, template: str) -> None:
    names = {'name': sql.Identifier(name), 'template': sql.Identifier(template)}
    with administer(postgres, 'postgres') as connection:
        connection.execute(sql.SQL('drop database if exists {name} with (force)').format(**names))
        connection.execute(
            sql.SQL('create database {name} template {template} owner postgres').format(**names)
        )


def administer(postgres: Postgres, database: str) -> Session:
    """Open a session as superuser."""
    return psycopg.connect(postgres.url(database, SUPERUSER), autocommit=True)


def role_url(postgres: Postgres, database: str, role: str) -> str:
    """The URL to connect with a role of the API, through the login of PostgREST."""
    return f'{postgres.url(database, "authenticator")}&options=-c%20role%3D{role}'


def connect(url: str) -> Session:
    """Open a session like the measured code: autocommit, statements prepared at first use."""
    connection = psycopg.connect(url, autocommit=True)
    connection.prepare_threshold = 0
    return connection


def sign_up(connection: Session, count: int = 1) -> list[UUID]:
    users = [uuid4() for _ in range(count)]
    connection.execute('insert into auth.users (id) select unnest(%s::uuid[])', [users])
    return users


def lift_quotas(connection: Session) -> None:
    connection.execute(
        'update public.crawl_settings'
        ' set max_open_jobs_per_user = null, max_jobs_per_user_per_day = null where id'
    )


def keep_leases(connection: Session) -> None:
    """Let no lease become stale: the next measurement must not reap claimed jobs of this one."""
    connection.execute('update public.crawl_settings set stale_after_seconds = 86400 where id')


def tidy(connection: Session, *tables: LiteralString) -> None:
    """Vacuum and checkpoint now, so that neither happens during a measurement."""
    for table in tables:
        connection.execute(sql.SQL('vacuum (analyze) {}').format(sql.SQL(table)))
    connection.execute('checkpoint')


def machine_seconds() -> float:
    """Processor time of all processes since the machine started."""
    fields = Path('/proc/stat').read_text().split('\n', 1)[0].split()[1:]
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts = map(int, fields[:7])
    ticks = user + nice + system + interrupts + soft_interrupts
    return ticks / os.sysconf('SC_CLK_TCK')


def own_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def processor_seconds(postmaster: int) -> float:
    """Processor time of all processes of a server, including those that have ended."""
    ticks = 0
    for entry in Path('/proc').glob('[0-9]*/stat'):
        try:
            # The name, in parentheses, may contain spaces: fields are counted after it.
            fields = entry.read_text().rpartition(')')[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        own, of_ended_children = (int(fields[at]) + int(fields[at + 1]) for at in (11, 13))
        if int(entry.parent.name) == postmaster:
            ticks += own + of_ended_children
        elif int(fields[1]) == postmaster:
            ticks += own
    return ticks / os.sysconf('SC_CLK_TCK')

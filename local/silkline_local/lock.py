"""Which process runs the stack of a directory: a file that the process keeps locked.

Owns the lock and its content: the process id and, once everything answers, the word `ready`. The
kernel releases the lock when the process ends, however it ends.
"""

import fcntl
import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from silkline_local.errors import AlreadyRunning, StackError

READY = 'ready'
START_SECONDS = 90.0
STOP_SECONDS = 45.0
WRITE_SECONDS = 1.0
POLL_SECONDS = 0.02


class StackLock:
    """`held` makes this process the holder; the other methods are about the holder, if any."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    @contextmanager
    def held(self) -> Generator[None]:
        """Raises `AlreadyRunning` if another process holds it."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(self.describe_holder(self.holder())) from None
            self._file = file
            self._write(str(os.getpid()))
            yield
            self._write('')
        finally:
            self._file = None
            os.close(file)

    def mark_ready(self) -> None:
        """Record, as the holder, that everything answers."""
        self._write(f'{os.getpid()} {READY}')

    def is_in_place(self) -> bool:
        """Whether the file that this process holds is still the one at the path."""
        with suppress(OSError):
            return self._file is not None and os.path.samestat(
                os.fstat(self._file), os.stat(self.path)
            )
        return False

    def holder(self) -> int | None:
        """The process that runs the stack, if any."""
        words = self._read()
        return int(words[0]) if words else None

    def describe_holder(self, process: int | None) -> str:
        return f'the stack in {self.path.parent} is already running (process {process})'

    def wait_until_ready(self) -> int | None:
        """Wait until everything answers; return the process, or None if no stack runs."""
        deadline = time.monotonic() + START_SECONDS
        while (words := self._read()) and READY not in words:
            if time.monotonic() > deadline:
                raise StackError(
                    f'process {words[0]} has not become ready in {START_SECONDS:.0f} s;'
                    ' silkline down stops it'
                )
            time.sleep(POLL_SECONDS)
        return int(words[0]) if words else None

    def stop(self) -> int | None:
        """Stop the process that runs the stack, wait until it has ended, and return its id."""
        process = self.holder()
        if not process:
            return None
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self.holder() == process:
            if time.monotonic() > deadline:
                raise StackError(
                    f'process {process} did not stop within {STOP_SECONDS:.0f} s;'
                    f' kill -9 {process} ends it, and nothing is lost'
                )
            time.sleep(POLL_SECONDS)
        return process

    def _write(self, text: str) -> None:
        if self._file is not None:
            os.pwrite(self._file, text.encode(), 0)
            os.ftruncate(self._file, len(text))

    def _read(self) -> list[str]:
        """The words that the holder wrote; an empty list if no process holds the lock."""
        deadline = time.monotonic() + WRITE_SECONDS
        while True:
            try:
                file = os.open(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return []
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                words = os.pread(file, 40, 0).decode().split()
                # Empty for an instant, between taking the lock and writing the process id.
                if words or time.monotonic() > deadline:
                    return words or ['0']
            else:
                return []
            finally:
                os.close(file)
            time.sleep(POLL_SECONDS)

"""Who runs the stack of a directory: a file that the running process holds locked.

Owns the lock and what is written in it: the number of the process and, once everything answers,
that it is ready. The kernel frees the lock when the process ends, however it ends.
"""

import fcntl
import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

READY = 'ready'
START_SECONDS = 90.0
STOP_SECONDS = 45.0
WRITE_SECONDS = 1.0
POLL_SECONDS = 0.02


class StackError(Exception):
    """The stack cannot be started or stopped; the message says what to do."""


class AlreadyRunning(StackError):
    """Another process runs the stack of this directory."""


class Lock:
    """`held` makes this process the holder; the rest asks about, or ends, whoever is."""

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
                raise AlreadyRunning(
                    f'the stack of {self.path.parent} is already running,'
                    f' as process {self.holder()}'
                ) from None
            self._file = file
            self._write(str(os.getpid()))
            yield
            self._write('')
        finally:
            self._file = None
            os.close(file)

    def mark_ready(self) -> None:
        """Tell, as the holder, that everything answers."""
        self._write(f'{os.getpid()} {READY}')

    def is_in_place(self) -> bool:
        """Whether the file that this process holds is still the one that others find."""
        with suppress(OSError):
            return self._file is not None and os.path.samestat(
                os.fstat(self._file), os.stat(self.path)
            )
        return False

    def holder(self) -> int | None:
        """The process that runs the stack."""
        words = self._read()
        return int(words[0]) if words else None

    def wait_until_ready(self) -> int | None:
        """The process that runs the stack, once everything answers; none if none does."""
        deadline = time.monotonic() + START_SECONDS
        while (words := self._read()) and READY not in words:
            if time.monotonic() > deadline:
                raise StackError(f'process {words[0]} is starting and does not get ready')
            time.sleep(POLL_SECONDS)
        return int(words[0]) if words else None

    def stop(self) -> int | None:
        """End the process that runs the stack, and wait until it has; answer which it was."""
        process = self.holder()
        if not process:
            return None
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self.holder() == process:
            if time.monotonic() > deadline:
                raise StackError(f'process {process} was asked to end and does not')
            time.sleep(POLL_SECONDS)
        return process

    def _write(self, text: str) -> None:
        if self._file is not None:
            os.pwrite(self._file, text.encode(), 0)
            os.ftruncate(self._file, len(text))

    def _read(self) -> list[str]:
        """What the holder wrote; nothing if nobody holds it."""
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
                # Empty for the instant between taking the lock and writing the number.
                if words or time.monotonic() > deadline:
                    return words or ['0']
            else:
                return []
            finally:
                os.close(file)
            time.sleep(POLL_SECONDS)

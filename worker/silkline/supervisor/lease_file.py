"""What a worker leaves behind when it is killed: the tokens of its leases.

One file per worker, locked while it lives. The kernel frees the lock of a killed one, so the next
worker on this machine finds the file, hands the jobs back at once, and removes it.
"""

import fcntl
import logging
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

from silkline.errors import SettingsError

logger = logging.getLogger(__name__)

LINE_BYTES = 37


class State:
    """The files of all workers of one project on this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file: int | None = None
        self._is_empty = True

    @contextmanager
    def held(self, worker_id: UUID) -> Generator[None]:
        """Keep a file for this worker; it stays if leases are still noted in it."""
        path = self.directory / f'{worker_id}.leases'
        try:
            self._file = self._open(path)
        except OSError as error:
            raise SettingsError(
                f'{self.directory} cannot keep the notes of a worker ({error.strerror}):'
                ' name another directory with --state'
            ) from error
        try:
            yield
        finally:
            if self._is_empty:
                path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def write(self, lease_tokens: Sequence[UUID]) -> None:
        """Note the tokens, before they are used: a lease that nobody knows of runs out slowly."""
        if self._file is None:
            return
        # In lines of one length: killed before the cut, it leaves whole tokens of ended leases.
        body = ''.join(f'{token}\n' for token in lease_tokens).encode()
        try:
            os.pwrite(self._file, body, 0)
            os.ftruncate(self._file, len(body))
        except OSError as error:
            # A full disk costs the successor's speed, not the work.
            logger.warning('the leases cannot be noted in %s: %s', self.directory, error.strerror)
        self._is_empty = not body

    def abandoned(self) -> dict[Path, list[UUID]]:
        """The tokens of workers that are gone, by file."""
        found: dict[Path, list[UUID]] = {}
        for path in sorted(self.directory.glob('*.leases')):
            with suppress(OSError):
                file = os.open(path, os.O_RDONLY)
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    found[path] = read_tokens(path.read_bytes())
                finally:
                    os.close(file)
        return found

    def _open(self, path: Path) -> int:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Under another name until it is locked: a worker that starts beside this one would take
        # it for an abandoned one.
        young = path.with_suffix('.new')
        file = os.open(young, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        young.rename(path)
        return file


def read_tokens(body: bytes) -> list[UUID]:
    """All whole tokens; a line that is none is passed over."""
    tokens: list[UUID] = []
    for first in range(0, len(body), LINE_BYTES):
        with suppress(ValueError):
            tokens.append(UUID(body[first : first + LINE_BYTES].decode().strip()))
    return tokens

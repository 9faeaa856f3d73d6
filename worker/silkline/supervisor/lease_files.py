"""The lease tokens of each worker on this machine, in files that survive a kill.

One file per worker, locked while it lives. The kernel frees the lock of a killed worker, so the
next worker on this machine finds the file, releases the jobs at once, and removes the file.
"""

import fcntl
import logging
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

from silkline.errors import SettingsError
from silkline.settings import Project

logger = logging.getLogger(__name__)

LINE_BYTES = 37


class LeaseFiles:
    """The files of all workers of one project on this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file: int | None = None
        self._is_empty = True

    @contextmanager
    def held(self, worker_id: UUID) -> Generator[None]:
        """Keep a file for this worker. It stays if it still holds tokens at the end."""
        path = self.directory / f'{worker_id}.leases'
        try:
            self._file = self._open(path)
        except OSError as error:
            raise SettingsError(
                f'cannot write the lease file of this worker to {self.directory}'
                f' ({error.strerror}): choose another directory with --state'
            ) from error
        try:
            yield
        finally:
            if self._is_empty:
                path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def write(self, lease_tokens: Sequence[UUID]) -> None:
        """Write the tokens before they are used: an unknown lease only ends by timing out."""
        if self._file is None:
            return
        # Lines of equal length: a kill before the truncation leaves whole tokens of ended leases.
        body = ''.join(f'{token}\n' for token in lease_tokens).encode()
        try:
            os.pwrite(self._file, body, 0)
            os.ftruncate(self._file, len(body))
        except OSError as error:
            # On a full disk the next worker takes over more slowly; no work is lost.
            logger.warning('cannot write lease tokens to %s: %s', self.directory, error.strerror)
        self._is_empty = not body

    def abandoned(self) -> dict[Path, list[UUID]]:
        """The tokens of dead workers, by file."""
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
        # Under another name until it is locked: a worker that starts at the same time would
        # take it for abandoned.
        unlocked = path.with_suffix('.new')
        file = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        unlocked.rename(path)
        return file


def read_tokens(body: bytes) -> list[UUID]:
    """All whole tokens; malformed lines are ignored."""
    tokens: list[UUID] = []
    for first in range(0, len(body), LINE_BYTES):
        with suppress(ValueError):
            tokens.append(UUID(body[first : first + LINE_BYTES].decode().strip()))
    return tokens


def default_directory(project: Project, environment: Mapping[str, str] = os.environ) -> Path:
    """Where workers of this project keep their lease files on this machine."""
    home = environment.get('XDG_STATE_HOME') or Path.home() / '.local/state'
    name = project.url.partition('://')[2].replace(':', '_').replace('/', '_')
    return Path(home) / 'silkline' / name

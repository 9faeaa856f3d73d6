"""A directory of exported pages.

Owns the manifest (`MANIFEST`), which lists the files that exports wrote. An export never touches a
file that is not in it, or that was edited since. The name and contents of a file are `files.py`'s.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from silkline.cli.export.files import collision_key, document, path_of, read_url, with_suffix
from silkline.errors import SettingsError
from silkline.queue.rows import PageRow

MANIFEST = '.silkline-export.json'
FORMAT = 1

Change = Literal['new', 'changed', 'unchanged', 'edited']


@dataclass(slots=True)
class ExportCounts:
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    # Edited by hand since they were written, and left alone.
    edited: int = 0
    # Pages that may still exist, although this job did not see them.
    unseen: int = 0
    removed: int = 0


@dataclass(slots=True)
class Export:
    """One export into one directory: `plan` all names, `write` each page, `finish`."""

    directory: Path
    # Pages of another site are not mixed into the same directory.
    site: str
    counts: ExportCounts = field(default_factory=ExportCounts)
    paths: dict[UUID, str] = field(default_factory=dict[UUID, str])
    _has_many_hosts: bool = False
    _taken: set[str] = field(default_factory=set[str])
    # Path -> hash of what was written there; None while it is being written.
    _before: dict[str, str | None] = field(default_factory=dict[str, str | None])
    _files: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def plan(self, urls: Iterable[tuple[UUID, str]]) -> None:
        """Name the file of each page; raise if the directory cannot be used."""
        check_directory(self.directory, self.site)
        manifest = read_manifest(self.directory)
        self._before = dict[str, str | None](manifest['files']) if manifest else {}
        # Sorted, so that the same pages get the same names.
        pages = sorted(urls, key=lambda page: page[1])
        self._has_many_hosts = len({urlsplit(url).netloc for _, url in pages}) > 1
        self.directory.mkdir(parents=True, exist_ok=True)
        # Names from an earlier export may be reused; names of other files may not.
        self._taken = {collision_key(path) for path in self._other_files()}
        for url_key, url in pages:
            self.paths[url_key] = self._free_path(url_key, url)
        self._files = {path: self._before.get(path) for path in self.paths.values()}
        # Before the first file: if this export is interrupted, the next one knows its files.
        self._write_manifest(self._before | self._files)

    def write(self, page: PageRow) -> Change:
        """Write one page, unless its file is up to date or was edited by hand."""
        # If the job is still running, there may be pages that `plan` has not seen.
        path = self.paths.get(page.url_key) or self._free_path(page.url_key, page.url)
        target = self.directory / path
        body = document(page).encode()
        written = digest(body)
        with suppress(FileNotFoundError):
            found = digest(target.read_bytes())
            if found == written:
                return self._record('unchanged', path, written)
            if self._before.get(path) not in (None, found):
                return self._record('edited', path, self._before[path])
        is_new = not target.exists()
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, body)
        return self._record('new' if is_new else 'changed', path, written)

    def unwritten(self) -> dict[str, str | None]:
        """The files that an earlier export wrote and this one did not, with the URLs in them."""
        left = self._before.keys() - self._files.keys()
        targets = {path: self.directory / path for path in left}
        return {path: read_url(target) for path, target in targets.items() if target.exists()}

    def finish(self, *, unseen: Collection[str] = ()) -> ExportCounts:
        """Remove the files of pages that are gone and write the manifest."""
        for path in self._before.keys() - self._files.keys():
            if path in unseen:
                self.counts.unseen += 1
                self._files[path] = self._before[path]
                continue
            target = self.directory / path
            with suppress(OSError):
                if digest(target.read_bytes()) == self._before[path]:
                    target.unlink()
                    self.counts.removed += 1
                    for parent in PurePosixPath(path).parents:
                        # Stops at the first folder that is not empty.
                        (self.directory / parent).rmdir()
        self._write_manifest(self._files)
        return self.counts

    def _free_path(self, url_key: UUID, url: str) -> str:
        path = path_of(url, with_host=self._has_many_hosts)
        for suffix in (url_key.hex[:8], url_key.hex):
            if collision_key(path) in self._taken:
                path = with_suffix(path_of(url, with_host=self._has_many_hosts), suffix)
        self._taken.add(collision_key(path))
        return path

    def _other_files(self) -> Iterable[str]:
        for folder, _, names in os.walk(self.directory):
            for name in names:
                path = (Path(folder) / name).relative_to(self.directory).as_posix()
                if path not in self._before:
                    yield path

    def _record(self, change: Change, path: str, written: str | None) -> Change:
        setattr(self.counts, change, getattr(self.counts, change) + 1)
        self._files[path] = written
        return change

    def _write_manifest(self, files: Mapping[str, str | None]) -> None:
        body = {
            'about': 'Files that silkline wrote. It touches no other files in this directory.',
            'format': FORMAT,
            'site': self.site,
            'files': dict(sorted(files.items())),
        }
        text = json.dumps(body, ensure_ascii=False, indent=1)
        write_atomically(self.directory / MANIFEST, text.encode())


def check_directory(directory: Path, site: str) -> None:
    """Raise unless it is new, empty, or an export of the same site."""
    nearest = next(path for path in (directory, *directory.parents) if path.exists())
    if not nearest.is_dir():
        raise SettingsError(f'{nearest} is not a directory')
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        raise SettingsError(
            f'you do not have permission to read and write {nearest}: choose another directory'
        )
    manifest = read_manifest(directory)
    if manifest is None and nearest == directory and any(directory.iterdir()):
        raise SettingsError(
            f'{directory} contains other files: export to an empty directory, such as'
            f' {directory / "pages"}'
        )
    if manifest is not None and manifest.get('site') != site:
        raise SettingsError(
            f'{directory} contains the pages of {manifest.get("site")}, not of {site}:'
            ' choose another directory'
        )


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """What the last export recorded; None if there was none."""
    path = directory / MANIFEST
    try:
        manifest: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SettingsError(f'{path} is damaged: choose another directory') from error
    if not isinstance(manifest, dict) or not has_safe_paths(manifest.get('files')):
        raise SettingsError(f'{path} is damaged: choose another directory')
    if manifest.get('format') != FORMAT:
        raise SettingsError(
            f'{path} was written by another version of silkline: choose another directory'
        )
    return manifest


def has_safe_paths(files: object) -> bool:
    """Whether all paths stay inside the directory: the manifest may have been edited."""
    return isinstance(files, dict) and all(
        isinstance(path, str) and not path.startswith('/') and '..' not in path.split('/')
        for path in files
    )


def digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def write_atomically(target: Path, body: bytes) -> None:
    """Write a file completely or not at all."""
    partial = target.with_name(f'{target.name[:100]}.partial')
    partial.write_bytes(body)
    partial.replace(target)

"""The pages of a job as Markdown files with front matter, in a directory of their own.

Owns the names of the files, their front matter, and the list of them (`LIST`), by which an export
knows its own files from anybody else's: a file that it did not write, or that was changed since, is
never touched. Where pages come from is `page_commands.py`'s.
"""

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol
from urllib.parse import unquote, urlsplit
from uuid import UUID

from silkline.errors import SettingsError

LIST = '.silkline-export.json'
FORMAT = 1
LONGEST_NAME_BYTES = 100
LONGEST_PATH_BYTES = 200
# Endings that say "a page" and nothing else.
PAGE_ENDINGS = ('.html', '.htm', '.xhtml', '.md', '.markdown', '.php', '.asp', '.aspx', '.jsp')
# Not a file on Windows, whatever follows the first dot.
DEVICES = re.compile(r'(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)', re.IGNORECASE)
NO_NAME = '_'

Change = Literal['new', 'changed', 'unchanged', 'kept']


class Page(Protocol):
    """What a file is made of: `answers.PageRow`."""

    @property
    def url_key(self) -> UUID: ...
    @property
    def url(self) -> str: ...
    @property
    def http_status(self) -> int | None: ...
    @property
    def title(self) -> str | None: ...
    @property
    def markdown(self) -> str | None: ...
    @property
    def content_hash(self) -> str | None: ...
    @property
    def extractor(self) -> str | None: ...
    @property
    def extractor_version(self) -> str | None: ...
    @property
    def metadata(self) -> Mapping[str, Any] | None: ...
    @property
    def first_seen_at(self) -> datetime | None: ...


@dataclass(slots=True)
class Counts:
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    # Changed by hand since they were written.
    kept: int = 0
    # Of pages that may be there still, though this job did not see them.
    unseen: int = 0
    removed: int = 0


@dataclass(slots=True)
class Export:
    """One export into one directory: `plan` all names, `write` each page, `finish`."""

    directory: Path
    # Whose pages: an export of another site is not mixed into it.
    site: str
    counts: Counts = field(default_factory=Counts)
    paths: dict[UUID, str] = field(default_factory=dict[UUID, str])
    _has_many_hosts: bool = False
    _taken: set[str] = field(default_factory=set[str])
    # Path -> the hash of what was written there; none while it is being written.
    _before: dict[str, str | None] = field(default_factory=dict[str, str | None])
    _files: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def plan(self, urls: Iterable[tuple[UUID, str]]) -> None:
        """Name the file of each page; raise if the directory is not for them."""
        refuse_foreign(self.directory, self.site)
        listed = read_list(self.directory)
        self._before = dict[str, str | None](listed['files']) if listed else {}
        # In one order, so that the same pages get the same names.
        pages = sorted(urls, key=lambda page: page[1])
        self._has_many_hosts = len({urlsplit(url).netloc for _, url in pages}) > 1
        self.directory.mkdir(parents=True, exist_ok=True)
        # The names that are ours already may be had again; all others that exist may not.
        self._taken = {sameness(path) for path in self._foreign_files()}
        for url_key, url in pages:
            self.paths[url_key] = self._free_path(url_key, url)
        self._files = {path: self._before.get(path) for path in self.paths.values()}
        # Before the first file: what is written from now on is known to be ours.
        self._write_list(self._before | self._files)

    def write(self, page: Page) -> Change:
        """Write one page, unless its file is as it should be or is no longer ours."""
        # A job that still runs brings pages that were not there when names were given.
        path = self.paths.get(page.url_key) or self._free_path(page.url_key, page.url)
        target = self.directory / path
        body = document(page).encode()
        written = digest(body)
        with suppress(FileNotFoundError):
            found = digest(target.read_bytes())
            if found == written:
                return self._note('unchanged', path, written)
            if self._before.get(path) not in (None, found):
                return self._note('kept', path, self._before[path])
        is_new = not target.exists()
        target.parent.mkdir(parents=True, exist_ok=True)
        replace(target, body)
        return self._note('new' if is_new else 'changed', path, written)

    def unwritten(self) -> dict[str, str | None]:
        """The files that an earlier export wrote and this one did not, with the URLs in them."""
        left = self._before.keys() - self._files.keys()
        targets = {path: self.directory / path for path in left}
        return {path: url_in(target) for path, target in targets.items() if target.exists()}

    def finish(self, *, unseen: Collection[str] = ()) -> Counts:
        """Remove the files of pages that are gone, and write down what there is."""
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
                        # Stops at the first that holds something else.
                        (self.directory / parent).rmdir()
        self._write_list(self._files)
        return self.counts

    def _free_path(self, url_key: UUID, url: str) -> str:
        path = path_of(url, with_host=self._has_many_hosts)
        for suffix in (url_key.hex[:8], url_key.hex):
            if sameness(path) in self._taken:
                path = with_suffix(path_of(url, with_host=self._has_many_hosts), suffix)
        self._taken.add(sameness(path))
        return path

    def _foreign_files(self) -> Iterable[str]:
        for folder, _, names in os.walk(self.directory):
            for name in names:
                path = (Path(folder) / name).relative_to(self.directory).as_posix()
                if path not in self._before:
                    yield path

    def _note(self, change: Change, path: str, written: str | None) -> Change:
        setattr(self.counts, change, getattr(self.counts, change) + 1)
        self._files[path] = written
        return change

    def _write_list(self, files: Mapping[str, str | None]) -> None:
        body = {
            'about': 'Files that silkline wrote; it touches no others in this directory.',
            'format': FORMAT,
            'site': self.site,
            'files': dict(sorted(files.items())),
        }
        replace(self.directory / LIST, json.dumps(body, ensure_ascii=False, indent=1).encode())


def refuse_foreign(directory: Path, site: str) -> None:
    """Raise unless pages of a site may be written there: it is new, empty, or an export of it."""
    nearest = next(path for path in (directory, *directory.parents) if path.exists())
    if not nearest.is_dir():
        raise SettingsError(f'{nearest} is no directory')
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        raise SettingsError(f'{nearest} may not be read or written by you: name another directory')
    listed = read_list(directory)
    if listed is None and nearest == directory and any(directory.iterdir()):
        raise SettingsError(
            f'{directory} has other files in it; an export wants a directory of its own,'
            f' such as {directory / "pages"}'
        )
    if listed is not None and listed.get('site') != site:
        raise SettingsError(
            f'{directory} holds the pages of {listed.get("site")}, not of {site}:'
            ' name another directory'
        )


def read_list(directory: Path) -> dict[str, Any] | None:
    """What the last export wrote down; nothing where there was none."""
    path = directory / LIST
    try:
        listed: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SettingsError(f'{path} is damaged: name another directory') from error
    if not isinstance(listed, dict) or not is_list_of_files(listed.get('files')):
        raise SettingsError(f'{path} is damaged: name another directory')
    if listed.get('format') != FORMAT:
        raise SettingsError(f'{path} is of another version of silkline: name another directory')
    return listed


def is_list_of_files(files: object) -> bool:
    """Whether every path stays in the directory: the list may have been edited."""
    return isinstance(files, dict) and all(
        isinstance(path, str) and not path.startswith('/') and '..' not in path.split('/')
        for path in files
    )


def path_of(url: str, *, with_host: bool) -> str:
    """The file of a URL, below the directory of the export and valid on every file system."""
    parts = urlsplit(url)
    segments = [segment for segment in parts.path.split('/')[1:] if segment not in ('.', '..')]
    *folders, last = segments or ['']
    last = safe(unquote(last)) if last else 'index'
    for ending in PAGE_ENDINGS:
        if last.lower().endswith(ending) and len(last) > len(ending):
            last = last[: -len(ending)]
            break
    if parts.query:
        last = f'{last}_{safe(unquote(parts.query))}'
    names = [safe(unquote(folder)) for folder in folders if folder]
    if with_host:
        names.insert(0, safe(parts.netloc))
    # A file always ends in .md and a folder never does, so that neither takes the other's name.
    names = [f'{name}_' if name.lower().endswith('.md') else name for name in names]
    path = '/'.join([*(cut(name) for name in names), f'{cut(last)}.md'])
    if len(path.encode()) > LONGEST_PATH_BYTES:
        first = f'{cut(names[0])}/' if with_host else ''
        path = f'{first}{cut(last, LONGEST_NAME_BYTES - 20)}-{short_hash(path)}.md'
    return path


def safe(name: str) -> str:
    """A name that no file system takes for anything but a name."""
    name = unicodedata.normalize('NFC', name)
    name = ''.join(
        NO_NAME if char in '/\\:*?"<>|' or not char.isprintable() else char for char in name
    )
    name = name.rstrip('. ')
    if name.startswith(('.', ' ', '-')):
        name = NO_NAME + name[1:]
    return DEVICES.sub(r'\1_', name, count=1) if DEVICES.match(name) else name or NO_NAME


def cut(name: str, longest: int = LONGEST_NAME_BYTES) -> str:
    """Names that are cut alike are told apart by a hash of the whole."""
    if len(name.encode()) <= longest:
        return name
    kept = name.encode()[: longest - 9].decode(errors='ignore')
    return f'{kept}-{short_hash(name)}'


def short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def with_suffix(path: str, suffix: str) -> str:
    return f'{path.removesuffix(".md")}-{suffix}.md'


def sameness(path: str) -> str:
    """Equal for two paths that may be one file where case or accents do not count."""
    return unicodedata.normalize('NFC', unicodedata.normalize('NFD', path).casefold())


def document(page: Page) -> str:
    """Front matter and Markdown. The same page makes the same bytes, whenever it is exported."""
    metadata = page.metadata or {}
    # When this content came first: a page that has not changed is a file that does not change.
    fetched_at = page.first_seen_at.astimezone(UTC) if page.first_seen_at else None
    facts: dict[str, object] = {
        'url': page.url,
        'title': page.title,
        'description': metadata.get('description'),
        'language': metadata.get('language'),
        'fetched_at': fetched_at.strftime('%Y-%m-%dT%H:%M:%SZ') if fetched_at else None,
        # 304 says that the page is as it was when it came with 200.
        'http_status': 200 if page.http_status == 304 else page.http_status,
        'content_hash': page.content_hash,
        'extractor': page.extractor,
        'extractor_version': page.extractor_version,
    }
    lines = [f'{name}: {yaml_value(value)}' for name, value in facts.items() if value is not None]
    body = (page.markdown or '').strip('\n')
    return '\n'.join(['---', *lines, '---', '', *([body, ''] if body else [])])


def url_in(path: Path) -> str | None:
    """The URL in the front matter of a file; none if it was changed by hand."""
    with suppress(OSError, ValueError), path.open(encoding='utf-8') as file:
        head, line = file.readline(), file.readline()
        if head == '---\n' and line.startswith('url: '):
            return str(json.loads(line.removeprefix('url: ')))
    return None


def yaml_value(value: object) -> str:
    """A scalar as JSON writes it, which is YAML too but for line breaks that JSON does not know."""
    text = json.dumps(value if isinstance(value, int | str) else str(value), ensure_ascii=False)
    return ''.join(
        f'\\u{ord(char):04x}'
        if '\x7f' <= char <= '\x9f' or char in '\u2028\u2029\ufeff' or '\ud800' <= char <= '\udfff'
        else char
        for char in text
    )


def digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def replace(target: Path, body: bytes) -> None:
    """Write a file whole or not at all."""
    partial = target.with_name(f'{target.name[:100]}.partial')
    partial.write_bytes(body)
    partial.replace(target)

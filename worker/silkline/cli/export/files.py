"""One page as a Markdown file: its name, its front matter and its text.

Owns the mapping from URLs to paths, which must be valid on every file system. Two URLs may still
map to the same path; `directory.py` keeps them apart.
"""

import hashlib
import json
import re
import unicodedata
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from urllib.parse import unquote, urlsplit

from silkline.queue.rows import PageRow

LONGEST_NAME_BYTES = 100
LONGEST_PATH_BYTES = 200
# Endings that say nothing about a page but that it is one.
PAGE_ENDINGS = ('.html', '.htm', '.xhtml', '.md', '.markdown', '.php', '.asp', '.aspx', '.jsp')
# Device names on Windows, whatever follows the first dot.
DEVICES = re.compile(r'(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)', re.IGNORECASE)
NO_NAME = '_'


def path_of(url: str, *, with_host: bool) -> str:
    """The path for a URL, relative to the export and valid on every file system."""
    parts = urlsplit(url)
    segments = [segment for segment in parts.path.split('/')[1:] if segment not in ('.', '..')]
    *folders, last = segments or ['']
    last = safe_name(unquote(last)) if last else 'index'
    for ending in PAGE_ENDINGS:
        if last.lower().endswith(ending) and len(last) > len(ending):
            last = last[: -len(ending)]
            break
    if parts.query:
        last = f'{last}_{safe_name(unquote(parts.query))}'
    names = [safe_name(unquote(folder)) for folder in folders if folder]
    if with_host:
        names.insert(0, safe_name(parts.netloc))
    # Files always end in .md and folders never do, so a file and a folder never collide.
    names = [f'{name}_' if name.lower().endswith('.md') else name for name in names]
    path = '/'.join([*(shorten_name(name) for name in names), f'{shorten_name(last)}.md'])
    if len(path.encode()) > LONGEST_PATH_BYTES:
        first = f'{shorten_name(names[0])}/' if with_host else ''
        path = f'{first}{shorten_name(last, LONGEST_NAME_BYTES - 20)}-{short_hash(path)}.md'
    return path


def safe_name(name: str) -> str:
    """Replace what some file system would not take as part of a name."""
    name = unicodedata.normalize('NFC', name)
    name = ''.join(
        NO_NAME if char in '/\\:*?"<>|' or not char.isprintable() else char for char in name
    )
    name = name.rstrip('. ')
    if name.startswith(('.', ' ', '-')):
        name = NO_NAME + name[1:]
    return DEVICES.sub(r'\1_', name, count=1) if DEVICES.match(name) else name or NO_NAME


def shorten_name(name: str, longest: int = LONGEST_NAME_BYTES) -> str:
    """Shortened names end in a hash of the whole name, which keeps them apart."""
    if len(name.encode()) <= longest:
        return name
    kept = name.encode()[: longest - 9].decode(errors='ignore')
    return f'{kept}-{short_hash(name)}'


def short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def with_suffix(path: str, suffix: str) -> str:
    return f'{path.removesuffix(".md")}-{suffix}.md'


def collision_key(path: str) -> str:
    """Equal for two paths that name one file where case or accents do not count."""
    return unicodedata.normalize('NFC', unicodedata.normalize('NFD', path).casefold())


def document(page: PageRow) -> str:
    """Front matter and Markdown; the same page always gives the same bytes."""
    metadata = page.metadata or {}
    # When this content was first seen: the file of an unchanged page must not change.
    fetched_at = page.first_seen_at.astimezone(UTC) if page.first_seen_at else None
    facts: dict[str, object] = {
        'url': page.url,
        'title': page.title,
        'description': metadata.get('description'),
        'language': metadata.get('language'),
        'fetched_at': fetched_at.strftime('%Y-%m-%dT%H:%M:%SZ') if fetched_at else None,
        # 304 means that the page is the same as when it came with 200.
        'http_status': 200 if page.http_status == 304 else page.http_status,
        'content_hash': page.content_hash,
        'extractor': page.extractor,
        'extractor_version': page.extractor_version,
        'kept': (page.quality or {}).get('kept'),
        'warnings': page.warnings or None,
    }
    lines = [f'{name}: {yaml_value(value)}' for name, value in facts.items() if value is not None]
    body = (page.markdown or '').strip('\n')
    return '\n'.join(['---', *lines, '---', '', *([body, ''] if body else [])])


def read_url(path: Path) -> str | None:
    """The URL in the front matter of a file; None if the file was edited and has none."""
    with suppress(OSError, ValueError), path.open(encoding='utf-8') as file:
        head, line = file.readline(), file.readline()
        if head == '---\n' and line.startswith('url: '):
            return str(json.loads(line.removeprefix('url: ')))
    return None


def yaml_value(value: object) -> str:
    """A value as JSON, with the characters escaped that YAML does not allow in it."""
    is_plain = isinstance(value, int | float | str | list)
    text = json.dumps(value if is_plain else str(value), ensure_ascii=False)
    return ''.join(
        f'\\u{ord(char):04x}'
        if '\x7f' <= char <= '\x9f' or char in '\u2028\u2029\ufeff' or '\ud800' <= char <= '\udfff'
        else char
        for char in text
    )

"""Sitemaps of all kinds: urlset, sitemapindex, RSS, Atom and plain text, gzipped or not.

Parsed as a stream with the standard library's expat, never as a tree. A document type declaration
is refused, so that a sitemap cannot define entities. What was read before a limit or an error is
kept, and a bare ampersand is not an error. Fetching, and joining the links, is left to the caller.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal
from xml.parsers import expat

MAX_BYTES = 50 * 1024 * 1024
MAX_ENTRIES = 50_000
MAX_DEPTH = 50
MAX_LINK_LENGTH = 4096
# Bare ampersands; a sitemap may have a few in each link.
MAX_AMPERSANDS = 1_000_000

_GZIP = b'\x1f\x8b'
_CHUNK = 64 * 1024
_MAX_PIECE = 1024 * 1024
_ROOT = re.compile(rb'<(?:[\w.-]+:)?(urlset|sitemapindex|rss|feed|RDF)[\s>/]', re.IGNORECASE)
_URL_LINE = re.compile(rb'https?://\S+[ \t]*(?:[\r\n]|\Z)', re.IGNORECASE)
# An ampersand that begins none of XML's own references; those in CDATA stand for themselves.
_AMPERSAND = re.compile(
    rb'<!\[CDATA\[.*?(?:\]\]>|\Z)|&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});)',
    re.DOTALL,
)
_ROOTS = frozenset({'urlset', 'sitemapindex', 'rss', 'feed', 'rdf'})


class NotASitemap(ValueError):
    """It cannot be read as a sitemap; the message says what it is instead."""


@dataclass(slots=True)
class Sitemap:
    """The URLs of pages and of further sitemaps as written, in order, without duplicates."""

    pages: list[str] = field(default_factory=list[str])
    sitemaps: list[str] = field(default_factory=list[str])


def parse_sitemap(body: bytes) -> Sitemap:
    """Read a sitemap of any kind."""
    first, chunks = _begin(_chunks(body))
    if first[:1] != b'<' and first[:2] not in (b'\xff\xfe', b'\xfe\xff'):
        return _read_lines(first, chunks)
    reader = _SitemapParser()
    sitemap = reader.read(first, chunks)
    # In UTF-16 an ampersand is two bytes, which are not searched for.
    if reader.is_broken and b'\0' not in first:
        sitemap = _SitemapParser().read(*_begin(_with_ampersands_escaped(_chunks(body))))
    return sitemap


def looks_like_sitemap(body: bytes) -> bool:
    """Whether a body begins like an XML sitemap or feed. Plain lists of URLs do not count."""
    head = body[:4096]
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(31).decompress(head, 4096)
        except zlib.error:
            return False
    return _ROOT.search(head.replace(b'\0', b'')) is not None


def _chunks(body: bytes) -> Iterator[bytes]:
    """The body in chunks, decompressed, up to `MAX_BYTES`."""
    if not body.startswith(_GZIP):
        for start in range(0, min(len(body), MAX_BYTES), _CHUNK):
            yield body[start : min(start + _CHUNK, MAX_BYTES)]
        return
    room = MAX_BYTES
    rest = body
    while rest.startswith(_GZIP) and room > 0:
        # One gzip member; more may follow.
        unzip = zlib.decompressobj(31)
        while not unzip.eof and room > 0:
            try:
                chunk = unzip.decompress(rest, min(_CHUNK, room))
            except zlib.error:
                return
            rest = unzip.unconsumed_tail
            if not chunk and not rest:
                break
            room -= len(chunk)
            yield chunk
        rest = unzip.unused_data


def _begin(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first chunk that is not blank, without leading white space, and the other chunks."""
    first = b''
    for chunk in chunks:
        first = (first + chunk).removeprefix(b'\xef\xbb\xbf').lstrip()
        if first:
            return first, chunks
    raise NotASitemap('the sitemap is empty')


def _with_ampersands_escaped(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b''
    escaped = 0
    for chunk in chunks:
        rest += chunk
        # After a tag, nothing can continue in the next chunk.
        end = rest.rfind(b'>') + 1
        opened = rest.rfind(b'<![CDATA[', 0, end)
        if opened > rest.rfind(b']]>', 0, end):
            end = opened
        if not end and len(rest) > _MAX_PIECE:
            end = len(rest)
        piece, count = _AMPERSAND.subn(_escaped, rest[:end])
        yield piece
        rest = rest[end:]
        escaped += count
        if escaped > MAX_AMPERSANDS:
            return
    yield _AMPERSAND.sub(_escaped, rest)


def _escaped(found: re.Match[bytes]) -> bytes:
    return b'&amp;' if found[0] == b'&' else found[0]


class _LimitReached(Exception):
    """A limit was reached: what was read so far is the result."""


class _SitemapParser:
    """The handlers for expat, which fill the two lists."""

    def __init__(self) -> None:
        self.pages: dict[str, None] = {}
        self.sitemaps: dict[str, None] = {}
        self.root = ''
        self.is_broken = False
        self.open: list[str] = []
        self.text: list[str] | None = None
        self.length = 0

    def read(self, first: bytes, chunks: Iterator[bytes]) -> Sitemap:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self.refuse
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.characters
        try:
            parser.Parse(first, False)
            for chunk in chunks:
                parser.Parse(chunk, False)
            parser.Parse(b'', True)
        except _LimitReached:
            pass
        except (expat.ExpatError, ValueError, LookupError) as error:
            # NotASitemap is a ValueError; unknown encodings raise the others.
            if isinstance(error, NotASitemap):
                raise
            if not self.root:
                raise NotASitemap(f'the sitemap is not XML: {error}') from error
            self.is_broken = True
        if self.root not in _ROOTS:
            raise NotASitemap(f'not a sitemap: the root element is {self.root[:40]!r}')
        return Sitemap(pages=list(self.pages), sitemaps=list(self.sitemaps))

    def refuse(self, name: str, *_: object) -> None:
        raise NotASitemap(f'the sitemap declares a document type ({name[:40]}), which is refused')

    def start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(':')[2].lower()
        if not self.open:
            self.root = local
            if local not in _ROOTS:
                raise _LimitReached
        parent = self.open[-1] if self.open else ''
        self.open.append(local)
        if len(self.open) > MAX_DEPTH:
            raise _LimitReached
        if local == 'loc' and parent in ('url', 'sitemap'):
            self.text = []
            self.length = 0
        elif local == 'link' and parent == 'item' and self.root in ('rss', 'rdf'):
            self.text = []
            self.length = 0
        elif local == 'link' and parent == 'entry' and self.root == 'feed':
            if attributes.get('rel', 'alternate') == 'alternate':
                self.keep('page', attributes.get('href', ''))

    def characters(self, data: str) -> None:
        # Longer text is not a URL, so the rest of it is not kept.
        if self.text is not None and self.length <= MAX_LINK_LENGTH:
            self.text.append(data)
            self.length += len(data)

    def end(self, name: str) -> None:
        self.open.pop()
        if self.text is not None:
            kind = 'sitemap' if self.open and self.open[-1] == 'sitemap' else 'page'
            self.keep(kind, ''.join(self.text))
            self.text = None

    def keep(self, kind: Literal['page', 'sitemap'], link: str) -> None:
        link = link.strip()
        if link and len(link) <= MAX_LINK_LENGTH:
            (self.sitemaps if kind == 'sitemap' else self.pages)[link] = None
            if len(self.pages) + len(self.sitemaps) >= MAX_ENTRIES:
                raise _LimitReached


def _read_lines(first: bytes, chunks: Iterator[bytes]) -> Sitemap:
    # The first line must be a URL and nothing else: prose may begin with a URL.
    if not _URL_LINE.match(first):
        raise NotASitemap('the sitemap is neither XML nor a list of URLs')
    pages: dict[str, None] = {}
    rest = first
    while rest:
        *lines, rest = re.split(rb'[\r\n]+', rest)
        chunk = next(chunks, b'')
        if chunk and len(rest) <= MAX_LINK_LENGTH:
            rest += chunk
        elif chunk:
            # The line is too long for a URL: it is dropped, and what follows it is kept.
            rest = b'\x00' + chunk
        else:
            lines.append(rest)
            rest = b''
        for line in lines:
            link = line.decode('utf-8', 'replace').strip()
            if len(link) <= MAX_LINK_LENGTH and link[:8].lower().startswith(
                ('http://', 'https://')
            ):
                pages[link] = None
                if len(pages) >= MAX_ENTRIES:
                    return Sitemap(pages=list(pages))
    return Sitemap(pages=list(pages))

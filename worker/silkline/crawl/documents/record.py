"""The record of a page: what the crawl itself fills in, and the limits of what is stored.

For pages of the built-in reader (`reader.py`) and of job kinds (`job_kinds.py`). Owns
`made_with`, by which a recrawl knows that a stored page is out of date, and the fingerprints by
which the engine recognises traps.
"""

import hashlib
import re
from collections import deque
from collections.abc import Sequence

from silkline import protocol
from silkline.crawl.extract import EXTRACTOR, EXTRACTOR_VERSION, Extractor
from silkline.crawl.options import CrawlOptions
from silkline.crawl.responses import Response
from silkline.crawl.urls import URL_RULES

# Longer validators are not stored: truncated, they would never match.
MAX_VALIDATOR = 1000
MAX_LINKS = 5000
MAX_LINK_BYTES = 1024 * 1024
# At six bytes each in JSON, all of them still fit into one message.
MAX_CHARACTERS = 10_000_000
# This much Markdown tells pages apart; less may be shared by pages made of scripts or images.
DISTINCT_CHARACTERS = 200
MAX_MADE_WITH = 300
SIMILAR_BYTES = 200

# Up to the next tag, so that an image within a link stays.
_ANCHOR = re.compile(rb'<a[\s>][^<]*', re.IGNORECASE)


def complete_page(
    page: protocol.Page,
    response: Response,
    *,
    text: str,
    extractor: str | None = None,
    extractor_version: str | None = None,
) -> None:
    """Fill in what the crawl knows about a page, whatever a plugin has put there."""
    # A page has changed if its visible text has: a new token in a script is not a change.
    visible = text if page.markdown is None else f'{page.title}\n{page.markdown}'
    page.content_hash = hashlib.sha256(visible.encode('utf-8', 'replace')).hexdigest()
    page.http_status = response.status
    # Of a page that scripts draw, they describe the shell: what it shows may change without them.
    if not response.is_rendered and not (page.quality and page.quality.needs_browser):
        page.etag = validator(response, 'ETag')
        page.last_modified = validator(response, 'Last-Modified')
    page.extractor = extractor
    page.extractor_version = extractor_version


def validator(response: Response, name: str) -> str | None:
    value = response.headers.get(name)
    return value if value and len(value) <= MAX_VALIDATOR else None


class Fingerprints:
    """Numbers that are equal for pages with the same content, except for their links.

    Duplicates have about the same size, so a body is hashed only if another one of about its size
    was seen recently; otherwise its size is its fingerprint.
    """

    def __init__(self) -> None:
        self._sizes: deque[int] = deque(maxlen=16)

    def of(self, response: Response, page: protocol.Page) -> int:
        if page.markdown and len(page.markdown) >= DISTINCT_CHARACTERS:
            return hash((page.title, page.markdown))
        size = len(response.body)
        is_similar = any(abs(size - known) <= SIMILAR_BYTES for known in self._sizes)
        self._sizes.append(size)
        return hash(_ANCHOR.sub(b'', response.body)) if is_similar else size


def made_with(
    options: CrawlOptions, extractor: Extractor | None, *, hooks: Sequence[str] = ()
) -> str:
    """What shapes a page apart from its content. `hooks` are names with versions."""
    name = extractor.name if extractor else EXTRACTOR
    version = extractor.version if extractor else EXTRACTOR_VERSION
    parts = [
        f'fetcher={options.fetcher}',
        f'markdown={options.markdown}',
        f'links={options.links}',
        f'max_markdown_chars={options.max_markdown_chars}',
        f'extractor={versioned(name, version)}',
        f'urls={URL_RULES}',
        *(f'hook={hook}' for hook in hooks),
    ]
    if options.follow_nofollow:
        parts.append('follow_nofollow')
    if options.keep_noindex:
        parts.append('keep_noindex')
    return short(' '.join(parts))


def versioned(name: str, version: str) -> str:
    return f'{name}/{version}' if version else name


def bounded_links(links: list[str]) -> list[str]:
    """The first links of a page, as many as are stored."""
    if len(links) <= 200:
        return links
    room = MAX_LINK_BYTES
    for nth, link in enumerate(links):
        room -= len(link)
        if room < 0 or nth == MAX_LINKS:
            return links[:nth]
    return links


def short(text: str) -> str:
    """The text itself, or a hash of it that serves as well for comparing."""
    if len(text) <= MAX_MADE_WITH:
        return text
    return f'sha256={hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()}'

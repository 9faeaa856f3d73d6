"""A page as it is stored: its record, what tells it from others, and what it was made with.

Of pages that `reader.py` made and of those of job kinds (`job_kinds.py`).
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

# Longer validators are not stored: cut, they would never match.
MAX_VALIDATOR = 1000
MAX_LINKS = 5000
MAX_LINK_BYTES = 1024 * 1024
# With six bytes for each in JSON, all of it together still fits into a message.
MAX_CHARACTERS = 2_000_000
# So much Markdown tells pages apart; less of it is shared by pages that scripts or images make.
TELLING_CHARACTERS = 200
MAX_MADE_WITH = 300
ALIKE_BYTES = 200

# Up to whatever tag comes next, so that an image within a link is left.
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
    # What a reader would see decides whether a page has changed: a token in a script does not.
    seen = text if page.markdown is None else f'{page.title}\n{page.markdown}'
    page.content_hash = hashlib.sha256(seen.encode('utf-8', 'replace')).hexdigest()
    page.http_status = response.status
    page.etag = validator(response, 'ETag')
    page.last_modified = validator(response, 'Last-Modified')
    page.extractor = extractor
    page.extractor_version = extractor_version


def validator(response: Response, name: str) -> str | None:
    value = response.headers.get(name)
    return value if value and len(value) <= MAX_VALIDATOR else None


class Fingerprints:
    """What pages share that only echo: all but their links, of which the next one differs.

    Pages that echo are of about one size, so only a body of a size that came lately is looked
    at: for all others their size will do.
    """

    def __init__(self) -> None:
        self._sizes: deque[int] = deque(maxlen=16)

    def of(self, response: Response, page: protocol.Page) -> int:
        if page.markdown and len(page.markdown) >= TELLING_CHARACTERS:
            return hash((page.title, page.markdown))
        size = len(response.body)
        is_alike = any(abs(size - known) <= ALIKE_BYTES for known in self._sizes)
        self._sizes.append(size)
        return hash(_ANCHOR.sub(b'', response.body)) if is_alike else size


def made_with(
    options: CrawlOptions, extractor: Extractor | None, *, hooks: Sequence[str] = ()
) -> str:
    """What shapes a page apart from its content. `hooks` are names with versions."""
    name = extractor.name if extractor else EXTRACTOR
    version = extractor.version if extractor else EXTRACTOR_VERSION
    parts = [
        f'fetcher={options.fetcher}',
        f'markdown={options.markdown}',
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
    """As many links of a page as are kept."""
    if len(links) <= 200:
        return links
    room = MAX_LINK_BYTES
    for nth, link in enumerate(links):
        room -= len(link)
        if room < 0 or nth == MAX_LINKS:
            return links[:nth]
    return links


def short(text: str) -> str:
    """The text itself, or one as good to compare by."""
    if len(text) <= MAX_MADE_WITH:
        return text
    return f'sha256={hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()}'

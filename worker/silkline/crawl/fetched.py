"""What came of fetching one URL: the word between fetchers and the loop."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from silkline import protocol
from silkline.crawl.retries import RetryClass

# page: links of a page. sitemap: the entries of a sitemap.
LinkKind = Literal['page', 'sitemap']


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """With `trouble` it may be fetched again; with `redirect` it leads elsewhere."""

    status: Literal['done', 'error', 'skipped']
    http_status: int | None = None
    bytes: int | None = None
    skip_reason: protocol.SkipReason | None = None
    error: str | None = None
    retry_class: RetryClass | None = None
    # What the site asked for, or what the fetcher wants.
    retry_after_seconds: float | None = None
    redirect: str | None = None
    # The URL that a page names as its own; the page is dropped if that one can be had instead.
    canonical: str | None = None
    not_modified: bool | None = None
    page: protocol.Page | None = None
    links: Sequence[str] = field(default_factory=tuple[str, ...])
    link_kind: LinkKind = 'page'
    # Of a sitemap that names others: fetched wherever they are.
    sitemaps: Sequence[str] = field(default_factory=tuple[str, ...])
    # Nothing was asked for: it costs no page of the budget.
    unfetched: bool = False
    # Of the body, to know one that comes back under many URLs.
    fingerprint: int | None = None
    # Of the request; a sign of the host's load.
    seconds: float = 0.0


class Fetcher(Protocol):
    async def fetch(self, task: protocol.Task) -> Fetched:
        """Fetch one URL. An exception here is a bug, and fails the job."""
        ...

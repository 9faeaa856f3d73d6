"""The outcome of fetching one URL, as fetchers return it to the engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from silkline import protocol
from silkline.crawl.retries import RetryClass

# page: links of a page. sitemap: the entries of a sitemap.
LinkKind = Literal['page', 'sitemap']


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """With `retry_class` it may be fetched again; with `redirect` it leads to another URL."""

    status: Literal['done', 'error', 'skipped']
    http_status: int | None = None
    bytes: int | None = None
    skip_reason: protocol.SkipReason | None = None
    error: str | None = None
    retry_class: RetryClass | None = None
    # The site's Retry-After.
    retry_after_seconds: float | None = None
    redirect: str | None = None
    # The URL that a page names as canonical; the page is dropped once that one is stored.
    canonical: str | None = None
    not_modified: bool | None = None
    page: protocol.Page | None = None
    links: Sequence[str] = field(default_factory=tuple[str, ...])
    link_kind: LinkKind = 'page'
    # Sitemaps that a sitemap names; they are fetched whatever the scope is.
    sitemaps: Sequence[str] = field(default_factory=tuple[str, ...])
    # No request was made, so it costs nothing of the page budget.
    unfetched: bool = False
    # Equal for pages with the same content, which reveals traps.
    fingerprint: int | None = None
    # Scripts draw the page, and this process has no browser: a runner that has one fetches it.
    needs_browser: bool = False
    # How long the request took: a sign of the host's load.
    seconds: float = 0.0


class Fetcher(Protocol):
    async def fetch(self, task: protocol.Task) -> Fetched:
        """Fetch one URL. An exception is a bug, and fails the job."""
        ...

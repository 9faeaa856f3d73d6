"""Fetch one URL, and turn whatever comes back into a `Fetched`.

Owns conditional requests and the meaning of statuses and errors. A `FetchUrl` makes the request:
the egress, a browser or a plugin. Reading the body is left to a `DocumentReader`, retrying to the
engine.
"""

from collections.abc import Mapping
from typing import Protocol

from silkline import protocol
from silkline.crawl.fetched import Fetched
from silkline.crawl.net.egress import Wants
from silkline.crawl.options import CrawlOptions
from silkline.crawl.responses import (
    REDIRECTS,
    EgressError,
    NoResponse,
    Refused,
    Response,
    TooLarge,
    UndecodableBody,
)
from silkline.crawl.retries import RETRYABLE_KINDS, retry_after_seconds, retry_class_of, status_text
from silkline.crawl.urls import join

# Markdown of a page that is rendered: "Loading…", a name, a few links.
MAX_DRAWN_CHARACTERS = 500


class FetchUrl(Protocol):
    """Makes one request; `Egress.fetch` is one."""

    async def __call__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        max_bytes: int,
        timeout_seconds: float,
        wants: Wants,
    ) -> Response: ...


class DocumentReader(Protocol):
    """Turns a response into a page: `documents.reader.PageReader`, or that of a job kind."""

    @property
    def made_with(self) -> str:
        """What shapes a page apart from its content."""
        ...

    def wants(self, status: int, headers: Mapping[str, str], *, url: str) -> bool:
        """Whether the body is worth downloading."""
        ...

    def read(self, response: Response, *, task: protocol.Task, url: str) -> Fetched: ...


class Render(Protocol):
    """Shows a page that was fetched in a browser; `BrowserFetcher.render` is one."""

    async def __call__(
        self, response: Response, *, max_bytes: int, timeout_seconds: float
    ) -> Response: ...


class HttpFetcher:
    """With `render`, pages that scripts draw are shown in a browser before they are read. With
    `leaves_scripted_pages`, they are left to a runner that can do that.
    """

    def __init__(
        self,
        fetch_url: FetchUrl,
        reader: DocumentReader,
        options: CrawlOptions,
        *,
        render: Render | None = None,
        leaves_scripted_pages: bool = False,
    ) -> None:
        self._fetch_url = fetch_url
        self._reader = reader
        self._options = options
        self._render = render
        self._leaves_scripted_pages = leaves_scripted_pages

    async def fetch(self, task: protocol.Task) -> Fetched:
        url = task.url
        conditions = self._conditions(task)
        try:
            response = await self._fetch_url(
                url,
                headers=conditions,
                max_bytes=self._options.max_page_bytes,
                timeout_seconds=self._options.timeout_seconds,
                wants=lambda status, headers: self._reader.wants(status, headers, url=url),
            )
        except EgressError as error:
            return failed(error)
        status = response.status
        if 200 <= status < 300:
            fetched = self._read(response, task)
            return await self._rendered(fetched, response, task)
        if status == 304 and conditions:
            return Fetched(
                status='done', http_status=304, not_modified=True, seconds=response.seconds
            )
        if status in REDIRECTS:
            return redirected(response, url)
        return Fetched(
            status='error',
            http_status=status,
            error=status_text(status),
            retry_class=retry_class_of(status),
            retry_after_seconds=retry_after_seconds(response.headers.get('Retry-After')),
            seconds=response.seconds,
        )

    async def _rendered(self, fetched: Fetched, response: Response, task: protocol.Task) -> Fetched:
        """The page as it was read, unless scripts draw it and a browser can show it."""
        if response.is_rendered or not is_drawn_by_scripts(fetched.page):
            return fetched
        if self._leaves_scripted_pages:
            return Fetched(
                status='done',
                http_status=response.status,
                needs_browser=True,
                seconds=response.seconds,
            )
        if self._render is None:
            return fetched
        try:
            shown = await self._render(
                response,
                max_bytes=self._options.max_page_bytes,
                timeout_seconds=self._options.timeout_seconds,
            )
        except EgressError as error:
            return failed(error)
        if shown.status in REDIRECTS:
            return redirected(shown, task.url)
        return self._read(shown, task)

    def _read(self, response: Response, task: protocol.Task) -> Fetched:
        try:
            return self._reader.read(response, task=task, url=task.url)
        except MemoryError:
            raise
        except Exception as error:
            # A bug in a plugin or in the reader: it costs this page, not the crawl.
            return Fetched(
                status='error',
                http_status=response.status,
                error=f'could not read the page: {type(error).__name__}: {error}'[:1000],
            )

    def _conditions(self, task: protocol.Task) -> Mapping[str, str]:
        if not self._options.only_changes or task.made_with != self._reader.made_with:
            return {}
        headers: dict[str, str] = {}
        if task.etag:
            headers['If-None-Match'] = task.etag
        if task.last_modified:
            headers['If-Modified-Since'] = task.last_modified
        return headers


def is_drawn_by_scripts(page: protocol.Page | None) -> bool:
    """Whether a page has next to no text without a browser. One that has some is read as it is,
    even with the warning `needs_browser`: rendering costs a hundred times as much.
    """
    if page is None or page.quality is None or not page.quality.needs_browser:
        return False
    return len(page.markdown or '') <= MAX_DRAWN_CHARACTERS


def redirected(response: Response, url: str) -> Fetched:
    location = response.headers.get('Location')
    target = join(url, location) if location else None
    if target is None:
        why = f': cannot follow {location[:200]!r}' if location else ' without a Location header'
        return Fetched(
            status='error',
            http_status=response.status,
            error=status_text(response.status) + why,
        )
    return Fetched(
        status='skipped',
        http_status=response.status,
        skip_reason='redirect',
        redirect=target,
        seconds=response.seconds,
    )


def failed(error: EgressError) -> Fetched:
    match error:
        case Refused():
            return Fetched(
                status='skipped',
                skip_reason=error.skip_reason,
                error=str(error),
                unfetched=True,
            )
        case TooLarge():
            return Fetched(status='skipped', skip_reason='too_large', error=str(error))
        case NoResponse(kind=kind):
            return Fetched(status='error', error=str(error), retry_class=RETRYABLE_KINDS.get(kind))
        case UndecodableBody():
            return Fetched(status='error', error=str(error), retry_class='server')
        case _:
            return Fetched(status='error', error=str(error))

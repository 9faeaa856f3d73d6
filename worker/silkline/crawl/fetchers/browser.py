"""Pages as a browser shows them: fetched through the egress, rendered by Chromium.

The page itself is fetched with `Egress.fetch`, so that redirects, limits and refusals are those of
every other fetcher. Only a successful HTML response is rendered (`rendering.py`); what its scripts
load goes through `proxy.py`. A browser is replaced after some pages; each page has a context of
its own.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from silkline.crawl.fetchers.chromium import BrowserMissing, Chromium
from silkline.crawl.fetchers.proxy import Proxy
from silkline.crawl.fetchers.rendering import Rendering, Waits
from silkline.crawl.net.egress import Egress, Wants
from silkline.crawl.responses import NoResponse, Response

__all__ = ['BrowserFetcher', 'BrowserMissing', 'Waits']

PAGES_PER_BROWSER = 100
TABS = 4
# What all scripts of one page together may load.
TRAFFIC_BYTES = 64 * 1024 * 1024
HTML = frozenset(('text/html', 'application/xhtml+xml'))


class BrowserFetcher:
    """Fetches and renders, at most `tabs` pages at a time; an async context manager."""

    def __init__(
        self,
        egress: Egress,
        *,
        waits: Waits | None = None,
        pages_per_browser: int = PAGES_PER_BROWSER,
        tabs: int = TABS,
    ) -> None:
        self._egress = egress
        self._waits = waits or Waits()
        self._proxy = Proxy(egress)
        self._pages_per_browser = pages_per_browser
        self._tabs = asyncio.Semaphore(tabs)
        self._launching = asyncio.Lock()
        self._chromium: Chromium | None = None
        self._retired: set[Chromium] = set()

    async def __aenter__(self) -> Self:
        await self._proxy.__aenter__()
        try:
            # At once, so that a job fails before its first page if there is no browser.
            self._chromium = await self._launch()
        except BaseException:
            await self._proxy.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        browsers = [*self._retired, *([self._chromium] if self._chromium else [])]
        await asyncio.gather(*(browser.close() for browser in browsers))
        await self._proxy.__aexit__(kind, error, traceback)

    async def fetch(
        self,
        url: str,
        *,
        max_bytes: int,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        wants: Wants | None = None,
    ) -> Response:
        """Like `Egress.fetch`, with the body of an HTML page as its scripts leave it, in UTF-8.

        A page whose scripts navigate to another URL is returned as a redirect (302).
        """
        async with self._tabs:
            started_at = time.monotonic()
            response = await self._egress.fetch(
                url,
                max_bytes=max_bytes,
                timeout_seconds=timeout_seconds,
                headers=headers,
                wants=wants,
            )
            if not is_page(response):
                return response
            left_seconds = max(1.0, timeout_seconds - (time.monotonic() - started_at))
            rendered = await self._render(response, max_bytes, left_seconds)
            return replace(rendered, seconds=time.monotonic() - started_at)

    async def render(
        self, response: Response, *, max_bytes: int, timeout_seconds: float
    ) -> Response:
        """A page that was fetched already, as its scripts leave it."""
        async with self._tabs:
            return await self._render(response, max_bytes, timeout_seconds)

    async def _render(self, response: Response, max_bytes: int, seconds: float) -> Response:
        from playwright.async_api import Error

        # What the job asks to wait for is not part of the timeout of a request.
        seconds += self._waits.seconds
        chromium = await self._lease()
        session = self._proxy.open_session(max_bytes=TRAFFIC_BYTES)
        rendering = Rendering(response, max_bytes, self._waits)
        try:
            async with asyncio.timeout(seconds):
                return await rendering.run(chromium, session, seconds)
        except TimeoutError as error:
            raise NoResponse(
                f'the page was not rendered within {seconds:.0f} s', 'timeout'
            ) from error
        except Error as error:
            raise NoResponse('the browser crashed on this page', 'protocol') from error
        finally:
            await self._proxy.close_session(session)
            await rendering.close()
            await self._release(chromium)

    async def _lease(self) -> Chromium:
        """The browser for one more page; a new one if the last is used up or has crashed."""
        async with self._launching:
            chromium = self._chromium
            if chromium is None or chromium.is_gone or chromium.pages >= self._pages_per_browser:
                self._chromium = None
                if chromium is not None:
                    await self._retire(chromium)
                try:
                    chromium = self._chromium = await self._launch()
                except BrowserMissing as error:
                    raise NoResponse('could not start a browser', 'protocol') from error
            chromium.pages += 1
            chromium.open_pages += 1
            return chromium

    async def _launch(self) -> Chromium:
        return await Chromium.launch(self._proxy.url, user_agent=self._egress.user_agent)

    async def _release(self, chromium: Chromium) -> None:
        chromium.open_pages -= 1
        if chromium in self._retired and not chromium.open_pages:
            self._retired.discard(chromium)
            await chromium.close()

    async def _retire(self, chromium: Chromium) -> None:
        if chromium.open_pages:
            self._retired.add(chromium)
        else:
            await chromium.close()


def is_page(response: Response) -> bool:
    """Whether there is an HTML page to render."""
    kind = response.headers.get('Content-Type', '').partition(';')[0].strip().lower()
    return 200 <= response.status < 300 and bool(response.body) and kind in HTML

"""Pages as a browser shows them: fetched through the egress, rendered by Chromium.

The page itself comes by `Egress.fetch`, so that redirects, sizes, types and refusals are those of
every other fetcher. Only an HTML page that is there is handed to a browser, which runs it and is
asked for the outcome; what its scripts load comes through `proxy.py`. Playwright drives whatever
Chromium the machine has. A browser lives for some pages; a page, in a context of its own.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from multidict import CIMultiDict, CIMultiDictProxy

from silkline.crawl.fetchers.chromium import CLOSE_SECONDS, BrowserMissing, Chromium
from silkline.crawl.fetchers.proxy import Proxy, ProxySession
from silkline.crawl.net.egress import Egress, Wants
from silkline.crawl.responses import NoResponse, Response, TooLarge

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Route

__all__ = ['BrowserFetcher', 'BrowserMissing', 'open_browser']

PAGES_PER_BROWSER = 100
TABS = 4
# After the document is there: until its scripts have loaded what they want, or so long.
SETTLE_SECONDS = 5.0
# What the scripts of one page may load, all together.
TRAFFIC_BYTES = 64 * 1024 * 1024
HTML = frozenset(('text/html', 'application/xhtml+xml'))
# Not needed for text and links.
UNWANTED = frozenset(('image', 'media', 'font'))
# They describe the body as it was sent, or the connection.
STALE_HEADERS = frozenset(
    ('content-encoding', 'content-length', 'transfer-encoding', 'connection', 'keep-alive')
)
# To Chromium, a page with such a header is a file to save.
DOWNLOAD_HEADER = 'content-disposition'
# Where a page went that a browser has nothing to show for.
NOWHERE = ('about:', 'chrome-error:')
WITHOUT_WEBRTC = 'delete globalThis.RTCPeerConnection; delete globalThis.webkitRTCPeerConnection;'
# Evaluated in a world that the page's scripts cannot reach into. What web components keep in shadow
# trees is put where it is shown; the copy is made in a document without scripts.
SNAPSHOT = """(limit => {
  const inside = node => node.shadowRoot ? node.shadowRoot.childNodes
    : node.localName === 'slot' && node.assignedNodes().length ? node.assignedNodes()
    : node.childNodes;
  const flattened = root => {
    const inert = document.implementation.createHTMLDocument('');
    const copy = inert.importNode(root, false);
    const open = [[root, copy]];
    while (open.length) {
      const [node, target] = open.pop();
      for (const child of inside(node)) {
        if (child.localName === 'noscript') continue;
        target.append(inert.importNode(child, false));
        if (child.nodeType === Node.ELEMENT_NODE) open.push([child, target.lastChild]);
      }
    }
    return copy;
  };
  const type = document.doctype ? new XMLSerializer().serializeToString(document.doctype) : '';
  const root = document.documentElement;
  const hasShadows = Array.prototype.some.call(document.all, element => element.shadowRoot);
  let html = root ? root.outerHTML : '';
  if (hasShadows) try { html = flattened(root).outerHTML } catch {}
  return html.length > limit ? null : type + html;
})(%d)"""


@asynccontextmanager
async def open_browser(egress: Egress) -> 'AsyncGenerator[Callable[..., Any]]':
    """A way to get pages; raises `BrowserMissing` before the first."""
    async with BrowserFetcher(egress) as fetcher:
        yield fetcher.fetch


class BrowserFetcher:
    """Fetches and renders; an async context manager. `tabs` pages are open at once."""

    def __init__(
        self, egress: Egress, *, pages_per_browser: int = PAGES_PER_BROWSER, tabs: int = TABS
    ) -> None:
        self._egress = egress
        self._proxy = Proxy(egress)
        self._pages_per_browser = pages_per_browser
        self._tabs = asyncio.Semaphore(tabs)
        self._launching = asyncio.Lock()
        self._chromium: Chromium | None = None
        self._retired: set[Chromium] = set()

    async def __aenter__(self) -> Self:
        await self._proxy.__aenter__()
        try:
            # Now, so that a machine without a browser is told so before any page.
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
        """As `Egress.fetch`, with the body of an HTML page as its scripts leave it, in UTF-8.

        A page whose scripts lead elsewhere is answered as a redirect there (302).
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

    async def _render(self, response: Response, max_bytes: int, seconds: float) -> Response:
        from playwright.async_api import Error

        chromium = await self._lease()
        gate = self._proxy.open_gate(max_bytes=TRAFFIC_BYTES)
        visit = Visit(response, max_bytes)
        try:
            async with asyncio.timeout(seconds):
                return await visit.run(chromium, gate, seconds)
        except TimeoutError as error:
            raise NoResponse(
                f'the page was not rendered within {seconds:.0f} s', 'timeout'
            ) from error
        except Error as error:
            raise NoResponse('the browser broke down on this page', 'protocol') from error
        finally:
            await self._proxy.close_gate(gate)
            await visit.close()
            await self._release(chromium)

    async def _lease(self) -> Chromium:
        """The browser for one more page; a new one when the last is worn out or gone."""
        async with self._launching:
            chromium = self._chromium
            if chromium is None or chromium.is_gone or chromium.pages >= self._pages_per_browser:
                self._chromium = None
                if chromium is not None:
                    await self._retire(chromium)
                try:
                    chromium = self._chromium = await self._launch()
                except BrowserMissing as error:
                    raise NoResponse('no browser could be started', 'protocol') from error
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


class Visit:
    """One page in the browser."""

    def __init__(self, response: Response, max_bytes: int) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._is_served = False
        self._is_whole = False
        self._leads_to: str | None = None

    async def run(self, chromium: Chromium, gate: ProxySession, seconds: float) -> Response:
        from playwright.async_api import TimeoutError as Late

        ends_at = time.monotonic() + seconds
        self._context = context = await chromium.open_context(gate)
        await context.add_init_script(WITHOUT_WEBRTC)
        await context.route('**/*', self._route)
        self._page = page = await context.new_page()
        # Whatever there is when the time is nearly over is the page.
        last_moment = ends_at - min(3.0, seconds / 4)
        with contextlib.suppress(Late):
            await page.goto(
                self._response.url,
                wait_until='domcontentloaded',
                timeout=milliseconds_until(last_moment),
            )
        self._is_whole = True
        last_moment = min(last_moment, time.monotonic() + SETTLE_SECONDS)
        with contextlib.suppress(Late):
            await page.wait_for_load_state('networkidle', timeout=milliseconds_until(last_moment))
        if self._leads_to is not None:
            return self._redirect(self._leads_to)
        body = await self._snapshot(context, page)
        return self._response if body is None else self._rendered(body)

    async def close(self) -> None:
        if self._context is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._context.close()

    async def _route(self, route: 'Route') -> None:
        """Serve the page itself; let its parts load through the proxy, or not at all."""
        request = route.request
        if request.resource_type in UNWANTED:
            await route.abort()
        elif not request.is_navigation_request():
            await route.continue_()
        elif not self._is_of_this_page(route):
            # A window of its own, which nobody looks at.
            await route.abort()
        elif request.frame.parent_frame is not None:
            await route.continue_()
        elif not self._is_served:
            self._is_served = True
            # Always as 200: Chromium shows nothing of a 205.
            await route.fulfill(headers=fulfilled(self._response.headers), body=self._response.body)
        else:
            if request.method == 'GET' and request.url.partition('#')[0] != self._response.url:
                self._leads_to = request.url
            # What is shown stays, once it is whole. Before that it would never be: Chromium goes
            # on with a page of its own, about the failure.
            await route.abort('aborted' if self._is_whole else 'failed')

    def _is_of_this_page(self, route: 'Route') -> bool:
        try:
            return route.request.frame.page is self._page
        except Exception:
            return False

    async def _snapshot(self, context: 'BrowserContext', page: 'Page') -> bytes | None:
        """The page as it is shown; None if it has left itself, and nothing is."""
        session = await context.new_cdp_session(page)
        frame = (await session.send('Page.getFrameTree'))['frameTree']['frame']
        if frame['url'].startswith(NOWHERE):
            return None
        world = await session.send('Page.createIsolatedWorld', {'frameId': frame['id']})
        answer = await session.send(
            'Runtime.evaluate',
            {
                'expression': SNAPSHOT % self._max_bytes,
                'contextId': world['executionContextId'],
                'returnByValue': True,
            },
        )
        html = answer['result'].get('value')
        body = html.encode('utf-8', 'replace') if isinstance(html, str) else None
        if body is None or len(body) > self._max_bytes:
            raise TooLarge(f'the rendered page has more than {self._max_bytes} bytes')
        return body

    def _rendered(self, body: bytes) -> Response:
        headers = kept(self._response.headers)
        headers['Content-Type'] = 'text/html; charset=utf-8'
        return replace(self._response, body=body, headers=CIMultiDictProxy(headers))

    def _redirect(self, target: str) -> Response:
        headers = CIMultiDict({'Location': target})
        return replace(self._response, status=302, body=b'', headers=CIMultiDictProxy(headers))


def milliseconds_until(moment: float) -> float:
    """For Playwright, to which 0 is no limit."""
    return max(1.0, (moment - time.monotonic()) * 1000)


def is_page(response: Response) -> bool:
    """Whether there is something that a browser makes more of."""
    kind = response.headers.get('Content-Type', '').partition(';')[0].strip().lower()
    return 200 <= response.status < 300 and bool(response.body) and kind in HTML


def kept(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in STALE_HEADERS
    )


def fulfilled(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as Playwright takes them: once each, and a line per cookie."""
    merged: dict[str, str] = {}
    for name, value in kept(headers).items():
        name = name.lower()
        if name == DOWNLOAD_HEADER:
            continue
        separator = '\n' if name == 'set-cookie' else ', '
        merged[name] = f'{merged[name]}{separator}{value}' if name in merged else value
    return merged

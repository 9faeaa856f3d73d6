"""One page in the browser: open it, let its scripts run, take a snapshot.

The document itself is served from the response that the egress fetched; its parts load through the
proxy, or not at all. Which browser shows it, and when, is left to `browser.py`.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from multidict import CIMultiDict, CIMultiDictProxy

from silkline.crawl.fetchers.chromium import CLOSE_SECONDS, Chromium
from silkline.crawl.fetchers.proxy import ProxySession
from silkline.crawl.responses import NoResponse, Response, TooLarge

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Route

# How long the scripts of a loaded document may take to load the rest.
SETTLE_SECONDS = 5.0
# A page that grows as it is scrolled is scrolled this often.
MAX_SCROLLS = 20
SCROLL_SECONDS = 0.3
# Not needed for text and links.
UNWANTED = frozenset(('image', 'media', 'font'))
# They describe the original body, or the connection.
STALE_HEADERS = frozenset(
    ('content-encoding', 'content-length', 'transfer-encoding', 'connection', 'keep-alive')
)
# Chromium would save a page with this header as a file.
DOWNLOAD_HEADER = 'content-disposition'
# The URLs of an empty page and of an error page.
EMPTY_PAGES = ('about:', 'chrome-error:')
WITHOUT_WEBRTC = 'delete globalThis.RTCPeerConnection; delete globalThis.webkitRTCPeerConnection;'
SCROLL = (
    '(scrollTo(0, document.documentElement.scrollHeight), document.documentElement.scrollHeight)'
)
# Evaluated in an isolated world, out of reach of the page's scripts. Shadow trees of web components
# are put where they are shown; the copy is made in a document that runs no scripts.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What a job waits for before it reads a page, besides the network: its options."""

    selector: str | None = None
    seconds: float = 0.0
    scrolls: bool = False


class Rendering:
    """One page in the browser, in a context of its own."""

    def __init__(self, response: Response, max_bytes: int, waits: Waits) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self._waits = waits
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._is_served = False
        self._is_loaded = False
        self._navigates_to: str | None = None

    async def run(self, chromium: Chromium, session: ProxySession, seconds: float) -> Response:
        from playwright.async_api import TimeoutError as Late

        ends_at = time.monotonic() + seconds
        self._context = context = await chromium.open_context(session)
        await context.add_init_script(WITHOUT_WEBRTC)
        await context.route('**/*', self._route)
        self._page = page = await context.new_page()
        # Shortly before the timeout, the page is taken as it is.
        last_moment = ends_at - min(3.0, seconds / 4)
        with contextlib.suppress(Late):
            await page.goto(
                self._response.url,
                wait_until='domcontentloaded',
                timeout=milliseconds_until(last_moment),
            )
        self._is_loaded = True
        settled_by = min(last_moment, time.monotonic() + SETTLE_SECONDS)
        with contextlib.suppress(Late):
            await page.wait_for_load_state('networkidle', timeout=milliseconds_until(settled_by))
        await self._wait(page, last_moment)
        if self._navigates_to is not None:
            return self._redirect(self._navigates_to)
        body = await self._snapshot(context, page)
        return self._response if body is None else self._rendered(body)

    async def _wait(self, page: 'Page', last_moment: float) -> None:
        """Wait as the job asks; what has not appeared by the last moment is not waited for."""
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as Late

        if self._waits.selector is not None:
            try:
                await page.wait_for_selector(
                    f'css={self._waits.selector}',
                    state='attached',
                    timeout=milliseconds_until(last_moment),
                )
            except Late:
                pass
            except Error as error:
                if 'selector' not in str(error):
                    raise
                raise NoResponse(
                    f'wait_for is not a CSS selector: {self._waits.selector[:200]}', 'render'
                ) from error
        if self._waits.scrolls:
            await self._scroll(page, last_moment)
        seconds = min(self._waits.seconds, last_moment - time.monotonic())
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def _scroll(self, page: 'Page', last_moment: float) -> None:
        """Scroll to the end, again and again while the page grows."""
        from playwright.async_api import TimeoutError as Late

        height = 0
        for _ in range(MAX_SCROLLS):
            grown = await page.evaluate(SCROLL)
            if not isinstance(grown, int) or grown <= height or time.monotonic() > last_moment:
                return
            height = grown
            await asyncio.sleep(SCROLL_SECONDS)
            with contextlib.suppress(Late):
                await page.wait_for_load_state(
                    'networkidle', timeout=milliseconds_until(last_moment)
                )

    async def close(self) -> None:
        if self._context is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._context.close()

    async def _route(self, route: 'Route') -> None:
        """Serve the page itself; let its parts load through the proxy, or abort them."""
        request = route.request
        if request.resource_type in UNWANTED:
            await route.abort()
        elif not request.is_navigation_request():
            await route.continue_()
        elif not self._is_of_this_page(route):
            # A pop-up window.
            await route.abort()
        elif request.frame.parent_frame is not None:
            await route.continue_()
        elif not self._is_served:
            self._is_served = True
            # Always with status 200: Chromium shows nothing for a 205.
            await route.fulfill(headers=fulfilled(self._response.headers), body=self._response.body)
        else:
            if request.method == 'GET' and request.url.partition('#')[0] != self._response.url:
                self._navigates_to = request.url
            # 'aborted' keeps the page that is shown. Before the page is loaded, it would never
            # finish loading; with 'failed', Chromium goes on with its own error page.
            await route.abort('aborted' if self._is_loaded else 'failed')

    def _is_of_this_page(self, route: 'Route') -> bool:
        try:
            return route.request.frame.page is self._page
        except Exception:
            return False

    async def _snapshot(self, context: 'BrowserContext', page: 'Page') -> bytes | None:
        """The page as it is shown; None if it has navigated away and nothing is shown."""
        debugger = await context.new_cdp_session(page)
        frame = (await debugger.send('Page.getFrameTree'))['frameTree']['frame']
        if frame['url'].startswith(EMPTY_PAGES):
            return None
        world = await debugger.send('Page.createIsolatedWorld', {'frameId': frame['id']})
        answer = await debugger.send(
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
            raise TooLarge(f'the rendered page is larger than {self._max_bytes} bytes')
        return body

    def _rendered(self, body: bytes) -> Response:
        headers = kept(self._response.headers)
        headers['Content-Type'] = 'text/html; charset=utf-8'
        return replace(
            self._response, body=body, headers=CIMultiDictProxy(headers), is_rendered=True
        )

    def _redirect(self, target: str) -> Response:
        headers = CIMultiDict({'Location': target})
        return replace(self._response, status=302, body=b'', headers=CIMultiDictProxy(headers))


def milliseconds_until(moment: float) -> float:
    """For Playwright, which takes 0 as no limit."""
    return max(1.0, (moment - time.monotonic()) * 1000)


def kept(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in STALE_HEADERS
    )


def fulfilled(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers in the form of Playwright: each name once, and one line per cookie."""
    merged: dict[str, str] = {}
    for name, value in kept(headers).items():
        name = name.lower()
        if name == DOWNLOAD_HEADER:
            continue
        separator = '\n' if name == 'set-cookie' else ', '
        merged[name] = f'{merged[name]}{separator}{value}' if name in merged else value
    return merged

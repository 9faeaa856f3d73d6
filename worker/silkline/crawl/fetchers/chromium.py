"""Find and start Chromium, and close every way out of it except the proxy.

For `browser.py`, which decides what pages it shows. Playwright is an optional package; the program
is any Chromium or Chrome that the machine has.
"""

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from silkline.browser import find_browser
from silkline.crawl.fetchers.proxy import ProxySession
from silkline.crawl.options import CrawlError

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright

LAUNCH_SECONDS = 30.0
CLOSE_SECONDS = 10.0
FLAGS = (
    # Chromium resolves no name itself, not even by prefetching; the proxy is an address.
    '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1',
    '--dns-prefetch-disable',
    # QUIC and the media streams of WebRTC are UDP and would bypass the proxy.
    '--disable-quic',
    '--force-webrtc-ip-handling-policy=disable_non_proxied_udp',
    '--disable-background-networking',
    '--disable-domain-reliability',
    '--disable-component-update',
    '--disable-sync',
    '--no-pings',
    '--no-first-run',
    '--disable-gpu',
    '--mute-audio',
    # Containers have little /dev/shm.
    '--disable-dev-shm-usage',
    '--renderer-process-limit=4',
    '--js-flags=--max-old-space-size=512',
)


class BrowserMissing(CrawlError):
    """Playwright or Chromium is missing. The message says what to install."""


class Chromium:
    """One browser and its Playwright driver, which are closed together."""

    def __init__(
        self, driver: 'Playwright', browser: 'Browser', *, proxy_url: str, user_agent: str
    ) -> None:
        self._driver = driver
        self._browser = browser
        self._user_agent = user_agent
        self._proxy_url = proxy_url
        self.pages = 0
        self.open_pages = 0

    @classmethod
    async def launch(cls, proxy_url: str, *, user_agent: str) -> 'Chromium':
        found = find_browser()
        if found.problem:
            raise BrowserMissing(found.problem)
        from playwright.async_api import Error, async_playwright

        try:
            driver = await async_playwright().start()
        except Exception as error:
            # Without a class of its own: the driver program exited, or is missing.
            raise BrowserMissing(
                'could not start Playwright: ' + first_line(str(error)) + '; check that '
                '`playwright --version` runs and that there is enough memory'
            ) from error
        try:
            browser = await driver.chromium.launch(
                executable_path=found.program,
                headless=True,
                args=list(FLAGS),
                # A default of Playwright that lets any page open endless windows.
                ignore_default_args=['--disable-popup-blocking'],
                # The proxy refuses requests without a session's password, also to loopback.
                proxy={'server': proxy_url, 'bypass': '<-loopback>'},
                # As root, Chromium refuses to start with its own sandbox.
                chromium_sandbox=has_sandbox(),
                timeout=LAUNCH_SECONDS * 1000,
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        except Error as error:
            await driver.stop()
            raise BrowserMissing(
                'could not start Chromium: ' + first_line(str(error)) + '; run it once by hand, '
                'and in a container try SILKLINE_CHROMIUM_SANDBOX=off'
            ) from error
        except BaseException:
            await driver.stop()
            raise
        return cls(driver, browser, proxy_url=proxy_url, user_agent=user_agent)

    @property
    def is_gone(self) -> bool:
        return not self._browser.is_connected()

    async def open_context(self, session: ProxySession) -> 'BrowserContext':
        """A context for one page: it shares nothing, and reaches the proxy with its password."""
        return await self._browser.new_context(
            user_agent=self._user_agent,
            service_workers='block',
            accept_downloads=False,
            proxy={
                'server': self._proxy_url,
                'bypass': '<-loopback>',
                'username': session.user,
                'password': session.password,
            },
        )

    async def close(self) -> None:
        for step in (self._browser.close, self._driver.stop):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await step()


def has_sandbox() -> bool:
    """Whether Chromium uses its own sandbox, in addition to the runner's isolation.

    As root it refuses to start with it. In a container it needs user namespaces, which most
    containers forbid; then the operator turns it off.
    """
    return os.geteuid() != 0 and os.environ.get('SILKLINE_CHROMIUM_SANDBOX') != 'off'


def first_line(text: str) -> str:
    return text.strip().partition('\n')[0][:300].rstrip('.')

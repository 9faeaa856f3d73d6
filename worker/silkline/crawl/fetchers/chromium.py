"""Find and start Chromium, and close every way out of it but the proxy.

For `browser.py`, which says what pages it shows. Playwright is an optional package; the program
is whatever Chromium or Chrome the machine has.
"""

import asyncio
import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from silkline.crawl.fetchers.proxy import ProxySession
from silkline.crawl.options import CrawlError

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright

LAUNCH_SECONDS = 30.0
CLOSE_SECONDS = 10.0
NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome')
FLAGS = (
    # Chromium resolves no name itself, not even ahead of time; the proxy is an address.
    '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1',
    '--dns-prefetch-disable',
    # What would go around the proxy: QUIC and the media streams of WebRTC are UDP.
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
    # Containers have little of it.
    '--disable-dev-shm-usage',
    '--renderer-process-limit=4',
    '--js-flags=--max-old-space-size=512',
)


class BrowserMissing(CrawlError):
    """Playwright or Chromium is not there. The message says what to install."""


class Chromium:
    """One browser with the driver that speaks to it: both end together."""

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
        try:
            from playwright.async_api import Error, async_playwright
        except ImportError as error:
            raise BrowserMissing(
                "the browser fetcher needs Playwright: pip install 'silkline[browser]'"
            ) from error

        try:
            driver = await async_playwright().start()
        except Exception as error:
            # It has no name of its own: the program behind Playwright ended, or is not there.
            raise BrowserMissing(
                'Playwright does not start: ' + first_line(str(error)) + '; see whether '
                '`playwright --version` runs, and whether there is memory for it'
            ) from error
        try:
            browser = await driver.chromium.launch(
                executable_path=find_chromium(driver.chromium.executable_path),
                headless=True,
                args=list(FLAGS),
                # One of Playwright's own, with which any page opens windows without end.
                ignore_default_args=['--disable-popup-blocking'],
                # Everything without a gate's password is turned away, also to loopback.
                proxy={'server': proxy_url, 'bypass': '<-loopback>'},
                # As root Chromium cannot put its own walls up and refuses to start with them.
                chromium_sandbox=has_sandbox(),
                timeout=LAUNCH_SECONDS * 1000,
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        except Error as error:
            await driver.stop()
            raise BrowserMissing(
                'Chromium does not start: ' + first_line(str(error)) + '; run it once by hand, '
                'and in a container see SILKLINE_CHROMIUM_SANDBOX in docs/how-to/deploy.md'
            ) from error
        except BaseException:
            await driver.stop()
            raise
        return cls(driver, browser, proxy_url=proxy_url, user_agent=user_agent)

    @property
    def is_gone(self) -> bool:
        return not self._browser.is_connected()

    async def open_context(self, gate: ProxySession) -> 'BrowserContext':
        """A place for one page: nothing is shared with others, and its way out is the gate."""
        return await self._browser.new_context(
            user_agent=self._user_agent,
            service_workers='block',
            accept_downloads=False,
            proxy={
                'server': self._proxy_url,
                'bypass': '<-loopback>',
                'username': gate.user,
                'password': gate.password,
            },
        )

    async def close(self) -> None:
        for step in (self._browser.close, self._driver.stop):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await step()


def find_chromium(own: str) -> str:
    """The program that `SILKLINE_CHROMIUM` names, one on the path, or the one of Playwright."""
    named = os.environ.get('SILKLINE_CHROMIUM')
    if named:
        if not os.access(named, os.X_OK):
            raise BrowserMissing(f'SILKLINE_CHROMIUM names {named}, which is no program')
        return named
    found = next(filter(None, map(shutil.which, NAMES)), own)
    if not os.access(found, os.X_OK):
        raise BrowserMissing(
            'the browser fetcher needs Chromium: apt-get install chromium, or playwright install '
            'chromium, or name the program in SILKLINE_CHROMIUM'
        )
    return found


def has_sandbox() -> bool:
    """Whether Chromium shall wall in its own processes, beside the walls of the runner.

    As root it refuses to start with that. In a container it needs user namespaces, which most
    forbid; then the operator turns it off.
    """
    return os.geteuid() != 0 and os.environ.get('SILKLINE_CHROMIUM_SANDBOX') != 'off'


def first_line(text: str) -> str:
    return text.strip().partition('\n')[0][:300].rstrip('.')

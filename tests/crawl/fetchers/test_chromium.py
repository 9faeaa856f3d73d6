"""What is missing when a browser cannot be started."""

import asyncio
import subprocess
import sys

import pytest

from silkline.crawl.fetchers.browser import BrowserFetcher
from silkline.crawl.fetchers.chromium import BrowserMissing
from tests.support.browser import (
    needs_browser,
    processes_below,
)
from tests.support.egress import egress

pytestmark = needs_browser


def open_fetcher() -> None:
    async def run() -> None:
        async with egress() as out, BrowserFetcher(out):
            pass

    asyncio.run(run())


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = processes_below()
    monkeypatch.setenv('SILKLINE_CHROMIUM', '/no/such/chromium')
    with pytest.raises(BrowserMissing, match='SILKLINE_CHROMIUM is /no/such/chromium'):
        open_fetcher()
    assert processes_below() <= before


def test_a_program_that_is_not_a_browser_fails_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv('SILKLINE_CHROMIUM', '/bin/false')
    with pytest.raises(BrowserMissing, match='could not start Chromium'):
        open_fetcher()


def test_without_chromium_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv('PATH', '/nowhere')
    monkeypatch.setenv('PLAYWRIGHT_BROWSERS_PATH', '/nowhere')
    with pytest.raises(BrowserMissing, match='apt-get install chromium'):
        open_fetcher()


def test_without_playwright_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules['playwright'] = None
from tests.crawl.fetchers.test_chromium import open_fetcher
try:
    open_fetcher()
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, '-c', program], check=True, capture_output=True, text=True
    )
    assert 'BrowserMissing the browser fetcher needs Playwright: pip install' in done.stdout

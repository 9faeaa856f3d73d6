"""A browser that tests can show pages in, and the processes it consists of."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from silkline.browser import find_browser
from silkline.crawl.fetchers.browser import BrowserFetcher
from silkline.linux import descendants, processes
from tests.support.egress import MEGABYTE, egress
from tests.support.raw_site import RawSite, answer, raw_site


def why_not() -> str:
    return find_browser().problem


def html(text: str, *, status: str = '200 OK') -> bytes:
    return answer(f'<!doctype html>{text}'.encode(), status=status, Content_Type='text/html')


def script(text: str) -> bytes:
    return html(f'<title>scripted</title><body><script>{text}</script>')


@asynccontextmanager
async def browser(pages: Any, **options: Any) -> AsyncGenerator[tuple[BrowserFetcher, RawSite]]:
    """A browser that may reach one address of loopback, and a site there."""
    fetching = {'pages_per_browser': options.pop('pages_per_browser', 100)}
    options.setdefault('allow_networks', ['127.0.0.1/32'])
    async with raw_site(pages) as site, egress(**options) as out:
        async with BrowserFetcher(out, **fetching) as fetcher:
            yield fetcher, site


async def show(fetcher: BrowserFetcher, url: str, **options: Any) -> Any:
    options.setdefault('max_bytes', MEGABYTE)
    options.setdefault('timeout_seconds', 60)
    return await fetcher.fetch(url, **options)


def processes_below() -> set[int]:
    """Of this process, but for the databases of other tests, whose helpers come and go."""
    return {pid for pid in descendants(os.getpid()) if name_of(pid) not in (None, 'postgres')}


def name_of(pid: int) -> str | None:
    try:
        return Path(f'/proc/{pid}/comm').read_text().strip()
    except OSError:
        return None


def drivers() -> set[int]:
    """The direct children of this process: one driver for each browser."""
    mine = os.getpid()
    return {process.pid for process in processes() if process.parent == mine} & processes_below()


needs_browser = pytest.mark.skipif(bool(why_not()), reason=why_not())

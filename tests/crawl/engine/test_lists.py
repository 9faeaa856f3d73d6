"""Lists of URLs: how many requests are open at a time, and invalid URLs. A real runner crawls."""

import asyncio
import sys
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from tests.support.hostile import Crawled, HostileSite, crawl_sites, html_page, serve
from tests.support.raw_site import Handler

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='needs 127.0.0.2 and 127.0.0.3')

# Long enough for other requests to arrive while a page is open.
ANSWER_SECONDS = 0.02
PAGES = 12


class OpenRequests:
    """Counts the requests that are open, in all and on each host."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def slow_page(self, host: str, path: str) -> Handler:
        async def handler(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for name in (host, 'all'):
                self.open[name] += 1
                self.most[name] = max(self.most[name], self.open[name])
            await asyncio.sleep(ANSWER_SECONDS)
            for name in (host, 'all'):
                self.open[name] -= 1
            writer.write(html_page(title=path))
            await writer.drain()

        return handler


def crawl_list(*hosts: str, strategy: str = 'list') -> tuple[Crawled, OpenRequests]:
    requests = OpenRequests()

    async def run() -> Crawled:
        async with AsyncExitStack() as stack:
            sites: list[HostileSite] = []
            for host in hosts:

                def pages(path: str, host: str = host) -> Handler:
                    return requests.slow_page(host, path)

                sites.append(await stack.enter_async_context(serve(pages, name=host, host=host)))
            return await crawl_sites(
                sites,
                payload={
                    'urls': [f'{site.url}/{n}' for n in range(PAGES) for site in sites],
                    'strategy': strategy,
                    'concurrency': 8,
                    'obey_robots': False,
                },
                allow_networks=['127.0.0.0/8'],
            )

    crawled = asyncio.run(run())
    for site in crawled.sites.values():
        assert [end.status for end in site.finished.values()] == ['done'] * PAGES
    return crawled, requests


def test_a_list_of_several_hosts_sends_one_request_at_a_time_to_each_and_all_in_parallel() -> None:
    _, requests = crawl_list('127.0.0.1', '127.0.0.2', '127.0.0.3')
    assert requests.most.pop('all') > 1
    assert requests.most == {'127.0.0.1': 1, '127.0.0.2': 1, '127.0.0.3': 1}


def test_a_list_of_one_host_sends_up_to_concurrency_requests_at_a_time() -> None:
    _, requests = crawl_list('127.0.0.1')
    assert 2 <= requests.most['127.0.0.1'] <= 8


def test_invalid_urls_of_a_list_are_skipped_and_do_not_affect_the_others() -> None:
    """The queue refuses such URLs, but not every queue is as new as its worker."""
    none = ['http://1.2.3.4.5/', 'http://256.0.0.1/', 'http://08.0.0.1/', 'http://0x7g.1/']

    async def run() -> Crawled:
        async with serve(lambda path: html_page(title=path), name='site') as site:
            urls = [f'{site.url}/{number}' for number in range(4)]
            return await crawl_sites(
                [site], payload={'urls': [*urls[:2], *none, *urls[2:]], 'strategy': 'list'}
            )

    crawled = asyncio.run(run())
    assert {end.status for end in crawled.sites['site'].finished.values()} == {'done'}
    assert len(crawled.sites['site'].finished) == 4
    assert {url: found.skip_reason for url, found in crawled.other_urls.items()} == dict.fromkeys(
        none, 'invalid_url'
    )

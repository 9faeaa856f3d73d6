"""Sites that try to lead a crawl to internal addresses, in every notation and by every way.

The site is at 127.0.0.2, the only allowed address; servers on the same port of other addresses must
never get a request. A real runner crawls.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from tests.support.hostile import (
    GOOD,
    MEGABYTE,
    Case,
    Crawled,
    HostileSite,
    Page,
    Pages,
    crawl_sites,
    html_page,
    redirect,
    robots,
    serve,
    sitemap,
    xml,
)

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')

# All of them mean 127.0.0.1 or [::1], or would on some machine.
LOOPBACK = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 017700000001 0x7F.0.0.0x1 127.0.0.1.
%31%32%37.0.0.1 127%2e0%2e0%2e1 0 0.0.0.0 0x0 [::1] [::] [0:0:0:0:0:0:0:1] [::127.0.0.1]
[::ffff:127.0.0.1] [::ffff:7f00:1] [64:ff9b::7f00:1] [64:ff9b::127.0.0.1] [2002:7f00:1::]
[2001:0:7f00:1::] localhost LOCALHOST localhost. 127.0.0.3
""".split()
INTERNAL = """
169.254.169.254 2852039166 0xa9fea9fe [::ffff:169.254.169.254] [fd00:ec2::254] 10.0.0.1 192.168.1.1
172.16.0.1 100.100.100.200 168.63.129.16 224.0.0.1 255.255.255.255 [fe80::1] [ff02::1]
""".split()

COUNT = len(LOOPBACK + INTERNAL)


def forbidden_urls(port: int, path: str) -> list[str]:
    """A URL for every address that must not be reached, each with its own path."""
    return [
        f'http://{host}:{port}{path}{number}' for number, host in enumerate(LOOPBACK + INTERNAL)
    ]


async def open_site(stack: AsyncExitStack, pages: Pages) -> tuple[HostileSite, list[HostileSite]]:
    """The site at 127.0.0.2, and forbidden neighbours on the same port."""
    for _ in range(20):
        async with AsyncExitStack() as attempt:
            site = await attempt.enter_async_context(serve(pages, name='site', host='127.0.0.2'))
            # The port may be taken on one of the other addresses.
            with suppress(OSError):
                neighbours = [
                    await attempt.enter_async_context(
                        serve(lambda _: html_page(title='Secret'), host=host, port=site.port)
                    )
                    for host in ('127.0.0.1', '127.0.0.3', '::1')
                ]
                await stack.enter_async_context(attempt.pop_all())
                return site, neighbours
    raise AssertionError('there is no port that is free on all addresses')


def attack(starts: Callable[[HostileSite], list[str]], *, robots: Pages, **payload: Any) -> Crawled:
    """Crawl the site from its front page and `starts`; no neighbour may get a request."""

    async def run() -> Crawled:
        ports: list[int] = []

        def pages(path: str) -> Page | None:
            return robots(str(ports[0])) if path == '/robots.txt' else page_of(path, ports[0])

        async with AsyncExitStack() as stack:
            site, neighbours = await open_site(stack, pages)
            ports.append(site.port)
            crawled = await crawl_sites(
                [site],
                payload={'urls': [f'{site.url}/', *starts(site)], **payload},
                allow_networks=['127.0.0.2/32'],
            )
            for neighbour in neighbours:
                assert not neighbour.requests, f'{neighbour.host} got {neighbour.requests}'
            return crawled

    crawled = asyncio.run(run())
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=20)
    return crawled


def page_of(path: str, port: int) -> Page | None:
    """Good pages, and pages that lead to forbidden addresses in every way a site can."""
    if path == '/':
        hops = [f'/hop/{number}' for number in range(COUNT)]
        return html_page(*GOOD, '/links', '/inward.xml', *hops, title='Start')
    if path == '/links':
        return html_page(*forbidden_urls(port, '/l/'), title='Links')
    if path == '/inward.xml':
        return sitemap(*forbidden_urls(port, '/s/'))
    if path == '/good.xml':
        return sitemap(*GOOD)
    if path == '/laughs.xml':
        return xml(b'<!DOCTYPE urlset [<!ENTITY a "ha">]><urlset/>')
    if path.startswith('/hop/'):
        return redirect(forbidden_urls(port, '/h/')[int(path[5:])])
    return Case('site', {}, {}).page(path)


def robots_redirected(port: str) -> Page:
    return redirect(f'http://127.0.0.1:{port}/robots.txt')


def robots_with_sitemaps(port: str) -> Page:
    named = [
        *forbidden_urls(int(port), '/s/'),
        '/laughs.xml',
        'good.xml',
        'ftp://x/',
        '??',
        'http://',
    ]
    return robots(''.join(f'Sitemap: {url}\n' for url in named))


def assert_refused(crawled: Crawled, path: str) -> None:
    ended = {url: end for url, end in crawled.ended_other_urls.items() if path in url}
    assert len(ended) == COUNT
    for url, finished in ended.items():
        # Not every resolver knows localhost with a dot; no request was made in either case.
        if 'localhost.:' not in url:
            assert finished.skip_reason == 'forbidden_address', f'{url}: {finished}'
            assert 'operator of the worker' in (finished.error or '')


def test_links_redirects_and_sitemaps_to_forbidden_addresses_are_never_followed() -> None:
    crawled = attack(lambda _: [], robots=robots_redirected)
    site = crawled.sites['site']
    site.assert_good()
    for number in range(COUNT):
        assert site.finished[f'/hop/{number}'].skip_reason == 'redirect'
    assert not crawled.other_urls
    # Each of them as a link, as the target of a redirect, and in a sitemap.
    assert crawled.refused == {'out_of_scope': 3 * COUNT}


def test_start_urls_at_forbidden_addresses_are_refused() -> None:
    crawled = attack(
        lambda site: forbidden_urls(site.port, '/v/'), robots=robots_redirected, strategy='list'
    )
    assert crawled.sites['site'].finished['/'].status == 'done'
    assert_refused(crawled, '/v/')


def test_start_urls_that_redirect_to_forbidden_addresses_are_refused() -> None:
    """A redirected start moves the scope of a crawl, but not the rules about addresses."""
    crawled = attack(
        lambda site: [f'{site.url}/hop/{number}' for number in range(COUNT)],
        robots=robots_redirected,
        strategy='list',
    )
    assert crawled.sites['site'].finished['/'].status == 'done'
    assert_refused(crawled, '/h/')


def test_sitemaps_at_forbidden_addresses_are_refused_and_others_are_read() -> None:
    crawled = attack(lambda _: [], robots=robots_with_sitemaps, strategy='sitemap')
    finished = crawled.sites['site'].finished
    assert {finished[path].status for path in GOOD} == {'done'}
    assert finished['/laughs.xml'].skip_reason == 'content_type'
    assert_refused(crawled, '/s/')

"""Sites and jobs that try to reach a host that the operator's policy refuses.

The site is at 127.0.0.2, the refused host at 127.0.0.3; the worker may reach both, and only the
policy of the job tells them apart. A real runner crawls.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.hostile import (
    GOOD,
    MEGABYTE,
    Case,
    Crawled,
    HostileSite,
    Page,
    crawl_sites,
    html_page,
    redirect,
    robots,
    serve,
    sitemap,
)

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='needs 127.0.0.2 and 127.0.0.3')

POLICIES = [{'deny_hosts': ['127.0.0.3']}, {'allow_hosts': ['127.0.0.2']}]


def crawl(
    pages: Callable[[str, str], Page | None],
    *,
    policy: dict[str, Any],
    starts: Callable[[HostileSite, HostileSite], list[str]] | None = None,
    **payload: Any,
) -> tuple[Crawled, HostileSite]:
    """Crawl the site, whose `pages` get the URL of the other host; returns that host as well."""

    async def run() -> tuple[Crawled, HostileSite]:
        async with AsyncExitStack() as stack:
            refused = await stack.enter_async_context(
                serve(lambda _: html_page(*GOOD, title='Refused'), host='127.0.0.3')
            )
            site = await stack.enter_async_context(
                serve(lambda path: pages(path, refused.url), name='site', host='127.0.0.2')
            )
            crawled = await crawl_sites(
                [site],
                payload={
                    'urls': starts(site, refused) if starts else [f'{site.url}/'],
                    'policy': policy,
                    **payload,
                },
                allow_networks=['127.0.0.2/32', '127.0.0.3/32'],
            )
            return crawled, refused

    crawled, refused = asyncio.run(run())
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=20)
    return crawled, refused


def page_of(path: str, refused: str) -> Page | None:
    """Good pages, and pages that lead to the refused host in every way a site can."""
    match path:
        case '/':
            return html_page(*GOOD, f'{refused}/link', '/hop', '/map.xml', '/fresh', title='Start')
        case '/hop':
            return redirect(f'{refused}/hop')
        case '/fresh':
            head = f'<meta http-equiv="refresh" content="0; url={refused}/fresh">'
            return html_page(text=head)
        case '/map.xml':
            return sitemap(f'{refused}/entry', '/good/1')
        case '/robots.txt':
            return redirect(f'{refused}/robots.txt')
        case _:
            return Case('site', {}, {}).page(path)


@pytest.mark.parametrize('policy', POLICIES)
def test_links_redirects_and_sitemap_entries_to_a_refused_host_are_counted_out_of_scope(
    policy: dict[str, Any],
) -> None:
    # With a start on the refused host, its pages would be in scope.
    crawled, refused = crawl(
        page_of, policy=policy, starts=lambda site, refused: [f'{site.url}/', f'{refused.url}/']
    )
    assert not refused.requests
    site = crawled.sites['site']
    site.assert_good()
    assert site.finished['/hop'].skip_reason == 'redirect'
    assert site.finished['/fresh'].skip_reason == 'redirect'
    assert crawled.refused == {'out_of_scope': 4}
    assert crawled.ended_other_urls.keys() == {f'{refused.url}/'}


@pytest.mark.parametrize('policy', POLICIES)
def test_a_start_on_a_refused_host_is_skipped_and_says_that_the_operator_refuses_it(
    policy: dict[str, Any],
) -> None:
    crawled, refused = crawl(
        page_of,
        policy=policy,
        starts=lambda site, refused: [f'{site.url}/good/1', f'{refused.url}/a'],
        strategy='list',
    )
    assert not refused.requests
    assert crawled.sites['site'].finished['/good/1'].status == 'done'
    ended = crawled.ended_other_urls[f'{refused.url}/a']
    assert (ended.skip_reason, ended.unfetched) == ('forbidden_address', True)
    assert 'the operator of this queue' in (ended.error or '')


@pytest.mark.parametrize('policy', POLICIES)
def test_a_start_that_redirects_to_a_refused_host_does_not_move_the_scope_there(
    policy: dict[str, Any],
) -> None:
    def moved(path: str, refused: str) -> Page | None:
        return redirect(f'{refused}/moved') if path == '/' else None

    crawled, refused = crawl(moved, policy=policy)
    assert not refused.requests
    assert crawled.sites['site'].finished['/'].skip_reason == 'redirect'
    assert crawled.ended_other_urls[f'{refused.url}/moved'].skip_reason == 'forbidden_address'


@pytest.mark.parametrize('policy', POLICIES)
def test_sitemaps_on_a_refused_host_are_not_fetched(policy: dict[str, Any]) -> None:
    def maps(path: str, refused: str) -> Page | None:
        match path:
            case '/robots.txt':
                return robots(f'Sitemap: {refused}/named.xml\nSitemap: /index.xml\n')
            case '/index.xml':
                return sitemap(
                    f'{refused}/child.xml', '/map.xml', kind='sitemap', root='sitemapindex'
                )
            case _:
                return page_of(path, refused)

    crawled, refused = crawl(maps, policy=policy, strategy='sitemap')
    assert not refused.requests
    assert crawled.sites['site'].finished['/good/1'].status == 'done'
    for path in ('/named.xml', '/child.xml'):
        assert crawled.ended_other_urls[refused.url + path].skip_reason == 'forbidden_address', path
    assert crawled.refused == {'out_of_scope': 1}


def test_without_a_policy_the_same_host_is_crawled() -> None:
    _, other = crawl(page_of, policy={}, starts=lambda site, other: [f'{other.url}/'])
    assert other.requests.keys() == {'/robots.txt', '/', *GOOD}

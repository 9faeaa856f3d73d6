"""Redirects that the egress follows, each one checked like the first URL."""

import asyncio
from typing import Any

import pytest

from silkline.crawl.net.egress import Egress
from silkline.crawl.responses import NoResponse, Refused
from tests.support.egress import MEGABYTE, OK, declines, egress, resolving
from tests.support.raw_site import answer, raw_site, slow


async def follow(out: Egress, url: str, **options: Any) -> Any:
    options.setdefault('max_hops', 5)
    return await out.follow(url, max_bytes=MEGABYTE, timeout_seconds=60, **options)


def moved(to: str, status: str = '301 Moved') -> bytes:
    return answer(b'moved', status=status, Location=to)


def test_redirects_are_followed_to_the_end() -> None:
    async def run() -> None:
        pages = {'/': moved('/a'), '/a': moved('b?x#y', '307 There'), '/b?x': OK}
        async with raw_site(pages) as site, egress() as out:
            response = await follow(out, site.url())
            assert (response.status, response.body) == (200, b'hello')
            assert response.url == site.url('/b?x')
            assert site.connections == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    'target',
    [
        'http://127.0.0.2:{port}/',
        '//127.0.0.2:{port}/',
        'http://0x7f000002:{port}/',
        'http://[::ffff:127.0.0.2]:{port}/',
        'http://inside.example:{port}/',
        'http://169.254.169.254/latest/meta-data/',
    ],
)
def test_a_redirect_to_a_forbidden_address_is_refused(target: str) -> None:
    async def run() -> None:
        outside = egress(
            allow_networks=['127.0.0.1/32'],
            resolve=resolving({'inside.example': ['127.0.0.2']}),
        )
        async with raw_site({'/': OK}, host='127.0.0.2') as inside:
            pages = {'/': moved(target.format(port=inside.port))}
            async with raw_site(pages) as site, outside as out:
                with pytest.raises(Refused) as caught:
                    await follow(out, site.url())
                assert caught.value.skip_reason == 'forbidden_address'
            assert inside.connections == 0

    asyncio.run(run())


@pytest.mark.parametrize('target', ['', 'http://', 'http://a b/'])
def test_a_redirect_without_a_target_is_returned(target: str) -> None:
    async def run() -> None:
        async with raw_site({'/': moved(target)}) as site, egress() as out:
            assert (await follow(out, site.url())).status == 301

    asyncio.run(run())


def test_a_redirect_to_another_scheme_is_refused() -> None:
    async def run() -> None:
        async with raw_site({'/': moved('file:///etc/passwd')}) as site, egress() as out:
            with pytest.raises(Refused) as caught:
                await follow(out, site.url())
            assert caught.value.skip_reason == 'invalid_url'

    asyncio.run(run())


def test_a_redirect_loop_ends() -> None:
    async def run() -> None:
        async with raw_site({'/': moved('/')}) as site, egress() as out:
            response = await follow(out, site.url(), max_hops=5)
            assert response.status == 301
            assert len(site.heads) == 6

    asyncio.run(run())


def test_a_declined_redirect_is_returned() -> None:
    async def run() -> None:
        async with raw_site({'/': moved('/other'), '/other': OK}) as site, egress() as out:
            response = await follow(out, site.url(), may_follow=declines)
            assert response.status == 301
            assert len(site.heads) == 1

    asyncio.run(run())


def test_credentials_are_not_sent_to_another_origin() -> None:
    secrets = {'Authorization': 'Bearer a', 'cookie': 'b=c', 'X-Other': 'd'}

    async def run() -> None:
        async with raw_site({'*': OK}) as other:
            pages = {'/': moved('/near'), '/near': moved(other.url('/far'))}
            async with raw_site(pages) as site, egress() as out:
                await follow(out, site.url(), headers=secrets)
                for head in site.heads:
                    assert b'Bearer a' in head
                    assert b'b=c' in head
                assert b'Bearer' not in other.heads[0]
                assert b'b=c' not in other.heads[0]
                assert b'X-Other: d' in other.heads[0]

    asyncio.run(run())


def test_the_timeout_covers_all_redirects() -> None:
    async def run() -> None:
        pages = {'/': slow(moved('/'), seconds_per_byte=0.005)}
        async with raw_site(pages) as site, egress() as out:
            with pytest.raises(NoResponse) as caught:
                await out.follow(site.url(), max_hops=50, max_bytes=99, timeout_seconds=1)
            assert caught.value.kind == 'timeout'
            assert len(site.heads) < 8

    asyncio.run(run())

"""One request: what the caller gets, and what is left behind."""

import asyncio
import os
import resource
from typing import Any

import pytest
import uvloop

from silkline.crawl.responses import EgressError, NoResponse
from tests.support.egress import MEGABYTE, OK, declines, egress, fetch_from, fetch_one
from tests.support.raw_site import answer, endless, raw_site, silent, slow

# What the caller gets


def test_a_response_has_status_headers_body_and_address() -> None:
    page = answer(b'<p>hi', status='203 Fine', Content_Type='text/html', X_Name='Value')
    response = fetch_one(page)
    assert (response.status, response.body, response.address) == (203, b'<p>hi', '127.0.0.1')
    assert response.headers.get('x-name') == response.headers.get('X-NAME') == 'Value'
    assert 0 < response.first_byte_seconds <= response.seconds < 10


def test_a_redirect_is_returned_and_not_followed() -> None:
    page = answer(status='302 Found', Location='http://169.254.169.254/')
    response = fetch_one(page)
    assert response.status == 302
    assert response.headers['location'] == 'http://169.254.169.254/'


def test_the_url_is_sent_as_browsers_write_it_and_without_its_fragment() -> None:
    async def run() -> None:
        async with raw_site({'*': OK}) as site, egress() as out:
            response = await fetch_from(out, site.url('/a/../ä b/%2f?q=ü&x=[1]|2#part'))
            assert response.url == site.url('/%C3%A4%20b/%2f?q=%C3%BC&x=[1]|2')
            line = site.heads[0].split(b'\r\n')[0]
            assert line == b'GET /%C3%A4%20b/%2f?q=%C3%BC&x=[1]|2 HTTP/1.1'

    asyncio.run(run())


def test_a_request_sends_its_user_agent_and_the_given_headers() -> None:
    async def run() -> None:
        async with raw_site({'/': OK}) as site, egress() as out:
            await fetch_from(out, site.url(), headers={'If-None-Match': '"x"'})
            head = site.heads[0].decode().lower()
            assert head.startswith('get / http/1.1')
            assert 'user-agent: silkline-test' in head
            assert 'accept-encoding: gzip, deflate, br, zstd' in head
            assert 'if-none-match: "x"' in head
            assert f'host: 127.0.0.1:{site.port}' in head

    asyncio.run(run())


def test_cookies_are_never_sent_back() -> None:
    async def run() -> None:
        page = answer(b'x', Set_Cookie='session=1; Path=/')
        async with raw_site({'/': page}) as site, egress() as out:
            await fetch_from(out, site.url())
            await fetch_from(out, site.url())
            assert b'ookie' not in b''.join(site.heads)

    asyncio.run(run())


def test_connections_are_reused() -> None:
    async def run() -> None:
        async with raw_site({'/': OK}) as site, egress() as out:
            for _ in range(5):
                assert (await fetch_from(out, site.url())).address == '127.0.0.1'
            assert site.connections == 1

    asyncio.run(run())


def test_the_number_of_open_connections_is_bounded() -> None:
    async def run() -> None:
        async with raw_site({'/': OK}) as site, egress(connections=3) as out:
            await asyncio.gather(*(fetch_from(out, site.url()) for _ in range(20)))
            assert site.connections == 3
            assert len(site.heads) == 20

    asyncio.run(run())


def test_a_declined_body_is_not_read() -> None:
    seen: list[tuple[int, str | None]] = []

    def wants(status: int, headers: Any) -> bool:
        seen.append((status, headers.get('content-type')))
        return False

    page = endless(b'HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\n\r\n', b'x' * 65536)
    response = fetch_one(page, wants=wants)
    assert response.body == b''
    assert seen == [(200, 'video/mp4')]


def test_a_short_declined_body_does_not_cost_the_connection() -> None:
    async def run() -> None:
        async with raw_site({'/': answer(b'gone', status='404 No')}) as site, egress() as out:
            for _ in range(3):
                response = await fetch_from(out, site.url(), wants=declines)
                assert (response.status, response.body) == (404, b'')
            assert site.connections == 1

    asyncio.run(run())


def test_headers_that_are_not_utf_8_can_be_stored() -> None:
    page = b'HTTP/1.1 200 OK\r\nX-Odd: caf\xe9\r\nX-Good: caf\xc3\xa9\r\nContent-Length: 0\r\n\r\n'
    response = fetch_one(page)
    assert response.headers['x-odd'] == response.headers['x-good'] == 'café'
    assert response.headers['x-odd'].encode()


# Nothing is left behind


def test_a_cancelled_request_closes_its_connection() -> None:
    async def run() -> None:
        pages = {'/silent': silent(), '/slow': slow(answer(b'x' * 999), seconds_per_byte=0.01)}
        async with raw_site(pages) as site, egress() as out:
            for path in pages:
                task = asyncio.ensure_future(fetch_from(out, site.url(path)))
                await site.wait_for_request()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await site.wait_until_idle()
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


@pytest.mark.parametrize('make_loop', [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_crawl_over_many_hosts_keeps_few_connections(make_loop: Any) -> None:
    async def run() -> None:
        async with raw_site({'/': OK}, host='0.0.0.0') as site, egress() as out:  # noqa: S104
            before = len(os.listdir('/proc/self/fd'))
            for number in range(600):
                url = site.url(host=f'127.1.{number // 250}.{number % 250 + 1}')
                assert (await fetch_from(out, url)).status == 200
            # Each one is open at both ends.
            assert len(os.listdir('/proc/self/fd')) - before < 2 * 300
            # Once there are few again, connections are kept.
            del out._sockets[:]  # pyright: ignore[reportPrivateUsage]
            count = site.connections
            for _ in range(5):
                await fetch_from(out, site.url())
            assert site.connections == count + 1

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(run())


def test_failed_requests_leave_no_descriptor() -> None:
    def descriptors() -> int:
        return len(os.listdir('/proc/self/fd'))

    async def run() -> None:
        pages: dict[str, Any] = {
            '/large': answer(b'x' * 2 * MEGABYTE),
            '/bad': answer(b'bad', Content_Encoding='gzip'),
            '/closed': b'',
            '/slow': silent(),
        }
        async with raw_site(pages) as site, egress() as out:
            before = descriptors()
            for _ in range(10):
                for path in pages:
                    with pytest.raises(EgressError):
                        await fetch_from(out, site.url(path), timeout_seconds=0.1)
                with pytest.raises(EgressError):
                    await fetch_from(out, 'http://no.invalid/', timeout_seconds=0.1)
            await site.wait_until_idle()
            # The lookup thread may hold one to the resolver.
            assert descriptors() <= before + 4

    asyncio.run(run())


def test_without_a_free_descriptor_an_address_is_unreachable_and_not_forbidden() -> None:
    out = egress()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(NoResponse) as caught:
            out.read_url('http://8.8.8.8/')
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.kind == 'connect'

    assert out.read_url('http://8.8.8.8/')[1].is_literal

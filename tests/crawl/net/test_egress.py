"""What a caller of the only way out gets, and what it leaves behind."""

import asyncio
import os
import resource
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest
import uvloop
from silkline.crawl.net.egress import Egress
from silkline.crawl.net.resolver import THREADS, LookupThreads, system_resolve
from silkline.crawl.responses import EgressError, NoResponse, Refused

from tests.support.egress import MEGABYTE, OK, declines, egress, fetch_from, fetch_one, resolving
from tests.support.raw_site import answer, endless, raw_site, silent, slow

# What a caller gets


def test_a_response_has_what_was_said_and_where_it_came_from() -> None:
    page = answer(b'<p>hi', status='203 Fine', Content_Type='text/html', X_Name='Value')
    response = fetch_one(page)
    assert (response.status, response.body, response.address) == (203, b'<p>hi', '127.0.0.1')
    assert response.headers.get('x-name') == response.headers.get('X-NAME') == 'Value'
    assert 0 < response.first_byte_seconds <= response.seconds < 10


def test_a_redirect_is_answered_and_not_followed() -> None:
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


def test_a_request_names_itself_and_sends_what_it_is_told_to() -> None:
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


def test_connections_are_used_again() -> None:
    async def run() -> None:
        async with raw_site({'/': OK}) as site, egress() as out:
            for _ in range(5):
                assert (await fetch_from(out, site.url())).address == '127.0.0.1'
            assert site.connections == 1

    asyncio.run(run())


def test_no_more_connections_are_open_than_wanted() -> None:
    async def run() -> None:
        async with raw_site({'/': OK}) as site, egress(connections=3) as out:
            await asyncio.gather(*(fetch_from(out, site.url()) for _ in range(20)))
            assert site.connections == 3
            assert len(site.heads) == 20

    asyncio.run(run())


def test_a_body_that_is_not_wanted_is_not_read() -> None:
    seen: list[tuple[int, str | None]] = []

    def wants(status: int, headers: Any) -> bool:
        seen.append((status, headers.get('content-type')))
        return False

    page = endless(b'HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\n\r\n', b'x' * 65536)
    response = fetch_one(page, wants=wants)
    assert response.body == b''
    assert seen == [(200, 'video/mp4')]


def test_a_short_body_that_is_not_wanted_does_not_cost_the_connection() -> None:
    async def run() -> None:
        async with raw_site({'/': answer(b'gone', status='404 No')}) as site, egress() as out:
            for _ in range(3):
                response = await fetch_from(out, site.url(), wants=declines)
                assert (response.status, response.body) == (404, b'')
            assert site.connections == 1

    asyncio.run(run())


def test_headers_that_are_no_utf_8_can_be_stored() -> None:
    page = b'HTTP/1.1 200 OK\r\nX-Odd: caf\xe9\r\nX-Good: caf\xc3\xa9\r\nContent-Length: 0\r\n\r\n'
    response = fetch_one(page)
    assert response.headers['x-odd'] == response.headers['x-good'] == 'café'
    assert response.headers['x-odd'].encode()


# Redirects that are followed


async def follow(out: Egress, url: str, **options: Any) -> Any:
    options.setdefault('max_hops', 5)
    return await out.follow(url, max_bytes=MEGABYTE, timeout_seconds=60, **options)


def moved(to: str, status: str = '301 Moved') -> bytes:
    return answer(b'elsewhere', status=status, Location=to)


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
def test_a_redirect_inward_is_refused(target: str) -> None:
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
def test_a_redirect_to_nowhere_is_the_answer(target: str) -> None:
    async def run() -> None:
        async with raw_site({'/': moved(target)}) as site, egress() as out:
            assert (await follow(out, site.url())).status == 301

    asyncio.run(run())


def test_a_redirect_out_of_http_is_refused() -> None:
    async def run() -> None:
        async with raw_site({'/': moved('file:///etc/passwd')}) as site, egress() as out:
            with pytest.raises(Refused) as caught:
                await follow(out, site.url())
            assert caught.value.skip_reason == 'invalid_url'

    asyncio.run(run())


def test_a_loop_of_redirects_ends() -> None:
    async def run() -> None:
        async with raw_site({'/': moved('/')}) as site, egress() as out:
            response = await follow(out, site.url(), max_hops=5)
            assert response.status == 301
            assert len(site.heads) == 6

    asyncio.run(run())


def test_a_redirect_that_may_not_be_followed_is_the_answer() -> None:
    async def run() -> None:
        async with raw_site({'/': moved('/other'), '/other': OK}) as site, egress() as out:
            response = await follow(out, site.url(), may_follow=declines)
            assert response.status == 301
            assert len(site.heads) == 1

    asyncio.run(run())


def test_secrets_stay_with_their_origin() -> None:
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


def test_the_time_is_for_all_hops() -> None:
    async def run() -> None:
        pages = {'/': slow(moved('/'), seconds_per_byte=0.005)}
        async with raw_site(pages) as site, egress() as out:
            with pytest.raises(NoResponse) as caught:
                await out.follow(site.url(), max_hops=50, max_bytes=99, timeout_seconds=1)
            assert caught.value.kind == 'timeout'
            assert len(site.heads) < 8

    asyncio.run(run())


# Names


def test_a_name_that_does_not_exist_is_unknown() -> None:
    async def run() -> None:
        async with egress(resolve=resolving({'empty.example': []})) as out:
            for host in ('no.example', 'empty.example'):
                with pytest.raises(NoResponse, match=host) as caught:
                    await fetch_from(out, f'http://{host}/')
                assert caught.value.kind == 'dns_unknown'

    asyncio.run(run())


@pytest.mark.parametrize('host', ['a' * 64 + '.example', 'a..example', '.'.join(['abc'] * 80)])
def test_a_name_that_cannot_exist_is_unknown_to_the_system(host: str) -> None:
    async def run() -> None:
        async with egress() as out:
            with pytest.raises(EgressError) as caught:
                await fetch_from(out, f'http://{host}/')
            error = caught.value
            assert isinstance(error, Refused) or error.kind in ('dns_unknown', 'dns')  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    asyncio.run(run())


def test_a_resolver_that_fails_is_another_matter() -> None:
    async def resolve(_: str) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, 'Temporary failure in name resolution')

    async def run() -> None:
        async with egress(resolve=resolve) as out:
            with pytest.raises(NoResponse) as caught:
                await fetch_from(out, 'http://some.example/')
            assert caught.value.kind == 'dns'

    asyncio.run(run())


def test_a_resolver_that_hangs_ends_with_the_time_of_the_request() -> None:
    async def resolve(_: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def run() -> None:
        async with egress(resolve=resolve) as out:
            with pytest.raises(NoResponse) as caught:
                await fetch_from(out, 'http://some.example/', timeout_seconds=0.2)
            assert caught.value.kind == 'timeout'

    asyncio.run(run())


def test_a_system_that_hangs_holds_few_threads_and_recovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = threading.Event()

    def hang(host: bytes, *_: Any, **__: Any) -> Any:
        assert go.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, '', ('127.0.0.1', 0))]

    async def run() -> None:
        async with raw_site({'/': OK}) as site, egress(connections=50) as out:
            urls = [site.url(host=f'{number}.hanging.example') for number in range(30)]
            monkeypatch.setattr(socket, 'getaddrinfo', hang)
            fetches = [fetch_from(out, url, timeout_seconds=0.5) for url in urls]
            errors = await asyncio.gather(*fetches, return_exceptions=True)
            assert {getattr(error, 'kind', None) for error in errors} == {'timeout'}
            names = [thread.name for thread in threading.enumerate()]
            assert names.count('lookup') <= 16
            go.set()
            assert (await fetch_from(out, urls[-1])).body == b'hello'

    asyncio.run(run())


def test_a_few_names_that_hang_keep_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def hang(host: bytes, *_: Any, **__: Any) -> Any:
        assert host == b'quick.example' or go.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, '', ('127.0.0.1', 0))]

    async def run() -> None:
        monkeypatch.setattr(socket, 'getaddrinfo', hang)
        hosts = [*(f'{number}.hanging.example' for number in range(8)), 'quick.example']
        lookups = [asyncio.ensure_future(system_resolve(host)) for host in hosts]
        try:
            assert await asyncio.wait_for(lookups[-1], 50) == ['127.0.0.1']
        finally:
            go.set()
        assert await asyncio.gather(*lookups) == [['127.0.0.1']] * len(hosts)

    asyncio.run(run())


def test_a_system_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    program = """
import asyncio, socket, threading
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
from tests.support.egress import egress, fetch_from
async def run():
    async with egress() as out:
        try:
            await fetch_from(out, 'http://hanging.example/', timeout_seconds=0.1)
        except Exception as error:
            print(error)
asyncio.run(run())
"""
    done = subprocess.run(
        [sys.executable, '-c', program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == 'hanging.example did not answer within 0.1 s\n'


def test_a_name_is_asked_for_once_by_all_who_wait_even_if_one_leaves() -> None:
    asked: list[str] = []
    is_asked, go = asyncio.Event(), asyncio.Event()

    async def resolve(host: str) -> list[str]:
        asked.append(host)
        is_asked.set()
        await go.wait()
        return ['127.0.0.1']

    async def run() -> None:
        async with raw_site({'/': OK}) as site, egress(resolve=resolve) as out:
            url = site.url(host='slow.example')
            async with asyncio.TaskGroup() as group:
                first, *others = [group.create_task(fetch_from(out, url)) for _ in range(4)]
                await is_asked.wait()
                first.cancel()
                await asyncio.wait([first])
                go.set()
            assert [task.result().status for task in others] == [200, 200, 200]
            assert asked == ['slow.example']

    asyncio.run(run())


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
def test_a_crawl_over_very_many_hosts_keeps_few_connections(make_loop: Any) -> None:
    async def run() -> None:
        async with raw_site({'/': OK}, host='0.0.0.0') as site, egress() as out:  # noqa: S104
            before = len(os.listdir('/proc/self/fd'))
            for number in range(600):
                url = site.url(host=f'127.1.{number // 250}.{number % 250 + 1}')
                assert (await fetch_from(out, url)).status == 200
            # Each is open at both ends.
            assert len(os.listdir('/proc/self/fd')) - before < 2 * 300
            # And when the crowd is gone, they are kept again.
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
            # The lookup's own thread may hold one to the resolver.
            assert descriptors() <= before + 4

    asyncio.run(run())


def test_without_a_free_descriptor_an_address_is_out_of_reach_and_not_judged() -> None:
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


def test_where_no_thread_can_be_started_names_are_asked_for_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads, usual = LookupThreads(), threading.stack_size()
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, 'start', refuse)
        for _ in range(THREADS + 1):
            with pytest.raises(OSError, match="can't start"):
                asyncio.run(threads.ask('localhost'))

    assert '127.0.0.1' in asyncio.run(threads.ask('localhost'))
    assert threading.stack_size() == usual

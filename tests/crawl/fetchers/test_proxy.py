"""The proxy of the browser, with requests written by hand."""

import asyncio
import base64
import socket
import struct
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest
import uvloop

from silkline.crawl.fetchers.proxy import Proxy, ProxySession
from silkline.crawl.options import HostPolicy
from silkline.crawl.responses import NoResponse, Refused
from tests.support.egress import MEGABYTE, OK, egress, resolving
from tests.support.raw_site import RawSite, answer, endless, raw_site, silent

LAST = answer(b'hello', Connection='close')


@asynccontextmanager
async def proxied(
    pages: Any, *, max_bytes: int = MEGABYTE, **options: Any
) -> AsyncGenerator[tuple[Proxy, ProxySession, RawSite]]:
    """A proxy that may reach one loopback address, and a site there."""
    names = resolving({'site.example': ['127.0.0.1'], 'inside.example': ['127.0.0.2']})
    async with (
        raw_site(pages) as site,
        egress(allow_networks=['127.0.0.1/32'], resolve=names, **options) as out,
    ):
        async with Proxy(out) as proxy:
            yield proxy, proxy.open_session(max_bytes=max_bytes), site


def password(session: ProxySession | None) -> bytes:
    if session is None:
        return b''
    token = base64.b64encode(f'{session.user}:{session.password}'.encode())
    return b'Proxy-Authorization: Basic ' + token + b'\r\n'


async def exchange(proxy: Proxy, *heads: bytes) -> bytes:
    """Send requests on one connection, and read until it is closed."""
    reader, writer = await asyncio.open_connection('127.0.0.1', int(proxy.url.rpartition(':')[2]))
    try:
        async with asyncio.timeout(10):
            for head in heads:
                writer.write(head)
            return await reader.read()
    finally:
        writer.close()


def get(url: str, session: ProxySession | None, *more: bytes) -> bytes:
    return b'\r\n'.join(
        [f'GET {url} HTTP/1.1'.encode(), b'Host: x', *more, password(session) + b'\r\n']
    )


def connect(target: str, session: ProxySession | None) -> bytes:
    return f'CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n'.encode() + password(session) + b'\r\n'


def test_a_request_with_a_full_url_is_passed_on_with_its_path() -> None:
    async def run() -> None:
        async with proxied({'/a?b': LAST}) as (proxy, session, site):
            url = site.url('/a?b', host='site.example')
            received = await exchange(
                proxy, get(url, session, b'Proxy-Connection: keep-alive', b'X-Y: z')
            )
            assert received.startswith(b'HTTP/1.1 200 OK')
            assert received.endswith(b'Connection: close\r\n\r\nhello')
            [head] = site.heads
            assert head.startswith(b'GET /a?b HTTP/1.1\r\n')
            assert b'X-Y: z' in head
            assert b'roxy' not in head

    asyncio.run(run())


def test_a_tunnel_relays_bytes_in_both_directions() -> None:
    async def run() -> None:
        page = answer(b'in the tunnel', Connection='close')
        async with proxied({'/': page}) as (proxy, session, site):
            request = b'GET / HTTP/1.1\r\nHost: x\r\n\r\n'
            received = await exchange(proxy, connect(f'site.example:{site.port}', session), request)
            assert received.startswith(b'HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200')
            assert received.endswith(b'in the tunnel')

    asyncio.run(run())


def test_a_body_is_passed_on_without_what_follows_it() -> None:
    bodies: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append(await reader.readexactly(4))
        writer.write(answer(b'taken'))

    async def run() -> None:
        async with proxied({'/': echo}) as (proxy, session, site):
            head = get(site.url(), session, b'Content-Length: 4').replace(b'GET', b'POST', 1)
            received = await exchange(
                proxy, head + b'bodyGET http://169.254.169.254/ HTTP/1.1\r\n\r\n'
            )
            assert received.endswith(b'taken')
            assert bodies == [b'body']
            assert len(site.heads) == 1

    asyncio.run(run())


def test_parts_and_frames_of_a_page_are_not_loaded_from_a_host_that_the_policy_refuses() -> None:
    async def run() -> None:
        policy = HostPolicy(deny_hosts=['example'])
        async with proxied({'*': OK}, refuse_host=policy.refusal) as (proxy, session, site):
            for head in (
                get(site.url(host='site.example'), session),
                connect(f'SITE.example.:{site.port}', session),
            ):
                assert (await exchange(proxy, head)).startswith(b'HTTP/1.1 403 ')
            assert session.refused == 2
            assert site.connections == 0

    asyncio.run(run())


def test_a_request_without_the_password_is_refused() -> None:
    async def run() -> None:
        async with proxied({'*': OK}) as (proxy, session, site):
            stranger = ProxySession(1)
            impostor = ProxySession(1)
            impostor.user = session.user
            for known in (None, stranger, impostor):
                for head in (
                    get(site.url(), known, b'Content-Length: 1'),
                    connect(f'127.0.0.1:{site.port}', known).replace(
                        b'\r\n\r\n', b'\r\nContent-Length: 1\r\n\r\n'
                    ),
                ):
                    received = await exchange(proxy, head)
                    assert received.startswith(b'HTTP/1.1 407 ')
                    assert b'Proxy-Authenticate: Basic' in received
            assert site.connections == 0

    asyncio.run(run())


def test_the_password_may_come_with_the_second_request() -> None:
    async def run() -> None:
        async with proxied({'/': LAST}) as (proxy, session, site):
            received = await exchange(proxy, get(site.url(), None), get(site.url(), session))
            assert received.startswith(b'HTTP/1.1 407 ')
            assert received.endswith(b'hello')

    asyncio.run(run())


@pytest.mark.parametrize(
    'host', ['127.0.0.2', 'inside.example', '[::ffff:127.0.0.2]', '0x7f000002', '169.254.169.254']
)
def test_a_forbidden_address_is_refused(host: str) -> None:
    async def run() -> None:
        async with raw_site({'*': OK}, host='127.0.0.2') as inside:
            async with proxied({'*': OK}) as (proxy, session, _):
                for head in (
                    get(inside.url(host=host), session),
                    connect(f'{host}:{inside.port}', session),
                ):
                    assert (await exchange(proxy, head)).startswith(b'HTTP/1.1 403 Forbidden')
                assert session.refused == 2
            assert inside.connections == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ('head', 'status'),
    [
        (b'GET /path HTTP/1.1', b'403'),
        (b'GET https://127.0.0.1/ HTTP/1.1', b'403'),
        (b'GET file:///etc/passwd HTTP/1.1', b'403'),
        (b'CONNECT 127.0.0.1:25 HTTP/1.1', b'403'),
        (b'CONNECT user@127.0.0.1:80 HTTP/1.1', b'403'),
        (b'CONNECT 127.0.0.1:1 HTTP/1.1', b'403'),
        (b'CONNECT unknown.example:443 HTTP/1.1', b'502'),
        (b'nonsense', b'400'),
        (b'GET \xff HTTP/1.1', b'400'),
    ],
)
def test_requests_that_cannot_be_passed_on_are_answered(head: bytes, status: bytes) -> None:
    async def run() -> None:
        async with proxied({}) as (proxy, session, _):
            received = await exchange(proxy, head + b'\r\n' + password(session) + b'\r\n')
            assert received.startswith(b'HTTP/1.1 ' + status)

    asyncio.run(run())


def test_an_exhausted_session_closes_its_connections_and_accepts_no_more() -> None:
    async def run() -> None:
        page = endless(b'HTTP/1.1 200 OK\r\n\r\n', b'x' * 65536)
        async with proxied({'/': page}) as (proxy, session, site):
            received = await exchange(proxy, get(site.url(), session))
            assert len(received) < MEGABYTE + 100
            await site.wait_until_idle()
            assert (await exchange(proxy, get(site.url(), session))).startswith(b'HTTP/1.1 429')

    asyncio.run(run())


def test_interim_responses_count_towards_the_limit() -> None:
    async def run() -> None:
        pages: dict[str, Any] = {'/': endless(b'', b'HTTP/1.1 103 Early\r\n\r\n' * 1000)}
        async with proxied(pages, max_bytes=100_000) as (proxy, session, site):
            received = await exchange(proxy, get(site.url(), session))
            assert received.startswith(b'HTTP/1.1 103')
            assert len(received) <= 100_000
            await site.wait_until_idle()

    asyncio.run(run())


def test_a_closed_session_ends_its_connections_and_its_password() -> None:
    async def run() -> None:
        async with proxied({'/': silent()}) as (proxy, session, site):
            exchanging = asyncio.ensure_future(exchange(proxy, get(site.url(), session)))
            await site.wait_for_request()
            await proxy.close_session(session)
            await asyncio.wait([exchanging])
            await site.wait_until_idle()
            head = get(site.url(), session, b'Content-Length: 1')
            assert (await exchange(proxy, head)).startswith(b'HTTP/1.1 407')

    asyncio.run(run())


@pytest.mark.parametrize('make_loop', [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_browser_that_disconnects_during_a_dial_is_not_an_error(make_loop: Any) -> None:
    complaints: list[Any] = []
    is_asked = asyncio.Event()
    may_answer = asyncio.Event()

    async def resolve(_: str) -> list[str]:
        is_asked.set()
        await may_answer.wait()
        return ['127.0.0.1']

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        async with raw_site({'/': OK}) as site, egress(resolve=resolve) as out, Proxy(out) as proxy:
            session = proxy.open_session(max_bytes=MEGABYTE)
            with socket.create_connection(('127.0.0.1', int(proxy.url.rpartition(':')[2]))) as it:
                it.sendall(connect(f'slow.example:{site.port}', session))
                await is_asked.wait()
                # Closed like this, the connection is reset.
                it.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            # Answered after the reset has been noticed.
            assert (await exchange(proxy, b'nonsense\r\n\r\n')).startswith(b'HTTP/1.1 400')
            may_answer.set()
            await asyncio.wait_for(asyncio.gather(*session.tasks, return_exceptions=True), 60)
        assert complaints == []

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(run())


# The plain connections of the egress


@contextmanager
def black_hole(host: str, port: int) -> Generator[None]:
    """A port whose queue is full: the kernel drops further connections to it."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((host, port))
        listening.listen(0)
        for _ in range(4):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex((host, port))
        yield


def test_a_connection_is_dialed_under_the_rules_for_requests() -> None:
    async def run() -> None:
        names = resolving({'inside.example': ['127.0.0.2']})
        async with raw_site({'/': OK}) as site:
            async with egress(allow_networks=['127.0.0.1/32'], resolve=names) as out:
                _, writer = await out.dial('127.0.0.1', site.port, timeout_seconds=60)
                writer.close()
                for host in ('127.0.0.2', 'inside.example', '::1', '[::1]', '::ffff:7f00:2'):
                    with pytest.raises(Refused):
                        await out.dial(host, site.port, timeout_seconds=60)
                with pytest.raises(Refused):
                    await out.dial('127.0.0.1', 25, timeout_seconds=60)
                for host in ('127.0.0.1/path', '127.0.0.1?x', 'a@127.0.0.1', '127.0.0.1:80'):
                    with pytest.raises(Refused):
                        await out.dial(host, site.port, timeout_seconds=60)
                with pytest.raises(NoResponse):
                    await out.dial('unknown.example', 443, timeout_seconds=60)

    asyncio.run(run())


def test_an_address_that_drops_connections_does_not_delay_the_next_one() -> None:
    async def run() -> None:
        names = resolving({'two.example': ['127.0.0.2', '127.0.0.1']})
        async with raw_site({'/': OK}) as site, egress(resolve=names) as out:
            with black_hole('127.0.0.2', site.port):
                _, writer = await out.dial('two.example', site.port, timeout_seconds=60)
            assert writer.get_extra_info('peername')[0] == '127.0.0.1'
            writer.close()

    asyncio.run(run())

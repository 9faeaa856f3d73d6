"""The proxy that a browser goes through, spoken to by hand."""

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
from silkline.crawl.responses import NoResponse, Refused

from tests.support.egress import MEGABYTE, OK, egress, resolving
from tests.support.raw_site import RawSite, answer, endless, raw_site, silent

LAST = answer(b'hello', Connection='close')


@asynccontextmanager
async def proxied(
    pages: Any, *, max_bytes: int = MEGABYTE
) -> AsyncGenerator[tuple[Proxy, ProxySession, RawSite]]:
    """A proxy that may reach one address of loopback, and a site there."""
    names = resolving({'site.example': ['127.0.0.1'], 'inside.example': ['127.0.0.2']})
    async with (
        raw_site(pages) as site,
        egress(allow_networks=['127.0.0.1/32'], resolve=names) as out,
    ):
        async with Proxy(out) as proxy:
            yield proxy, proxy.open_gate(max_bytes=max_bytes), site


def password(gate: ProxySession | None) -> bytes:
    if gate is None:
        return b''
    token = base64.b64encode(f'{gate.user}:{gate.password}'.encode())
    return b'Proxy-Authorization: Basic ' + token + b'\r\n'


async def say(proxy: Proxy, *heads: bytes) -> bytes:
    """Send requests on one connection, and read what comes until the end."""
    reader, writer = await asyncio.open_connection('127.0.0.1', int(proxy.url.rpartition(':')[2]))
    try:
        async with asyncio.timeout(10):
            for head in heads:
                writer.write(head)
            return await reader.read()
    finally:
        writer.close()


def get(url: str, gate: ProxySession | None, *more: bytes) -> bytes:
    return b'\r\n'.join(
        [f'GET {url} HTTP/1.1'.encode(), b'Host: x', *more, password(gate) + b'\r\n']
    )


def connect(target: str, gate: ProxySession | None) -> bytes:
    return f'CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n'.encode() + password(gate) + b'\r\n'


def test_a_whole_url_is_passed_on_as_the_site_knows_it() -> None:
    async def run() -> None:
        async with proxied({'/a?b': LAST}) as (proxy, gate, site):
            url = site.url('/a?b', host='site.example')
            said = await say(proxy, get(url, gate, b'Proxy-Connection: keep-alive', b'X-Y: z'))
            assert said.startswith(b'HTTP/1.1 200 OK')
            assert said.endswith(b'Connection: close\r\n\r\nhello')
            [head] = site.heads
            assert head.startswith(b'GET /a?b HTTP/1.1\r\n')
            assert b'X-Y: z' in head
            assert b'roxy' not in head

    asyncio.run(run())


def test_a_tunnel_passes_bytes_both_ways() -> None:
    async def run() -> None:
        page = answer(b'in the tunnel', Connection='close')
        async with proxied({'/': page}) as (proxy, gate, site):
            request = b'GET / HTTP/1.1\r\nHost: x\r\n\r\n'
            said = await say(proxy, connect(f'site.example:{site.port}', gate), request)
            assert said.startswith(b'HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200')
            assert said.endswith(b'in the tunnel')

    asyncio.run(run())


def test_a_body_is_passed_on_and_nothing_behind_it() -> None:
    received: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readexactly(4))
        writer.write(answer(b'taken'))

    async def run() -> None:
        async with proxied({'/': echo}) as (proxy, gate, site):
            head = get(site.url(), gate, b'Content-Length: 4').replace(b'GET', b'POST', 1)
            said = await say(proxy, head + b'bodyGET http://169.254.169.254/ HTTP/1.1\r\n\r\n')
            assert said.endswith(b'taken')
            assert received == [b'body']
            assert len(site.heads) == 1

    asyncio.run(run())


def test_who_does_not_know_the_password_is_turned_away() -> None:
    async def run() -> None:
        async with proxied({'*': OK}) as (proxy, gate, site):
            stranger = ProxySession(1)
            liar = ProxySession(1)
            liar.user = gate.user
            for known in (None, stranger, liar):
                for head in (
                    get(site.url(), known, b'Content-Length: 1'),
                    connect(f'127.0.0.1:{site.port}', known).replace(
                        b'\r\n\r\n', b'\r\nContent-Length: 1\r\n\r\n'
                    ),
                ):
                    said = await say(proxy, head)
                    assert said.startswith(b'HTTP/1.1 407 ')
                    assert b'Proxy-Authenticate: Basic' in said
            assert site.connections == 0

    asyncio.run(run())


def test_the_password_may_come_with_the_second_try() -> None:
    async def run() -> None:
        async with proxied({'/': LAST}) as (proxy, gate, site):
            said = await say(proxy, get(site.url(), None), get(site.url(), gate))
            assert said.startswith(b'HTTP/1.1 407 ')
            assert said.endswith(b'hello')

    asyncio.run(run())


@pytest.mark.parametrize(
    'host', ['127.0.0.2', 'inside.example', '[::ffff:127.0.0.2]', '0x7f000002', '169.254.169.254']
)
def test_a_forbidden_address_is_refused_to_the_browser(host: str) -> None:
    async def run() -> None:
        async with raw_site({'*': OK}, host='127.0.0.2') as inside:
            async with proxied({'*': OK}) as (proxy, gate, _):
                for head in (
                    get(inside.url(host=host), gate),
                    connect(f'{host}:{inside.port}', gate),
                ):
                    assert (await say(proxy, head)).startswith(b'HTTP/1.1 403 Forbidden')
                assert gate.refused == 2
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
def test_what_cannot_be_passed_on_is_answered(head: bytes, status: bytes) -> None:
    async def run() -> None:
        async with proxied({}) as (proxy, gate, _):
            said = await say(proxy, head + b'\r\n' + password(gate) + b'\r\n')
            assert said.startswith(b'HTTP/1.1 ' + status)

    asyncio.run(run())


def test_a_spent_gate_ends_its_connections_and_takes_no_more() -> None:
    async def run() -> None:
        page = endless(b'HTTP/1.1 200 OK\r\n\r\n', b'x' * 65536)
        async with proxied({'/': page}) as (proxy, gate, site):
            said = await say(proxy, get(site.url(), gate))
            assert len(said) < MEGABYTE + 100
            await site.wait_until_idle()
            assert (await say(proxy, get(site.url(), gate))).startswith(b'HTTP/1.1 429')

    asyncio.run(run())


def test_interim_responses_spend_the_gate_too() -> None:
    async def run() -> None:
        pages: dict[str, Any] = {'/': endless(b'', b'HTTP/1.1 103 Early\r\n\r\n' * 1000)}
        async with proxied(pages, max_bytes=100_000) as (proxy, gate, site):
            heard = await say(proxy, get(site.url(), gate))
            assert heard.startswith(b'HTTP/1.1 103')
            assert len(heard) <= 100_000
            await site.wait_until_idle()

    asyncio.run(run())


def test_a_closed_gate_ends_its_connections_and_its_password() -> None:
    async def run() -> None:
        async with proxied({'/': silent()}) as (proxy, gate, site):
            saying = asyncio.ensure_future(say(proxy, get(site.url(), gate)))
            await site.wait_for_request()
            await proxy.close_gate(gate)
            await asyncio.wait([saying])
            await site.wait_until_idle()
            head = get(site.url(), gate, b'Content-Length: 1')
            assert (await say(proxy, head)).startswith(b'HTTP/1.1 407')

    asyncio.run(run())


@pytest.mark.parametrize('make_loop', [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_browser_that_leaves_while_a_site_is_dialed_is_no_error(make_loop: Any) -> None:
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
            gate = proxy.open_gate(max_bytes=MEGABYTE)
            with socket.create_connection(('127.0.0.1', int(proxy.url.rpartition(':')[2]))) as it:
                it.sendall(connect(f'slow.example:{site.port}', gate))
                await is_asked.wait()
                # Closed like this, it is a reset.
                it.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            # Whatever comes later is seen later.
            assert (await say(proxy, b'nonsense\r\n\r\n')).startswith(b'HTTP/1.1 400')
            may_answer.set()
            await asyncio.wait_for(asyncio.gather(*gate.tasks, return_exceptions=True), 60)
        assert complaints == []

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(run())


# The bare connections beneath


@contextmanager
def black_hole(host: str, port: int) -> Generator[None]:
    """A port whose queue is full: the kernel drops whatever else would connect to it."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((host, port))
        listening.listen(0)
        for _ in range(4):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex((host, port))
        yield


def test_a_connection_is_dialed_under_the_rules_of_requests() -> None:
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


def test_an_address_that_swallows_connections_does_not_keep_the_next_one_waiting() -> None:
    async def run() -> None:
        names = resolving({'two.example': ['127.0.0.2', '127.0.0.1']})
        async with raw_site({'/': OK}) as site, egress(resolve=names) as out:
            with black_hole('127.0.0.2', site.port):
                _, writer = await out.dial('two.example', site.port, timeout_seconds=60)
            assert writer.get_extra_info('peername')[0] == '127.0.0.1'
            writer.close()

    asyncio.run(run())

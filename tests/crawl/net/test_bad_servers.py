"""Servers that break HTTP or TLS, or that never finish."""

import asyncio
from typing import Any

import pytest

from silkline.crawl.responses import NoResponse
from tests.support.certificates import Certificate
from tests.support.egress import OK, egress, fetch_from, fetch_one, resolving
from tests.support.raw_site import answer, endless, raw_site, silent, slow


@pytest.fixture(scope='module')
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.make('tls.example', tmp_path_factory.mktemp('certificate'))


CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'


@pytest.mark.parametrize(
    ('page', 'kind'),
    [
        (b'', 'closed'),
        (b'HTTP/1.1 200 OK\r\nContent-Le', 'closed'),
        (b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n', 'closed'),
        (b'HTTP/1.1 100 Continue\r\n\r\n', 'closed'),
        (answer(b'short', length=100, Connection='close'), 'closed'),
        (CHUNKED + b'5\r\nhello\r\n', 'closed'),
        (CHUNKED + b'5\r\nhel', 'closed'),
        (CHUNKED + b'not hex\r\nhello\r\n0\r\n\r\n', 'protocol'),
        (CHUNKED + b'-5\r\nhello\r\n0\r\n\r\n', 'protocol'),
        (CHUNKED + b'5\r\nhello, too long\r\n0\r\n\r\n', 'protocol'),
        (CHUNKED + b'f' * 100 + b'\r\nhello', 'protocol'),
        (CHUNKED + b'1' * 100_000, 'protocol'),
        (b'<html>no header at all</html>\r\n\r\n', 'protocol'),
        (b'SSH-2.0-OpenSSH_9.2\r\n\r\n', 'protocol'),
        (b'\0' * 100_000, 'protocol'),
        (b'HTTP/1.1 2000 OK\r\n\r\n', 'protocol'),
        (b'HTTP/1.1 abc OK\r\n\r\n', 'protocol'),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello', 'protocol'),
        (b'HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello', 'protocol'),
        (b'HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nhello', 'protocol'),
        (b'HTTP/1.1 200 OK\r\nX: ' + b'x' * 300_000 + b'\r\n\r\n', 'protocol'),
        (b'HTTP/1.1 200 ' + b'x' * 300_000 + b'\r\n\r\n', 'protocol'),
        (b'HTTP/1.1 200 OK\r\n' + b'X: y\r\n' * 10_000 + b'\r\n', 'protocol'),
        (b'HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n', 'protocol'),
    ],
)
def test_each_broken_response_has_its_kind(page: bytes, kind: str) -> None:
    async def handler(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(page)
        await writer.drain()

    error = fetch_one(handler)
    assert isinstance(error, NoResponse)
    assert error.kind == kind
    assert '127.0.0.1' in str(error)
    assert str(error).count('\n') == 0


@pytest.mark.parametrize('rest', [b'helloX\r\n0\r\n\r\n', b'hello\r\nno number\r\n'])
def test_broken_chunks_after_the_headers_fail_before_the_timeout(
    rest: bytes,
) -> None:
    async def run() -> None:
        is_read = asyncio.Event()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + b'5\r\n')
            await is_read.wait()
            writer.write(rest)
            await reader.read()

        def wants(*_: Any) -> bool:
            is_read.set()
            return True

        async with raw_site({'/': handler}) as site, egress() as out:
            with pytest.raises(NoResponse) as caught:
                await fetch_from(out, site.url(), wants=wants)
            assert caught.value.kind == 'protocol'
            await site.wait_until_idle()

    asyncio.run(run())


@pytest.mark.parametrize(
    ('head', 'piece'),
    [
        (b'HTTP/1.1 200 OK\r\n', b'X-More: y\r\n' * 1000),
        (b'HTTP/1.1 200 OK\r\nX: ', b'x' * 65536),
        (b'', b'x' * 65536),
        (CHUNKED + b'0\r\n', b'X-Trailer: y\r\n' * 1000),
    ],
)
def test_endless_headers_are_refused(head: bytes, piece: bytes) -> None:
    error = fetch_one(endless(head, piece), timeout_seconds=60)
    assert isinstance(error, NoResponse)
    assert error.kind == 'protocol'


def test_endless_interim_responses_are_refused() -> None:
    error = fetch_one(endless(b'', b'HTTP/1.1 103 Early\r\n\r\n' * 100), timeout_seconds=60)
    assert isinstance(error, NoResponse)
    assert error.kind == 'protocol'


def test_a_few_interim_responses_are_accepted() -> None:
    assert fetch_one(b'HTTP/1.1 103 Early\r\nLink: x\r\n\r\n' * 3 + OK).body == b'hello'


@pytest.mark.parametrize(
    'page',
    [
        silent(),
        slow(b'HTTP/1.1 200 OK\r\n' + b'X: y\r\n' * 100, seconds_per_byte=0.05),
        slow(answer(b'x' * 1000), seconds_per_byte=0.05),
        slow(CHUNKED + b'1\r\nx\r\n' * 100, seconds_per_byte=0.05),
        slow(answer(b'x', length=9000), seconds_per_byte=0),
    ],
)
def test_a_slow_server_ends_with_the_timeout(page: Any) -> None:
    error = fetch_one(page, timeout_seconds=0.5)
    assert isinstance(error, NoResponse)
    assert error.kind == 'timeout'
    assert str(error) == '127.0.0.1 did not answer within 0.5 s'


def test_a_closed_port_is_a_failed_connection() -> None:
    async def run() -> None:
        async with raw_site({}) as site:
            url = site.url(host='closed.example')
        async with egress(resolve=resolving({'closed.example': ['127.0.0.1']})) as out:
            with pytest.raises(NoResponse) as caught:
                await fetch_from(out, url)
            assert caught.value.kind == 'connect'
            assert str(caught.value) == 'could not connect to closed.example'

    asyncio.run(run())


def test_a_server_without_tls_is_a_tls_error() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b'speak HTTP', status='400 Bad'))
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(refuse, '127.0.0.1', 0)
        async with server, egress() as out:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(NoResponse) as caught:
                await fetch_from(out, f'https://127.0.0.1:{port}/')
            assert caught.value.kind == 'tls'

    asyncio.run(run())


def test_an_untrusted_certificate_is_a_tls_error(certificate: Certificate) -> None:
    async def run() -> None:
        names = resolving({'tls.example': ['127.0.0.1']})
        async with raw_site({'/': OK}, tls=certificate.server()) as site:
            async with egress(resolve=names) as out:
                with pytest.raises(NoResponse, match=r'certificate of tls\.example') as caught:
                    await fetch_from(out, site.url(host='tls.example'))
                assert caught.value.kind == 'tls'
            assert site.heads == []

    asyncio.run(run())


def test_the_certificate_is_checked_against_the_host_name_not_the_address(
    certificate: Certificate,
) -> None:
    async def run() -> None:
        names = resolving({'tls.example': ['127.0.0.1'], 'other.example': ['127.0.0.1']})
        async with raw_site({'/': OK}, tls=certificate.server()) as site:
            async with egress(resolve=names, tls=certificate.client()) as out:
                response = await fetch_from(out, site.url(host='tls.example'))
                assert (response.body, response.address) == (b'hello', '127.0.0.1')
                assert certificate.requested_names[-1] == 'tls.example'
                with pytest.raises(NoResponse, match=r'other\.example was rejected') as caught:
                    await fetch_from(out, site.url(host='other.example'))
                assert caught.value.kind == 'tls'

    asyncio.run(run())

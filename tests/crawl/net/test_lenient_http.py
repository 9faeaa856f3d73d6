"""Responses that break HTTP and that browsers accept, and data after their end."""

import asyncio
import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from silkline.crawl.net.lenient_http import HEAD_BYTES, HEADER_LINES, repair
from silkline.crawl.responses import NoResponse
from tests.support.egress import declines, egress, fetch_from, fetch_one
from tests.support.raw_site import answer, raw_site, slow

OK = b'HTTP/1.1 200 OK\r\n'
CHUNKED = OK + b'Transfer-Encoding: chunked\r\n\r\n'
CHUNKS = b'5\r\nhello\r\n0\r\n\r\n'
FIVE = b'Content-Length: 5\r\n\r\nhello'


def in_one_piece(page: bytes) -> Any:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(page)
        await writer.drain()
        await reader.read()

    return handler


def byte_by_byte(page: bytes) -> Any:
    return slow(page, seconds_per_byte=0)


@pytest.mark.parametrize('written', [in_one_piece, byte_by_byte])
@pytest.mark.parametrize(
    'page',
    [
        # More bytes than announced.
        OK + FIVE + b' and more',
        OK + FIVE + b'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext',
        CHUNKED + CHUNKS + b'junk',
        # Repeated or contradictory lengths.
        OK + b'Content-Length: 5\r\n' + FIVE,
        OK + b'Content-Length: 5, 5\r\n\r\nhello',
        OK + b'Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n' + CHUNKS,
        OK + b'Transfer-Encoding: Chunked\r\nTransfer-Encoding: chunked\r\n\r\n' + CHUNKS,
        OK + b'Transfer-Encoding: identity\r\n' + FIVE,
        OK + b'Transfer-Encoding: xchunked\r\n' + FIVE,
        OK + b'Transfer-Encoding: chunked, gzip\r\n\r\n' + CHUNKS,
        # Malformed header lines.
        OK + b'no colon\r\n' + FIVE,
        OK + b': no name\r\n' + FIVE,
        OK + b'Two Words: x\r\n' + FIVE,
        OK + b'X-\xc3\xa9: x\r\n' + FIVE,
        OK + b'X: a\0b\rc\r\n' + FIVE,
        OK + b'Content-Length : 5\r\n\r\nhello',
        OK + b'X: folded\r\n\tover lines\r\n' + FIVE,
        # Large heads.
        OK + b'Link: ' + b'x' * 30_000 + b'\r\n' + FIVE,
        OK + b''.join(b'X-%d: y\r\n' % number for number in range(400)) + FIVE,
        # Blank lines and interim responses first.
        b'\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n' + OK + FIVE,
        b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n' + OK + FIVE,
        # No carriage returns, no reason phrase.
        b'HTTP/1.1 200\nContent-Length: 5\n\nhello',
    ],
)
def test_what_browsers_accept_is_accepted_however_it_arrives(page: bytes, written: Any) -> None:
    response = fetch_one(written(page))
    assert (response.status, response.body) == (200, b'hello')


@pytest.mark.parametrize('status', ['204 No Content', '304 Not Modified'])
@pytest.mark.parametrize('rest', [FIVE, b'Transfer-Encoding: chunked\r\n\r\n' + CHUNKS])
def test_a_body_after_a_status_without_body_is_not_read(status: str, rest: bytes) -> None:
    response = fetch_one(in_one_piece(b'HTTP/1.1 %s\r\n' % status.encode() + rest))
    assert (response.status, response.body) == (int(status[:3]), b'')


@pytest.mark.parametrize(
    'page',
    [
        OK + b'Content-Length: 6\r\n' + FIVE,
        OK + b'Content-Length: 5, 6\r\n\r\nhello',
        OK + b'X: ' + b'x' * HEAD_BYTES + b'\r\n' + FIVE,
        b'\r\n' * HEAD_BYTES + OK + FIVE,
        OK + b'X: y\r\n' * HEADER_LINES + FIVE,
        OK + b'X: a\r\n' + b' b\r\n' * HEADER_LINES + FIVE,
        b'HTTP/1.1 103 Early\r\n\r\n' * 11 + OK + FIVE,
    ],
)
def test_what_browsers_refuse_is_refused(page: bytes) -> None:
    error = fetch_one(in_one_piece(page))
    assert isinstance(error, NoResponse)
    assert error.kind == 'protocol'


@pytest.mark.parametrize(
    ('head', 'body'),
    [
        (OK + b'Content-Length: 5\r\n\r\n', b'hello'),
        (CHUNKED, CHUNKS),
        # More than one read.
        (OK + b'Content-Length: 1000000\r\n\r\n', b'x' * 1_000_000),
    ],
)
@pytest.mark.parametrize(
    'another', [answer(b'Nobody asked.'), b'HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\n']
)
def test_a_response_after_the_end_of_a_body_does_not_answer_the_next_request(
    head: bytes, body: bytes, another: bytes
) -> None:
    async def run() -> None:
        has_begun = asyncio.Event()

        async def first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(head)
            await has_begun.wait()
            writer.write(body + another)
            await reader.read()

        def wants(*_: Any) -> bool:
            has_begun.set()
            return True

        pages: dict[str, Any] = {'/1': first, '*': answer(b'asked for')}
        async with raw_site(pages) as site, egress() as out:
            response = await fetch_from(out, site.url('/1'), wants=wants)
            assert len(response.body) in (5, 1_000_000)
            for _ in range(3):
                assert (await fetch_from(out, site.url('/2'))).body == b'asked for'

    asyncio.run(run())


@pytest.mark.parametrize('late', [answer(b'Nobody asked.'), b'HTTP/1.1 408 Late\r\n\r\n', b'junk'])
def test_data_on_an_idle_connection_does_not_answer_the_next_request(late: bytes) -> None:
    async def run() -> None:
        is_idle = asyncio.Event()
        is_noticed = asyncio.Event()

        async def first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer(b'first'))
            await is_idle.wait()
            writer.write(late)
            # The crawl closes the connection before it goes on.
            await reader.read()
            is_noticed.set()

        pages: dict[str, Any] = {'/1': first, '*': answer(b'another')}
        async with raw_site(pages) as site, egress() as out:
            assert (await fetch_from(out, site.url('/1'))).body == b'first'
            is_idle.set()
            async with asyncio.timeout(10):
                await is_noticed.wait()
            for _ in range(3):
                assert (await fetch_from(out, site.url('/2'))).body == b'another'

    asyncio.run(run())


@pytest.mark.parametrize(
    ('page', 'is_kept'),
    [
        (answer(b'hello'), True),
        (CHUNKED + CHUNKS, True),
        (answer(status='304 Not Modified'), True),
        (OK + b'Content-Length: 5\r\n' + FIVE, False),
        (OK + b'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n' + CHUNKS, False),
    ],
)
def test_a_connection_is_reused_while_its_responses_are_well_formed(
    page: bytes, is_kept: bool
) -> None:
    async def run() -> None:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(page)
            while await reader.readuntil(b'\r\n\r\n'):
                writer.write(page)

        async with raw_site({'/': handler}) as site, egress() as out:
            for _ in range(3):
                await fetch_from(out, site.url())
            assert site.connections == (1 if is_kept else 3)

    asyncio.run(run())


def test_a_kept_alive_connection_that_the_server_closes_is_not_a_failure() -> None:
    async def run() -> None:
        async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer(b'hello'))
            # It closes at the very moment of the next request.
            await reader.readuntil(b'\r\n\r\n')

        async with raw_site({'/': once}) as site, egress() as out:
            for _ in range(4):
                assert (await fetch_from(out, site.url())).body == b'hello'
            assert site.connections == 4

    asyncio.run(run())


def test_a_late_body_after_a_304_does_not_spoil_the_next_response() -> None:
    async def run() -> None:
        async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n')
            await reader.readuntil(b'\r\n\r\n')
            writer.write(b'hello' + answer(b'another'))

        async with raw_site({'/1': late, '*': answer(b'another')}) as site, egress() as out:
            assert (await fetch_from(out, site.url('/1'))).status == 304
            assert (await fetch_from(out, site.url('/2'))).body == b'another'

    asyncio.run(run())


@pytest.mark.parametrize('page', [b'', b'HTTP/1.1 200 OK\r\nContent-Le'])
def test_a_server_that_hangs_up_on_a_new_connection_gets_one_request(page: bytes) -> None:
    async def run() -> None:
        async def handler(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(page)

        async with raw_site({'/': handler}) as site, egress() as out:
            with pytest.raises(NoResponse) as caught:
                await fetch_from(out, site.url())
            assert caught.value.kind == 'closed'
            assert len(site.heads) == 1

    asyncio.run(run())


def test_a_valid_head_is_passed_on_unchanged() -> None:
    head = OK + b'Content-Type: text/html\r\nX: folded\r\n over\r\nContent-Length: 5\r\n\r\n'
    assert repair(head) is head


def test_a_repaired_head_keeps_its_headers() -> None:
    page = OK + b'rubbish\r\nContent-Type : text/html\r\nX: a\r\n  b\r\n' + FIVE
    headers = fetch_one(in_one_piece(page)).headers
    assert dict(headers) == {'Content-Type': 'text/html', 'X': 'a b', 'Content-Length': '5'}


@pytest.mark.parametrize('name', ['aws-chunked', 'windows-1252', 'UTF-8', '8bit'])
def test_a_content_encoding_that_is_a_charset_is_ignored(name: str) -> None:
    assert fetch_one(answer(b'hello', Content_Encoding=name)).body == b'hello'


@pytest.mark.parametrize('status', ['404 Not Found', '301 Moved'])
def test_an_error_page_without_a_length_does_not_cost_the_connection(
    status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Even on a busy machine.
    monkeypatch.setattr('silkline.crawl.net.session.DRAIN_SECONDS', 60)

    async def run() -> None:
        head = b'HTTP/1.1 %s\r\nTransfer-Encoding: chunked\r\n\r\n' % status.encode()
        is_declined = asyncio.Event()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                writer.write(head)
                await is_declined.wait()
                is_declined.clear()
                writer.write(b'2000\r\n' + b'x' * 0x2000 + b'\r\n0\r\n\r\n')
                await reader.readuntil(b'\r\n\r\n')

        def wants(*_: Any) -> bool:
            is_declined.set()
            return False

        async with raw_site({'/': handler}) as site, egress() as out:
            for _ in range(3):
                response = await fetch_from(out, site.url(), wants=wants)
                assert response.body == b''
            assert site.connections == 1

    asyncio.run(run())


@pytest.mark.parametrize('head', [CHUNKED, CHUNKED.replace(b'200 OK', b'404 No'), OK + b'\r\n'])
def test_the_rest_of_a_declined_body_is_not_waited_for(head: bytes) -> None:
    """Such as an event stream, which may be silent for hours."""
    response = fetch_one(in_one_piece(head), wants=declines, timeout_seconds=30)
    assert response.body == b''
    assert response.seconds < 20


@pytest.mark.parametrize(
    ('encoding', 'pack'), [('gzip', gzip.compress), ('deflate', zlib.compress)]
)
def test_an_encoded_body_with_the_length_of_the_decoded_one_is_complete(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    text = b'Words of a page. ' * 100
    page = answer(pack(text), length=len(text), Content_Encoding=encoding, Connection='close')
    assert fetch_one(page).body == text


def test_an_encoded_body_that_is_cut_off_is_incomplete() -> None:
    text = b'Words of a page. ' * 100
    whole = gzip.compress(text)
    page = answer(whole[:-1], length=len(whole), Content_Encoding='gzip', Connection='close')
    error = fetch_one(page)
    assert isinstance(error, NoResponse)
    assert error.kind == 'closed'

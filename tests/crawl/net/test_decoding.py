"""Encoded bodies: complete, broken, endless, or far larger than they look."""

import gzip
import os
import zlib
from collections.abc import Callable

import pytest

from silkline.crawl.responses import TooLarge, UndecodableBody
from tests.support.egress import MEGABYTE, fetch_one
from tests.support.raw_site import answer, endless, slow


def encoded(body: bytes, encoding: str, *, length: int | None = None) -> bytes:
    return answer(body, length=length, Content_Encoding=encoding)


def brotli(data: bytes) -> bytes:
    import brotli as module  # pyright: ignore[reportMissingTypeStubs]

    return bytes(module.compress(data, quality=1))


def zstd(data: bytes, level: int = 3) -> bytes:
    from backports import zstd as module

    return module.compress(data, level)


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


TEXT = b'Some text of a page. ' * 10_000
PACKERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ('gzip', gzip.compress),
    ('x-gzip', gzip.compress),
    ('GZip', gzip.compress),
    ('deflate', zlib.compress),
    ('deflate', raw_deflate),
    ('br', brotli),
    ('zstd', zstd),
    ('identity', bytes),
    ('gzip', lambda data: gzip.compress(data[:99]) + gzip.compress(data[99:])),
    ('gzip', lambda data: gzip.compress(data) + b'\0' * 99),
    ('gzip', lambda data: gzip.compress(data) + b'trailing text'),
    ('zstd', lambda data: zstd(data[:99]) + zstd(data[99:])),
    ('gzip, gzip', lambda data: gzip.compress(gzip.compress(data))),
    ('deflate, br', lambda data: brotli(zlib.compress(data))),
    ('identity, zstd, gzip', lambda data: gzip.compress(zstd(data))),
]


@pytest.mark.parametrize(('encoding', 'pack'), PACKERS)
def test_an_encoded_body_is_decoded(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    assert fetch_one(encoded(pack(TEXT), encoding)).body == TEXT
    assert fetch_one(encoded(b'', encoding)).body == b''


@pytest.mark.parametrize(('encoding', 'pack'), PACKERS)
def test_an_encoded_body_may_arrive_byte_by_byte(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    text = TEXT[:200]
    page = slow(encoded(pack(text), encoding), seconds_per_byte=0)
    assert fetch_one(page).body == text


@pytest.mark.parametrize(
    ('encoding', 'pack'),
    [(name, pack) for name, pack in PACKERS if name != 'identity'],
)
def test_an_incomplete_encoded_body_is_an_error(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    whole = pack(os.urandom(1000))
    error = fetch_one(encoded(whole[: len(whole) // 2], encoding))
    assert isinstance(error, UndecodableBody)
    assert 'body is incomplete' in str(error)


@pytest.mark.parametrize('encoding', ['gzip', 'deflate', 'br', 'zstd', 'gzip, br'])
def test_a_body_that_does_not_match_its_encoding_is_an_error(encoding: str) -> None:
    error = fetch_one(encoded(b'<p>This is plain text, whatever the header says.', encoding))
    assert isinstance(error, UndecodableBody)


def test_a_wrong_checksum_is_an_error() -> None:
    whole = bytearray(gzip.compress(TEXT))
    whole[-6] ^= 1
    assert isinstance(fetch_one(encoded(bytes(whole), 'gzip')), UndecodableBody)


@pytest.mark.parametrize('encoding', ['identity', '', 'none', 'UTF-8', 'binary, identity'])
def test_values_that_are_not_encodings_are_ignored_as_by_browsers(encoding: str) -> None:
    assert fetch_one(encoded(TEXT, encoding)).body == TEXT


@pytest.mark.parametrize('encoding', ['compress', 'utf-9', 'gzip, gzip, gzip', 'x' * 9000])
def test_an_unknown_encoding_is_an_error(encoding: str) -> None:
    error = fetch_one(encoded(b'x', encoding))
    assert isinstance(error, UndecodableBody)
    assert len(str(error)) < 200


def gzip_bomb(size: int) -> bytes:
    return gzip.compress(b'\0' * size)


BOMBS: list[tuple[str, Callable[[], bytes]]] = [
    ('gzip', lambda: gzip_bomb(200 * MEGABYTE)),
    ('deflate', lambda: zlib.compress(b'\0' * 200 * MEGABYTE)),
    ('br', lambda: brotli(b'\0' * 200 * MEGABYTE)),
    ('zstd', lambda: zstd(b'\0' * 200 * MEGABYTE)),
    ('gzip, gzip', lambda: gzip.compress(gzip_bomb(200 * MEGABYTE))),
    ('gzip, br', lambda: brotli(gzip_bomb(200 * MEGABYTE))),
    ('gzip', lambda: gzip_bomb(MEGABYTE) * 200),
]


@pytest.mark.parametrize(('encoding', 'make'), BOMBS)
def test_a_decompression_bomb_is_too_large_and_takes_little_memory(
    encoding: str, make: Callable[[], bytes]
) -> None:
    import tracemalloc

    bomb = encoded(make(), encoding)
    assert isinstance(fetch_one(bomb, max_bytes=MEGABYTE), TooLarge)
    tracemalloc.start()
    try:
        error = fetch_one(bomb, max_bytes=MEGABYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, TooLarge)
    assert str(error) == f'the body is larger than {MEGABYTE} bytes'
    assert peak < 4 * MEGABYTE


def test_endless_empty_members_are_an_error() -> None:
    error = fetch_one(encoded(gzip.compress(b'') * 10_000, 'gzip'))
    assert isinstance(error, UndecodableBody)
    assert 'more than 4096 parts' in str(error)


def test_an_encoded_body_that_never_yields_a_byte_is_too_large() -> None:
    stream = zlib.compressobj(wbits=31)
    head = stream.compress(b'') + stream.flush(zlib.Z_FULL_FLUSH)
    nothing = stream.flush(zlib.Z_FULL_FLUSH) or b'\0\0\0\xff\xff'
    page = endless(b'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n' + head, nothing * 10_000)
    assert isinstance(fetch_one(page), TooLarge)


def test_a_body_at_the_limit_is_accepted_and_one_byte_more_is_too_large() -> None:
    for page in (answer(TEXT), encoded(gzip.compress(TEXT), 'gzip')):
        assert fetch_one(page, max_bytes=len(TEXT)).body == TEXT
        assert isinstance(fetch_one(page, max_bytes=len(TEXT) - 1), TooLarge)


@pytest.mark.parametrize('length', ['1048577', '99999999999', '9' * 30])
def test_a_content_length_above_the_limit_is_refused_before_the_body_is_read(length: str) -> None:
    page = slow(f'HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n'.encode(), seconds_per_byte=0)
    error = fetch_one(page)
    assert isinstance(error, TooLarge) or (len(length) > 18 and error.kind == 'protocol')


@pytest.mark.parametrize(
    'head',
    [
        b'HTTP/1.1 200 OK\r\n\r\n',
        b'HTTP/1.0 200 OK\r\n\r\n',
        b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n',
    ],
)
def test_an_endless_body_is_too_large(head: bytes) -> None:
    assert isinstance(fetch_one(endless(head, b'x' * 65536)), TooLarge)


def test_an_endless_chunked_body_is_too_large() -> None:
    head = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
    assert isinstance(fetch_one(endless(head, b'1000\r\n' + b'x' * 4096 + b'\r\n')), TooLarge)


@pytest.mark.parametrize('encoding', ['identity', 'gzip', 'br'])
def test_a_body_that_is_too_large_can_be_truncated(encoding: str) -> None:
    pack = dict(PACKERS)[encoding] if encoding != 'gzip' else gzip.compress
    response = fetch_one(encoded(pack(TEXT), encoding), max_bytes=100_000, is_cut=True)
    assert response.body == TEXT[:100_000]
    assert fetch_one(encoded(pack(TEXT), encoding), is_cut=True).body == TEXT

"""One exchange over aiohttp, as the egress needs it: a session, an answer, what went wrong.

For `egress.py` alone, which decides where a request may go. This module takes in what came back,
within its bounds, and turns every failure into one of `responses.py`.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import Any

import aiohttp
from aiohttp import connector as aiohttp_connector
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict, CIMultiDictProxy

from silkline.crawl.net.decoding import Body, accepted_encodings
from silkline.crawl.net.lenient_http import HEAD_BYTES, HEADER_LINES, LeftoverData, LenientConnector
from silkline.crawl.net.tls import SystemTrust
from silkline.crawl.responses import EgressError, NoResponse, Refused, TooLarge, forbidden

# For sessions of others, a plugin's own: aiohttp's was made where no certificate was to be had.
aiohttp_connector._SSL_CONTEXT_VERIFIED = SystemTrust()  # pyright: ignore[reportPrivateUsage]

ACCEPT = 'text/html,application/xhtml+xml,application/xml;q=0.9,text/*;q=0.9,*/*;q=0.5'
KEEP_ALIVE_SECONDS = 10.0
# A body that is not wanted is read all the same when that is cheaper than a new connection.
DRAIN_BYTES = 64 * 1024
DRAIN_SECONDS = 1.0


class ForbiddenAddress(PermissionError):
    """Raised by the maker of sockets, where aiohttp expects the errors of a socket."""


def open_session(
    *,
    resolver: AbstractResolver,
    socket_factory: Callable[[Any], socket.socket],
    connections: int,
    tls: ssl.SSLContext | None,
    user_agent: str,
    is_crowded: Callable[[], bool],
) -> aiohttp.ClientSession:
    """A session without cookies, proxies, decompression or a clock of its own.

    While `is_crowded`, no connection is kept for later: aiohttp bounds those in use alone.
    """

    class PooledResponse(SessionResponse):
        def start(self, connection: Any) -> 'CoroutineType[Any, Any, aiohttp.ClientResponse]':
            if is_crowded():
                connection.protocol.force_close()
            return super().start(connection)

    connector = LenientConnector(
        resolver=resolver,
        socket_factory=socket_factory,
        use_dns_cache=False,
        limit=connections,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        ssl=tls or True,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        # The one clock of a request is that of `Egress.fetch`.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        response_class=PooledResponse,
        max_line_size=HEAD_BYTES,
        max_field_size=HEAD_BYTES,
        max_headers=HEADER_LINES,
        headers={
            'User-Agent': user_agent,
            'Accept': ACCEPT,
            'Accept-Encoding': accepted_encodings(),
        },
    )


class SessionResponse(aiohttp.ClientResponse):
    """Remembers the address, which is gone once a short response has been read."""

    address = ''

    def start(self, connection: Any) -> 'CoroutineType[Any, Any, aiohttp.ClientResponse]':
        peer = connection.transport.get_extra_info('peername')
        if peer:
            self.address = peer[0]
        return super().start(connection)


async def take_in(answer: aiohttp.ClientResponse, max_bytes: int, *, is_cut: bool) -> bytes:
    encodings = answer.headers.getall('Content-Encoding', ())
    body = Body(', '.join(encodings) if encodings else '', max_bytes=max_bytes)
    content = answer.content
    if not content.at_eof() and not is_cut:
        body.expect(answer.headers.get('Content-Length'))
    try:
        while data := await content.readany():
            body.feed(data)
    except TooLarge:
        if not is_cut:
            raise
        return body.so_far()
    except aiohttp.ClientPayloadError:
        # Some servers tell the length that a body had before they packed it, and then close.
        if not body.is_packed_and_whole:
            raise
    return body.finish()


async def drain(answer: aiohttp.ClientResponse) -> None:
    length = answer.headers.get('Content-Length')
    if length is None:
        # A stream may have no end; error pages have one.
        is_short = answer.status >= 300
    else:
        is_short = length.isdecimal() and len(length) < 6 and int(length) <= DRAIN_BYTES
    if not is_short:
        return
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            size = 0
            while size <= DRAIN_BYTES and (data := await answer.content.readany()):
                size += len(data)


def readable(headers: CIMultiDictProxy[str]) -> Mapping[str, str]:
    """The headers as storable text; aiohttp keeps bytes that are no UTF-8 as surrogates."""
    if all(map(str.isascii, headers.values())):
        return headers
    return CIMultiDictProxy(CIMultiDict((name, text_of(value)) for name, value in headers.items()))


def text_of(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode('utf-8', 'surrogateescape').decode('latin-1')
    return value


def translated(error: Exception, host: str, timeout_seconds: float) -> EgressError:
    """What a caller decides by, and a sentence that names the host alone."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, 'verify_message', '') or 'not valid'
            return NoResponse(f'the certificate of {host} is not accepted: {reason}', 'tls')
        case aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return NoResponse(f'{host} does not speak TLS as it should', 'tls')
        case aiohttp.ClientConnectorError(os_error=ForbiddenAddress()):
            return forbidden(host)
        case aiohttp.ClientConnectorError():
            return NoResponse(f'{host} takes no connection', 'connect')
        case aiohttp.InvalidURL():
            return Refused(f'the host {host} is no valid one', 'invalid_url')
        case TimeoutError():
            return NoResponse(f'{host} did not answer within {timeout_seconds:g} s', 'timeout')
        case aiohttp.ClientPayloadError():
            return NoResponse(f'{host} closed the connection in the middle of the body', 'closed')
        case aiohttp.ClientConnectionError() | OSError() if not isinstance(error, LeftoverData):
            return NoResponse(f'{host} closed the connection before the end', 'closed')
        case _:
            return NoResponse(f'{host} does not answer in HTTP as it should', 'protocol')

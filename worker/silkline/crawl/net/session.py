"""One exchange over aiohttp, for `egress.py` alone: the session, the body, the errors.

Where a request may go is decided by the egress. This module receives the response within its
limits, and turns every failure into an error of `responses.py`.
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

# For a session that a plugin opens itself: aiohttp's own context was made without certificates.
aiohttp_connector._SSL_CONTEXT_VERIFIED = SystemTrust()  # pyright: ignore[reportPrivateUsage]

ACCEPT = 'text/html,application/xhtml+xml,application/xml;q=0.9,text/*;q=0.9,*/*;q=0.5'
KEEP_ALIVE_SECONDS = 10.0
# A declined body is read anyway if that is cheaper than a new connection.
DRAIN_BYTES = 64 * 1024
DRAIN_SECONDS = 1.0


class ForbiddenAddress(PermissionError):
    """Raised by the socket factory, where aiohttp expects the errors of a socket."""


def open_session(
    *,
    resolver: AbstractResolver,
    socket_factory: Callable[[Any], socket.socket],
    connections: int,
    tls: ssl.SSLContext | None,
    user_agent: str,
    is_crowded: Callable[[], bool],
) -> aiohttp.ClientSession:
    """A session without cookies, proxies, decompression or timeouts of its own.

    While `is_crowded`, no connection is kept alive: aiohttp bounds only those in use.
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
        # `Egress.fetch` has the only timeout.
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
    """Keeps the peer's address, which is gone once a short response has been read."""

    address = ''

    def start(self, connection: Any) -> 'CoroutineType[Any, Any, aiohttp.ClientResponse]':
        peer = connection.transport.get_extra_info('peername')
        if peer:
            self.address = peer[0]
        return super().start(connection)


async def receive_body(answer: aiohttp.ClientResponse, max_bytes: int, *, is_cut: bool) -> bytes:
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
        # Some servers send the length of the body before compression, and then close.
        if not body.is_encoded_and_complete:
            raise
    return body.finish()


async def drain(answer: aiohttp.ClientResponse) -> None:
    """Read a short body to its end, so that the connection can be used again."""
    length = answer.headers.get('Content-Length')
    if length is None:
        # A stream may never end; an error page does.
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
    """The headers as text that can be stored; aiohttp decodes invalid UTF-8 to surrogates."""
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
    """The error for the caller, with a message that names only the host."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, 'verify_message', '') or 'not valid'
            return NoResponse(f'the certificate of {host} was rejected: {reason}', 'tls')
        case aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return NoResponse(f'the TLS handshake with {host} failed', 'tls')
        case aiohttp.ClientConnectorError(os_error=ForbiddenAddress()):
            return forbidden(host)
        case aiohttp.ClientConnectorError():
            return NoResponse(f'could not connect to {host}', 'connect')
        case aiohttp.InvalidURL():
            return Refused(f'{host} is not a valid host name', 'invalid_url')
        case TimeoutError():
            return NoResponse(f'{host} did not answer within {timeout_seconds:g} s', 'timeout')
        case aiohttp.ClientPayloadError():
            return NoResponse(f'{host} closed the connection in the middle of the body', 'closed')
        case aiohttp.ClientConnectionError() | OSError() if not isinstance(error, LeftoverData):
            return NoResponse(
                f'{host} closed the connection before the response was complete', 'closed'
            )
        case _:
            return NoResponse(f'{host} sent a malformed HTTP response', 'protocol')

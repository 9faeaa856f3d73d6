"""Repair the responses of sloppy servers before aiohttp's parser sees them.

The parser refuses much that browsers accept, and would take leftover data on a connection for the
answer to the next request. So each head is passed on alone and repaired, and data after the end of
a response closes the connection unread. For `session.py`.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

# Of a whole head, as in Chromium: preload links and content security policies can be long.
HEAD_BYTES = 256 * 1024
HEADER_LINES = 500
# Interim responses (100 to 199) before the real one.
MAX_INTERIM = 10

_ASKED_AGAIN = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
_BEGINNING = b'HTTP/'
_END = re.compile(rb'\n\r?\n')
_INTERIM = re.compile(rb'HTTP/\S+ 1(?!01)[0-9]{2}[ \r\n]')
_NAME = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_TOKEN = re.compile(_NAME)
_PLAIN = re.compile(rb'[^\r\n]*+\r?\n(?:(?:%s:|[ \t])[^\r\n\0]*+\r?\n)*+\r?\n' % _NAME)
# The headers that give the length of the body, and their usual values.
_LENGTHS = re.compile(rb'\n(?:content-length|transfer-encoding):[ \t]*([^\r\n]*)')
_CLEAR = re.compile(rb'[0-9]+|chunked')
_LINE_END = re.compile(rb'\r?\n')
_UNFIT = re.compile(rb'[\r\0]')
_FRAMING = (b'transfer-encoding', b'content-length')


class LeftoverData(aiohttp.ServerDisconnectedError):
    """Data on a reused connection that is not HTTP, such as the body of an earlier 304.

    aiohttp repeats the request once on another connection.
    """


class LenientConnector(aiohttp.TCPConnector):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = functools.partial(LenientConnection, loop=self._loop)


class LenientConnection(ResponseHandler):
    # The part of the expected head that has arrived; None once it is complete.
    _head: bytearray | None = None
    _blank_bytes = 0
    _interims = 0
    _requests = 0

    def set_response_params(self, **params: Any) -> None:
        self._head = bytearray()
        self._blank_bytes = self._interims = 0
        self._requests += 1
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if data and self._head is not None:
            data = self._take_head(self._head, data)
            if not data:
                return
        if data and self._is_over:
            # Taken for the next answer, it would shift all that follow.
            self._close()
            return
        body = self._payload
        super().data_received(data)
        if body is not None and self._payload not in (body, None):
            # Another response after the end of the body, which was not requested.
            self._close()

    def set_exception(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, exc: BaseException, *cause: BaseException
    ) -> None:
        """End a body that breaks HTTP: with aiohttp alone, its reader would wait for more.

        Also report a server that hangs up on a new connection. aiohttp treats that like a
        kept-alive connection that the server had closed, and would repeat the request at once.
        """
        body = self._payload
        if isinstance(exc, HttpProcessingError) and body is not None and not body.is_eof():
            body.set_exception(aiohttp.ClientError(exc.message))
        is_stale = self._requests > 1 and self._head is not None and not self._head
        if isinstance(exc, _ASKED_AGAIN) and not is_stale:
            exc = aiohttp.ClientConnectionError(str(exc))
        super().set_exception(exc, *cause)

    @property
    def _is_over(self) -> bool:
        """Whether a response was requested and has ended."""
        if self._parser is None or self._head is not None or self._upgraded:
            return False
        return self._payload is None or self._payload.is_eof()

    def _take_head(self, begun: bytearray, data: bytes) -> bytes:
        """Pass a head on once it is complete; return what has arrived after it."""
        while True:
            if not begun:
                came = len(data)
                data = data.lstrip(b'\r\n')
                self._blank_bytes += came - len(data)
            seen = len(begun)
            begun += data
            if not begun.startswith(_BEGINNING[: len(begun)]):
                return self._refuse_beginning(is_first=not seen)
            end = _END.search(begun, max(seen - 2, 0))
            if self._blank_bytes + (end.end() if end else len(begun)) > HEAD_BYTES:
                return self._refuse('the head is too long')
            if end is None:
                return b''
            head, data = bytes(begun[: end.end()]), bytes(begun[end.end() :])
            begun.clear()
            if _INTERIM.match(head) is None:
                break
            self._interims += 1
            if self._interims > MAX_INTERIM:
                return self._refuse('too many interim responses')
        if head.count(b'\n') > HEADER_LINES:
            return self._refuse('too many headers')
        self._head = None
        repaired = repair(head)
        if repaired is not head:
            # The boundaries of this response are in doubt: do not read another one after it.
            self.force_close()
        super().data_received(repaired)
        return data

    def _refuse_beginning(self, *, is_first: bool) -> bytes:
        if self._requests == 1 or not is_first:
            return self._refuse('not HTTP')
        self._close()
        super().set_exception(LeftoverData())
        return b''

    def _refuse(self, why: str) -> bytes:
        self._close()
        self.set_exception(HttpProcessingError(message=why))
        return b''

    def _close(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()


def repair(head: bytes) -> bytes:
    """A head as browsers read it; the same object if there is nothing to repair.

    Malformed header lines are dropped. So is a Content-Length next to chunked encoding, and one
    that repeats another; lengths that differ stay, and are refused by the parser.
    """
    lengths = _LENGTHS.findall(head.lower())
    is_clear = not lengths or (len(lengths) == 1 and _CLEAR.fullmatch(lengths[0]))
    if is_clear and _PLAIN.fullmatch(head):
        return head
    status, *lines = _LINE_END.split(head.rstrip(b'\r\n'))
    headers: list[tuple[bytes, bytes]] = []
    for line in lines:
        name, colon, value = line.partition(b':')
        name = name.rstrip()
        if line[:1] in (b' ', b'\t') and headers:
            headers[-1] = (headers[-1][0], headers[-1][1] + b' ' + line.strip())
        elif colon and _TOKEN.fullmatch(name) is not None:
            headers.append((name, value.strip()))
    framing = framing_of(headers)
    kept = [pair for pair in headers if pair[0].lower() not in _FRAMING]
    fields = (name + b': ' + _UNFIT.sub(b' ', value) for name, value in [*kept, *framing])
    return b'\r\n'.join([status, *fields, b'', b''])


def framing_of(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers that delimit the body: chunked encoding before lengths, each value once."""
    codings, lengths = (
        dict.fromkeys(
            part.strip().lower()
            for name, value in headers
            if name.lower() == wanted
            for part in value.split(b',')
            if part.strip()
        )
        for wanted in _FRAMING
    )
    if b'chunked' in codings:
        return [(b'Transfer-Encoding', b'chunked')]
    return [(b'Content-Length', length) for length in lengths]

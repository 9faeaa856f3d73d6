"""The parts of HTTP that REST and Realtime share: refusals, bodies and headers.

Owns the limits of size and time within which a body is read; they protect the process. REST and
Realtime differ in how they answer a body that exceeds them, so they word the response themselves.
"""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

SILENT_SECONDS = 30.0


class Refusal(Exception):
    """A status, a JSON body and headers; raised in any handler, and `app.py` sends it."""

    def __init__(
        self, status: int, body: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f'{status} {body}')
        self.status = status
        self.body = body
        self.headers = headers or {}


class UnreadableBody(Exception):
    """A body that was not accepted: `status` is that of the response, the message says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def read_body(
    request: web.Request, *, largest_bytes: int, silent_seconds: float = SILENT_SECONDS
) -> bytes:
    """Read the whole body; give up when the client sends nothing for `silent_seconds`."""
    if not request.body_exists:
        return b''
    too_large = UnreadableBody(413, f'The body is larger than {largest_bytes // 2**20} MB')
    if (request.content_length or 0) > largest_bytes:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(silent_seconds) as deadline:
            while chunk := await request.content.readany():
                size += len(chunk)
                if size > largest_bytes:
                    raise too_large
                chunks.append(chunk)
                deadline.reschedule(loop.time() + silent_seconds)
    except TimeoutError as error:
        raise UnreadableBody(408, 'The body was not sent in time') from error
    except (web.RequestPayloadError, HttpProcessingError, ConnectionError) as error:
        raise UnreadableBody(400, 'The body could not be read to its end') from error
    return chunks[0] if len(chunks) == 1 else b''.join(chunks)


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """Headers as JSON, for functions and policies that read `request.headers`."""
    return encode_texts({name.lower(): value for name, value in headers})


def encode_texts(texts: Mapping[str, str]) -> bytes:
    """Encode as JSON; bytes that are not UTF-8, which HTTP permits, are replaced."""
    try:
        return msgspec.json.encode(texts)
    except UnicodeEncodeError:
        return msgspec.json.encode(
            {printable(name): printable(value) for name, value in texts.items()}
        )


def printable(text: str) -> str:
    return text.encode(errors='surrogateescape').decode(errors='replace')

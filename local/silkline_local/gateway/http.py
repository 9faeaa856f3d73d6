"""The parts of HTTP that REST and Realtime share: refusals, bodies and headers.

Owns the bounds of size and time within which a body is read; they protect the process. How a body
or a token that breaks a rule is answered differs between REST and Realtime and is theirs.
"""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

SILENT_SECONDS = 30.0


class Refusal(Exception):
    """A status, a JSON body and headers; raised anywhere below a handler, answered in `app.py`."""

    def __init__(
        self, status: int, body: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f'{status} {body}')
        self.status = status
        self.body = body
        self.headers = headers or {}


class BadBody(Exception):
    """A body that cannot be taken: `status` is that of the answer, the message says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def read_body(
    request: web.Request, *, largest_bytes: int, silent_seconds: float = SILENT_SECONDS
) -> bytes:
    """Read it whole. A client that sends nothing for a while is not waited for."""
    if not request.body_exists:
        return b''
    too_large = BadBody(413, f'The body is larger than {largest_bytes // 2**20} MB')
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
        raise BadBody(408, 'The body was not sent in time') from error
    except (web.RequestPayloadError, HttpProcessingError, ConnectionError) as error:
        raise BadBody(400, 'The body could not be read to its end') from error
    return chunks[0] if len(chunks) == 1 else b''.join(chunks)


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    return encode_texts({name.lower(): value for name, value in headers})


def encode_texts(texts: Mapping[str, str]) -> bytes:
    """Bytes that are not UTF-8, which HTTP lets pass, are replaced."""
    try:
        return msgspec.json.encode(texts)
    except UnicodeEncodeError:
        return msgspec.json.encode(
            {printable(name): printable(value) for name, value in texts.items()}
        )


def printable(text: str) -> str:
    return text.encode(errors='surrogateescape').decode(errors='replace')

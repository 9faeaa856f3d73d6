"""A proxy on loopback, so that a browser reaches only what the egress allows.

The browser resolves and dials nothing itself: it sends CONNECT or a full URL to this proxy, and
each connection is made by `Egress.dial`, under the rules for every request. Each page has a
`ProxySession`: a password that no other program knows, and a limit of bytes.
"""

import asyncio
import base64
import hmac
import secrets
from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple, Self, cast

from silkline.crawl.net.egress import Egress
from silkline.crawl.responses import EgressError, Refused

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
DIAL_SECONDS = 15.0
CHUNK_BYTES = 64 * 1024
MAX_CONNECTIONS = 64
# Between the browser and this proxy: not passed on to the site.
HOP_HEADERS = frozenset((b'connection', b'keep-alive', b'proxy-connection', b'proxy-authorization'))


class ProxySession:
    """What one page may use of the proxy."""

    def __init__(self, max_bytes: int) -> None:
        self.user = secrets.token_urlsafe(12)
        self.password = secrets.token_urlsafe(24)
        self.max_bytes = max_bytes
        self.bytes = 0
        # Connections that the egress refused.
        self.refused = 0
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def is_exhausted(self) -> bool:
        return self.bytes > self.max_bytes


class ProxyRequest(NamedTuple):
    method: str
    target: str
    headers: list[tuple[bytes, bytes]]

    def header(self, name: bytes) -> bytes:
        return next((value for found, value in self.headers if found.lower() == name), b'')

    @property
    def has_body(self) -> bool:
        return self.header(b'content-length') not in (b'', b'0') or bool(
            self.header(b'transfer-encoding')
        )


class Proxy:
    """The proxy of one browser fetcher; an async context manager."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._sessions: dict[str, ProxySession] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, '127.0.0.1', 0, limit=HEAD_BYTES)
        self.url = f'http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}'
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await end(self._tasks)
        await self._server.wait_closed()

    def open_session(self, *, max_bytes: int) -> ProxySession:
        session = ProxySession(max_bytes)
        self._sessions[session.user] = session
        return session

    async def close_session(self, session: ProxySession) -> None:
        """End the connections of a page and forget its password."""
        self._sessions.pop(session.user, None)
        await end(session.tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast('asyncio.Task[None]', asyncio.current_task())
        self._tasks.add(task)
        try:
            await self._serve(reader, writer, task)
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass
        except RuntimeError:
            # uvloop raises it for a write to a connection that is closed.
            if not writer.is_closing():
                raise
        except asyncio.CancelledError:
            # The page or the proxy has ended, and only `end` waits for this task.
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            for session in self._sessions.values():
                session.tasks.discard(task)
            writer.close()

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
    ) -> None:
        """Answer until a request is authorized; then relay bytes until either side closes."""
        while True:
            async with asyncio.timeout(HEAD_SECONDS):
                request = read_request(await reader.readuntil(b'\r\n\r\n'))
            if request is None:
                await reply(writer, '400 Bad Request')
                return
            session = self._session_of(request.header(b'proxy-authorization'))
            if session is None:
                challenge = 'Proxy-Authenticate: Basic realm="silkline"\r\n'
                await reply(writer, '407 Proxy Authentication Required', challenge)
                # The body would be read as the next request.
                if request.has_body:
                    return
                continue
            if session.is_exhausted or len(session.tasks) >= MAX_CONNECTIONS:
                await reply(writer, '429 Too Many Requests')
                return
            session.tasks.add(task)
            await self._pass_on(request, session, reader, writer)
            return

    def _session_of(self, authorization: bytes) -> ProxySession | None:
        kind, _, value = authorization.partition(b' ')
        try:
            user, _, password = base64.b64decode(value.strip()).partition(b':')
        except ValueError:
            return None
        session = self._sessions.get(user.decode('latin-1'))
        if kind.lower() != b'basic' or session is None:
            return None
        return session if hmac.compare_digest(password, session.password.encode()) else None

    async def _pass_on(
        self,
        request: ProxyRequest,
        session: ProxySession,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            if request.method == 'CONNECT':
                _, origin = self._egress.read_url(f'http://{request.target}/')
                head = b''
            else:
                href, origin = self._egress.read_url(request.target)
                head = origin_form(request, href)
            if request.method != 'CONNECT' and origin.scheme != 'http':
                raise Refused(f'{origin.scheme} needs CONNECT', 'invalid_url')
            far_reader, far_writer = await self._egress.dial(
                origin.host, origin.port, timeout_seconds=DIAL_SECONDS, limit=HEAD_BYTES
            )
        except EgressError as error:
            if isinstance(error, Refused):
                session.refused += 1
            await reply(
                writer, '403 Forbidden' if isinstance(error, Refused) else '502 Bad Gateway'
            )
            return
        try:
            if head:
                far_writer.write(head)
                there = send_body(reader, far_writer, session, length=body_length(request))
                back = answer(far_reader, writer, session)
            else:
                writer.write(b'HTTP/1.1 200 Connection established\r\n\r\n')
                there = relay(reader, far_writer, session)
                back = relay(far_reader, writer, session)
            await until_one_ends(there, back)
        finally:
            far_writer.transport.abort()


def read_request(head: bytes) -> ProxyRequest | None:
    line, *rest = head[:-4].split(b'\r\n')
    parts = line.split(b' ')
    if len(parts) != 3 or not head.isascii():
        return None
    pairs = [entry.partition(b':') for entry in rest]
    headers = [(name.strip(), value.strip()) for name, _, value in pairs]
    return ProxyRequest(parts[0].decode(), parts[1].decode(), headers)


def origin_form(request: ProxyRequest, href: str) -> bytes:
    """The head for the site. The connection is closed after one request."""
    path = href[href.index('/', 8) :]
    lines = [f'{request.method} {path} HTTP/1.1'.encode()]
    lines += [
        name + b': ' + value for name, value in request.headers if name.lower() not in HOP_HEADERS
    ]
    return b'\r\n'.join([*lines, b'Connection: close', b'', b''])


def body_length(request: ProxyRequest) -> int:
    """Browsers send bodies of known length; any other body is not passed on."""
    text = request.header(b'content-length')
    return int(text) if text.isdigit() and len(text) < 12 else 0


async def relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: ProxySession
) -> None:
    """Pass bytes on until there are no more or the limit is reached."""
    while data := await reader.read(CHUNK_BYTES):
        session.bytes += len(data)
        if session.is_exhausted:
            return
        writer.write(data)
        await writer.drain()


async def send_body(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    session: ProxySession,
    *,
    length: int,
) -> None:
    """Pass on `length` bytes of a request; then wait for the browser to close."""
    while data := await reader.read(CHUNK_BYTES):
        session.bytes += len(data)
        if session.is_exhausted:
            return
        # The rest does not belong to this request, which is the only one on this connection.
        writer.write(data[:length])
        length -= min(length, len(data))
        await writer.drain()


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: ProxySession
) -> None:
    """Pass a response on, with `Connection: close`."""
    is_final = False
    while not is_final:
        head = await reader.readuntil(b'\r\n\r\n')
        session.bytes += len(head)
        if session.is_exhausted:
            return
        line, *headers = head[:-4].split(b'\r\n')
        is_final = not line.partition(b' ')[2].startswith(b'1')
        headers = [
            header
            for header in headers
            if header.partition(b':')[0].strip().lower() not in HOP_HEADERS
        ]
        ending = [b'Connection: close'] if is_final else []
        writer.write(b'\r\n'.join([line, *headers, *ending, b'', b'']))
        await writer.drain()
    await relay(reader, writer, session)


async def until_one_ends(*ways: Coroutine[Any, Any, None]) -> None:
    """Relay in both directions until either side closes."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def reply(writer: asyncio.StreamWriter, status: str, headers: str = '') -> None:
    writer.write(f'HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\n\r\n'.encode())
    await writer.drain()


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)

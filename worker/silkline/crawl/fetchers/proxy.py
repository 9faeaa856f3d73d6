"""A proxy on loopback, so that a browser reaches only what the egress lets it.

The browser resolves nothing and dials nothing itself: it asks here, by CONNECT or with a whole
URL, and each connection is dialed by `Egress.dial`, under the rules that hold for every request.
One page is one `ProxySession`: a password that no other program knows, a limit of bytes, an end.
"""

import asyncio
import base64
import hmac
import secrets
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from silkline.crawl.net.egress import Egress
from silkline.crawl.responses import EgressError, Refused

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
DIAL_SECONDS = 15.0
CHUNK_BYTES = 64 * 1024
MAX_CONNECTIONS = 64
# Between the browser and this proxy, and none of the site's business.
HOP_HEADERS = frozenset((b'connection', b'keep-alive', b'proxy-connection', b'proxy-authorization'))


class ProxySession:
    """What one page may use of the proxy."""

    def __init__(self, max_bytes: int) -> None:
        self.user = secrets.token_urlsafe(12)
        self.password = secrets.token_urlsafe(24)
        self.max_bytes = max_bytes
        self.bytes = 0
        # Connections that the rules of the egress forbade.
        self.refused = 0
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def is_spent(self) -> bool:
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
        self._gates: dict[str, ProxySession] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, '127.0.0.1', 0, limit=HEAD_BYTES)
        self.url = f'http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}'
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        await end(self._tasks)
        await self._server.wait_closed()

    def open_gate(self, *, max_bytes: int) -> ProxySession:
        gate = ProxySession(max_bytes)
        self._gates[gate.user] = gate
        return gate

    async def close_gate(self, gate: ProxySession) -> None:
        """End the connections of a page and forget its password."""
        self._gates.pop(gate.user, None)
        await end(gate.tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast('asyncio.Task[None]', asyncio.current_task())
        self._tasks.add(task)
        try:
            await self._serve(reader, writer, task)
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass
        except RuntimeError:
            # By uvloop, from whoever writes to a side that has left.
            if not writer.is_closing():
                raise
        except asyncio.CancelledError:
            # The page or the proxy has ended, and nobody waits for this task but `end`.
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            for gate in self._gates.values():
                gate.tasks.discard(task)
            writer.close()

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
    ) -> None:
        """Answer until a request is let through; then pass bytes on until either side is done."""
        while True:
            async with asyncio.timeout(HEAD_SECONDS):
                request = read_request(await reader.readuntil(b'\r\n\r\n'))
            if request is None:
                await say(writer, '400 Bad Request')
                return
            gate = self._gate_of(request.header(b'proxy-authorization'))
            if gate is None:
                challenge = 'Proxy-Authenticate: Basic realm="silkline"\r\n'
                await say(writer, '407 Proxy Authentication Required', challenge)
                # What follows a head with a body is not the next request.
                if request.has_body:
                    return
                continue
            if gate.is_spent or len(gate.tasks) >= MAX_CONNECTIONS:
                await say(writer, '429 Too Many Requests')
                return
            gate.tasks.add(task)
            await self._pass_on(request, gate, reader, writer)
            return

    def _gate_of(self, authorization: bytes) -> ProxySession | None:
        kind, _, value = authorization.partition(b' ')
        try:
            user, _, password = base64.b64decode(value.strip()).partition(b':')
        except ValueError:
            return None
        gate = self._gates.get(user.decode('latin-1'))
        if kind.lower() != b'basic' or gate is None:
            return None
        return gate if hmac.compare_digest(password, gate.password.encode()) else None

    async def _pass_on(
        self,
        request: ProxyRequest,
        gate: ProxySession,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            if request.method == 'CONNECT':
                _, origin = self._egress.read_url(f'http://{request.target}/')
                greeting = b''
            else:
                href, origin = self._egress.read_url(request.target)
                greeting = origin_form(request, href)
            if request.method != 'CONNECT' and origin.scheme != 'http':
                raise Refused(f'{origin.scheme} asks for a tunnel', 'invalid_url')
            far_reader, far_writer = await self._egress.dial(
                origin.host, origin.port, timeout_seconds=DIAL_SECONDS, limit=HEAD_BYTES
            )
        except EgressError as error:
            if isinstance(error, Refused):
                gate.refused += 1
            await say(writer, '403 Forbidden' if isinstance(error, Refused) else '502 Bad Gateway')
            return
        try:
            if greeting:
                far_writer.write(greeting)
                there = send_body(reader, far_writer, gate, length=body_length(request))
                back = answer(far_reader, writer, gate)
            else:
                writer.write(b'HTTP/1.1 200 Connection established\r\n\r\n')
                there = relay(reader, far_writer, gate)
                back = relay(far_reader, writer, gate)
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
    """The head as the site shall see it. One request is all that this connection is for."""
    path = href[href.index('/', 8) :]
    lines = [f'{request.method} {path} HTTP/1.1'.encode()]
    lines += [
        name + b': ' + value for name, value in request.headers if name.lower() not in HOP_HEADERS
    ]
    return b'\r\n'.join([*lines, b'Connection: close', b'', b''])


def body_length(request: ProxyRequest) -> int:
    """Browsers send bodies of known length; a request with another one is passed on without."""
    text = request.header(b'content-length')
    return int(text) if text.isdigit() and len(text) < 12 else 0


async def relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: ProxySession
) -> None:
    """Pass bytes on until there are no more or the gate is spent."""
    while data := await reader.read(CHUNK_BYTES):
        gate.bytes += len(data)
        if gate.is_spent:
            return
        writer.write(data)
        await writer.drain()


async def send_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: ProxySession, *, length: int
) -> None:
    """Pass on so many bytes of a request; then wait for the browser to hang up."""
    while data := await reader.read(CHUNK_BYTES):
        gate.bytes += len(data)
        if gate.is_spent:
            return
        # More than that is no part of this request, and there is no other on this connection.
        writer.write(data[:length])
        length -= min(length, len(data))
        await writer.drain()


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: ProxySession
) -> None:
    """Pass a response on, with word that none will follow it on this connection."""
    is_final = False
    while not is_final:
        head = await reader.readuntil(b'\r\n\r\n')
        gate.bytes += len(head)
        if gate.is_spent:
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
    await relay(reader, writer, gate)


async def until_one_ends(*ways: Coroutine[Any, Any, None]) -> None:
    """Both ways at once, until either side is done."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def say(writer: asyncio.StreamWriter, status: str, headers: str = '') -> None:
    writer.write(f'HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\n\r\n'.encode())
    await writer.drain()


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)

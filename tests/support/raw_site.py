"""A server that answers with any bytes, as slowly as a test needs.

A test passes handlers of asyncio streams, by path; they may break every rule of HTTP. The server
counts connections and keeps the heads of the requests.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawSite:
    """A running server; `heads` are the requests in the order they arrived."""

    port: int = 0
    scheme: str = 'http'
    connections: int = 0
    open: int = 0
    heads: list[bytes] = field(default_factory=list[bytes])
    # Set whenever a request arrives, and whenever a connection ends.
    requested: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, path: str = '/', host: str = '127.0.0.1') -> str:
        return f'{self.scheme}://{host}:{self.port}{path}'

    async def wait_for_request(self) -> None:
        """Wait for a request, unless one has arrived since the last wait."""
        async with asyncio.timeout(60):
            await self.requested.wait()
        self.requested.clear()

    async def wait_until_idle(self) -> None:
        """Wait until no connection is open."""
        async with asyncio.timeout(60):
            while self.open:
                self.ended.clear()
                await self.ended.wait()


@asynccontextmanager
async def raw_site(
    pages: Mapping[str, bytes | Handler],
    *,
    host: str = '127.0.0.1',
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[RawSite]:
    """Serve by path, with * for all others; bytes are written as they are."""
    site = RawSite(scheme='https' if tls else 'http')
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        site.connections += 1
        site.open += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while head := await reader.readuntil(b'\r\n\r\n'):
                    site.heads.append(head)
                    site.requested.set()
                    path = head.split(b' ', 2)[1].decode()
                    page = pages.get(path, pages.get('*', not_found()))
                    if isinstance(page, bytes):
                        writer.write(page)
                        await writer.drain()
                        if not is_kept_open(page):
                            break
                    else:
                        await page(reader, writer)
                        break
        except asyncio.CancelledError:
            # The site is closing; asyncio would log the cancellation as an error.
            pass
        finally:
            tasks.discard(task)
            site.open -= 1
            site.ended.set()
            writer.close()

    server = await asyncio.start_server(serve, host, 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def answer(
    body: bytes = b'', *, status: str = '200 OK', length: int | None = None, **headers: str
) -> bytes:
    """A complete response; `length` may be wrong, and keywords become headers."""
    lines = [f'HTTP/1.1 {status}']
    headers.setdefault('Content_Length', str(len(body) if length is None else length))
    lines += [f'{name.replace("_", "-")}: {value}' for name, value in headers.items()]
    return '\r\n'.join(lines).encode() + b'\r\n\r\n' + body


def not_found() -> bytes:
    return answer(b'no such page', status='404 Not Found')


def is_kept_open(page: bytes) -> bool:
    return b'Content-Length' in page and b'Connection: close' not in page


def endless(head: bytes, piece: bytes) -> Handler:
    """Writes the head, then pieces as long as the client reads."""

    async def handler(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            # Lets other tasks run even when the client reads as fast as this writes.
            await asyncio.sleep(0)

    return handler


def slow(data: bytes, *, seconds_per_byte: float) -> Handler:
    """Writes a byte at a time, and never closes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(len(data)):
            writer.write(data[number : number + 1])
            await writer.drain()
            await asyncio.sleep(seconds_per_byte)
        await reader.read()

    return handler


def silent() -> Handler:
    """Accepts the request and sends nothing until the client disconnects."""

    async def handler(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    return handler

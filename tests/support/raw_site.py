"""A server that answers with whatever bytes a test likes, as slowly as it likes.

A test gives it handlers of asyncio streams, by path; they may break every rule of HTTP. It
counts connections and keeps the heads of the requests it was sent.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawSite:
    """A running server; `heads` are the requests in the order they came."""

    port: int = 0
    scheme: str = 'http'
    connections: int = 0
    open: int = 0
    heads: list[bytes] = field(default_factory=list[bytes])
    # Set whenever a request has come, and whenever a connection has ended.
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, path: str = '/', host: str = '127.0.0.1') -> str:
        return f'{self.scheme}://{host}:{self.port}{path}'

    async def wait_for_request(self) -> None:
        """Until a request comes, if none came since the last wait."""
        async with asyncio.timeout(60):
            await self.asked.wait()
        self.asked.clear()

    async def wait_until_idle(self) -> None:
        """Until no connection is open any more."""
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
    """Serve by path, with * for any other; bytes are written as they are, and the end follows."""
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
                    site.asked.set()
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
            # The site is closing; the stream's own callback would report it as an error.
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
    """A whole response; `length` may lie, and keywords become headers."""
    lines = [f'HTTP/1.1 {status}']
    headers.setdefault('Content_Length', str(len(body) if length is None else length))
    lines += [f'{name.replace("_", "-")}: {value}' for name, value in headers.items()]
    return '\r\n'.join(lines).encode() + b'\r\n\r\n' + body


def not_found() -> bytes:
    return answer(b'no such page', status='404 Not Found')


def is_kept_open(page: bytes) -> bool:
    return b'Content-Length' in page and b'Connection: close' not in page


def endless(head: bytes, piece: bytes) -> Handler:
    """Writes the head, then pieces for as long as somebody reads."""

    async def handler(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            # A reader that is as fast as this must not starve everyone else.
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
    """Takes the request and says nothing until the other side leaves."""

    async def handler(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    return handler

"""The site that the jobs crawl: served by this process, on loopback only.

It answers at every address of 127.0.0.0/8, so that each job gets a host that no other job has
crawled. `/` is a single page, `/small` links to two more, and `/never` gets no answer.
"""

import asyncio
import itertools
import socket
import threading
from types import TracebackType
from typing import Self

NETWORK = '127.0.0.0/8'
PAGES = {
    '/': '',
    '/small': '<a href="/small/1">One</a> <a href="/small/2">Two</a>',
    '/small/1': '',
    '/small/2': '',
}


class Site:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._numbers = itertools.count(1)
        self._listener = socket.socket()

    def __enter__(self) -> Self:
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'lo')
        self._listener.bind(('', 0))
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(answer_all, sock=self._listener, backlog=1000), self._loop
        ).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def url(self, path: str) -> str:
        """The URL of a page, on a host that has not been used yet."""
        high, low = divmod(next(self._numbers), 256)
        return f'http://127.1.{high}.{low}:{self._listener.getsockname()[1]}{path}'


async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, until the client closes it."""
    try:
        while True:
            path = (await reader.readuntil(b'\r\n\r\n')).split(b' ', 2)[1].decode()
            if path == '/never':
                await reader.read()
                return
            writer.write(response(path))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def response(path: str) -> bytes:
    links = PAGES.get(path)
    if links is None:
        return b'HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n'
    body = f'<!doctype html><title>{path}</title><main><p>A short page.</p>{links}</main>'.encode()
    head = f'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n'
    return head.encode() + body

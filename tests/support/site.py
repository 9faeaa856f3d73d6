"""A web site on a free loopback port, which logs its requests.

Runs in a thread with its own event loop, so tests may use it with or without one.
"""

import asyncio
import math
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiohttp import web


@dataclass(frozen=True)
class Answer:
    body: str | bytes = ''
    status: int = 200
    type: str = 'text/html; charset=utf-8'
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def page(*links: str, text: str = 'A page of words.', title: str = 'Page') -> Answer:
    anchors = ''.join(f'<p><a href="{link}">{link}</a></p>' for link in links)
    return Answer(
        f'<!doctype html><html lang="en"><title>{title}</title>'
        f'<main><h1>{title}</h1><p>{text}</p>{anchors}</main></html>'
    )


def redirect(location: str, status: int = 301) -> Answer:
    return Answer(status=status, headers={'Location': location})


# Ports that sites of this process have used.
TAKEN: set[int] = set()
NOT_FOUND = Answer('<title>Not found</title>', status=404)

Handler = Callable[[web.Request], Awaitable[Answer]]


@dataclass(frozen=True)
class LoggedRequest:
    path: str
    headers: Mapping[str, str]
    at: float


class Site:
    """Serves `pages` by path and query, and `answer` for all others. `pages` may be changed."""

    def __init__(
        self,
        pages: Mapping[str, Answer] | None = None,
        *,
        answer: Handler | None = None,
        address: str = '127.0.0.1',
    ) -> None:
        self.pages: dict[str, Answer] = dict(pages or {})
        self.log: list[LoggedRequest] = []
        self._answer = answer
        self.address = address
        self.most = math.inf
        self._has_changed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.answer_all()
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f'http://{self.address}:{self.port}'

    def request_counts(self) -> Counter[str]:
        """How often each path was requested, without robots.txt."""
        return Counter(request.path for request in self.log if request.path != '/robots.txt')

    def answer_only(self, count: float) -> None:
        """Answer the first `count` requests of the log; all others wait."""
        self.most = count
        self._loop.call_soon_threadsafe(self._has_changed.set)

    def answer_all(self) -> None:
        self.answer_only(math.inf)

    async def _open(self) -> int:
        app = web.Application()
        app.router.add_route('*', '/{path:.*}', self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener()).start()
        return self._runner.addresses[0][1]

    def _listener(self) -> socket.socket:
        """On a port that no site has used: a queue keeps what it knows about a host for a day."""
        while True:
            listener = socket.create_server((self.address, 0))
            if (port := listener.getsockname()[1]) not in TAKEN:
                TAKEN.add(port)
                return listener
            listener.close()

    async def _serve(self, request: web.Request) -> web.Response:
        path = request.raw_path
        self.log.append(LoggedRequest(path, dict(request.headers), self._loop.time()))
        number = len(self.log)
        while number > self.most:
            self._has_changed.clear()
            await self._has_changed.wait()
        answer = self.pages.get(path)
        if answer is None:
            answer = await self._answer(request) if self._answer else NOT_FOUND
        body = answer.body.encode() if isinstance(answer.body, str) else answer.body
        return web.Response(
            body=body, status=answer.status, headers={'Content-Type': answer.type, **answer.headers}
        )

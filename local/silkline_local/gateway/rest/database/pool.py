"""The connections that requests share.

They are opened when needed and kept. A connection that the server closed is dropped at once, so
that requests work again as soon as the database does.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from silkline_local.gateway.rest.database.connection import PipelineConnection

WAIT_SECONDS = 10.0


class PoolExhausted(Exception):
    """Every connection was busy for too long."""


class ConnectionPool:
    """At most `size` connections; when none is free, requests wait in order."""

    def __init__(self, url: str, *, size: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self._url = url
        self._size = size
        self._wait_seconds = wait_seconds
        self._count = 0
        self._generation = 0
        self._generations: WeakKeyDictionary[PipelineConnection, int] = WeakKeyDictionary()
        self._idle: list[PipelineConnection] = []
        # Each gets a connection, or None for the right to open one.
        self._waiting: deque[asyncio.Future[PipelineConnection | None]] = deque()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[PipelineConnection]:
        """Raises `PoolExhausted`, or `DatabaseUnreachable` if no connection can be opened."""
        connection = await self._take()
        if self._generations.get(connection) != self._generation:
            self._generations[connection] = self._generation
            connection.forget_statements()
        try:
            yield connection
        finally:
            if connection.is_clean:
                self._pass_on(connection)
            else:
                await self._discard(connection)

    def forget_statements(self) -> None:
        """Make each connection prepare its statements again before its next use."""
        self._generation += 1

    async def _take(self) -> PipelineConnection:
        if self._idle:
            return self._idle.pop()
        if self._count < self._size:
            self._count += 1
            return await self._open()
        turn: asyncio.Future[PipelineConnection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._wait_seconds):
                connection = await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._pass_on(turn.result())
            if isinstance(error, TimeoutError):
                raise PoolExhausted from error
            raise
        return connection or await self._open()

    async def _open(self) -> PipelineConnection:
        try:
            return await PipelineConnection.open(self._url, on_lost=self._drop)
        except BaseException:
            self._pass_on(None)
            raise

    def _pass_on(self, connection: PipelineConnection | None) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if connection is None:
            self._count -= 1
        else:
            self._idle.append(connection)

    async def _discard(self, connection: PipelineConnection) -> None:
        self._pass_on(None)
        await connection.close()

    def _drop(self, connection: PipelineConnection) -> None:
        """Remove a connection that broke while idle; a busy one is discarded after its use."""
        if connection in self._idle:
            self._idle.remove(connection)
            self._count -= 1

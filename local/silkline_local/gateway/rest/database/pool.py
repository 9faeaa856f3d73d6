"""The connections that requests share.

They are opened when they are needed and kept. One that the server closed is dropped at once, so
that requests work again as soon as the database does.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from silkline_local.gateway.rest.database.connection import Connection

WAIT_SECONDS = 10.0


class PoolTimeout(Exception):
    """Every connection was busy for too long."""


class Pool:
    """At most `size` connections; who finds none free waits in line."""

    def __init__(self, url: str, *, size: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self._url = url
        self._size = size
        self._wait_seconds = wait_seconds
        self._count = 0
        self._generation = 0
        self._generations: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        self._idle: list[Connection] = []
        # Each is handed a connection, or None for the right to open one.
        self._line: deque[asyncio.Future[Connection | None]] = deque()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """Raises `PoolTimeout`, and `Unreachable` when the database is away."""
        connection = await self._take()
        if self._generations.get(connection) != self._generation:
            self._generations[connection] = self._generation
            connection.forget_statements()
        try:
            yield connection
        finally:
            if connection.is_clean:
                self._hand_on(connection)
            else:
                await self._discard(connection)

    def forget_statements(self) -> None:
        """Have each connection prepare its statements anew, before it is next used."""
        self._generation += 1

    async def _take(self) -> Connection:
        if self._idle:
            return self._idle.pop()
        if self._count < self._size:
            self._count += 1
            return await self._open()
        place: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            async with asyncio.timeout(self._wait_seconds):
                connection = await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self._hand_on(place.result())
            if isinstance(error, TimeoutError):
                raise PoolTimeout from error
            raise
        return connection or await self._open()

    async def _open(self) -> Connection:
        try:
            return await Connection.open(self._url, on_lost=self._drop)
        except BaseException:
            self._hand_on(None)
            raise

    def _hand_on(self, connection: Connection | None) -> None:
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(connection)
                return
        if connection is None:
            self._count -= 1
        else:
            self._idle.append(connection)

    async def _discard(self, connection: Connection) -> None:
        self._hand_on(None)
        await connection.close()

    def _drop(self, connection: Connection) -> None:
        """Forget a connection that broke while idle; a busy one is discarded by its user."""
        if connection in self._idle:
            self._idle.remove(connection)
            self._count -= 1

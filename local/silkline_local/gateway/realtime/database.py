"""The few connections that Realtime queries over, and the partitions that it creates.

Owns the pool, its deadlines, and the distinction between "the database said no" and "the database
did not answer". The queries themselves are in `authorization.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self, TypeVar

import psycopg
from psycopg import errors
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

logger = logging.getLogger(__name__)

CONNECTIONS = 4
WAIT_SECONDS = 3.0
DEADLINE_SECONDS = 10.0
SETTINGS = '-c statement_timeout=5s -c lock_timeout=2s'
# Not once a day: a machine that was asleep at midnight would not notice the new day.
PARTITIONS_EVERY_SECONDS = 30.0

Connection = psycopg.AsyncConnection[TupleRow]
T = TypeVar('T')


class DatabaseUnavailable(Exception):
    """The database did not answer, which never means yes. The code is hosted Realtime's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f'{code}: {message}')
        self.message = message


class RealtimeDatabase:
    """Enter it to query; a query is repeated only if its connection had died in the meantime."""

    def __init__(self, url: str) -> None:
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=WAIT_SECONDS,
            # Short, because the next query starts another attempt; otherwise the pool could
            # sleep between two attempts for minutes after the server is back.
            reconnect_timeout=WAIT_SECONDS,
            name='realtime',
            open=False,
            kwargs={
                'autocommit': True,
                'application_name': 'realtime',
                'connect_timeout': 3,
                'options': SETTINGS,
            },
        )

    async def __aenter__(self) -> Self:
        await self._pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close(timeout=1.0)

    async def run(self, query: Callable[[Connection], Awaitable[T]]) -> T:
        """Return what `query` returns. Raises `DatabaseUnavailable`, or the query's own error."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                # After a restart of the server, every pooled connection is dead.
                for _ in range(CONNECTIONS):
                    with suppress(ConnectionBroken):
                        return await self._run(query)
                return await self._run(query)
        except errors.QueryCanceled as error:
            raise DatabaseUnavailable('QueryCanceled', str(error)) from error
        except errors.CheckViolation as error:
            raise DatabaseUnavailable(
                'MissingPartition', 'Realtime was unable to find the expected messages partition'
            ) from error
        except (ConnectionBroken, PoolTimeout, TimeoutError, psycopg.OperationalError) as error:
            raise DatabaseUnavailable(
                'UnableToConnectToProject',
                'Realtime was unable to connect to the project database',
            ) from error

    async def _run(self, query: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._pool.connection() as connection:
            try:
                return await query(connection)
            except psycopg.Error as error:
                if connection.broken:
                    raise ConnectionBroken from error
                raise

    async def keep_partitions(self, *, every_seconds: float = PARTITIONS_EVERY_SECONDS) -> None:
        """Create the partitions of the next days, forever: without them no message is stored."""
        while True:
            await asyncio.sleep(every_seconds)
            await self.create_partitions()

    async def create_partitions(self) -> None:
        async def create(connection: Connection) -> Any:
            return await connection.execute('select realtime.local_create_partitions()')

        try:
            await self.run(create)
        except (DatabaseUnavailable, psycopg.Error) as error:
            logger.warning('cannot create the partitions of realtime.messages: %s', error)


class ConnectionBroken(Exception):
    """The connection died during a query."""

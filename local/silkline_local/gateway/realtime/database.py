"""The few connections that Realtime asks questions over, and the partitions it looks after.

Owns the pool, its deadlines, and the telling apart of "the database said no" from "the database
cannot be asked". What is asked is the business of `authorization.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
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
# Not once a day: a machine that was asleep has missed its midnights, and nobody tells it.
PARTITIONS_EVERY_SECONDS = 30.0

Connection = psycopg.AsyncConnection[TupleRow]
T = TypeVar('T')


class Unanswered(Exception):
    """The database could not be asked. Named as hosted Realtime names it, and never a yes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f'{code}: {message}')
        self.message = message


class Database:
    """Enter it to ask; a question is asked again only if the connection had died meanwhile."""

    def __init__(self, url: str) -> None:
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=WAIT_SECONDS,
            # Given up soon, and begun anew by the next question: else the pool would be asleep
            # between two attempts for minutes after the server is back.
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._pool.close(timeout=1.0)

    async def ask(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        """Answer what `question` answers. Raises `Unanswered`, or the question's own error."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                # After a restart of the server every pooled connection is dead once.
                for _ in range(CONNECTIONS):
                    with suppress(Broken):
                        return await self._ask(question)
                return await self._ask(question)
        except errors.QueryCanceled as error:
            raise Unanswered('QueryCanceled', str(error)) from error
        except errors.CheckViolation as error:
            raise Unanswered(
                'MissingPartition', 'Realtime was unable to find the expected messages partition'
            ) from error
        except (Broken, PoolTimeout, TimeoutError, psycopg.OperationalError) as error:
            raise Unanswered(
                'UnableToConnectToProject',
                'Realtime was unable to connect to the project database',
            ) from error

    async def _ask(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._pool.connection() as connection:
            try:
                return await question(connection)
            except psycopg.Error as error:
                if connection.broken:
                    raise Broken from error
                raise

    async def keep_partitions(self, *, every_seconds: float = PARTITIONS_EVERY_SECONDS) -> None:
        """Make the days' partitions, for ever: without them no message can be stored."""
        while True:
            await asyncio.sleep(every_seconds)
            await self.create_partitions()

    async def create_partitions(self) -> None:
        async def create(connection: Connection) -> Any:
            return await connection.execute('select realtime.local_create_partitions()')

        try:
            await self.ask(create)
        except (Unanswered, psycopg.Error) as error:
            logger.warning('the partitions of realtime.messages were not made: %s', error)


class Broken(Exception):
    """The connection died under a question."""

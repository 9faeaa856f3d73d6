"""The database behind the routes: its connections, its schema, and its errors as refusals.

Both kinds of request, `calls.py` and `tables.py`, use it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self, TypeVar

import msgspec
from aiohttp import web
from psycopg.pq.abc import PGresult

from silkline_local.gateway.http import Refusal
from silkline_local.gateway.rest import errors
from silkline_local.gateway.rest.database.connection import (
    ConnectionLost,
    DatabaseUnreachable,
    PipelineConnection,
    Statement,
)
from silkline_local.gateway.rest.database.pool import ConnectionPool, PoolExhausted
from silkline_local.gateway.rest.database.schema_cache import SchemaCache
from silkline_local.gateway.rest.database.transaction import ResultRow, TransactionSettings, run
from silkline_local.gateway.rest.database.watcher import SchemaWatcher
from silkline_local.gateway.rest.query.sql import identifier
from silkline_local.gateway.rest.request import ParsedRequest, cookies_json, headers_json

EXTRA_SEARCH_PATH = ('public', 'extensions')
TIMEZONES = Statement(b'SELECT json_agg(name) FROM pg_catalog.pg_timezone_names')

T = TypeVar('T')


@dataclass(frozen=True, slots=True)
class TransactionWork:
    """What one transaction runs, and how; `check` may refuse its result."""

    statements: Sequence[Statement]
    is_read_only: bool = True
    isolation: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    check: Callable[[ResultRow], Refusal | None] | None = None


class Backend:
    """Enter it to open the connections; leaving it closes them."""

    def __init__(
        self, *, database_url: str, schemas: Sequence[str], max_rows: int, pool_size: int
    ) -> None:
        self.schemas = tuple(schemas)
        self.max_rows = max_rows
        self._pool = ConnectionPool(database_url, size=pool_size)
        self._watcher = SchemaWatcher(
            database_url, self.schemas, on_change=self._pool.forget_statements
        )
        self._search_paths = {
            schema: ', '.join(
                identifier(name) for name in dict.fromkeys((schema, *EXTRA_SEARCH_PATH))
            ).encode()
            for schema in self.schemas
        }
        self._timezones: frozenset[str] | None = None
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            opened.push_async_callback(self._pool.close)
            tasks = await opened.enter_async_context(asyncio.TaskGroup())
            watching = tasks.create_task(self._watcher.watch(), name='schema cache')
            opened.callback(watching.cancel)
            await self._watcher.has_tried.wait()
            self._closing = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    @property
    def cache(self) -> SchemaCache:
        if self._watcher.cache is None:
            raise errors.no_schema_cache()
        return self._watcher.cache

    async def timezone(self, parsed: ParsedRequest) -> str | None:
        """The preferred time zone, if Postgres knows it."""
        preferred = parsed.preferences.timezone
        if preferred is None:
            return None
        if self._timezones is None:
            # Listing them takes Postgres a tenth of a second, so only when a request needs it.
            async def list_timezones(connection: PipelineConnection) -> bytes | None:
                return (await connection.run([TIMEZONES]))[0].get_value(0, 0)

            names = await self._with_connection(parsed, list_timezones)
            self._timezones = msgspec.json.decode(names or b'[]', type=frozenset[str])
        return preferred if preferred in self._timezones else None

    async def run(
        self, request: web.Request, parsed: ParsedRequest, work: TransactionWork
    ) -> tuple[ResultRow, list[PGresult]]:
        """Run the work in one transaction as the caller; raise `Refusal` for every failure."""
        of_role, isolation = self.cache.role_settings(parsed.caller.role)
        settings = TransactionSettings(
            search_path=self._search_paths[parsed.schema],
            role=parsed.caller.role.encode(),
            claims=parsed.caller.claims.encode(),
            method=parsed.method.encode(),
            path=parsed.path.encode(),
            headers=headers_json(request),
            cookies=cookies_json(request),
            of_role=of_role,
            further=work.settings,
            is_read_only=work.is_read_only,
            isolation=work.isolation or isolation,
        )
        return await self._with_connection(
            parsed, lambda connection: run(connection, settings, work.statements, check=work.check)
        )

    async def _with_connection(
        self, parsed: ParsedRequest, do: Callable[[PipelineConnection], Awaitable[T]]
    ) -> T:
        try:
            try:
                async with self._pool.connection() as connection:
                    return await do(connection)
            except ConnectionLost as lost:
                if not lost.was_refused:
                    raise
            # The connection ended before anything was done, probably while idle: try another.
            async with self._pool.connection() as connection:
                return await do(connection)
        except errors.DatabaseError as error:
            raise errors.from_database(error, is_anonymous=parsed.caller.is_anonymous) from error
        except DatabaseUnreachable as error:
            raise errors.unreachable(str(error)) from error
        except ConnectionLost as error:
            raise errors.connection_lost(str(error)) from error
        except PoolExhausted as error:
            raise errors.pool_timeout() from error

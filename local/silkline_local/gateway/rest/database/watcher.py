"""Keeps the schema cache up to date.

Loads it at start, at each `notify pgrst`, and after an outage of the database, over a connection of
its own. While the database is down, it retries several times a second.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec
import psycopg

from silkline_local.gateway.rest.database.connection import CONNECT_SECONDS
from silkline_local.gateway.rest.database.schema_cache import SchemaCache, load

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.25


class SchemaWatcher:
    """`cache` is the last snapshot; None until the first load succeeds."""

    def __init__(self, url: str, schemas: Sequence[str], *, on_change: Callable[[], None]) -> None:
        self.cache: SchemaCache | None = None
        self.has_tried = asyncio.Event()
        self._is_down = False
        self._url = url
        self._schemas = schemas
        self._on_change = on_change

    async def watch(self) -> NoReturn:
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError) as error:
                if not self._is_down:
                    why = str(error).partition('\n')[0]
                    logger.warning('cannot load the schema cache, retrying: %s', why)
                self._is_down = True
            self.has_tried.set()
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            application_name='silkline-rest-watcher',
        ) as connection:
            await connection.execute('listen pgrst')
            while True:
                await self._load(connection)
                self._is_down = False
                self.has_tried.set()
                # A notification that arrives while loading starts another load: none is missed.
                async for _ in connection.notifies(stop_after=1):
                    pass

    async def _load(self, connection: psycopg.AsyncConnection) -> None:
        try:
            self.cache = await load(connection, self._schemas)
        except msgspec.DecodeError:
            # Something unexpected in the catalogue: keep the last snapshot.
            logger.exception('cannot read the schema cache')
        else:
            self._on_change()

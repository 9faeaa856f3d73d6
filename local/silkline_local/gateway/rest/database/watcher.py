"""Keeps the schema cache true to the database.

Reads it at start, at each `notify pgrst`, and whenever the database has been away; one connection
of its own listens. While there is no database, it tries again several times a second.
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


class Watcher:
    """`cache` is None until the first reading succeeds; after that, the last one."""

    def __init__(self, url: str, schemas: Sequence[str], *, on_change: Callable[[], None]) -> None:
        self.cache: SchemaCache | None = None
        self.has_tried = asyncio.Event()
        self._is_away = False
        self._url = url
        self._schemas = schemas
        self._on_change = on_change

    async def watch(self) -> NoReturn:
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError) as error:
                if not self._is_away:
                    why = str(error).partition('\n')[0]
                    logger.warning('the schema cache waits for the database: %s', why)
                self._is_away = True
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
                self._is_away = False
                self.has_tried.set()
                # What arrives while loading is kept for the next round: no change is missed.
                async for _ in connection.notifies(stop_after=1):
                    pass

    async def _load(self, connection: psycopg.AsyncConnection) -> None:
        try:
            self.cache = await load(connection, self._schemas)
        except msgspec.DecodeError:
            # Something in the catalogue that was not foreseen: go on with what is known.
            logger.exception('the schema cache could not be read')
        else:
            self._on_change()

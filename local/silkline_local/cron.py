"""What pg_cron does on Supabase, for a Postgres that has none: the queue's chores each minute."""

import asyncio
import logging
from typing import NoReturn

import psycopg

logger = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
STATEMENT_SECONDS = 30


async def keep_queue(database_url: str) -> NoReturn:
    """Call `maintain_crawl_queue` at once and then each minute, where it is installed."""
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(
                database_url,
                autocommit=True,
                connect_timeout=10,
                options=f'-c statement_timeout={STATEMENT_SECONDS}s',
            ) as connection:
                found = await connection.execute(
                    "select to_regprocedure('public.maintain_crawl_queue()') is not null"
                )
                if await found.fetchone() == (True,):
                    await connection.execute('select public.maintain_crawl_queue()')
        except psycopg.Error as error:
            logger.warning('the chores of this minute failed: %s', error)
        await asyncio.sleep(EVERY_SECONDS)

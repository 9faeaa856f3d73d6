"""What pg_cron does on Supabase: run the queue's maintenance every minute.

The Postgres of the wheel has no pg_cron, so the stack calls the function itself.
"""

import asyncio
import logging
from typing import NoReturn

import psycopg

logger = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
STATEMENT_SECONDS = 30


async def run_maintenance(database_url: str) -> NoReturn:
    """Call `maintain_crawl_queue` now and then every minute, if it is installed."""
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
            logger.warning('queue maintenance failed, retrying in a minute: %s', error)
        await asyncio.sleep(EVERY_SECONDS)

"""Drain pgqueuer's queue with its own worker. Protocol: see `__init__.py`."""

# The packages are in .venv-bench, which the type checker does not see.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false

import asyncio
import json
import os
import sys
import time
from datetime import timedelta

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

BATCH = 10


def main() -> None:
    command, url, number = sys.argv[1:]
    asyncio.run(prepare(url, int(number)) if command == 'prepare' else work(url, float(number)))


async def prepare(url: str, jobs: int) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for start in range(0, jobs, 1000):
        await queries.enqueue(
            ['noop'] * 1000,
            [json.dumps({'number': start + nth}).encode() for nth in range(1000)],
            [0] * 1000,
        )
    await connection.close()


async def work(url: str, seconds: float) -> None:
    begun: list[float] = []
    connection = await asyncpg.connect(url)
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint('noop')
    async def noop(job: Job) -> None:
        begun.append(time.time())
        if begun[-1] - begun[0] > seconds:
            report(begun)

    print('ready', flush=True)
    sys.stdin.readline()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(queuer.run(dequeue_timeout=timedelta(seconds=1), batch_size=BATCH))
        tasks.create_task(watch(begun))


async def watch(begun: list[float]) -> None:
    """Report when no job has started for a second: the worker itself keeps waiting."""
    while not begun or time.time() - begun[-1] < 1:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.1)
    report(begun)


def report(begun: list[float]) -> None:
    print(json.dumps({'jobs': len(begun), 'first': begun[0], 'last': begun[-1]}), flush=True)
    # Without closing anything: the database is dropped next.
    os._exit(0)


main()

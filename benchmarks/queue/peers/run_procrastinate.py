"""Drain procrastinate's queue with its own worker. Protocol: see `__init__.py`."""

# The packages are in .venv-bench, which the type checker does not see.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false, reportFunctionMemberAccess=false

import asyncio
import json
import logging
import os
import sys
import time

import procrastinate

CONCURRENCY = 20


def main() -> None:
    command, url, number = sys.argv[1:]
    logging.getLogger('procrastinate').setLevel(logging.ERROR)
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    asyncio.run(prepare(app, int(number)) if command == 'prepare' else work(app, float(number)))


async def prepare(app: procrastinate.App, jobs: int) -> None:
    @app.task(name='noop')
    async def noop(number: int) -> None: ...

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, jobs, 1000):
            await noop.batch_defer_async(*({'number': start + nth} for nth in range(1000)))


async def work(app: procrastinate.App, seconds: float) -> None:
    begun: list[float] = []

    @app.task(name='noop')
    async def noop(number: int) -> None:
        begun.append(time.time())
        if begun[-1] - begun[0] > seconds:
            report(begun)

    async with app.open_async():
        print('ready', flush=True)
        sys.stdin.readline()
        await app.run_worker_async(
            concurrency=CONCURRENCY, wait=False, install_signal_handlers=False
        )
    report(begun)


def report(begun: list[float]) -> None:
    print(json.dumps({'jobs': len(begun), 'first': begun[0], 'last': begun[-1]}), flush=True)
    # Without closing anything: the database is dropped next.
    os._exit(0)


main()

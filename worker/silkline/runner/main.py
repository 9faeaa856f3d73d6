"""The subprocess of one job, started by `spawn.py`.

Reads the job from its standard input, puts up the walls of `isolation.py`, then crawls, and
speaks with its supervisor in the messages of `pipe.py`. It holds no key and knows no database.
Imports stand where they are needed: whoever waits for the first page waits for them.
"""

import os
import select
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from silkline import framing, protocol
from silkline.runner import isolation

if TYPE_CHECKING:
    from silkline.runner.channel import Link

# What a crawl of pages loads, in parts.
NEEDED = (
    'asyncio',
    'silkline.runner.channel',
    'silkline.crawl.engine.loop',
    'silkline.crawl.engine.strategies',
    'silkline.crawl.documents.reader',
    'silkline.crawl.fetchers.http',
)


def main() -> NoReturn:
    try:
        load_ahead()
        crawl()
    except MemoryError:
        os._exit(isolation.OUT_OF_MEMORY)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # Nothing is left to tidy up, and doing so takes as long as a small crawl.
    os._exit(0)


def load_ahead() -> None:
    """Use the time until there is word of a job; see `Spare` in `spawn.py`."""
    if is_spoken_to():
        return
    from silkline.crawl.net.tls import no_certificates

    with no_certificates():
        for name in NEEDED:
            import_module(name)
            if is_spoken_to():
                return


def is_spoken_to() -> bool:
    return bool(select.select([0], [], [], 0)[0])


def crawl() -> None:
    start = read_start()
    can_fork = isolation.isolate(start.limits, supervisor_pid=start.supervisor_pid)
    source, sink = keep_pipes()

    import asyncio
    import faulthandler
    import signal
    import threading

    faulthandler.register(signal.SIGXCPU, chain=True)
    # Of the 8 MB that a thread gets otherwise, each counts as memory in use.
    threading.stack_size(1024 * 1024)
    work = run(start, can_fork=can_fork, source=source, sink=sink)
    if start.payload.get('fetcher') == 'null':
        asyncio.run(work)
        return
    try:
        import uvloop
    except ImportError:
        # There is none for Windows.
        asyncio.run(work)
    else:
        uvloop.run(work)


def read_start() -> protocol.Start:
    message = framing.decode_to_runner(
        read_exactly(framing.frame_length(read_exactly(framing.HEADER_BYTES)))
    )
    if not isinstance(message, protocol.Start):
        raise framing.FrameMalformed(f'the first message is {type(message).__name__}, not Start')
    return message


def read_exactly(size: int) -> bytes:
    read = b''
    while len(read) < size:
        chunk = os.read(0, size - len(read))
        if not chunk:
            os._exit(isolation.LOST)
        read += chunk
    return read


def keep_pipes() -> tuple[int, int]:
    """Move both pipes away from where programs read and print, out of reach of a stray one."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


async def run(start: protocol.Start, *, can_fork: bool, source: int, sink: int) -> None:
    import asyncio

    from silkline.crawl.engine.job import run_job
    from silkline.crawl.options import CrawlError
    from silkline.runner.channel import Link

    asyncio.get_running_loop().set_exception_handler(end_on_memory_error)
    link = await Link.open(source, sink)
    await link.send(protocol.Ready(pid=os.getpid(), can_fork=can_fork))
    async with asyncio.TaskGroup() as side_tasks:
        sides = [
            side_tasks.create_task(link.listen(), name='listen'),
            side_tasks.create_task(link.stay_alive(start.alive_seconds), name='stay alive'),
        ]
        try:
            last = await run_job(link, start)
        except CrawlError as error:
            last = protocol.Failed(error_code='payload', message=str(error), is_retryable=False)
        except Exception as error:
            last = failure(error)
        await say_last(link, last)
        for side in sides:
            side.cancel()


def failure(error: BaseException) -> protocol.Failed:
    """The first reason; the traceback goes to stderr, whose end the supervisor keeps."""
    import traceback

    if is_out_of_memory(error):
        return protocol.Failed(error_code='oom', message='the crawl ran into its memory limit')
    traceback.print_exception(error)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return protocol.Failed(error_code='failed', message=f'{type(error).__name__}: {error}'[:2000])


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(MemoryError) is not None
    return isinstance(error, MemoryError)


async def say_last(link: 'Link', last: protocol.Done | protocol.Failed) -> None:
    await link.send(last)
    await link.flush()


def end_on_memory_error(loop: object, context: dict[str, object]) -> None:
    """A callback of the loop failed: nobody waits for it, so nobody else would notice."""
    error = context.get('exception')
    if isinstance(error, MemoryError):
        os._exit(isolation.OUT_OF_MEMORY)
    sys.stderr.write(f'{context.get("message")}: {error!r}\n')

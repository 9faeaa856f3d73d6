"""The subprocess of one job, started by `supervisor/spawn.py`.

Reads the job from standard input, sets up the sandbox (`isolation.py`), crawls, and talks to its
supervisor in the messages of `protocol.py`. It holds no key and knows no database. Imports stand
where they are needed: the first page is delayed until they are loaded.
"""

import os
import select
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from silkline import framing, protocol
from silkline.runner import isolation

if TYPE_CHECKING:
    from silkline.runner.channel import PipeChannel

# What almost every crawl imports.
PRELOADED = (
    'asyncio',
    'silkline.runner.channel',
    'silkline.crawl.engine.loop',
    'silkline.crawl.engine.strategies',
    'silkline.crawl.documents.reader',
    'silkline.crawl.fetchers.http',
)


def main() -> NoReturn:
    try:
        preload()
        crawl()
    except MemoryError:
        os._exit(protocol.EXIT_OUT_OF_MEMORY)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # Without cleaning up: it would take as long as a small crawl, and nothing needs it.
    os._exit(0)


def preload() -> None:
    """Import while there is no job yet; see `Spare` in `supervisor/spawn.py`."""
    if has_input():
        return
    from silkline.crawl.net.tls import no_certificates

    with no_certificates():
        for name in PRELOADED:
            import_module(name)
            if has_input():
                return


def has_input() -> bool:
    return bool(select.select([0], [], [], 0)[0])


def crawl() -> None:
    start = read_start()
    can_fork = isolation.isolate(start.limits, supervisor_pid=start.supervisor_pid)
    source, sink = move_pipes()

    import asyncio
    import faulthandler
    import signal
    import threading

    faulthandler.register(signal.SIGXCPU, chain=True)
    # The default of 8 MB per thread would count as memory in use.
    threading.stack_size(1024 * 1024)
    work = run(start, can_fork=can_fork, source=source, sink=sink)
    try:
        import uvloop
    except ImportError:
        # Not available on Windows.
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
            os._exit(protocol.EXIT_LOST)
        read += chunk
    return read


def move_pipes() -> tuple[int, int]:
    """Move both pipes away from stdin and stdout, so that a stray print cannot break them."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return source, sink


async def run(start: protocol.Start, *, can_fork: bool, source: int, sink: int) -> None:
    import asyncio

    from silkline.crawl.engine.job import run_job
    from silkline.crawl.options import CrawlError
    from silkline.runner.channel import PipeChannel

    asyncio.get_running_loop().set_exception_handler(exit_on_memory_error)
    channel = await PipeChannel.open(source, sink)
    await channel.send(protocol.Ready(pid=os.getpid(), can_fork=can_fork))
    async with asyncio.TaskGroup() as side_tasks:
        sides = [
            side_tasks.create_task(channel.listen(), name='listen'),
            side_tasks.create_task(channel.keep_alive(start.alive_seconds), name='keep alive'),
        ]
        try:
            last = await run_job(channel, start)
        except CrawlError as error:
            last = protocol.Failed(error_code='payload', message=str(error), is_retryable=False)
        except Exception as error:
            last = failure(error)
        await send_last(channel, last)
        for side in sides:
            side.cancel()


def failure(error: BaseException) -> protocol.Failed:
    """The first error; the traceback goes to stderr, of which the supervisor keeps the tail."""
    import traceback

    if is_out_of_memory(error):
        return protocol.Failed(error_code='oom', message='the crawl reached its memory limit')
    traceback.print_exception(error)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return protocol.Failed(error_code='failed', message=f'{type(error).__name__}: {error}'[:2000])


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(MemoryError) is not None
    return isinstance(error, MemoryError)


async def send_last(channel: 'PipeChannel', last: protocol.Done | protocol.Failed) -> None:
    await channel.send(last)
    await channel.close()


def exit_on_memory_error(loop: object, context: dict[str, object]) -> None:
    """A callback of the event loop failed: no task waits for it, so nothing else would notice."""
    error = context.get('exception')
    if isinstance(error, MemoryError):
        os._exit(protocol.EXIT_OUT_OF_MEMORY)
    sys.stderr.write(f'{context.get("message")}: {error!r}\n')

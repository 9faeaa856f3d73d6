"""Finding a stack, and running one: in this process, or in the background.

Owns which stack a command means, and how a background stack reports that it is ready: over a pipe,
with its log for what it printed. The commands themselves are in `cli.py`.
"""

import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from silkline import settings
from silkline_local.directory import StackDirectory
from silkline_local.errors import StackError

if TYPE_CHECKING:
    import asyncio

    from silkline_local.stack import StackOptions, StackReady

# What a background stack writes to the process that started it.
READY_MESSAGE = b'ready'


def find_stack(named: Path | None) -> StackDirectory:
    """The named stack, else the one of this directory or of one above, else a new one here."""
    here = Path.cwd()
    return StackDirectory(settings.find_stack_path(named, here) or here / settings.STACK_NAME)


def serve(stack: StackDirectory, options: 'StackOptions', ready_fd: int | None) -> None:
    """Run the stack in this process until SIGINT or SIGTERM."""
    import asyncio

    from silkline_local.stack import Stack

    logging.basicConfig(
        format='%(asctime)s %(levelname)s %(message)s', datefmt='%H:%M:%S', level=logging.WARNING
    )
    # It logs every failed attempt to connect; the stack reports the outage once.
    logging.getLogger('psycopg').setLevel(logging.ERROR)

    def report_ready(ready: 'StackReady') -> None:
        stack.lock.mark_ready()
        print_ready(stack, ready, is_detached=ready_fd is not None)
        if ready_fd is not None:
            os.write(ready_fd, READY_MESSAGE)
            os.close(ready_fd)

    async def run() -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if task is None or task.cancelling():
                # The second signal: exit now. Postgres ends with this process, and recovers.
                os._exit(130)
            print_message('stopping')
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        await Stack(stack, options).run(report_ready)

    if ready_fd is None:
        # In the background, the process that waits for this one has printed it.
        print_message(f'starting the stack in {stack.path}')
    with suppress(asyncio.CancelledError), new_runner() as runner:
        runner.run(run())
    print_message('stopped')


def new_runner() -> 'asyncio.Runner':
    import asyncio

    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def start_detached(stack: StackDirectory, options: list[str]) -> None:
    """Start the stack in the background and return when it answers."""
    if (running := stack.lock.wait_until_ready()) is not None:
        report_running(stack, stack.lock.describe_holder(running), options)
        return
    print_message(f'starting the stack in {stack.path}')
    reading, writing = os.pipe()
    with open(os.open(stack.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 'wb') as log:
        log_start = log.seek(0, os.SEEK_END)
        process = subprocess.Popen(  # noqa: S603 - this program
            # -P: a project may have a module of its own called silkline_local.
            [
                sys.executable,
                '-P',
                '-m',
                'silkline_local',
                'up',
                f'--directory={stack.path}',
                f'--ready-fd={writing}',
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[writing],
        )
    os.close(writing)
    with open(reading, 'rb') as answer:
        is_ready = answer.read() == READY_MESSAGE
    if not is_ready:
        # Another process may have started the stack first.
        is_ready = process.wait() == 0 and stack.lock.wait_until_ready() is not None
    with stack.log_path.open('rb') as log:
        log.seek(log_start)
        printed = log.read().decode(errors='replace')
    if not is_ready:
        raise StackError(f'the stack did not start:\n{printed.rstrip()}')
    typer.echo(printed, err=True, nl=False)


def report_running(stack: StackDirectory, message: str, options: list[str]) -> None:
    """Print where the running stack is; refuse options, which it would not get."""
    print_message(message)
    stack.lock.wait_until_ready()
    typer.echo(f'  API        {stack.read_env()["SUPABASE_URL"]}', err=True)
    if options:
        raise StackError(
            f'{" ".join(options)} takes effect only at start:'
            ' run silkline down, then silkline up again'
        )


def print_ready(stack: StackDirectory, ready: 'StackReady', *, is_detached: bool) -> None:
    applied = ready.migrations_applied
    migrations = f'migrations applied: {applied}' if applied else 'no new migrations'
    lines = [
        f'  database   PostgreSQL {ready.postgres_version} on port {ready.database_port},'
        f' {migrations}',
        f'  API        {ready.url}',
        *([f'  dashboard  {ready.url}'] if ready.has_dashboard else []),
        f'  variables  {stack.env_path}{" (new keys)" if ready.has_new_keys else ""}',
    ]
    if ready.is_open:
        lines.append('  network    other machines can reach the API (--host)')
    for wanted, used in ready.replaced_ports:
        lines.append(f'  port {wanted} is taken: using {used} from now on')
    typer.echo('\n'.join(lines), err=True)
    how = ', running in the background; silkline down' if is_detached else '; Ctrl-C'
    print_message(f'ready in {ready.seconds:.1f} s{how} stops it')


def print_message(text: str) -> None:
    """Print to stderr: stdout is for data."""
    typer.echo(f'silkline: {text}', err=True)

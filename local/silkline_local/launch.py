"""Finding a stack, starting one in a process of its own, and what is said when that does not work.

Owns which stack a command means, and how it and the stack that it started find each other: a pipe
for the word that it is ready, its log for what it said. Which commands there are is `cli.py`'s.
"""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer
from silkline import settings

from silkline_local.directory import StackDirectory
from silkline_local.lock import StackError

# What a detached stack tells the process that started it.
READY_WORD = b'ready'


def find_stack(named: Path | None) -> StackDirectory:
    """The stack that was named, else of this directory, else of one above; if none: of this one."""
    here = Path.cwd()
    return StackDirectory(settings.find_stack_path(named, here) or here / settings.STACK_NAME)


def start_detached(place: StackDirectory, words: list[str]) -> None:
    """Start the stack in a process of its own and return when it answers."""
    if (running := place.lock.wait_until_ready()) is not None:
        said = f'the stack of {place.path} is already running, as process {running}'
        tell_running(place, said, words)
        return
    say(f'starting in {place.path}')
    reading, writing = os.pipe()
    with open(os.open(place.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 'wb') as log:
        log_start = log.seek(0, os.SEEK_END)
        process = subprocess.Popen(  # noqa: S603 - this program
            # -P: a project may have a module of its own called silkline_local.
            [
                sys.executable,
                '-P',
                '-m',
                'silkline_local',
                'up',
                f'--directory={place.path}',
                f'--ready-fd={writing}',
                *words,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[writing],
        )
    os.close(writing)
    with open(reading, 'rb') as answer:
        is_ready = answer.read() == READY_WORD
    if not is_ready:
        # Somebody else may have been quicker.
        is_ready = process.wait() == 0 and place.lock.wait_until_ready() is not None
    with place.log_path.open('rb') as log:
        log.seek(log_start)
        said = log.read().decode(errors='replace')
    if not is_ready:
        raise StackError(f'the stack did not come up:\n{said.rstrip()}')
    typer.echo(said, err=True, nl=False)


def tell_running(place: StackDirectory, said: str, words: list[str]) -> None:
    """A stack that runs is what was asked for, unless it was asked for differently."""
    say(said)
    place.lock.wait_until_ready()
    typer.echo(f'  API        {place.read_env()["SUPABASE_URL"]}', err=True)
    if words:
        raise StackError('it keeps the options it was started with: silkline down, then up again')


@contextmanager
def failures_told() -> Generator[None]:
    """End with one sentence instead of a traceback, where the user can do something about it."""
    try:
        yield
    except StackError as error:
        say(str(error))
        raise typer.Exit(1) from error
    except OSError as error:
        where = f'{error.filename}: ' if error.filename else ''
        say(f'{where}{error.strerror or error}')
        raise typer.Exit(1) from error


@contextmanager
def extra_needed() -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise StackError(
            f'the local stack is not installed ({error}): make install in a clone,'
            " or pip install 'silkline[local]'"
        ) from error


def say(text: str) -> None:
    typer.echo(f'silkline: {text}', err=True)

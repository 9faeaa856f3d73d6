"""Running one command against the API.

Owns what commands share: the connection, the exit code for each error, messages on stderr, and the
arguments that several commands take. Imports the API only when a command runs, to keep `--help`
fast.
"""

import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from silkline.errors import ExitCode, SilklineError
from silkline.settings import Project, read_project

if TYPE_CHECKING:
    from silkline.queue.rpc import Rpc

T = TypeVar('T')

# Shorter than a worker's: a person is waiting.
PATIENCE_SECONDS = 4.0

# The queue's hints name its functions and parameters. These are their names on the command line.
COMMAND_NAMES = {
    'Use resume_crawl_job': 'Use silkline resume',
    'Use retry_crawl_job': 'Use silkline retry',
    'Use p_urls all': 'Use --urls all',
    'Leave p_user_id': 'Leave --user',
    'p_user_id is': '--user is',
}

JOB_HELP = 'A job id, at least its last six characters, or "last" for the newest job.'
JobArgument = Annotated[str, typer.Argument(metavar='JOB', help=JOB_HELP)]
AsJson = Annotated[bool, typer.Option('--json', help='Print JSON.')]


def run(work: 'Callable[[Rpc, Project], Coroutine[Any, Any, ExitCode]]') -> None:
    """Connect to the API, run a command's `work` and exit with its code."""
    raise typer.Exit(ask(work))


def ask(work: 'Callable[[Rpc, Project], Coroutine[Any, Any, T]]') -> T:
    """Connect to the API and return what `work` returns; exit if it fails."""
    import asyncio

    from silkline.queue.rpc import Rpc

    async def connect() -> T:
        project = read_project()
        async with Rpc(project, patience_seconds=PATIENCE_SECONDS) as rpc:
            return await work(rpc, project)

    with exit_on_error():
        try:
            return asyncio.run(connect())
        except KeyboardInterrupt as error:
            raise typer.Exit(ExitCode.INTERRUPTED) from error


def run_here(work: Coroutine[Any, Any, T]) -> T:
    """Run without a connection to the API. Ctrl-C ends it."""
    import asyncio

    try:
        return asyncio.run(work)
    except KeyboardInterrupt as error:
        raise typer.Exit(ExitCode.INTERRUPTED) from error


@contextmanager
def exit_on_error() -> Generator[None]:
    """Print a `SilklineError` as one message and exit with its code."""
    try:
        yield
    except SilklineError as error:
        print_message(f'silkline: {use_command_names(str(error))}')
        raise typer.Exit(error.exit_code) from error


def use_command_names(text: str) -> str:
    for name, command in COMMAND_NAMES.items():
        text = text.replace(name, command)
    return text


def print_message(text: str) -> None:
    """Print to stderr: stdout is for data."""
    # Looked up on each call: a progress bar replaces sys.stderr, to print the text above itself.
    typer.echo(text, err=True, file=sys.stderr)

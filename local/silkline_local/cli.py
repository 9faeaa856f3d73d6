"""The commands of the local stack: `silkline up`, `down`, `reset` and `token`.

Owns their options, their help and how errors are printed: messages on stderr, data on stdout.
Imports what is slow, or belongs to the extra `local`, only when a command runs. How a stack is
started is in `launch.py`.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silkline.errors import ExitCode, SilklineError
from silkline.settings import STACK_NAME, dashboard_directory, migrations_directory
from silkline_local.directory import format_env
from silkline_local.errors import AlreadyRunning, StackError
from silkline_local.launch import (
    find_stack,
    print_message,
    report_running,
    serve,
    start_detached,
)

if TYPE_CHECKING:
    from silkline_local.stack import StackOptions

LOOPBACK = '127.0.0.1'

commands = typer.Typer()

Directory = Annotated[
    Path | None,
    typer.Option(
        '--directory',
        help="The stack's own directory (database, keys, log), not your project's.",
        show_default=f'{STACK_NAME} here, or in a directory above',
        envvar='SILKLINE_DIRECTORY',
        file_okay=False,
        # A directory of another user is refused by `check_owner`, with a better message.
        readable=False,
    ),
]


@commands.command()
def up(
    directory: Directory = None,
    port: Annotated[
        int | None,
        typer.Option(
            help='Port of the API. Default: the last one used, else 54421, else a free one.',
            min=1,
            max=65535,
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            help='Address to listen on. Beyond loopback, other machines can reach the API.'
        ),
    ] = LOOPBACK,
    migrations: Annotated[
        Path | None,
        typer.Option(
            help="Apply the migrations in this directory instead of the queue's own.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option('--detach', '-d', help='Run in the background; return when it is ready.'),
    ] = False,
    env: Annotated[
        bool,
        typer.Option(
            '--env',
            help='Print the variables as NAME=value; start in the background if not running.',
        ),
    ] = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a Supabase stand-in on this machine.

    Postgres, the queue, REST and Realtime. Ctrl-C stops it. The database is kept for the next
    time.
    """
    stack = find_stack(directory)
    given = [
        *([f'--host={host}'] if host != LOOPBACK else []),
        *([f'--port={port}'] if port else []),
        *([f'--migrations={migrations.absolute()}'] if migrations else []),
    ]
    with exit_on_error():
        options = read_options(port, host, migrations)
        stack.create()
        if detach or env:
            start_detached(stack, given)
            if env:
                typer.echo(format_env(stack.read_env()), nl=False)
            return
        try:
            with stack.lock.held():
                serve(stack, options, ready_fd)
        except AlreadyRunning as error:
            report_running(stack, str(error), given)


@commands.command()
def down(directory: Directory = None) -> None:
    """Stop the stack and keep its data."""
    stack = find_stack(directory)
    with exit_on_error():
        stack.check_owner()
        process = stack.lock.stop()
    if process is None:
        print_message(f'no stack is running in {stack.path} (use --directory for another)')
    else:
        print_message(f'stopped the stack in {stack.path} (process {process}); its data is kept')


@commands.command()
def reset(
    directory: Directory = None,
    yes: Annotated[bool, typer.Option('--yes', '-y', help='Do not ask for confirmation.')] = False,
    keys: Annotated[bool, typer.Option('--keys', help='Remove the keys, too.')] = False,
) -> None:
    """Stop the stack and remove its database.

    Keys and ports stay the same, so clients need no change.
    """
    stack = find_stack(directory)
    with exit_on_error():
        stack.check_owner()
        if not stack.has_database and not (keys and stack.is_stack):
            print_message(f'there is no stack database in {stack.path}: nothing was removed')
            return
        what = 'the database and the keys' if keys else 'the database'
        if not yes:
            confirm(f'Remove {what} in {stack.path}, with all jobs and pages?')
        process = stack.lock.stop()
        with stack.lock.held():
            if stack.has_database:
                stack.remove_database()
            if keys:
                stack.remove_keys()
    stopped = '' if process is None else f'stopped process {process} and '
    print_message(f'{stopped}removed {what} in {stack.path}; silkline up starts from scratch')


@commands.command()
def token(
    email: Annotated[
        str,
        typer.Argument(metavar='EMAIL', help='Address of the user, who is created if necessary.'),
    ],
    directory: Directory = None,
    hours: Annotated[
        float, typer.Option(help='How long the token is valid.', min=0.01, max=8760)
    ] = 24,
) -> None:
    """Print an access token for a user, as signing in would."""
    stack = find_stack(directory)
    address = email.strip().lower()
    with exit_on_error():
        stack.check_owner()
        name, _, domain = address.partition('@')
        if not name or not domain or len(address.split()) > 1:
            raise StackError(
                f'{email!r} is not an e-mail address: expected something like ann@example.com'
            )
        if stack.lock.wait_until_ready() is None:
            raise StackError(
                f'no stack is running in {stack.path}: start it with silkline up --detach'
            )
        with require_extra():
            from silkline_local.auth import find_or_create_user, sign_user_token
        # Not from keys.json: the running stack decides which secret is valid.
        variables = stack.read_env()
        user_id = find_or_create_user(variables['SUPABASE_DB_URL'], address)
        typer.echo(
            sign_user_token(
                variables['SUPABASE_JWT_SECRET'], user_id, email=address, seconds=hours * 3600
            )
        )


def confirm(question: str) -> None:
    try:
        is_confirmed = typer.confirm(question, err=True)
    except typer.Abort:
        # No terminal, or Ctrl-C: the cursor is still behind the question.
        typer.echo(err=True)
        is_confirmed = False
    if not is_confirmed:
        print_message('nothing was removed (--yes skips the question)')
        raise typer.Exit(ExitCode.REFUSED)


def read_options(port: int | None, host: str, migrations: Path | None) -> 'StackOptions':
    with require_extra():
        from silkline_local.stack import StackOptions
    if not host.strip():
        raise StackError('--host is empty: give an address, such as 127.0.0.1')
    if migrations is not None and not any(migrations.glob('[0-9]*_*.sql')):
        raise StackError(f'{migrations} has no migrations (files like 20260101000000_name.sql)')
    dashboard = dashboard_directory()
    return StackOptions(
        migrations=migrations or migrations_directory(),
        dashboard=dashboard if (dashboard / 'index.html').is_file() else None,
        host=host,
        port=port,
    )


@contextmanager
def exit_on_error() -> Generator[None]:
    """Print errors that a user can do something about as one message, without a traceback."""
    try:
        yield
    except SilklineError as error:
        print_message(str(error))
        raise typer.Exit(error.exit_code) from error
    except OSError as error:
        where = f'{error.filename}: ' if error.filename else ''
        print_message(f'{where}{error.strerror or error}')
        raise typer.Exit(ExitCode.REFUSED) from error


@contextmanager
def require_extra() -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise StackError(
            f"the local stack is not installed ({error}): run pip install 'silkline[local]',"
            ' or make install in a clone'
        ) from error

"""The commands of the local stack: `silkline up`, `down`, `reset`, `token`; and `crawl`, beside it.

Owns their words and what they print: facts for people on stderr, data on stdout. Found by
`silkline` as an entry point; imports what is slow or may not be installed only when it runs.
"""

import logging
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from silkline.settings import STACK_NAME, dashboard_directory, migrations_directory

from silkline_local.directory import StackDirectory, format_env
from silkline_local.launch import (
    READY_WORD,
    extra_needed,
    failures_told,
    find_stack,
    say,
    start_detached,
    tell_running,
)
from silkline_local.lock import AlreadyRunning, StackError

if TYPE_CHECKING:
    import asyncio

    from silkline_local.stack import Options, Ready

LOOPBACK = '127.0.0.1'

commands = typer.Typer()

Directory = Annotated[
    Path | None,
    typer.Option(
        '--directory',
        help="The stack's own directory, not your project's: database, keys, log.",
        show_default=f'{STACK_NAME} here, or in a directory above',
        envvar='SILKLINE_DIRECTORY',
        file_okay=False,
        # Whose it is, is told in our own words.
        readable=False,
    ),
]


@commands.command()
def up(
    directory: Directory = None,
    port: Annotated[
        int | None,
        typer.Option(
            help='The port of the API. Without it: the last one, else 54421, else a free one.',
            min=1,
            max=65535,
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help='The address to listen on. Beyond loopback, others can reach the API.'),
    ] = LOOPBACK,
    migrations: Annotated[
        Path | None,
        typer.Option(
            help="A directory of migrations to apply instead of the queue's own.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option('--detach', '-d', help='Return when it is ready; it goes on running.')
    ] = False,
    env: Annotated[
        bool,
        typer.Option('--env', help='Print the variables NAME=value; starts detached if need be.'),
    ] = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a Supabase stand-in on this machine.

    Postgres, the queue, REST and Realtime. Ctrl-C stops it. What is in the database stays for the
    next time.
    """
    place = find_stack(directory)
    words = [
        *([f'--host={host}'] if host != LOOPBACK else []),
        *([f'--port={port}'] if port else []),
        *([f'--migrations={migrations.absolute()}'] if migrations else []),
    ]
    with failures_told():
        options = read_options(port, host, migrations)
        place.make()
        if detach or env:
            start_detached(place, words)
            if env:
                typer.echo(format_env(place.read_env()), nl=False)
            return
        try:
            with place.lock.held():
                serve(place, options, ready_fd)
        except AlreadyRunning as error:
            tell_running(place, str(error), words)


@commands.command()
def down(directory: Directory = None) -> None:
    """Stop the stack; its data stays."""
    place = find_stack(directory)
    with failures_told():
        place.refuse_other_owner()
        process = place.lock.stop()
    if process is None:
        say(f'no stack is running in {place.path} (another one: --directory)')
    else:
        say(f'stopped the stack of {place.path} (process {process}); its data stays')


@commands.command()
def reset(
    directory: Directory = None,
    yes: Annotated[bool, typer.Option('--yes', '-y', help='Do not ask.')] = False,
    keys: Annotated[bool, typer.Option('--keys', help='Forget the keys, too.')] = False,
) -> None:
    """Stop the stack and remove its database.

    Keys and ports stay, so clients need no change.
    """
    place = find_stack(directory)
    with failures_told():
        place.refuse_other_owner()
        if not place.has_database and not (keys and place.is_stack):
            say(f'{place.path} holds no database of a stack: nothing was removed')
            return
        what = 'the database and the keys' if keys else 'the database'
        if not yes:
            confirm(f'Remove {what} of {place.path}, with all jobs and pages?')
        process = place.lock.stop()
        with place.lock.held():
            if place.has_database:
                place.forget_data()
            if keys:
                place.forget_keys()
    stopped = '' if process is None else f'stopped process {process} and '
    say(f'{stopped}removed {what} of {place.path}; silkline up starts afresh')


@commands.command()
def token(
    email: Annotated[
        str, typer.Argument(metavar='EMAIL', help='Whose token; the user is made if need be.')
    ],
    directory: Directory = None,
    hours: Annotated[float, typer.Option(help='How long it is valid.', min=0.01, max=8760)] = 24,
) -> None:
    """Print an access token of a user, as signing in would give it."""
    place = find_stack(directory)
    address = email.strip().lower()
    with failures_told():
        place.refuse_other_owner()
        name, _, domain = address.partition('@')
        if not name or not domain or len(address.split()) > 1:
            raise StackError(f'{email!r} is no e-mail address')
        if place.lock.wait_until_ready() is None:
            raise StackError(f'no stack is running in {place.path}: silkline up --detach')
        with extra_needed():
            from silkline_local.keys import sign_user_token
            from silkline_local.users import find_or_make_user
        # Not from the file of keys: what counts is what the running stack knows.
        variables = place.read_env()
        user_id = find_or_make_user(variables['SUPABASE_DB_URL'], address)
        typer.echo(
            sign_user_token(
                variables['SUPABASE_JWT_SECRET'], user_id, email=address, seconds=hours * 3600
            )
        )


def confirm(question: str) -> None:
    try:
        is_meant = typer.confirm(question, err=True)
    except typer.Abort:
        # Nobody is there to answer, or Ctrl-C; the cursor stands behind the question.
        typer.echo(err=True)
        is_meant = False
    if not is_meant:
        say('nothing was removed; --yes answers the question')
        raise typer.Exit(1)


def read_options(port: int | None, host: str, migrations: Path | None) -> 'Options':
    with extra_needed():
        from silkline_local.stack import Options
    if not host.strip():
        raise StackError('--host is empty: name an address, such as 127.0.0.1')
    if migrations is not None and not any(migrations.glob('[0-9]*_*.sql')):
        raise StackError(f'{migrations} holds no migrations (files like 20260101000000_name.sql)')
    dashboard = dashboard_directory()
    return Options(
        migrations=migrations or migrations_directory(),
        dashboard=dashboard if (dashboard / 'index.html').is_file() else None,
        host=host,
        port=port,
    )


def serve(place: StackDirectory, options: 'Options', ready_fd: int | None) -> None:
    """Run the stack in this process until it is told to stop."""
    import asyncio

    from silkline_local.keys import KeysError
    from silkline_local.postgres.migrations import MigrationError
    from silkline_local.postgres.server import PostgresError
    from silkline_local.stack import Stack

    logging.basicConfig(
        format='%(asctime)s %(levelname)s %(message)s', datefmt='%H:%M:%S', level=logging.WARNING
    )
    # It complains of each attempt while the database is away, which is told once elsewhere.
    logging.getLogger('psycopg').setLevel(logging.ERROR)

    def tell(ready: 'Ready') -> None:
        place.lock.mark_ready()
        show_ready(place, ready, is_detached=ready_fd is not None)
        if ready_fd is not None:
            os.write(ready_fd, READY_WORD)
            os.close(ready_fd)

    async def run() -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if task is None or task.cancelling():
                # Asked twice: end now. Postgres ends with this process, and recovers.
                os._exit(130)
            say('stopping')
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        await Stack(place, options).run(tell)

    if ready_fd is None:
        # Detached, it is told by whoever started it, who waits.
        say(f'starting in {place.path}')
    try:
        with suppress(asyncio.CancelledError), new_runner() as runner:
            runner.run(run())
    except MigrationError as error:
        raise StackError(f'{error}\nMend it and run silkline up again.') from error
    except (PostgresError, KeysError) as error:
        raise StackError(str(error)) from error
    say('stopped')


def new_runner() -> 'asyncio.Runner':
    import asyncio

    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def show_ready(place: StackDirectory, ready: 'Ready', *, is_detached: bool) -> None:
    applied = ready.migrations_applied
    migrations = f'migrations applied: {applied}' if applied else 'no new migration'
    lines = [
        f'  database   PostgreSQL {ready.postgres_version} on port {ready.database_port},'
        f' {migrations}',
        f'  API        {ready.url}',
        *([f'  dashboard  {ready.url}'] if ready.has_dashboard else []),
        f'  variables  {place.env_path}{" (new keys)" if ready.has_new_keys else ""}',
    ]
    if ready.is_open:
        lines.append('  others     machines that reach this one can reach the API, too (--host)')
    for port in ready.taken_ports:
        lines.append(f'  port {port} is taken; the one above stays from now on')
    typer.echo('\n'.join(lines), err=True)
    how = ', in the background; silkline down' if is_detached else '; Ctrl-C'
    say(f'ready in {ready.seconds:.1f} s{how} stops it')

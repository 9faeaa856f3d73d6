"""The commands of the local stack: `silkline up`, `down`, `reset`, `token`.

Owns their words and what they print: facts for people on stderr, data on stdout. Found by
`silkline` as an entry point; imports what is slow or may not be installed only when it runs.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from local.directory import NAME, AlreadyRunning, StackDirectory, StackError
from worker.paths import dashboard_directory, migrations_directory

if TYPE_CHECKING:
    from local.stack import Options, Ready

commands = typer.Typer()

Directory = Annotated[
    Path,
    typer.Option(
        '--directory',
        '-C',
        help='Where the stack keeps its database and keys.',
        envvar='SILKLINE_DIRECTORY',
        file_okay=False,
    ),
]
IN_THIS_DIRECTORY = Path(NAME)
# What a detached stack tells the process that started it.
READY_WORD = b'ready'


@commands.command()
def up(
    directory: Directory = IN_THIS_DIRECTORY,
    port: Annotated[
        int | None,
        typer.Option(
            help='The port of the API. Without it: the last one, else 54421, else a free one.',
            min=1,
            max=65535,
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help='The address to listen on. Beyond loopback, others can reach the API.'),
    ] = '127.0.0.1',
    migrations: Annotated[
        Path | None,
        typer.Option(
            help="A directory of migrations to apply instead of the queue's own.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    limits: Annotated[
        bool, typer.Option('--limits', help='Hold Realtime to the limits of the free tier.')
    ] = False,
    detach: Annotated[
        bool, typer.Option('--detach', '-d', help='Return when it is ready; it goes on running.')
    ] = False,
    env: Annotated[
        bool,
        typer.Option('--env', help='Print the variables NAME=value; starts detached if need be.'),
    ] = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a Supabase stand-in on this machine: Postgres, the queue, REST and Realtime.

    Ctrl-C stops it. What is in the database stays for the next time.
    """
    place = StackDirectory(directory)
    words = [
        f'--directory={place.path}',
        f'--host={host}',
        *([f'--port={port}'] if port else []),
        *([f'--migrations={migrations.absolute()}'] if migrations else []),
        *(['--limits'] if limits else []),
    ]
    try:
        place.make()
        if detach or env:
            start_detached(place, words)
            if env:
                typer.echo(place.read_env(), nl=False)
            return
        with place.locked():
            serve(place, read_options(port, host, migrations, limits=limits), ready_fd)
    except AlreadyRunning as error:
        say(str(error))
        show_where(place)
    except StackError as error:
        fail(error)


@commands.command()
def down(directory: Directory = IN_THIS_DIRECTORY) -> None:
    """Stop the stack of this directory, from anywhere."""
    place = StackDirectory(directory)
    try:
        process = place.stop()
    except StackError as error:
        fail(error)
    if process is None:
        say(f'no stack is running in {place.path}')
    else:
        say(f'stopped the stack of {place.path} (process {process}); its data stays')


@commands.command()
def reset(
    directory: Directory = IN_THIS_DIRECTORY,
    yes: Annotated[bool, typer.Option('--yes', '-y', help='Do not ask.')] = False,
    keys: Annotated[bool, typer.Option('--keys', help='Forget the keys, too.')] = False,
) -> None:
    """Stop the stack and remove its database. Keys and ports stay, so clients need no change."""
    place = StackDirectory(directory)
    if place.is_empty or not (keys or place.postgres_path.exists()):
        say(f'{place.path} holds no database: there is nothing to remove')
        return
    if not yes:
        typer.confirm(f'Remove the database of {place.path}, with all jobs and pages?', abort=True)
    try:
        place.stop()
        with place.locked():
            place.forget_data()
            if keys:
                place.forget_keys()
    except StackError as error:
        fail(error)
    say(f'removed the database of {place.path}; silkline up makes a new one')


@commands.command()
def token(
    email: Annotated[str, typer.Argument(help='Whose token; the user is made if need be.')],
    directory: Directory = IN_THIS_DIRECTORY,
    hours: Annotated[float, typer.Option(help='How long it is valid.', min=0.01, max=8760)] = 24,
) -> None:
    """Print an access token, as Supabase Auth would hand it to a signed-in user."""
    from local.keys import load_keys
    from local.users import find_or_make_user

    place = StackDirectory(directory)
    try:
        if place.wait_until_ready() is None:
            raise StackError(f'no stack is running in {place.path}: silkline up --detach')
        user_id = find_or_make_user(variables(place)['SUPABASE_DB_URL'], email)
    except StackError as error:
        fail(error)
    keys = load_keys(place.keys_path)
    typer.echo(keys.user_token(user_id, email=email, seconds=hours * 3600))


def read_options(
    port: int | None, host: str, migrations: Path | None, *, limits: bool
) -> 'Options':
    try:
        from local.gateway.realtime import FREE_TIER
        from local.stack import Options
    except ImportError as error:
        raise StackError(f"{error}: pip install 'silkline[local]'") from error
    dashboard = dashboard_directory()
    return Options(
        migrations=migrations or migrations_directory(),
        dashboard=dashboard if (dashboard / 'index.html').is_file() else None,
        host=host,
        port=port,
        limits=FREE_TIER if limits else None,
    )


def serve(place: StackDirectory, options: 'Options', ready_fd: int | None) -> None:
    """Run the stack in this process until it is told to stop."""
    from local.database import MigrationError
    from local.keys import KeysError
    from local.postgres import PostgresError
    from local.stack import Stack

    logging.basicConfig(
        format='%(asctime)s %(levelname)s %(message)s', datefmt='%H:%M:%S', level=logging.WARNING
    )
    # It complains of each attempt while the database is away, which is told once elsewhere.
    logging.getLogger('psycopg').setLevel(logging.ERROR)

    def tell(ready: 'Ready') -> None:
        place.mark_ready()
        show_ready(place, ready)
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

    say(f'starting in {place.path}')
    try:
        with suppress(asyncio.CancelledError), new_runner() as runner:
            runner.run(run())
    except (PostgresError, MigrationError, KeysError) as error:
        raise StackError(str(error)) from error
    say('stopped')


def new_runner() -> asyncio.Runner:
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def start_detached(place: StackDirectory, words: list[str]) -> None:
    """Start the stack in a process of its own and return when it answers."""
    if (running := place.wait_until_ready()) is not None:
        say(f'the stack of {place.path} is already running, as process {running}')
        show_where(place)
        return
    reading, writing = os.pipe()
    with open(os.open(place.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 'wb') as log:
        log_start = log.seek(0, os.SEEK_END)
        process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, '-m', 'local', 'up', *words, f'--ready-fd={writing}'],
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
        code = process.wait()
        # Somebody else was quicker.
        is_ready = code == 0 and place.wait_until_ready() is not None
    with place.log_path.open('rb') as log:
        log.seek(log_start)
        said = log.read().decode(errors='replace')
    if not is_ready:
        raise StackError(f'the stack did not come up:\n{said}')
    typer.echo(said, err=True, nl=False)
    say('it goes on running; silkline down stops it')


def show_ready(place: StackDirectory, ready: 'Ready') -> None:
    applied = ready.migrations_applied
    migrations = f'{applied} migrations applied' if applied else 'no new migration'
    dashboard = ready.url if ready.has_dashboard else 'not built'
    typer.echo(
        f'  database   PostgreSQL {ready.postgres_version} on port {ready.database_port},'
        f' {migrations}\n'
        f'  API        {ready.url}\n'
        f'  dashboard  {dashboard}\n'
        f'  keys       silkline up --env prints them; they are in {place.keys_path}',
        err=True,
    )
    say(f'ready in {ready.seconds:.1f} s; Ctrl-C or silkline down stops it')


def show_where(place: StackDirectory) -> None:
    with suppress(StackError, KeyError):
        typer.echo(f'  API        {variables(place)["SUPABASE_URL"]}', err=True)


def variables(place: StackDirectory) -> dict[str, str]:
    lines = (line.partition('=') for line in place.read_env().splitlines())
    return {name: value for name, _, value in lines}


def say(text: str) -> None:
    typer.echo(f'silkline: {text}', err=True)


def fail(error: StackError) -> NoReturn:
    say(str(error))
    raise typer.Exit(1) from error

"""The command `silkline`.

Owns how its commands come together; their words are in the modules called `…_command` and
`…_commands`. Commands that other packages add (the entry points of group `silkline.commands`, such
as those of the local stack) stand beside these.
"""

from importlib.metadata import entry_points
from typing import Annotated

import typer

from worker import (
    __version__,
    job_commands,
    page_commands,
    plugin_commands,
    queue_commands,
    worker_command,
)
from worker.paths import migrations_directory

app = typer.Typer(
    name='silkline',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


app.add_typer(worker_command.commands)
app.add_typer(job_commands.commands)
app.add_typer(page_commands.commands)
app.add_typer(queue_commands.commands)
app.add_typer(plugin_commands.commands)


def main() -> None:
    add_commands()
    app()


def add_commands() -> None:
    """Add what other packages bring; one that cannot be loaded is named and left out."""
    for entry_point in entry_points(group='silkline.commands'):
        try:
            app.add_typer(entry_point.load())
        except Exception as error:
            typer.echo(
                f'silkline: the commands of {entry_point.value} are left out: {error}', err=True
            )


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f'silkline {__version__}')
        raise typer.Exit


@app.callback()
def silkline(
    version: Annotated[
        bool,
        typer.Option('--version', callback=show_version, is_eager=True, help='Show the version.'),
    ] = False,
) -> None:
    """A crawl queue that lives in Supabase.

    To try it on this machine: silkline crawl https://example.com

    On Supabase the queue is SQL: `silkline install` puts it into your project,
    `supabase db push` installs it.
    """


@app.command()
def migrations() -> None:
    """Print the directory that holds the queue's migrations."""
    typer.echo(migrations_directory())

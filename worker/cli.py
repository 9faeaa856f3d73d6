"""The command `silkline`.

Owns the words of the command line and nothing behind them. The queue itself is SQL, and is
installed by the Supabase CLI.
"""

from pathlib import Path
from typing import Annotated

import typer

from worker import __version__

app = typer.Typer(name='silkline', no_args_is_help=True, add_completion=False)


def main() -> None:
    app()


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

    The queue is SQL: put the files of `silkline migrations` into your project's
    supabase/migrations and run `supabase db push`.
    """


@app.command()
def migrations() -> None:
    """Print the directory that holds the queue's migrations."""
    typer.echo(migrations_directory())


def migrations_directory() -> Path:
    """The copy in an installed package, else the one of the checkout."""
    package = Path(__file__).parent
    installed = package / 'migrations'
    return installed if installed.is_dir() else package.parent / 'supabase/migrations'

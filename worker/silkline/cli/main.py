"""The command `silkline`.

Owns how its commands come together; their words are in the modules called `…_command` and
`…_commands`. Commands that other packages add (the entry points of group `silkline.commands`, such
as those of the local stack) stand beside these.
"""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer
from typer.core import TyperGroup

from silkline import __version__
from silkline.cli.commands import jobs, local_stack, pages, plugins, queue, worker
from silkline.cli.crawl import command as crawl
from silkline.errors import ExitCode

# What a newcomer types; the rest of the help stands below it.
FIRST = ('crawl', 'pages')


class Commands(TyperGroup):
    def list_commands(self, ctx: object) -> list[str]:
        others = [name for name in self.commands if name not in FIRST]
        return [*(name for name in FIRST if name in self.commands), *others]


app = typer.Typer(
    name='silkline',
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Help without boxes is there in half the time, and on every terminal.
    rich_markup_mode=None,
    context_settings={'help_option_names': ['-h', '--help']},
)


app.add_typer(crawl.commands)
app.add_typer(pages.commands)
app.add_typer(jobs.commands)
app.add_typer(worker.commands)
app.add_typer(queue.commands)
app.add_typer(plugins.commands)
app.add_typer(local_stack.commands)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Titles are in any language, and terminals are not.
            stream.reconfigure(errors='backslashreplace')
    try:
        app()
    except OSError as error:
        # What is printed goes to a full disk.
        where = f'{error.filename}: ' if error.filename else ''
        typer.echo(f'silkline: {where}{error.strerror or error}', err=True)
        sys.exit(ExitCode.REFUSED)


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

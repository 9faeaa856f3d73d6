"""The command `silkline`.

Puts the commands together. Each group is a module in `commands/`; `silkline crawl` has its own
folder, `crawl/`.
"""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from silkline import __version__
from silkline.cli.commands import job_control, jobs, local_stack, pages, plugins, queue, worker
from silkline.cli.crawl import command as crawl
from silkline.cli.scrape import command as scrape
from silkline.errors import ExitCode

app = typer.Typer(
    name='silkline',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Help without boxes takes half the time and works on every terminal.
    rich_markup_mode=None,
    context_settings={'help_option_names': ['-h', '--help']},
)

# In the order of the help: what a newcomer needs comes first.
app.add_typer(crawl.commands)
app.add_typer(scrape.commands)
app.add_typer(pages.commands)
app.add_typer(jobs.commands)
app.add_typer(job_control.commands)
app.add_typer(worker.commands)
app.add_typer(queue.commands)
app.add_typer(plugins.commands)
app.add_typer(local_stack.commands)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Page titles come in any language; some terminals cannot print them.
            stream.reconfigure(errors='backslashreplace')
    try:
        app()
    except OSError as error:
        # For example, stdout is a file on a full disk.
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

    Try it on this machine: silkline crawl https://example.com

    On Supabase, the queue is a set of SQL migrations: `silkline install` copies
    them into your project, `supabase db push` applies them.
    """

"""The command `silkline crawl`: the whole way from a URL to its pages.

Owns its words, and that mistakes are told before anything is started: first the stack of this
directory, unless it runs, then the crawl (`crawl_run.py`). The stack stays afterwards: the pages
are in it. With `SUPABASE_URL` set, that project is the one, and no stack is started.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silkline.cli.arguments import read_options, refuse_port, with_scheme
from silkline.cli.commands.jobs import AsJson, UrlArgument, run
from silkline.cli.commands.local_stack import start_stack
from silkline.cli.commands.worker import read_networks
from silkline.errors import ExitCode, SettingsError
from silkline.settings import Project

if TYPE_CHECKING:
    from silkline.queue.rpc import Rpc

commands = typer.Typer()


@commands.command()
def crawl(
    url: UrlArgument,
    pages: Annotated[
        int | None,
        typer.Option('--pages', '--max-pages', min=1, help='How many pages are fetched at most.'),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            '--option',
            '-o',
            metavar='KEY=VALUE',
            help='Any option of a crawl (docs/reference/options.md).',
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar='DIR', help='Write a Markdown file per page there.', show_default=False
        ),
    ] = None,
    allow_network: Annotated[
        list[str] | None,
        typer.Option(
            metavar='CIDR',
            help='A network that the crawl may reach beside the public one, e.g. 127.0.0.0/8.',
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Crawl a site on this machine, and show what came of it.

    Starts what is not running: the local stack, a worker. Ctrl-C stops the crawl and keeps its
    pages.
    """
    address = with_scheme(url)
    made: list[Path] = []
    try:
        refuse_url(address)
        networks = read_networks(allow_network or [])
        options = read_options(option or [])
        if export is not None:
            refuse_export(export, address)
            made = make_directory(export)
    except SettingsError as error:
        typer.echo(f'silkline: {error}', err=True)
        raise typer.Exit(error.exit_code) from error

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli.crawl.run import Crawl

        payload: dict[str, object] = {
            **({'max_pages': pages} if pages else {}),
            **options,
            'url': address,
        }
        return await Crawl(rpc, project, allow_networks=networks).run(
            payload, export, as_json=as_json
        )

    try:
        if not os.environ.get('SUPABASE_URL'):
            start_stack()
        run(work)
    finally:
        remove_empty(made)


def refuse_url(url: str) -> None:
    """What is no URL beyond doubt; the queue has the last word."""
    if not re.match(r'https?://[^/?#]', url, re.IGNORECASE):
        raise SettingsError(
            f'{url!r} is no address of a site: it begins with http:// or https:// and a host,'
            ' like https://example.com'
        )
    refuse_port(url)


def refuse_export(directory: Path, url: str) -> None:
    """Before the crawl, which may take an hour."""
    from silkline.cli.export import refuse_foreign
    from silkline.crawl.urls import host_of

    refuse_foreign(directory, site=host_of(url))


def make_directory(directory: Path) -> list[Path]:
    """Nothing else tells that it can be made. Answers what is new, the inmost first."""
    new = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remove_empty(new)
        raise SettingsError(
            f'{error.filename}: {error.strerror}: name another directory'
        ) from error
    return new


def remove_empty(directories: list[Path]) -> None:
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()

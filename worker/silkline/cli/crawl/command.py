"""The command `silkline crawl`: from a URL to its pages.

Checks everything the user typed before it starts anything. Then it starts the local stack, unless
it is running, and the crawl (`run.py`). The stack keeps running afterwards: it has the pages. With
`SUPABASE_URL` set, the crawl runs in that project and no stack is started.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silkline.cli.arguments import (
    add_scheme,
    check_port,
    read_networks,
    read_options,
    use_ascii_hosts,
)
from silkline.cli.commands.local_stack import start_stack
from silkline.cli.runtime import AsJson, UrlArgument, exit_on_error, run
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
        typer.Option('--pages', '--max-pages', min=1, help='Maximum number of pages to fetch.'),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            '--option',
            '-o',
            metavar='KEY=VALUE',
            help='Any crawl option (docs/reference/options.md).',
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar='DIR', help='Write one Markdown file per page to DIR.', show_default=False
        ),
    ] = None,
    allow_network: Annotated[
        list[str] | None,
        typer.Option(
            metavar='CIDR', help='A private network that the crawl may reach, e.g. 127.0.0.0/8.'
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Crawl a site on this machine and print a summary.

    Starts the local stack and a worker if they are not running. Ctrl-C stops the crawl and keeps
    its pages.
    """
    address = add_scheme(url)
    created: list[Path] = []
    with exit_on_error():
        check_url(address)
        networks = read_networks(allow_network or [])
        options = read_options(option or [])
        if export is not None:
            check_export(export, address)
            created = create_directory(export)

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli.crawl.run import CrawlRun

        payload: dict[str, object] = {
            **({'max_pages': pages} if pages else {}),
            **options,
            'url': address,
        }
        crawl_run = CrawlRun(rpc, project, allow_networks=networks)
        return await crawl_run.run(use_ascii_hosts(payload), export, as_json=as_json)

    try:
        if not os.environ.get('SUPABASE_URL'):
            start_stack()
        run(work)
    finally:
        remove_empty(created)


def check_url(url: str) -> None:
    """Refuse what cannot be a URL of a site; the queue checks the rest."""
    if not re.match(r'https?://[^/?#]', url, re.IGNORECASE):
        raise SettingsError(f'{url!r} is not a URL: expected something like https://example.com')
    check_port(url)


def check_export(directory: Path, url: str) -> None:
    """Before the crawl, which may take an hour."""
    from silkline.cli.export.directory import check_directory
    from silkline.crawl.urls import host_of, with_ascii_host

    check_directory(directory, site=host_of(with_ascii_host(url)))


def create_directory(directory: Path) -> list[Path]:
    """Creating it is the only sure check that it can be created.

    Returns the new directories, innermost first.
    """
    new = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remove_empty(new)
        raise SettingsError(
            f'cannot create {error.filename}: {error.strerror}; choose another directory'
        ) from error
    return new


def remove_empty(directories: list[Path]) -> None:
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()

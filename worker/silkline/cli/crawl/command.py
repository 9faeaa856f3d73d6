"""The command `silkline crawl`: from a URL to its pages.

Checks everything the user typed before it starts anything. Then it starts the local stack, unless
it is running, and the crawl (`run.py`). The stack keeps running afterwards: it has the pages. With
`SUPABASE_URL` set, the crawl runs in that project and no stack is started.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from silkline.cli.arguments import is_bare_host, read_networks
from silkline.cli.commands.local_stack import start_stack
from silkline.cli.job_options import (
    AllowNetwork,
    AnyOption,
    Depth,
    Exclude,
    Include,
    Pages,
    ScopeOption,
    StartUrl,
    StrategyOption,
    Urls,
    make_payload,
)
from silkline.cli.runtime import AsJson, exit_on_error, run, run_here
from silkline.errors import ExitCode, SettingsError
from silkline.settings import Project

if TYPE_CHECKING:
    from silkline.queue.rpc import Rpc

commands = typer.Typer()


@commands.command()
def crawl(
    url: StartUrl = None,
    urls: Urls = None,
    pages: Pages = None,
    depth: Depth = None,
    scope: ScopeOption = None,
    include: Include = None,
    exclude: Exclude = None,
    strategy: StrategyOption = None,
    option: AnyOption = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar='DIR', help='Write one Markdown file per page to DIR.', show_default=False
        ),
    ] = None,
    allow_network: AllowNetwork = None,
    as_json: AsJson = False,
) -> None:
    """Crawl a site on this machine and print a summary.

    Starts the local stack and a worker if they are not running. Ctrl-C stops the crawl and keeps
    its pages.
    """
    created: list[Path] = []
    with exit_on_error():
        networks = read_networks(allow_network or [])
        payload = make_payload(
            None if url is None else ask_scheme(url, option or [], networks),
            urls=urls,
            pages=pages,
            depth=depth,
            scope=scope,
            include=include,
            exclude=exclude,
            strategy=strategy,
            option=option,
        )
        if export is not None:
            check_export(export, payload)
            created = create_directory(export)

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli.crawl.run import CrawlRun

        crawl_run = CrawlRun(rpc, project, allow_networks=networks)
        return await crawl_run.run(payload, export, as_json=as_json)

    try:
        if not os.environ.get('SUPABASE_URL'):
            start_stack()
        run(work)
    finally:
        remove_empty(created)


def ask_scheme(url: str, options: list[str], networks: tuple[str, ...]) -> str:
    """The URL with the scheme that its host speaks, unless another fetcher will be asked."""
    if not is_bare_host(url) or any(option.startswith('fetcher=') for option in options):
        return url
    from silkline.cli.scrape.scheme import find_scheme

    return run_here(find_scheme(url, allow_networks=networks))


def check_export(directory: Path, payload: dict[str, object]) -> None:
    """Before the crawl, which may take an hour."""
    from silkline.cli.export.directory import check_directory
    from silkline.crawl.urls import host_of

    starts = cast(list[str], payload.get('urls') or [payload['url']])
    hosts = {host_of(url) for url in starts}
    # Only the queue knows the name of a list of several hosts.
    if len(hosts) == 1:
        check_directory(directory, site=hosts.pop())


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

"""The commands `scrape` and `map`: one page as Markdown, the URLs of a site as lines.

Both run a crawl from memory (`from_memory.py`): no database, no stack, nothing to clean up.
"""

from typing import Annotated

import typer

from silkline.cli.arguments import read_networks, read_options, use_ascii_hosts
from silkline.cli.job_options import (
    AllowNetwork,
    AnyOption,
    Depth,
    Exclude,
    Include,
    ScopeOption,
    stay_below,
)
from silkline.cli.runtime import AsJson, exit_on_error, run_here
from silkline.errors import ExitCode, SettingsError

commands = typer.Typer()

UrlOfSite = Annotated[str, typer.Argument(metavar='URL', help='The URL to start from.')]
UrlOfPage = Annotated[str, typer.Argument(metavar='URL', help='The URL of the page.')]

# A person is waiting: fewer tries than a job has, and shorter pauses.
DEFAULTS = {'tries': 2, 'retry_seconds': 1.0, 'max_seconds': 300}


@commands.command()
def scrape(
    url: UrlOfPage,
    option: AnyOption = None,
    allow_network: AllowNetwork = None,
    as_json: AsJson = False,
) -> None:
    """Print one page as Markdown; nothing is stored.

    Needs no stack, no project and no worker.
    """
    with exit_on_error():
        options = check_options(option)
        networks = read_networks(allow_network or [])
        code = run_here(print_one(url, options, networks, as_json=as_json))
    raise typer.Exit(code)


@commands.command('map')
def map_site(
    url: UrlOfSite,
    pages: Annotated[
        int, typer.Option('--pages', '--max-pages', min=1, help='Maximum number of URLs to print.')
    ] = 1000,
    depth: Depth = None,
    scope: ScopeOption = None,
    include: Include = None,
    exclude: Exclude = None,
    option: AnyOption = None,
    allow_network: AllowNetwork = None,
    as_json: AsJson = False,
) -> None:
    """Print the URLs of a site, one per line; nothing is stored.

    They come from its sitemaps and the links of its start page; without a sitemap, from the links
    of all pages.
    """
    with exit_on_error():
        options = check_options(option)
        chosen = {'max_depth': depth, 'scope': scope, 'include': include, 'exclude': exclude}
        options |= {name: value for name, value in chosen.items() if value}
        networks = read_networks(allow_network or [])
        code = run_here(print_all(url, options, networks, pages=pages, as_json=as_json))
    raise typer.Exit(code)


async def print_one(
    url: str, options: dict[str, object], networks: tuple[str, ...], *, as_json: bool
) -> ExitCode:
    from silkline.cli.scrape.page import print_page
    from silkline.cli.scrape.scheme import find_scheme

    address = await find_scheme(url, allow_networks=networks)
    payload = use_ascii_hosts({**DEFAULTS, **options, 'url': address, 'strategy': 'page'})
    return await print_page(payload, allow_networks=networks, as_json=as_json)


async def print_all(
    url: str, options: dict[str, object], networks: tuple[str, ...], *, pages: int, as_json: bool
) -> ExitCode:
    from silkline.cli.scrape.scheme import find_scheme
    from silkline.cli.scrape.site_map import print_map

    address = await find_scheme(url, allow_networks=networks)
    payload = stay_below(
        use_ascii_hosts({**DEFAULTS, 'markdown': 'none', **options, 'url': address})
    )
    return await print_map(payload, pages=pages, allow_networks=networks, as_json=as_json)


def check_options(option: list[str] | None) -> dict[str, object]:
    """The options of a crawl that no queue checks."""
    from silkline.crawl.options import CrawlOptions

    options = read_options(option or [])
    known = {*CrawlOptions.__struct_fields__, 'max_seconds'} - {'policy', 'url', 'urls', 'strategy'}
    for name in options.keys() - known:
        raise SettingsError(f'--option: {name!r} is not an option of this command')
    return options

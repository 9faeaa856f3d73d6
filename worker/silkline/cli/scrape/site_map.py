"""The URLs of a site, printed as they are found.

Owns where they come from: the sitemaps of the site and the links of its start page; without a
sitemap, the links of all pages. URLs that turn out to redirect, to fail or to be skipped are left
out, which only reading them can show.
"""

from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
import typer

from silkline import protocol
from silkline.cli.runtime import print_message
from silkline.cli.scrape.from_memory import MemoryFrontier, crawl_from_memory
from silkline.cli.scrape.page import explain_failure
from silkline.cli.terminal import printable
from silkline.errors import ExitCode
from silkline.queue.rows import UrlRow


async def print_map(
    payload: dict[str, Any], *, pages: int, allow_networks: tuple[str, ...], as_json: bool
) -> ExitCode:
    """Print up to `pages` URLs; the same number of pages is read at most."""
    listed = MemoryFrontier(is_sitemap)
    _, urls = await find_urls(
        {**payload, 'strategy': 'sitemap'}, listed, most=pages, allow_networks=allow_networks
    )
    urls = {key: url for key, url in urls.items() if not is_sitemap(listed.found[key])}
    # Where there is a sitemap, only the start page is read.
    linked = MemoryFrontier(lambda found: True, max_pages=1 if urls else pages)
    failed_start, found = await find_urls(
        {**payload, 'strategy': 'site'},
        linked,
        most=pages,
        allow_networks=allow_networks,
    )
    # The start page comes first.
    urls = {**found, **urls}
    if not urls:
        why = explain_failure(failed_start) if failed_start else f'{payload["url"]}: no URLs found'
        print_message(f'silkline: {printable(why)}')
        return ExitCode.NOT_COMPLETED
    lines = list(urls.values())[:pages]
    if as_json:
        typer.echo(msgspec.json.encode(lines))
    else:
        typer.echo(printable('\n'.join(lines)))
    if len(urls) > pages:
        print_message(f'silkline: {len(urls)} URLs were found, the first {pages} are listed')
    return ExitCode.OK


def is_sitemap(found: protocol.FoundUrl) -> bool:
    path = urlsplit(found.url).path.lower()
    return found.depth == 0 or path.endswith(('.xml', '.xml.gz')) or 'sitemap' in path


async def find_urls(
    payload: dict[str, Any],
    frontier: MemoryFrontier,
    *,
    most: int,
    allow_networks: tuple[str, ...],
) -> tuple[UrlRow | None, dict[UUID, str]]:
    """The URLs that were found, until there are enough, and why the start failed if it did."""
    unusable: set[UUID] = set()
    failed_start: UrlRow | None = None
    async with aclosing(
        crawl_from_memory(payload, frontier, allow_networks=allow_networks)
    ) as crawl:
        async for row, page in crawl:
            if page is None:
                unusable.add(row.url_key)
                if row.depth == 0 and row.skip_reason != 'redirect':
                    failed_start = row
            if len(frontier.found) - len(unusable) > most:
                break
    urls = {key: one.url for key, one in frontier.found.items() if key not in unusable}
    return failed_start, urls

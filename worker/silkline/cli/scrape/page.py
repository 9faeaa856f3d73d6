"""One page, fetched now and printed.

Owns which page that is: the one that was asked for, or the one that it redirects to. A page that
was not stored is one sentence on stderr and exit code 4, as for a crawl.
"""

from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

import msgspec
import typer

from silkline import protocol
from silkline.cli import wording
from silkline.cli.crawl.summary import allow_network_option
from silkline.cli.runtime import print_message
from silkline.cli.scrape.from_memory import MemoryFrontier, crawl_from_memory
from silkline.cli.terminal import printable
from silkline.errors import ExitCode
from silkline.queue.rows import UrlRow


async def print_page(
    payload: dict[str, Any], *, allow_networks: tuple[str, ...], as_json: bool
) -> ExitCode:
    row, page = await fetch_page(payload, allow_networks=allow_networks)
    if page is None:
        print_message(f'silkline: {printable(explain_failure(row))}')
        return ExitCode.NOT_COMPLETED
    if as_json:
        fields = {name: getattr(page, name) for name in page.__struct_fields__}
        typer.echo(msgspec.json.encode({'asked_url': payload['url'], **fields}))
    else:
        typer.echo(page.markdown or '')
    for warning in page.quality.warnings if page.quality else ():
        print_message(f'silkline: {warning}: {wording.PAGE_WARNINGS[warning]}')
    return ExitCode.OK


async def fetch_page(
    payload: dict[str, Any], *, allow_networks: tuple[str, ...]
) -> tuple[UrlRow, protocol.Page | None]:
    """How the page at the end of the redirects ended."""
    # Start URLs and targets of redirects are not found on a page.
    frontier = MemoryFrontier(lambda found: found.found_on is None)
    crawl = crawl_from_memory(payload, frontier, allow_networks=allow_networks)
    last: tuple[UrlRow, protocol.Page | None] | None = None
    # Closed at once: a generator that is closed later leaves its process behind for as long.
    async with aclosing(crawl):
        async for row, page in crawl:
            last = row, page
    if last is None:
        raise RuntimeError('the crawl ended without a result')
    return last


def explain_failure(row: UrlRow) -> str:
    """Why there is no page, and what to do about it."""
    from silkline.crawl.urls import BAD_PORTS

    text = f'{row.url}: {wording.describe_failure(row)}'
    if row.skip_reason == 'forbidden_address' and urlsplit(row.url).port not in BAD_PORTS:
        return f'{text}\nTo allow its network, add {allow_network_option(row.url)}'
    return text

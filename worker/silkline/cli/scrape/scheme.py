"""Which scheme a host speaks that was typed without one: https, unless only http answers."""

from typing import Any

from silkline.cli.arguments import add_scheme, check_url, use_ascii_hosts
from silkline.cli.runtime import print_message
from silkline.cli.scrape.page import fetch_page
from silkline.queue.rows import UrlRow

# Enough to see whether something answers.
PROBE = {
    'strategy': 'page',
    'markdown': 'none',
    'tries': 1,
    'retry_seconds': 0.5,
    'timeout_seconds': 5.0,
    'max_seconds': 20,
}


async def find_scheme(typed: str, *, allow_networks: tuple[str, ...]) -> str:
    """The URL as it is crawled. Only a host that was typed without a scheme is asked."""
    url = add_scheme(typed)
    check_url(url)
    if url == typed or url.startswith('http://'):
        return url
    if await answers(url, allow_networks=allow_networks):
        return url
    plain = 'http://' + url.removeprefix('https://')
    if await answers(plain, allow_networks=allow_networks):
        print_message(f'silkline: {url} does not answer; using {plain}')
        return plain
    return url


async def answers(url: str, *, allow_networks: tuple[str, ...]) -> bool:
    payload: dict[str, Any] = use_ascii_hosts({**PROBE, 'url': url})
    row, _ = await fetch_page(payload, allow_networks=allow_networks)
    return has_answered(row)


def has_answered(row: UrlRow) -> bool:
    return row.http_status is not None or row.skip_reason not in (None, 'host_unavailable')

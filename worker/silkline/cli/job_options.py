"""What `crawl` and `enqueue` ask of a job: the options that both take, and the payload they make.

Owns the defaults that only a command line has: a list of URLs is the strategy `list`, and a start
URL with a path is crawled from there down. The queue checks the values.
"""

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from silkline.cli.arguments import add_scheme, check_url, read_options, use_ascii_hosts
from silkline.cli.runtime import print_message
from silkline.errors import SettingsError

StartUrl = Annotated[
    str | None,
    typer.Argument(metavar='URL', help='The URL to start from.', show_default=False),
]
Urls = Annotated[
    str | None,
    typer.Option(
        '--urls', metavar='FILE', help='Fetch the URLs in FILE, one per line; - reads stdin.'
    ),
]
Pages = Annotated[
    int | None,
    typer.Option('--pages', '--max-pages', min=1, help='Maximum number of pages to fetch.'),
]
Depth = Annotated[
    int | None,
    typer.Option(
        '--depth', '--max-depth', min=0, help='Maximum number of links from the start URL.'
    ),
]
ScopeOption = Annotated[
    str | None,
    typer.Option('--scope', help='Which links to follow: host, domain, or prefix (below the URL).'),
]
Include = Annotated[
    list[str] | None,
    typer.Option('--include', metavar='REGEX', help='Only URLs that match; may be repeated.'),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option('--exclude', metavar='REGEX', help='No URLs that match; may be repeated.'),
]
StrategyOption = Annotated[
    str | None, typer.Option('--strategy', help='page, site, sitemap, list or llms_txt.')
]
AnyOption = Annotated[
    list[str] | None,
    typer.Option('--option', '-o', metavar='KEY=VALUE', help='Any other option of a job.'),
]

AllowNetwork = Annotated[
    list[str] | None,
    typer.Option(
        '--allow-network',
        metavar='CIDR',
        help='A private network that the crawl may reach, e.g. 127.0.0.0/8.',
    ),
]


def make_payload(
    url: str | None,
    *,
    urls: str | None,
    pages: int | None,
    depth: int | None,
    scope: str | None,
    include: list[str] | None,
    exclude: list[str] | None,
    strategy: str | None,
    option: list[str] | None,
    kind: str = 'crawl',
) -> dict[str, object]:
    """The options of a job. An option of its own wins over the same one given with -o."""
    given: dict[str, object | None] = {
        'max_pages': pages,
        'max_depth': depth,
        'scope': scope,
        'include': include or None,
        'exclude': exclude or None,
        'strategy': strategy,
    }
    payload = read_options(option or [])
    payload |= {name: value for name, value in given.items() if value is not None}
    if (url is None) == (urls is None):
        raise SettingsError('expected a URL, or --urls FILE with a list of URLs')
    if url is not None:
        payload['url'] = address = add_scheme(url)
        check_url(address)
    elif urls is not None:
        payload |= {'strategy': 'list', 'urls': read_urls(urls)}
    payload = use_ascii_hosts(payload)
    return stay_below(payload) if kind == 'crawl' else payload


def stay_below(payload: dict[str, object]) -> dict[str, object]:
    """The payload with the scope `prefix` if the user started below the top and chose no scope."""
    place = place_below(payload)
    if place is None:
        return payload
    print_message(f'silkline: crawling {place} and below; --scope host crawls the whole site')
    return {**payload, 'scope': 'prefix'}


def read_urls(name: str) -> list[str]:
    """The URLs of a file, one per line; blank lines and lines that start with # are ignored."""
    try:
        text = sys.stdin.read() if name == '-' else Path(name).read_text(encoding='utf-8-sig')
    except OSError as error:
        raise SettingsError(f'--urls {name}: {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise SettingsError(f'--urls {name}: the file is not UTF-8 text') from error
    lines = [line.strip() for line in text.splitlines()]
    urls = [add_scheme(line) for line in lines if line and not line.startswith('#')]
    if not urls:
        raise SettingsError(f'--urls {name} has no URLs: expected one per line')
    for url in urls:
        check_url(url)
    # A URL that is listed twice is fetched once.
    return list(dict.fromkeys(urls))


def place_below(payload: dict[str, object]) -> str | None:
    """Where a crawl stays because its start URL has a path and the user did not say where.

    None if the user chose links by another option, or the URL stands for its whole host.
    """
    from silkline.crawl.engine.scope import directory_of

    url = payload.get('url')
    is_chosen = payload.keys() & {'scope', 'include', 'exclude'}
    if not isinstance(url, str) or is_chosen or payload.get('strategy', 'site') != 'site':
        return None
    path = directory_of(url)
    parts = urlsplit(url)
    return None if path == '/' else f'{parts.scheme}://{parts.netloc}{path}'

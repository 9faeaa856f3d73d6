"""The options of a crawl, as the database has checked them (docs/reference/options.md)."""

import re
from typing import Any, Literal

import msgspec

from silkline.errors import SilklineError

# Where the URLs of links are written: behind their text, nowhere, or in a list at the end.
LinkStyle = Literal['inline', 'none', 'references']

CONTROL = re.compile('[\x00-\x1f\x7f-\x9f]')
PORT = re.compile(r':\d*\Z')


class CrawlError(SilklineError):
    """The job asks for something this worker cannot do. It fails and is not retried."""


class HostPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which hosts the operator of the queue lets the owner of this job crawl.

    An entry stands for a host and for every host below it: `example.com` for www.example.com, but
    not for badexample.com.
    """

    # None: all hosts that are not denied.
    allow_hosts: list[str] | None = None
    deny_hosts: list[str] = []

    def refusal(self, host: str) -> str | None:
        """Why nothing may be requested from a host, with or without its port; None if it may."""
        # The port follows the last colon, unless that is part of an IPv6 address.
        name = host if host.endswith(']') else PORT.sub('', host)
        name = name.strip('[]').rstrip('.').lower()
        denied = next((entry for entry in self.deny_hosts if is_at_or_below(name, entry)), None)
        if denied is not None:
            return f'the operator of this queue denies crawls of {denied}'
        if self.allow_hosts is not None and not any(
            is_at_or_below(name, entry) for entry in self.allow_hosts
        ):
            return f'{name} is not one of the hosts that the operator of this queue allows'
        return None


def is_at_or_below(host: str, entry: str) -> bool:
    entry = entry.strip('[]').rstrip('.').lower()
    return host == entry or host.endswith(f'.{entry}')


class CrawlOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The database sets every option; the defaults here repeat its own, for tests."""

    url: str | None = None
    urls: list[str] = []
    strategy: Literal['page', 'site', 'sitemap', 'list', 'llms_txt'] = 'site'
    max_depth: int = 20
    max_page_bytes: int = 10 * 1024 * 1024
    scope: Literal['host', 'domain', 'prefix'] = 'host'
    include: list[str] = []
    exclude: list[str] = []
    fetcher: str = 'auto'
    # For pages that a browser renders: what to wait for before the page is read.
    wait_for: str | None = None
    wait_seconds: float = 0.0
    scroll: bool = False
    extractor: str = 'default'
    markdown: Literal['main', 'full', 'none'] = 'main'
    links: LinkStyle = 'inline'
    max_markdown_chars: int = 5_000_000
    obey_robots: bool = True
    follow_nofollow: bool = False
    keep_noindex: bool = False
    only_changes: bool = True
    concurrency: int = 8
    delay_seconds: float = 0.0
    timeout_seconds: float = 20.0
    tries: int = 3
    retry_seconds: float = 10.0
    user_agent: str | None = None
    # Set by the queue alone.
    policy: HostPolicy = HostPolicy()

    @classmethod
    def read(cls, payload: dict[str, Any]) -> 'CrawlOptions':
        try:
            options = msgspec.convert(payload, cls)
        except msgspec.ValidationError as error:
            raise CrawlError(f'invalid crawl options: {error}') from error
        if options.user_agent and CONTROL.search(options.user_agent):
            raise CrawlError('user_agent must not contain control characters')
        return options

    @property
    def starts(self) -> list[str]:
        return self.urls or ([self.url] if self.url else [])

"""Where a crawl starts, and which links it follows: one class per strategy."""

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

from silkline.crawl.fetched import LinkKind
from silkline.crawl.options import CrawlError, CrawlOptions
from silkline.crawl.urls import host_of, join

SITEMAP_ENDINGS = ('.xml', '.xml.gz', '.txt')
# A sitemap index may name further indexes.
MAX_SITEMAP_DEPTH = 5
MAX_SITEMAPS = 200


class Strategy(Protocol):
    def starts(self, sitemaps: Sequence[str]) -> list[str]:
        """The start URLs; `sitemaps` are those that robots.txt names."""
        ...

    def follows(self, kind: LinkKind, *, depth: int) -> bool:
        """Whether links of that kind, found at that depth, are fetched."""
        ...


class ListStrategy:
    """`page` and `list`: these URLs and no others."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls

    def starts(self, sitemaps: Sequence[str]) -> list[str]:
        return list(self._urls)

    def follows(self, kind: LinkKind, *, depth: int) -> bool:
        return False


class SiteStrategy(ListStrategy):
    """`site`: everything that can be reached by links, breadth first."""

    def follows(self, kind: LinkKind, *, depth: int) -> bool:
        return True


class SitemapStrategy:
    """`sitemap`: the URLs in the sitemaps of a site."""

    def __init__(self, url: str) -> None:
        self._url = url

    def starts(self, sitemaps: Sequence[str]) -> list[str]:
        if urlsplit(self._url).path.lower().endswith(SITEMAP_ENDINGS):
            return [self._url]
        # In robots.txt some are relative, and some are not URLs.
        named = [url for text in sitemaps[:MAX_SITEMAPS] if (url := join(self._url, text))]
        return named or [at_root(self._url, '/sitemap.xml')]

    def follows(self, kind: LinkKind, *, depth: int) -> bool:
        return kind == 'sitemap' and depth < MAX_SITEMAP_DEPTH


class LlmsTxtStrategy:
    """`llms_txt`: the links in the llms.txt of a site."""

    def __init__(self, url: str) -> None:
        self._url = url

    def starts(self, sitemaps: Sequence[str]) -> list[str]:
        if urlsplit(self._url).path.lower().endswith(('.txt', '.md')):
            return [self._url]
        return [at_root(self._url, '/llms.txt')]

    def follows(self, kind: LinkKind, *, depth: int) -> bool:
        return kind == 'page' and depth == 0


def strategy_of(options: CrawlOptions) -> Strategy:
    starts = options.starts
    if not starts:
        raise CrawlError('the job has no URL to start with')
    match options.strategy:
        case 'page' | 'list':
            return ListStrategy(starts)
        case 'site':
            return SiteStrategy(starts)
        case 'sitemap':
            return SitemapStrategy(starts[0])
        case 'llms_txt':
            return LlmsTxtStrategy(starts[0])


def is_list_of_many_hosts(options: CrawlOptions) -> bool:
    if options.strategy != 'list':
        return False
    return len({host_of(join(url, '') or url) for url in options.starts}) > 1


def at_root(url: str, path: str) -> str:
    root = join(url, path)
    if root is None:
        raise CrawlError(f'{url[:200]} is not a URL that can be fetched')
    return root

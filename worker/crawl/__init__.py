"""The crawl, as it runs inside a runner. Which fetcher a job gets is decided here."""

from typing import Any

from worker.crawl.loop import Fetcher


class CrawlError(Exception):
    """The options ask for something that is not here. The job fails and is not retried."""


def make_fetcher(kind: str, payload: dict[str, Any]) -> Fetcher:
    name = payload.get('fetcher', 'http')
    if kind == 'crawl' and name == 'null':
        from worker.crawl.null import NullFetcher

        return NullFetcher()
    raise CrawlError(f'no fetcher {name!r} for jobs of kind {kind!r}')

"""One job: which parts of the crawl it needs, put together.

`loop.py` is where to read on: it leases URLs, lets `hosts.py` say when each may be fetched, has a
fetcher fetch it (`http.py` through `egress.py`), and hands in what came of it
(`frontier.py`). Imports stand where they are needed: whoever waits for the first page waits for
them.
"""

import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from silkline import __version__, protocol
from silkline.crawl.options import CrawlError, CrawlOptions

if TYPE_CHECKING:
    from silkline.crawl.documents.job_kinds import PluginJobKind
    from silkline.crawl.engine.strategies import Strategy
    from silkline.crawl.fetched import Fetcher
    from silkline.crawl.fetchers.http import DocumentReader, FetchUrl
    from silkline.crawl.net.egress import Egress

# What robots.txt knows this crawler by.
TOKEN = 'silkline'  # noqa: S105 - no secret
# Sent unless a job has its own.
USER_AGENT = f'{TOKEN}/{__version__}'


async def run_job(channel: protocol.Channel, start: protocol.Start) -> protocol.Done:
    """Crawl until the frontier has drained or the user wants otherwise."""
    from silkline.crawl.engine.frontier import Frontier
    from silkline.crawl.engine.host_rules import HostRules
    from silkline.crawl.engine.loop import CrawlLoop
    from silkline.crawl.engine.scope import Scope
    from silkline.crawl.engine.visits import Visits

    options = CrawlOptions.read(start.payload)
    kind = kind_of(start)
    strategy = strategy_for(start, options, kind)
    starts = options.starts if kind is None else strategy.starts(())
    if not starts:
        raise CrawlError('there is no URL to begin with')
    try:
        scope = Scope(starts, kind=options.scope, include=options.include, exclude=options.exclude)
    except ValueError as error:
        raise CrawlError(str(error)) from error
    # Only links lead away from the start; lists are meant as they are.
    max_depth = options.max_depth if options.strategy == 'site' else 1000
    frontier = Frontier(channel, scope, max_depth=max_depth)
    async with fetcher_for(start, options, channel, kind) as (fetcher, egress):
        host_rules = HostRules(
            channel,
            egress if options.obey_robots or options.strategy == 'sitemap' else None,
            agent=agent_of(options),
            obeys=options.obey_robots,
            tries=options.tries,
            timeout_seconds=options.timeout_seconds,
            concurrency=options.concurrency,
        )
        crawl = CrawlLoop(
            channel,
            Visits(channel, fetcher, frontier, host_rules, strategy, options),
            frontier,
            host_rules,
            strategy,
            options,
            first_url=starts[0],
        )
        collect_rarely()
        return await crawl.run(kind.result if kind else dict)


def collect_rarely() -> None:
    """Take what is loaded for good out of the garbage collector's rounds, and make them rarer.

    Pages are trees of thousands of objects that free themselves: looking for cycles among them
    takes a tenth of the time of extraction.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def kind_of(start: protocol.Start) -> 'PluginJobKind | None':
    """The plugin that jobs of this kind belong to; None for a plain crawl."""
    if start.kind == 'crawl':
        return None
    from silkline.crawl.documents.job_kinds import PluginJobKind

    return PluginJobKind.load(start.kind)


def strategy_for(
    start: protocol.Start, options: CrawlOptions, kind: 'PluginJobKind | None'
) -> 'Strategy':
    from silkline.crawl.engine.strategies import SiteStrategy, strategy_of

    return strategy_of(options) if kind is None else SiteStrategy(kind.starts(start.payload))


@asynccontextmanager
async def fetcher_for(
    start: protocol.Start,
    options: CrawlOptions,
    channel: protocol.Channel,
    kind: 'PluginJobKind | None',
) -> 'AsyncGenerator[tuple[Fetcher, Egress]]':
    """The fetcher that the job names, open as long as the crawl runs, and its way out."""
    from silkline.crawl.net.tls import SystemTrust, no_certificates

    with no_certificates():
        from silkline.crawl.net.egress import Egress
    from silkline.crawl.fetchers.http import HttpFetcher

    reader = await reader_for(start, options, channel, kind)
    try:
        egress = Egress(
            allow_networks=start.allow_networks,
            # As many pages at a time, and as many robots.txt beside them.
            connections=2 * options.concurrency,
            user_agent=options.user_agent or USER_AGENT,
            tls=SystemTrust(),
        )
    except ValueError as error:
        raise CrawlError(str(error)) from error
    async with egress, way_for(options, egress) as get:
        yield HttpFetcher(get, reader, options), egress


@asynccontextmanager
async def way_for(options: CrawlOptions, egress: 'Egress') -> 'AsyncGenerator[FetchUrl]':
    if options.fetcher == 'http':
        yield egress.fetch
    elif options.fetcher == 'browser':
        from silkline.crawl.fetchers.browser import open_browser

        async with open_browser(egress) as get:
            yield get
    else:
        from silkline.crawl.fetchers.plugin import open_fetcher

        async with open_fetcher(options.fetcher, egress) as get:
            yield get


async def reader_for(
    start: protocol.Start,
    options: CrawlOptions,
    channel: protocol.Channel,
    kind: 'PluginJobKind | None',
) -> 'DocumentReader':
    """What makes a page of a response: this engine, or the plugin of a kind of jobs."""
    from silkline.crawl.documents.reader import PageReader

    if kind is not None:
        from silkline.crawl.documents.job_kinds import JobKindReader

        return JobKindReader(kind)
    hooks = extractor = None
    if start.has_plugins or options.extractor != 'default':
        from silkline.crawl.documents.plugin_pages import PageHooks, PluginExtractor
        from silkline.crawl.installed_plugins import page_hooks

        found, errors = page_hooks()
        for error in errors:
            await channel.send(protocol.Log(level='warning', message=error))
        hooks = PageHooks(found) if found else None
        if options.extractor != 'default':
            extractor = PluginExtractor.load(options.extractor)
    return PageReader(options, agent=agent_of(options), extractor=extractor, hooks=hooks)


def agent_of(options: CrawlOptions) -> str:
    """The product token of the user agent, which robots.txt may name."""
    from silkline.crawl.engine.robots import product_token

    return product_token(options.user_agent or TOKEN) or TOKEN

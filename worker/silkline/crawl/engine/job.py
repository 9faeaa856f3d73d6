"""Put together the parts of the crawl that one job needs, and run it.

Read on in `loop.py`: it leases URLs, waits until `hosts.py` allows each one, has a fetcher fetch
it (`fetchers/http.py` through `net/egress.py`), and sends the result (`frontier.py`). Imports
are where they are needed: each one delays the first page.
"""

import gc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from silkline import __version__, protocol
from silkline.crawl.options import CrawlError, CrawlOptions

if TYPE_CHECKING:
    from silkline.crawl.documents.job_kinds import PluginJobKind
    from silkline.crawl.engine.strategies import Strategy
    from silkline.crawl.fetched import Fetcher
    from silkline.crawl.fetchers.browser import Waits
    from silkline.crawl.fetchers.http import DocumentReader, FetchUrl, Render
    from silkline.crawl.net.egress import Egress

# The name of this crawler in robots.txt.
TOKEN = 'silkline'  # noqa: S105 - not a secret
# Unless the job sets another one.
USER_AGENT = f'{TOKEN}/{__version__}'


async def run_job(channel: protocol.Channel, start: protocol.Start) -> protocol.Done:
    """Crawl until the frontier has drained or the user pauses or stops the job."""
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
        raise CrawlError('the job has no URL to start with')
    scope = Scope.of_job(options, starts)
    # `max_depth` limits following links; URLs in lists and sitemaps are always fetched.
    max_depth = options.max_depth if options.strategy == 'site' else 1000
    frontier = Frontier(channel, scope, max_depth=max_depth)
    async with fetcher_for(start, options, channel, kind) as (fetcher, egress):
        host_rules = HostRules(
            channel,
            egress if options.obey_robots or options.strategy == 'sitemap' else None,
            policy=options.policy,
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
            handed_over=start.tasks,
        )
        collect_garbage_rarely()
        return await crawl.run(kind.result if kind else dict)


def collect_garbage_rarely() -> None:
    """Exclude what is loaded by now from garbage collection, and collect less often.

    Pages are trees of thousands of objects that free themselves: searching them for cycles takes
    a tenth of the time of extraction.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def kind_of(start: protocol.Start) -> 'PluginJobKind | None':
    """The plugin for the kind of this job; None for an ordinary crawl."""
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
    """The fetcher of the job, open as long as the crawl runs, and the egress behind it."""
    from silkline.crawl.net.tls import SystemTrust, no_certificates

    with no_certificates():
        from silkline.crawl.net.egress import Egress
    from silkline.crawl.fetchers.http import HttpFetcher

    reader = await reader_for(start, options, channel, kind)
    try:
        egress = Egress(
            allow_networks=start.allow_networks,
            refuse_host=options.policy.refusal,
            # For as many pages at a time, and as many robots.txt at the same time.
            connections=2 * options.concurrency,
            user_agent=options.user_agent or USER_AGENT,
            tls=SystemTrust(),
        )
    except ValueError as error:
        raise CrawlError(str(error)) from error
    async with egress:
        if options.fetcher == 'auto':
            async with open_render(start, options, egress, channel) as render:
                yield (
                    HttpFetcher(
                        egress.fetch,
                        reader,
                        options,
                        render=render,
                        leaves_scripted_pages=start.can_render and not start.limits.processes,
                    ),
                    egress,
                )
        else:
            async with open_fetch_url(options, egress) as fetch_url:
                yield HttpFetcher(fetch_url, reader, options), egress


@asynccontextmanager
async def open_render(
    start: protocol.Start, options: CrawlOptions, egress: 'Egress', channel: protocol.Channel
) -> 'AsyncGenerator[Render | None]':
    """A browser for the pages that scripts draw, if this runner may have one."""
    if not start.limits.processes:
        yield None
        return
    from silkline.crawl.fetchers.browser import BrowserFetcher, BrowserMissing

    async with AsyncExitStack() as stack:
        try:
            browser = await stack.enter_async_context(
                BrowserFetcher(egress, waits=waits_of(options))
            )
        except BrowserMissing as error:
            await channel.send(protocol.Log(level='warning', message=str(error)))
            yield None
        else:
            yield browser.render


def waits_of(options: CrawlOptions) -> 'Waits':
    from silkline.crawl.fetchers.browser import Waits

    return Waits(selector=options.wait_for, seconds=options.wait_seconds, scrolls=options.scroll)


@asynccontextmanager
async def open_fetch_url(options: CrawlOptions, egress: 'Egress') -> 'AsyncGenerator[FetchUrl]':
    """What makes the requests: the egress itself, a browser, or a plugin."""
    if options.fetcher == 'http':
        yield egress.fetch
    elif options.fetcher == 'browser':
        from silkline.crawl.fetchers.browser import BrowserFetcher

        async with BrowserFetcher(egress, waits=waits_of(options)) as browser:
            yield browser.fetch
    else:
        from silkline.crawl.fetchers.plugin import open_fetcher

        async with open_fetcher(options.fetcher, egress) as fetch_url:
            yield fetch_url


async def reader_for(
    start: protocol.Start,
    options: CrawlOptions,
    channel: protocol.Channel,
    kind: 'PluginJobKind | None',
) -> 'DocumentReader':
    """What turns responses into pages: the built-in reader, or the plugin of a job kind."""
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

"""One URL from its turn to its outcome.

Owns what an outcome means: for the URL (done, skipped, failed, retried), for its host (success or
failure) and for the frontier (links, redirects). When its turn comes is left to `hosts.py` and
`loop.py`, what a response contains to the fetcher.
"""

import asyncio
from dataclasses import replace
from uuid import UUID

import msgspec

from silkline import protocol
from silkline.crawl.engine.frontier import Frontier
from silkline.crawl.engine.host_rules import HostRules
from silkline.crawl.engine.hosts import Host
from silkline.crawl.engine.strategies import Strategy
from silkline.crawl.fetched import Fetched, Fetcher
from silkline.crawl.options import CrawlOptions
from silkline.crawl.retries import retry_delay_seconds
from silkline.crawl.urls import key_of

# Redirects between URLs with one key, such as to drop utm_source: they are one URL of the frontier.
MAX_SAME_KEY_REDIRECTS = 5
# How often one URL may be rate-limited, in addition to its tries.
MAX_REFUSALS = 4
MAX_REFUSED = 10_000


class Visits:
    def __init__(
        self,
        channel: protocol.Channel,
        fetcher: Fetcher,
        frontier: Frontier,
        host_rules: HostRules,
        strategy: Strategy,
        options: CrawlOptions,
    ) -> None:
        self._channel = channel
        self._fetcher = fetcher
        self._frontier = frontier
        self._host_rules = host_rules
        self._strategy = strategy
        self._options = options
        # Pages that have not changed, which end when their stored links have arrived.
        self.unchanged: dict[UUID, tuple[protocol.Task, Fetched]] = {}
        # Pages that scripts draw, for a runner that has a browser.
        self.for_browser: list[protocol.Task] = []
        self._refused: dict[UUID, int] = {}

    async def visit(self, host: Host, task: protocol.Task) -> None:
        if host.refusal is not None:
            await self._frontier.finish(task, refused(host))
        elif not self._host_rules.allows(host, task.url):
            await self._frontier.skip(task, 'robots')
        elif self._frontier.is_trapped(task.url):
            await self._frontier.skip(task, 'trap')
        else:
            await self._channel.send(protocol.Begun(url_key=task.url_key, url=task.url))
            started_at = asyncio.get_running_loop().time()
            fetched = await self._fetch(host, task)
            if fetched.retry_class is not None:
                await self._handle_failure(host, task, fetched, started_at)
            else:
                await self._handle_result(host, task, fetched, started_at)

    async def _fetch(self, host: Host, task: protocol.Task) -> Fetched:
        fetched = await self._fetcher.fetch(task)
        tried = {task.url}
        # A site that redirects until it sees its cookie would do so forever.
        while (target := fetched.redirect) is not None and key_of(target) == task.url_key:
            if target in tried or len(tried) > MAX_SAME_KEY_REDIRECTS:
                return Fetched(
                    status='error',
                    http_status=fetched.http_status,
                    error='redirect loop: it redirects to itself, perhaps to set a cookie',
                )
            tried.add(target)
            await asyncio.sleep(host.min_delay_seconds + host.added_delay_seconds)
            fetched = await self._fetcher.fetch(msgspec.structs.replace(task, url=target))
        return fetched

    async def _handle_result(
        self, host: Host, task: protocol.Task, fetched: Fetched, started_at: float
    ) -> None:
        # The time a browser needs to render a page says nothing about the host.
        seconds = fetched.seconds if self._options.fetcher in ('auto', 'http') else 0.0
        has_answered = fetched.http_status is not None
        if has_answered and host.record_success(seconds, started_at=started_at):
            await self._channel.send(
                protocol.HostFact(host=host.name, backoff_seconds=0, error_streak=0)
            )
        if fetched.needs_browser:
            self.for_browser.append(task)
            return
        if fetched.redirect is not None:
            await self._frontier.redirect(task, fetched, fetched.redirect)
            return
        if fetched.not_modified and self._strategy.follows('page', depth=task.depth):
            self.unchanged[task.url_key] = (task, fetched)
            return
        await self._send_links(task, fetched)
        canonical = fetched.canonical
        # A URL that the user listed is stored even if it names another one as canonical.
        if (
            canonical is not None
            and self._strategy.follows('page', depth=task.depth)
            and self._host_rules.allows(host, canonical)
        ):
            page = fetched.page and without_revalidation(fetched.page)
            await self._frontier.finish_copy(task, replace(fetched, page=page), canonical)
        else:
            await self._frontier.finish(task, fetched)

    async def finish_unchanged(self, stored: protocol.StoredLinks) -> None:
        """End a page that has not changed, with the links of its stored version."""
        task, fetched = self.unchanged.pop(stored.url_key, (None, None))
        if task is not None and fetched is not None:
            links = [link for link in stored.links if isinstance(link, str)]
            await self._send_links(task, replace(fetched, links=links))
            await self._frontier.finish(task, fetched)

    async def _send_links(self, task: protocol.Task, fetched: Fetched) -> None:
        """Called before the page ends: if the process dies in between, it is fetched again."""
        if fetched.fingerprint is not None:
            self._frontier.record_content(task.url, fetched.fingerprint)
        if self._strategy.follows(fetched.link_kind, depth=task.depth):
            depth = task.depth + 1
            if fetched.sitemaps:
                await self._frontier.discover_sitemaps(
                    fetched.sitemaps, depth=depth, found_on=task.url_key
                )
            if fetched.links:
                await self._frontier.discover(fetched.links, depth=depth, found_on=task.url_key)

    async def _handle_failure(
        self, host: Host, task: protocol.Task, fetched: Fetched, started_at: float
    ) -> None:
        if is_page_failure(host, fetched):
            fetched = replace(fetched, retry_class='server')
        assert fetched.retry_class is not None  # noqa: S101 - for the type checker
        now = asyncio.get_running_loop().time()
        is_left_alone = host.record_failure(
            fetched.retry_class,
            started_at=started_at,
            now=now,
            retry_after_seconds=fetched.retry_after_seconds,
        )
        if is_left_alone:
            await self._report_backoff(host, fetched, host.backoff_until - now)
        pause = self._retry_after_seconds(host, task, fetched, now)
        if pause is None:
            await self._frontier.finish(task, fetched)
        else:
            await self._frontier.retry(task, fetched, after_seconds=pause)

    async def _report_backoff(self, host: Host, fetched: Fetched, seconds: float) -> None:
        error = fetched.error or 'unknown error'
        if host.has_failed_too_often:
            why = f'gave up on {host.name}: {error}'[:2000]
            host.give_up(why)
            await self._channel.send(protocol.Log(level='warning', message=why))
            await self._channel.send(
                protocol.HostFact(host=host.name, backoff_seconds=0, error_streak=0, last_error=why)
            )
            return
        await self._channel.send(
            protocol.HostFact(
                host=host.name,
                backoff_seconds=seconds,
                error_streak=host.backoffs,
                last_error=error[:2000],
            )
        )

    def _retry_after_seconds(
        self, host: Host, task: protocol.Task, fetched: Fetched, now: float
    ) -> float | None:
        """How long to wait before the next try; None if this was the last one."""
        if host.refusal is not None:
            return None
        refusals = self._refused.get(task.url_key, 0)
        if fetched.retry_class == 'rate_limited':
            if refusals >= MAX_REFUSALS or task.attempts >= self._options.tries + MAX_REFUSALS:
                return None
            if len(self._refused) < MAX_REFUSED:
                self._refused[task.url_key] = refusals + 1
            return max(host.backoff_until - now, 0.0)
        tries = task.attempts - refusals
        if tries >= self._options.tries:
            return None
        if fetched.retry_after_seconds is not None:
            return fetched.retry_after_seconds
        return retry_delay_seconds(max(tries, 1), first_seconds=self._options.retry_seconds)


def is_page_failure(host: Host, fetched: Fetched) -> bool:
    """Whether a 503 concerns one page: its host has no failures, and sent no Retry-After.

    Otherwise a page that is never available would delay all others each time.
    """
    is_plain = fetched.http_status == 503 and fetched.retry_after_seconds is None
    return is_plain and host.streak == 0 and host.backoffs == 0


def without_revalidation(page: protocol.Page) -> protocol.Page:
    """A copy, marked so that a recrawl fetches it in full.

    A 304 would keep it even after its canonical page has been stored.
    """
    made_with = f'{page.metadata.get("made_with")} copy'
    return msgspec.structs.replace(page, metadata={**page.metadata, 'made_with': made_with})


def refused(host: Host) -> Fetched:
    """The outcome of a URL whose host was given up."""
    return Fetched(
        status='error' if host.refusal_reason is None else 'skipped',
        skip_reason=host.refusal_reason,
        error=host.refusal,
        unfetched=True,
    )

"""The crawl loop: lease URLs, fetch a bounded number at a time, save the results.

`_feed` keeps URLs queued and saves results; `_dispatch` fetches what `hosts.py` releases. Only open
URLs are kept here: the database keeps the frontier (`frontier.py`) and decides when the crawl has
drained. Fetching is left to a `Fetcher`, the meaning of its outcome to `visits.py`.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from silkline import protocol
from silkline.crawl.engine.frontier import Frontier
from silkline.crawl.engine.host_rules import HostRules
from silkline.crawl.engine.hosts import Host, Hosts
from silkline.crawl.engine.strategies import Strategy, is_list_of_many_hosts
from silkline.crawl.engine.visits import Visits
from silkline.crawl.options import CrawlOptions
from silkline.crawl.urls import host_of, join

# URLs are leased for about a second of work ahead, at most this many.
MAX_AHEAD = 400
# More are requested when this many have ended: one checkpoint both saves and leases.
ASK_EVERY = 60
# A kill of the worker loses what is not saved: at most this many, and those being fetched.
MAX_UNSAVED = 100
# Per message: each host may come with half a megabyte of robots.txt.
HOSTS_PER_ASK = 16
LINKS_PER_ASK = 200
# Between two requests for tasks, while there is something to fetch.
GATHER_SECONDS = 0.05
STARVED_SECONDS = 0.5
MAX_WAIT_SECONDS = 1.0
# A crawl that has to wait longer than this gives its slot back.
LATER_SECONDS = 120.0
# Answers in a row with no task, nothing pending and not drained; then the job fails and restarts.
MAX_INCONSISTENT_ANSWERS = 5

Reason = Literal['drained', 'pause', 'stop', 'later', 'render']


class CrawlLoop:
    """One run over the frontier of a job."""

    def __init__(
        self,
        channel: protocol.Channel,
        visits: Visits,
        frontier: Frontier,
        host_rules: HostRules,
        strategy: Strategy,
        options: CrawlOptions,
        *,
        first_url: str,
        handed_over: Sequence[protocol.Task] = (),
    ) -> None:
        self.channel = channel
        self.visits = visits
        self.frontier = frontier
        self.host_rules = host_rules
        self.strategy = strategy
        self.options = options
        self.first_url = join(first_url, '') or first_url
        self.hosts = Hosts(
            concurrency=options.concurrency,
            min_delay_seconds=options.delay_seconds,
            retry_seconds=options.retry_seconds,
            # The queue runs one job per host at a time, but a list does not hold all its hosts:
            # other jobs may be crawling them.
            concurrency_per_host=1 if is_list_of_many_hosts(options) else None,
        )
        # Set when a page has ended or a host is ready: there may be new URLs, and room for more.
        self.changed = asyncio.Event()
        # Leased URLs that wait while the job is paused or stopping; after a resume they go on.
        self._deferred: list[protocol.Task] = []
        # Leased URLs that an earlier runner of this lease has left, because it had no browser.
        self._handed_over = handed_over
        self._preparing: set[asyncio.Task[None]] = set()
        self._ended = 0
        # How many of the ended URLs the database has confirmed.
        self._saved = 0
        self._has_saved = asyncio.Event()
        self._most_unsaved = MAX_UNSAVED + options.concurrency
        self._ahead = 2 * options.concurrency
        self._asked_at = time.monotonic()
        self._ended_before = 0

    async def run(self, result: Callable[[], Mapping[str, Any]]) -> protocol.Done:
        """Crawl to the end of this run; `result` gives the result of the job."""
        async with asyncio.TaskGroup() as self._group:
            dispatching = self._group.create_task(self._dispatch(), name='dispatch')
            await self._begin()
            reason, seconds = await self._feed()
            for task in (dispatching, *self._preparing):
                task.cancel()
        await self._share_backoffs()
        return protocol.Done(
            reason=reason,
            result=dict(result()),
            after_seconds=int(min(max(seconds, 1), 86_400)) if reason == 'later' else None,
            tasks=self._open_tasks() if reason == 'render' else [],
        )

    # Leasing

    async def _begin(self) -> None:
        """Send the start URLs; for sitemaps, after the robots.txt that may name them."""
        first = self.hosts[host_of(self.first_url)]
        for task in self._handed_over:
            self.hosts.put(task)
        if self.options.strategy == 'sitemap':
            await self._ask(0)
            while not first.is_ready:
                if self.channel.leaving.is_set():
                    return
                self.changed.clear()
                await self._wait_for_change(MAX_WAIT_SECONDS)
        await self.frontier.begin(self.strategy.starts(first.sitemaps))

    async def _feed(self) -> tuple[Reason, float]:
        """Keep URLs queued; return when nothing is open and everything is saved."""
        inconsistent = 0
        while True:
            if self.channel.leaving.is_set():
                if (reason := await self._wind_down()) is not None:
                    return reason, 0.0
                continue
            if self.visits.for_browser:
                await self._close_open()
                return 'render', 0.0
            self.changed.clear()
            answer = await self._ask(self._ahead - self._held)
            if answer.drained and not self._held:
                return 'drained', 0.0
            is_inconsistent = not (answer.tasks or answer.pending or self._held)
            inconsistent = inconsistent + 1 if is_inconsistent else 0
            if inconsistent > MAX_INCONSISTENT_ANSWERS:
                raise RuntimeError('the queue has URLs in progress that this crawl does not hold')
            if (seconds := await self._wait_until_asking_helps(answer)) > LATER_SECONDS:
                self.hosts.drop_queued()
                return 'later', seconds

    async def _ask(self, count: int) -> protocol.Tasks:
        """Save results, and get URLs, facts about hosts and links of unchanged pages."""
        asked = sorted(self.hosts.unknown)[:HOSTS_PER_ASK]
        self.hosts.unknown.difference_update(asked)
        self.frontier.has_new_urls = False
        # Unchanged pages are saved once their links have arrived.
        ended = self._ended - len(self.visits.unchanged)
        answer = await self.channel.want_tasks(
            protocol.WantTasks(
                count=min(max(count, 0), 1000),
                hosts=asked,
                links=list(self.visits.unchanged)[:LINKS_PER_ASK],
            )
        )
        self._saved = ended
        self._has_saved.set()
        self.frontier.take_redirected_starts(answer.redirected_starts)
        if self.channel.leaving.is_set():
            self._deferred += answer.tasks
        else:
            for task in answer.tasks:
                self.hosts.put(task)
        known = {host.host: host for host in answer.hosts}
        for name in asked:
            preparing = self._group.create_task(
                self._prepare(self.hosts[name], known.get(name)), name=f'robots {name}'
            )
            self._preparing.add(preparing)
            preparing.add_done_callback(self._preparing.discard)
        for stored in answer.links:
            await self.visits.finish_unchanged(stored)
        self._pace()
        return answer

    async def _prepare(self, host: Host, known: protocol.KnownHost | None) -> None:
        scheme = urlsplit(host.queue[0].url if host.queue else self.first_url).scheme
        await self.host_rules.prepare(host, known, scheme=scheme)
        self.changed.set()
        self.hosts.wake()

    def _pace(self) -> None:
        """Set how many URLs to lease: about a second of work."""
        now = time.monotonic()
        rate = (self._ended - self._ended_before) / max(now - self._asked_at, 0.01)
        self._asked_at, self._ended_before = now, self._ended
        self._ahead = int(max(2 * self.options.concurrency, min(rate, MAX_AHEAD)))

    async def _wait_until_asking_helps(self, answer: protocol.Tasks) -> float:
        """Wait until asking may bring URLs. Returns how long to wait if that is too long."""
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        more_at = asked_at + seconds_to_more(answer)
        low = self._ahead // 2
        while not self.channel.leaving.is_set() and not self.visits.for_browser:
            now = clock()
            waited_seconds = now - asked_at
            has_more = self.frontier.has_new_urls or more_at <= now
            if self.hosts.unknown or self.visits.unchanged:
                if waited_seconds >= GATHER_SECONDS or not self.hosts.open:
                    return 0.0
            elif not self._held:
                if has_more or not answer.pending:
                    return 0.0
                if more_at - now > LATER_SECONDS:
                    return more_at - now
            elif self._ended - self._saved >= ASK_EVERY:
                return 0.0
            elif has_more and self._held <= low and waited_seconds >= GATHER_SECONDS:
                return 0.0
            elif has_more and self._is_starved(now) and waited_seconds >= STARVED_SECONDS:
                # URLs of other hosts may come after those in the queue.
                self._ahead = min(2 * self._held + self.options.concurrency, MAX_AHEAD)
                return 0.0
            elif not self.hosts.open and (not has_more or self._held >= MAX_AHEAD):
                seconds = self.hosts.wait_seconds(now)
                if not has_more:
                    seconds = min(seconds, more_at - now)
                if seconds > LATER_SECONDS:
                    return seconds
            self.changed.clear()
            # A page that ends wakes this sooner.
            is_due_soon = has_more or self.hosts.unknown or self.visits.unchanged
            await self._wait_for_change(
                GATHER_SECONDS
                if is_due_soon
                else min(max(more_at - now, GATHER_SECONDS), MAX_WAIT_SECONDS)
            )
        return 0.0

    def _is_starved(self, now: float) -> bool:
        return self._held < MAX_AHEAD and self.hosts.is_starved(now)

    @property
    def _held(self) -> int:
        """URLs that are leased and have not ended."""
        return self.hosts.open + self.hosts.queued + len(self.visits.unchanged)

    async def _wait_for_change(self, seconds: float) -> None:
        """Wait for a page to end, a command, or the timeout."""
        waits = [
            asyncio.ensure_future(event.wait()) for event in (self.changed, self.channel.leaving)
        ]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _wind_down(self) -> Literal['pause', 'stop'] | None:
        """Finish what is open and leave the rest; None if the user has resumed the job."""
        await self._close_open()
        # The answer may bring another command: after a resume the crawl goes on.
        await self.channel.want_tasks(protocol.WantTasks(count=0))
        if self.channel.command in ('pause', 'stop'):
            return self.channel.command
        aside, self._deferred = self._deferred, []
        for task in aside:
            self.hosts.put(task)
        return None

    async def _close_open(self) -> None:
        """Finish what is being fetched, and put everything else aside."""
        self._deferred += self.hosts.drop_queued()
        while self.hosts.open:
            self.changed.clear()
            await self.changed.wait()

    def _open_tasks(self) -> list[protocol.Task]:
        """The URLs that are leased and have not ended, for the next runner of this lease."""
        unchanged = (task for task, _ in self.visits.unchanged.values())
        return [*self.visits.for_browser, *self._deferred, *unchanged]

    async def _share_backoffs(self) -> None:
        """Tell later crawls how long each host must still be left alone."""
        now = asyncio.get_running_loop().time()
        for name, seconds in self.hosts.remaining_backoffs(now).items():
            await self.channel.send(protocol.HostFact(host=name, backoff_seconds=seconds))

    # Fetching

    async def _dispatch(self) -> None:
        while True:
            while self.hosts.open + self._ended - self._saved >= self._most_unsaved:
                self._has_saved.clear()
                await self._has_saved.wait()
            host, task = await self.hosts.take()
            self._group.create_task(self._visit(host, task), name='visit')

    async def _visit(self, host: Host, task: protocol.Task) -> None:
        try:
            await self.visits.visit(host, task)
        finally:
            self._ended += 1
            self.hosts.release(host)
            self.changed.set()


def seconds_to_more(answer: protocol.Tasks) -> float:
    """When the database may have URLs again, judging by its last answer."""
    if not answer.pending:
        return math.inf
    if answer.tasks:
        return 0.0
    # None: what is pending exceeds the budget, and is ended by the next checkpoints.
    return GATHER_SECONDS if answer.next_in_seconds is None else answer.next_in_seconds

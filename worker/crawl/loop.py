"""The crawl loop: lease URLs, fetch a bounded number at a time, hand in what came of them.

`feed` keeps URLs in line and hands in; `dispatch` fetches whatever `hosts.py` lets go. This module
keeps only what is open: the database keeps the frontier (`frontier.py`) and decides when the crawl
has drained. How a page is fetched is left to a `Fetcher`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from worker import pipe
from worker.crawl.fetched import Fetched, Fetcher
from worker.crawl.frontier import Frontier
from worker.crawl.hosts import MAX_RATE_LIMITS, Host, Hosts
from worker.crawl.manners import Manners
from worker.crawl.options import Options
from worker.crawl.retries import pause_seconds
from worker.crawl.strategies import Strategy
from worker.crawl.urls import host_of

# URLs are leased for about a second ahead, and for no more than this.
MOST_AHEAD = 400
# More are asked for when so many have ended: then a checkpoint saves and leases at once.
ASK_EACH = 100
FIRST_PATIENCE_SECONDS = 0.02
LONGEST_PATIENCE_SECONDS = 1.0
# With other pages open, so long is waited for more of them to end before the next call.
GATHER_SECONDS = 0.05
# A crawl that has to wait longer than this gives its slot back meanwhile.
LATER_SECONDS = 120.0


class Link(Protocol):
    """The supervisor, as the loop needs it: `worker.crawl.link.Link`."""

    @property
    def command(self) -> pipe.Verdict: ...
    @property
    def leaving(self) -> asyncio.Event: ...
    async def send(self, message: pipe.FromRunner) -> None: ...
    async def want_tasks(self, count: int) -> pipe.Tasks: ...


class Crawl:
    """One run over the frontier of a job."""

    def __init__(
        self,
        link: Link,
        fetcher: Fetcher,
        frontier: Frontier,
        manners: Manners,
        strategy: Strategy,
        options: Options,
        *,
        first_url: str,
    ) -> None:
        self.link = link
        self.fetcher = fetcher
        self.frontier = frontier
        self.manners = manners
        self.strategy = strategy
        self.options = options
        self.first_url = first_url
        self.hosts = Hosts(
            concurrency=options.concurrency,
            floor_seconds=options.delay_seconds,
            retry_seconds=options.retry_seconds,
        )
        # Set when a page has ended: there may be new URLs, and there is room for more.
        self.moved = asyncio.Event()
        self._ended = 0
        self._ahead = 2 * options.concurrency
        self._asked_at = time.monotonic()
        self._ended_before = 0

    async def run(self, result: Callable[[], Mapping[str, Any]]) -> pipe.Done:
        """Answers with the counts of this run and what `result` adds to them."""
        async with asyncio.TaskGroup() as self._group:
            dispatching = self._group.create_task(self._dispatch(), name='dispatch')
            await self._begin()
            done = await self._feed()
            dispatching.cancel()
        return msgspec.structs.replace(done, result={**done.result, **result()})

    # Leasing

    async def _begin(self) -> None:
        """Make the start URLs known, after the robots.txt that may name them."""
        first = self.hosts[host_of(self.first_url)]
        sitemaps: tuple[str, ...] = ()
        if self.options.strategy == 'sitemap':
            await self._ask(0)
            while not first.is_ready and not self.link.leaving.is_set():
                await self._wait_for_move(1.0)
            sitemaps = tuple(first.robots.sitemaps) if first.robots else ()
        await self.frontier.begin(self.strategy.starts(sitemaps))

    async def _feed(self) -> pipe.Done:
        """Keep URLs in line; return when nothing is open and all is handed in."""
        patience = FIRST_PATIENCE_SECONDS
        while True:
            if self.link.leaving.is_set():
                if (reason := await self._hand_in()) is not None:
                    return self._done(reason)
                continue
            self.moved.clear()
            answer = await self._ask(self._ahead - self._held)
            if answer.drained and not self._held and not answer.links:
                return self._done('drained')
            if answer.tasks or answer.links:
                patience = FIRST_PATIENCE_SECONDS
            elif self._held:
                # Pages that end may bring more; the last of them certainly ends this.
                await self._wait_for_move(LONGEST_PATIENCE_SECONDS)
                await self._gather()
            else:
                due = answer.next_in_seconds or 0.0
                if due > LATER_SECONDS:
                    return self._later(due)
                await self._wait_for_move(max(patience, due))
                patience = min(2 * patience, LONGEST_PATIENCE_SECONDS)
            wait = await self._wait_for_room(is_more_there=bool(answer.tasks))
            if wait > LATER_SECONDS:
                self.hosts.drop_lines()
                return self._later(wait)

    async def _ask(self, count: int) -> pipe.Tasks:
        """Hand in, get URLs, and learn about hosts that are new."""
        asked = sorted(self.hosts.unknown)[:1000]
        if asked:
            self.hosts.unknown.difference_update(asked)
            await self.link.send(pipe.WantHosts(hosts=asked))
        answer = await self.link.want_tasks(min(max(count, 0), 1000))
        self.frontier.take_redirected_starts(answer.redirected_starts)
        if not self.link.leaving.is_set():
            for task in answer.tasks:
                self.hosts.put(task)
        known = {host.host: host for host in answer.hosts}
        for name in asked:
            self._group.create_task(self._prepare(self.hosts[name], known), name=f'robots {name}')
        for stored in answer.links:
            links = [link for link in stored.links if isinstance(link, str)]
            if self.strategy.follows('page', depth=stored.depth):
                await self.frontier.discover(links, depth=stored.depth + 1, found_on=stored.url_key)
        self._pace()
        return answer

    async def _prepare(self, host: Host, known: Mapping[str, pipe.KnownHost]) -> None:
        scheme = urlsplit(host.line[0].url if host.line else self.first_url).scheme
        await self.manners.prepare(host, known.get(host.name), scheme=scheme)
        self.moved.set()
        self.hosts.poke()

    def _pace(self) -> None:
        """Lease for about a second ahead."""
        now = time.monotonic()
        rate = (self._ended - self._ended_before) / max(now - self._asked_at, 0.01)
        self._asked_at, self._ended_before = now, self._ended
        self._ahead = int(max(2 * self.options.concurrency, min(rate, MOST_AHEAD)))

    async def _wait_for_room(self, *, is_more_there: bool) -> float:
        """Until URLs are needed. Answers how long everything in line has to wait still."""
        low = max(self._ahead // 2, self._ahead - ASK_EACH)
        while not self.link.leaving.is_set():
            if self._held <= low or self.hosts.unknown:
                break
            now = asyncio.get_running_loop().time()
            if not self.hosts.open and self.hosts.wait_seconds(now) > LATER_SECONDS:
                break
            if is_more_there and self._held < MOST_AHEAD and self.hosts.is_starved(now):
                # URLs of other hosts may be behind those in line.
                self._ahead = min(self._held + 2 * self.options.concurrency, MOST_AHEAD)
                break
            self.moved.clear()
            await self._wait_for_move(1.0)
        if self._held and not self.hosts.open:
            return self.hosts.wait_seconds(asyncio.get_running_loop().time())
        return 0.0

    @property
    def _held(self) -> int:
        return self.hosts.open + self.hosts.in_line

    async def _gather(self) -> None:
        if self.hosts.open:
            self.moved.clear()
            await self._wait_for_leaving(GATHER_SECONDS)

    async def _wait_for_leaving(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.link.leaving.wait(), seconds)
        except TimeoutError:
            return

    async def _wait_for_move(self, seconds: float) -> None:
        """Until a page ends, the user wants something, or the time is over."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.moved, self.link.leaving)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _hand_in(self) -> Literal['pause', 'stop'] | None:
        """Finish what is open, and leave the rest; None if the user has thought again."""
        self.hosts.drop_lines()
        while self.hosts.open:
            self.moved.clear()
            await self.moved.wait()
        # The answer may bring another command: a resumed crawl goes on.
        await self.link.want_tasks(0)
        return self.link.command if self.link.command in ('pause', 'stop') else None

    def _later(self, seconds: float) -> pipe.Done:
        return self._done('later', after_seconds=int(min(max(seconds, 1), 86_400)))

    def _done(
        self,
        reason: Literal['drained', 'pause', 'stop', 'later'],
        *,
        after_seconds: int | None = None,
    ) -> pipe.Done:
        return pipe.Done(
            reason=reason, result=dict(self.frontier.counts), after_seconds=after_seconds
        )

    # Fetching

    async def _dispatch(self) -> None:
        while True:
            host, task = await self.hosts.take()
            self._group.create_task(self._visit(host, task), name='visit')

    async def _visit(self, host: Host, task: pipe.Task) -> None:
        try:
            if host.refusal is not None:
                await self._refuse(host, task)
            elif not self.manners.allows(host, task.url):
                await self.frontier.skip(task, 'robots')
            elif self.frontier.is_trapped(task.url):
                await self.frontier.skip(task, 'trap')
            else:
                await self.link.send(pipe.Begun(url_key=task.url_key, url=task.url))
                await self._settle(host, task, await self.fetcher.fetch(task))
        finally:
            self._ended += 1
            self.hosts.put_back(host)
            self.moved.set()

    async def _refuse(self, host: Host, task: pipe.Task) -> None:
        reason = host.refusal_reason
        status = 'error' if reason is None else 'skipped'
        await self.frontier.finish(
            task, Fetched(status=status, skip_reason=reason, error=host.refusal)
        )

    async def _settle(self, host: Host, task: pipe.Task, fetched: Fetched) -> None:
        if fetched.trouble is not None:
            await self._take_trouble(host, task, fetched)
            return
        if fetched.http_status is not None and host.is_well(fetched.seconds):
            await self.link.send(pipe.HostFact(host=host.name, backoff_seconds=0, error_streak=0))
        if fetched.redirect is not None:
            await self.frontier.redirect(task, fetched, fetched.redirect)
            return
        if fetched.fingerprint is not None:
            self.frontier.saw(task.url, fetched.fingerprint)
        # Before Finished: if the process dies in between, the page is fetched again.
        if fetched.links and self.strategy.follows(fetched.link_kind, depth=task.depth):
            await self.frontier.discover(fetched.links, depth=task.depth + 1, found_on=task.url_key)
        await self.frontier.finish(task, fetched)

    async def _take_trouble(self, host: Host, task: pipe.Task, fetched: Fetched) -> None:
        assert fetched.trouble is not None  # noqa: S101 - for the type checker
        now = asyncio.get_running_loop().time()
        alone_seconds = host.is_unwell(
            fetched.trouble, now=now, patience_seconds=fetched.retry_after_seconds
        )
        if host.is_hopeless and host.refusal is None:
            why = f'{host.name} was given up: {fetched.error}'
            host.give_up(why)
            await self.link.send(pipe.Log(level='warning', message=why[:2000]))
            await self.link.send(
                pipe.HostFact(host=host.name, error_streak=0, last_error=why[:2000])
            )
        elif alone_seconds:
            await self.link.send(
                pipe.HostFact(
                    host=host.name,
                    backoff_seconds=alone_seconds,
                    error_streak=host.parks + host.rate_limits,
                    last_error=(fetched.error or '')[:2000],
                )
            )
        # Patience is the host's, but for one URL that alone asks for it it has an end, too.
        most = self.options.tries + MAX_RATE_LIMITS
        if fetched.trouble == 'rate_limited' and host.refusal is None and task.attempts < most:
            await self.frontier.retry(task, fetched, after_seconds=alone_seconds)
        elif task.attempts < self.options.tries and host.refusal is None:
            pause = fetched.retry_after_seconds
            if pause is None:
                pause = pause_seconds(task.attempts, first_seconds=self.options.retry_seconds)
            await self.frontier.retry(task, fetched, after_seconds=pause)
        else:
            await self.frontier.finish(task, fetched)

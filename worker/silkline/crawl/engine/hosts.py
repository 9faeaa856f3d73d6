"""Politeness: when each host may be asked for its next page.

A host has a queue of URLs, a delay between requests, a limit of concurrent requests that grows with
successes and is halved by failures, and backoffs during which it is left alone. Its robots rules
are kept here and fetched by `host_rules.py`. Nothing here uses the network or the channel.
"""

import asyncio
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from silkline import protocol
from silkline.crawl.retries import MAX_PAUSE_SECONDS, RetryClass, retry_delay_seconds
from silkline.crawl.urls import host_of

if TYPE_CHECKING:
    from silkline.crawl.engine.robots import Robots

FIRST_LIMIT = 2
# A slower response is taken as a sign of load; below this, the load may be our own.
SLOW_SECONDS = 1.0
# The weights of failures in a row; at `STREAK_POINTS` the host is left alone.
WEIGHTS: Mapping[RetryClass, int] = {'connection': 4, 'server': 1, 'rate_limited': 0}
STREAK_POINTS = 20
# After more backoffs in a row than this, a host is given up.
MAX_BACKOFFS = 3
# Idle hosts are forgotten beyond this: a site may have any number of them.
MAX_HOSTS = 5000


@dataclass(slots=True, kw_only=True)
class Host:
    name: str
    max_open: int
    # Between two requests, as the job or robots.txt asks; failures add to it.
    min_delay_seconds: float
    retry_seconds: float
    # Nothing is fetched until its robots rules are known.
    is_ready: bool = False
    robots: 'Robots | None' = None
    sitemaps: tuple[str, ...] = ()
    # Why nothing more is fetched from it.
    refusal: str | None = None
    refusal_reason: protocol.SkipReason | None = None
    queue: deque[protocol.Task] = field(default_factory=deque[protocol.Task])
    open: int = 0
    limit: int = FIRST_LIMIT
    added_delay_seconds: float = 0.0
    next_at: float = 0.0
    backoff_until: float = 0.0
    # Backoffs in a row.
    backoffs: int = 0
    streak: int = 0
    _backed_off_at: float = -math.inf
    _successes_in_a_row: int = 0

    def ready_at(self) -> float:
        """When the next request may start, on the loop's clock; infinite if that is not known."""
        if not self.is_ready:
            return math.inf
        if self.refusal is not None:
            return 0.0
        if self.open >= min(self.limit, self.max_open):
            return math.inf
        return self.due_at

    @property
    def due_at(self) -> float:
        return max(self.next_at, self.backoff_until)

    def begin_request(self, now: float) -> None:
        self.open += 1
        self.next_at = now + self.min_delay_seconds + self.added_delay_seconds

    def record_success(self, seconds: float, *, started_at: float) -> bool:
        """Speed up. Returns whether the host has recovered from failures."""
        if started_at <= self._backed_off_at:
            # The request started before the backoff.
            return False
        was_failing = self.streak > 0 or self.backoffs > 0
        self.streak = self.backoffs = 0
        self.added_delay_seconds = (
            self.added_delay_seconds * 0.7 if self.added_delay_seconds > 0.01 else 0.0
        )
        if seconds > SLOW_SECONDS:
            self._successes_in_a_row = 0
            self.limit = max(self.limit - 1, 1)
        else:
            self._successes_in_a_row += 1
            if self._successes_in_a_row >= self.limit and self.limit < self.max_open:
                self._successes_in_a_row = 0
                self.limit += 1
        return was_failing

    def record_failure(
        self,
        retry_class: RetryClass,
        *,
        started_at: float,
        now: float,
        retry_after_seconds: float | None,
    ) -> bool:
        """Slow down. Returns whether a backoff begins."""
        self._successes_in_a_row = 0
        self.limit = max(self.limit // 2, 1)
        self.added_delay_seconds = min(
            max(2 * self.added_delay_seconds, self.retry_seconds / 100), self.retry_seconds / 20
        )
        self.streak += WEIGHTS[retry_class]
        # Of the requests that were open together, only the first one counts.
        is_requested = retry_class == 'rate_limited' and started_at > self._backed_off_at
        if not is_requested and self.streak < STREAK_POINTS:
            return False
        self.streak = 0
        self.backoffs += 1
        self._backed_off_at = now
        own_seconds = retry_delay_seconds(self.backoffs, first_seconds=self.retry_seconds)
        if retry_after_seconds is not None and self.backoffs == 1:
            own_seconds = 0.0
        # The first time, Retry-After decides alone; if that did not help, it is a lower bound.
        self.back_off(now, max(retry_after_seconds or 0.0, own_seconds))
        return True

    def back_off(self, now: float, seconds: float) -> None:
        self.backoff_until = max(self.backoff_until, now + min(seconds, MAX_PAUSE_SECONDS))

    @property
    def has_failed_too_often(self) -> bool:
        return self.backoffs > MAX_BACKOFFS

    def give_up(self, why: str, *, reason: protocol.SkipReason | None = None) -> None:
        """Fetch no more from it: its URLs are skipped for `reason`, or end as errors."""
        self.refusal = why
        self.refusal_reason = reason


class Hosts:
    """All hosts of a crawl, and which one is next."""

    def __init__(
        self,
        *,
        concurrency: int,
        min_delay_seconds: float,
        retry_seconds: float,
        concurrency_per_host: int | None = None,
    ) -> None:
        self.concurrency = concurrency
        self.concurrency_per_host = concurrency_per_host or concurrency
        self.min_delay_seconds = min_delay_seconds
        self.retry_seconds = retry_seconds
        self.open = 0
        # Hosts whose shared facts have not been requested yet.
        self.unknown: set[str] = set()
        self._hosts: dict[str, Host] = {}
        # Hosts with queued URLs, the next one first.
        self._waiting: deque[Host] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def __getitem__(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None:
            if len(self._hosts) >= MAX_HOSTS:
                self._forget_idle()
            host = self._hosts[name] = Host(
                name=name,
                max_open=self.concurrency_per_host,
                min_delay_seconds=self.min_delay_seconds,
                retry_seconds=self.retry_seconds,
            )
            self.unknown.add(name)
        return host

    def _forget_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        self._hosts = {
            name: host
            for name, host in self._hosts.items()
            if host.queue or host.open or not host.is_ready or host.refusal or host.due_at > now
        }

    @property
    def queued(self) -> int:
        return sum(len(host.queue) for host in self._waiting)

    def put(self, task: protocol.Task) -> None:
        host = self[host_of(task.url)]
        if not host.queue:
            self._waiting.append(host)
        host.queue.append(task)
        self.wake()

    async def take(self) -> tuple[Host, protocol.Task]:
        """Wait for the next URL that may be fetched."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            wake_at = math.inf
            if self.open < self.concurrency:
                for _ in range(len(self._waiting)):
                    host = self._waiting.popleft()
                    at = host.ready_at()
                    if at <= now:
                        task = host.queue.popleft()
                        if host.queue:
                            self._waiting.append(host)
                        host.begin_request(now)
                        self.open += 1
                        return host, task
                    self._waiting.append(host)
                    wake_at = min(wake_at, at)
            self._waiter = loop.create_future()
            timer = loop.call_at(wake_at, self.wake) if wake_at < math.inf else None
            try:
                await self._waiter
            finally:
                if timer is not None:
                    timer.cancel()

    def release(self, host: Host) -> None:
        """Note that a request has ended, whatever its outcome."""
        host.open -= 1
        self.open -= 1
        self.wake()

    def wake(self) -> None:
        """Something has changed: let `take` look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def drop_queued(self) -> list[protocol.Task]:
        """Drop and return what was leased and not begun: releasing the job frees it."""
        dropped = [task for host in self._waiting for task in host.queue]
        for host in self._waiting:
            host.queue.clear()
        self._waiting.clear()
        return dropped

    def is_starved(self, now: float) -> bool:
        """Whether more requests could be open, if the hosts in the queue did not have to wait."""
        return self.open < self.concurrency and all(
            host.ready_at() > now + 1.0 for host in self._waiting
        )

    def wait_seconds(self, now: float) -> float:
        """Until the first queued URL may be fetched, as far as known; 0 if nothing is queued."""
        if not self._waiting:
            return 0.0
        at = min(0.0 if host.refusal is not None else host.due_at for host in self._waiting)
        return max(at - now, 0.0)

    def remaining_backoffs(self, now: float) -> dict[str, float]:
        """The hosts that must still be left alone, and for how long."""
        return {
            host.name: host.due_at - now
            for host in self._hosts.values()
            if host.due_at - now > 0.5 and host.refusal is None
        }

"""Politeness: when each host may be asked for its next page.

A host has its own line of URLs, a pause between two requests, a number of requests at a time that
grows while all is well and is halved when it is not, and times when it is left alone. Robots rules
are kept here and fetched by `manners.py`. Nothing here touches the network or the pipe.
"""

import asyncio
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from silkline import protocol
from silkline.crawl.retries import LONGEST_PAUSE_SECONDS, Trouble, pause_seconds
from silkline.crawl.urls import host_of

if TYPE_CHECKING:
    from silkline.crawl.engine.robots import Robots

FIRST_LIMIT = 2
# Slower answers than this are taken as a sign of load; faster ones may be our own load.
SLOW_SECONDS = 1.0
# Failures in a row, by weight: at so many points a host is left alone.
WEIGHTS: Mapping[Trouble, int] = {'connection': 4, 'server': 1, 'rate_limited': 0}
STREAK_POINTS = 20
# So often in a row, and then it is given up.
MAX_PAUSES = 3
# A site may have more hosts than anybody can count.
MOST_HOSTS = 5000


@dataclass(slots=True, kw_only=True)
class Host:
    name: str
    max_open: int
    # The pause that the job or the site asks for, and what trouble adds to it.
    floor_seconds: float
    retry_seconds: float
    # Whether its robots rules are known; until then nothing is fetched.
    is_ready: bool = False
    robots: 'Robots | None' = None
    sitemaps: tuple[str, ...] = ()
    # Why nothing is fetched from it any more.
    refusal: str | None = None
    refusal_reason: protocol.SkipReason | None = None
    line: deque[protocol.Task] = field(default_factory=deque[protocol.Task])
    open: int = 0
    limit: int = FIRST_LIMIT
    extra_seconds: float = 0.0
    next_at: float = 0.0
    alone_until: float = 0.0
    # How often in a row it was left alone.
    pauses: int = 0
    streak: int = 0
    _paused_at: float = -math.inf
    _good_in_a_row: int = 0

    def may_go_at(self) -> float:
        """On the loop's clock; infinite while something else has to happen first."""
        if not self.is_ready:
            return math.inf
        if self.refusal is not None:
            return 0.0
        if self.open >= min(self.limit, self.max_open):
            return math.inf
        return self.due_at

    @property
    def due_at(self) -> float:
        return max(self.next_at, self.alone_until)

    def go(self, now: float) -> None:
        self.open += 1
        self.next_at = now + self.floor_seconds + self.extra_seconds

    def went_well(self, seconds: float, *, begun_at: float) -> bool:
        """A page came. Answers whether that ends a time of trouble."""
        if begun_at <= self._paused_at:
            # It was asked for before the host was left alone.
            return False
        was_troubled = self.streak > 0 or self.pauses > 0
        self.streak = self.pauses = 0
        self.extra_seconds = self.extra_seconds * 0.7 if self.extra_seconds > 0.01 else 0.0
        if seconds > SLOW_SECONDS:
            self._good_in_a_row = 0
            self.limit = max(self.limit - 1, 1)
        else:
            self._good_in_a_row += 1
            if self._good_in_a_row >= self.limit and self.limit < self.max_open:
                self._good_in_a_row = 0
                self.limit += 1
        return was_troubled

    def went_wrong(
        self, trouble: Trouble, *, begun_at: float, now: float, patience_seconds: float | None
    ) -> bool:
        """Slow down. Answers whether the host is left alone from now on."""
        self._good_in_a_row = 0
        self.limit = max(self.limit // 2, 1)
        self.extra_seconds = min(
            max(2 * self.extra_seconds, self.retry_seconds / 100), self.retry_seconds / 20
        )
        self.streak += WEIGHTS[trouble]
        # Of the requests that were open together, the first one counts.
        is_asked = trouble == 'rate_limited' and begun_at > self._paused_at
        if not is_asked and self.streak < STREAK_POINTS:
            return False
        self.streak = 0
        self.pauses += 1
        self._paused_at = now
        own_seconds = pause_seconds(self.pauses, first_seconds=self.retry_seconds)
        if patience_seconds is not None and self.pauses == 1:
            own_seconds = 0.0
        # What a site asks for is believed once; when it does not help, it is a lower bound.
        self.leave_alone(now, max(patience_seconds or 0.0, own_seconds))
        return True

    def leave_alone(self, now: float, seconds: float) -> None:
        self.alone_until = max(self.alone_until, now + min(seconds, LONGEST_PAUSE_SECONDS))

    @property
    def is_hopeless(self) -> bool:
        return self.pauses > MAX_PAUSES

    def give_up(self, why: str, *, reason: protocol.SkipReason | None = None) -> None:
        """End what is left of it: as skipped for `reason`, or as an error."""
        self.refusal = why
        self.refusal_reason = reason


class Hosts:
    """All hosts of a crawl, and who is next."""

    def __init__(self, *, concurrency: int, floor_seconds: float, retry_seconds: float) -> None:
        self.concurrency = concurrency
        self.floor_seconds = floor_seconds
        self.retry_seconds = retry_seconds
        self.open = 0
        # Names whose facts nobody has asked for.
        self.unknown: set[str] = set()
        self._hosts: dict[str, Host] = {}
        # Hosts with URLs in line, the next one first.
        self._waiting: deque[Host] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def __getitem__(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None:
            if len(self._hosts) >= MOST_HOSTS:
                self._forget_idle()
            host = self._hosts[name] = Host(
                name=name,
                max_open=self.concurrency,
                floor_seconds=self.floor_seconds,
                retry_seconds=self.retry_seconds,
            )
            self.unknown.add(name)
        return host

    def _forget_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        self._hosts = {
            name: host
            for name, host in self._hosts.items()
            if host.line or host.open or not host.is_ready or host.refusal or host.due_at > now
        }

    @property
    def in_line(self) -> int:
        return sum(len(host.line) for host in self._waiting)

    def put(self, task: protocol.Task) -> None:
        host = self[host_of(task.url)]
        if not host.line:
            self._waiting.append(host)
        host.line.append(task)
        self.poke()

    async def take(self) -> tuple[Host, protocol.Task]:
        """The next URL that may be fetched; waits until there is one."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            wake_at = math.inf
            if self.open < self.concurrency:
                for _ in range(len(self._waiting)):
                    host = self._waiting.popleft()
                    at = host.may_go_at()
                    if at <= now:
                        task = host.line.popleft()
                        if host.line:
                            self._waiting.append(host)
                        host.go(now)
                        self.open += 1
                        return host, task
                    self._waiting.append(host)
                    wake_at = min(wake_at, at)
            self._waiter = loop.create_future()
            timer = loop.call_at(wake_at, self.poke) if wake_at < math.inf else None
            try:
                await self._waiter
            finally:
                if timer is not None:
                    timer.cancel()

    def put_back(self, host: Host) -> None:
        """A request has ended, whatever came of it."""
        host.open -= 1
        self.open -= 1
        self.poke()

    def poke(self) -> None:
        """Something has changed: look again who may go."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def drop_lines(self) -> list[protocol.Task]:
        """Forget what was leased and not begun, and answer it: releasing the job frees it."""
        dropped = [task for host in self._waiting for task in host.line]
        for host in self._waiting:
            host.line.clear()
        self._waiting.clear()
        return dropped

    def is_starved(self, now: float) -> bool:
        """Whether more could be open, but for hosts that have to be waited for."""
        return self.open < self.concurrency and all(
            host.may_go_at() > now + 1.0 for host in self._waiting
        )

    def wait_seconds(self, now: float) -> float:
        """Until the first URL in line may go, as far as that is known; 0 with nothing in line."""
        if not self._waiting:
            return 0.0
        at = min(0.0 if host.refusal is not None else host.due_at for host in self._waiting)
        return max(at - now, 0.0)

    def pauses_left(self, now: float) -> dict[str, float]:
        """Hosts that want a pause before whoever comes next, and how long it is."""
        return {
            host.name: host.due_at - now
            for host in self._hosts.values()
            if host.due_at - now > 0.5 and host.refusal is None
        }

"""What must be known about a host before it is crawled: robots.txt, Crawl-delay, backoff.

All crawls of a queue share these facts (`crawl_hosts`): a robots.txt that another crawl has fetched
within a day is used, and what this crawl learns is sent. If robots.txt cannot be fetched, that is
retried, and then the host is skipped, as RFC 9309 requires. A host that the operator's policy
refuses is skipped without a request.
"""

import asyncio
from typing import TYPE_CHECKING

from silkline import protocol
from silkline.crawl.charsets import decode
from silkline.crawl.engine.hosts import Host
from silkline.crawl.engine.robots import Robots, verdict_of
from silkline.crawl.options import HostPolicy
from silkline.crawl.responses import EgressError, NoResponse, Refused
from silkline.crawl.retries import (
    MAX_PAUSE_SECONDS,
    RETRYABLE_KINDS,
    retry_after_seconds,
    retry_delay_seconds,
    status_text,
)

if TYPE_CHECKING:
    from silkline.crawl.net.egress import Egress

FRESH_SECONDS = 24 * 3600.0
# Longer than any backoff.
STREAK_FRESH_SECONDS = 2 * MAX_PAUSE_SECONDS
# RFC 9309 asks for at least 500 KiB; the rest of a longer file is ignored.
MAX_ROBOTS_BYTES = 512 * 1024
MAX_HOPS = 5
# Between two tries: the job occupies a slot of the worker while it waits.
MAX_WAIT_SECONDS = 60.0
# A longer Crawl-delay is cut to this: it would keep a crawl busy for days.
MAX_DELAY_SECONDS = 300.0


class HostRules:
    """Prepares hosts for crawling. Without an egress, robots.txt is not fetched."""

    def __init__(
        self,
        channel: protocol.Channel,
        egress: 'Egress | None',
        *,
        policy: HostPolicy,
        agent: str,
        obeys: bool,
        tries: int,
        timeout_seconds: float,
        concurrency: int = 8,
    ) -> None:
        self._channel = channel
        self._egress = egress
        self._policy = policy
        self._agent = agent
        # If false, robots.txt is only read for its sitemaps.
        self._obeys = obeys
        self._tries = tries
        self._timeout_seconds = timeout_seconds
        # A crawl may find hundreds of hosts at once: waiting for a turn must not use up timeouts.
        self._turns = asyncio.Semaphore(concurrency)

    def allows(self, host: Host, url: str) -> bool:
        return host.robots is None or host.robots.allows(url, self._agent)

    async def prepare(self, host: Host, known: protocol.KnownHost | None, *, scheme: str) -> None:
        """Use what is known about a host, and fetch what is not."""
        why = self._policy.refusal(host.name)
        if why is not None:
            host.give_up(why, reason='forbidden_address')
            host.is_ready = True
            return
        loop = asyncio.get_running_loop()
        if known is not None:
            host.back_off(loop.time(), known.backoff_seconds or 0.0)
            # Backoffs go on counting where an earlier attempt ended.
            if known.age_seconds is not None and known.age_seconds < STREAK_FRESH_SECONDS:
                host.backoffs = known.error_streak
        if self._egress is not None:
            if known is not None and has_fresh_robots(known):
                self._apply(host, known.robots_status or 0, known.robots_txt)
            else:
                await asyncio.sleep(max(host.backoff_until - loop.time(), 0))
                await self._learn(host, self._egress, f'{scheme}://{host.name}/robots.txt')
        host.is_ready = True

    async def _learn(self, host: Host, egress: 'Egress', url: str) -> None:
        nth = 1
        while True:
            try:
                status, text, wait_seconds, error = await self._fetch(egress, url)
            except Refused:
                # Pages are refused by the same rules. Not shared: another worker may have others.
                return
            if error is None and verdict_of(status) != 'unavailable':
                delay = self._apply(host, status, text)
                await self._channel.send(
                    protocol.HostFact(
                        host=host.name,
                        robots_txt=text,
                        robots_status=status,
                        crawl_delay_seconds=delay,
                    )
                )
                return
            why = f'could not fetch robots.txt: {error or status_text(status)}'
            is_final = isinstance(error, NoResponse) and error.kind not in RETRYABLE_KINDS
            if is_final or nth == self._tries:
                break
            pause = wait_seconds or retry_delay_seconds(nth, first_seconds=host.retry_seconds)
            pause = min(pause, MAX_WAIT_SECONDS)
            await self._log(f'{host.name}: {why}; retrying in {pause:.0f} s')
            await asyncio.sleep(pause)
            nth += 1
        if not self._obeys:
            return
        host.give_up(why, reason='host_unavailable')
        await self._log(f'{host.name}: {why}; skipping its pages')
        await self._channel.send(protocol.HostFact(host=host.name, last_error=why[:2000]))

    async def _fetch(
        self, egress: 'Egress', url: str
    ) -> tuple[int, str | None, float | None, EgressError | None]:
        try:
            async with self._turns:
                response = await egress.follow(
                    url,
                    max_hops=MAX_HOPS,
                    max_bytes=2 * MAX_ROBOTS_BYTES,
                    is_cut=True,
                    timeout_seconds=self._timeout_seconds,
                )
        except Refused:
            raise
        except EgressError as error:
            return 0, None, None, error
        if 300 <= response.status < 400:
            # RFC 9309: after five redirects, robots.txt counts as missing.
            return 404, None, None, None
        wait_seconds = retry_after_seconds(response.headers.get('Retry-After'))
        text, _ = decode(
            response.body[:MAX_ROBOTS_BYTES], 'text/plain; charset=utf-8', is_html=False
        )
        is_rules = verdict_of(response.status) == 'rules'
        return response.status, text if is_rules else None, wait_seconds, None

    def _apply(self, host: Host, status: int, text: str | None) -> float | None:
        if verdict_of(status) != 'rules' or not text:
            return None
        robots = Robots.parse(text)
        host.sitemaps = tuple(robots.sitemaps)
        delay = robots.crawl_delay_seconds(self._agent)
        if self._obeys:
            host.robots = robots
        if delay is None or not self._obeys:
            return delay
        delay = min(delay, MAX_DELAY_SECONDS)
        host.min_delay_seconds = max(host.min_delay_seconds, delay)
        return delay

    async def _log(self, text: str) -> None:
        await self._channel.send(protocol.Log(level='warning', message=text[:2000]))


def has_fresh_robots(known: protocol.KnownHost) -> bool:
    return (
        known.robots_status is not None
        and known.robots_age_seconds is not None
        and known.robots_age_seconds < FRESH_SECONDS
        and verdict_of(known.robots_status) != 'unavailable'
    )

"""Whether a refused page counts as a failure of the page or of its host."""

import asyncio
from uuid import UUID, uuid4

import pytest

from silkline import protocol
from silkline.crawl.engine.frontier import Frontier
from silkline.crawl.engine.host_rules import HostRules
from silkline.crawl.engine.hosts import Host
from silkline.crawl.engine.scope import Scope
from silkline.crawl.engine.strategies import strategy_of
from silkline.crawl.engine.visits import Visits
from silkline.crawl.fetched import Fetched
from silkline.crawl.options import CrawlOptions
from silkline.crawl.retries import retry_class_of, status_text
from tests.support.channel import RecordingChannel

URL = 'https://a.example/'
BUSY = uuid4()


class RefusingFetcher:
    """Fetches every page but `BUSY`, which is refused."""

    def __init__(self, refusal: int, retry_after_seconds: float | None) -> None:
        self.refusal = refusal
        self.retry_after_seconds = retry_after_seconds

    async def fetch(self, task: protocol.Task) -> Fetched:
        if task.url_key != BUSY:
            return Fetched(status='done', http_status=200)
        return Fetched(
            status='error',
            http_status=self.refusal,
            error=status_text(self.refusal),
            retry_class=retry_class_of(self.refusal),
            retry_after_seconds=self.retry_after_seconds,
        )


def refused_between(
    *goods: int, refusal: int = 503, retry_after_seconds: float | None = None
) -> tuple[int, RecordingChannel]:
    """The backoffs in a row after a refusal behind each number of successes, and the messages."""
    options = CrawlOptions(url=URL, retry_seconds=10)
    channel = RecordingChannel()
    frontier = Frontier(channel, Scope([URL], kind='host'), max_depth=9)
    host_rules = HostRules(
        channel,
        None,
        policy=options.policy,
        agent='silkline',
        obeys=True,
        tries=3,
        timeout_seconds=9,
    )
    fetcher = RefusingFetcher(refusal, retry_after_seconds)
    visits = Visits(channel, fetcher, frontier, host_rules, strategy_of(options), options)
    host = Host(name='a.example', max_open=8, min_delay_seconds=0, retry_seconds=10, is_ready=True)

    async def run() -> None:
        for good in goods:
            for number in range(good):
                await visits.visit(host, task(f'fine-{number}', uuid4()))
            await visits.visit(host, task('busy', BUSY))

    asyncio.run(run())
    return host.backoffs, channel


def task(path: str, key: UUID) -> protocol.Task:
    return protocol.Task(url_key=key, url=URL + path, depth=1, attempts=1)


@pytest.mark.parametrize('goods', [(0,), (3,), (1, 1, 1, 1)])
def test_a_single_unavailable_page_does_not_delay_others(
    goods: tuple[int, ...],
) -> None:
    pauses, channel = refused_between(*goods)
    assert pauses == 0
    last = channel.messages[-1]
    assert isinstance(last, protocol.Retried)
    assert 7 < last.after_seconds < 13


def test_a_host_that_is_unavailable_twice_in_a_row_is_left_alone() -> None:
    assert refused_between(1, 0)[0] == 1
    assert refused_between(1, 0, 0)[0] == 2
    assert refused_between(1, 0, 1)[0] == 0


@pytest.mark.parametrize(('refusal', 'retry_after_seconds'), [(429, None), (429, 5.0), (503, 5.0)])
def test_a_host_that_rate_limits_or_sends_retry_after_is_left_alone_at_once(
    refusal: int, retry_after_seconds: float | None
) -> None:
    pauses, _ = refused_between(1, refusal=refusal, retry_after_seconds=retry_after_seconds)
    assert pauses == 1

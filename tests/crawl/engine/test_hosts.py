"""When each host may be asked, without a network and without waiting."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import uuid4

import pytest

from silkline import protocol
from silkline.crawl.engine.hosts import MAX_BACKOFFS, MAX_HOSTS, Host, Hosts
from silkline.crawl.retries import RetryClass


def task(url: str) -> protocol.Task:
    return protocol.Task(url_key=uuid4(), url=url, depth=0)


def host(**settings: Any) -> Host:
    values: dict[str, Any] = {
        'name': 'a.example',
        'max_open': 16,
        'min_delay_seconds': 0.0,
        'retry_seconds': 10.0,
        'is_ready': True,
    }
    return Host(**{**values, **settings})


def run_in_loop(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await scenario()

    asyncio.run(bounded())


def hosts(*, concurrency: int = 4, min_delay_seconds: float = 0.0) -> Hosts:
    return Hosts(concurrency=concurrency, min_delay_seconds=min_delay_seconds, retry_seconds=10)


def test_nothing_is_fetched_from_a_host_before_its_robots_rules_are_known() -> None:
    assert host(is_ready=False).ready_at() == math.inf


def fail(one: Host, retry_class: RetryClass, *, at: float, patience: float | None = None) -> bool:
    """Record a request that started and failed at that time."""
    return one.record_failure(retry_class, started_at=at, now=at, retry_after_seconds=patience)


def test_successes_raise_the_number_of_concurrent_requests() -> None:
    one = host()
    for _ in range(200):
        one.record_success(0.1, started_at=1)
    assert one.limit == 16


def test_slow_responses_lower_the_number_of_concurrent_requests() -> None:
    one = host(limit=8)
    for _ in range(20):
        one.record_success(2.5, started_at=1)
    assert one.limit == 1


def test_a_failure_halves_concurrency_and_adds_a_delay_that_successes_remove() -> None:
    one = host(limit=8)
    fail(one, 'server', at=0)
    assert one.limit == 4
    assert one.added_delay_seconds > 0
    for _ in range(30):
        one.record_success(0.1, started_at=1)
    assert one.added_delay_seconds == 0


def test_requests_to_one_host_are_separated_by_the_delay() -> None:
    one = host(min_delay_seconds=2.0)
    one.begin_request(100.0)
    assert one.ready_at() == 102.0


def test_the_first_backoff_lasts_as_long_as_retry_after_says() -> None:
    one = host()
    assert fail(one, 'rate_limited', at=100, patience=33)
    assert one.ready_at() == 133


def test_later_backoffs_last_longer_than_retry_after_says() -> None:
    one = host(retry_seconds=10)
    fail(one, 'rate_limited', at=100, patience=1)
    assert one.ready_at() == 101
    fail(one, 'rate_limited', at=102, patience=1)
    assert one.ready_at() > 102 + 15


def test_refusals_of_concurrent_requests_count_once() -> None:
    one = host(retry_seconds=0)
    for now in range(100, 116):
        one.record_failure('rate_limited', started_at=99, now=now, retry_after_seconds=None)
    assert one.backoffs == 1


def test_a_host_that_keeps_rate_limiting_is_given_up() -> None:
    one = host()
    for nth in range(MAX_BACKOFFS + 1):
        assert not one.has_failed_too_often
        fail(one, 'rate_limited', at=10_000.0 * nth, patience=5)
    assert one.has_failed_too_often


def test_a_host_that_does_not_answer_is_left_alone_and_then_given_up() -> None:
    one = host()
    alone = [fail(one, 'connection', at=0) for _ in range(5 * MAX_BACKOFFS)]
    assert sum(alone) == MAX_BACKOFFS
    assert not one.has_failed_too_often
    for _ in range(5):
        fail(one, 'connection', at=0)
    assert one.has_failed_too_often


def test_server_errors_are_tolerated_longer_than_failed_connections() -> None:
    one = host()
    for _ in range(20 * (MAX_BACKOFFS + 1) - 1):
        fail(one, 'server', at=0)
    assert not one.has_failed_too_often
    fail(one, 'server', at=0)
    assert one.has_failed_too_often


def test_a_success_ends_the_failures_of_a_host() -> None:
    one = host()
    for _ in range(7):
        fail(one, 'connection', at=0)
    assert one.record_success(0.1, started_at=1)
    assert (one.streak, one.backoffs) == (0, 0)
    assert not one.record_success(0.1, started_at=1)


def test_a_success_of_an_earlier_request_does_not_end_a_backoff() -> None:
    one = host()
    fail(one, 'rate_limited', at=10, patience=30)
    assert not one.record_success(0.1, started_at=9)
    assert one.backoffs == 1
    assert one.record_success(0.1, started_at=41)
    assert one.backoffs == 0


def test_a_waiting_host_does_not_delay_others() -> None:
    async def scenario() -> None:
        line = hosts()
        for name in ('slow', 'fast'):
            line[f'{name}.example'].is_ready = True
            for _ in range(3):
                line.put(task(f'https://{name}.example/'))
        line['slow.example'].back_off(asyncio.get_running_loop().time(), 1000)
        taken: list[str] = []
        for _ in range(3):
            one, _ = await line.take()
            taken.append(one.name)
            line.release(one)
        assert taken == ['fast.example'] * 3

    run_in_loop(scenario)


def test_hosts_take_turns() -> None:
    async def scenario() -> None:
        line = hosts(concurrency=4)
        for name in ('a', 'b'):
            line[f'{name}.example'].is_ready = True
            for _ in range(2):
                line.put(task(f'https://{name}.example/'))
        taken = [(await line.take())[0].name for _ in range(4)]
        assert taken == ['a.example', 'b.example', 'a.example', 'b.example']

    run_in_loop(scenario)


def test_the_concurrency_of_the_job_is_not_exceeded() -> None:
    async def scenario() -> None:
        line = hosts(concurrency=1)
        line['a.example'].is_ready = True
        line.put(task('https://a.example/1'))
        line.put(task('https://a.example/2'))
        one, _ = await line.take()
        second = asyncio.ensure_future(line.take())
        await asyncio.sleep(0)
        assert not second.done()
        line.release(one)
        assert (await second)[0] is one

    run_in_loop(scenario)


def test_a_delayed_url_is_taken_when_its_delay_is_over() -> None:
    async def scenario() -> None:
        line = hosts(min_delay_seconds=0.05)
        line['a.example'].is_ready = True
        line.put(task('https://a.example/1'))
        line.put(task('https://a.example/2'))
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        await line.take()
        await line.take()
        assert loop.time() - started_at >= 0.05

    run_in_loop(scenario)


def test_the_time_until_the_next_url_is_known() -> None:
    async def scenario() -> None:
        line = hosts()
        now = asyncio.get_running_loop().time()
        assert line.wait_seconds(now) == 0
        line['a.example'].is_ready = True
        line.put(task('https://a.example/'))
        line['a.example'].back_off(now, 500)
        assert line.wait_seconds(now) == pytest.approx(500)
        line.drop_queued()
        assert (line.wait_seconds(now), line.queued) == (0, 0)

    run_in_loop(scenario)


def test_a_crawl_is_starved_while_all_queued_hosts_have_to_wait() -> None:
    async def scenario() -> None:
        line = hosts(concurrency=2)
        now = asyncio.get_running_loop().time()
        line['a.example'].is_ready = True
        line.put(task('https://a.example/'))
        assert not line.is_starved(now)
        line['a.example'].back_off(now, 100)
        assert line.is_starved(now)

    run_in_loop(scenario)


def test_the_number_of_remembered_hosts_is_bounded() -> None:
    async def scenario() -> None:
        line = hosts()
        for number in range(3 * MAX_HOSTS):
            line[f'{number}.example'].is_ready = True
        assert len(line._hosts) <= MAX_HOSTS  # pyright: ignore[reportPrivateUsage]

    run_in_loop(scenario)


def test_a_host_that_was_given_up_or_is_backing_off_is_not_forgotten() -> None:
    async def scenario() -> None:
        line = hosts()
        now = asyncio.get_running_loop().time()
        line['dead.example'].give_up('dead')
        line['dead.example'].is_ready = True
        line['slow.example'].next_at = now + 1000
        line['slow.example'].is_ready = True
        for number in range(2 * MAX_HOSTS):
            line[f'{number}.example'].is_ready = True
        assert line['dead.example'].refusal == 'dead'
        assert line.remaining_backoffs(now) == {'slow.example': pytest.approx(1000)}

    run_in_loop(scenario)

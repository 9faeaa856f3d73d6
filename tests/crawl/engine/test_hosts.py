"""Politeness: who may go when, without a network and without waiting."""

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


def within_a_loop(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await scenario()

    asyncio.run(bounded())


def hosts(*, concurrency: int = 4, min_delay_seconds: float = 0.0) -> Hosts:
    return Hosts(concurrency=concurrency, min_delay_seconds=min_delay_seconds, retry_seconds=10)


def test_nothing_is_fetched_from_a_host_whose_rules_are_not_known() -> None:
    assert host(is_ready=False).ready_at() == math.inf


def wrong(one: Host, retry_class: RetryClass, *, at: float, patience: float | None = None) -> bool:
    """A request that began and failed at that time."""
    return one.record_failure(retry_class, started_at=at, now=at, retry_after_seconds=patience)


def test_more_is_open_at_a_time_while_a_host_is_well() -> None:
    one = host()
    for _ in range(200):
        one.record_success(0.1, started_at=1)
    assert one.limit == 16


def test_a_slow_host_is_asked_less_at_a_time() -> None:
    one = host(limit=8)
    for _ in range(20):
        one.record_success(2.5, started_at=1)
    assert one.limit == 1


def test_trouble_halves_what_is_open_and_adds_a_pause_that_pages_take_away_again() -> None:
    one = host(limit=8)
    wrong(one, 'server', at=0)
    assert one.limit == 4
    assert one.added_delay_seconds > 0
    for _ in range(30):
        one.record_success(0.1, started_at=1)
    assert one.added_delay_seconds == 0


def test_a_pause_lies_between_two_requests_to_one_host() -> None:
    one = host(min_delay_seconds=2.0)
    one.begin_request(100.0)
    assert one.ready_at() == 102.0


def test_a_site_is_left_alone_for_as_long_as_it_asks() -> None:
    one = host()
    assert wrong(one, 'rate_limited', at=100, patience=33)
    assert one.ready_at() == 133


def test_when_what_a_site_asks_for_does_not_help_it_is_left_alone_for_longer() -> None:
    one = host(retry_seconds=10)
    wrong(one, 'rate_limited', at=100, patience=1)
    assert one.ready_at() == 101
    wrong(one, 'rate_limited', at=102, patience=1)
    assert one.ready_at() > 102 + 15


def test_refusals_of_requests_that_were_open_together_count_once() -> None:
    one = host(retry_seconds=0)
    for now in range(100, 116):
        one.record_failure('rate_limited', started_at=99, now=now, retry_after_seconds=None)
    assert one.backoffs == 1


def test_a_site_that_never_stops_asking_for_patience_is_given_up() -> None:
    one = host()
    for nth in range(MAX_BACKOFFS + 1):
        assert not one.is_out_of_patience
        wrong(one, 'rate_limited', at=10_000.0 * nth, patience=5)
    assert one.is_out_of_patience


def test_a_host_that_does_not_answer_is_left_alone_then_given_up() -> None:
    one = host()
    alone = [wrong(one, 'connection', at=0) for _ in range(5 * MAX_BACKOFFS)]
    assert sum(alone) == MAX_BACKOFFS
    assert not one.is_out_of_patience
    for _ in range(5):
        wrong(one, 'connection', at=0)
    assert one.is_out_of_patience


def test_a_host_that_answers_with_errors_is_borne_with_for_longer() -> None:
    one = host()
    for _ in range(20 * (MAX_BACKOFFS + 1) - 1):
        wrong(one, 'server', at=0)
    assert not one.is_out_of_patience
    wrong(one, 'server', at=0)
    assert one.is_out_of_patience


def test_a_page_makes_a_host_well_again() -> None:
    one = host()
    for _ in range(7):
        wrong(one, 'connection', at=0)
    assert one.record_success(0.1, started_at=1)
    assert (one.streak, one.backoffs) == (0, 0)
    assert not one.record_success(0.1, started_at=1)


def test_a_page_that_was_asked_for_before_ends_no_pause() -> None:
    one = host()
    wrong(one, 'rate_limited', at=10, patience=30)
    assert not one.record_success(0.1, started_at=9)
    assert one.backoffs == 1
    assert one.record_success(0.1, started_at=41)
    assert one.backoffs == 0


def test_a_host_that_waits_holds_up_no_other() -> None:
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

    within_a_loop(scenario)


def test_hosts_take_turns() -> None:
    async def scenario() -> None:
        line = hosts(concurrency=4)
        for name in ('a', 'b'):
            line[f'{name}.example'].is_ready = True
            for _ in range(2):
                line.put(task(f'https://{name}.example/'))
        taken = [(await line.take())[0].name for _ in range(4)]
        assert taken == ['a.example', 'b.example', 'a.example', 'b.example']

    within_a_loop(scenario)


def test_no_more_is_open_than_the_job_allows() -> None:
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

    within_a_loop(scenario)


def test_what_waits_for_a_moment_goes_at_that_moment() -> None:
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

    within_a_loop(scenario)


def test_how_long_everything_has_to_wait_is_known() -> None:
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

    within_a_loop(scenario)


def test_hosts_that_have_to_be_waited_for_leave_others_starved() -> None:
    async def scenario() -> None:
        line = hosts(concurrency=2)
        now = asyncio.get_running_loop().time()
        line['a.example'].is_ready = True
        line.put(task('https://a.example/'))
        assert not line.is_starved(now)
        line['a.example'].back_off(now, 100)
        assert line.is_starved(now)

    within_a_loop(scenario)


def test_a_site_with_endless_hosts_fills_no_memory() -> None:
    async def scenario() -> None:
        line = hosts()
        for number in range(3 * MAX_HOSTS):
            line[f'{number}.example'].is_ready = True
        assert len(line._hosts) <= MAX_HOSTS  # pyright: ignore[reportPrivateUsage]

    within_a_loop(scenario)


def test_a_host_that_was_given_up_or_wants_a_pause_is_not_forgotten() -> None:
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

    within_a_loop(scenario)

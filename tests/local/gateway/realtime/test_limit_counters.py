"""The meter that stands in for hosted Realtime's rate counters."""

from silkline_local.gateway.realtime.limits import FREE_TIER, Limits, Meter


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_running_second_is_judged_when_it_is_over() -> None:
    clock = Clock()
    meter = Meter(100, clock=clock)
    meter.add(1000)
    assert not meter.is_exceeded
    clock.now += 1
    assert meter.is_exceeded


def test_a_burst_after_a_quiet_minute_is_forgiven() -> None:
    clock = Clock()
    meter = Meter(100, clock=clock)
    clock.now += 120
    meter.add(1000)
    clock.now += 1
    assert meter.average == 1000 / 60
    assert not meter.is_exceeded


def test_going_on_too_fast_is_exceeded_and_being_quiet_heals() -> None:
    clock = Clock()
    meter = Meter(100, clock=clock)
    for _ in range(10):
        meter.add(150)
        clock.now += 1
    assert meter.is_exceeded
    clock.now += 60
    assert not meter.is_exceeded


def test_without_a_limit_nothing_is_exceeded() -> None:
    clock = Clock()
    meter = Meter(None, clock=clock)
    meter.add(10**9)
    clock.now += 1
    assert not meter.is_exceeded


def test_the_free_tier_is_the_documented_one() -> None:
    assert Limits() == FREE_TIER
    assert FREE_TIER.connections == 200
    assert FREE_TIER.messages_per_second == 100
    assert FREE_TIER.joins_per_second == 100
    assert FREE_TIER.channels_per_connection == 100
    assert FREE_TIER.allow_payload(256_000)
    assert not FREE_TIER.allow_payload(257_000)

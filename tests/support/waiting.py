"""The one way a test waits: for a condition, up to a deadline that only a failing test reaches."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar('T')


def wait_until(condition: Callable[[], T | None], *, seconds: float = 60.0, what: str = '') -> T:
    """Return the first true value of `condition`; fail the test if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f'waited {seconds} s for {what or condition}')
        time.sleep(0.02)
    return value


def quickest(measure: Callable[[], float], *, within_seconds: float) -> float:
    """The shortest of up to three tries: a busy machine slows down some, a slow program all."""
    least = measure()
    for _ in range(2):
        if least >= within_seconds:
            least = min(least, measure())
    return least

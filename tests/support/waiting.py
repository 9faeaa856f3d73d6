"""The one way a test waits: for a condition, up to a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar('T')


def wait_until(condition: Callable[[], T], *, seconds: float = 10.0, what: str = '') -> T:
    """Answer the first true value of `condition`; fail the test when none comes in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f'waited {seconds} s in vain for {what or condition}')
        time.sleep(0.02)
    return value

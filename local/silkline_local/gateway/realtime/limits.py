"""How much one project may do, as hosted Realtime counts it.

Owns the figures of the free tier and the meter that compares against them. What happens to
whoever goes over is decided where it happens. Bounds that protect the process itself are not
limits: they hold always, and stand beside what they bound.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

# Hosted Realtime compares the average of at most this many seconds, so a burst is forgiven.
SECONDS_KEPT = 60
# Hosted Realtime measures terms, not text, and allows this for the difference.
PAYLOAD_SLACK_BYTES = 500


@dataclass(frozen=True, slots=True)
class Limits:
    """Per project, except channels, which are per connection."""

    connections: int = 200
    messages_per_second: int = 100
    joins_per_second: int = 100
    channels_per_connection: int = 100
    payload_bytes: int = 256_000

    def allow_payload(self, size: int) -> bool:
        return size <= self.payload_bytes + PAYLOAD_SLACK_BYTES


FREE_TIER = Limits()


class Meter:
    """Counts events per second; without a limit it is never exceeded."""

    def __init__(self, limit: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._tick_at = clock()
        self._current = 0
        # Hosted Realtime ticks once as it starts: the first second weighs half.
        self._seconds: deque[int] = deque([0], maxlen=SECONDS_KEPT)

    def add(self, count: int = 1) -> None:
        if self.limit is not None:
            self._roll()
            self._current += count

    @property
    def is_exceeded(self) -> bool:
        return self.limit is not None and self.average >= self.limit

    @property
    def average(self) -> float:
        """Per second, over whole seconds only: the running one counts when it is over."""
        self._roll()
        return sum(self._seconds) / len(self._seconds)

    def _roll(self) -> None:
        elapsed = int(self._clock() - self._tick_at)
        if elapsed <= 0:
            return
        self._tick_at += elapsed
        self._seconds.append(self._current)
        self._seconds.extend([0] * min(elapsed - 1, SECONDS_KEPT))
        self._current = 0

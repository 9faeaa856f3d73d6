"""What a worker counts, for Prometheus, and whether it is healthy.

`worker.py`, `job_run.py` and `rpc.py` report to `Metrics`, which knows none of them. Serving the
figures over HTTP is in `metrics_server.py`.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from silkline import __version__

# A call is cut at 12 s, see rpc.py; the database cuts it at 8 s.
API_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SPAWN_SECONDS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2.5, 5, 10)
# Codes may come from a runner, and every label value is a series that never goes away.
MAX_CODES = 40
CODE = re.compile(r'[a-z][a-z_]{0,31}')

ApiOutcome = Literal['ok', 'refused', 'failed']


@dataclass(frozen=True, slots=True)
class Health:
    is_healthy: bool
    status: Literal['ok', 'starting', 'out_of_touch']
    reason: str
    heartbeat_age_seconds: float | None


class Metrics:
    """The figures of one worker. No method raises or waits."""

    def __init__(
        self,
        *,
        slots: int,
        longest_silence_seconds: float = 105.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Without a heartbeat for this long, its leases may have expired. Set again once the
        # settings of the project are known.
        self.longest_silence_seconds = longest_silence_seconds
        self._clock = clock
        self._started_at = clock()
        self._heartbeat_at: float | None = None
        self._codes: set[str] = set()
        # A registry of its own, without the defaults of the library.
        disable_created_metrics()
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Gauge('silkline_worker_info', 'Always 1.', ['version'], registry=registry).labels(
            __version__
        ).set(1)
        self._claimed = Counter('silkline_jobs_claimed', 'Jobs claimed.', registry=registry)
        self._completed = Counter('silkline_jobs_completed', 'Jobs completed.', registry=registry)
        self._failed = Counter(
            'silkline_jobs_failed', 'Runs that failed; retries too.', ['code'], registry=registry
        )
        self._released = Counter(
            'silkline_jobs_released',
            'Jobs released: for pause, stop, cancel, or because the worker stopped.',
            ['reason'],
            registry=registry,
        )
        self._lost = Counter(
            'silkline_jobs_lost', 'Jobs whose lease expired while they ran.', registry=registry
        )
        Gauge('silkline_slots', 'How many jobs run at a time.', registry=registry).set(slots)
        self._busy = Gauge('silkline_slots_busy', 'Slots with a job in them.', registry=registry)
        self._heartbeats = Counter(
            'silkline_heartbeats', 'Heartbeats by outcome.', ['outcome'], registry=registry
        )
        for outcome in ('ok', 'failed'):
            self._heartbeats.labels(outcome)
        Gauge(
            'silkline_heartbeat_age_seconds',
            'Since the last successful heartbeat, or since the start.',
            registry=registry,
        ).set_function(self.silent_seconds)
        self._calls = Histogram(
            'silkline_api_call_seconds',
            'Single attempts at the API, without the pauses between them.',
            ['function', 'outcome'],
            buckets=API_SECONDS,
            registry=registry,
        )
        self._spawns = Histogram(
            'silkline_runner_spawn_seconds',
            'From the claim of a job to the first message of its process.',
            buckets=SPAWN_SECONDS,
            registry=registry,
        )
        self._checkpoints = Counter(
            'silkline_checkpoints', 'Checkpoints that were answered.', registry=registry
        )

    def count_claimed(self, jobs: int) -> None:
        self._claimed.inc(jobs)

    def count_completed(self) -> None:
        self._completed.inc()

    def count_failed(self, code: str) -> None:
        """By the code's first part: `crashed:SIGSEGV` counts as `crashed`."""
        self._failed.labels(self._bounded(code.partition(':')[0])).inc()

    def count_released(self, reason: str) -> None:
        self._released.labels(self._bounded(reason)).inc()

    def count_lost(self) -> None:
        self._lost.inc()

    def set_busy_slots(self, count: int) -> None:
        self._busy.set(count)

    def note_heartbeat(self, asked_at: float | None = None) -> None:
        """One succeeded. A lease is counted from before the call: `asked_at` is that time."""
        self._heartbeats.labels('ok').inc()
        self._heartbeat_at = self._clock() if asked_at is None else asked_at

    def note_missed_heartbeat(self) -> None:
        self._heartbeats.labels('failed').inc()

    def time_call(self, function: str, outcome: ApiOutcome, seconds: float) -> None:
        self._calls.labels(function, outcome).observe(seconds)

    def time_spawn(self, seconds: float) -> None:
        self._spawns.observe(seconds)

    def count_checkpoint(self) -> None:
        self._checkpoints.inc()

    def silent_seconds(self) -> float:
        since = self._started_at if self._heartbeat_at is None else self._heartbeat_at
        return max(self._clock() - since, 0.0)

    def health(self) -> Health:
        """Healthy while its leases are safe: a restart before that would only cost jobs."""
        if self._heartbeat_at is None:
            return Health(False, 'starting', 'no heartbeat has succeeded yet', None)
        age = round(self.silent_seconds(), 3)
        if age > self.longest_silence_seconds:
            reason = f'no heartbeat has succeeded for {age:.0f} s'
            return Health(False, 'out_of_touch', reason, age)
        return Health(True, 'ok', f'the last heartbeat was {age:.0f} s ago', age)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def _bounded(self, code: str) -> str:
        if code not in self._codes:
            if len(self._codes) >= MAX_CODES or not CODE.fullmatch(code):
                return 'other'
            self._codes.add(code)
        return code

"""What a worker counts, for Prometheus, and whether it is well.

`Metrics` is told by `worker.py`, `job_run.py` and `rpc.py` what happened, and knows none of them.
`serve` answers GET /metrics and GET /healthz and nothing else: it is a dozen lines over asyncio
rather than a framework, bounded in size and time, and whatever is sent to it stays in it.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
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
from silkline.errors import SettingsError

logger = logging.getLogger(__name__)

# A call is cut at 12 s, see rpc.py; the database cuts it at 8 s.
API_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SPAWN_SECONDS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2.5, 5, 10)
# Error codes may come from a runner, and each value of a label is a series for ever.
MOST_CODES = 40
CODE = re.compile(r'[a-z][a-z_]{0,31}')
TEXT_FORMAT = 'text/plain; version=0.0.4; charset=utf-8'

LONGEST_REQUEST_BYTES = 8 * 1024
REQUEST_SECONDS = 5.0
MOST_CONNECTIONS = 32
REASONS = {
    200: 'OK',
    400: 'Bad Request',
    404: 'Not Found',
    405: 'Method Not Allowed',
    431: 'Request Header Fields Too Large',
    503: 'Service Unavailable',
}

ApiOutcome = Literal['ok', 'refused', 'failed']


@dataclass(frozen=True, slots=True)
class Health:
    is_well: bool
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
        # Without a heartbeat for so long, its leases may have ended. Set anew once the pace of
        # the project is known.
        self.longest_silence_seconds = longest_silence_seconds
        self._clock = clock
        self._started_at = clock()
        self._heartbeat_at: float | None = None
        self._codes: set[str] = set()
        # Of its own: tests have many, and none of the library's defaults are wanted.
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
            'Jobs handed back: for pause, stop, cancel, or because the worker stopped.',
            ['reason'],
            registry=registry,
        )
        self._lost = Counter(
            'silkline_jobs_lost', 'Jobs whose lease had ended meanwhile.', registry=registry
        )
        Gauge('silkline_slots', 'Jobs at a time.', registry=registry).set(slots)
        self._busy = Gauge('silkline_slots_busy', 'Slots with a job in them.', registry=registry)
        self._heartbeats = Counter(
            'silkline_heartbeats', 'Heartbeats by outcome.', ['outcome'], registry=registry
        )
        for outcome in ('ok', 'failed'):
            self._heartbeats.labels(outcome)
        Gauge(
            'silkline_heartbeat_age_seconds',
            'Since the last heartbeat that landed, or since the start.',
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
            'From a claimed job to the first word of its process.',
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
        """One landed. A lease counts from before the call: `asked_at` is the clock then."""
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
        """Well while its leases are safe: before that is over, a restart would only cost jobs."""
        if self._heartbeat_at is None:
            return Health(False, 'starting', 'no heartbeat has landed yet', None)
        age = round(self.silent_seconds(), 3)
        if age > self.longest_silence_seconds:
            reason = f'no heartbeat has landed for {age:.0f} s'
            return Health(False, 'out_of_touch', reason, age)
        return Health(True, 'ok', f'a heartbeat landed {age:.0f} s ago', age)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def _bounded(self, code: str) -> str:
        if code not in self._codes:
            if len(self._codes) >= MOST_CODES or not CODE.fullmatch(code):
                return 'other'
            self._codes.add(code)
        return code


@asynccontextmanager
async def serve(
    metrics: Metrics,
    port: int,
    *,
    host: str = '127.0.0.1',
    request_seconds: float = REQUEST_SECONDS,
) -> AsyncGenerator[int]:
    """Answer while the context is open; gives the port, which is chosen if it is 0."""
    open_connections: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(open_connections) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        open_connections.add(writer)
        try:
            async with asyncio.timeout(request_seconds):
                writer.write(await respond(metrics, reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        except Exception:
            logger.exception('a request for metrics broke')
        finally:
            # Nothing after the answer is waited for, read or kept.
            writer.transport.abort()
            open_connections.discard(writer)

    try:
        server = await asyncio.start_server(answer, host, port, limit=LONGEST_REQUEST_BYTES)
    except (OSError, OverflowError) as error:
        raise SettingsError(f'metrics cannot be served on {host}:{port}: {error}') from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in open_connections:
            writer.transport.abort()
        await server.wait_closed()


async def respond(metrics: Metrics, reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b'\r\n\r\n')
    except asyncio.LimitOverrunError:
        return response(431, 'the request is too long')
    line = head.partition(b'\r\n')[0]
    match line.split(b' '):
        case [method, target, b'HTTP/1.0' | b'HTTP/1.1'] if target.startswith(b'/'):
            path = target.partition(b'?')[0]
        case _:
            return response(400, 'this is no HTTP/1.1 request')
    if path not in (b'/metrics', b'/healthz'):
        return response(404, 'there are /metrics and /healthz')
    if method not in (b'GET', b'HEAD'):
        return response(405, 'only GET and HEAD are answered', more='Allow: GET, HEAD\r\n')
    has_body = method == b'GET'
    if path == b'/metrics':
        return response(200, metrics.exposition(), kind=TEXT_FORMAT, has_body=has_body)
    health = metrics.health()
    body = {
        'status': health.status,
        'reason': health.reason,
        'heartbeat_age_seconds': health.heartbeat_age_seconds,
    }
    return response(
        200 if health.is_well else 503,
        json.dumps(body).encode(),
        kind='application/json',
        has_body=has_body,
    )


def response(
    status: int,
    body: bytes | str,
    *,
    kind: str = 'text/plain; charset=utf-8',
    more: str = '',
    has_body: bool = True,
) -> bytes:
    content = f'{body}\n'.encode() if isinstance(body, str) else body
    head = (
        f'HTTP/1.1 {status} {REASONS[status]}\r\n'
        f'Content-Type: {kind}\r\n'
        f'Content-Length: {len(content)}\r\n'
        'Cache-Control: no-store\r\n'
        'X-Content-Type-Options: nosniff\r\n'
        f'{more}'
        'Connection: close\r\n\r\n'
    )
    return head.encode() + (content if has_body else b'')

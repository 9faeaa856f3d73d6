"""Silkline as a crawler to measure: stack and worker as a user runs them.

Everything runs on the core of this process except the runner, the subprocess that crawls: it is
moved to the crawler's core as soon as the worker has started it. Processor time and memory are read
from /proc.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg

from benchmarks.crawl.peers import paths_of
from benchmarks.shared.server import processor_seconds
from benchmarks.shared.stack import Stack, run_stack

LOOPBACK = '127.0.0.0/8'
SECONDS = 1800.0
WATCH_SECONDS = 0.002
POLL_SECONDS = 0.05
OPEN = ('pending', 'processing', 'paused')
PARTS = ('runner', 'supervisor', 'gateway', 'postgres', 'nginx')


@dataclass(frozen=True, slots=True)
class OurRun:
    """The result of a job. Times are those of the database."""

    job: str
    paths: frozenset[str]
    # From enqueue, which includes the start of the runner, and from claim.
    seconds: float
    claimed_seconds: float
    processor_seconds: Mapping[str, float]
    peak_megabytes: float

    @property
    def rate(self) -> float:
        return len(self.paths) / self.seconds

    @property
    def crawler_seconds(self) -> float:
        """Processor time on the crawler's core."""
        return self.processor_seconds['runner']

    @property
    def claimed_rate(self) -> float:
        return len(self.paths) / self.claimed_seconds


@dataclass(frozen=True, slots=True)
class Silkline:
    """A stack with a worker that waits for jobs."""

    stack: Stack
    worker: int
    postmaster: int
    nginx: int
    core: int
    log: Path
    connection: psycopg.Connection

    @property
    def release(self) -> str:
        return self.connection.info.parameter_status('server_version') or ''

    def crawl(
        self, url: str, *, on_runner: Callable[[int], None] | None = None, **options: Any
    ) -> OurRun:
        """Enqueue a job through the API and wait for its end."""
        before = self._usage()
        job = self._enqueue({'url': url, **options})
        watch = RunnerWatch(self.worker, self.core, on_runner)
        deadline = time.monotonic() + SECONDS
        poll_at = 0.0
        while True:
            watch.look()
            now = time.monotonic()
            if now >= poll_at:
                status, error = self._row('select status, error_message from silkline.jobs', job)
                if status not in OPEN and watch.has_ended:
                    break
                if now > deadline:
                    self._give_up(f'job {job} did not end in {SECONDS:g} s')
                poll_at = now + POLL_SECONDS
            time.sleep(WATCH_SECONDS if watch.runner is None else POLL_SECONDS / 2)
        if status != 'completed':
            self._give_up(f'job {job} is {status}: {error}')
        after = self._usage()
        seconds, claimed_seconds = self._row(
            'select extract(epoch from completed_at - created_at)::float8,'
            ' extract(epoch from completed_at - started_at)::float8 from silkline.jobs',
            job,
        )
        rows = self.connection.execute('select url from crawl_pages where job_id = %s', [job])
        return OurRun(
            job=job,
            paths=paths_of([url for (url,) in rows.fetchall()]),
            seconds=seconds,
            claimed_seconds=claimed_seconds,
            processor_seconds={part: after[part] - before[part] for part in PARTS},
            peak_megabytes=watch.peak_megabytes,
        )

    def _enqueue(self, payload: dict[str, Any]) -> str:
        answer = httpx.post(
            f'{self.stack.variables["SUPABASE_URL"]}/rest/v1/rpc/enqueue_crawl_job',
            headers={'apikey': self.stack.variables['SUPABASE_SECRET_KEY']},
            json={'p_payload': payload},
            timeout=20,
        )
        if answer.is_error:
            sys.exit(f'the job was refused: {answer.text}')
        return answer.json()[0]['id']

    def _row(self, query: str, job: str) -> tuple[Any, ...]:
        row = self.connection.execute(f'{query} where id = %s'.encode(), [job]).fetchone()
        assert row is not None
        return row

    def _usage(self) -> dict[str, float]:
        own, of_runners = usage(self.worker)
        return {
            'runner': of_runners,
            'supervisor': own,
            'gateway': usage(self.stack.process)[0],
            'postgres': processor_seconds(self.postmaster),
            'nginx': usage(self.nginx)[0],
        }

    def _give_up(self, why: str) -> None:
        sys.exit(f"{why}\nthe end of the worker's log:\n{self.log.read_text()[-3000:]}")


class RunnerWatch:
    """Finds the runner of the next job, moves it to its core, and records its peak memory."""

    def __init__(
        self, worker: int, core: int, on_runner: Callable[[int], None] | None = None
    ) -> None:
        self.runner: int | None = None
        self.has_ended = False
        self.peak_megabytes = 0.0
        self._worker = worker
        self._core = core
        self._on_runner = on_runner

    def look(self) -> None:
        runners = children(self._worker)
        if self.runner is None and runners:
            self.runner = runners[0]
            # Before it starts a thread: threads inherit the core.
            with suppress(ProcessLookupError):
                os.sched_setaffinity(self.runner, {self._core})
            if self._on_runner is not None:
                self._on_runner(self.runner)
        if self.runner is not None:
            self.has_ended = self.runner not in runners
            # The last value, not the highest: before exec the process is a copy of the worker.
            self.peak_megabytes = peak_megabytes(self.runner) or self.peak_megabytes


@contextmanager
def run_silkline(directory: Path, *, nginx: int, core: int) -> Generator[Silkline]:
    log = directory / 'worker.log'
    with (
        run_stack(directory / 'stack') as stack,
        psycopg.connect(stack.variables['SUPABASE_DB_URL'], autocommit=True) as connection,
        log.open('wb') as output,
    ):
        worker = subprocess.Popen(
            [
                Path(sys.executable).with_name('silkline'),
                'worker',
                '--slots=1',
                f'--state={directory / "state"}',
            ],
            env={**os.environ, **stack.variables, 'SILKLINE_ALLOW_NETWORKS': LOOPBACK},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        [pid_file] = (directory / 'stack').rglob('postmaster.pid')
        postmaster = int(pid_file.read_text().split('\n', 1)[0])
        try:
            yield Silkline(stack, worker.pid, postmaster, nginx, core, log, connection)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait()


def children(process: int) -> list[int]:
    """The children of all its threads, zombies included."""
    found: list[int] = []
    for path in Path(f'/proc/{process}/task').glob('*/children'):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, path.read_text().split())
    return found


def usage(process: int) -> tuple[float, float]:
    """Processor seconds of a process, and of its children that have ended."""
    fields = Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()
    second = os.sysconf('SC_CLK_TCK')
    own, of_children = (int(fields[at]) + int(fields[at + 1]) for at in (11, 13))
    return own / second, of_children / second


def peak_megabytes(process: int) -> float:
    """The peak resident memory of a process; 0 if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f'/proc/{process}/status').read_text().splitlines():
            if line.startswith('VmHWM'):
                return int(line.split()[1]) / 1024
    return 0.0

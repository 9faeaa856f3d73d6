"""Measure the worker: `python -m benchmarks.worker [--quick]`.

Runs `silkline up` and `silkline worker` as a user does, with jobs that crawl the pages of `site.py`
on loopback, so that what is timed is the worker and not a network. Prints one line per claim (ok
or short), writes `benchmarks/results/worker.md`, and exits with 1 when a claim falls short.
`--quick` measures less and writes nothing.
"""

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg.types.json import Jsonb

from benchmarks.shared.report import Report
from benchmarks.shared.server import ROOT
from benchmarks.shared.stack import Stack, memory_megabytes, run_stack
from benchmarks.worker.site import NETWORK, Site
from silkline_local.postgres.server import SUPERUSER

RESULTS = ROOT / 'benchmarks/results/worker.md'
SECONDS = 300.0
SETTLE_SECONDS = 1.0
# Time for a worker to have a process ready for the next job.
REST_SECONDS = 1.0
# Time for a running job to have its page open.
CANCEL_AFTER_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Size:
    jobs: int
    slots: int
    latencies: int
    cancels: int
    idle_seconds: float


FULL = Size(jobs=1000, slots=50, latencies=100, cancels=50, idle_seconds=90)
# Postgres may count a call up to 10 s late, so a shorter idle time would count busy calls.
QUICK = Size(jobs=100, slots=50, latencies=10, cancels=5, idle_seconds=30)


def main() -> int:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.worker', description=__doc__)
    parser.add_argument('--quick', action='store_true', help='measure less; write no results')
    is_quick = parser.parse_args().quick
    size = QUICK if is_quick else FULL
    report = Report()
    with TemporaryDirectory(prefix='silkline-bench-') as name:
        directory = Path(name)
        directory.chmod(0o711)
        with run_stack(directory / 'stack') as stack, Site() as site:
            release = measure(report, size, stack, site, directory)
    if not is_quick:
        report.write(
            RESULTS,
            title='The worker, measured',
            how='`make bench-worker`: worker, runners, gateway and Postgres share the machine. Jobs'
            ' crawl a site on loopback that answers at once. Figures are medians.',
            versions={'PostgreSQL': release, 'Python': platform.python_version()},
        )
        print(f'written to {RESULTS}')
    return 0 if report.holds else 1


def measure(report: Report, size: Size, stack: Stack, site: Site, directory: Path) -> str:
    url = stack.variables['SUPABASE_DB_URL'].replace('//postgres:', f'//{SUPERUSER}:', 1)
    with psycopg.connect(url, autocommit=True) as connection:
        # Postgres then counts the calls of functions.
        connection.execute("alter system set track_functions = 'pl'")
        connection.execute('select pg_reload_conf()')
        with run_worker(stack, directory, slots=4) as process:
            measure_latency(report, connection, site, size.latencies, name='a one-page job')
            measure_latency(
                report,
                connection,
                site,
                size.latencies // 2,
                name='a one-page job for an idle worker',
                rest_seconds=REST_SECONDS,
            )
            measure_cancel(report, connection, site, process, size.cancels)
            measure_idle(report, connection, process, size.idle_seconds)
        measure_jobs(report, connection, stack, site, directory, size)
        return connection.info.parameter_status('server_version') or ''


@contextmanager
def run_worker(stack: Stack, directory: Path, *, slots: int) -> Generator[int]:
    process = subprocess.Popen(
        [
            Path(sys.executable).with_name('silkline'),
            'worker',
            f'--slots={slots}',
            f'--state={directory / "state"}',
            f'--allow-network={NETWORK}',
        ],
        env={**os.environ, **stack.variables},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def measure_latency(
    report: Report,
    connection: psycopg.Connection,
    site: Site,
    count: int,
    *,
    name: str,
    rest_seconds: float = 0.0,
) -> None:
    """From enqueue to the end of a job of one page."""
    times: list[float] = []
    for nth in range(count + 2):
        time.sleep(rest_seconds)
        began_at = time.perf_counter()
        [job] = enqueue(connection, [site.url('/')])
        wait_until_ended(connection, [job])
        # The first ones include the start of the worker.
        if nth >= 2:
            times.append((time.perf_counter() - began_at) * 1000)
    report.at_most(f'enqueue to the end of {name}, p50', statistics.median(times), 300, 'ms')
    # A missed wake-up would cost a whole poll interval.
    report.at_most(f'enqueue to the end of {name}, longest', max(times), 1000, 'ms')
    report.figure(f'enqueue to the end of {name}', times, 'ms')


def measure_cancel(
    report: Report, connection: psycopg.Connection, site: Site, process: int, count: int
) -> None:
    """From the cancellation to the end of the process, which waits for a page."""
    times: list[float] = []
    for _ in range(count):
        # The process that waits now gets the job.
        wait_until(lambda: len(children(process)) == 1)
        [runner] = children(process)
        [job] = enqueue(connection, [site.url('/never')])
        wait_until(lambda: count_jobs(connection, [job], 'processing') == 1)  # noqa: B023
        time.sleep(CANCEL_AFTER_SECONDS)
        began_at = time.perf_counter()
        connection.execute('select public.cancel_crawl_job(%s)', [job])
        wait_until(lambda: not is_alive(runner))  # noqa: B023
        times.append((time.perf_counter() - began_at) * 1000)
    # The longest of fifty is the 99th percentile.
    report.at_most(f'cancel to the end of the process, longest of {count}', max(times), 2000, 'ms')
    report.figure('cancel to the end of the process', times, 'ms')


def measure_idle(
    report: Report, connection: psycopg.Connection, process: int, seconds: float
) -> None:
    """Calls of a worker that has been idle for a while."""
    time.sleep(seconds * 2 / 3)
    report.at_most('memory of an idle worker', memory_megabytes(process), 60, 'MB')
    before = calls(connection)
    time.sleep(seconds / 3)
    rate = (calls(connection) - before) / (seconds / 3)
    assert before > 0, 'calls of functions are not counted'
    report.at_most('requests of an idle worker', rate, 1, '/s')


def calls(connection: psycopg.Connection) -> int:
    """Claims and heartbeats so far, as Postgres counts calls of functions."""
    row = connection.execute(
        'select coalesce(sum(calls), 0) from pg_stat_user_functions'
        " where funcname in ('claim_crawl_jobs', 'heartbeat_crawl_jobs')"
    ).fetchone()
    return 0 if row is None else int(row[0])


def measure_jobs(
    report: Report,
    connection: psycopg.Connection,
    stack: Stack,
    site: Site,
    directory: Path,
    size: Size,
) -> None:
    with run_worker(stack, directory, slots=size.slots) as process:
        wait_until_ended(connection, enqueue(connection, small_urls(site, 4)))
        time.sleep(SETTLE_SECONDS)
        before = descriptors(process)
        jobs = enqueue(connection, small_urls(site, size.jobs))
        began_at = time.perf_counter()
        wait_until_ended(connection, jobs)
        seconds = time.perf_counter() - began_at
        time.sleep(SETTLE_SECONDS)
        # One process waits for the next job.
        report.at_most(f'child processes left after {size.jobs} jobs', len(children(process)), 1)
        grown = descriptors(process) - before
        report.at_most(f'descriptors grown by, after {size.jobs} jobs', grown, 0)
        report.figure(
            f'memory of a worker with {size.slots} slots', memory_megabytes(process), 'MB'
        )
    completed = count_jobs(connection, jobs, 'completed')
    report.at_least(
        f'{size.jobs} small jobs over {size.slots} slots, completed', completed, size.jobs
    )
    report.figure(f'{size.jobs} small jobs over {size.slots} slots', size.jobs / seconds, 'jobs/s')


def children(process: int) -> list[str]:
    """The children of a process, zombies included."""
    path = Path(f'/proc/{process}/task/{process}/children')
    return path.read_text().split()


def is_alive(process: str) -> bool:
    try:
        return Path(f'/proc/{process}/stat').read_text().rpartition(') ')[2][0] != 'Z'
    except FileNotFoundError:
        return False


def descriptors(process: int) -> int:
    """Open files, without sockets: those of API calls come and go."""
    links = [os.readlink(path) for path in Path(f'/proc/{process}/fd').iterdir()]
    return sum(not link.startswith('socket:') for link in links)


def small_urls(site: Site, count: int) -> list[str]:
    return [site.url('/small') for _ in range(count)]


def enqueue(connection: psycopg.Connection, urls: Sequence[str]) -> list[str]:
    """Enqueue one job per URL. Each has its own host: a host is crawled by one job at a time."""
    jobs = [{'payload': {'url': url, 'concurrency': 2}} for url in urls]
    row = connection.execute(
        "select public.enqueue_crawl_jobs(%s) -> 'job_ids'", [Jsonb(jobs)]
    ).fetchone()
    assert row is not None
    return row[0]


def wait_until_ended(connection: psycopg.Connection, jobs: Sequence[str]) -> None:
    wait_until(
        lambda: count_jobs(connection, jobs, 'pending', 'processing') == 0,
        pause_seconds=0.005 if len(jobs) == 1 else 0.1,
    )


def wait_until(condition: Callable[[], bool], *, pause_seconds: float = 0.005) -> None:
    deadline = time.perf_counter() + SECONDS
    while not condition():
        if time.perf_counter() > deadline:
            sys.exit(f'gave up waiting after {SECONDS:g} s')
        time.sleep(pause_seconds)


def count_jobs(connection: psycopg.Connection, jobs: Sequence[str], *statuses: str) -> int:
    row = connection.execute(
        'select count(*) from silkline.jobs'
        ' where id = any (%s::uuid[]) and status::text = any (%s)',
        [list(jobs), list(statuses)],
    ).fetchone()
    return 0 if row is None else int(row[0])


if __name__ == '__main__':
    sys.exit(main())

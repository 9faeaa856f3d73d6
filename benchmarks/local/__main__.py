"""Measure the local stack: `python -m benchmarks.local [--quick]`.

Runs `silkline up` as a user does, in a temporary directory, and measures it from outside: how long
it takes to start, what the gateway adds to a call, how many calls it answers, how soon a broadcast
reaches 200 sockets. Prints one line per claim (ok or short), writes `benchmarks/results/local.md`,
and exits with 1 when a claim falls short. `--quick` measures less and writes nothing.
"""

import argparse
import asyncio
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from benchmarks.local.calls import HttpCall, direct_call
from benchmarks.local.fanout import Audience
from benchmarks.shared.report import Report
from benchmarks.shared.server import ROOT
from benchmarks.shared.stack import Stack, memory_megabytes, run_stack

RESULTS = ROOT / 'benchmarks/results/local.md'
FUNCTION = 'pending_crawl_work'
SOCKETS = 200
IDLE_SOCKETS = 1000


@dataclass(frozen=True, slots=True)
class Size:
    cold_starts: int
    warm_starts: int
    latency_blocks: int
    throughput_rounds: int
    throughput_seconds: float
    broadcasts: int


FULL = Size(
    cold_starts=5,
    warm_starts=7,
    latency_blocks=20,
    throughput_rounds=7,
    throughput_seconds=2.0,
    broadcasts=100,
)
QUICK = Size(
    cold_starts=1,
    warm_starts=2,
    latency_blocks=5,
    throughput_rounds=3,
    throughput_seconds=0.7,
    broadcasts=20,
)
CALLS_PER_BLOCK = 100
CONNECTIONS = 16


def main() -> int:
    arguments = parse_arguments()
    size = QUICK if arguments.quick else FULL
    report = Report()
    with TemporaryDirectory(prefix='silkline-bench-') as name:
        directory = Path(name)
        directory.chmod(0o711)
        measure_starts(report, size, directory)
        with run_stack(directory / 'stack') as stack:
            measure_latency(report, size, stack)
            measure_throughput(report, size, stack)
            asyncio.run(measure_fanout(report, size, stack))
            with psycopg.connect(stack.variables['SUPABASE_DB_URL']) as connection:
                release = connection.info.parameter_status('server_version') or ''
    if not arguments.quick:
        report.write(
            RESULTS,
            title='The local stack, measured',
            how='`make bench-local`: client, gateway and Postgres share the machine. Sides of a'
            ' comparison took turns within one run; figures are medians.',
            versions={
                'PostgreSQL': release,
                'Python': platform.python_version(),
                'psycopg': psycopg.__version__,
            },
        )
        print(f'written to {RESULTS}')
    return 0 if report.holds else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.local', description=__doc__)
    parser.add_argument('--quick', action='store_true', help='fewer rounds; write no results')
    return parser.parse_args()


def measure_starts(report: Report, size: Size, directory: Path) -> None:
    """Time from the command to the ready line, including the start of Python."""
    cold: list[float] = []
    for nth in range(size.cold_starts):
        with run_stack(directory / f'cold-{nth}') as stack:
            cold.append(stack.seconds)
    warm: list[float] = []
    for _ in range(size.warm_starts):
        with run_stack(directory / 'cold-0') as stack:
            warm.append(stack.seconds)
    report.at_most('silkline up, cold: initdb and all migrations', max(cold), 5, 's')
    report.figure('silkline up, cold', cold, 's')
    report.at_most('silkline up, warm', max(warm), 1.5, 's')
    report.figure('silkline up, warm', warm, 's')


def measure_latency(report: Report, size: Size, stack: Stack) -> None:
    """One caller takes turns: the statement over psycopg, then the call over HTTP."""
    http = HttpCall(stack.variables, FUNCTION)
    times: dict[str, list[float]] = {'psycopg': [], 'gateway': []}
    with direct_call(stack.variables, FUNCTION) as direct, http.connect() as connection:
        sides = {'psycopg': direct, 'gateway': connection.call}
        for nth in range(size.latency_blocks + 1):
            for name, call in sides.items():
                block: list[float] = []
                for _ in range(CALLS_PER_BLOCK):
                    began_at = time.perf_counter()
                    call()
                    block.append((time.perf_counter() - began_at) * 1000)
                # The first block is a warm-up: of plans, connections and the processor.
                if nth:
                    times[name] += block
    medians = {name: statistics.median(values) for name, values in times.items()}
    added = medians['gateway'] - medians['psycopg']
    report.at_most(f'{FUNCTION} by HTTP, p50 above psycopg', added, 1.5, 'ms')
    for name, values in times.items():
        report.figure(f'{FUNCTION} by {name}', medians[name], 'ms')
        report.figure(f'{FUNCTION} by {name}, p99', percentile(values, 99), 'ms')


def measure_throughput(report: Report, size: Size, stack: Stack) -> None:
    http = HttpCall(stack.variables, FUNCTION)
    rates = [
        asyncio.run(http.calls_per_second(CONNECTIONS, size.throughput_seconds))
        for _ in range(size.throughput_rounds + 1)
    ][1:]
    report.at_least(
        f'{FUNCTION} over {CONNECTIONS} connections', statistics.median(rates), 1000, 'calls/s'
    )
    report.figure(f'{FUNCTION} over {CONNECTIONS} connections', rates, 'calls/s')


async def measure_fanout(report: Report, size: Size, stack: Stack) -> None:
    """Time from just before the send until each socket has received it, by one clock."""
    idle = memory_megabytes(stack.process)
    async with Audience(stack.variables, SOCKETS) as audience:
        for name, send in (
            ('a client', audience.send_as_client),
            ('the database', audience.send_from_database),
        ):
            await audience.time_delivery(send)
            delays = [
                delay
                for _ in range(size.broadcasts)
                for delay in await audience.time_delivery(send)
            ]
            report.at_most(
                f'broadcast by {name} to {SOCKETS} sockets, p95', percentile(delays, 95), 50, 'ms'
            )
            report.figure(f'broadcast by {name}, p50', statistics.median(delays), 'ms')
    report.figure('memory of the gateway, before any socket', idle, 'MB')
    async with Audience(stack.variables, IDLE_SOCKETS):
        grown = memory_megabytes(stack.process) - idle
        report.figure(f'memory of {IDLE_SOCKETS} idle sockets, joined', grown, 'MB')


def percentile(values: list[float], rank: int) -> float:
    return statistics.quantiles(values, n=100, method='inclusive')[rank - 1]


if __name__ == '__main__':
    sys.exit(main())

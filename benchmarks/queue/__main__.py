"""Measure the queue: `python -m benchmarks.queue [--quick] [--skip-peers]`.

Prints one line per claim (ok or short), writes `benchmarks/results/queue.md`, and exits with 1
when a claim falls short. `--quick` uses a tenth of the rows, fewer rounds and no peers, and
writes nothing: it shows what has become slow, not how fast things are.

Start here: `throughput.py` counts jobs per second, `growth.py` compares small and large tables,
`reads.py` times what users read, `fleet.py` counts processor time, `snapshot.py` holds a
transaction open, `peers/` runs the others.
"""

import argparse
import platform
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.queue import peers
from benchmarks.queue.fleet import measure_fleet
from benchmarks.queue.growth import (
    compare_checkpoints,
    measure_checkpoint,
    measure_claim,
    measure_fairness,
    measure_heartbeat,
)
from benchmarks.queue.reads import measure_reads
from benchmarks.queue.snapshot import measure_snapshot
from benchmarks.queue.throughput import (
    measure_batches,
    measure_drain,
    measure_enqueue,
    measure_peers,
    measure_wal,
)
from benchmarks.shared.report import Report, table
from benchmarks.shared.server import ROOT, machine_seconds, own_seconds, run_server
from silkline_local.postgres.server import Postgres

RESULTS = ROOT / 'benchmarks/results/queue.md'


@dataclass(frozen=True, slots=True)
class Size:
    scale: int
    enqueue_calls: int
    drain_rounds: int
    drain_seconds: float
    batch_rounds: int
    claim_blocks: int
    fairness_jobs: int
    checkpoint_rounds: int
    read_rounds: int
    fleet_seconds: float
    snapshot_minutes: float


FULL = Size(
    scale=1_000_000,
    enqueue_calls=20,
    drain_rounds=7,
    drain_seconds=2.0,
    batch_rounds=9,
    claim_blocks=50,
    fairness_jobs=100_000,
    checkpoint_rounds=21,
    read_rounds=40,
    fleet_seconds=20.0,
    snapshot_minutes=30,
)
QUICK = Size(
    scale=100_000,
    enqueue_calls=5,
    drain_rounds=3,
    drain_seconds=0.7,
    batch_rounds=3,
    claim_blocks=15,
    fairness_jobs=10_000,
    checkpoint_rounds=7,
    read_rounds=10,
    fleet_seconds=5.0,
    snapshot_minutes=0.2,
)
PARTS = ('drain', 'peers', 'claim', 'checkpoint', 'reads', 'fleet', 'snapshot')
PEER_ROUNDS = 5
PEER_SECONDS = 3.0


def main() -> int:
    arguments = parse_arguments()
    size = QUICK if arguments.quick else FULL
    parts = set(arguments.only or PARTS)
    if arguments.quick or arguments.skip_peers:
        parts -= {'peers'}
    if 'peers' in parts and not peers.is_installed():
        sys.exit('the peers are not installed: run benchmarks/queue/run.sh, or add --skip-peers')
    report = Report()
    began_at, machine, own = time.monotonic(), machine_seconds(), own_seconds()
    with run_server(arguments.postgres_bin) as postgres:
        queues = measure(postgres, report, size, parts)
        if arguments.against and 'checkpoint' in parts:
            compare_checkpoints(
                postgres, report, against=arguments.against, rounds=size.checkpoint_rounds
            )
        versions = {'PostgreSQL': postgres.release, 'Python': platform.python_version()}
    others = machine_seconds() - machine - (own_seconds() - own)
    report.figure(
        'processor time of other programs meanwhile',
        max(others, 0) / (time.monotonic() - began_at),
        'cores',
    )
    versions['psycopg'] = psycopg.__version__
    if 'peers' in parts:
        versions['Node'] = peers.node_version().lstrip('v')
        versions |= {peer.package: peer.version for peer in peers.PEERS}
    if not (arguments.quick or arguments.only):
        command = ' '.join(['python -m benchmarks.queue', *sys.argv[1:]])
        report.write(
            arguments.output,
            title='The queue, measured',
            how=f'`{command}`, with fsync and synchronous_commit on. Both sides of a ratio took'
            ' turns within one run; figures are medians.',
            versions=versions,
            tables=[
                (
                    'Drain: claim and complete, jobs per second',
                    table(('queue', 'how', '1 worker', '4 workers'), queues),
                )
            ],
        )
        print(f'written to {arguments.output}')
    return 0 if report.holds else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.queue', description=__doc__)
    parser.add_argument('--quick', action='store_true', help='a tenth of the rows, no peers')
    parser.add_argument(
        '--skip-peers', action='store_true', help='only silkline and the bare table'
    )
    parser.add_argument(
        '--only', nargs='+', choices=PARTS, help='only these parts; write no results'
    )
    parser.add_argument(
        '--postgres-bin', type=Path, help='directory of another initdb and postgres'
    )
    parser.add_argument(
        '--against', type=Path, help='compare the checkpoint with that of these migrations'
    )
    parser.add_argument('--output', type=Path, default=RESULTS, help='where to write the results')
    return parser.parse_args()


def measure(
    postgres: Postgres, report: Report, size: Size, parts: Collection[str]
) -> list[Sequence[str]]:
    """Measure the parts in turn; return the rows of the table of queues."""
    queues: list[Sequence[str]] = []
    if 'drain' in parts or 'peers' in parts:
        measure_enqueue(postgres, report, calls=size.enqueue_calls)
        queues += measure_drain(
            postgres,
            report,
            rounds=size.drain_rounds,
            seconds=size.drain_seconds,
            only_claims=size is QUICK,
        )
        measure_batches(postgres, report, rounds=size.batch_rounds)
        measure_wal(postgres, report)
    if 'peers' in parts:
        queues += measure_peers(postgres, report, rounds=PEER_ROUNDS, seconds=PEER_SECONDS)
    if 'claim' in parts:
        measure_claim(postgres, report, scale=size.scale, blocks=size.claim_blocks)
        measure_heartbeat(postgres, report)
        measure_fairness(postgres, report, jobs=size.fairness_jobs, trials=10)
    if 'checkpoint' in parts:
        measure_checkpoint(postgres, report, scale=size.scale, rounds=size.checkpoint_rounds)
    if 'reads' in parts:
        measure_reads(postgres, report, scale=size.scale, rounds=size.read_rounds)
    if 'fleet' in parts:
        measure_fleet(postgres, report, scale=size.scale // 10, seconds=size.fleet_seconds)
    if 'snapshot' in parts:
        measure_snapshot(postgres, report, minutes=size.snapshot_minutes)
    return queues


if __name__ == '__main__':
    sys.exit(main())

"""Jobs per second: enqueue, drain next to the bare table, by connections and by batches.

Each round measures all sides, so that a slow moment of the machine affects all of them, and a
ratio is the median of the ratios of the rounds.
"""

import json
import statistics
import time
from collections.abc import Sequence
from uuid import UUID, uuid4

from benchmarks.queue import fill
from benchmarks.queue.drain import BARE_FILL, BARE_TABLE, Bare, Silkline, claim_only, drain
from benchmarks.queue.peers import PEERS, drain_peer
from benchmarks.shared.report import Report, number
from benchmarks.shared.server import (
    Session,
    administer,
    connect,
    keep_leases,
    lift_quotas,
    make_database,
    make_empty_database,
    role_url,
    sign_up,
    tidy,
)
from silkline_local.postgres.server import Postgres

CALL = 1_000
CLAIM_CALLS = 100
BATCH = 10
LARGE_BATCH = 100
WAL_JOBS = 500
CLAIMED = {
    'bare': 'drain, bare table, 1 connection',
    'ours': 'drain, silkline, 1 connection',
    'ours by 4': 'drain, silkline, 4 connections',
    'ours in hundreds': 'drain, silkline, claimed and completed by 100',
}


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def measure_enqueue(postgres: Postgres, report: Report, *, calls: int) -> None:
    """Fill database `drain`: each call is by another signed-in user, with the usual quotas."""
    make_database(postgres, 'drain')
    with (
        administer(postgres, 'drain') as admin,
        connect(role_url(postgres, 'drain', 'authenticated')) as session,
    ):
        rates = [_enqueue_as(session, user) for user in sign_up(admin, calls + 1)][1:]
        # From here on, one user enqueues tens of thousands of jobs.
        lift_quotas(admin)
        keep_leases(admin)
    report.figure(f'enqueue_crawl_jobs, {CALL:,} jobs a call', rates, 'jobs/s')
    report.at_least(
        'enqueue_crawl_jobs, validated jobs', statistics.median(rates), 25_000, 'jobs/s'
    )


def _enqueue_as(session: Session, user: UUID) -> float:
    claims = json.dumps({'role': 'authenticated', 'sub': str(user)})
    session.execute("select set_config('request.jwt.claims', %s, false)", [claims])
    jobs = json.dumps(fill.jobs(CALL))
    began_at = time.monotonic()
    session.execute(fill.ENQUEUE, [jobs, None])
    return CALL / (time.monotonic() - began_at)


def measure_drain(
    postgres: Postgres, report: Report, *, rounds: int, seconds: float, only_claims: bool
) -> list[Sequence[str]]:
    """Compare with the bare table; return rows for the table of queues.

    With `only_claims`, only what a claim needs is measured, and there are no rows.
    """
    jobs = int(rounds * seconds * 40_000)
    make_empty_database(postgres, 'bare')
    ours_url = role_url(postgres, 'drain', 'service_role')
    bare_url = postgres.url('bare')
    with administer(postgres, 'drain') as admin, connect(ours_url) as service:
        [user] = sign_up(admin)
        fill.enqueue(service, user, jobs)
        tidy(admin, 'silkline.jobs', 'silkline.states', 'silkline.events')
        payload = admin.execute('select payload::text from silkline.jobs limit 1').fetchone()
    with connect(bare_url) as bare:
        bare.execute(BARE_TABLE.encode(), prepare=False)
        bare.execute(BARE_FILL, [*(payload or ()), jobs])
    with administer(postgres, 'bare') as admin:
        tidy(admin, 'bare_jobs')

    sides = {
        'bare': lambda: drain(Bare(), bare_url, seconds=seconds),
        'ours': lambda: drain(Silkline(), ours_url, seconds=seconds),
        'ours by 4': lambda: drain(Silkline(), ours_url, seconds=seconds, connections=4),
        'ours in hundreds': lambda: drain(Silkline(), ours_url, seconds=seconds, batch=LARGE_BATCH),
        'bare by 4': lambda: drain(Bare(), bare_url, seconds=seconds, connections=4),
        'ours in tens': lambda: drain(Silkline(), ours_url, seconds=seconds, batch=BATCH),
        'ours in tens by 4': lambda: drain(
            Silkline(), ours_url, seconds=seconds, batch=BATCH, connections=4
        ),
        'ours in hundreds by 4': lambda: drain(
            Silkline(), ours_url, seconds=seconds, batch=LARGE_BATCH, connections=4
        ),
    }
    if only_claims:
        sides = {side: sides[side] for side in CLAIMED}
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, run in sides.items():
            rates[side].append(run())

    for side, name in CLAIMED.items():
        report.figure(name, rates[side], 'jobs/s')
    report.at_least(
        'drain over 1 connection, of the bare table',
        median_ratio(rates['ours'], rates['bare']),
        0.65,
        'x',
    )
    report.at_least(
        f'drain in batches of {LARGE_BATCH}, of the bare table one by one',
        median_ratio(rates['ours in hundreds'], rates['bare']),
        6,
        'x',
    )
    report.at_least(
        'drain over 4 connections, of 1',
        median_ratio(rates['ours by 4'], rates['ours']),
        1.8,
        'x',
    )
    if only_claims:
        return []
    median = {side: number(statistics.median(some)) for side, some in rates.items()}
    return [
        (
            'silkline',
            'one by one, events and live messages on',
            median['ours'],
            median['ours by 4'],
        ),
        (
            'silkline, by 10',
            'claimed and completed in batches',
            median['ours in tens'],
            median['ours in tens by 4'],
        ),
        (
            'silkline, by 100',
            'claimed and completed in batches',
            median['ours in hundreds'],
            median['ours in hundreds by 4'],
        ),
        ('bare table', 'one by one, no history', median['bare'], median['bare by 4']),
    ]


def measure_batches(postgres: Postgres, report: Report, *, rounds: int) -> None:
    singly: list[float] = []
    in_tens: list[float] = []
    queue = Silkline()
    with (
        administer(postgres, 'drain') as admin,
        connect(role_url(postgres, 'drain', 'service_role')) as service,
    ):
        [user] = sign_up(admin)
        fill.enqueue(service, user, 2 * (rounds + 1) * BATCH * CLAIM_CALLS)
        tidy(admin, 'silkline.jobs')
        for _ in range(rounds + 1):
            singly.append(claim_only(queue, service, calls=CLAIM_CALLS, batch=1))
            in_tens.append(claim_only(queue, service, calls=CLAIM_CALLS, batch=BATCH))
    # The first round is a warm-up.
    singly, in_tens = singly[1:], in_tens[1:]
    report.figure('claimed singly', singly, 'jobs/s')
    report.figure(f'claimed in batches of {BATCH}', in_tens, 'jobs/s')
    report.at_least(
        f'claim in batches of {BATCH}, of singly', median_ratio(in_tens, singly), 4, 'x'
    )


def measure_wal(postgres: Postgres, report: Report) -> None:
    """Write-ahead log of a job from its claim to its end, after the first images of its pages."""
    with (
        administer(postgres, 'drain') as admin,
        connect(role_url(postgres, 'drain', 'service_role')) as service,
    ):
        [user] = sign_up(admin)
        for batch in (1, LARGE_BATCH):
            fill.enqueue(service, user, 2 * WAL_JOBS)
            tidy(admin, 'silkline.jobs')
            for name in ('first', 'measured'):
                before = wal_position(admin)
                for _ in range(WAL_JOBS // batch):
                    queue = Silkline()
                    queue.complete(service, queue.claim(service, uuid4(), batch))
                if name == 'measured':
                    report.figure(
                        f'WAL per job, claimed and completed by {batch}',
                        (wal_position(admin) - before) / WAL_JOBS,
                        'bytes',
                    )


def wal_position(admin: Session) -> int:
    row = admin.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(str(row[0]))


def measure_peers(
    postgres: Postgres, report: Report, *, rounds: int, seconds: float
) -> list[Sequence[str]]:
    """Drain each peer with one and with four workers; return rows for the table of queues."""
    ours_url = role_url(postgres, 'drain', 'service_role')
    with administer(postgres, 'drain') as admin, connect(ours_url) as service:
        [user] = sign_up(admin)
        fill.enqueue(service, user, int(rounds * seconds * 2_000))
        tidy(admin, 'silkline.jobs')
    ours: list[float] = []
    rates: dict[tuple[str, int], list[float]] = {
        (peer.name, workers): [] for peer in PEERS for workers in (1, 4)
    }
    for _ in range(rounds):
        ours.append(drain(Silkline(), ours_url, seconds=seconds))
        for peer in PEERS:
            for workers in (1, 4):
                rate = drain_peer(postgres, peer, workers=workers, seconds=seconds)
                rates[peer.name, workers].append(rate)
    report.figure('drain, silkline, 1 connection, in turn with the peers', ours, 'jobs/s')
    for (name, workers), some in rates.items():
        report.figure(f'drain, {name}, workers: {workers}', some, 'jobs/s')
    report.at_least(
        "drain over 1 connection, of procrastinate's one worker",
        median_ratio(ours, rates['procrastinate', 1]),
        1.3,
        'x',
    )
    return [
        (
            f'{peer.name} {peer.version}',
            peer.how,
            *(number(statistics.median(rates[peer.name, workers])) for workers in (1, 4)),
        )
        for peer in PEERS
    ]

"""Claims while a transaction is held open, which keeps every dead row and index entry in place.

Jobs arrive and end at a steady rate. The claims of the last part must be fast, and once the
transaction has ended, vacuum must be able to remove what it kept.
"""

import time
from uuid import uuid4

from benchmarks.queue import fill
from benchmarks.queue.drain import Silkline
from benchmarks.queue.growth import percentile
from benchmarks.shared.report import Report
from benchmarks.shared.server import (
    Session,
    administer,
    connect,
    keep_leases,
    lift_quotas,
    make_database,
    role_url,
    sign_up,
    tidy,
)
from silkline_local.postgres.server import Postgres

JOBS_PER_SECOND = 100
WAITING_JOBS = 1_000
TABLES = ('silkline.jobs', 'silkline.states', 'silkline.events')


def measure_snapshot(postgres: Postgres, report: Report, *, minutes: float) -> None:
    """Claim and complete under an open snapshot, then without it."""
    make_database(postgres, 'snapshot')
    with (
        administer(postgres, 'snapshot') as admin,
        administer(postgres, 'snapshot') as holder,
        connect(role_url(postgres, 'snapshot', 'service_role')) as service,
    ):
        lift_quotas(admin)
        keep_leases(admin)
        [user] = sign_up(admin)
        fill.enqueue(service, user, WAITING_JOBS)
        tidy(admin, *TABLES)
        holder.execute('begin isolation level repeatable read')
        holder.execute('select count(*) from silkline.jobs')
        under_ms = run_jobs(service, user, seconds=60 * minutes)
        holder.execute('commit')
        held = dead_rows(admin)
        tidy(admin, *TABLES)
        kept, bytes_before = dead_rows(admin), table_bytes(admin)
        after_ms = run_jobs(service, user, seconds=max(6 * minutes, 5))
        tidy(admin, *TABLES)
        grown = table_bytes(admin) / bytes_before
    last_ms = under_ms[-len(under_ms) // 5 :]
    what = f'under a snapshot held for {minutes:g} minutes at {JOBS_PER_SECOND} jobs/s'
    report.figure(f'claim {what}, the last fifth', last_ms, 'ms')
    report.figure(f'dead rows {what}', float(held))
    report.figure('claim after the snapshot has ended', after_ms, 'ms')
    report.at_most(f'claim {what}, p99 of the last fifth', percentile(last_ms, 0.99), 10, 'ms')
    report.at_most('dead rows that outlive the snapshot', float(kept), 0)
    report.at_most('size of the tables after more jobs, of that before', grown, 1.2, 'x')


def run_jobs(service: Session, user: object, *, seconds: float) -> list[float]:
    """Enqueue, claim and complete at the rate; return how many milliseconds each claim took."""
    queue, worker = Silkline(), uuid4()
    taken: list[float] = []
    began_at = time.monotonic()
    while (now := time.monotonic()) - began_at < seconds:
        service.execute(fill.ENQUEUE, [fill.encoded(JOBS_PER_SECOND), user])
        for _ in range(JOBS_PER_SECOND):
            asked_at = time.perf_counter()
            handles = queue.claim(service, worker, 1)
            taken.append(1000 * (time.perf_counter() - asked_at))
            queue.complete(service, handles)
        time.sleep(max(0.0, now + 1 - time.monotonic()))
    return taken


def dead_rows(admin: Session) -> int:
    admin.execute('select pg_stat_force_next_flush()')
    row = admin.execute(
        'select sum(pg_stat_get_dead_tuples(name::regclass)) from unnest(%s::text[]) as name',
        [list(TABLES)],
    ).fetchone()
    assert row is not None
    return int(str(row[0]))


def table_bytes(admin: Session) -> int:
    row = admin.execute(
        'select sum(pg_total_relation_size(name::regclass)) from unnest(%s::text[]) as name',
        [list(TABLES)],
    ).fetchone()
    assert row is not None
    return int(str(row[0]))

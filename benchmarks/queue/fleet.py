"""What a thousand workers cost the database while there is nothing to claim.

Each worker holds one to five jobs, sends a heartbeat every 10 s and polls every 5 s. The calls go
through a pool of connections, as through PostgREST, at the rate of the whole fleet. The figure is
the processor time of all server processes over the elapsed time.
"""

import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from uuid import UUID, uuid4

from benchmarks.queue import fill
from benchmarks.queue.drain import CLAIM, SPAWN, Silkline
from benchmarks.queue.growth import HEARTBEAT
from benchmarks.shared.report import Report
from benchmarks.shared.server import (
    administer,
    connect,
    lift_quotas,
    make_database,
    processor_seconds,
    role_url,
    sign_up,
    tidy,
)
from silkline_local.postgres.server import Postgres

WORKERS = 1_000
HEARTBEAT_SECONDS = 10.0
POLL_SECONDS = 5.0
PROCESSES = 4
CONNECTIONS = 5


@dataclass(frozen=True, slots=True)
class Member:
    """One worker of the fleet and its leases."""

    worker: UUID
    tokens: list[UUID]


def measure_fleet(postgres: Postgres, report: Report, *, scale: int, seconds: float) -> None:
    make_database(postgres, 'fleet')
    url = role_url(postgres, 'fleet', 'service_role')
    with administer(postgres, 'fleet') as admin, connect(url) as service:
        lift_quotas(admin)
        users = sign_up(admin, 20)
        fill.fill_jobs(admin, users, pending=0, finished=scale, waiting=scale // 10)
        sizes = [1 + number % 5 for number in range(WORKERS)]
        fill.enqueue(service, users[0], sum(sizes))
        workers = [uuid4() for _ in sizes]
        fleet = [
            Member(worker, Silkline().claim(service, worker, size))
            for worker, size in zip(workers, sizes, strict=True)
        ]
        assert sum(len(member.tokens) for member in fleet) == sum(sizes)
        # Spread as in a long-running fleet, so that some leases are checked while it is measured.
        admin.execute(
            "update silkline.jobs set lease_check_at = now() + random() * interval '2 min'"
            ' where lease_check_at is not null'
        )
        tidy(admin, 'silkline.jobs', 'public.crawl_workers')

    warm_up = 2.0
    barrier = SPAWN.Barrier(PROCESSES + 1)
    answers: SimpleQueue[int] = SPAWN.SimpleQueue()
    parts = [fleet[nth::PROCESSES] for nth in range(PROCESSES)]
    clients = [
        SPAWN.Process(target=_run_part, args=(barrier, answers, url, part, warm_up + seconds + 1))
        for part in parts
    ]
    for client in clients:
        client.start()
    barrier.wait(60)
    time.sleep(warm_up)
    began_at, used = time.monotonic(), processor_seconds(postgres.pid)
    time.sleep(seconds)
    cores = (processor_seconds(postgres.pid) - used) / (time.monotonic() - began_at)
    for client in clients:
        client.join()
        assert client.exitcode == 0, 'a part of the fleet failed; its error is above'
    calls = sum(answers.get() for _ in clients)
    rate = calls / (warm_up + seconds + 1)
    wanted = WORKERS / HEARTBEAT_SECONDS + WORKERS / POLL_SECONDS
    assert rate > 0.97 * wanted, f'only {rate:.0f} calls/s were made, not {wanted:.0f}'
    report.figure(f'calls of {WORKERS:,} workers', rate, 'calls/s')
    report.at_most(f'database CPU of {WORKERS:,} workers', cores, 1, 'cores')


def _run_part(
    barrier: Barrier,
    answers: 'SimpleQueue[int]',
    url: str,
    fleet: Sequence[Member],
    seconds: float,
) -> None:
    """Run part of the fleet over a few connections, each with its share of the workers."""
    counts = [0] * CONNECTIONS
    ready = threading.Barrier(CONNECTIONS + 1)
    threads = [
        threading.Thread(
            target=_run_connection,
            args=(ready, counts, nth, url, fleet[nth::CONNECTIONS], seconds),
        )
        for nth in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    barrier.wait(60)
    ready.wait(60)
    for thread in threads:
        thread.join()
    answers.put(sum(counts))


def _run_connection(
    ready: threading.Barrier,
    counts: list[int],
    nth: int,
    url: str,
    fleet: Sequence[Member],
    seconds: float,
) -> None:
    about = json.dumps({'hostname': 'bench', 'version': '1', 'slots': 5, 'kinds': ['crawl']})
    # Between two heartbeats each worker polls twice, evenly spread.
    polls_per_cycle = round(HEARTBEAT_SECONDS / POLL_SECONDS)
    turns = [(member, call) for call in range(1 + polls_per_cycle) for member in fleet]
    random.shuffle(turns)
    pause = HEARTBEAT_SECONDS / len(turns)
    with connect(url) as connection:
        ready.wait(60)
        began_at = time.monotonic()
        while (now := time.monotonic() - began_at) < seconds:
            due = counts[nth] * pause
            if due > now:
                time.sleep(due - now)
            member, call = turns[counts[nth] % len(turns)]
            if call == 0:
                connection.execute(HEARTBEAT, [member.worker, member.tokens, about])
            else:
                connection.execute(CLAIM, [member.worker, [uuid4()]])
            counts[nth] += 1

"""Claim and complete jobs, over one or several connections, as fast as the database allows.

Owns the two queues that are compared, silkline and the bare table, and the clients: each connection
is a process, all of them start at one barrier, and the rate is jobs over the time from the barrier
to the last completion. Both queues hold the same payloads and have the same client code; only the
SQL differs.
"""

import multiprocessing
import time
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Protocol
from uuid import UUID, uuid4

from benchmarks.shared.server import Session, connect

START_SECONDS = 60.0

SPAWN = multiprocessing.get_context('spawn')

CLAIM = 'select id, lease_token, payload from public.claim_crawl_jobs(%s, %s)'
COMPLETE = 'select command from public.complete_crawl_job(%s)'
COMPLETE_MANY = 'select command from public.complete_crawl_jobs(%s)'

# The classic queue on one table.
BARE_TABLE = """
create table bare_jobs (
  id uuid primary key default gen_random_uuid(),
  payload jsonb not null,
  priority integer not null default 0,
  status text not null default 'pending',
  worker_id uuid,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  completed_at timestamptz
);
create index bare_jobs_in_line on bare_jobs (status, priority desc, created_at);
"""
BARE_FILL = """
insert into bare_jobs (payload, created_at)
select
  %s::jsonb || jsonb_build_object('url', format('https://site-%%s.example.com/docs/', number)),
  now() + number * interval '1 microsecond'
from generate_series(1, %s) as number
"""
BARE_CLAIM = """
update bare_jobs
set status = 'processing', worker_id = %s, started_at = now()
where id = (
  select id
  from bare_jobs
  where status = 'pending'
  order by priority desc, created_at
  for update skip locked
  limit 1
)
returning id, id, payload
"""
BARE_COMPLETE = "update bare_jobs set status = 'completed', completed_at = now() where id = %s"


class Queue(Protocol):
    """A queue to claim jobs from."""

    def claim(self, connection: Session, worker: UUID, count: int) -> list[UUID]:
        """Claim up to `count` jobs; return what `complete` needs for each of them."""
        ...

    def complete(self, connection: Session, handles: list[UUID]) -> None: ...


@dataclass(frozen=True, slots=True)
class Silkline:
    """The functions of the queue, called as service_role."""

    def claim(self, connection: Session, worker: UUID, count: int) -> list[UUID]:
        tokens = [uuid4() for _ in range(count)]
        rows = connection.execute(CLAIM, [worker, tokens]).fetchall()
        return [UUID(str(token)) for _, token, _ in rows]

    def complete(self, connection: Session, handles: list[UUID]) -> None:
        if len(handles) == 1:
            rows = connection.execute(COMPLETE, handles).fetchall()
        else:
            rows = connection.execute(COMPLETE_MANY, [handles]).fetchall()
        assert rows == [('continue',)] * len(handles), rows


@dataclass(frozen=True, slots=True)
class Bare:
    """A plain table, with one update to claim a job and one to complete it."""

    def claim(self, connection: Session, worker: UUID, count: int) -> list[UUID]:
        assert count == 1
        rows = connection.execute(BARE_CLAIM, [worker]).fetchall()
        return [UUID(str(handle)) for _, handle, _ in rows]

    def complete(self, connection: Session, handles: list[UUID]) -> None:
        connection.execute(BARE_COMPLETE, handles)


@dataclass(frozen=True, slots=True)
class Drained:
    """What one connection has drained."""

    jobs: int
    began_at: float
    ended_at: float


def drain(queue: Queue, url: str, *, seconds: float, connections: int = 1, batch: int = 1) -> float:
    """Claim and complete for some seconds; return jobs per second."""
    barrier = SPAWN.Barrier(connections)
    answers: SimpleQueue[Drained] = SPAWN.SimpleQueue()
    clients = [
        SPAWN.Process(target=_drain_connection, args=(barrier, answers, queue, url, seconds, batch))
        for _ in range(connections)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        assert client.exitcode == 0, 'a connection failed; its error is above'
    parts = [answers.get() for _ in clients]
    duration = max(part.ended_at for part in parts) - min(part.began_at for part in parts)
    return sum(part.jobs for part in parts) / duration


def claim_only(queue: Queue, connection: Session, *, calls: int, batch: int) -> float:
    """Claim jobs without completing them; return jobs per second."""
    worker = uuid4()
    began_at = time.monotonic()
    claimed = sum(len(queue.claim(connection, worker, batch)) for _ in range(calls))
    taken_seconds = time.monotonic() - began_at
    assert claimed == calls * batch, 'the queue ran empty: enqueue more'
    return claimed / taken_seconds


def _drain_connection(
    barrier: Barrier,
    answers: 'SimpleQueue[Drained]',
    queue: Queue,
    url: str,
    seconds: float,
    batch: int,
) -> None:
    worker = uuid4()
    done = 0
    with connect(url) as connection:
        # Statements are planned and catalogs read before the barrier.
        queue.complete(connection, queue.claim(connection, worker, batch))
        barrier.wait(START_SECONDS)
        began_at = time.monotonic()
        while time.monotonic() - began_at < seconds:
            handles = queue.claim(connection, worker, batch)
            assert handles, 'the queue ran empty: enqueue more'
            queue.complete(connection, handles)
            done += len(handles)
        answers.put(Drained(done, began_at, time.monotonic()))

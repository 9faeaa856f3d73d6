"""How tests drive the queue: jobs and leases, aged rows, concurrent calls.

Also owns the rules that hold between any two calls (`broken_rules`), so that the race tests and the
model check the same list. Databases and connections are in `database.py`.
"""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import DictRow

from tests.support.database import Database, Session, call
from tests.support.waiting import wait_until

T = TypeVar('T')

TABLES = (
    'public.crawl_settings',
    'silkline.jobs',
    'silkline.states',
    'silkline.tasks',
    'public.crawl_pages',
    'public.crawl_hosts',
    'public.crawl_audits',
    'silkline.events',
    'public.crawl_workers',
    'silkline.deleted_jobs',
    'silkline.deleted_accounts',
    'silkline.spent_tokens',
    'silkline.lines',
    'silkline.time_floors',
    'silkline.quota_uses',
    'realtime.messages',
)
SECONDS_FOR_A_RACE = 30.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A claimed job, with its token and worker."""

    job_id: UUID
    token: UUID = field(default_factory=uuid4)
    worker_id: UUID = field(default_factory=uuid4)


def enqueue(
    database: Database, host: str = 'site.example', *, user: UUID | None = None, **params: Any
) -> UUID:
    payload = {'url': f'https://{host}/', **params.pop('payload', {})}
    job = database.call('enqueue_crawl_job', user=user, p_payload=payload, **params)[0]
    return job['id']


def claim(
    database: Database, tokens: int = 1, *, worker_id: UUID | None = None, **params: Any
) -> list[Lease]:
    worker_id = worker_id or uuid4()
    jobs = database.call(
        'claim_crawl_jobs',
        p_worker_id=worker_id,
        p_lease_tokens=[uuid4() for _ in range(tokens)],
        **params,
    )
    return [Lease(job['id'], job['lease_token'], worker_id) for job in jobs]


def claim_one(database: Database, **params: Any) -> Lease:
    [lease] = claim(database, **params)
    return lease


def checkpoint(
    caller: Database | Session, token: UUID, seq: int, *, want: int = 0, **batch: Any
) -> dict[str, Any]:
    """Send a checkpoint with `seq` and the keywords as its batch; return the answer."""
    params: dict[str, Any] = {
        'p_batch': {'seq': seq, **batch},
        'p_want': want,
    }
    if isinstance(caller, Database):
        [row] = caller.call('checkpoint_crawl_job', p_lease_token=token, **params)
    else:
        [row] = call(caller, 'checkpoint_crawl_job', p_lease_token=token, **params)
    return row['checkpoint_crawl_job']


def heartbeat(database: Database, lease: Lease) -> str:
    """The command that a heartbeat of one lease returns."""
    [answer] = database.call(
        'heartbeat_crawl_jobs', p_worker_id=lease.worker_id, p_lease_tokens=[lease.token]
    )
    return answer['command']


def job_row(database: Database, job_id: UUID) -> DictRow:
    [row] = database.query('select * from silkline.jobs where id = %s', [job_id])
    return row


def found(number: int, **fields: Any) -> dict[str, Any]:
    """A link as a checkpoint reports it."""
    return {
        'url_key': str(UUID(int=number)),
        'url': f'https://site.example/{number}',
        'depth': 1,
        **fields,
    }


def fetched(number: int, **fields: Any) -> dict[str, Any]:
    """A fetched URL with its page, as a checkpoint reports it."""
    page = {
        'url': f'https://site.example/{number}',
        'content_hash': f'hash of {number}',
        'title': f'Page {number}',
        'http_status': 200,
    }
    return {
        'url_key': str(UUID(int=number)),
        'status': 'done',
        'http_status': 200,
        'bytes': 1000,
        'page': page,
        **fields,
    }


def set_limits(database: Database, **limits: int | None) -> None:
    for name, value in limits.items():
        database.query(f'update public.crawl_settings set {name} = %s where id', [value])  # noqa: S608 - a column that the test names


def silence(database: Database, *tokens: UUID) -> None:
    """Age leases as if their workers had sent no heartbeat for an hour."""
    database.query(
        """
        update silkline.jobs
        set
          last_heartbeat = now() - interval '1 hour',
          lease_check_at = now()
        where lease_token = any (%s)
          and lease_check_at is not null
        """,
        [list(tokens)],
    )


def digest(database: Database) -> dict[str, str]:
    """One checksum per table: two digests are equal if no row of the queue has changed."""
    parts = ' union all '.join(
        f"select '{name}' as name, md5(coalesce(string_agg(row::text, '' order by row::text), ''))"  # noqa: S608 - names of this module
        f' as sum from {name} as row'
        for name in TABLES
    )
    return {row['name']: row['sum'] for row in database.query(parts, role='supabase_admin')}


def sqlstate(action: Callable[[], object]) -> str | None:
    """The SQLSTATE with which a call fails, or None."""
    try:
        action()
    except psycopg.Error as error:
        return error.sqlstate
    return None


def at_once(*actions: Callable[[], T]) -> list[T]:
    """Run the actions in threads that start together; return in order, or raise the first error."""
    barrier = threading.Barrier(len(actions))

    def run(action: Callable[[], T]) -> T:
        barrier.wait(SECONDS_FOR_A_RACE)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        running = [pool.submit(run, action) for action in actions]
        return [future.result(SECONDS_FOR_A_RACE) for future in running]


@contextmanager
def in_background(action: Callable[[], T]) -> Generator[Future[T]]:
    """Run one action in a thread; the test takes its result before the block ends."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(action)


def wait_until_blocked(database: Database, session: Session) -> None:
    """Wait until the statement that another thread runs in `session` is waiting for a lock."""
    pid = session.info.backend_pid
    wait_until(
        lambda: database.query(
            "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
            [pid],
            role='supabase_admin',
        ),
        what='the other session to wait for a lock',
    )


def broken_rules(database: Database, *, may_overlook: bool = False) -> list[str]:
    """The rules that are broken, one sentence per case; empty if none is.

    A job that another transaction had locked when its host or owner became free may be overlooked,
    and waits for nothing until that transaction ends or maintenance finds it. So may a job that a
    claim sets aside while the job on its host is deleted.
    """
    queries = [RULES] if may_overlook else [RULES, OVERLOOKED]
    return [
        row['broken'] for query in queries for row in database.query(query, role='supabase_admin')
    ]


# What a caller of the queue may rely on between any two calls.
RULES = """
with job as materialized (
  select
    job.*,
    (100 - (job.place >> 40))::integer as band,
    job.status = 'pending' and job.waits_for is null as is_in_line,
    job.lease_check_at is not null as is_leased
  from silkline.jobs as job
),
task as materialized (
  -- The rows of deleted jobs are swept later.
  select task.*
  from silkline.tasks as task
  where not exists (select from silkline.deleted_jobs as job where job.job_id = task.job_id)
),
task_counts as (
  select
    task.job_id,
    count(*) filter (where task.status = 'pending') as pending,
    count(*) filter (where task.status = 'in_progress') as in_progress,
    count(*) filter (where task.status = 'done') as done,
    count(*) filter (where task.status = 'error') as error,
    count(*) filter (where task.status = 'skipped') as skipped,
    count(*) filter (where task.status = 'in_progress' and task.crashes > 0) as suspects_in_flight,
    count(*) filter (where task.status in ('pending', 'in_progress') and task.attempts > 0) as begun
  from task
  group by task.job_id
),
warning_counts as (
  select
    task.job_id,
    count(*) filter (where page.quality -> 'warnings' <> '[]') as pages,
    count(*) filter (where page.quality -> 'warnings' ? 'cut') as cut,
    count(*) filter (where page.quality -> 'warnings' ? 'code_lost') as code_lost
  from task
  join public.crawl_pages as page
    on page.id = task.page_id
  where task.status = 'done'
  group by task.job_id
),
chain as (
  select
    event.*,
    lag(event.to_status) over (partition by event.job_id order by event.seq) as before,
    row_number() over (partition by event.job_id order by event.seq) as nth,
    lead(event.seq) over (partition by event.job_id order by event.seq) is null as is_last
  from silkline.events as event
  where not exists (select from silkline.deleted_jobs as job where job.job_id = event.job_id)
)
select format('the counters of job %s differ from its rows: %s / %s', job.id, state, counted)
  as broken
from job
join silkline.states as state
  on state.job_id = job.id
left join task_counts as counted
  on counted.job_id = job.id
where (
    state.total_pending,
    state.total_in_progress,
    state.total_done,
    state.total_error,
    state.total_skipped
  ) is distinct from (
    coalesce(counted.pending, 0)::integer,
    coalesce(counted.in_progress, 0)::integer,
    coalesce(counted.done, 0)::integer,
    coalesce(counted.error, 0)::integer,
    coalesce(counted.skipped, 0)::integer
  )

union all
select format('the warnings of job %s differ from its pages: %s / %s', job.id, state, counted)
from job
join silkline.states as state
  on state.job_id = job.id
left join warning_counts as counted
  on counted.job_id = job.id
where (
    state.pages_with_warnings,
    coalesce((state.page_warnings -> 'cut')::integer, 0),
    coalesce((state.page_warnings -> 'code_lost')::integer, 0)
  ) is distinct from (
    coalesce(counted.pages, 0)::integer,
    coalesce(counted.cut, 0)::integer,
    coalesce(counted.code_lost, 0)::integer
  )
  -- The pages of a deleted account are swept before its jobs.
  and not exists (
    select
    from task
    where task.job_id = job.id
      and task.status = 'done'
      and task.page_id is not null
      and not exists (select from public.crawl_pages as page where page.id = task.page_id)
  )

union all
select format('job %s has no state', job.id)
from job
where not exists (select from silkline.states as state where state.job_id = job.id)

union all
select format('there are rows of job %s, which does not exist', orphan.job_id)
from (
  select job_id from task
  union
  select job_id from chain
  union
  select state.job_id
  from silkline.states as state
  where not exists (select from silkline.deleted_jobs as job where job.job_id = state.job_id)
) as orphan
where not exists (select from job where job.id = orphan.job_id)

union all
select format('job %s is deleted and exists', job.id)
from job
join silkline.deleted_jobs as deleted
  on deleted.job_id = job.id

union all
select format('the owner of job %s is %s instead of %s', job.id, job.owner_id, job.user_id)
from job
where job.owner_id <> coalesce(job.user_id, '00000000-0000-0000-0000-000000000000')

union all
select format('the owner of page %s is %s instead of %s', page.id, page.owner_id, page.user_id)
from public.crawl_pages as page
where page.owner_id <> coalesce(page.user_id, '00000000-0000-0000-0000-000000000000')

union all
select format('URL %s of job %s is leased to an ended token', task.url_key, task.job_id)
from task
where task.lease_token is not null
  and not exists (
    select
    from job
    where job.id = task.job_id
      and job.lease_token = task.lease_token
      and job.is_leased
  )

union all
select format('token %s is spent and on job %s', job.lease_token, job.id)
from job
join silkline.spent_tokens as spent
  on spent.lease_token = job.lease_token

union all
select format('job %s has a suspect and %s URLs in flight', counted.job_id, counted.in_progress)
from task_counts as counted
where counted.suspects_in_flight > 0
  and counted.in_progress > 1

union all
select format(
  'job %s has spent %s of %s pages, and begun %s',
  job.id, state.pages_spent, job.payload -> 'max_pages', counted.begun
)
from job
join silkline.states as state
  on state.job_id = job.id
left join task_counts as counted
  on counted.job_id = job.id
where state.pages_spent not between coalesce(counted.begun, 0)
  and (job.payload ->> 'max_pages')::integer

union all
select format('URL %s of job %s is a suspect but was never leased', task.url_key, task.job_id)
from task
where task.crashes > 0
  and task.attempts = 0

union all
select format('host %s has %s leased jobs', job.host, count(*))
from job
cross join public.crawl_settings as settings
where job.is_leased
group by job.host, settings.max_jobs_per_host, settings.max_lists_per_user
having count(*) > case
  when job.host like 'list of %' then settings.max_lists_per_user
  else settings.max_jobs_per_host
end

union all
select format('user %s runs %s jobs', job.user_id, count(*))
from job
cross join public.crawl_settings as settings
where job.status = 'processing'
  and job.user_id is not null
group by job.user_id, settings.max_running_jobs_per_user
having count(*) > settings.max_running_jobs_per_user

union all
select format('job %s is in line before its time', job.id)
from job
where job.is_in_line
  and job.run_after > now()

union all
select format('job %s has place %s, which is outside of its line: %s', job.id, job.place, line)
from job
left join silkline.lines as line
  on line.lane = job.lane
  and line.band = job.band
where job.is_in_line
  and (job.place >= line.floor and job.place < line.ceiling) is not true

union all
select format('job %s waits until %s, below the floor of claims', job.id, job.run_after)
from job
join silkline.time_floors as floors
  on job.run_after <= floors.waits_until
where job.waits_for = 'time'

union all
select format('the lease of job %s lapses at %s, below the floor', job.id, job.lease_check_at)
from job
join silkline.time_floors as floors
  on job.lease_check_at <= floors.leases_until

union all
select format('event %s of job %s does not follow the previous one', chain.seq, chain.job_id)
from chain
where chain.seq <> chain.nth
  or chain.from_status is distinct from chain.before

union all
select format('the history of job %s does not end in its status', job.id)
from job
left join chain
  on chain.job_id = job.id
  and chain.is_last
where (chain.seq, chain.to_status) is distinct from (job.event_seq, job.status)
"""

OVERLOOKED = """
select format('job %s waits for its host, which has no other job', job.id) as broken
from silkline.jobs as job
where job.waits_for = 'host'
  and not exists (
    select
    from silkline.jobs as other
    where other.host = job.host
      and (
        other.lease_check_at is not null
        or (other.status = 'pending' and other.waits_for is null)
      )
  )

union all
select format('job %s waits for its owner, who is below the limit', job.id)
from silkline.jobs as job
cross join public.crawl_settings as settings
where job.waits_for = 'owner'
  and not exists (
    select
    from silkline.jobs as other
    where other.owner_id = job.owner_id
      and other.status = 'pending'
      and other.waits_for is null
  )
  and (
    select count(*)
    from silkline.jobs as other
    where other.owner_id = job.owner_id
      and other.lease_check_at is not null
  ) >= settings.max_running_jobs_per_user is not true
"""

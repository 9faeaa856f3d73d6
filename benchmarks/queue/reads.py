"""Whether what users read takes the same time on a full database.

A user of very many jobs, a user of five, a user without any and the service read all that the API
offers. The rows are inserted without triggers, as the functions would have left them. Also whether
deleting keeps up with what arrives: retention, and the deletion of an account.
"""

import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from psycopg import sql

from benchmarks.queue.growth import percentile
from benchmarks.shared.report import Report
from benchmarks.shared.server import (
    Session,
    administer,
    connect,
    make_database,
    role_url,
    sign_up,
    tidy,
)
from silkline_local.postgres.server import Postgres

OTHER_USERS = 20
FEW = 5
WARM_UP = 5
TABLES: tuple[LiteralString, ...] = (
    'silkline.jobs',
    'silkline.states',
    'silkline.tasks',
    'silkline.events',
    'public.crawl_pages',
    'public.crawl_audits',
    'public.crawl_hosts',
)
URL_STATUSES = ('pending', 'in_progress', 'done', 'error', 'skipped')
JOB_STATUSES = (
    'pending',
    'processing',
    'paused',
    'failed',
    'stopped',
    'cancelled',
    'completed',
)

# Every third job belongs to the busy user, the last ones to the user of few. A hundred are running,
# every seventh is pending, most others have completed.
JOBS = """
insert into silkline.jobs (
  id, user_id, owner_id, kind, payload, source_id, host, status, waits_for, place, run_after,
  worker_id, lease_token, lease_check_at, host_slot, last_heartbeat, attempt, event_seq, error_code,
  created_at, started_at, completed_at
)
select
  (
    lpad(to_hex((extract(epoch from made.at) * 1000)::bigint), 12, '0')
      || '70008000' || lpad(to_hex(made.number), 12, '0')
  )::uuid,
  made.owner_id,
  made.owner_id,
  'crawl',
  jsonb_build_object(
    'url', format('https://site-%%s.example.com/docs/', made.number),
    'strategy', 'site',
    'max_pages', 500,
    'exclude', jsonb_build_array('/archive/', '/print/')
  ),
  format('site-%%s.example.com', made.number),
  format('site-%%s.example.com', made.number),
  made.status,
  case when made.is_scheduled then 'time' end::crawl_job_wait,
  silkline.band_start(0) + made.number,
  case when made.is_scheduled then now() + interval '1 day' else made.at end,
  case when made.status = 'processing' then gen_random_uuid() end,
  case when made.status = 'processing' then gen_random_uuid() end,
  case when made.status = 'processing' then now() + interval '1 day' end,
  case when made.status = 'processing' then 1 end,
  case when made.status = 'processing' then now() end,
  case when made.status = 'pending' then 0 else 1 end,
  3,
  case when made.status = 'failed' then 'oom' end,
  made.at,
  case when made.status <> 'pending' then made.at end,
  case when made.status in ('completed', 'failed', 'stopped', 'cancelled') then made.at end
from (
  select
    number,
    now() - (%(jobs)s - number) * interval '1 second' as at,
    case
      when number > %(jobs)s - %(few)s then %(small)s
      when number %% 3 = 0 then %(busy)s
      else (%(others)s::uuid[])[1 + number %% cardinality(%(others)s::uuid[])]
    end as owner_id,
    case
      when number %% (%(jobs)s / 100) = 0 then 'processing'
      when number %% 7 = 0 then 'pending'
      when number %% 100 = 11 then 'failed'
      when number %% 100 = 13 then 'stopped'
      when number %% 100 = 17 then 'cancelled'
      when number %% 100 = 19 then 'paused'
      else 'completed'
    end::crawl_job_status as status,
    number %% 7 = 0 and number %% 4 = 1 and number %% (%(jobs)s / 100) <> 0 as is_scheduled
  from generate_series(1, %(jobs)s) as number
) as made
"""

# A running job of the busy user has a tenth of all URLs, a job of the user of few a hundredth, and
# every other job three.
LARGE = """
(
  select job.id
  from silkline.jobs as job
  where job.user_id = %(busy)s
    and job.status = 'processing'
  order by job.id
  limit 1
)
union all
(
  select job.id
  from silkline.jobs as job
  where job.user_id = %(small)s
  order by job.id
  limit 1
)
"""

TASKS = """
insert into silkline.tasks (
  job_id, url_key, url, depth, status, skip_reason, attempts, lease_token, lease_seq, last_error,
  http_status, finished_at
)
select
  made.job_id,
  md5(made.job_id::text || made.number)::uuid,
  format('https://example.com/docs/section-%%s/page-%%s', made.number %% 100, made.number),
  3,
  made.status,
  case made.status when 'skipped' then 'robots' end,
  case made.status when 'pending' then 0 else 1 end,
  case made.status when 'in_progress' then gen_random_uuid() end,
  case made.status when 'in_progress' then 1 end,
  case made.status when 'error' then 'http 500' end,
  case made.status when 'done' then 200 end,
  case when made.status in ('done', 'error', 'skipped') then now() end
from (
  select
    job.id as job_id,
    number,
    case
      when number %% 3 = 1 then 'done'
      when number %% 1000 = 5 and job.status = 'processing' then 'in_progress'
      when number %% 1000 = 8 then 'error'
      when number %% 3 = 0 and job.completed_at is null then 'pending'
      else 'skipped'
    end::crawl_task_status as status
  from silkline.jobs as job
  cross join lateral generate_series(
    1,
    case job.id when %(large)s then %(urls)s / 10 when %(medium)s then %(urls)s / 100 else 3 end
  ) as number
) as made
order by made.job_id
"""

PAGES = """
with page as (
  insert into public.crawl_pages (
    user_id, source_id, url_key, url, version, job_id, http_status, content_hash, title, markdown,
    links, metadata, extractor, extractor_version
  )
  select
    job.user_id,
    job.source_id,
    task.url_key,
    task.url,
    1,
    job.id,
    200,
    md5(task.url_key::text),
    'A page',
    (
      select string_agg(md5(task.url_key::text || line), E'\\n')
      from generate_series(1, case job.id when %(large)s then 120 else 30 end) as line
    ),
    jsonb_build_array(task.url || '/next', task.url || '/previous'),
    '{"lang": "en"}',
    'default',
    '1'
  from silkline.tasks as task
  join silkline.jobs as job
    on job.id = task.job_id
  where task.status = 'done'
  returning id, job_id, url_key
)
update silkline.tasks as task
set page_id = page.id
from page
where task.job_id = page.job_id
  and task.url_key = page.url_key
"""

REST = """
insert into silkline.states (
  job_id, total_pending, total_in_progress, total_done, total_error, total_skipped
)
select
  task.job_id,
  count(*) filter (where task.status = 'pending'),
  count(*) filter (where task.status = 'in_progress'),
  count(*) filter (where task.status = 'done'),
  count(*) filter (where task.status = 'error'),
  count(*) filter (where task.status = 'skipped')
from silkline.tasks as task
group by task.job_id;

insert into silkline.events (job_id, seq, at, to_status, actor, reason, attempt)
select job.id, seq, job.created_at, job.status, 'operator', 'enqueue', 1
from silkline.jobs as job
cross join generate_series(1, 3) as seq
order by job.id, seq;

insert into public.crawl_audits (
  job_id, owner_id, score, grade, categories, findings, ruleset_version, created_at
)
select job.id, job.owner_id, 90, 'A', '{}', '[]', '1', job.created_at
from silkline.jobs as job
where job.status = 'completed';

insert into public.crawl_hosts (host)
select job.host
from silkline.jobs as job;
"""

# The job of a user that has the most URLs, and their oldest and newest job of each status.
LARGEST = """
select state.job_id
from silkline.states as state
join silkline.jobs as job
  on job.id = state.job_id
where job.user_id = %(user)s
order by state.total_done desc
limit 1
"""

OF_EACH_STATUS = """
select listed.id
from unnest(enum_range(null::crawl_job_status)) as status
cross join lateral (
  (
    select job.id
    from silkline.jobs as job
    where job.user_id = %(user)s
      and job.status = status
    order by job.created_at
    limit 1
  )
  union
  (
    select job.id
    from silkline.jobs as job
    where job.user_id = %(user)s
      and job.status = status
    order by job.created_at desc
    limit 1
  )
) as listed
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """Someone who reads: a session with their rights, and the jobs that they ask for."""

    session: Session
    largest_job: UUID | None
    other_jobs: Sequence[UUID]
    is_service: bool


@dataclass(frozen=True, slots=True)
class Read:
    """One kind of read, and who reads it: with a job, only readers who have some."""

    what: str
    statement: sql.SQL | sql.Composed
    of_jobs: bool = False
    of_largest_job: bool = False
    by_users: bool = True
    by_service: bool = True


def each_call() -> Iterator[Read]:
    """The functions of the API that read."""
    for name in ('crawl_progress', 'explain_crawl_job'):
        call = sql.SQL('select public.{}(%(job)s)').format(sql.Identifier(name))
        yield Read(name, call, of_jobs=True, of_largest_job=True)
    for name in ('crawl_queue_stats', 'pending_crawl_work'):
        yield Read(name, sql.SQL('select public.{}()').format(sql.Identifier(name)))
    for status, with_content in itertools.product((None, *URL_STATUSES), (False, True)):
        call = sql.SQL('select * from public.crawl_job_pages(%(job)s, {}, {}, %(key)s)').format(
            status, with_content
        )
        what = f'crawl_job_pages, {status or "any status"}'
        yield Read(
            what + (', with content' if with_content else ''),
            call,
            of_jobs=True,
            of_largest_job=True,
        )


def each_request() -> Iterator[Read]:
    """Reads of tables and views, as PostgREST makes them of a query string."""
    for name in ('jobs', 'states', 'tasks', 'events', 'pages', 'audits', 'settings'):
        yield Read(f'crawl_{name}?limit=10', request(name, sql.SQL('limit 10')))
    for name in ('states', 'tasks', 'events', 'pages', 'audits'):
        of_job = sql.SQL('where job_id = %(job)s limit 100')
        yield Read(
            f'crawl_{name}?job_id=eq.…', request(name, of_job), of_jobs=True, of_largest_job=True
        )
    for status in URL_STATUSES:
        # Not of the largest job: no index serves this under row level security, so it takes a
        # microsecond per URL. crawl_job_pages is for large jobs.
        of_status = sql.SQL('where job_id = %(job)s and status = {} limit 100').format(status)
        yield Read(
            f'crawl_tasks?job_id=eq.…&status=eq.{status}', request('tasks', of_status), of_jobs=True
        )
    for name in ('jobs', 'audits'):
        newest = sql.SQL('order by created_at desc limit 20')
        yield Read(f'crawl_{name}?order=created_at.desc', request(name, newest), by_service=False)
    for status in JOB_STATUSES:
        newest = sql.SQL('where status = {} order by created_at desc limit 20').format(status)
        yield Read(
            f'crawl_jobs?status=eq.{status}&order=created_at.desc',
            request('jobs', newest),
            by_service=False,
        )
    # Ids sort by time: the index for the newest jobs of all users.
    newest = sql.SQL('order by id desc limit 20')
    yield Read('crawl_jobs?order=id.desc', request('jobs', newest), by_users=False)


def request(name: str, rest: sql.SQL | sql.Composed) -> sql.Composed:
    table = sql.Identifier('public', f'crawl_{name}')
    return sql.SQL('select * from {} {}').format(table, rest)


def measure_reads(postgres: Postgres, report: Report, *, scale: int, rounds: int) -> None:
    """Time every kind of read, for each reader; the slowest reader counts."""
    make_database(postgres, 'reads')
    with ExitStack() as closing:
        admin = closing.enter_context(administer(postgres, 'reads'))
        busy, small, new, *others = sign_up(admin, 3 + OTHER_USERS)
        fill(admin, busy=busy, small=small, others=others, scale=scale)
        tidy(admin, *TABLES)

        def reader(user: UUID | None, owner: UUID) -> Reader:
            role = 'authenticated' if user else 'service_role'
            session = closing.enter_context(connect(role_url(postgres, 'reads', role)))
            claims = {'role': role} | ({'sub': str(user)} if user else {})
            session.execute(
                "select set_config('request.jwt.claims', %s, false)", [json.dumps(claims)]
            )
            [*largest] = ids(admin, LARGEST, owner)
            return Reader(
                session,
                largest_job=largest[0] if largest else None,
                other_jobs=ids(admin, OF_EACH_STATUS, owner),
                is_service=user is None,
            )

        readers = [reader(busy, busy), reader(small, small), reader(new, new), reader(None, busy)]
        for read in itertools.chain(each_call(), each_request()):
            slowest = max(time_read(reader, read, rounds) for reader in readers)
            report.at_most(f'{read.what}, p95 of the slowest reader', slowest, 20, 'ms')
        measure_deletion(admin, report, busy)


def ids(admin: Session, statement: LiteralString, user: UUID) -> list[UUID]:
    return [UUID(str(row[0])) for row in admin.execute(statement, {'user': user}).fetchall()]


def fill(admin: Session, *, busy: UUID, small: UUID, others: Sequence[UUID], scale: int) -> None:
    """Insert `scale` URLs, about as many events, and three tenths of that in jobs and pages."""
    with admin.transaction():
        admin.execute('set local session_replication_role = replica')
        sizes = {'jobs': 3 * scale // 10, 'urls': scale, 'few': FEW}
        users = {'busy': busy, 'small': small, 'others': list(others)}
        admin.execute(JOBS, sizes | users)
        (large,), (medium,) = admin.execute(LARGE, users).fetchall()
        admin.execute(TASKS, sizes | {'large': large, 'medium': medium})
        admin.execute(PAGES, {'large': large})
        admin.execute(REST)
        admin.execute('select silkline.lower_floors()')


def time_read(reader: Reader, read: Read, rounds: int) -> float:
    """The 95th percentile of its time in milliseconds; 0 if this reader does not read it.

    The largest job is timed by itself, the others in turn.
    """
    if not (read.by_service if reader.is_service else read.by_users):
        return 0
    turns: list[Sequence[UUID | None]] = [reader.other_jobs if read.of_jobs else [None]]
    if read.of_largest_job and reader.largest_job:
        turns.append([reader.largest_job])
    slowest = 0.0
    for jobs in turns:
        taken: list[float] = []
        for job in itertools.islice(itertools.cycle(jobs), WARM_UP + rounds):
            parameters = {'job': job, 'key': UUID(int=random.getrandbits(128))}
            began_at = time.perf_counter()
            reader.session.execute(read.statement, parameters).fetchall()
            taken.append(1000 * (time.perf_counter() - began_at))
        if taken:
            slowest = max(slowest, percentile(taken[WARM_UP:], 0.95))
    return slowest


def measure_deletion(admin: Session, report: Report, user: UUID) -> None:
    """Delete an account as Auth does, then what it leaves behind, as pg_cron does each minute."""
    [(jobs, urls)] = admin.execute(
        """
        select count(*), sum(total_pending + total_in_progress + total_done + total_error
          + total_skipped)
        from silkline.jobs as job
        join silkline.states as state
          on state.job_id = job.id
        where job.user_id = %s
        """,
        [user],
    ).fetchall()
    began_at = time.perf_counter()
    admin.execute('delete from auth.users where id = %s', [user])
    taken = 1000 * (time.perf_counter() - began_at)
    report.at_most(f'deleting an account of {jobs:,} jobs, until the answer', taken, 100, 'ms')
    began_at = time.perf_counter()
    swept = 0
    while swept < int(str(urls)):
        [(done,)] = admin.execute("select silkline.maintain('sweep')").fetchall()
        assert isinstance(done, dict)
        swept += done['swept']['urls']
    seconds = time.perf_counter() - began_at
    report.figure(f'sweeping {jobs:,} jobs with their pages and {urls:,} URLs', seconds, 's')
    report.at_least('URLs swept per minute', 60 * swept / seconds, 120_000)

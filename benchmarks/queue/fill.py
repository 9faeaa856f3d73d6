"""What the tables hold before a measurement.

Millions of rows are inserted without triggers, as the functions would have left them; jobs that
are drained are enqueued with `enqueue_crawl_jobs`, like all others.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from uuid import UUID

from benchmarks.shared.server import Session, tidy

ENQUEUE = 'select public.enqueue_crawl_jobs(%s::jsonb, %s)'
LARGEST_CALL = 10_000

_numbers = itertools.count()


def jobs(count: int, *, priority: int = 0, max_pages: int = 500) -> list[dict[str, object]]:
    """Jobs of a typical size, each with its own host."""
    return [
        {
            'priority': priority,
            'payload': {
                'url': f'https://site-{next(_numbers)}.example.com/docs/',
                'strategy': 'site',
                'max_pages': max_pages,
                'max_depth': 8,
                'scope': 'prefix',
                'exclude': ['/archive/', r'\.pdf$'],
                'delay_seconds': 0.5,
            },
        }
        for _ in range(count)
    ]


def encoded(count: int) -> str:
    """Jobs as `enqueue_crawl_jobs` takes them."""
    return json.dumps(jobs(count))


def enqueue(
    service: Session,
    user: UUID | None,
    count: int,
    *,
    priority: int = 0,
    max_pages: int = 500,
) -> None:
    for start in range(0, count, LARGEST_CALL):
        size = min(LARGEST_CALL, count - start)
        some = jobs(size, priority=priority, max_pages=max_pages)
        service.execute(ENQUEUE, [json.dumps(some), user])


def fill_jobs(
    admin: Session, users: Sequence[UUID], *, pending: int, finished: int, waiting: int
) -> None:
    """Insert jobs of several users: pending, ended, and in backoff ahead of the pending ones."""
    with admin.transaction():
        admin.execute('set local session_replication_role = replica')
        admin.execute(
            """
            with numbered as (
              select
                number,
                number <= %(pending)s as is_pending,
                number > %(pending)s and number <= %(pending)s + %(finished)s as is_finished,
                number > %(pending)s + %(finished)s as is_waiting
              from generate_series(1, %(pending)s + %(finished)s + %(waiting)s) as number
            ),
            filled as (
              insert into silkline.jobs (
                user_id, owner_id, kind, payload, priority, source_id, host, status, waits_for,
                place, run_after, attempt, retry_count, event_seq, progress_percentage, error_code,
                created_at, started_at, completed_at
              )
              select
                (%(users)s::uuid[])[1 + number %% cardinality(%(users)s::uuid[])],
                (%(users)s::uuid[])[1 + number %% cardinality(%(users)s::uuid[])],
                'crawl',
                silkline.payload_defaults('crawl')
                  || jsonb_build_object('url', format('https://filled-%%s.example.com/', number)),
                case when is_waiting then 10 else 0 end,
                format('filled-%%s.example.com', number),
                format('filled-%%s.example.com', number),
                case when is_finished then 'completed' else 'pending' end::crawl_job_status,
                case when is_waiting then 'time' end::crawl_job_wait,
                silkline.band_start(case when is_waiting then 10 else 0 end) + number,
                case when is_waiting then now() + interval '1 day' else now() end
                  + number * interval '1 millisecond',
                case when is_pending then 0 else 1 end,
                case when is_waiting then 1 else 0 end,
                case when is_pending then 1 else 3 end,
                case when is_finished then 100 else 0 end,
                case when is_waiting then 'crashed' end,
                now() - interval '2 days' + number * interval '1 millisecond',
                case when not is_pending then now() - interval '1 day' end,
                case
                  when is_finished then now() - interval '1 day' + number * interval '1 millisecond'
                end
              from numbered
              returning id
            )
            insert into silkline.states (job_id)
            select id from filled
            """,
            {'users': list(users), 'pending': pending, 'finished': finished, 'waiting': waiting},
        )
        admin.execute('select silkline.lower_floors()')
    tidy(admin, 'silkline.jobs', 'silkline.states', 'silkline.events')


def fill_frontier(admin: Session, job_id: UUID, count: int) -> None:
    """Give a job pending URLs; the `url_key` of the nth is the MD5 of job and n."""
    with admin.transaction():
        admin.execute('set local session_replication_role = replica')
        admin.execute(
            """
            insert into silkline.tasks (job_id, url_key, url, depth, next_run_at)
            select
              %(job_id)s,
              md5(%(job_id)s::text || ' ' || number)::uuid,
              format('https://example.com/docs/section-%%s/page-%%s', number %% 100, number),
              3,
              now() - interval '1 hour' + number * interval '1 millisecond'
            from generate_series(1, %(count)s) as number
            """,
            {'job_id': job_id, 'count': count},
        )
        admin.execute(
            'update silkline.states set total_pending = %s where job_id = %s', [count, job_id]
        )


def words(seed: int) -> Iterator[str]:
    """Words that compress about as well as prose, the same in every run."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield VOCABULARY[(state >> 33) % len(VOCABULARY)]


def _make_vocabulary() -> list[str]:
    syllables = ['ca', 'de', 'li', 'mo', 'nu', 'per', 'quo', 'ris', 'sta', 'ten', 'vor', 'xi']
    return [''.join(parts) for parts in itertools.product(syllables, syllables, syllables)]


VOCABULARY = _make_vocabulary()

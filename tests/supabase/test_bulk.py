"""Changes of many jobs at once: their counts, their locks, and two sessions that make them.

What each bulk function does to a job is tested in supabase/tests.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from uuid import UUID, uuid4

import pytest

from tests.support.database import Database, Session, call
from tests.support.queue import (
    at_once,
    broken_rules,
    checkpoint,
    claim,
    enqueue,
    found,
    heartbeat,
    in_background,
    set_limits,
    wait_until_blocked,
)

MANY = 12_000
# The lock table has room for 64 locks per connection that a server allows.
FEW_LOCKS = 64


def enqueue_many(database: Database, count: int, user: UUID | None = None) -> None:
    """Enqueue jobs, each on a host of its own."""
    set_limits(database, max_open_jobs_per_user=None, max_jobs_per_user_per_day=None)
    for start in range(0, count, 10_000):
        jobs = [
            {'payload': {'url': f'https://h{number}.example/'}}
            for number in range(start, min(start + 10_000, count))
        ]
        database.call('enqueue_crawl_jobs', user=user, p_jobs=jobs)


def cancel(session: Session, limit: int, **job_filter: object) -> dict[str, int]:
    """Cancel up to `limit` jobs; the answer of the call."""
    [row] = call(session, 'cancel_crawl_jobs', p_filter=job_filter or {'all': True}, p_limit=limit)
    return row['cancel_crawl_jobs']


def cancel_until_none_is_left(session: Session, limit: int) -> list[int]:
    """Cancel all jobs in slices; how many each call cancelled."""
    slices: list[int] = []
    is_left = True
    while is_left:
        answer = cancel(session, limit)
        slices.append(answer['changed'])
        is_left = answer['left'] > 0
    return slices


def count_locks(session: Session) -> int:
    [row] = session.execute('select count(*) from pg_locks where pid = pg_backend_pid()').fetchall()
    return row['count']


def statuses(database: Database) -> Counter[str]:
    rows = database.query('select status::text, count(*) from silkline.jobs group by status')
    return Counter({row['status']: row['count'] for row in rows})


def reasons(database: Database) -> Counter[tuple[str, str]]:
    """How often the jobs became cancelled, by reason and actor."""
    rows = database.query(
        """
        select reason, actor::text, count(*)
        from silkline.events
        where to_status = 'cancelled'
        group by reason, actor
        """
    )
    return Counter({(row['reason'], row['actor']): row['count'] for row in rows})


def test_a_user_cancels_12000_jobs_in_slices_after_counting_them(database: Database) -> None:
    user = database.user()
    enqueue_many(database, MANY, user)
    enqueue(database, 'other.example', user=database.user())
    session = database.connect('authenticated', user)

    counted = cancel(session, 0)
    slices = cancel_until_none_is_left(session, 1000)

    assert counted == {'matched': MANY, 'changed': 0, 'left': MANY, 'count_limit': 100_000}
    assert slices == [1000] * 12
    assert statuses(database) == {'cancelled': MANY, 'pending': 1}
    assert reasons(database) == {('cancel', 'user'): MANY}
    assert broken_rules(database) == []


def test_a_slice_of_1000_jobs_on_as_many_hosts_takes_few_locks(database: Database) -> None:
    enqueue_many(database, 1000)
    session = database.connect('service_role', autocommit=False)

    answer = cancel(session, 1000)

    assert answer['changed'] == 1000
    assert count_locks(session) < FEW_LOCKS


def test_12000_jobs_cancelled_by_one_update_in_sql_take_few_locks(database: Database) -> None:
    enqueue_many(database, MANY)
    session = database.connect('postgres', autocommit=False)

    session.execute(
        """
        update silkline.jobs
        set status = 'cancelled', completed_at = now()
        where status = 'pending'
        """
    )

    assert count_locks(session) < FEW_LOCKS
    session.commit()
    assert statuses(database) == {'cancelled': MANY}
    assert reasons(database) == {('sql', 'operator'): MANY}
    assert broken_rules(database) == []


def test_a_second_call_cancels_other_jobs_than_the_first_and_does_not_wait(
    database: Database,
) -> None:
    enqueue_many(database, 25)
    first = database.connect('service_role', autocommit=False)
    second = database.connect('service_role')

    assert cancel(first, 10)['changed'] == 10
    meanwhile = cancel(second, 10)
    first.commit()
    after = cancel(second, 10)

    assert meanwhile == {'matched': 25, 'changed': 10, 'left': 15, 'count_limit': 100_000}
    assert after == {'matched': 5, 'changed': 5, 'left': 0, 'count_limit': 100_000}
    assert statuses(database) == {'cancelled': 25}


def test_two_sessions_that_cancel_all_jobs_at_once_cancel_each_job_once(
    database: Database,
) -> None:
    enqueue_many(database, 2000)

    slices = at_once(
        *(
            partial(cancel_until_none_is_left, database.connect('service_role'), 100)
            for _ in range(2)
        )
    )

    assert sum(chain(*slices)) == 2000
    assert statuses(database) == {'cancelled': 2000}
    assert reasons(database) == {('cancel', 'operator'): 2000}
    assert broken_rules(database) == []


def test_jobs_cancelled_while_they_are_claimed_all_end_cancelled(database: Database) -> None:
    enqueue_many(database, 300)
    worker_id = uuid4()

    def claim_all(session: Session) -> list[UUID]:
        tokens: list[UUID] = []
        while leases := call(
            session,
            'claim_crawl_jobs',
            p_worker_id=worker_id,
            p_lease_tokens=[uuid4() for _ in range(10)],
        ):
            tokens += [lease['lease_token'] for lease in leases]
        return tokens

    def cancel_all(session: Session) -> list[UUID]:
        cancel_until_none_is_left(session, 20)
        return []

    sessions = [database.connect('service_role') for _ in range(2)]
    [tokens, _] = at_once(partial(claim_all, sessions[0]), partial(cancel_all, sessions[1]))

    assert statuses(database) == {'cancelled': 300}
    if tokens:
        answers = call(
            sessions[0], 'heartbeat_crawl_jobs', p_worker_id=worker_id, p_lease_tokens=tokens
        )
        assert {answer['command'] for answer in answers} == {'cancel'}
    assert broken_rules(database) == []


def test_the_next_job_of_a_host_is_claimed_after_the_one_in_line_is_cancelled(
    database: Database,
) -> None:
    jobs = [enqueue(database) for _ in range(3)]
    [lease] = claim(database, 3)
    database.call('complete_crawl_job', p_lease_token=lease.token)
    waiting = [job for job in jobs if job != lease.job_id]

    answer = cancel(database.connect('service_role'), 1, job_ids=[str(waiting[0])])

    assert answer['changed'] == 1
    assert [lease.job_id for lease in claim(database, 3)] == [waiting[1]]


def resume(database: Database, job_id: UUID) -> None:
    database.call('resume_crawl_jobs', p_filter={'job_ids': [str(job_id)]})


def retry(database: Database, job_id: UUID) -> None:
    database.call('retry_crawl_jobs', p_filter={'job_ids': [str(job_id)]}, p_urls='all')


@pytest.mark.parametrize('change', [resume, retry])
def test_a_bulk_change_skips_a_job_that_a_worker_is_writing(
    database: Database, change: Callable[[Database, UUID], None]
) -> None:
    job_id = enqueue(database)
    [lease] = claim(database)
    database.call('stop_crawl_job', p_job_id=job_id)
    session = database.connect('service_role', autocommit=False)
    call(session, 'release_crawl_job', p_lease_token=lease.token)

    change(database, job_id)
    assert statuses(database) == {'stopped': 1}

    session.commit()
    change(database, job_id)
    assert statuses(database) == {'pending': 1}
    assert heartbeat(database, lease) == 'lost'


def test_completing_jobs_together_locks_their_hosts_in_order(database: Database) -> None:
    """Whatever becomes of each job. Otherwise two sessions could wait for each other."""
    [first, second] = [enqueue(database, host) for host in ('a.example', 'b.example')]
    tokens = {lease.job_id: lease.token for lease in claim(database, 2)}
    checkpoint(database, tokens[first], 1, discovered=[found(1)])
    database.call('pause_crawl_job', p_job_id=first)
    other = database.connect('postgres', autocommit=False)
    other.execute("select silkline.lock('host', 'a.example')")
    worker = database.connect('service_role')
    complete = partial(
        call, worker, 'complete_crawl_jobs', p_lease_tokens=[tokens[second], tokens[first]]
    )

    with in_background(complete) as completing:
        wait_until_blocked(database, worker)
        # With its host locked by the worker, this would be a deadlock.
        other.execute("select silkline.lock('host', 'b.example')")
        other.commit()
        answers = {row['job_id']: row['status'] for row in completing.result()}

    assert answers == {first: 'paused', second: 'completed'}
    assert broken_rules(database) == []

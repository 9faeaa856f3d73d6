"""One lease per token, one crawl per host: repeated claims, and jobs resumed under their lease."""

from collections.abc import Callable
from functools import partial
from uuid import UUID

import pytest

from tests.support.database import Database
from tests.support.queue import (
    Lease,
    broken_rules,
    checkpoint,
    claim,
    claim_one,
    digest,
    enqueue,
    found,
    heartbeat,
    job_row,
    set_limits,
    silence,
    sqlstate,
)


def claim_again(database: Database, lease: Lease) -> list[UUID]:
    """What the repeated claim of a lease returns."""
    rows = database.call(
        'claim_crawl_jobs', p_worker_id=lease.worker_id, p_lease_tokens=[lease.token]
    )
    return [row['id'] for row in rows]


def leases(database: Database) -> list[UUID]:
    rows = database.query('select id from silkline.jobs where lease_check_at is not null')
    return [row['id'] for row in rows]


# Repeated claims


def reap(database: Database, lease: Lease) -> None:
    silence(database, lease.token)
    database.call('reap_crawl_jobs')


def release(database: Database, lease: Lease) -> None:
    database.call('release_crawl_job', p_lease_token=lease.token)


def release_to_another(database: Database, lease: Lease) -> None:
    release(database, lease)
    assert claim_one(database).job_id == lease.job_id


def complete(database: Database, lease: Lease) -> None:
    database.call('complete_crawl_job', p_lease_token=lease.token)


def complete_and_retry(database: Database, lease: Lease) -> None:
    complete(database, lease)
    database.call('retry_crawl_job', p_job_id=lease.job_id, p_urls='all')
    assert claim_one(database).job_id == lease.job_id


def stop_and_release(database: Database, lease: Lease) -> None:
    database.call('stop_crawl_job', p_job_id=lease.job_id)
    release(database, lease)


def complete_and_delete(database: Database, lease: Lease) -> None:
    complete(database, lease)
    database.query('delete from silkline.jobs where id = %s', [lease.job_id])


def delete(database: Database, lease: Lease) -> None:
    database.query('delete from silkline.jobs where id = %s', [lease.job_id])


def delete_account(database: Database, lease: Lease) -> None:
    user = job_row(database, lease.job_id)['user_id']
    database.query('delete from auth.users where id = %s', [user], role='supabase_admin')


def delete_account_and_sweep(database: Database, lease: Lease) -> None:
    delete_account(database, lease)
    database.call('maintain_crawl_queue')
    assert database.query('select from silkline.jobs where id = %s', [lease.job_id]) == []


@pytest.mark.parametrize(
    'end',
    [
        reap,
        release,
        release_to_another,
        complete,
        complete_and_retry,
        stop_and_release,
        complete_and_delete,
        delete,
        delete_account,
        delete_account_and_sweep,
    ],
)
def test_a_token_whose_lease_has_ended_never_takes_another_job(
    database: Database, end: Callable[[Database, Lease], None]
) -> None:
    enqueue(database, user=database.user())
    lease = claim_one(database)
    end(database, lease)
    free = enqueue(database, 'free.example')
    before = digest(database)

    assert claim_again(database, lease) == []

    assert digest(database) == before
    assert free in [one.job_id for one in claim(database, 5)]


def test_a_repeated_claim_returns_the_jobs_that_its_tokens_lease(database: Database) -> None:
    enqueue(database, 'a.example')
    lease = claim_one(database)
    enqueue(database, 'b.example')

    assert claim_again(database, lease) == [lease.job_id]
    assert leases(database) == [lease.job_id]


# Resumed while the worker is still saving


@pytest.mark.parametrize('action', ['pause', 'stop'])
def test_a_job_resumed_while_its_worker_saves_stays_with_that_worker(
    database: Database, action: str
) -> None:
    job_id = enqueue(database)
    waiting = enqueue(database)
    lease = claim_one(database)
    checkpoint(database, lease.token, 1, want=1, discovered=[found(1), found(2)])
    database.call(f'{action}_crawl_job', p_job_id=job_id)
    assert claim(database, 5) == []

    [row] = database.call('resume_crawl_job', p_job_id=job_id)

    assert row['status'] == 'processing'
    assert claim(database, 5) == []
    assert leases(database) == [job_id]
    assert heartbeat(database, lease) == 'continue'
    answer = checkpoint(database, lease.token, 2, want=1, finished=[])
    assert (answer['command'], len(answer['tasks'])) == ('continue', 1)
    assert broken_rules(database) == []

    database.call('release_crawl_job', p_lease_token=lease.token)
    assert [one.job_id for one in claim(database, 5)] == [job_id]
    assert waiting not in leases(database)


def test_a_stopped_job_cannot_be_retried_while_its_worker_saves(database: Database) -> None:
    job_id = enqueue(database)
    lease = claim_one(database)
    database.call('stop_crawl_job', p_job_id=job_id)
    retry = partial(database.call, 'retry_crawl_job', p_job_id=job_id)

    assert sqlstate(retry) == 'PT409'
    assert leases(database) == [job_id]
    database.call('release_crawl_job', p_lease_token=lease.token)
    assert [row['status'] for row in retry()] == ['pending']
    assert claim_one(database).job_id == job_id


@pytest.mark.parametrize('action', ['pause', 'stop'])
def test_a_job_resumed_while_its_worker_saves_does_not_put_its_owner_over_the_limit(
    database: Database, action: str
) -> None:
    set_limits(database, max_running_jobs_per_user=1)
    user = database.user()
    job_id = enqueue(database, 'a.example', user=user)
    lease = claim_one(database)
    waiting = enqueue(database, 'b.example', user=user)
    database.call(f'{action}_crawl_job', user=user, p_job_id=job_id)

    assert claim(database, 5) == []
    database.call('resume_crawl_job', user=user, p_job_id=job_id)
    assert leases(database) == [job_id]
    assert broken_rules(database) == []

    database.call('stop_crawl_job', user=user, p_job_id=job_id)
    database.call('release_crawl_job', p_lease_token=lease.token)
    assert [one.job_id for one in claim(database, 5)] == [waiting]

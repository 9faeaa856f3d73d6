"""Retention deletes jobs whole, whatever users and workers do to them meanwhile."""

from uuid import UUID

import psycopg
import pytest

from tests.support.database import Database, call
from tests.support.queue import (
    at_once,
    broken_rules,
    checkpoint,
    claim,
    claim_one,
    enqueue,
    fetched,
    found,
    in_background,
    job_row,
    set_limits,
    sqlstate,
    wait_until_blocked,
)

URLS = 12_000
SMALL_JOBS = 300


def stopped_job(database: Database, urls: int, user: UUID, host: str = 'old.example') -> UUID:
    """A job with pending URLs that was stopped longer ago than jobs are kept."""
    job_id = enqueue(database, host, user=user, payload={'max_pages': 100_000})
    lease = claim_one(database)
    assert lease.job_id == job_id
    for seq, start in enumerate(range(0, urls, 2000), start=1):
        links = [found(number) for number in range(start, min(start + 2000, urls))]
        checkpoint(database, lease.token, seq, discovered=links)
    database.call('stop_crawl_job', user=user, p_job_id=job_id)
    database.call('release_crawl_job', p_lease_token=lease.token)
    age(database, job_id)
    return job_id


def age(database: Database, job_id: UUID) -> None:
    database.query(
        "update silkline.jobs set completed_at = now() - interval '31 days' where id = %s", [job_id]
    )


def maintain(database: Database) -> dict[str, dict[str, int]]:
    [row] = database.call('maintain_crawl_queue')
    assert row['maintain_crawl_queue']['failed'] == {}
    return row['maintain_crawl_queue']


def drain(database: Database, job_id: UUID) -> int:
    """Crawl a job to its end; return how many URLs it took."""
    lease = claim_one(database)
    assert lease.job_id == job_id
    seq, urls = 1, 0
    tasks = checkpoint(database, lease.token, seq, want=1000)['tasks']
    while tasks:
        seq += 1
        urls += len(tasks)
        finished = [{'url_key': task['url_key'], 'status': 'done'} for task in tasks]
        tasks = checkpoint(database, lease.token, seq, want=1000, finished=finished)['tasks']
    [answer] = database.call('complete_crawl_job', p_lease_token=lease.token)
    assert answer['status'] == 'completed'
    return urls


def test_a_job_that_is_resumed_first_keeps_all_its_urls_and_drains(database: Database) -> None:
    user = database.user()
    job_id = stopped_job(database, URLS, user)
    resuming = database.connect('authenticated', user, autocommit=False)
    call(resuming, 'resume_crawl_job', p_job_id=job_id)

    done = maintain(database)
    resuming.commit()

    assert done['pruned']['jobs'] == 0
    assert broken_rules(database) == []
    assert drain(database, job_id) == URLS


def test_a_job_that_is_deleted_first_cannot_be_resumed(database: Database) -> None:
    user = database.user()
    job_id = stopped_job(database, URLS, user)
    pruning = database.connect(autocommit=False)
    pruning.execute('select silkline.prune(5)')
    session = database.connect('authenticated', user)

    def resume() -> str | None:
        return sqlstate(lambda: call(session, 'resume_crawl_job', p_job_id=job_id))

    with in_background(resume) as refused:
        wait_until_blocked(database, session)
        pruning.commit()

    assert refused.result() == 'PT404'
    assert maintain(database)['swept'] == {'jobs': 0, 'pages': 0, 'urls': URLS, 'swept_jobs': 1}
    with pytest.raises(psycopg.Error) as unknown:
        database.call('retry_crawl_job', user=user, p_job_id=job_id)
    assert unknown.value.sqlstate == 'PT404'


def test_a_job_is_either_resumed_or_deleted_when_both_happen_at_once(database: Database) -> None:
    user = database.user()
    session = database.connect('authenticated', user)
    resumed = 0
    for number in range(20):
        job_id = stopped_job(database, 20, user, f'h{number}.example')

        def resume(job_id: UUID = job_id) -> str | None:
            return sqlstate(lambda: call(session, 'resume_crawl_job', p_job_id=job_id))

        def prune() -> str | None:
            return 'PT404' if maintain(database)['pruned']['jobs'] else None

        refused, deleted = at_once(resume, prune)

        assert refused == deleted
        assert broken_rules(database) == []
        if refused is None:
            resumed += 1
            assert drain(database, job_id) == 20
    assert maintain(database)['pruned']['jobs'] == 0
    assert len(database.query('select from silkline.jobs')) == resumed


def test_the_counters_of_many_small_jobs_are_right_after_retention(database: Database) -> None:
    set_limits(database, max_open_jobs_per_user=None)
    user = database.user()
    for number in range(SMALL_JOBS):
        enqueue(database, f'h{number}.example', user=user)
    leases = claim(database, SMALL_JOBS)
    for lease in leases:
        links = [found(number) for number in range(50)]
        checkpoint(database, lease.token, 1, want=5, discovered=links)
        checkpoint(database, lease.token, 2, finished=[fetched(0), fetched(1)])
    # Every third is old, every third is stopped but young, the others are running.
    for at, lease in enumerate(leases):
        if at % 3 < 2:
            database.call('stop_crawl_job', user=user, p_job_id=lease.job_id)
        if at % 3 == 0:
            age(database, lease.job_id)

    done = maintain(database)

    assert done['pruned']['jobs'] == SMALL_JOBS // 3
    assert done['swept']['urls'] == 50 * SMALL_JOBS // 3
    assert broken_rules(database) == []
    [rows] = database.query('select count(*) from silkline.tasks')
    assert rows['count'] == 50 * (SMALL_JOBS - SMALL_JOBS // 3)


def test_retention_deletes_what_two_thousand_urls_a_second_leave_in_a_minute(
    database: Database,
) -> None:
    job_id = enqueue(database)
    admin = database.connect('supabase_admin')
    admin.execute('set session_replication_role = replica')
    admin.execute(
        """
        insert into silkline.tasks (job_id, url_key, url, depth)
        select %s, md5(number::text)::uuid, 'https://site.example/' || number, 1
        from generate_series(1, 120000) as number
        """,
        [job_id],
    )
    database.query('delete from silkline.jobs where id = %s', [job_id])

    [row] = database.query("select silkline.maintain('sweep') as done")

    assert row['done']['swept']['urls'] == 120_000


def test_a_job_whose_worker_still_holds_it_is_deleted_and_frees_its_host(
    database: Database,
) -> None:
    user = database.user()
    job_id = enqueue(database, user=user)
    lease = claim_one(database)
    waiting = enqueue(database, user=user)
    assert claim(database) == []
    assert job_row(database, waiting)['waits_for'] == 'host'
    database.call('stop_crawl_job', user=user, p_job_id=job_id)
    age(database, job_id)

    maintain(database)

    assert checkpoint(database, lease.token, 1)['command'] == 'lost'
    assert claim_one(database).job_id == waiting

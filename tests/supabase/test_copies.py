"""Copies: pages that were dropped for their originals, when their job runs again."""

from typing import Any
from uuid import UUID

from tests.support.database import Database
from tests.support.queue import broken_rules, checkpoint, claim_one, enqueue, fetched, found

COPY, ORIGINAL = 1, 2


def page(number: int) -> dict[str, Any]:
    named = {'canonical_key': found(ORIGINAL)['url_key']} if number == COPY else {}
    entry = fetched(number, **named)
    return entry | {'page': entry['page'] | {'title': 'Same'}}


def ends(database: Database, job_id: UUID) -> list[tuple[str, str | None]]:
    rows = database.query(
        'select status::text, skip_reason from silkline.tasks where job_id = %s order by url',
        [job_id],
    )
    assert broken_rules(database) == []
    return [(row['status'], row['skip_reason']) for row in rows]


def run_again(database: Database, job_id: UUID, token: UUID) -> UUID:
    """Complete the job, and lease all of its URLs again."""
    database.call('complete_crawl_job', p_lease_token=token)
    database.call('retry_crawl_job', p_job_id=job_id, p_urls='all')
    again = claim_one(database).token
    checkpoint(database, again, 1, want=2)
    return again


def test_a_copy_that_was_kept_is_checked_again_when_the_job_starts_over(
    database: Database,
) -> None:
    job_id = enqueue(database)
    token = claim_one(database).token
    checkpoint(database, token, 1, want=2, discovered=[found(COPY), found(ORIGINAL)])
    gone = {'url_key': found(ORIGINAL)['url_key'], 'status': 'error'}
    checkpoint(database, token, 2, want=1, finished=[page(COPY), gone])
    checkpoint(database, token, 3, finished=[page(COPY)])
    assert ends(database, job_id) == [('done', None), ('error', None)]

    token = run_again(database, job_id, token)
    checkpoint(database, token, 2, finished=[page(COPY), page(ORIGINAL)])

    assert ends(database, job_id) == [('skipped', 'canonical'), ('done', None)]


def test_a_copy_is_restored_when_its_original_fails_in_a_later_run(database: Database) -> None:
    job_id = enqueue(database)
    token = claim_one(database).token
    checkpoint(database, token, 1, want=2, discovered=[found(COPY), found(ORIGINAL)])
    checkpoint(database, token, 2, finished=[page(COPY), page(ORIGINAL)])

    token = run_again(database, job_id, token)
    checkpoint(database, token, 2, finished=[page(COPY)])
    assert ends(database, job_id) == [('skipped', 'canonical'), ('in_progress', None)]
    for _ in range(2):
        database.call(
            'fail_crawl_job', p_lease_token=token, p_error_code='oom', p_retry_after_seconds=0
        )
        token = claim_one(database).token
        checkpoint(database, token, 1, want=1)

    assert ends(database, job_id) == [('in_progress', None), ('error', None)]

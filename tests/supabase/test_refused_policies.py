"""A project on which migrations may not create policies on realtime.messages.

Hosted projects allow it through supautils; some refuse it all the same (supabase/cli#6116). No one
may listen then: browsers and workers poll, and everything else works.
"""

import logging
from collections.abc import Iterator

import pytest

from silkline_local.postgres.migrations import migrate
from silkline_local.postgres.server import SUPERUSER
from tests.support.database import Database
from tests.support.gateway import GatewayThread
from tests.support.phoenix import open_socket
from tests.support.queue import checkpoint, claim_one, enqueue, fetched, found
from tests.support.servers import MIGRATIONS, Server


@pytest.fixture
def refusing(server: Server, caplog: pytest.LogCaptureFixture) -> Iterator[Database]:
    with server.database() as database, server.without_supautils():
        with caplog.at_level(logging.INFO, logger='silkline_local'):
            migrate(database.url(), MIGRATIONS)
        yield database


def run_a_job(database: Database) -> str:
    """Drive a job from its enqueueing to its end; return its last status."""
    job_id = enqueue(database, user=database.user())
    lease = claim_one(database)
    checkpoint(database, lease.token, 1, want=1, discovered=[found(1, depth=0)])
    checkpoint(database, lease.token, 2, finished=[fetched(1)])
    database.call('complete_crawl_job', p_lease_token=lease.token)
    [job] = database.query('select status from silkline.jobs where id = %s', [job_id])
    return job['status']


def test_the_migrations_apply_and_say_that_no_one_may_listen(
    refusing: Database, caplog: pytest.LogCaptureFixture
) -> None:
    [policies] = refusing.query(
        "select count(*) from pg_policy where polrelid = 'realtime.messages'::regclass"
    )

    assert policies['count'] == 0
    notices = [record.getMessage() for record in caplog.get_records('setup')]
    assert [notice for notice in notices if 'policies on realtime.messages' in notice]


def test_a_job_runs_to_its_end_without_policies(refusing: Database) -> None:
    assert run_a_job(refusing) == 'completed'
    [sent] = refusing.query("select count(*) from realtime.messages where event = 'status'")
    assert sent['count'] > 0


def test_a_job_runs_to_its_end_where_messages_cannot_be_stored(refusing: Database) -> None:
    # postgres is a member of the other roles.
    refusing.query(
        'revoke insert on realtime.messages'
        ' from postgres, anon, authenticated, service_role cascade',
        role=SUPERUSER,
    )

    assert run_a_job(refusing) == 'completed'
    assert refusing.query('select from realtime.messages', role=SUPERUSER) == []


def test_the_doctor_says_that_no_one_may_listen(refusing: Database) -> None:
    [check] = [row for row in refusing.call('crawl_doctor') if row['check_name'] == 'realtime']

    assert check['status'] == 'warning'
    assert 'policies' in check['detail']


def test_the_owner_of_a_job_is_refused_by_realtime_and_reads_its_progress(
    refusing: Database,
) -> None:
    user = refusing.user()
    job_id = enqueue(refusing, user=user)
    with GatewayThread(refusing) as gateway:
        token = gateway.keys.user_token(str(user), email='a@example.com')
        with open_socket(gateway.url, gateway.keys.publishable) as socket:
            socket.join(f'crawl_job:{job_id}', private=True, token=token, expect='error')

    [progress] = refusing.call('crawl_progress', user=user, p_job_id=job_id)
    assert progress['crawl_progress']['status'] == 'pending'

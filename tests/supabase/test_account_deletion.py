"""Deleting an account the way Supabase Auth does it: with its own role, while workers are busy."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import DictRow

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
    heartbeat,
    set_limits,
)
from tests.support.servers import Server

TABLES = (
    'silkline.jobs',
    'silkline.states',
    'silkline.tasks',
    'silkline.events',
    'public.crawl_pages',
    'silkline.deleted_jobs',
)
VIEWS = (
    'crawl_jobs',
    'crawl_states',
    'crawl_tasks',
    'crawl_events',
    'crawl_pages',
    'crawl_audits',
)
MANY_JOBS = 20_000
FILL = """
set session_replication_role = replica;

insert into silkline.jobs (
  user_id, owner_id, kind, payload, source_id, host, place, status, completed_at
)
select
  user_id,
  user_id,
  'crawl',
  '{"url": "https://site.example/"}',
  'source',
  'h' || number,
  silkline.band_start(0) + number,
  case when number %% 2 = 0 then 'pending' else 'completed' end::crawl_job_status,
  case when number %% 2 = 1 then now() end
from unnest(array['%(user)s'::uuid]) as user_id
cross join generate_series(1, %(jobs)s) as number;

insert into silkline.states (job_id)
select id from silkline.jobs where user_id = '%(user)s';

insert into silkline.events (job_id, seq, to_status, actor, reason, attempt)
select id, 1, 'pending', 'user', 'enqueue', 0 from silkline.jobs where user_id = '%(user)s';

insert into silkline.tasks (job_id, url_key, url, depth)
select id, id, 'https://site.example/', 0 from silkline.jobs where user_id = '%(user)s';

insert into public.crawl_pages (user_id, source_id, url_key, url, version, job_id, content_hash)
select user_id, 'source', id, 'https://site.example/', 1, id, 'hash'
from silkline.jobs where user_id = '%(user)s';

insert into public.crawl_audits (
  job_id, owner_id, score, grade, categories, findings, ruleset_version
)
select id, owner_id, 90, 'A', '{}', '[]', '1' from silkline.jobs where user_id = '%(user)s';
"""


def delete_user(database: Database, user: UUID) -> None:
    with database.connect('supabase_admin') as session:
        session.execute('set role supabase_auth_admin')
        session.execute('delete from auth.users where id = %s', [user])


def sweep(database: Database) -> None:
    """Maintain until nothing is left to sweep."""
    nothing = {'jobs': 0, 'pages': 0, 'urls': 0, 'swept_jobs': 0}
    while True:
        [row] = database.call('maintain_crawl_queue')
        assert row['maintain_crawl_queue']['failed'] == {}
        if row['maintain_crawl_queue']['swept'] == nothing:
            return


def visible(database: Database, user: UUID) -> dict[str, int]:
    """How many rows a user can read of each table of the API."""
    session = database.connect('authenticated', user)
    return {
        view: session.execute(f'select from public.{view} limit 10'.encode()).rowcount
        for view in VIEWS
    }


def count(database: Database, table: str) -> int:
    [row] = database.query(f'select count(*) as count from {table}')  # noqa: S608 - from TABLES
    return row['count']


def test_an_account_without_jobs_can_be_deleted(database: Database) -> None:
    user = database.user()

    delete_user(database, user)

    assert database.query('select from auth.users where id = %s', [user]) == []


def test_deleting_an_account_deletes_its_jobs_and_pages(database: Database) -> None:
    user = database.user()
    enqueue(database, user=user)
    lease = claim_one(database)
    checkpoint(database, lease.token, 1, want=1, discovered=[found(1), found(2)])
    checkpoint(database, lease.token, 2, finished=[fetched(1)])

    delete_user(database, user)

    assert set(visible(database, user).values()) == {0}
    assert heartbeat(database, lease) == 'lost'
    sweep(database)
    assert {table: count(database, table) for table in TABLES} == dict.fromkeys(TABLES, 0)


def test_maintenance_finds_a_job_set_aside_while_the_job_on_its_host_was_swept(
    database: Database,
) -> None:
    user = database.user()
    enqueue(database, user=user)
    claim_one(database)
    waiting = enqueue(database)
    claimer = database.connect('service_role', autocommit=False)

    delete_user(database, user)
    assert not call(claimer, 'claim_crawl_jobs', p_worker_id=uuid4(), p_lease_tokens=[uuid4()])
    database.call('maintain_crawl_queue')
    claimer.commit()
    database.call('maintain_crawl_queue')

    assert claim_one(database).job_id == waiting
    assert broken_rules(database) == []


def test_the_role_of_auth_may_not_write_to_the_queue(database: Database) -> None:
    with database.connect('supabase_admin') as session:
        session.execute('set role supabase_auth_admin')
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute('delete from silkline.states')


@pytest.fixture(scope='module')
def large_account(server: Server, template: str) -> Iterator[tuple[Database, UUID]]:
    with server.database(template) as database:
        user = database.user()
        session = database.connect('supabase_admin')
        session.execute((FILL % {'user': user, 'jobs': MANY_JOBS}).encode())
        yield database, user


def test_deleting_a_large_account_answers_at_once_and_hides_all_of_it(
    large_account: tuple[Database, UUID],
) -> None:
    database, user = large_account
    assert set(visible(database, user).values()) == {10}

    with database.connect('supabase_admin', autocommit=False) as session:
        session.execute('set role supabase_auth_admin')
        began_at = time.monotonic()
        session.execute('delete from auth.users where id = %s', [user])
        session.commit()
        seconds = time.monotonic() - began_at

    # It takes milliseconds; the rows alone would take seconds.
    assert seconds < 0.5
    assert set(visible(database, user).values()) == {0}
    assert claim(database, 10) == []
    sweep(database)
    assert {table: count(database, table) for table in TABLES} == dict.fromkeys(TABLES, 0)


def test_an_account_is_deleted_while_its_jobs_send_checkpoints(database: Database) -> None:
    finished = [fetched(number) for number in range(50)]
    for number in range(40):
        user = database.user()
        enqueue(database, f'h{number}.example', user=user)
        lease = claim_one(database)
        checkpoint(database, lease.token, 1, want=50, discovered=[found(n) for n in range(100)])

        def save(token: UUID = lease.token) -> str | None:
            return checkpoint(database, token, 2, want=5, finished=finished)['command']

        command, _ = at_once(save, partial(delete_user, database, user))

        assert command in ('continue', 'lost')
        assert checkpoint(database, lease.token, 3)['command'] == 'lost'
    sweep(database)
    assert broken_rules(database) == []
    assert {table: count(database, table) for table in TABLES} == dict.fromkeys(TABLES, 0)


def test_an_account_is_deleted_and_swept_while_its_jobs_end(database: Database) -> None:
    set_limits(database, max_jobs_per_host=3)
    *workers, operator = [database.connect('service_role') for _ in range(4)]
    for number in range(60):
        user, other = database.user(), database.user()
        for owner in (user, other, user, other):
            enqueue(database, f'h{number}.example', user=owner)
        leases = claim(database, 4)
        assert len(leases) == 3

        def delete(user: UUID = user) -> list[DictRow]:
            delete_user(database, user)
            return call(operator, 'maintain_crawl_queue')

        *answers, [done] = at_once(
            *(
                partial(call, worker, 'complete_crawl_job', p_lease_token=lease.token)
                for worker, lease in zip(workers, leases, strict=True)
            ),
            delete,
        )

        assert {answer['command'] for [answer] in answers} <= {'continue', 'lost'}
        assert done['maintain_crawl_queue']['failed'] == {}
        # Whatever is left on the host can run.
        for lease in claim(database, 4):
            database.call('complete_crawl_job', p_lease_token=lease.token)
        sweep(database)
        assert broken_rules(database) == []
    assert database.query("select from silkline.jobs where status = 'pending'") == []


def test_the_valid_token_of_a_deleted_account_can_do_nothing(database: Database) -> None:
    user = database.user()
    job_id = enqueue(database, user=user)
    delete_user(database, user)

    calls: list[tuple[str, dict[str, Any]]] = [
        ('enqueue_crawl_job', {'p_payload': {'url': 'https://new.example/'}}),
        ('resume_crawl_job', {'p_job_id': job_id}),
        ('explain_crawl_job', {'p_job_id': job_id}),
        ('crawl_job_pages', {'p_job_id': job_id}),
        ('crawl_queue_stats', {}),
    ]
    for function, params in calls:
        with pytest.raises(psycopg.Error) as refused:
            database.call(function, user=user, **params)
        assert refused.value.sqlstate == 'PT401', function
    assert claim(database, worker_id=uuid4()) == []


def test_the_doctor_reports_that_deleted_accounts_are_not_noticed(database: Database) -> None:
    admin = database.connect('supabase_admin', autocommit=False)
    admin.execute('alter table auth.users disable trigger tg_silkline_remember_deleted_account')
    rows = admin.execute('select * from public.crawl_doctor()').fetchall()
    admin.rollback()

    [accounts] = [row for row in rows if row['check_name'] == 'accounts']
    assert accounts['status'] == 'error'
    assert 'auth.users' in accounts['detail']

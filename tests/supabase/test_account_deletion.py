"""Deleting an account the way Supabase Auth does it: with its own role."""

from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.database import Database

TABLES = ('crawl_jobs', 'crawl_states', 'crawl_tasks', 'crawl_events', 'crawl_pages')


def delete_user(database: Database, user: UUID) -> None:
    with database.connect('supabase_admin') as session:
        session.execute('set role supabase_auth_admin')
        session.execute('delete from auth.users where id = %s', [user])


def test_an_account_without_jobs_can_be_deleted(database: Database) -> None:
    user = database.user()

    delete_user(database, user)

    assert database.query('select from auth.users where id = %s', [user]) == []


def test_deleting_an_account_deletes_its_jobs_and_pages(database: Database) -> None:
    user = database.user()
    database.call('enqueue_crawl_job', user=user, p_payload={'url': 'https://a.example/'})
    token = str(uuid4())
    database.call('claim_crawl_jobs', p_worker_id=token, p_lease_tokens=[token])
    key = str(uuid4())
    database.call(
        'checkpoint_crawl_job',
        p_lease_token=token,
        p_batch={
            'seq': 1,
            'discovered': [{'url_key': key, 'url': 'https://a.example/', 'depth': 0}],
        },
        p_want=1,
    )
    page = {'url': 'https://a.example/', 'content_hash': 'x'}
    database.call(
        'checkpoint_crawl_job',
        p_lease_token=token,
        p_batch={'seq': 2, 'finished': [{'url_key': key, 'status': 'done', 'page': page}]},
    )
    for table in TABLES:
        assert count(database, table) > 0, table

    delete_user(database, user)

    assert {table: count(database, table) for table in TABLES} == dict.fromkeys(TABLES, 0)


def test_the_role_of_auth_may_not_write_to_the_queue(database: Database) -> None:
    with database.connect('supabase_admin') as session:
        session.execute('set role supabase_auth_admin')
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute('delete from silkline.states')


def count(database: Database, table: str) -> int:
    [row] = database.query(f'select count(*) as count from public.{table}')  # noqa: S608 - from TABLES
    return row['count']

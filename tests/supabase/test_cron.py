"""pg_cron: what the migration schedules if it is available, and what happens if it is not."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from silkline_local.postgres.migrations import migrate, split_statements
from tests.support.database import Database
from tests.support.queue import claim_one, enqueue, job_row, silence
from tests.support.servers import MIGRATIONS
from tests.support.waiting import wait_until

SECONDS_TO_THE_NEXT_MINUTE = 100.0
SCHEDULES = [
    'silkline-prune',
    'silkline-prune-cron-history',
    'silkline-reap',
    'silkline-sweep',
    'silkline-unblock',
]


def doctor(database: Database) -> dict[str, tuple[str, str]]:
    return {
        row['check_name']: (row['status'], row['detail']) for row in database.call('crawl_doctor')
    }


def schedules(database: Database) -> list[str]:
    rows = database.query('select jobname from cron.job where active order by jobname')
    return [row['jobname'] for row in rows]


def test_each_schedule_exists_once_even_if_it_is_created_again(
    cron_database: Database,
) -> None:
    assert schedules(cron_database) == SCHEDULES

    assert migrate(cron_database.url(), MIGRATIONS) == []
    # An operator who installs pg_cron later runs this statement by hand.
    [schedule] = [
        statement
        for path in MIGRATIONS.glob('*.sql')
        for statement in split_statements(path.read_text())
        if 'cron.schedule(' in statement
    ]
    cron_database.query(schedule)

    assert schedules(cron_database) == SCHEDULES


@pytest.mark.parametrize('schedule', SCHEDULES)
def test_the_doctor_reports_a_schedule_that_was_removed(
    cron_database: Database, schedule: str
) -> None:
    session = cron_database.connect(autocommit=False)
    session.execute('select cron.unschedule(%s)', [schedule])
    rows = session.execute('select * from public.crawl_doctor()').fetchall()
    session.rollback()

    [cron] = [row for row in rows if row['check_name'] == 'cron']
    assert (cron['status'], cron['detail']) == ('error', f'not scheduled: {schedule}')
    assert cron['hint']


@pytest.fixture
def full_disk(cron_database: Database) -> Iterator[None]:
    """Pruning fails meanwhile."""
    cron_database.query(
        """
        create function public.fail() returns trigger language plpgsql
        as 'begin raise exception ''the disk is full''; end'
        """
    )
    cron_database.query(
        'create trigger tg_fail before delete on public.crawl_hosts'
        ' for each statement execute function public.fail()'
    )
    yield
    cron_database.query('drop function public.fail() cascade')


# Waits for the next full minute.
@pytest.mark.usefixtures('full_disk')
def test_the_schedule_reaps_a_silent_lease_though_pruning_fails(cron_database: Database) -> None:
    job_id = enqueue(cron_database, 'silent.example')
    lease = claim_one(cron_database)
    assert lease.job_id == job_id
    silence(cron_database, lease.token)

    wait_until(
        lambda: job_row(cron_database, job_id)['status'] == 'pending',
        seconds=SECONDS_TO_THE_NEXT_MINUTE,
        what='pg_cron to reap the lease',
    )

    job = job_row(cron_database, job_id)
    assert (job['error_code'], job['retry_count'], job['lease_token']) == ('worker_lost', 1, None)
    assert last_event(cron_database, job_id) == ('processing', 'pending', 'system', 'worker_lost')
    wait_until(lambda: doctor(cron_database)['cron'][0] == 'ok', what='the doctor to see the runs')
    wait_until(
        lambda: 'the disk is full' in doctor(cron_database)['maintenance'][1],
        what='the doctor to see the failure',
    )
    assert doctor(cron_database)['maintenance'][0] == 'error'


def last_event(database: Database, job_id: UUID) -> tuple[str, str, str, str]:
    [row] = database.query(
        'select * from silkline.events where job_id = %s order by seq desc limit 1', [job_id]
    )
    return row['from_status'], row['to_status'], row['actor'], row['reason']


def test_without_pg_cron_the_migrations_apply_and_the_doctor_warns(
    bare_database: Database,
) -> None:
    applied = migrate(bare_database.url(), MIGRATIONS)

    assert len(applied) == len(list(MIGRATIONS.glob('*.sql')))
    assert bare_database.query("select to_regclass('cron.job') as cron") == [{'cron': None}]
    status, detail = doctor(bare_database)['cron']
    assert status == 'warning'
    assert 'pg_cron is not installed' in detail


@pytest.mark.parametrize(
    'check',
    [
        'leases',
        'stuck_jobs',
        'counters',
        'deleted',
        'bloat',
        'grants',
        'row_level_security',
        'accounts',
        'maintenance',
    ],
)
def test_the_doctor_finds_nothing_wrong_with_a_new_queue(database: Database, check: str) -> None:
    assert doctor(database)[check][0] == 'ok'

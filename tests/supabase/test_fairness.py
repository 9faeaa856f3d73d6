"""Which job runs next: turns between users, priorities, and the limits per host and user."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from tests.support.database import Database
from tests.support.queue import (
    broken_rules,
    claim,
    claim_one,
    enqueue,
    job_row,
    set_limits,
)
from tests.support.servers import Server

# The full size on one version; the others do the same with fewer jobs.
BACKLOG, LESS_BACKLOG = 100_000, 10_000
# The limit that the queue promises; the API cancels calls after 8.
SECONDS_OF_A_CALL = 2.0
PER_CALL = 10_000


def enqueue_many(
    database: Database, user: UUID | None, count: int, *, first: int = 0, host: str | None = None
) -> list[UUID]:
    """Enqueue jobs for a user in as few calls as possible, each on its own host by default."""
    job_ids: list[UUID] = []
    for start in range(first, first + count, PER_CALL):
        numbers = range(start, min(start + PER_CALL, first + count))
        jobs = [
            {'payload': {'url': f'https://{host or f"h{number}-{user}.example"}/'}}
            for number in numbers
        ]
        [row] = database.call('enqueue_crawl_jobs', p_jobs=jobs, p_user_id=user)
        job_ids += [UUID(job_id) for job_id in row['enqueue_crawl_jobs']['job_ids']]
    return job_ids


@pytest.fixture
def unlimited(database: Database) -> Database:
    set_limits(database, max_open_jobs_per_user=None, max_jobs_per_user_per_day=None)
    return database


@pytest.fixture(scope='module')
def backlog(server: Server, template: str) -> Iterator[tuple[Database, UUID]]:
    """A queue in which one user has very many jobs; and that user."""
    with server.database(template) as database:
        set_limits(database, max_open_jobs_per_user=None, max_jobs_per_user_per_day=None)
        user = database.user()
        enqueue_many(database, user, BACKLOG if server.version == 18 else LESS_BACKLOG)
        yield database, user


def test_the_only_job_of_a_user_is_first_or_second_despite_the_backlog_of_another(
    backlog: tuple[Database, UUID],
) -> None:
    database, _ = backlog
    job_id = enqueue(database, 'other.example', user=database.user())

    assert job_id in [claim_one(database).job_id for _ in range(2)]


def test_the_only_job_of_a_user_is_first_or_second_after_part_of_a_backlog_is_done(
    backlog: tuple[Database, UUID],
) -> None:
    database, _ = backlog
    for lease in claim(database, 500):
        database.call('complete_crawl_job', p_lease_token=lease.token)
    job_id = enqueue(database, 'another.example', user=database.user())

    assert job_id in [claim_one(database).job_id for _ in range(2)]


def test_a_backlog_on_one_host_does_not_hide_a_job_on_another(unlimited: Database) -> None:
    enqueue_many(unlimited, unlimited.user(), PER_CALL, host='slow.example')
    claim_one(unlimited)
    job_id = enqueue(unlimited, 'free.example', user=unlimited.user())

    assert claim_one(unlimited).job_id == job_id


def test_jobs_enqueued_one_by_one_on_a_busy_host_do_not_hide_a_job_on_another(
    unlimited: Database,
) -> None:
    user = unlimited.user()
    for _ in range(300):
        enqueue(unlimited, 'slow.example', user=user)
    first = claim_one(unlimited)
    job_id = enqueue(unlimited, 'free.example', user=user)

    assert job_row(unlimited, first.job_id)['host'] == 'slow.example'
    assert claim_one(unlimited).job_id == job_id


def test_a_user_at_the_limit_does_not_hold_up_another(unlimited: Database) -> None:
    set_limits(unlimited, max_running_jobs_per_user=1)
    enqueue_many(unlimited, unlimited.user(), 500)
    claim_one(unlimited)
    job_id = enqueue(unlimited, 'free.example', user=unlimited.user())

    assert claim_one(unlimited).job_id == job_id


def test_a_claim_stays_short_when_all_jobs_of_an_owner_wait_for_one_busy_host(
    unlimited: Database,
) -> None:
    """Each of them is unblocked by its owner, found blocked by its host, and unblocks the next."""
    set_limits(unlimited, max_running_jobs_per_user=1)
    user = unlimited.user()
    enqueue(unlimited, 'own.example', user=user)
    own = claim_one(unlimited)
    backlog = unlimited.connect('supabase_admin')
    backlog.execute('set session_replication_role = replica')
    backlog.execute(
        """
        insert into silkline.jobs
          (user_id, kind, payload, source_id, host, place, waits_for)
        select
          %s,
          'crawl',
          '{"url": "https://busy.example/"}',
          'busy.example',
          'busy.example',
          silkline.band_start(0) + nth,
          'owner'
        from generate_series(1, 20000) as nth
        """,
        [user],
    )
    backlog.execute('reset session_replication_role')
    backlog.execute('analyze silkline.jobs')
    enqueue(unlimited, 'busy.example', user=unlimited.user())
    claim_one(unlimited)
    unlimited.call('complete_crawl_job', p_lease_token=own.token)
    other = enqueue(unlimited, 'free.example', user=unlimited.user())

    started_at = time.monotonic()
    leases = claim(unlimited, 5)

    assert [lease.job_id for lease in leases] == [other]
    assert time.monotonic() - started_at < SECONDS_OF_A_CALL


@pytest.mark.parametrize('tokens', [1, 6])
def test_users_take_turns(unlimited: Database, tokens: int) -> None:
    users = [unlimited.user(), unlimited.user(), None]
    for count, user in zip((60, 10, 10), users, strict=True):
        enqueue_many(unlimited, user, count)

    runs: Counter[UUID | None] = Counter()
    for _ in range(30 // tokens):
        for lease in claim(unlimited, tokens):
            runs[job_row(unlimited, lease.job_id)['user_id']] += 1

    assert sum(runs.values()) == 30
    assert all(9 <= runs[user] <= 11 for user in users), runs


def test_a_users_own_jobs_run_in_the_order_they_were_enqueued(unlimited: Database) -> None:
    jobs = enqueue_many(unlimited, unlimited.user(), 20)

    assert [claim_one(unlimited).job_id for _ in range(20)] == jobs


def test_a_higher_priority_of_the_operator_runs_first_whoever_has_the_turn(
    unlimited: Database,
) -> None:
    user = unlimited.user()
    enqueue_many(unlimited, unlimited.user(), 20)
    enqueue_many(unlimited, user, 20)
    low = enqueue(unlimited, 'low.example', user=unlimited.user(), p_priority=-1)
    high = enqueue(unlimited, 'high.example', p_user_id=user, p_priority=1)

    order = [lease.job_id for lease in claim(unlimited, 1) + claim(unlimited, 50)]

    assert order[0] == high
    assert len(order) == 42
    assert low in order[1:]
    assert claim(unlimited, 1) == []


def test_a_lower_priority_runs_last(unlimited: Database) -> None:
    low = enqueue(unlimited, 'low.example', user=unlimited.user(), p_priority=-1)
    enqueue_many(unlimited, unlimited.user(), 10)

    assert [claim_one(unlimited).job_id for _ in range(11)][-1] == low


def test_a_job_released_at_shutdown_is_first_or_second(unlimited: Database) -> None:
    enqueue_many(unlimited, unlimited.user(), 50)
    lease = claim_one(unlimited)
    claim(unlimited, 5)
    unlimited.call('release_crawl_job', p_lease_token=lease.token)

    assert lease.job_id in [claim_one(unlimited).job_id for _ in range(2)]


# Limits


def test_a_lowered_limit_per_host_counts_the_jobs_that_are_already_running(
    database: Database,
) -> None:
    set_limits(database, max_jobs_per_host=2)
    for _ in range(3):
        enqueue(database)
    first, second = claim(database, 2)
    database.call('complete_crawl_job', p_lease_token=first.token)
    set_limits(database, max_jobs_per_host=1)

    assert claim(database, 2) == []
    database.call('complete_crawl_job', p_lease_token=second.token)
    assert len(claim(database, 2)) == 1


def test_a_raised_limit_lets_waiting_jobs_run_after_maintenance(database: Database) -> None:
    user = database.user()
    set_limits(database, max_running_jobs_per_user=1)
    for number in range(4):
        enqueue(database, f'h{number}.example', user=user)
    for _ in range(3):
        enqueue(database, 'same.example')
    assert len(claim(database, 10)) == 2
    set_limits(database, max_running_jobs_per_user=None, max_jobs_per_host=3)

    database.call('maintain_crawl_queue')

    assert len(claim(database, 10)) == 5


def test_jobs_of_a_plugin_that_name_no_url_run_side_by_side(database: Database) -> None:
    database.query("update public.crawl_settings set plugin_kinds = '{report}'")
    jobs = {
        database.call('enqueue_crawl_job', p_kind='report', p_payload={'month': month})[0]['id']
        for month in range(3)
    }

    assert {lease.job_id for lease in claim(database, 5)} == jobs
    assert broken_rules(database) == []


def enqueue_list(database: Database, user: UUID | None, *hosts: str) -> UUID:
    urls = [f'https://{host}/' for host in hosts]
    [job] = database.call(
        'enqueue_crawl_job', user=user, p_payload={'strategy': 'list', 'urls': urls}
    )
    return job['id']


def test_a_list_over_several_hosts_has_a_limit_per_owner_and_occupies_no_host(
    database: Database,
) -> None:
    first, second = database.user(), database.user()
    lists = [enqueue_list(database, first, 'a.example', 'b.example') for _ in range(3)]
    other = enqueue_list(database, second, 'a.example', 'b.example')
    site = enqueue(database, 'a.example', user=second)

    leases = {lease.job_id: lease for lease in claim(database, 10)}
    assert set(leases) == {lists[0], other, site}
    assert claim(database, 10) == []
    database.call('complete_crawl_job', p_lease_token=leases[lists[0]].token)
    assert [lease.job_id for lease in claim(database, 10)] == [lists[1]]

    set_limits(database, max_lists_per_user=2)
    database.call('maintain_crawl_queue')
    assert [lease.job_id for lease in claim(database, 10)] == [lists[2]]
    assert broken_rules(database) == []


def test_a_list_on_one_host_counts_as_a_job_on_that_host(database: Database) -> None:
    listed = enqueue_list(database, None, 'a.example', 'a.example')
    waiting = enqueue(database, 'a.example')

    [lease] = claim(database, 5)
    assert lease.job_id == listed
    database.call('complete_crawl_job', p_lease_token=lease.token)
    assert [lease.job_id for lease in claim(database, 5)] == [waiting]


def test_jobs_that_come_due_together_take_turns_with_those_of_another(unlimited: Database) -> None:
    many, single = unlimited.user(), unlimited.user()
    for nth in range(20):
        enqueue(
            unlimited,
            f'm{nth}.example',
            user=many,
            p_run_after=datetime.now(UTC) + timedelta(hours=1),
        )
    unlimited.query("update silkline.jobs set run_after = now() - interval '1 second'")
    unlimited.call('reap_crawl_jobs')
    job = enqueue(unlimited, 'single.example', user=single)

    assert job in {lease.job_id for lease in claim(unlimited, 2)}


def test_resuming_or_retrying_a_stopped_job_counts_against_the_quota(database: Database) -> None:
    set_limits(database, max_open_jobs_per_user=1)
    user = database.user()
    stopped = enqueue(database, 'a.example', user=user)
    database.call('stop_crawl_job', user=user, p_job_id=stopped)
    enqueue(database, 'b.example', user=user)

    for function in ('resume_crawl_job', 'retry_crawl_job'):
        with pytest.raises(psycopg.Error) as refused:
            database.call(function, user=user, p_job_id=stopped)
        assert refused.value.sqlstate == 'PT429'
    assert database.query('select status from silkline.jobs where id = %s', [stopped]) == [
        {'status': 'stopped'}
    ]

"""The order of the line: first come, first served, also with old snapshots and late commits."""

from uuid import UUID

import pytest

from tests.support.database import Database, Session, call
from tests.support.queue import (
    Lease,
    broken_rules,
    claim,
    claim_one,
    enqueue,
    set_limits,
)
from tests.support.servers import Server


def claim_all(database: Database) -> list[UUID]:
    """Claim one by one until the line is empty; the jobs in the order they were claimed."""
    job_ids: list[UUID] = []
    while leases := claim(database):
        job_ids += [lease.job_id for lease in leases]
    return job_ids


def complete(database: Database, lease: Lease) -> None:
    database.call('complete_crawl_job', p_lease_token=lease.token)


def in_line(database: Database, host: str = 'site.example') -> list[UUID]:
    rows = database.query(
        """
        select id
        from silkline.jobs
        where status = 'pending'
          and waits_for is null
          and host = %s
        order by place, id
        """,
        [host],
    )
    return [row['id'] for row in rows]


# Ties


def test_newer_users_do_not_overtake_an_older_one(database: Database) -> None:
    first = database.user()
    older = enqueue(database, 'older.example', user=first)
    newer = [
        enqueue(database, f'h{number}.example', p_user_id=database.user()) for number in range(200)
    ]
    # Its row is now behind theirs in the table.
    database.call('pause_crawl_job', user=first, p_job_id=older)
    database.call('resume_crawl_job', user=first, p_job_id=older)

    assert claim_all(database) == [older, *newer]


def test_a_claim_of_many_takes_the_oldest_among_equals(database: Database) -> None:
    jobs = [
        enqueue(database, f'h{number}.example', p_user_id=database.user()) for number in range(40)
    ]

    taken = [{lease.job_id for lease in claim(database, 10)} for _ in range(4)]

    assert taken == [set(jobs[start : start + 10]) for start in range(0, 40, 10)]


def test_jobs_that_wait_for_a_host_run_in_the_order_they_were_enqueued(database: Database) -> None:
    jobs = [enqueue(database, p_user_id=database.user()) for _ in range(20)]
    order: list[UUID] = []
    while leases := claim(database, 5):
        order += [lease.job_id for lease in leases]
        for lease in leases:
            complete(database, lease)

    assert order == jobs


def test_a_job_that_has_run_before_is_not_overtaken_on_its_host(database: Database) -> None:
    enqueue(database)
    released = claim_one(database)
    database.call('release_crawl_job', p_lease_token=released.token)
    enqueue(database)

    assert [lease.job_id for lease in claim(database, 2)] == [released.job_id]


# Priorities


def test_the_priority_of_a_user_orders_only_the_jobs_of_that_user(database: Database) -> None:
    eager, other = database.user(), database.user()
    usual = [enqueue(database, f'usual{nth}.example', user=eager) for nth in range(5)]
    urgent = enqueue(database, 'urgent.example', user=eager, p_priority=50)
    others = [enqueue(database, f'other{nth}.example', user=other) for nth in range(6)]

    order = claim_all(database)

    assert order[::2] == [urgent, *usual]
    assert order[1::2] == others


def test_the_priority_of_the_operator_orders_the_jobs_of_all(database: Database) -> None:
    first, second = database.user(), database.user()
    usual = [enqueue(database, f'usual{nth}.example', user=first) for nth in range(3)]
    eager = enqueue(database, 'eager.example', user=second, p_priority=100)
    low = enqueue(database, 'low.example', p_user_id=first, p_priority=-1)
    high = enqueue(database, 'high.example', p_user_id=second, p_priority=1)

    order = claim_all(database)

    assert (order[0], order[-1]) == (high, low)
    assert set(order[1:-1]) == {*usual, eager}


def test_a_priority_up_to_the_limit_for_users_counts_among_all(database: Database) -> None:
    set_limits(database, max_user_priority=10)
    first, second = database.user(), database.user()
    usual = enqueue(database, 'usual.example', user=first)
    higher = enqueue(database, 'higher.example', user=first, p_priority=10)
    own = [
        enqueue(database, f'own{priority}.example', user=second, p_priority=priority)
        for priority in (10, 50)
    ]

    assert claim_all(database) == [higher, own[1], own[0], usual]


@pytest.mark.parametrize('tokens', [1, 2, 5])
def test_a_claim_takes_the_highest_priorities_of_all_kinds(database: Database, tokens: int) -> None:
    database.query("update public.crawl_settings set plugin_kinds = '{report}'")
    jobs = [
        enqueue(
            database,
            f'h{number}.example',
            p_priority=priority,
            p_kind='crawl' if number % 2 else 'report',
        )
        for number, priority in enumerate([-3, 7, 0, 7, 3])
    ]
    ordered = [jobs[number] for number in (1, 3, 4, 2, 0)]

    assert {lease.job_id for lease in claim(database, tokens)} == set(ordered[:tokens])


def test_a_preferred_job_on_a_locked_host_does_not_hold_up_the_owners_other_jobs(
    database: Database,
) -> None:
    user = database.user()
    busy = enqueue(database, 'busy.example')
    ender = claim_one(database)
    usual = enqueue(database, 'usual.example', user=user)
    preferred = enqueue(database, 'busy.example', user=user, p_priority=100)
    session = database.connect('service_role', autocommit=False)
    # Until it commits, it holds the lock of the host.
    call(session, 'complete_crawl_job', p_lease_token=ender.token)

    assert ender.job_id == busy
    assert [lease.job_id for lease in claim(database, 5)] == [usual]
    session.commit()
    assert [lease.job_id for lease in claim(database, 5)] == [preferred]


# Waiting jobs


def lock_row(database: Database, job_id: UUID) -> Session:
    session = database.connect(autocommit=False)
    session.execute('select from silkline.jobs where id = %s for update', [job_id])
    return session


def test_a_waiting_job_that_is_locked_lets_the_next_one_run(database: Database) -> None:
    jobs = [enqueue(database) for _ in range(3)]
    first = claim_one(database)
    assert claim(database, 3) == []
    locker = lock_row(database, jobs[1])

    complete(database, first)
    second = claim_one(database)
    locker.rollback()
    complete(database, second)
    third = claim_one(database)

    assert [lease.job_id for lease in (first, second, third)] == [jobs[0], jobs[2], jobs[1]]
    assert broken_rules(database) == []


def test_a_job_that_waits_for_its_owner_and_is_locked_lets_the_next_one_run(
    database: Database,
) -> None:
    set_limits(database, max_running_jobs_per_user=1)
    user = database.user()
    jobs = [enqueue(database, f'h{nth}.example', user=user) for nth in range(3)]
    first = claim_one(database)
    assert claim(database, 3) == []
    locker = lock_row(database, jobs[1])

    complete(database, first)

    assert claim_one(database).job_id == jobs[2]
    locker.rollback()


def test_a_job_that_must_wait_for_its_host_lets_the_owners_next_one_run(
    database: Database,
) -> None:
    set_limits(database, max_running_jobs_per_user=1)
    user = database.user()
    running, _, free = [
        enqueue(database, f'{name}.example', user=user) for name in ('own', 'busy', 'free')
    ]
    own = claim_one(database)
    assert own.job_id == running
    assert claim(database, 5) == []
    enqueue(database, 'busy.example')
    claim_one(database)
    complete(database, own)

    assert [lease.job_id for lease in claim(database, 5)] == [free]
    assert broken_rules(database) == []


def test_maintenance_finds_the_only_waiting_job_that_was_locked(database: Database) -> None:
    waiting = [enqueue(database) for _ in range(2)][1]
    first = claim_one(database)
    assert claim(database, 2) == []
    locker = lock_row(database, waiting)
    complete(database, first)
    locker.rollback()

    database.call('maintain_crawl_queue')

    assert claim_one(database).job_id == waiting


def test_maintenance_puts_no_more_jobs_in_line_than_a_host_has_room_for(
    database: Database,
) -> None:
    jobs = [enqueue(database) for _ in range(10)]
    running = claim_one(database)
    assert claim(database, 10) == []
    complete(database, running)

    for _ in range(5):
        database.call('maintain_crawl_queue')
    assert in_line(database) == jobs[1:2]

    set_limits(database, max_jobs_per_host=3)
    for _ in range(5):
        database.call('maintain_crawl_queue')
    assert in_line(database) == jobs[1:4]


def test_maintenance_puts_no_more_jobs_in_line_than_an_owner_has_room_for(
    database: Database,
) -> None:
    set_limits(database, max_running_jobs_per_user=1)
    user = database.user()
    for nth in range(10):
        enqueue(database, f'h{nth}.example', user=user)
    running = claim_one(database)
    assert claim(database, 10) == []
    complete(database, running)

    for _ in range(5):
        database.call('maintain_crawl_queue')

    rows = database.query(
        "select from silkline.jobs where status = 'pending' and waits_for is null"
    )
    assert len(rows) == 1


def test_maintenance_reaches_every_host(database: Database) -> None:
    with database.connect('supabase_admin') as session:
        session.execute('set session_replication_role = replica')
        session.execute(
            """
            insert into silkline.jobs (kind, payload, source_id, host, place, waits_for)
            select
              'crawl',
              '{"url": "https://site.example/"}',
              'source',
              'h' || nth % 1500 || '.example',
              silkline.band_start(0) + nth,
              'host'
            from generate_series(1, 4500) as nth
            """
        )

    for _ in range(3):
        database.call('maintain_crawl_queue')

    rows = database.query(
        """
        select count(*) filter (where waits_for is null) as in_line
        from silkline.jobs
        group by host
        """
    )
    assert [row['in_line'] for row in rows] == [1] * 1500


# Old snapshots and late transactions

# The full size on one version; the others do the same with fewer jobs.
ENDED, FEWER_ENDED = 20_000, 4_000
# Without floors, a claim reads a block for each job that has ended under the snapshot.
FEW_BLOCKS = 200


def raise_floors(database: Database) -> None:
    """Let the next claim raise the floors of the lines, as one does every ten seconds."""
    database.query("update silkline.time_floors set noted_at = now() - interval '1 minute'")


def blocks_of_a_claim(database: Database) -> int:
    """How many blocks a claim of one job reads, and everything that it calls."""
    [row] = database.query(
        """
        explain (analyze, buffers, format json)
        select * from public.claim_crawl_jobs(gen_random_uuid(), array[gen_random_uuid()])
        """
    )
    plan = row['QUERY PLAN'][0]['Plan']
    assert plan['Actual Rows'] == 1
    return plan['Shared Hit Blocks'] + plan['Shared Read Blocks']


def test_a_claim_reads_few_blocks_under_a_snapshot_that_is_held(
    database: Database, server: Server
) -> None:
    count = ENDED if server.version == 18 else FEWER_ENDED
    holder = database.connect(autocommit=False)
    holder.execute('set transaction isolation level repeatable read')
    holder.execute('select from silkline.jobs')
    for start in range(0, count, 1000):
        entries = [
            {'payload': {'url': f'https://h{number}.example/'}}
            for number in range(start, start + 1000)
        ]
        database.call('enqueue_crawl_jobs', p_jobs=entries)
        for _ in range(10):
            tokens = [lease.token for lease in claim(database, 100)]
            answers = database.call('complete_crawl_jobs', p_lease_tokens=tokens)
            assert [answer['status'] for answer in answers] == ['completed'] * 100
        raise_floors(database)
    # The first of these claims raises the floors, and reads the catalogue.
    blocks: list[int] = []
    for number in range(3):
        enqueue(database, f'last{number}.example')
        blocks.append(blocks_of_a_claim(database))

    assert blocks[-1] < FEW_BLOCKS
    holder.rollback()


def test_maintenance_finds_a_job_that_was_committed_below_the_floor(database: Database) -> None:
    backlog = [{'payload': {'url': f'https://h{number}.example/'}} for number in range(100)]
    database.call('enqueue_crawl_jobs', p_jobs=backlog, p_user_id=database.user())
    late = database.connect('service_role', autocommit=False)
    [job] = call(late, 'enqueue_crawl_job', p_payload={'url': 'https://late.example/'})
    for _ in range(3):
        claim(database, 20)
        raise_floors(database)
    assert len(claim(database, 20)) == 20
    late.commit()
    assert job['id'] not in [lease.job_id for lease in claim(database, 10)]

    database.call('maintain_crawl_queue')

    assert claim_one(database).job_id == job['id']
    assert broken_rules(database) == []

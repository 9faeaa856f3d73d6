"""Races: in each test, two or more real sessions work on the same rows at the same time.

Where the order matters, one session keeps its transaction open while the test checks whether the
other waits. Elsewhere threads start together, and only the outcome is checked.
"""

import itertools
import random
import threading
import time
from collections import Counter
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.database import Database, Session, call
from tests.support.queue import (
    SECONDS_FOR_A_RACE,
    Lease,
    at_once,
    broken_rules,
    checkpoint,
    claim,
    claim_one,
    digest,
    enqueue,
    fetched,
    found,
    heartbeat,
    in_background,
    job_row,
    set_limits,
    silence,
    sqlstate,
    wait_until_blocked,
)


def service(database: Database, *, autocommit: bool = True) -> Session:
    return database.connect('service_role', autocommit=autocommit)


def claim_in(session: Session, tokens: int = 1, *, worker_id: UUID | None = None) -> list[Lease]:
    worker_id = worker_id or uuid4()
    rows = call(
        session,
        'claim_crawl_jobs',
        p_worker_id=worker_id,
        p_lease_tokens=[uuid4() for _ in range(tokens)],
    )
    return [Lease(row['id'], row['lease_token'], worker_id) for row in rows]


def command(session: Session, function: str, token: UUID, **params: object) -> str:
    [answer] = call(session, function, p_lease_token=token, **params)
    return answer['command']


# Claims


def test_many_claimers_claim_each_job_exactly_once(database: Database) -> None:
    jobs = {enqueue(database, f'h{number}.example') for number in range(60)}

    def claim_until_dry(session: Session) -> list[UUID]:
        claimed: list[UUID] = []
        while leases := claim_in(session, 3):
            claimed += [lease.job_id for lease in leases]
        return claimed

    sessions = [service(database) for _ in range(8)]
    claimed = at_once(*(partial(claim_until_dry, session) for session in sessions))
    # A claim skips hosts that another claim has locked; the last one gets the rest.
    rest = claim_until_dry(sessions[0])

    times = Counter(itertools.chain(rest, *claimed))
    assert set(times) == jobs
    assert set(times.values()) == {1}
    assert broken_rules(database) == []


def test_claimers_that_share_hosts_run_every_job_once_and_never_two_on_a_host(
    database: Database,
) -> None:
    jobs = {enqueue(database, f'h{number % 3}.example') for number in range(18)}
    done: list[UUID] = []
    deadline = time.monotonic() + SECONDS_FOR_A_RACE

    def work(session: Session) -> None:
        while len(done) < len(jobs) and time.monotonic() < deadline:
            for lease in claim_in(session, 2):
                # The unique index on (host, host_slot) would refuse a second one.
                command(session, 'complete_crawl_job', lease.token)
                done.append(lease.job_id)

    at_once(*(partial(work, service(database)) for _ in range(6)))

    assert Counter(done) == dict.fromkeys(jobs, 1)
    assert broken_rules(database) == []


def test_claimers_never_run_more_jobs_of_a_user_than_allowed(database: Database) -> None:
    set_limits(database, max_running_jobs_per_user=2)
    user = database.user()
    for number in range(12):
        enqueue(database, f'h{number}.example', user=user)

    claimed = at_once(*(partial(claim_in, service(database), 3) for _ in range(6)))
    rest = claim(database, 10)

    assert len(list(itertools.chain(rest, *claimed))) == 2
    assert broken_rules(database) == []


def test_a_second_claim_skips_the_host_that_the_first_is_taking(database: Database) -> None:
    enqueue(database)
    enqueue(database)
    first = service(database, autocommit=False)

    assert len(claim_in(first, 2)) == 1
    assert claim(database, 2) == []
    first.commit()
    assert claim(database, 2) == []


def test_the_same_token_claimed_twice_at_once_gets_one_job(database: Database) -> None:
    for number in range(5):
        enqueue(database, f'h{number}.example')
    worker_id, token = uuid4(), uuid4()

    def claim_again(session: Session) -> list[UUID]:
        rows = call(session, 'claim_crawl_jobs', p_worker_id=worker_id, p_lease_tokens=[token])
        return [row['id'] for row in rows]

    answers = at_once(*(partial(claim_again, service(database)) for _ in range(6)))

    assert all(answer == answers[0] for answer in answers)
    assert len(answers[0]) == 1
    leased = database.query('select id from silkline.jobs where lease_check_at is not null')
    assert [row['id'] for row in leased] == answers[0]


def test_a_repeated_claim_waits_for_the_first_and_gets_its_job(database: Database) -> None:
    enqueue(database, 'a.example')
    enqueue(database, 'b.example')
    params: dict[str, Any] = {'p_worker_id': uuid4(), 'p_lease_tokens': [uuid4()]}
    first, second = service(database, autocommit=False), service(database)

    [job] = call(first, 'claim_crawl_jobs', **params)
    with in_background(lambda: call(second, 'claim_crawl_jobs', **params)) as repeated:
        wait_until_blocked(database, second)
        first.commit()
        assert [row['id'] for row in repeated.result(SECONDS_FOR_A_RACE)] == [job['id']]


def test_a_token_of_one_worker_claims_nothing_for_another(database: Database) -> None:
    enqueue(database, 'a.example')
    enqueue(database, 'b.example')
    lease = claim_one(database)

    assert (
        database.call('claim_crawl_jobs', p_worker_id=uuid4(), p_lease_tokens=[lease.token]) == []
    )


# The end of a lease unblocks the next job of the host


def test_a_job_set_aside_while_its_host_is_freed_is_unblocked(database: Database) -> None:
    enqueue(database)
    running = claim_one(database)
    waiting = enqueue(database)
    claimer, ender = service(database, autocommit=False), service(database)

    assert claim_in(claimer) == []
    with in_background(lambda: command(ender, 'complete_crawl_job', running.token)) as ending:
        wait_until_blocked(database, ender)
        claimer.commit()
        assert ending.result(SECONDS_FOR_A_RACE) == 'continue'

    assert claim_one(database).job_id == waiting


def test_a_job_that_is_being_explained_does_not_miss_its_turn(database: Database) -> None:
    first = enqueue(database)
    waiting = enqueue(database)
    lease = claim_one(database)
    assert claim(database) == []
    assert lease.job_id == first
    asking = service(database, autocommit=False)
    call(asking, 'explain_crawl_job', p_job_id=waiting)

    database.call('complete_crawl_job', p_lease_token=lease.token)
    asking.commit()

    assert claim_one(database).job_id == waiting


def test_a_claim_does_not_wait_for_a_host_being_freed_and_loses_no_job(
    database: Database,
) -> None:
    enqueue(database)
    running = claim_one(database)
    waiting = enqueue(database)
    ender = service(database, autocommit=False)

    command(ender, 'complete_crawl_job', running.token)
    assert claim(database) == []
    ender.commit()

    assert claim_one(database).job_id == waiting


# Claim and complete against cancel


def test_a_claim_does_not_wait_for_a_cancel_and_does_not_get_its_job(database: Database) -> None:
    user = database.user()
    job_id = enqueue(database, user=user)
    canceller = database.connect('authenticated', user, autocommit=False)

    call(canceller, 'cancel_crawl_job', p_job_id=job_id)
    assert claim(database) == []
    canceller.commit()

    assert claim(database) == []
    assert job_row(database, job_id)['status'] == 'cancelled'


def test_a_cancel_that_waited_for_a_claim_reaches_the_worker(database: Database) -> None:
    user = database.user()
    job_id = enqueue(database, user=user)
    claimer = service(database, autocommit=False)
    canceller = database.connect('authenticated', user)

    [lease] = claim_in(claimer)
    with in_background(lambda: call(canceller, 'cancel_crawl_job', p_job_id=job_id)) as cancelling:
        wait_until_blocked(database, canceller)
        claimer.commit()
        assert [row['status'] for row in cancelling.result(SECONDS_FOR_A_RACE)] == ['cancelled']

    assert heartbeat(database, lease) == 'cancel'
    assert checkpoint(database, lease.token, 1, want=5)['command'] == 'cancel'


def test_jobs_cancelled_while_they_are_claimed_all_end_cancelled(database: Database) -> None:
    jobs = [enqueue(database, f'h{number}.example') for number in range(20)]
    canceller = service(database)

    def cancel_all() -> list[Lease]:
        for job_id in jobs:
            call(canceller, 'cancel_crawl_job', p_job_id=job_id)
        return []

    leases = at_once(
        cancel_all,
        *(partial(claim_in, service(database), 4) for _ in range(4)),
    )

    assert {job_row(database, job_id)['status'] for job_id in jobs} == {'cancelled'}
    for lease in itertools.chain(*leases):
        assert heartbeat(database, lease) == 'cancel'
        [answer] = database.call('release_crawl_job', p_lease_token=lease.token)
        assert answer['status'] == 'cancelled'
    assert broken_rules(database) == []


def test_a_complete_that_waited_for_a_cancel_leaves_the_job_cancelled(database: Database) -> None:
    job_id = enqueue(database)
    lease = claim_one(database)
    canceller, completer = service(database, autocommit=False), service(database)

    call(canceller, 'cancel_crawl_job', p_job_id=job_id)
    complete = partial(command, completer, 'complete_crawl_job', lease.token, p_result={'pages': 1})
    with in_background(complete) as completing:
        wait_until_blocked(database, completer)
        canceller.commit()
        assert completing.result(SECONDS_FOR_A_RACE) == 'cancel'

    job = job_row(database, job_id)
    assert (job['status'], job['result'], job['worker_id']) == ('cancelled', None, None)


def test_a_cancel_that_waited_for_a_complete_is_refused(database: Database) -> None:
    job_id = enqueue(database)
    lease = claim_one(database)
    completer, canceller = service(database, autocommit=False), service(database)

    command(completer, 'complete_crawl_job', lease.token)
    cancel = partial(call, canceller, 'cancel_crawl_job', p_job_id=job_id)
    with in_background(lambda: sqlstate(cancel)) as cancelling:
        wait_until_blocked(database, canceller)
        completer.commit()
        assert cancelling.result(SECONDS_FOR_A_RACE) == 'PT409'

    assert job_row(database, job_id)['status'] == 'completed'


# Reap against the calls of a late worker


def test_a_late_worker_cannot_complete_a_job_that_is_being_reaped(database: Database) -> None:
    job_id = enqueue(database)
    lease = claim_one(database)
    silence(database, lease.token)
    reaper, completer = service(database, autocommit=False), service(database)

    [reaped] = call(reaper, 'reap_crawl_jobs')
    complete = partial(command, completer, 'complete_crawl_job', lease.token, p_result={'pages': 1})
    with in_background(complete) as completing:
        wait_until_blocked(database, completer)
        reaper.commit()
        after_reap = digest(database)
        assert completing.result(SECONDS_FOR_A_RACE) == 'lost'

    assert (reaped['job_id'], reaped['status']) == (job_id, 'pending')
    assert digest(database) == after_reap
    assert job_row(database, job_id)['status'] == 'pending'


def test_a_reaper_skips_a_job_that_is_being_completed(database: Database) -> None:
    job_id = enqueue(database)
    lease = claim_one(database)
    silence(database, lease.token)
    completer = service(database, autocommit=False)

    assert command(completer, 'complete_crawl_job', lease.token) == 'continue'
    assert database.call('reap_crawl_jobs') == []
    completer.commit()

    assert database.call('reap_crawl_jobs') == []
    assert job_row(database, job_id)['status'] == 'completed'


@pytest.mark.parametrize(
    ('function', 'params'),
    [
        ('complete_crawl_job', {'p_result': {'pages': 1}}),
        ('fail_crawl_job', {'p_error_code': 'oom'}),
        ('fail_crawl_job', {'p_error_code': 'oom', 'p_suspects': [UUID(int=1)]}),
        ('release_crawl_job', {'p_reason': 'shutdown'}),
        ('release_crawl_job', {'p_reason': 'later', 'p_after_seconds': 60}),
        ('release_crawl_job', {'p_reason': 'worker_restarted'}),
    ],
)
def test_a_late_worker_changes_nothing_once_another_has_the_job(
    database: Database, function: str, params: dict[str, Any]
) -> None:
    enqueue(database)
    late = claim_one(database)
    silence(database, late.token)
    database.call('reap_crawl_jobs')
    current = claim_one(database)
    assert current.job_id == late.job_id
    before = digest(database)

    [answer] = database.call(function, p_lease_token=late.token, **params)

    assert (answer['command'], answer['job_id']) == ('lost', None)
    assert digest(database) == before


def test_a_job_released_for_later_while_a_user_pauses_it_stays_paused(
    database: Database,
) -> None:
    job_id = enqueue(database)
    lease = claim_one(database)
    pauser, worker = service(database, autocommit=False), service(database)

    call(pauser, 'pause_crawl_job', p_job_id=job_id)
    later = partial(
        command, worker, 'release_crawl_job', lease.token, p_reason='later', p_after_seconds=60
    )
    with in_background(later) as releasing:
        wait_until_blocked(database, worker)
        pauser.commit()
        assert releasing.result(SECONDS_FOR_A_RACE) == 'pause'

    job = job_row(database, job_id)
    assert (job['status'], job['waits_for'], job['worker_id']) == ('paused', None, None)
    assert broken_rules(database) == []


def test_two_crawls_that_report_about_one_host_at_once_both_keep_their_facts(
    database: Database,
) -> None:
    leases = [enqueue(database, f'h{number}.example') and claim_one(database) for number in (1, 2)]
    first, second = service(database, autocommit=False), service(database)
    robots = {'host': 'cdn.example', 'robots_status': 200, 'robots_txt': 'User-agent: *'}
    backoff = {'host': 'cdn.example', 'backoff_seconds': 600, 'error_streak': 3}

    checkpoint(first, leases[0].token, 1, hosts=[robots])
    report = partial(checkpoint, second, leases[1].token, 1, hosts=[backoff])
    with in_background(report) as reporting:
        wait_until_blocked(database, second)
        first.commit()
        reporting.result(SECONDS_FOR_A_RACE)

    [host] = checkpoint(database, leases[0].token, 2, want_hosts=['cdn.example'])['hosts']
    assert (host['robots_txt'], host['error_streak']) == ('User-agent: *', 3)
    assert host['backoff_seconds'] > 500


def test_two_reapers_reap_each_lease_once(database: Database) -> None:
    for number in range(20):
        enqueue(database, f'h{number}.example')
    leases = claim(database, 20)
    silence(database, *(lease.token for lease in leases))

    def reap(session: Session) -> list[UUID]:
        return [row['job_id'] for row in call(session, 'reap_crawl_jobs', p_limit=7)]

    sessions = [service(database) for _ in range(4)]
    reaped = list(itertools.chain(*at_once(*(partial(reap, session) for session in sessions))))
    while more := reap(sessions[0]):
        reaped += more

    assert Counter(reaped) == dict.fromkeys((lease.job_id for lease in leases), 1)
    counts = database.query('select distinct status, retry_count from silkline.jobs')
    assert [(row['status'], row['retry_count']) for row in counts] == [('pending', 1)]
    assert broken_rules(database) == []


def test_a_second_reaper_does_not_wait_for_the_first(database: Database) -> None:
    enqueue(database)
    lease = claim_one(database)
    silence(database, lease.token)
    first = service(database, autocommit=False)

    assert len(call(first, 'reap_crawl_jobs')) == 1
    assert database.call('reap_crawl_jobs') == []
    assert claim(database) == []
    first.commit()


def test_a_heartbeat_in_time_saves_the_lease_from_a_reaper(database: Database) -> None:
    enqueue(database)
    lease = claim_one(database)
    silence(database, lease.token)
    worker = service(database, autocommit=False)

    call(
        worker,
        'heartbeat_crawl_jobs',
        p_worker_id=lease.worker_id,
        p_lease_tokens=[lease.token],
    )
    assert database.call('reap_crawl_jobs') == []
    worker.commit()

    assert database.call('reap_crawl_jobs') == []
    assert heartbeat(database, lease) == 'continue'


def test_a_lease_that_falls_silent_after_a_late_heartbeat_is_reaped(
    database: Database,
) -> None:
    enqueue(database)
    lease = claim_one(database)
    silence(database, lease.token)
    heartbeat(database, lease)
    assert database.call('reap_crawl_jobs') == []
    postponed = database.query(
        """
        select lease_check_at = last_heartbeat + make_interval(secs => stale_after_seconds) as right
        from silkline.jobs, crawl_settings
        """
    )
    assert [row['right'] for row in postponed] == [True]

    silence(database, lease.token)

    assert [row['job_id'] for row in database.call('reap_crawl_jobs')] == [lease.job_id]


def test_a_heartbeat_during_a_reap_writes_nothing_and_the_next_one_gets_lost(
    database: Database,
) -> None:
    enqueue(database)
    lease = claim_one(database)
    heartbeat(database, lease)
    silence(database, lease.token)
    reaper = service(database, autocommit=False)

    call(reaper, 'reap_crawl_jobs')
    heartbeat(database, lease)
    reaper.commit()
    reaped = job_row(database, lease.job_id)

    assert heartbeat(database, lease) == 'lost'
    assert job_row(database, lease.job_id) == reaped
    assert (reaped['status'], reaped['lease_token']) == ('pending', None)


# Checkpoints


BATCH: dict[str, Any] = {
    'finished': [fetched(1)],
    'retried': [{'url_key': str(UUID(int=2)), 'error': 'timeout'}],
    'discovered': [found(3), found(4, skip_reason='robots')],
    'hosts': [{'host': 'site.example', 'robots_txt': 'User-agent: *', 'robots_status': 200}],
    'current_url': 'https://site.example/1',
}


def lease_with_urls_in_flight(database: Database) -> Lease:
    lease = claim_one(database)
    answer = checkpoint(database, lease.token, 1, want=2, discovered=[found(1), found(2)])
    assert len(answer['tasks']) == 2
    return lease


def test_a_checkpoint_of_a_lost_lease_writes_nothing(database: Database) -> None:
    enqueue(database)
    lease = lease_with_urls_in_flight(database)
    silence(database, lease.token)
    database.call('reap_crawl_jobs')
    before = digest(database)

    answer = checkpoint(database, lease.token, 2, want=10, **BATCH)

    assert (answer['command'], answer['tasks']) == ('lost', [])
    assert digest(database) == before


def test_a_checkpoint_of_a_lost_lease_does_not_touch_the_urls_of_the_next_one(
    database: Database,
) -> None:
    enqueue(database)
    late = lease_with_urls_in_flight(database)
    database.call('release_crawl_job', p_lease_token=late.token)
    current = claim_one(database)
    assert len(checkpoint(database, current.token, 1, want=2)['tasks']) == 2
    before = digest(database)

    assert checkpoint(database, late.token, 2, want=10, **BATCH)['command'] == 'lost'

    assert digest(database) == before
    assert checkpoint(database, current.token, 2, **BATCH)['command'] == 'continue'


def test_a_checkpoint_that_waited_for_a_reaper_is_lost_and_writes_nothing(
    database: Database,
) -> None:
    enqueue(database)
    lease = lease_with_urls_in_flight(database)
    silence(database, lease.token)
    reaper, worker = service(database, autocommit=False), service(database)

    call(reaper, 'reap_crawl_jobs')
    late = partial(checkpoint, worker, lease.token, 2, want=10, **BATCH)
    with in_background(late) as checkpointing:
        wait_until_blocked(database, worker)
        reaper.commit()
        after_reap = digest(database)
        assert checkpointing.result(SECONDS_FOR_A_RACE)['command'] == 'lost'

    assert digest(database) == after_reap
    assert broken_rules(database) == []


def test_a_checkpoint_in_time_saves_the_lease_from_a_reaper(database: Database) -> None:
    enqueue(database)
    lease = lease_with_urls_in_flight(database)
    silence(database, lease.token)
    worker = service(database, autocommit=False)

    assert checkpoint(worker, lease.token, 2, **BATCH)['command'] == 'continue'
    assert database.call('reap_crawl_jobs') == []
    worker.commit()

    assert database.call('reap_crawl_jobs') == []
    assert checkpoint(database, lease.token, 3, want=1)['command'] == 'continue'


def test_the_same_checkpoint_sent_twice_at_once_counts_once(database: Database) -> None:
    enqueue(database)
    lease = lease_with_urls_in_flight(database)

    def send(session: Session) -> list[str]:
        answer = checkpoint(session, lease.token, 2, want=5, **BATCH)
        return [task['url_key'] for task in answer['tasks']]

    answers = at_once(*(partial(send, service(database)) for _ in range(4)))

    assert all(answer == answers[0] for answer in answers)
    [state] = database.query('select * from silkline.states')
    assert (state['seq'], state['total_done'], state['total_skipped']) == (2, 1, 1)
    assert state['pages_new'] == 1
    assert broken_rules(database) == []


def test_a_pause_that_waited_for_a_checkpoint_reaches_the_next_one(database: Database) -> None:
    job_id = enqueue(database)
    lease = lease_with_urls_in_flight(database)
    worker, pauser = service(database, autocommit=False), service(database)

    assert checkpoint(worker, lease.token, 2, want=5, **BATCH)['command'] == 'continue'
    with in_background(lambda: call(pauser, 'pause_crawl_job', p_job_id=job_id)) as pausing:
        wait_until_blocked(database, pauser)
        worker.commit()
        assert [row['status'] for row in pausing.result(SECONDS_FOR_A_RACE)] == ['paused']

    answer = checkpoint(database, lease.token, 3, want=5, finished=[fetched(3)])
    assert (answer['command'], answer['tasks']) == ('pause', [])
    [state] = database.query('select total_done from silkline.states')
    assert state['total_done'] == 2


def test_a_checkpoint_that_waited_for_a_pause_saves_and_leases_nothing(
    database: Database,
) -> None:
    job_id = enqueue(database)
    lease = lease_with_urls_in_flight(database)
    pauser, worker = service(database, autocommit=False), service(database)

    call(pauser, 'pause_crawl_job', p_job_id=job_id)
    send = partial(checkpoint, worker, lease.token, 2, want=5, **BATCH)
    with in_background(send) as checkpointing:
        wait_until_blocked(database, worker)
        pauser.commit()
        answer = checkpointing.result(SECONDS_FOR_A_RACE)

    assert (answer['command'], answer['tasks']) == ('pause', [])
    [state] = database.query('select total_done, total_in_progress from silkline.states')
    assert (state['total_done'], state['total_in_progress']) == (1, 0)
    assert broken_rules(database) == []


def test_a_job_resumed_before_its_worker_released_it_continues_under_the_same_lease(
    database: Database,
) -> None:
    job_id = enqueue(database)
    lease = lease_with_urls_in_flight(database)
    database.call('pause_crawl_job', p_job_id=job_id)
    resumer, worker = service(database, autocommit=False), service(database)

    call(resumer, 'resume_crawl_job', p_job_id=job_id)
    send = partial(checkpoint, worker, lease.token, 2, want=5, **BATCH)
    with in_background(send) as checkpointing:
        wait_until_blocked(database, worker)
        resumer.commit()
        answer = checkpointing.result(SECONDS_FOR_A_RACE)

    assert answer['command'] == 'continue'
    assert len(answer['tasks']) == 2
    assert job_row(database, job_id)['status'] == 'processing'


def test_pausing_and_resuming_during_checkpoints_loses_no_url(database: Database) -> None:
    job_id = enqueue(database)
    lease = claim_one(database)
    urls = 60
    checkpoint(
        database, lease.token, 1, discovered=[found(number) for number in range(1, urls + 1)]
    )
    worker, user = service(database), service(database)
    finished: list[str] = []
    has_ended = threading.Event()

    def crawl() -> None:
        in_flight: list[str] = []
        deadline = time.monotonic() + SECONDS_FOR_A_RACE
        for seq in itertools.count(2):
            answer = checkpoint(
                worker,
                lease.token,
                seq,
                want=3,
                finished=[{'url_key': key, 'status': 'done'} for key in in_flight],
            )
            finished.extend(in_flight)
            in_flight = [task['url_key'] for task in answer['tasks']]
            if answer['drained'] or time.monotonic() > deadline:
                has_ended.set()
                return

    def pause_and_resume() -> None:
        while not has_ended.is_set():
            call(user, 'pause_crawl_job', p_job_id=job_id)
            call(user, 'resume_crawl_job', p_job_id=job_id)

    at_once(crawl, pause_and_resume)

    assert Counter(finished) == {str(UUID(int=number)): 1 for number in range(1, urls + 1)}
    assert command(worker, 'complete_crawl_job', lease.token) == 'continue'
    assert job_row(database, job_id)['status'] == 'completed'
    assert broken_rules(database) == []


# Enqueue


def test_concurrent_enqueues_fill_the_quota_exactly(database: Database) -> None:
    set_limits(database, max_open_jobs_per_user=5)
    user = database.user()

    def enqueue_three(session: Session) -> list[str | None]:
        payload = {'url': 'https://site.example/'}
        return [
            sqlstate(partial(call, session, 'enqueue_crawl_job', p_payload=payload))
            for _ in range(3)
        ]

    sessions = [database.connect('authenticated', user) for _ in range(6)]
    answers = at_once(*(partial(enqueue_three, session) for session in sessions))

    assert Counter(itertools.chain(*answers)) == {None: 5, 'PT429': 13}
    [row] = database.query('select count(*) from silkline.jobs')
    assert row['count'] == 5


def test_concurrent_bulk_enqueues_are_all_or_nothing_at_the_quota(database: Database) -> None:
    set_limits(database, max_jobs_per_user_per_day=8)
    user = database.user()
    jobs = [{'payload': {'url': f'https://h{number}.example/'}} for number in range(3)]

    def enqueue_bulk(session: Session) -> str | None:
        return sqlstate(partial(call, session, 'enqueue_crawl_jobs', p_jobs=jobs))

    sessions = [database.connect('authenticated', user) for _ in range(5)]
    answers = at_once(*(partial(enqueue_bulk, session) for session in sessions))

    assert Counter(answers) == {None: 2, 'PT429': 3}
    [row] = database.query('select count(*) from silkline.jobs')
    assert row['count'] == 6


@pytest.mark.parametrize('has_owner', [True, False], ids=['user', 'service'])
def test_concurrent_enqueues_with_the_same_idempotency_key_create_one_job(
    database: Database, has_owner: bool
) -> None:
    user = database.user() if has_owner else None
    role = 'authenticated' if has_owner else 'service_role'

    def enqueue_once(session: Session) -> UUID:
        [job] = call(
            session,
            'enqueue_crawl_job',
            p_payload={'url': 'https://site.example/'},
            p_idempotency_key='monday',
        )
        return job['id']

    sessions = [database.connect(role, user) for _ in range(6)]
    answers = at_once(*(partial(enqueue_once, session) for session in sessions))

    assert len(set(answers)) == 1
    [row] = database.query('select count(*) from silkline.jobs')
    assert row['count'] == 1


# No deadlocks


def test_a_reaper_skips_a_locked_host_and_reaps_it_later(database: Database) -> None:
    """It holds the locks of what it has reaped: if it waited, it could deadlock."""
    set_limits(database, max_running_jobs_per_user=9, max_jobs_per_host=2)
    user = database.user()
    enqueue(database, 'h2.example')
    other = claim_one(database)
    leases: list[Lease] = []
    for host in ('h1.example', 'h2.example', 'h3.example'):
        enqueue(database, host, user=user, payload={'max_retries': 0})
        leases.append(claim_one(database))
    silence(database, *(lease.token for lease in leases))
    in_line = enqueue(database, 'h3.example', user=user)
    completer, reaper = service(database, autocommit=False), service(database, autocommit=False)
    canceller = database.connect('authenticated', user)

    command(completer, 'complete_crawl_job', other.token)
    reaped = {row['job_id'] for row in call(reaper, 'reap_crawl_jobs')}
    assert reaped == {leases[0].job_id, leases[2].job_id}
    with in_background(lambda: call(canceller, 'cancel_crawl_job', p_job_id=in_line)) as cancelling:
        wait_until_blocked(database, canceller)
        completer.commit()
        reaped |= {row['job_id'] for row in call(reaper, 'reap_crawl_jobs')}
        reaper.commit()
        assert [row['status'] for row in cancelling.result(SECONDS_FOR_A_RACE)] == ['cancelled']

    assert reaped == {lease.job_id for lease in leases}
    assert broken_rules(database) == []


def test_two_calls_that_complete_jobs_on_the_same_hosts_do_not_deadlock(
    database: Database,
) -> None:
    """Each ends one lease at once and one by itself, because a user paused that job."""
    set_limits(database, max_jobs_per_host=2)
    jobs = {
        (host, nth): enqueue(database, host)
        for host in ('a.example', 'z.example')
        for nth in (1, 2)
    }
    tokens = {lease.job_id: lease.token for lease in claim(database, 4)}
    first = [tokens[jobs['z.example', 1]], tokens[jobs['a.example', 1]]]
    second = [tokens[jobs['a.example', 2]], tokens[jobs['z.example', 2]]]
    database.call('pause_crawl_job', p_job_id=jobs['a.example', 1])
    database.call('pause_crawl_job', p_job_id=jobs['z.example', 2])
    locker = database.connect('supabase_admin', autocommit=False)
    locker.execute("select silkline.lock('host', 'z.example')")
    sessions = [service(database) for _ in range(2)]
    calls = [
        partial(call, session, 'complete_crawl_jobs', p_lease_tokens=some)
        for session, some in zip(sessions, (first, second), strict=True)
    ]

    with in_background(calls[0]) as one, in_background(calls[1]) as other:
        for session in sessions:
            wait_until_blocked(database, session)
        locker.rollback()
        answers = [*one.result(SECONDS_FOR_A_RACE), *other.result(SECONDS_FOR_A_RACE)]

    assert sorted(answer['status'] for answer in answers) == ['completed'] * 2 + ['paused'] * 2
    assert broken_rules(database) == []


REFUSALS = {'PT409', 'PT404'}


@pytest.mark.parametrize('running_limit', [None, 2])
def test_all_calls_at_once_break_no_rule_and_lose_no_job(
    database: Database, running_limit: int | None
) -> None:
    set_limits(
        database,
        max_running_jobs_per_user=running_limit,
        max_jobs_per_host=2,
        backoff_base_seconds=1,
        backoff_cap_seconds=1,
    )
    users = [database.user() for _ in range(2)]
    jobs = [
        enqueue(database, f'h{number % 4}.example', user=users[number % 2]) for number in range(80)
    ]
    tokens: list[UUID] = []

    def work(session: Session, dice: random.Random) -> None:
        for _ in range(60):
            for lease in claim_in(session, 2):
                tokens.append(lease.token)
                checkpoint(
                    session, lease.token, 1, want=2, discovered=[found(1), found(2), found(3)]
                )
                checkpoint(session, lease.token, 2, want=2, finished=[fetched(1), fetched(2)])
                match dice.randrange(5):
                    case 0:
                        command(session, 'fail_crawl_job', lease.token, p_error_code='oom')
                    case 1:
                        command(session, 'release_crawl_job', lease.token)
                    case 2:
                        checkpoint(session, lease.token, 3, finished=[fetched(3)])
                        refused = sqlstate(
                            partial(command, session, 'complete_crawl_job', lease.token)
                        )
                        assert refused in {None, *REFUSALS}
                    case 3:
                        command(
                            session,
                            'release_crawl_job',
                            lease.token,
                            p_reason='worker_restarted',
                        )
                    case _:
                        pass

    def control_jobs(session: Session, dice: random.Random) -> None:
        for _ in range(200):
            action = dice.choice(['pause', 'resume', 'resume', 'stop', 'retry', 'retry', 'cancel'])
            refused = sqlstate(
                partial(call, session, f'{action}_crawl_job', p_job_id=dice.choice(jobs))
            )
            assert refused in {None, *REFUSALS}

    def maintain(session: Session, dice: random.Random) -> None:
        for _ in range(50):
            with session.transaction():
                session.execute(
                    """
                    update silkline.jobs
                    set
                      last_heartbeat = now() - interval '1 hour',
                      lease_check_at = now()
                    where id in (
                      select id
                      from silkline.jobs
                      where lease_check_at is not null
                      limit 2
                      for update skip locked
                    )
                    """
                )
            call(session, dice.choice(['reap_crawl_jobs', 'maintain_crawl_queue']))

    parts = [
        *((work, service(database)) for _ in range(3)),
        (control_jobs, service(database)),
        (maintain, database.connect()),
        (maintain, database.connect()),
    ]
    at_once(
        *(partial(part, session, random.Random(nth)) for nth, (part, session) in enumerate(parts))
    )

    assert broken_rules(database) == []

    # Every open job can run to its end: none waits forever.
    for job_id in jobs:
        sqlstate(partial(database.call, 'resume_crawl_job', p_job_id=job_id))
    silence(database, *tokens)
    database.call('maintain_crawl_queue')
    deadline = time.monotonic() + SECONDS_FOR_A_RACE
    while time.monotonic() < deadline:
        database.query("update silkline.jobs set run_after = now() where waits_for = 'time'")
        leases = claim(database, 10)
        if not leases:
            break
        for lease in leases:
            answer = checkpoint(database, lease.token, 1, want=10)
            seq = 2
            while not answer['drained']:
                answer = checkpoint(
                    database,
                    lease.token,
                    seq,
                    want=10,
                    finished=[
                        {'url_key': task['url_key'], 'status': 'done'} for task in answer['tasks']
                    ],
                )
                seq += 1
            database.call('complete_crawl_job', p_lease_token=lease.token)
    left = database.query(
        """
        select id, status, waits_for
        from silkline.jobs
        where status not in ('completed', 'failed', 'cancelled')
        """
    )
    assert left == []
    assert broken_rules(database) == []


def test_a_refused_call_is_a_psycopg_error_with_its_code(database: Database) -> None:
    """`sqlstate` above ignores errors that do not come from the database."""
    with pytest.raises(psycopg.Error) as refused:
        database.call('cancel_crawl_job', p_job_id=uuid4())
    assert refused.value.sqlstate == 'PT404'

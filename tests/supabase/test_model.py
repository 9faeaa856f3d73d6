"""Random sequences of all functions in two sessions, compared with a small model of the queue.

The model knows what each call returns and changes. It does not know the order of the line, so it
takes the leased jobs and URLs from the answer of the queue and checks that they are allowed.

Any call may be made in a second session, which keeps its transaction open during the next few
calls. A call of the first session that would have to wait then fails, and counts as not made. The
changes of the second session enter the model when it commits. After each step the committed rows
must equal the model, and no rule of `broken_rules` may be broken.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg import sql
from psycopg.rows import DictRow
from psycopg.types.numeric import Float4

from tests.support.database import Database, call
from tests.support.model import FROM, IS_PAID, Held, Job, Sent, State, title_of
from tests.support.queue import (
    TABLES,
    broken_rules,
    checkpoint,
    claim_one,
    enqueue,
    fetched,
    found,
    set_limits,
)

WORKERS = [UUID(int=number) for number in (1, 2)]
# Two at a time; the next takes the place of one whose account is deleted.
USERS = [UUID(int=number) for number in range(11, 17)]
HOSTS = ['a.example', 'b.example', 'c.example']
# A list of URLs on several hosts occupies none of them: each owner may run one list at a time.
LIST = 'list of '
LATER = f'{datetime.now(UTC) + timedelta(days=30)}'
RANGE = st.integers(0, 1000)
# Pages that name another as their original: an old URL, one that is in flight, or a new one.
COPIES = ['copy of first', 'copy of next', 'copy of new']
ENDS = st.lists(
    st.sampled_from(['done', *IS_PAID, *COPIES, *COPIES, 'retried', 'retried later']),
    max_size=4,
)
# The same for every crawl of a page: the counters of a job stay when a later job changes it.
QUALITIES: list[dict[str, Any] | None] = [
    None,
    {'kept': 1, 'warnings': []},
    {'kept': 0.5, 'warnings': ['cut']},
    {'kept': 0.5, 'warnings': ['cut', 'code_lost']},
]
UNSWEPT = """
select
from silkline.jobs as job
join silkline.deleted_accounts as account
  on account.owner_id = job.owner_id
"""
# A call that would wait for the other session fails after this time.
LOCK_TIMEOUT = '3ms'

PROFILE = settings(
    max_examples=60 if settings().derandomize else 1000,
    stateful_step_count=80,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep the transaction of a call open during the next calls, then end it."""

    calls: int
    commits: bool


HOLDS = st.sampled_from(
    [None] * 6 + [Hold(calls, commits) for calls, commits in product([1, 2, 4], [True, False])]
)


def call_rule(can_hold: bool = True, /, **params: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule that makes calls: in either session, chosen by its parameter `hold`."""

    def decorate(method: Callable[..., None]) -> Any:
        def run(self: 'Queue', *, hold: Hold | None, **chosen: Any) -> None:
            action = partial(method, self, **chosen)
            if hold and not self.held:
                self.hold(hold, action)
            else:
                self.make(action)

        run.__name__ = method.__name__
        return rule(hold=HOLDS if can_hold else st.none(), **params)(run)

    return decorate


class Queue(RuleBasedStateMachine):
    """All callers of the queue, in two sessions."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.second = database.connect('supabase_admin', autocommit=False)
        self.is_second = False
        self.held: Held | None = None
        # Whether jobs of deleted accounts were deleted while the other session was open.
        self.has_swept = False
        self.users: list[UUID | None] = [*USERS[:2], None]
        self.state = State()
        self.tokens: list[UUID] = []
        self.urls = 0
        self.max_jobs_per_host = 1
        self.max_running: int | None = None
        forget_everything(database)

    def teardown(self) -> None:
        self.second.rollback()
        self.second.close()

    # Sessions

    def call(self, function: str, *, user: UUID | None = None, **params: Any) -> list[DictRow]:
        if not self.is_second:
            return self.database.call(function, user=user, **params)
        role = 'authenticated' if user else 'service_role'
        claims = {'role': role} | ({'sub': str(user)} if user else {})
        # A call that is refused must not end the transaction.
        with self.second.transaction():
            self.second.execute(
                "select set_config('role', %s, true), set_config('request.jwt.claims', %s, true)",
                [role, json.dumps(claims)],
            )
            rows = call(self.second, function, **params)
            self.second.execute('reset role')
            return rows

    def query(self, statement: str, params: Any = None) -> list[DictRow]:
        if not self.is_second:
            return self.database.query(statement, params)
        cursor = self.second.execute(statement.encode(), params)
        return [] if cursor.description is None else cursor.fetchall()

    def refusal(self, action: Callable[[], object]) -> str | None:
        """The SQLSTATE with which a call is refused."""
        try:
            action()
        except psycopg.errors.LockNotAvailable:
            raise
        except psycopg.Error as error:
            return error.sqlstate
        return None

    def make(self, action: Callable[[], None]) -> None:
        """Make calls in the first session."""
        try:
            action()
        except psycopg.errors.LockNotAvailable:
            assert self.held
        if self.held:
            self.held.calls_left -= 1
            if not self.held.calls_left:
                self.end_transaction(self.held)

    def hold(self, hold: Hold, action: Callable[[], None]) -> None:
        """Make calls in the second session, and keep its transaction open."""
        committed, self.state = self.state, deepcopy(self.state)
        self.is_second = True
        self.has_swept = False
        self.query('select')
        action()
        self.the_rows_equal_the_model()
        self.is_second = False
        self.held = Held(hold.calls, hold.commits, before=deepcopy(committed), after=self.state)
        self.state = committed

    def end_transaction(self, held: Held) -> None:
        self.held = None
        if held.commits:
            self.second.commit()
            self.state = held.merged_with(self.state)
            self.replace_users()
        else:
            self.second.rollback()
        if not held.commits or not held.changed or self.has_swept:
            # The first session has skipped the rows that were locked. Or a claim of one session has
            # set a job aside for a host, because it could not see that the other freed it.
            self.maintain_now()

    # What the rules pick from

    @property
    def jobs(self) -> dict[UUID, Job]:
        return self.state.jobs

    def job_at(
        self, number: int, prefers: Callable[[Job], bool] = lambda job: bool(job.token)
    ) -> tuple[UUID, Job]:
        """Every other number picks one of the preferred jobs, if there are any."""
        preferred = [(job_id, job) for job_id, job in self.jobs.items() if prefers(job)]
        jobs = preferred if number % 2 and preferred else list(self.jobs.items())
        return jobs[number // 2 % len(jobs)]

    def token_at(self, number: int, *, is_live: bool) -> UUID:
        live = [job.token for job in self.jobs.values() if job.token]
        tokens = live if is_live and live else self.tokens
        return tokens[number % len(tokens)]

    def by_token(self, token: UUID) -> tuple[UUID | None, Job | None]:
        """The job that a token leases, or whose lease it ended itself."""
        for job_id, job in self.jobs.items():
            if token in (job.token, job.receipt):
                return job_id, job
        return None, None

    def leased_by(self, token: UUID) -> Job | None:
        return next((job for job in self.jobs.values() if job.token == token), None)

    def new_tokens(self, count: int) -> list[UUID]:
        first = len(self.tokens)
        tokens = [UUID(int=2**64 + first + number) for number in range(count)]
        self.tokens += tokens
        return tokens

    def leased(self) -> dict[UUID, Job]:
        return {job_id: job for job_id, job in self.jobs.items() if job.token}

    # Limits

    @initialize(per_host=st.integers(1, 2), running=st.sampled_from([None, 1, 2]))
    def choose_limits(self, per_host: int, running: int | None) -> None:
        self.max_jobs_per_host, self.max_running = per_host, running
        set_limits(
            self.database,
            max_jobs_per_host=per_host,
            max_running_jobs_per_user=running,
            max_open_jobs_per_user=None,
            max_jobs_per_user_per_day=None,
            backoff_cap_seconds=7200,
            backoff_base_seconds=3600,
        )
        for number, host in enumerate([*HOSTS, *HOSTS]):
            self.enqueue_for(self.users[number % 3], [host], max_retries=number % 3)
        # Every run begins with jobs that have completed, failed and crashed.
        self.claim_as(WORKERS[0], 1)
        for job in self.leased().values():
            self.complete(job.token, 0)
        self.claim_as(WORKERS[0], 3)
        for job in self.leased().values():
            self.send(job.token, [], discovered=4, want=2)
        for job, is_retryable in zip(self.leased().values(), (True, False), strict=False):
            self.fail(job.token, is_retryable, 0, None)
        self.claim_as(WORKERS[1], 3)

    @precondition(lambda self: not self.held)
    @rule(per_host=st.integers(1, 2), running=st.sampled_from([None, 1, 2]))
    def change_limits(self, per_host: int, running: int | None) -> None:
        """As an operator does; not below what is running now, because that continues."""
        if not self.is_within(per_host, running, self.jobs):
            return
        self.max_jobs_per_host, self.max_running = per_host, running
        set_limits(self.database, max_jobs_per_host=per_host, max_running_jobs_per_user=running)
        self.maintain_now()

    def is_within(self, per_host: int, running: int | None, jobs: dict[UUID, Job]) -> bool:
        leased = [job for job in jobs.values() if job.token]
        on_host = Counter(job.host for job in leased)
        # A cancelled job cannot be resumed, so it does not count while its worker saves.
        of_user = Counter(job.user for job in leased if job.user and job.status != 'cancelled')
        return all(
            count <= (1 if host.startswith(LIST) else per_host) for host, count in on_host.items()
        ) and all(running is None or count <= running for count in of_user.values())

    def outcomes(self) -> Iterator[dict[UUID, Job]]:
        """The jobs as they are, and as they will be if the other session commits."""
        yield self.jobs
        if self.held:
            yield self.held.merged_with(self.state).jobs

    # Users

    @call_rule(
        user=RANGE,
        hosts=st.lists(st.sampled_from([*HOSTS, LIST]), min_size=1, max_size=4),
        priority=st.sampled_from([-1, 0, 0, 1, 50]),
        is_own=st.booleans(),
        is_later=st.sampled_from([False, False, False, True]),
        max_retries=st.integers(0, 2),
        max_pages=st.sampled_from([3, 50]),
        key=st.sampled_from([None, 'monday', 'tuesday']),
    )
    def enqueue(self, user: int, hosts: list[str], **options: Any) -> None:
        self.enqueue_for(self.users[user % len(self.users)], hosts, **options)

    def enqueue_for(
        self,
        owner: UUID | None,
        hosts: list[str],
        *,
        priority: int = 0,
        is_own: bool = False,
        is_later: bool = False,
        max_retries: int = 1,
        max_pages: int = 50,
        key: str | None = None,
    ) -> None:
        options = {'max_retries': max_retries, 'max_pages': max_pages}
        entries: list[dict[str, Any]] = [
            {
                'payload': options
                | (
                    {'strategy': 'list', 'urls': [f'https://{one}/' for one in HOSTS]}
                    if host == LIST
                    else {'url': f'https://{host}/'}
                ),
                'priority': priority,
                **({'run_after': LATER} if is_later else {}),
                **(
                    {'idempotency_key': f'{key}-{host}-{options}-{priority}-{is_later}'}
                    if key
                    else {}
                ),
            }
            for host in hosts
        ]
        caller: dict[str, Any] = {'user': owner} if is_own else {'p_user_id': owner}
        enqueue = partial(self.call, 'enqueue_crawl_jobs', p_jobs=entries, **caller)
        job_ids = [UUID(job_id) for job_id in enqueue()[0]['enqueue_crawl_jobs']['job_ids']]
        for host, job_id in zip(hosts, job_ids, strict=True):
            assert key or job_id not in self.jobs
            self.jobs.setdefault(
                job_id,
                Job(
                    owner,
                    f'{LIST}{owner or UUID(int=0)}' if host == LIST else host,
                    max_retries,
                    max_pages,
                    is_later,
                ),
            )
        if key:
            again = enqueue()[0]['enqueue_crawl_jobs']['job_ids']
            assert [UUID(job_id) for job_id in again] == job_ids

    @precondition(lambda self: self.jobs)
    @call_rule(
        number=RANGE,
        action=st.sampled_from(['pause', 'pause', 'resume', 'resume', 'stop', 'cancel']),
        times=st.integers(1, 2),
    )
    def control(self, number: int, action: str, times: int) -> None:
        job_id, job = self.job_at(number)
        for _ in range(times):
            call = partial(self.call, f'{action}_crawl_job', user=job.user, p_job_id=job_id)
            if job.status not in FROM[action]:
                assert self.refusal(call) == 'PT409'
                continue
            [row] = call()
            job.change(action)
            assert row['status'] == job.status

    @precondition(lambda self: self.jobs)
    @call_rule(number=RANGE, urls=st.sampled_from(['failed', 'all']))
    def retry(self, number: int, urls: str) -> None:
        job_id, job = self.job_at(number, lambda job: job.can_retry(urls))
        call = partial(self.call, 'retry_crawl_job', user=job.user, p_job_id=job_id, p_urls=urls)
        if not job.can_retry(urls):
            assert self.refusal(call) == 'PT409'
            return
        call()
        job.retry(urls)

    @precondition(lambda self: self.jobs)
    @call_rule(
        number=RANGE,
        action=st.sampled_from(['pause', 'resume', 'resume', 'stop', 'cancel', 'retry']),
        by=st.sampled_from(['all', 'host', 'status', 'job_ids']),
        is_own=st.booleans(),
        limit=st.sampled_from([0, 2, 1000]),
        urls=st.sampled_from(['failed', 'all']),
    )
    def control_many(
        self, number: int, action: str, by: str, *, is_own: bool, limit: int, urls: str
    ) -> None:
        job_id, chosen = self.job_at(number)
        user = chosen.user if is_own else None
        if user is None and self.query(UNSWEPT):
            # The service also reaches the jobs of deleted accounts until they are swept.
            return
        matching = {
            other_id: job
            for other_id, job in sorted(self.jobs.items())
            if user in (None, job.user)
            and (by != 'host' or job.host == chosen.host)
            and (by != 'status' or job.status == chosen.status)
            and (by != 'job_ids' or other_id == job_id)
            and (
                job.can_retry(urls)
                if action == 'retry'
                else job.status in FROM[action] and job.after(action) != job.status
            )
        }
        after = {
            other_id: 'pending' if action == 'retry' else job.after(action)
            for other_id, job in matching.items()
        }
        named: dict[str, Any] = {
            'all': True,
            'host': chosen.host,
            'status': chosen.status,
            'job_ids': [str(job_id)],
        }
        [row] = self.call(
            f'{action}_crawl_jobs',
            user=user,
            p_filter={by: named[by]},
            p_limit=limit,
            **({'p_urls': urls} if action == 'retry' else {}),
        )
        answer = row[f'{action}_crawl_jobs']
        rows = self.query(
            'select id, status::text from silkline.jobs where id = any (%s)', [list(matching)]
        )
        changed = {row['id'] for row in rows if row['status'] == after[row['id']]}
        assert answer['matched'] == len(matching)
        assert answer['changed'] == len(changed)
        assert answer['left'] == answer['matched'] - answer['changed']
        if not self.held:
            assert changed == set(list(matching)[:limit])
        for other_id in changed:
            if action == 'retry':
                matching[other_id].retry(urls)
            else:
                matching[other_id].change(action)

    # Workers

    @call_rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 4), repeats=st.booleans())
    def claim(self, worker: UUID, count: int, *, repeats: bool) -> None:
        self.claim_as(worker, count, repeats=repeats)

    def claim_as(self, worker: UUID, count: int, *, repeats: bool = False) -> int:
        tokens = self.new_tokens(count)
        call = partial(self.call, 'claim_crawl_jobs', p_worker_id=worker, p_lease_tokens=tokens)
        is_idle = not self.query('select from silkline.jobs where lease_check_at is not null')
        rows = call()
        eligible = {
            job_id
            for job_id, job in self.jobs.items()
            if job.status == 'pending' and not job.is_later
        }
        assert len(rows) <= count
        assert {row['id'] for row in rows} <= eligible
        assert {row['lease_token'] for row in rows} <= set(tokens)
        assert rows or not eligible or not is_idle or self.held
        for row in rows:
            job = self.jobs[row['id']]
            assert row['running_seconds'] == job.running_seconds
            job.lease(row['lease_token'], worker)
            self.state.used[row['lease_token']] = None
        assert len(self.leased()) == len({job.token for job in self.leased().values()})
        for jobs in self.outcomes():
            assert self.is_within(self.max_jobs_per_host, self.max_running, jobs)
        if repeats and len(rows) == count:
            assert sorted(row['id'] for row in call()) == sorted(row['id'] for row in rows)
        return len(rows)

    @precondition(lambda self: self.state.used)
    @call_rule(
        False, worker=st.sampled_from(WORKERS), numbers=st.lists(RANGE, min_size=1, max_size=3)
    )
    def claim_again(self, worker: UUID, numbers: list[int]) -> None:
        """A token that was used returns the job that it leases, and never takes another."""
        used = list(self.state.used)
        tokens = {used[number % len(used)] for number in numbers}
        rows = self.call('claim_crawl_jobs', p_worker_id=worker, p_lease_tokens=list(tokens))
        assert {row['id']: row['lease_token'] for row in rows} == {
            job_id: job.token
            for job_id, job in self.leased().items()
            if job.token in tokens and job.worker_id == worker
        }

    @precondition(lambda self: self.tokens)
    @call_rule(False, worker=st.sampled_from(WORKERS))
    def heartbeat(self, worker: UUID) -> None:
        """With all tokens ever used: only those that this worker holds are not lost."""
        rows = self.call('heartbeat_crawl_jobs', p_worker_id=worker, p_lease_tokens=self.tokens)
        held = {job.token: job for job in self.jobs.values() if job.worker_id == worker}
        assert {row['lease_token']: row['command'] for row in rows} == {
            token: held[token].answer[0] if token in held else 'lost' for token in self.tokens
        }

    @precondition(lambda self: self.tokens)
    @call_rule(
        number=RANGE,
        is_live=st.sampled_from([True, True, True, False]),
        batches=st.lists(st.tuples(ENDS, st.integers(0, 4)), min_size=1, max_size=4),
        want=st.integers(0, 4),
        repeats=st.booleans(),
    )
    def crawl(
        self,
        number: int,
        batches: list[tuple[list[str], int]],
        *,
        is_live: bool,
        want: int,
        repeats: bool,
    ) -> None:
        """A few checkpoints under one token, each with the URLs that the previous one leased."""
        token = self.token_at(number, is_live=is_live)
        for finished, discovered in batches:
            self.send(token, finished, discovered=discovered, want=want)
            if repeats and token in self.state.sent:
                self.send_again(token)

    def send(self, token: UUID | None, finished: list[str], *, discovered: int, want: int) -> None:
        assert token
        job_id, job = self.by_token(token)
        batch = self.batch(job, finished, discovered)
        sent = self.state.sent.get(token)
        seq = sent.seq + 1 if sent else 1
        answer = self.checkpoint(token, seq, batch, want)
        if job is None or job.token != token:
            assert (answer['command'], answer['tasks']) == ('lost', [])
            return
        assert (answer['command'], answer['job_id']) == (job.answer[0], str(job_id))
        if job.status == 'cancelled':
            assert answer['tasks'] == []
            return
        self.state.sent[token] = Sent(seq, batch, want, answer['tasks'])
        job.apply(batch)
        job.lease_tasks(want, [UUID(task['url_key']) for task in answer['tasks']])
        left = job.of_status('pending', 'in_progress')
        assert answer['drained'] == (not left)
        assert answer['pending'] == len(job.of_status('pending'))

    def checkpoint(self, token: UUID, seq: int, batch: dict[str, Any], want: int) -> dict[str, Any]:
        [row] = self.call(
            'checkpoint_crawl_job',
            p_lease_token=token,
            p_batch={'seq': seq, **batch},
            p_want=want,
        )
        return row['checkpoint_crawl_job']

    def batch(self, job: Job | None, finished: list[str], discovered: int) -> dict[str, Any]:
        keys = job.of_status('in_progress') if job else [UUID(int=1)] * 9
        batch: dict[str, Any] = {'finished': [], 'retried': [], 'discovered': []}
        for key, status in zip(keys, finished, strict=False):
            entry: dict[str, Any] = {'url_key': str(key)}
            if status.startswith('retried'):
                after = 3600 if status == 'retried later' else 0
                batch['retried'].append(entry | {'after_seconds': after, 'error': 'timeout'})
                continue
            match status:
                case 'done' | 'copy of first' | 'copy of next' | 'copy of new':
                    page = {
                        'url': f'https://a.example/{key}',
                        'content_hash': str(key),
                        'title': title_of(key),
                        'quality': QUALITIES[key.int % len(QUALITIES)],
                    }
                    entry |= {'status': 'done', 'page': page}
                    original = {
                        'copy of first': next(iter(job.tasks)) if job else key,
                        'copy of next': keys[(keys.index(key) + 1) % len(keys)],
                        'copy of new': UUID(int=self.urls + 1),
                    }.get(status)
                    entry |= {'canonical_key': str(original)} if original else {}
                case 'no page':
                    entry |= {'status': 'done', 'http_status': 200}
                case 'error':
                    entry |= {'status': 'error', 'error': 'http 500', 'http_status': 500}
                case 'given up':
                    entry |= {'status': 'error', 'error': 'down', 'unfetched': True}
                case reason:
                    entry |= {'status': 'skipped', 'skip_reason': reason}
                    entry |= {'unfetched': True} if reason == 'robots' else {}
            batch['finished'].append(entry)
        for nth in range(discovered):
            self.urls += 1
            link = {'url_key': str(UUID(int=self.urls)), 'url': 'https://a.example/', 'depth': 1}
            reason = {2: {'skip_reason': 'too_deep'}, 3: {'skip_reason': 'trap'}}.get(nth, {})
            batch['discovered'].append(link | reason)
        if job:
            # Found before: it does not change, unless it was too deep.
            deep = [key for key, task in job.tasks.items() if task.skip_reason == 'too_deep']
            for key in [*list(job.tasks)[:1], *deep[: len(finished)]]:
                known = {'url_key': str(key), 'url': 'https://a.example/', 'depth': 5}
                batch['discovered'] += [known, known]
        return batch

    def send_again(self, token: UUID) -> None:
        """Possibly much later: after a pause, or after the end of the lease."""
        sent = self.state.sent[token]
        job = self.leased_by(token)
        answer = self.checkpoint(token, sent.seq, sent.batch, sent.want)
        if job is None:
            assert (answer['command'], answer['tasks']) == ('lost', [])
        elif job.status == 'cancelled':
            assert (answer['command'], answer['tasks']) == ('cancel', [])
        else:
            assert (answer['command'], answer['tasks']) == (job.answer[0], sent.tasks)

    @precondition(lambda self: self.state.sent)
    @call_rule(False, number=RANGE)
    def repeat_checkpoint(self, number: int) -> None:
        self.send_again(list(self.state.sent)[number % len(self.state.sent)])

    @precondition(lambda self: self.tokens)
    @call_rule(
        number=RANGE,
        is_live=st.sampled_from([True, True, False]),
        end=st.sampled_from(['complete', 'fail', 'fail', 'shutdown', 'later', 'worker_restarted']),
        is_retryable=st.sampled_from([True, True, None, False]),
        retry_after=st.sampled_from([None, 0, 3600]),
        suspects=st.sampled_from([None, 0, 1, 2]),
        seconds=st.sampled_from([0, 0.5, 60]),
        times=st.integers(1, 2),
    )
    def end(
        self,
        number: int,
        end: str,
        *,
        is_live: bool,
        is_retryable: bool | None,
        retry_after: int | None,
        suspects: int | None,
        seconds: float,
        times: int,
    ) -> None:
        token = self.token_at(number, is_live=is_live)
        for _ in range(times):
            match end:
                case 'complete':
                    self.complete(token, seconds)
                case 'fail':
                    self.fail(token, is_retryable, retry_after, suspects, seconds)
                case _:
                    self.release(token, end, seconds)

    def check_answer(self, row: DictRow) -> None:
        """An answer about a lease fits the model after the call."""
        job_id, job = self.by_token(row['lease_token'])
        command, status = job.answer if job else ('lost', None)
        assert (row['job_id'], row['command'], row['status']) == (job_id, command, status)

    def complete(self, token: UUID | None, seconds: float) -> None:
        assert token
        job = self.leased_by(token)
        call = partial(
            self.call, 'complete_crawl_job', p_lease_token=token, p_running_seconds=seconds
        )
        if job and job.status == 'processing' and job.of_status('pending', 'in_progress'):
            assert self.refusal(call) == 'PT409'
            return
        [row] = call()
        if job:
            job.complete(seconds)
        self.check_answer(row)

    @precondition(lambda self: self.tokens)
    @call_rule(
        numbers=st.lists(RANGE, min_size=1, max_size=4),
        is_live=st.sampled_from([True, True, False]),
        seconds=st.sampled_from([0, 0.5, 60]),
    )
    def complete_many(self, numbers: list[int], *, is_live: bool, seconds: float) -> None:
        """Jobs with URLs left stay as they are; the others do what `complete` does."""
        tokens = list({self.token_at(number, is_live=is_live): None for number in numbers})
        rows = self.call(
            'complete_crawl_jobs',
            p_lease_tokens=tokens,
            p_results=[{'nth': nth} for nth in range(len(tokens))],
            p_running_seconds=[Float4(seconds)] * len(tokens),
        )
        for token in tokens:
            job = self.leased_by(token)
            if job and (job.status != 'processing' or not job.of_status('pending', 'in_progress')):
                job.complete(seconds)
        assert {row['lease_token'] for row in rows} == set(tokens)
        assert len(rows) == len(tokens)
        for row in rows:
            self.check_answer(row)

    def fail(
        self,
        token: UUID | None,
        is_retryable: bool | None,
        retry_after: int | None,
        suspects: int | None,
        seconds: float = 0,
    ) -> None:
        """Report the first `suspects` URLs in flight and one that is not; None reports no list."""
        assert token
        job = self.leased_by(token)
        in_flight = job.of_status('in_progress') if job else []
        named = None if suspects is None else [*in_flight[:suspects], UUID(int=2**100)]
        [row] = self.call(
            'fail_crawl_job',
            p_lease_token=token,
            p_error_code='oom',
            p_is_retryable=is_retryable,
            p_retry_after_seconds=retry_after,
            p_suspects=named,
            p_running_seconds=seconds,
        )
        if job:
            poison = job.crash(suspects=named, is_retryable=is_retryable is not False)
            runs_at_once = retry_after == 0 or (retry_after is None and poison)
            job.is_later = job.status == 'pending' and not runs_at_once
            job.end_lease(seconds=seconds)
        self.check_answer(row)

    def release(self, token: UUID, reason: str, seconds: float) -> None:
        job = self.leased_by(token)
        # The running time of a lost worker is unknown.
        seconds = 0 if reason == 'worker_restarted' else seconds
        params: dict[str, Any] = {'p_after_seconds': 3600} if reason == 'later' else {}
        [row] = self.call(
            'release_crawl_job',
            p_lease_token=token,
            p_reason=reason,
            p_running_seconds=seconds,
            **params,
        )
        if job:
            job.is_later = reason == 'later' and job.status == 'processing'
            if reason == 'worker_restarted':
                job.lose()
            else:
                job.free_tasks()
                job.status = 'pending' if job.status == 'processing' else job.status
            job.end_lease(seconds=seconds)
        self.check_answer(row)

    # Time

    @precondition(lambda self: self.leased())
    @call_rule(numbers=st.lists(RANGE, min_size=1, max_size=3), maintains=st.booleans())
    def fall_silent(self, numbers: list[int], *, maintains: bool) -> None:
        leased = list(self.leased())
        chosen = [leased[number % len(leased)] for number in numbers]
        rows = self.query(
            """
            update silkline.jobs
            set last_heartbeat = now() - interval '1 hour', lease_check_at = now()
            where id in (select id from silkline.jobs where id = any (%s) for update skip locked)
            returning id
            """,
            [chosen],
        )
        silent = {row['id'] for row in rows}
        try:
            if maintains:
                self.call_maintenance()
            else:
                self.call('reap_crawl_jobs')
        finally:
            # A reaper leaves a host or an owner alone that the other session has locked.
            spared = self.query(
                """
                update silkline.jobs
                set last_heartbeat = now(), lease_check_at = now() + interval '1 hour'
                where id = any (%s) and lease_check_at is not null
                returning id
                """,
                [list(silent)],
            )
        reaped = silent - {row['id'] for row in spared}
        assert reaped == silent or self.held
        for job_id in reaped:
            self.jobs[job_id].lose()
            self.jobs[job_id].end_lease(leaves_receipt=False)

    @call_rule(drains=st.sampled_from([False] * 9 + [True]))
    def maintain(self, *, drains: bool) -> None:
        self.maintain_now()
        if drains and not self.held and not self.is_second:
            self.drain()

    def maintain_now(self) -> None:
        assert self.call('reap_crawl_jobs') == []
        assert self.call_maintenance().get('reaped', 0) == 0

    def call_maintenance(self) -> dict[str, Any]:
        """A part that would wait for the other session fails, and the others run."""
        [row] = self.call('maintain_crawl_queue')
        done = row['maintain_crawl_queue']
        assert done['failed'] == {} or self.held
        self.has_swept |= done.get('swept', {}).get('jobs', 0) > 0
        return done

    def drain(self) -> None:
        """Every job that is due is claimed sooner or later."""
        for job in self.leased().values():
            self.end_early(job)
        while self.claim_as(WORKERS[0], 4):
            for job in self.leased().values():
                self.end_early(job)
        assert [
            job for job in self.jobs.values() if job.status == 'pending' and not job.is_later
        ] == []

    def end_early(self, job: Job) -> None:
        assert job.token
        if job.status == 'processing':
            self.fail(job.token, False, None, 0)
        else:
            self.release(job.token, 'shutdown', 0)

    @precondition(lambda self: any(job.has_ended for job in self.jobs.values()))
    @call_rule(numbers=st.lists(RANGE, min_size=1, max_size=3))
    def outlive_jobs(self, numbers: list[int]) -> None:
        """Jobs that ended long ago are deleted."""
        ended = [job_id for job_id, job in self.jobs.items() if job.has_ended]
        rows = self.query(
            """
            update silkline.jobs set completed_at = completed_at - interval '1 year'
            where id in (select id from silkline.jobs where id = any (%s) for update skip locked)
            returning id
            """,
            [[ended[number % len(ended)] for number in numbers]],
        )
        old = {row['id'] for row in rows}
        try:
            self.call_maintenance()
        finally:
            spared = self.query(
                """
                update silkline.jobs set completed_at = now() where id = any (%s) returning id
                """,
                [list(old)],
            )
        assert not spared or self.held
        for job_id in old - {row['id'] for row in spared}:
            job = self.jobs.pop(job_id)
            if job.receipt:
                # It is forgotten: nobody repeats a claim after such a long time.
                del self.state.used[job.receipt]

    # Both sessions may delete one at the same time.
    @precondition(lambda self: not {*USERS[-2:]} & {*self.users})
    @call_rule(nth=st.integers(0, 1))
    def delete_account(self, nth: int) -> None:
        """All that belongs to it vanishes at once, and is swept later."""
        user = self.users[nth]
        if self.is_second:
            self.query('set local role supabase_auth_admin')
            self.query('delete from auth.users where id = %s', [user])
            self.query('reset role')
        else:
            self.database.query(
                'delete from auth.users where id = %s', [user], role='supabase_admin'
            )
        self.state.gone.add(user)
        self.state.jobs = {job_id: job for job_id, job in self.jobs.items() if job.user != user}
        self.replace_users()

    def replace_users(self) -> None:
        if self.is_second:
            return
        for nth in (0, 1):
            if self.users[nth] in self.state.gone:
                self.users[nth] = next(
                    user for user in USERS if user not in self.state.gone | set(self.users)
                )

    @rule()
    def let_time_pass(self) -> None:
        """For everything that the other session has not locked."""
        rows = self.database.query('select id from silkline.jobs for update skip locked')
        free = [row['id'] for row in rows]
        self.database.query(
            "update silkline.jobs set run_after = now() where waits_for = 'time' and id = any (%s)",
            [free],
        )
        self.database.query(
            """
            update silkline.tasks set next_run_at = now()
            where status = 'pending' and job_id = any (%s)
            """,
            [free],
        )
        for job_id in self.jobs.keys() & free:
            job = self.jobs[job_id]
            job.is_later = job.is_later and job.status != 'pending'
            for task in job.tasks.values():
                task.is_later = task.is_later and task.status != 'pending'
        if not self.held:
            # The next claim raises the floors of the lines. No transaction takes that long.
            self.database.query(
                "update silkline.time_floors set noted_at = noted_at - interval '11 seconds'"
            )

    # Invariants

    @invariant()
    def the_rows_equal_the_model(self) -> None:
        rows = self.query(
            """
            select
              job.id,
              job.status::text,
              job.retry_count,
              job.attempt,
              job.running_seconds,
              job.worker_id,
              job.lease_token,
              state.pages_spent,
              (
                select jsonb_object_agg(
                  task.url_key,
                  jsonb_build_array(
                    task.status, task.skip_reason, task.attempts, task.crashes, task.losses
                  )
                )
                from silkline.tasks as task
                where task.job_id = job.id
              ) as tasks
            from silkline.jobs as job
            join silkline.states as state
              on state.job_id = job.id
            where not exists (
              select
              from silkline.deleted_accounts as account
              where account.owner_id = job.owner_id
            )
            """
        )
        assert {row.pop('id'): row for row in rows} == {
            job_id: {
                'status': job.status,
                'retry_count': job.retry_count,
                'attempt': job.attempt,
                'running_seconds': job.running_seconds,
                'worker_id': job.worker_id,
                'lease_token': job.token or job.receipt,
                'pages_spent': job.spent,
                'tasks': {
                    str(key): [
                        task.status,
                        task.skip_reason,
                        task.attempts,
                        task.crashes,
                        task.losses,
                    ]
                    for key, task in job.tasks.items()
                }
                or None,
            }
            for job_id, job in self.jobs.items()
        }

    @invariant()
    def no_rule_is_broken(self) -> None:
        assert broken_rules(self.database, may_overlook=bool(self.held)) == []


def forget_everything(database: Database) -> None:
    """Empty all tables except for the settings, and restore the users."""
    tables = [
        name for name in TABLES if name not in ('public.crawl_settings', 'silkline.time_floors')
    ]
    database.query(f'truncate {", ".join(tables)}', role='supabase_admin')
    database.query(
        """
        update silkline.time_floors
        set leases_until = '-infinity', waits_until = '-infinity', noted_at = now()
        """,
        role='supabase_admin',
    )
    database.query(
        'insert into auth.users (id) select unnest(%s::uuid[]) on conflict do nothing', [USERS]
    )


# Leaves time to shrink a failing example.
@pytest.mark.timeout(1800)
@pytest.mark.hypothesis
def test_any_sequence_of_calls_does_what_the_model_says(database: Database) -> None:
    with database.connect('supabase_admin') as session:
        for role in ('authenticator', 'supabase_admin'):
            statement = sql.SQL('alter role {} in database {} set lock_timeout = {}').format(
                sql.Identifier(role), sql.Identifier(database.name), LOCK_TIMEOUT
            )
            session.execute(statement)
        # Calls would wait for the locks of a vacuum.
        session.execute(
            """
            do $$
            declare
              v_table regclass;
            begin
              for v_table in
                select oid
                from pg_class
                where relkind = 'r'
                  and relnamespace in (
                    'silkline'::regnamespace, 'public'::regnamespace, 'realtime'::regnamespace
                  )
              loop
                execute format('alter table %s set (autovacuum_enabled = off)', v_table);
              end loop;
            end
            $$
            """
        )

    class QueueHere(Queue):
        def __init__(self) -> None:
            super().__init__(database)

    run_state_machine_as_test(QueueHere, settings=PROFILE)


def test_a_suspect_of_a_crash_is_alone_in_flight_even_when_other_urls_are_found(
    database: Database,
) -> None:
    enqueue(database)
    crashed = claim_one(database)
    checkpoint(database, crashed.token, 1, want=1, discovered=[found(1)])
    database.call(
        'fail_crawl_job', p_lease_token=crashed.token, p_error_code='oom', p_retry_after_seconds=0
    )
    token = claim_one(database).token
    alone = checkpoint(database, token, 1, want=5)
    assert [task['url_key'] for task in alone['tasks']] == [found(1)['url_key']]

    assert checkpoint(database, token, 2, want=5, discovered=[found(2)])['tasks'] == []

    after = checkpoint(database, token, 3, want=5, finished=[fetched(1)])
    assert [task['url_key'] for task in after['tasks']] == [found(2)['url_key']]

"""Random sequences of all functions, compared with a small model of the states of a job.

The model knows what each call returns and changes. It does not know the order of the line, so it
takes the leased jobs and URLs from the answer of the queue and checks that they are allowed. After
each step the rows must equal the model, and no rule of `broken_rules` may be broken.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

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

from tests.support.database import Database
from tests.support.queue import (
    broken_rules,
    checkpoint,
    claim_one,
    enqueue,
    fetched,
    found,
    set_limits,
    silence,
    sqlstate,
)

COMMANDS = {'paused': 'pause', 'stopped': 'stop', 'cancelled': 'cancel'}
FROM = {
    'pause': {'pending', 'processing', 'paused'},
    'resume': {'pending', 'processing', 'paused', 'stopped'},
    'stop': {'pending', 'processing', 'paused', 'stopped'},
    'cancel': {'pending', 'processing', 'paused', 'cancelled'},
}
WORKERS = [UUID(int=number) for number in (1, 2)]
HOSTS = ['a.example', 'b.example', 'c.example']
RANGE = st.integers(0, 1000)
# How a URL ends, and whether it counts against the budget.
IS_PAID = {
    'done': True,
    'error': True,
    'noindex': True,
    'too_deep': True,
    'given up': False,
    'robots': False,
    'redirect': False,
    'no page': False,
    'canonical': False,
}
# Pages that name another as their original: an old URL, one that is in flight, or a new one.
COPIES = ['copy of first', 'copy of next', 'copy of new']
ENDS = st.lists(
    st.sampled_from(['done', *IS_PAID, *COPIES, *COPIES, 'retried', 'retried later']),
    max_size=4,
)

PROFILE = settings(
    max_examples=60 if settings().derandomize else 1000,
    stateful_step_count=80,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def title_of(key: UUID) -> str:
    return f'Title {key.int % 3 == 0}'


@dataclass(slots=True, eq=False)
class Task:
    """A URL of a job."""

    status: str = 'pending'
    crashes: int = 0
    losses: int = 0
    attempts: int = 0
    is_later: bool = False
    skip_reason: str | None = None
    # Title of the stored page, if it is done.
    title: str | None = None
    copy_of: UUID | None = None


@dataclass(slots=True)
class Job:
    """A job as docs/reference/functions.md describes its states."""

    user: UUID | None
    host: str
    max_retries: int
    max_pages: int
    is_later: bool
    status: str = 'pending'
    retry_count: int = 0
    attempt: int = 0
    spent: int = 0
    running_seconds: float = 0
    token: UUID | None = None
    worker_id: UUID | None = None
    receipt: UUID | None = None
    tasks: dict[UUID, Task] = field(default_factory=dict[UUID, Task])

    def of_status(self, *statuses: str) -> list[UUID]:
        return [key for key, task in self.tasks.items() if task.status in statuses]

    def due(self) -> list[Task]:
        return [
            task for task in self.tasks.values() if task.status == 'pending' and not task.is_later
        ]

    @property
    def budget(self) -> int:
        return max(self.max_pages - self.spent, 0)

    @property
    def answer(self) -> tuple[str, str]:
        return COMMANDS.get(self.status, 'continue'), self.status

    def end_lease(self, *, leaves_receipt: bool = True, seconds: float = 0) -> None:
        self.running_seconds += seconds
        self.receipt = self.token if leaves_receipt else None
        self.token = self.worker_id = None

    def free_tasks(self, is_suspect: Callable[[UUID, Task], bool] = lambda key, task: False) -> int:
        poison: list[UUID] = []
        for key in self.of_status('in_progress'):
            task = self.tasks[key]
            task.status = 'pending'
            if not is_suspect(key, task):
                task.attempts -= 1
                self.spent -= not task.attempts
                continue
            if task.crashes:
                task.status = 'error'
                poison.append(key)
            task.crashes += 1
        self.restore_copies(poison)
        return len(poison)

    def is_copy(self, key: UUID, original_key: UUID, found: set[UUID]) -> bool:
        """Whether a page that names another as its original is dropped for it."""
        original = self.tasks.get(original_key)
        if original_key == key or self.tasks[key].copy_of == key:
            return False
        if original is None or original.skip_reason == 'too_deep':
            return original_key in found
        is_open = original.status in ('pending', 'in_progress')
        return is_open or original.title == title_of(key)

    def restore_copies(self, ended: list[UUID]) -> None:
        lost: dict[UUID, Task] = {}
        for key, task in self.tasks.items():
            if task.skip_reason == 'canonical' and task.copy_of and task.copy_of in ended:
                original = self.tasks[task.copy_of]
                has_ended = original.status in ('done', 'error', 'skipped')
                if has_ended and original.title != title_of(key):
                    lost[key] = original
        for original in lost.values():
            if original.status == 'error' and original.attempts:
                original.attempts = original.crashes = 0
                self.spent -= 1
        for key in lost:
            self.tasks[key] = Task(copy_of=key)

    def crash(self, *, suspects: list[UUID] | None = None, is_retryable: bool = True) -> int:
        """What the death of its process does to a job."""
        poison = self.free_tasks(lambda key, task: suspects is None or key in suspects)
        self.break_off(poison, is_retryable=is_retryable)
        return poison

    def lose(self) -> None:
        """What the loss of its worker does: for a URL, the second loss counts as a crash."""
        held = [self.tasks[key] for key in self.of_status('in_progress')]
        unmarked = [task for task in held if not task.losses and not task.crashes]
        poison = self.free_tasks(lambda key, task: bool(task.losses or task.crashes))
        for task in unmarked:
            task.losses = 1
        self.break_off(poison)

    def break_off(self, poison: int, *, is_retryable: bool = True) -> None:
        """Retry or fail a running job; a user's decision stays."""
        if self.status == 'processing':
            if not is_retryable or (self.retry_count == self.max_retries and not poison):
                self.status = 'failed'
            else:
                self.status = 'pending'
                self.retry_count += not poison


@dataclass(slots=True)
class Sent:
    """The last checkpoint of a token, for sending it again."""

    seq: int
    batch: dict[str, Any]
    want: int
    tasks: list[Any]


class Queue(RuleBasedStateMachine):
    """All callers of the queue, one call at a time."""

    def __init__(self, database: Database, users: list[UUID]) -> None:
        super().__init__()
        self.database = database
        self.users: list[UUID | None] = [*users, None]
        self.jobs: dict[UUID, Job] = {}
        self.tokens: list[UUID] = []
        self.sent: dict[UUID, Sent] = {}
        self.urls = 0
        self.max_jobs_per_host = 1
        self.max_running: int | None = None
        database.query(
            """
            truncate silkline.jobs, silkline.states, silkline.tasks,
              public.crawl_pages, public.crawl_hosts, public.crawl_audits, silkline.events,
              public.crawl_workers
            """
        )

    # What the rules pick from

    def job_at(self, number: int) -> tuple[UUID, Job]:
        return list(self.jobs.items())[number % len(self.jobs)]

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

    def new_tokens(self, count: int) -> list[UUID]:
        first = len(self.tokens)
        tokens = [UUID(int=2**64 + first + number) for number in range(count)]
        self.tokens += tokens
        return tokens

    def leased(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.token]

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
        for number, host in enumerate([*HOSTS, HOSTS[0]]):
            self.enqueue_for(self.users[number % 3], [host], max_retries=number % 3)
        self.claim(WORKERS[0], 3, repeats=False)
        for job in self.leased():
            self.send(job.token, [], discovered=4, want=2)
        # One job has already crashed, so that every run has suspects.
        for token in [job.token for job in self.leased() if job.token and job.max_retries][:1]:
            self.fail(token, None, 0, None)
        self.claim(WORKERS[1], 3, repeats=False)

    @rule(per_host=st.integers(1, 2), running=st.sampled_from([None, 1, 2]))
    def change_limits(self, per_host: int, running: int | None) -> None:
        """As an operator does; not below what is running now, because that continues."""
        leased = self.leased()
        if any(sum(job.host == host for job in leased) > per_host for host in HOSTS):
            return
        if running and any(
            sum(job.user == user for job in leased) > running for user in self.users if user
        ):
            return
        self.max_jobs_per_host, self.max_running = per_host, running
        set_limits(self.database, max_jobs_per_host=per_host, max_running_jobs_per_user=running)
        self.maintain()

    # Users

    @rule(
        user=RANGE,
        hosts=st.lists(st.sampled_from(HOSTS), min_size=1, max_size=4),
        priority=st.integers(-1, 1),
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
        is_later: bool = False,
        max_retries: int = 1,
        max_pages: int = 50,
        key: str | None = None,
    ) -> None:
        options = {'max_retries': max_retries, 'max_pages': max_pages}
        entries: list[dict[str, Any]] = [
            {
                'payload': {'url': f'https://{host}/', **options},
                'priority': priority,
                **({'run_after': f'{datetime.now(UTC) + timedelta(days=30)}'} if is_later else {}),
                **({'idempotency_key': f'{key}-{owner}-{host}-{options}'} if key else {}),
            }
            for host in hosts
        ]
        enqueue = partial(self.database.call, 'enqueue_crawl_jobs', p_jobs=entries, p_user_id=owner)
        job_ids = [UUID(job_id) for job_id in enqueue()[0]['enqueue_crawl_jobs']['job_ids']]
        for host, job_id in zip(hosts, job_ids, strict=True):
            assert key or job_id not in self.jobs
            self.jobs.setdefault(job_id, Job(owner, host, max_retries, max_pages, is_later))
        if key:
            again = enqueue()[0]['enqueue_crawl_jobs']['job_ids']
            assert [UUID(job_id) for job_id in again] == job_ids

    @precondition(lambda self: self.jobs)
    @rule(
        number=RANGE,
        action=st.sampled_from(['pause', 'pause', 'resume', 'resume', 'stop', 'cancel']),
        times=st.integers(1, 2),
    )
    def control(self, number: int, action: str, times: int) -> None:
        job_id, job = self.job_at(number)
        for _ in range(times):
            call = partial(
                self.database.call, f'{action}_crawl_job', user=job.user, p_job_id=job_id
            )
            if job.status not in FROM[action]:
                assert sqlstate(call) == 'PT409'
                continue
            [row] = call()
            match action:
                case 'resume' if job.status == 'paused' and job.token:
                    job.status = 'processing'
                case 'resume' if job.status in ('paused', 'stopped'):
                    job.free_tasks()
                    job.status = 'pending'
                    job.end_lease(leaves_receipt=False)
                    # A scheduled job that has not started stays scheduled.
                    job.is_later = job.is_later and job.attempt == 0
                case 'resume':
                    pass
                case _:
                    job.status = {'pause': 'paused', 'stop': 'stopped', 'cancel': 'cancelled'}[
                        action
                    ]
            assert row['status'] == job.status

    @precondition(lambda self: self.jobs)
    @rule(number=RANGE, urls=st.sampled_from(['failed', 'all']))
    def retry(self, number: int, urls: str) -> None:
        job_id, job = self.job_at(number)
        call = partial(
            self.database.call, 'retry_crawl_job', user=job.user, p_job_id=job_id, p_urls=urls
        )
        has_ended = job.status in ('failed', 'stopped', 'completed')
        has_more = urls == 'all' or job.of_status('error', 'pending')
        if not has_ended or (job.status == 'completed' and not has_more):
            assert sqlstate(call) == 'PT409'
            return
        call()
        job.free_tasks()
        again = job.of_status('error')
        if urls == 'all':
            again += job.of_status('done')
            again += [key for key in job.of_status('pending') if job.tasks[key].attempts]
            # A URL that was skipped when it was found stays skipped, except for the budget.
            again += [
                key
                for key in job.of_status('skipped')
                if job.tasks[key].attempts or job.tasks[key].skip_reason == 'budget'
            ]
        paid_errors = sum(job.tasks[key].attempts > 0 for key in job.of_status('error'))
        job.spent = 0 if urls == 'all' else job.spent - paid_errors
        job.running_seconds = 0
        for key in again:
            job.tasks[key] = Task(copy_of=job.tasks[key].copy_of if urls == 'failed' else None)
        job.status, job.retry_count, job.is_later = 'pending', 0, False
        job.end_lease(leaves_receipt=False)

    # Workers

    @rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 4), repeats=st.booleans())
    def claim(self, worker: UUID, count: int, *, repeats: bool) -> None:
        tokens = self.new_tokens(count)
        call = partial(
            self.database.call, 'claim_crawl_jobs', p_worker_id=worker, p_lease_tokens=tokens
        )
        rows = call()
        was_idle = not self.leased()
        eligible = [
            job for job in self.jobs.values() if job.status == 'pending' and not job.is_later
        ]
        assert len(rows) <= min(count, len(eligible))
        assert rows or not eligible or not was_idle
        for row in rows:
            job = self.jobs[row['id']]
            assert job in eligible
            assert row['lease_token'] in tokens
            assert row['running_seconds'] == job.running_seconds
            job.status, job.token, job.worker_id = 'processing', row['lease_token'], worker
            job.attempt += 1
            job.receipt = None
        assert len({row['lease_token'] for row in rows}) == len(rows)
        if repeats and len(rows) == count:
            assert sorted(row['id'] for row in call()) == sorted(row['id'] for row in rows)

    @precondition(lambda self: self.tokens)
    @rule(worker=st.sampled_from(WORKERS))
    def heartbeat(self, worker: UUID) -> None:
        """With all tokens ever used: only those that this worker holds are not lost."""
        rows = self.database.call(
            'heartbeat_crawl_jobs', p_worker_id=worker, p_lease_tokens=self.tokens
        )
        held = {job.token: job for job in self.jobs.values() if job.worker_id == worker}
        assert {row['lease_token']: row['command'] for row in rows} == {
            token: held[token].answer[0] if token in held else 'lost' for token in self.tokens
        }

    @precondition(lambda self: self.tokens)
    @rule(
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
            if repeats and token in self.sent:
                self.send_again(token)

    def send(self, token: UUID | None, finished: list[str], *, discovered: int, want: int) -> None:
        assert token
        job_id, job = self.by_token(token)
        batch = self.batch(job, finished, discovered)
        seq = self.sent[token].seq + 1 if token in self.sent else 1
        answer = checkpoint(self.database, token, seq, want=want, **batch)
        if job is None or job.token != token:
            assert (answer['command'], answer['tasks']) == ('lost', [])
            return
        assert (answer['command'], answer['job_id']) == (job.answer[0], str(job_id))
        if job.status == 'cancelled':
            assert answer['tasks'] == []
            return
        self.sent[token] = Sent(seq, batch, want, answer['tasks'])
        self.apply(job, batch)
        self.lease_tasks(job, want, [UUID(task['url_key']) for task in answer['tasks']])
        left = job.of_status('pending', 'in_progress')
        assert answer['drained'] == (not left)
        assert answer['pending'] == len(job.of_status('pending'))

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

    def apply(self, job: Job, batch: dict[str, Any]) -> None:
        found = {UUID(one['url_key']) for one in batch['discovered'] if 'skip_reason' not in one}
        copies = {
            UUID(entry['url_key']): original
            for entry in batch['finished']
            if 'canonical_key' in entry
            and job.is_copy(UUID(entry['url_key']), original := UUID(entry['canonical_key']), found)
        }
        for entry in batch['finished']:
            key = UUID(entry['url_key'])
            task = job.tasks[key]
            if key in copies:
                task.status, task.skip_reason, task.copy_of = 'skipped', 'canonical', copies[key]
                job.spent -= 1
                continue
            task.status, task.skip_reason = entry['status'], entry.get('skip_reason')
            task.title = title_of(key) if 'page' in entry else None
            if entry['status'] == 'error' and 'unfetched' in entry:
                task.attempts = task.crashes = 0
                job.spent -= 1
                continue
            is_page = 'page' in entry or entry['status'] != 'done'
            job.spent -= not IS_PAID[entry.get('skip_reason', 'done' if is_page else 'no page')]
        for entry in batch['retried']:
            task = job.tasks[UUID(entry['url_key'])]
            task.status = 'error' if task.attempts >= 30 else 'pending'
            task.is_later = entry['after_seconds'] > 0
        job.restore_copies([UUID(entry['url_key']) for entry in batch['finished']])
        job.restore_copies([UUID(entry['url_key']) for entry in batch['retried']])
        # Only once nothing in flight can be refunded.
        is_spent = not job.budget and not job.of_status('in_progress')
        for entry in batch['discovered']:
            key = UUID(entry['url_key'])
            reason = entry.get('skip_reason') or ('budget' if is_spent else None)
            task = Task('skipped' if reason else 'pending', skip_reason=reason)
            if job.tasks.setdefault(key, task).skip_reason == 'too_deep' and not reason:
                job.tasks[key] = Task(copy_of=job.tasks[key].copy_of)
        if is_spent:
            for task in job.tasks.values():
                if task.status == 'pending' and not task.attempts:
                    task.status, task.skip_reason = 'skipped', 'budget'

    def lease_tasks(self, job: Job, want: int, keys: list[UUID]) -> None:
        due = [task for task in job.due() if job.budget or task.attempts]
        in_flight = [job.tasks[key] for key in job.of_status('in_progress')]
        unsuspected = [task for task in due if not task.crashes]
        if job.status != 'processing' or any(task.crashes for task in in_flight):
            assert keys == []
        elif unsuspected and want:
            fresh = [task for task in unsuspected if not task.attempts]
            retries = len(unsuspected) - len(fresh)
            assert len(keys) == min(want, min(len(fresh), job.budget) + retries)
            assert all(not job.tasks[key].crashes for key in keys)
        elif due and want and not in_flight:
            assert len(keys) == 1
        else:
            assert keys == []
        for key in keys:
            task = job.tasks[key]
            assert task in due
            task.status = 'in_progress'
            job.spent += not task.attempts
            task.attempts += 1
        assert job.spent <= job.max_pages

    def send_again(self, token: UUID) -> None:
        """Possibly much later: after a pause, or after the end of the lease."""
        sent = self.sent[token]
        _, job = self.by_token(token)
        answer = checkpoint(self.database, token, sent.seq, want=sent.want, **sent.batch)
        if job is None or job.token != token:
            assert (answer['command'], answer['tasks']) == ('lost', [])
        elif job.status == 'cancelled':
            assert (answer['command'], answer['tasks']) == ('cancel', [])
        else:
            assert (answer['command'], answer['tasks']) == (job.answer[0], sent.tasks)

    @precondition(lambda self: self.sent)
    @rule(number=RANGE)
    def repeat_checkpoint(self, number: int) -> None:
        self.send_again(list(self.sent)[number % len(self.sent)])

    def lease_call(self, function: str, token: UUID, **params: Any) -> None:
        """Call, and check that the answer fits the model after the call."""
        [row] = self.database.call(function, p_lease_token=token, **params)
        job_id, job = self.by_token(token)
        if job is None:
            assert (row['job_id'], row['command'], row['status']) == (None, 'lost', None)
        else:
            assert row['job_id'] == job_id
            assert (row['command'], row['status']) == job.answer

    @precondition(lambda self: self.tokens)
    @rule(
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

    def complete(self, token: UUID, seconds: float) -> None:
        _, job = self.by_token(token)
        if job and job.token == token:
            if job.status == 'processing' and job.of_status('pending', 'in_progress'):
                call = partial(
                    self.lease_call, 'complete_crawl_job', token, p_running_seconds=seconds
                )
                assert sqlstate(call) == 'PT409'
                return
            job.free_tasks()
            if job.status == 'processing':
                job.status = 'completed'
            job.end_lease(seconds=seconds)
        self.lease_call('complete_crawl_job', token, p_running_seconds=seconds)

    def fail(
        self,
        token: UUID,
        is_retryable: bool | None,
        retry_after: int | None,
        suspects: int | None,
        seconds: float = 0,
    ) -> None:
        """Report the first `suspects` URLs in flight and one that is not; None reports no list."""
        _, job = self.by_token(token)
        in_flight = job.of_status('in_progress') if job else []
        named = None if suspects is None else [*in_flight[:suspects], UUID(int=2**100)]
        if job and job.token == token:
            poison = job.crash(suspects=named, is_retryable=is_retryable is not False)
            runs_at_once = retry_after == 0 or (retry_after is None and poison)
            job.is_later = job.status == 'pending' and not runs_at_once
            job.end_lease(seconds=seconds)
        self.lease_call(
            'fail_crawl_job',
            token,
            p_error_code='oom',
            p_is_retryable=is_retryable,
            p_retry_after_seconds=retry_after,
            p_suspects=named,
            p_running_seconds=seconds,
        )

    def release(self, token: UUID, reason: str, seconds: float) -> None:
        _, job = self.by_token(token)
        # The running time of a lost worker is unknown.
        seconds = 0 if reason == 'worker_restarted' else seconds
        if job and job.token == token:
            job.is_later = reason == 'later' and job.status == 'processing'
            if reason == 'worker_restarted':
                job.lose()
            else:
                job.free_tasks()
                job.status = 'pending' if job.status == 'processing' else job.status
            job.end_lease(seconds=seconds)
        params = {'p_after_seconds': 3600} if reason == 'later' else {}
        self.lease_call(
            'release_crawl_job', token, p_reason=reason, p_running_seconds=seconds, **params
        )

    # Time

    @precondition(lambda self: self.leased())
    @rule(numbers=st.lists(RANGE, min_size=1, max_size=3), maintains=st.booleans())
    def fall_silent(self, numbers: list[int], *, maintains: bool) -> None:
        leased = [(job_id, job) for job_id, job in self.jobs.items() if job.token]
        silent = {job_id: job for job_id, job in (leased[n % len(leased)] for n in numbers)}
        tokens = [job.token for job in silent.values() if job.token]
        silence(self.database, *tokens)
        if maintains:
            [row] = self.database.call('maintain_crawl_queue')
            assert row['maintain_crawl_queue']['reaped'] == len(silent)
        else:
            rows = self.database.call('reap_crawl_jobs')
            assert {row['job_id'] for row in rows} == set(silent)
            assert {row['command'] for row in rows} == {'lost'}
        for job in silent.values():
            job.lose()
            job.is_later = False
            job.end_lease(leaves_receipt=False)

    @rule()
    def maintain(self) -> None:
        assert self.database.call('reap_crawl_jobs') == []
        [row] = self.database.call('maintain_crawl_queue')
        assert row['maintain_crawl_queue']['reaped'] == 0

    @rule()
    def let_time_pass(self) -> None:
        self.database.query(
            "update silkline.jobs set run_after = now() where waits_for = 'time'"
        )
        self.database.query(
            "update silkline.tasks set next_run_at = now() where status = 'pending'"
        )
        for job in self.jobs.values():
            job.is_later = job.is_later and job.status != 'pending'
            for task in job.tasks.values():
                task.is_later = task.is_later and task.status != 'pending'

    # Invariants

    @invariant()
    def the_rows_equal_the_model(self) -> None:
        rows = self.database.query(
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
        assert broken_rules(self.database) == []


# Leaves time to shrink a failing example.
@pytest.mark.timeout(1800)
@pytest.mark.hypothesis
def test_any_sequence_of_calls_does_what_the_model_says(database: Database) -> None:
    users = [database.user() for _ in range(2)]

    class QueueHere(Queue):
        def __init__(self) -> None:
            super().__init__(database, users)

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

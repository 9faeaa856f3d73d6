"""What the queue should do: jobs, their URLs and leases, and two sessions that change them.

The model is small because it leaves things to the queue: the order of the line, and which URLs a
checkpoint leases. `tests/supabase/test_model.py` drives it beside the real queue.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

K = TypeVar('K')
V = TypeVar('V')

COMMANDS = {'paused': 'pause', 'stopped': 'stop', 'cancelled': 'cancel'}
FROM = {
    'pause': {'pending', 'processing', 'paused'},
    'resume': {'pending', 'processing', 'paused', 'stopped'},
    'stop': {'pending', 'processing', 'paused', 'stopped'},
    'cancel': {'pending', 'processing', 'paused', 'cancelled'},
}
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


def title_of(key: UUID) -> str:
    return f'Title {key.int % 3 == 0}'


@dataclass(slots=True)
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

    def due(self) -> dict[UUID, Task]:
        return {
            key: task
            for key, task in self.tasks.items()
            if task.status == 'pending' and not task.is_later
        }

    @property
    def budget(self) -> int:
        return max(self.max_pages - self.spent, 0)

    @property
    def has_ended(self) -> bool:
        return self.status in ('completed', 'failed', 'stopped', 'cancelled') and not self.token

    @property
    def answer(self) -> tuple[str, str]:
        return COMMANDS.get(self.status, 'continue'), self.status

    # What users do

    def after(self, action: str) -> str:
        """Its status after pause, resume, stop or cancel."""
        if action == 'resume' and self.status in ('paused', 'stopped'):
            return 'processing' if self.token else 'pending'
        names = {'pause': 'paused', 'stop': 'stopped', 'cancel': 'cancelled'}
        return names.get(action, self.status)

    def change(self, action: str) -> None:
        status = self.after(action)
        if status == 'pending' != self.status:
            # A scheduled job that has not started stays scheduled.
            self.is_later = self.is_later and self.attempt == 0
        self.status = status

    def can_retry(self, urls: str) -> bool:
        if self.status == 'completed':
            return urls == 'all' or bool(self.of_status('error', 'pending'))
        return self.status in ('failed', 'stopped') and not self.token

    def retry(self, urls: str) -> None:
        again = self.of_status('error')
        if urls == 'all':
            again += self.of_status('done')
            again += [key for key in self.of_status('pending') if self.tasks[key].attempts]
            # A URL that was skipped when it was found stays skipped, except for the budget.
            again += [
                key
                for key in self.of_status('skipped')
                if self.tasks[key].attempts or self.tasks[key].skip_reason == 'budget'
            ]
        paid_errors = sum(self.tasks[key].attempts > 0 for key in self.of_status('error'))
        self.spent = 0 if urls == 'all' else self.spent - paid_errors
        self.running_seconds = 0
        for key in again:
            self.tasks[key] = Task(copy_of=self.tasks[key].copy_of if urls == 'failed' else None)
        self.status, self.retry_count, self.is_later = 'pending', 0, False

    # What its worker does, and what happens to it

    def lease(self, token: UUID, worker_id: UUID) -> None:
        self.status, self.token, self.worker_id = 'processing', token, worker_id
        self.attempt += 1
        self.receipt = None

    def end_lease(self, *, leaves_receipt: bool = True, seconds: float = 0) -> None:
        self.running_seconds += seconds
        self.receipt = self.token if leaves_receipt else None
        self.token = self.worker_id = None

    def complete(self, seconds: float) -> None:
        self.free_tasks()
        if self.status == 'processing':
            self.status = 'completed'
        self.end_lease(seconds=seconds)

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
        self.is_later = False

    def break_off(self, poison: int, *, is_retryable: bool = True) -> None:
        """Retry or fail a running job; a user's decision stays."""
        if self.status == 'processing':
            if not is_retryable or (self.retry_count == self.max_retries and not poison):
                self.status = 'failed'
            else:
                self.status = 'pending'
                self.retry_count += not poison

    # Its checkpoints

    def apply(self, batch: dict[str, Any]) -> None:
        """What a checkpoint does to its URLs, before it leases the next ones."""
        found = {UUID(one['url_key']) for one in batch['discovered'] if 'skip_reason' not in one}
        copies = {
            UUID(entry['url_key']): original
            for entry in batch['finished']
            if 'canonical_key' in entry
            and self.is_copy(
                UUID(entry['url_key']), original := UUID(entry['canonical_key']), found
            )
        }
        for entry in batch['finished']:
            key = UUID(entry['url_key'])
            task = self.tasks[key]
            if key in copies:
                task.status, task.skip_reason, task.copy_of = 'skipped', 'canonical', copies[key]
                self.spent -= 1
                continue
            task.status, task.skip_reason = entry['status'], entry.get('skip_reason')
            task.title = title_of(key) if 'page' in entry else None
            if entry['status'] == 'error' and 'unfetched' in entry:
                task.attempts = task.crashes = 0
                self.spent -= 1
                continue
            is_page = 'page' in entry or entry['status'] != 'done'
            self.spent -= not IS_PAID[entry.get('skip_reason', 'done' if is_page else 'no page')]
        for entry in batch['retried']:
            task = self.tasks[UUID(entry['url_key'])]
            task.status = 'error' if task.attempts >= 30 else 'pending'
            task.is_later = entry['after_seconds'] > 0
        self.restore_copies([UUID(entry['url_key']) for entry in batch['finished']])
        self.restore_copies([UUID(entry['url_key']) for entry in batch['retried']])
        # Only once nothing in flight can be refunded.
        is_spent = not self.budget and not self.of_status('in_progress')
        for entry in batch['discovered']:
            key = UUID(entry['url_key'])
            reason = entry.get('skip_reason') or ('budget' if is_spent else None)
            task = Task('skipped' if reason else 'pending', skip_reason=reason)
            if self.tasks.setdefault(key, task).skip_reason == 'too_deep' and not reason:
                self.tasks[key] = Task(copy_of=self.tasks[key].copy_of)
        if is_spent:
            for task in self.tasks.values():
                if task.status == 'pending' and not task.attempts:
                    task.status, task.skip_reason = 'skipped', 'budget'

    def lease_tasks(self, want: int, keys: list[UUID]) -> None:
        """Lease the URLs that a checkpoint returned, if it may."""
        due = {key: task for key, task in self.due().items() if self.budget or task.attempts}
        in_flight = [self.tasks[key] for key in self.of_status('in_progress')]
        unsuspected = [task for task in due.values() if not task.crashes]
        if self.status != 'processing' or any(task.crashes for task in in_flight):
            assert keys == []
        elif unsuspected and want:
            fresh = [task for task in unsuspected if not task.attempts]
            retries = len(unsuspected) - len(fresh)
            assert len(keys) == min(want, min(len(fresh), self.budget) + retries)
            assert all(not self.tasks[key].crashes for key in keys)
        elif due and want and not in_flight:
            assert len(keys) == 1
        else:
            assert keys == []
        for key in keys:
            task = due[key]
            task.status = 'in_progress'
            self.spent += not task.attempts
            task.attempts += 1
        assert self.spent <= self.max_pages


@dataclass(frozen=True, slots=True)
class Sent:
    """The last checkpoint of a token, for sending it again."""

    seq: int
    batch: dict[str, Any]
    want: int
    tasks: list[Any]


@dataclass(slots=True)
class State:
    """What has been committed; or what one session sees."""

    jobs: dict[UUID, Job] = field(default_factory=dict[UUID, Job])
    sent: dict[UUID, Sent] = field(default_factory=dict[UUID, Sent])
    # The tokens that have leased a job, in order.
    used: dict[UUID, None] = field(default_factory=dict[UUID, None])
    # Deleted accounts.
    gone: set[UUID | None] = field(default_factory=set[UUID | None])


@dataclass(slots=True)
class Held:
    """The open transaction of the second session."""

    calls_left: int
    commits: bool
    before: State
    after: State

    @property
    def changed(self) -> set[UUID]:
        """The jobs that it has created, changed or deleted."""
        before, after = self.before.jobs, self.after.jobs
        return {job_id for job_id in before | after if before.get(job_id) != after.get(job_id)}

    def merged_with(self, committed: State) -> State:
        """What its commit makes of the committed state."""
        gone = committed.gone | self.after.gone
        for job_id in self.changed:
            # Its locks have kept the first session from changing the same jobs. The deletion of an
            # account locks none of them.
            before = self.before.jobs.get(job_id)
            assert committed.jobs.get(job_id) == before or (before and before.user in gone)
        jobs = merge(self.before.jobs, self.after.jobs, committed.jobs)
        return State(
            jobs={job_id: job for job_id, job in jobs.items() if job.user not in gone},
            sent=merge(self.before.sent, self.after.sent, committed.sent),
            used=merge(self.before.used, self.after.used, committed.used),
            gone=gone,
        )


def merge(before: dict[K, V], after: dict[K, V], committed: dict[K, V]) -> dict[K, V]:
    """Apply what has changed between `before` and `after` to `committed`."""
    deleted = before.keys() - after.keys()
    changed = {
        key: value for key, value in after.items() if key not in before or before[key] != value
    }
    return {key: value for key, value in committed.items() if key not in deleted} | changed

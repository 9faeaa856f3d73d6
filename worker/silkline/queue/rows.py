"""What the API answers, in types.

Owns the shapes of rows and JSON that the queue's functions give. Unknown fields are ignored, so
that an older worker goes on with a newer database.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict

from silkline.protocol import Command

JobStatus = Literal[
    'pending', 'processing', 'paused', 'completed', 'failed', 'stopped', 'cancelled'
]
TaskStatus = Literal['pending', 'in_progress', 'done', 'error', 'skipped']
ENDED: frozenset[JobStatus] = frozenset({'completed', 'failed', 'stopped', 'cancelled'})


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra='ignore')


class Job(Answer):
    """A row of `crawl_jobs`."""

    id: UUID
    user_id: UUID | None
    kind: str
    payload: dict[str, Any]
    priority: int
    source_id: str | None
    host: str | None
    status: JobStatus
    waits_for: str | None
    run_after: datetime
    worker_id: UUID | None
    lease_token: UUID | None
    attempt: int
    retry_count: int
    max_retries: int
    running_seconds: float = 0.0
    progress_percentage: int
    error_code: str | None
    error_message: str | None
    result: Any
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None

    @property
    def url(self) -> str:
        return str(self.payload.get('url') or self.host or '')


class Lease(Answer):
    """What is wanted of one lease."""

    lease_token: UUID
    job_id: UUID | None
    command: Command
    status: JobStatus | None


class Checkpoint(Answer):
    """The answer of a checkpoint. All but `command` and `progress` is for the runner.

    `next_in_seconds` is None with URLs pending when they wait for what is in progress: it may
    give budget back. `links` are entries `{url_key, links}`, of the first keys that were asked
    for, as many as fit.
    """

    command: Command
    drained: bool = False
    pending: int = 0
    next_in_seconds: float | None = None
    tasks: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    hosts: list[dict[str, Any]] = []
    redirected_starts: list[str] = []
    # For whoever watches: keys of `crawl_progress`.
    progress: dict[str, Any] = {}


class Pace(Answer):
    """How often a worker reports, and after which silence its jobs go to another."""

    heartbeat_every_seconds: float = 10.0
    stale_after_seconds: float = 120.0


class Wait(Answer):
    """What a job waits for: its time, its host, the next try of a URL, a pause of `seconds`."""

    reason: str
    until: datetime | None = None
    seconds: float | None = None
    url: str | None = None
    error: str | None = None


class Progress(Answer):
    """A snapshot of one job. `seq` and `event_seq` tell which of two is the newer."""

    job_id: UUID
    kind: str
    host: str | None
    # None from a database that does not tell it.
    url: str | None = None
    status: JobStatus
    is_saving: bool
    seq: int
    event_seq: int
    attempt: int
    retry_count: int
    max_retries: int
    running_seconds: float = 0.0
    progress_percentage: int
    pages_done: int
    pages_failed: int
    pages_skipped: int
    pages_pending: int
    pages_in_progress: int
    pages_new: int
    pages_changed: int
    pages_unchanged: int
    pages_per_second: float
    bytes: int
    eta_seconds: float | None
    current_url: str | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    run_after: datetime
    now: datetime
    wait: Wait | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED and not self.is_saving


class PageRow(Answer):
    """A URL of a job, and the version of its page that the job saw; None where there is none."""

    url_key: UUID
    url: str
    depth: int
    status: TaskStatus
    skip_reason: str | None
    last_error: str | None
    http_status: int | None
    attempts: int
    found_on: UUID | None
    finished_at: datetime | None
    page_url: str | None
    version: int | None
    change: Literal['new', 'changed', 'unchanged'] | None
    title: str | None
    content_hash: str | None
    extractor: str | None
    extractor_version: str | None
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    metadata: dict[str, Any] | None
    # Only when asked for.
    markdown: str | None
    links: list[Any] | None


class Reason(Answer):
    code: str
    text: str


class Explanation(Answer):
    """Why a job is not running."""

    job_id: UUID
    status: JobStatus
    reasons: list[Reason]


class Workers(Answer):
    live: int
    late: int
    slots: int
    busy_slots: int


class QueueStats(Answer):
    """The queue in numbers; counts stop at `count_limit`."""

    open: dict[str, int]
    pending: dict[str, int]
    ended_in_24_hours: dict[str, int]
    workers: Workers
    oldest_in_line_seconds: float | None
    count_limit: int


class WorkerInfo(Answer):
    id: UUID
    hostname: str | None
    version: str | None
    state: Literal['live', 'late', 'lost']
    slots: int | None
    busy_slots: int
    kinds: Annotated[list[str], BeforeValidator(lambda kinds: kinds or [])]
    started_at: datetime
    last_seen_at: datetime


class Check(Answer):
    """One line of the doctor's."""

    check_name: str
    status: Literal['ok', 'warning', 'error']
    detail: str
    hint: str


class Event(Answer):
    """A row of a job's history."""

    seq: int
    at: datetime
    from_status: JobStatus | None
    to_status: JobStatus
    actor: str
    reason: str
    attempt: int
    error_code: str | None


class ShownJob(Progress):
    """A snapshot of one job, with its history."""

    history: list[Event]

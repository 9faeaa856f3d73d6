"""The rows and JSON that the queue's functions return, as types.

Unknown fields are ignored, so that an older worker keeps working with a newer database.
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


class Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra='ignore')


class Job(Row):
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


class BulkChange(Row):
    """What was done to the jobs that a filter matches; no count goes beyond `count_limit`."""

    # How many there were to change, before this call.
    matched: int
    changed: int
    left: int
    count_limit: int


class ClaimedJob(Row):
    """A job and the token of its lease: a row of `crawl_lease`, which only a claim returns."""

    lease_token: UUID
    id: UUID
    user_id: UUID | None
    kind: str
    payload: dict[str, Any]
    priority: int
    source_id: str | None
    host: str | None
    status: JobStatus
    attempt: int
    retry_count: int
    max_retries: int
    running_seconds: float
    created_at: datetime
    started_at: datetime | None


class Lease(Row):
    """What the queue wants of one lease."""

    lease_token: UUID
    job_id: UUID | None
    command: Command
    status: JobStatus | None


class Checkpoint(Row):
    """The answer of a checkpoint.

    `for_runner` is passed on as it came: the fields of `protocol.Tasks` except `command`.
    """

    command: Command
    for_runner: dict[str, Any] = {}


class HeartbeatSettings(Row):
    """How often a worker reports, and after how much silence its jobs go to another."""

    heartbeat_every_seconds: float = 10.0
    stale_after_seconds: float = 120.0


class Wait(Row):
    """What a job waits for: its start time, its host, the retry of a URL, a delay of `seconds`."""

    reason: str
    until: datetime | None = None
    seconds: float | None = None
    url: str | None = None
    error: str | None = None


class Progress(Row):
    """A snapshot of one job. `seq` and `event_seq` say which of two is newer."""

    job_id: UUID
    kind: str
    host: str | None
    # None from an older database.
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
    # By reason; empty from an older database.
    links_refused: dict[str, int] = {}
    pages_with_warnings: int = 0
    # By kind of warning; a page with two kinds counts for both.
    page_warnings: dict[str, int] = {}
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


class UrlRow(Row):
    """A URL of a job: a row of `crawl_tasks`."""

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


class PageRow(UrlRow):
    """A URL of a job, and the version of its page that the job saw, if there is one."""

    page_url: str | None
    version: int | None
    change: Literal['new', 'changed', 'unchanged'] | None
    title: str | None
    content_hash: str | None
    extractor: str | None
    extractor_version: str | None
    # See `protocol.Quality`; None from an older database, too.
    quality: dict[str, Any] | None = None
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    metadata: dict[str, Any] | None
    # Only on request.
    markdown: str | None
    links: list[Any] | None

    @property
    def warnings(self) -> list[str]:
        """The kinds of warnings about its Markdown."""
        warnings = (self.quality or {}).get('warnings')
        return [str(kind) for kind in warnings] if isinstance(warnings, list) else []


class Reason(Row):
    code: str
    text: str


class Explanation(Row):
    """Why a job is not running."""

    job_id: UUID
    status: JobStatus
    reasons: list[Reason]


class Workers(Row):
    live: int
    late: int
    slots: int
    busy_slots: int


class QueueStats(Row):
    """The queue in numbers; no count goes beyond `count_limit`."""

    open: dict[str, int]
    pending: dict[str, int]
    ended_in_24_hours: dict[str, int]
    workers: Workers
    oldest_in_line_seconds: float | None
    count_limit: int


class WorkerInfo(Row):
    id: UUID
    hostname: str | None
    version: str | None
    state: Literal['live', 'late', 'lost']
    slots: int | None
    busy_slots: int
    kinds: Annotated[list[str], BeforeValidator(lambda kinds: kinds or [])]
    started_at: datetime
    last_seen_at: datetime


class Check(Row):
    """One check of the doctor."""

    check_name: str
    status: Literal['ok', 'warning', 'error']
    detail: str
    hint: str


class Event(Row):
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

"""The queue over HTTP: the only module that knows the names of its functions.

Every function may be called again safely, so transport errors are retried with backoff for
`patience_seconds`. What the API refuses is not retried. Answers are validated once, here, and come
out as the types of `rows.py`.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, Self, TypeVar, cast
from uuid import UUID

import httpx
from postgrest import APIError, AsyncPostgrestClient
from pydantic import TypeAdapter, ValidationError

from silkline import __version__
from silkline.errors import ApiRefused, ApiUnavailable, NoSuchJob
from silkline.queue.rows import (
    BulkChange,
    Check,
    Checkpoint,
    ClaimedJob,
    Event,
    Explanation,
    HeartbeatSettings,
    Job,
    JobStatus,
    Lease,
    PageRow,
    Progress,
    QueueStats,
    TaskStatus,
    UrlRow,
    WorkerInfo,
)
from silkline.settings import WORKER_TOKEN, Project

# The database cuts API sessions off at 8 s; an answer that takes longer will not come.
TIMEOUT = httpx.Timeout(12.0, connect=5.0)
PATIENCE_SECONDS = 15.0
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0

# The most that the queue accepts for one lease. A job may ask for as much, and run slightly over.
MAX_RUNNING_SECONDS = 604_800.0

# SQLSTATE classes worth a retry: connection, rollback, resources, lock, operator intervention.
TRANSIENT_CLASSES = ('08', '40', '53', '55', '57')
# The code of an answer that Python's JSON parser refuses, such as a number of 5000 digits.
UNREADABLE = 'unreadable'

T = TypeVar('T')

# The HTTP status of the last response in this task: the client library does not expose it, and
# the errors of a gateway have no code of their own.
http_status: ContextVar[int] = ContextVar('http_status', default=0)

# `p_filter` of the bulk functions: which jobs, by status, host and so on.
JobFilter = Mapping[str, object]

ReleaseReason = Literal['shutdown', 'later', 'worker_restarted']

# Called after each attempt: the function, the outcome, and how long it took.
OnCall = Callable[[str, Literal['ok', 'refused', 'failed'], float], None]


class Rpc:
    """An async context manager; leaving it closes the connections."""

    def __init__(
        self,
        project: Project,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        on_call: OnCall = lambda name, outcome, seconds: None,
    ) -> None:
        self._project = project
        self._on_call = on_call
        self._patience_seconds = patience_seconds
        self._http = httpx.AsyncClient(
            timeout=TIMEOUT,
            trust_env=not project.is_local,
            event_hooks={'response': [note_status]},
        )
        self._client = AsyncPostgrestClient(
            f'{project.url}/rest/v1',
            headers={
                'apikey': project.key,
                'Authorization': f'Bearer {project.bearer}',
                'User-Agent': f'silkline/{__version__}',
            },
            http_client=self._http,
            # Retries happen in `_try`, so that there is one policy.
            retry_enabled=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def enqueue_crawl_job(
        self,
        payload: Mapping[str, object],
        *,
        kind: str,
        idempotency_key: str,
        priority: int | None = None,
        source_id: str | None = None,
        run_after: str | None = None,
        user_id: UUID | None = None,
    ) -> Job:
        """Enqueue one job. Called again with the same key, it returns the same job."""
        params: dict[str, object] = {
            'p_payload': payload,
            'p_kind': kind,
            'p_idempotency_key': idempotency_key,
            'p_priority': priority,
            'p_source_id': source_id,
            'p_run_after': run_after,
            'p_user_id': None if user_id is None else str(user_id),
        }
        given = {name: value for name, value in params.items() if value is not None}
        return (await self._call('enqueue_crawl_job', given, list[Job]))[0]

    async def pause_crawl_job(self, job_id: UUID) -> Job:
        return await self._change('pause_crawl_job', job_id)

    async def resume_crawl_job(self, job_id: UUID) -> Job:
        return await self._change('resume_crawl_job', job_id)

    async def stop_crawl_job(self, job_id: UUID) -> Job:
        return await self._change('stop_crawl_job', job_id)

    async def cancel_crawl_job(self, job_id: UUID) -> Job:
        return await self._change('cancel_crawl_job', job_id)

    async def retry_crawl_job(self, job_id: UUID, *, urls: str) -> Job:
        return await self._change('retry_crawl_job', job_id, p_urls=urls)

    # Change up to `limit` of the jobs that match a filter; 0 only counts them.

    async def pause_crawl_jobs(self, job_filter: JobFilter, *, limit: int) -> BulkChange:
        return await self._change_many('pause_crawl_jobs', job_filter, limit)

    async def resume_crawl_jobs(self, job_filter: JobFilter, *, limit: int) -> BulkChange:
        return await self._change_many('resume_crawl_jobs', job_filter, limit)

    async def stop_crawl_jobs(self, job_filter: JobFilter, *, limit: int) -> BulkChange:
        return await self._change_many('stop_crawl_jobs', job_filter, limit)

    async def cancel_crawl_jobs(self, job_filter: JobFilter, *, limit: int) -> BulkChange:
        return await self._change_many('cancel_crawl_jobs', job_filter, limit)

    async def retry_crawl_jobs(self, job_filter: JobFilter, *, urls: str, limit: int) -> BulkChange:
        return await self._change_many('retry_crawl_jobs', job_filter, limit, p_urls=urls)

    async def crawl_progress(self, job_id: UUID) -> Progress:
        return await self._call('crawl_progress', {'p_job_id': str(job_id)}, Progress)

    async def explain_crawl_job(self, job_id: UUID) -> Explanation:
        return await self._call('explain_crawl_job', {'p_job_id': str(job_id)}, Explanation)

    async def crawl_job_pages(
        self,
        job_id: UUID,
        *,
        status: TaskStatus | None = None,
        with_content: bool = False,
        after: UUID | None = None,
        limit: int = 100,
    ) -> list[PageRow]:
        """URLs of a job, ordered by key; the last key is the next `after`."""
        params: dict[str, object] = {
            'p_job_id': str(job_id),
            'p_status': status,
            'p_with_content': with_content,
            'p_after': None if after is None else str(after),
            'p_limit': limit,
        }
        return await self._call('crawl_job_pages', params, list[PageRow])

    async def crawl_queue_stats(self) -> QueueStats:
        return await self._call('crawl_queue_stats', {}, QueueStats)

    async def list_crawl_workers(self) -> list[WorkerInfo]:
        return await self._call('list_crawl_workers', {}, list[WorkerInfo])

    async def crawl_doctor(self) -> list[Check]:
        return await self._call('crawl_doctor', {}, list[Check])

    async def claim_crawl_jobs(
        self,
        worker_id: UUID,
        lease_tokens: Sequence[UUID],
        *,
        kinds: Sequence[str] | None = None,
        can_render: bool = True,
    ) -> list[ClaimedJob]:
        params: dict[str, object] = {
            'p_worker_id': str(worker_id),
            'p_lease_tokens': [str(token) for token in lease_tokens],
        }
        if kinds is not None:
            params['p_kinds'] = list(kinds)
        if not can_render:
            params['p_can_render'] = False
        return await self._call('claim_crawl_jobs', params, list[ClaimedJob])

    async def heartbeat_crawl_jobs(
        self, worker_id: UUID, lease_tokens: Sequence[UUID], *, worker: Mapping[str, object]
    ) -> list[Lease]:
        params = {
            'p_worker_id': str(worker_id),
            'p_lease_tokens': [str(token) for token in lease_tokens],
            'p_worker': worker,
        }
        return await self._call('heartbeat_crawl_jobs', params, list[Lease])

    async def checkpoint_crawl_job(
        self, lease_token: UUID, batch: Mapping[str, object], *, want: int
    ) -> Checkpoint:
        params = {'p_lease_token': str(lease_token), 'p_batch': batch, 'p_want': want}
        answer = await self._call('checkpoint_crawl_job', params, dict[str, Any])
        command = answer.pop('command', None)
        return checked(Checkpoint, {'command': command, 'for_runner': answer})

    async def complete_crawl_job(
        self, lease_token: UUID, *, result: Mapping[str, object], running_seconds: float = 0.0
    ) -> list[Lease]:
        params = {
            'p_lease_token': str(lease_token),
            'p_result': result,
            'p_running_seconds': min(running_seconds, MAX_RUNNING_SECONDS),
        }
        return await self._call('complete_crawl_job', params, list[Lease])

    async def complete_crawl_jobs(
        self,
        lease_tokens: Sequence[UUID],
        *,
        results: Sequence[Mapping[str, object]],
        running_seconds: Sequence[float],
    ) -> list[Lease]:
        """Complete several jobs. One that is not drained is left as it is: `processing`."""
        params: dict[str, object] = {
            'p_lease_tokens': [str(token) for token in lease_tokens],
            'p_results': list(results),
            'p_running_seconds': [min(seconds, MAX_RUNNING_SECONDS) for seconds in running_seconds],
        }
        return await self._call('complete_crawl_jobs', params, list[Lease])

    async def fail_crawl_job(
        self,
        lease_token: UUID,
        *,
        error_code: str,
        error_message: str,
        is_retryable: bool,
        suspects: Sequence[UUID] | None = None,
        running_seconds: float = 0.0,
    ) -> list[Lease]:
        """`suspects` are the URLs that were being fetched; None means any URL of the lease."""
        params: dict[str, object] = {
            'p_lease_token': str(lease_token),
            'p_error_code': error_code,
            'p_error_message': error_message,
            'p_is_retryable': is_retryable,
            'p_running_seconds': min(running_seconds, MAX_RUNNING_SECONDS),
        }
        if suspects is not None:
            params['p_suspects'] = [str(url_key) for url_key in suspects]
        return await self._call('fail_crawl_job', params, list[Lease])

    async def release_crawl_job(
        self,
        lease_token: UUID,
        *,
        reason: ReleaseReason,
        after_seconds: int | None = None,
        running_seconds: float = 0.0,
    ) -> list[Lease]:
        """`after_seconds` goes with the reason `later`: 1 to 86400."""
        params: dict[str, object] = {
            'p_lease_token': str(lease_token),
            'p_reason': reason,
            'p_running_seconds': min(running_seconds, MAX_RUNNING_SECONDS),
        }
        if after_seconds is not None:
            params['p_after_seconds'] = after_seconds
        return await self._call('release_crawl_job', params, list[Lease])

    async def read_heartbeat_settings(self) -> HeartbeatSettings:
        """What the operator set; the defaults if this key may not read it."""
        request = self._client.from_('crawl_settings').select(
            'heartbeat_every_seconds,stale_after_seconds'
        )
        try:
            rows = checked(list[HeartbeatSettings], await self._try('crawl_settings', request))
        except ApiRefused:
            return HeartbeatSettings()
        return rows[0] if rows else HeartbeatSettings()

    async def list_jobs(
        self, *, statuses: Sequence[JobStatus], host: str | None, limit: int
    ) -> list[Job]:
        """The newest jobs that the caller may see."""
        query = self._client.from_('crawl_jobs').select('*')
        if statuses:
            query = query.in_('status', list(statuses))
        if host is not None:
            query = query.eq('host', host)
        request = query.order('created_at', desc=True).limit(limit)
        return checked(list[Job], await self._try('crawl_jobs', request))

    async def find_job(self, job_id: UUID) -> Job:
        request = self._client.from_('crawl_jobs').select('*').eq('id', str(job_id))
        found = checked(list[Job], await self._try('crawl_jobs', request))
        if not found:
            raise NoSuchJob(f'there is no job {job_id}')
        return found[0]

    async def find_urls(self, job_id: UUID, url_keys: Sequence[UUID]) -> list[UrlRow]:
        """Those of the URLs that the job has a row for."""
        request = (
            self._client.from_('crawl_tasks')
            .select('*')
            .eq('job_id', str(job_id))
            .in_('url_key', [str(url_key) for url_key in url_keys])
        )
        return checked(list[UrlRow], await self._try('crawl_tasks', request))

    async def list_redirected_starts(self, job_id: UUID) -> list[str]:
        """Where the start URLs of a job redirected to."""
        request = (
            self._client.from_('crawl_states').select('redirected_starts').eq('job_id', str(job_id))
        )
        rows = checked(
            list[dict[Literal['redirected_starts'], list[str]]],
            await self._try('crawl_states', request),
        )
        return [url for row in rows for url in row['redirected_starts']]

    async def list_events(self, job_id: UUID) -> list[Event]:
        """The history of a job, oldest first."""
        request = self._client.from_('crawl_events').select('*').eq('job_id', str(job_id))
        return checked(list[Event], await self._try('crawl_events', request.order('seq')))

    async def _change(self, function: str, job_id: UUID, **params: str) -> Job:
        given = {'p_job_id': str(job_id), **params}
        return (await self._call(function, given, list[Job]))[0]

    async def _change_many(
        self, function: str, job_filter: JobFilter, limit: int, **params: str
    ) -> BulkChange:
        given = {'p_filter': job_filter, 'p_limit': limit, **params}
        return await self._call(function, given, BulkChange)

    async def _call(self, function: str, params: Mapping[str, object], kind: type[T]) -> T:
        # The library's annotation says text, but any JSON works.
        request = self._client.rpc(function, cast(dict[str, str], params))
        return checked(kind, await self._try(function, request))

    async def _try(self, name: str, request: Any) -> object:
        deadline = time.monotonic() + self._patience_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            asked_at = time.monotonic()
            try:
                data = (await request.execute()).data
                self._on_call(name, 'ok', time.monotonic() - asked_at)
                return data
            except APIError as error:
                code = error.code or str(http_status.get())
                message = error.message or f'the API answered {http_status.get()} without a message'
                if not is_transient(code):
                    self._on_call(name, 'refused', time.monotonic() - asked_at)
                    raise self._refused(code, message, error.hint) from error
                reason = message
            except (ValueError, RecursionError) as error:
                self._on_call(name, 'refused', time.monotonic() - asked_at)
                message = f'cannot parse the answer of the API: {error}'
                raise ApiRefused(UNREADABLE, message) from error
            except httpx.RequestError as error:
                reason = str(error) or type(error).__name__
            self._on_call(name, 'failed', time.monotonic() - asked_at)
            # With jitter: workers that failed together do not retry together.
            wait = pause * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
            if time.monotonic() + wait > deadline:
                advice = 'silkline up' if self._project.is_local else 'is SUPABASE_URL right?'
                raise ApiUnavailable(f'{self._project.url} does not answer ({reason}): {advice}')
            await asyncio.sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _refused(self, code: str, message: str, hint: str | None) -> ApiRefused:
        """Explain the error to someone who does not know PostgREST."""
        if code in ('PGRST202', 'PGRST205'):
            message = f'the queue is not installed in {self._project.url}, or has another version'
            hint = "In your project's directory: silkline install, then supabase db push."
        elif code == '401':
            hint = f'Is SUPABASE_SECRET_KEY the secret key of {self._project.url}?'
        elif code == '42501' and self._project.token:
            hint = hint or f'{WORKER_TOKEN} is for workers only: this needs SUPABASE_SECRET_KEY.'
        elif code == '42501':
            hint = hint or 'This key may not do that: is SUPABASE_SECRET_KEY a secret key?'
        return ApiRefused(code, message, hint=hint)


async def note_status(response: httpx.Response) -> None:
    http_status.set(response.status_code)


def is_transient(code: str) -> bool:
    """Whether a retry may help, judged by SQLSTATE, PostgREST's own code, or HTTP status."""
    if code.isdecimal() and len(code) == 3:
        return code == '429' or int(code) >= 500
    return code.startswith('PGRST00') or (len(code) == 5 and code[:2] in TRANSIENT_CLASSES)


def checked(kind: type[T], data: object) -> T:
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        raise ApiRefused(
            'answer',
            f'this version does not understand the answer of the API: {error.errors()[0]["msg"]}',
            hint='Are the migrations of the database as new as this program?',
        ) from error

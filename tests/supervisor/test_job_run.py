"""One leased job with a real process, against a queue of a few lines that may answer late."""

import asyncio
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from aiohttp import web

from silkline.errors import ApiRefused, ApiUnavailable
from silkline.protocol import Command
from silkline.queue.rows import Checkpoint, ClaimedJob, JobStatus, Lease
from silkline.queue.rpc import Rpc
from silkline.supervisor.completions import Completions
from silkline.supervisor.job_run import JobRun
from silkline.supervisor.metrics import Metrics
from silkline.supervisor.spawn import ROOT, Spare, Started, start_process
from silkline.supervisor.tasks import side_tasks
from tests.support.site import Answer, Site, page
from tests.support.waiting import wait_until


class OnePageQueue:
    """The queue of a job that has drained when its one page has ended."""

    def __init__(self) -> None:
        self.checkpoints: list[Mapping[str, Any]] = []
        # What the user wants from this checkpoint on.
        self.command_at: tuple[int, Command] = (0, 'continue')
        self.completed: tuple[Command, JobStatus] | ApiRefused = ('continue', 'completed')
        self.calls: list[str] = []
        self.failed_with: dict[str, Any] = {}

    async def checkpoint_crawl_job(
        self, lease_token: UUID, batch: Mapping[str, Any], *, want: int
    ) -> Checkpoint:
        self.checkpoints.append(batch)
        number, command = self.command_at
        return Checkpoint(
            command=command if len(self.checkpoints) >= number > 0 else 'continue',
            for_runner={
                'tasks': batch.get('discovered', []),
                'drained': any('finished' in batch for batch in self.checkpoints),
            },
        )

    async def complete_crawl_job(self, lease_token: UUID, **_: object) -> list[Lease]:
        self.calls.append('complete')
        if isinstance(self.completed, ApiRefused):
            raise self.completed
        command, status = self.completed
        return [Lease(lease_token=lease_token, job_id=None, command=command, status=status)]

    async def release_crawl_job(self, lease_token: UUID, **_: object) -> list[Lease]:
        self.calls.append('release')
        return []

    async def fail_crawl_job(self, lease_token: UUID, **facts: object) -> list[Lease]:
        self.calls.append('fail')
        self.failed_with = facts
        return []


def claimed_job(**payload: object) -> ClaimedJob:
    now = datetime.now(UTC)
    return ClaimedJob(
        lease_token=uuid4(),
        id=uuid4(),
        user_id=None,
        kind='crawl',
        payload={'url': 'https://a.example/', **payload},
        priority=0,
        source_id=None,
        host='a.example',
        status='processing',
        attempt=1,
        retry_count=0,
        max_retries=3,
        running_seconds=0,
        created_at=now,
        started_at=now,
    )


def run_one_page(queue: OnePageQueue, *, page_seconds: float = 0.0) -> Metrics:
    """Crawl one page of a site to the end of the lease."""

    async def answer(request: web.Request) -> Answer:
        await asyncio.sleep(page_seconds)
        return page(text='A page of some words.')

    async def scenario(url: str) -> Metrics:
        metrics = Metrics(slots=1)
        completions = Completions()
        rpc = cast(Rpc, queue)
        run = JobRun(
            claimed_job(url=url, strategy='page'),
            rpc,
            leased_at=time.monotonic(),
            metrics=metrics,
            completions=completions,
            spare=Spare(),
            allow_networks=['127.0.0.1/32'],
        )
        async with asyncio.timeout(60), side_tasks(completions.run(rpc)):
            await run.run()
        assert run.is_over
        return metrics

    with Site(answer=answer) as site:
        return asyncio.run(scenario(f'{site.url}/'))


def count(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f'silkline_jobs_{name}_total', labels) or 0


@pytest.mark.parametrize('page_seconds', [0, 0.2])
def test_a_job_of_one_page_takes_two_checkpoints(page_seconds: float) -> None:
    queue = OnePageQueue()
    metrics = run_one_page(queue, page_seconds=page_seconds)
    first, second = queue.checkpoints

    assert len(first['discovered']) == 1
    assert [finished['status'] for finished in second['finished']] == ['done']
    assert queue.calls == ['complete']
    assert count(metrics, 'completed') == 1


@pytest.mark.parametrize('command', ['pause', 'stop', 'cancel'])
def test_a_command_that_comes_with_the_last_checkpoint_is_obeyed(command: Command) -> None:
    queue = OnePageQueue()
    queue.command_at = (2, command)
    metrics = run_one_page(queue)

    assert queue.calls == ['release']
    assert count(metrics, 'released', reason=command) == 1
    assert count(metrics, 'completed') == 0


@pytest.mark.parametrize(
    ('command', 'status'), [('pause', 'paused'), ('stop', 'stopped'), ('cancel', 'cancelled')]
)
def test_a_command_that_comes_after_the_last_checkpoint_is_seen_in_the_completion(
    command: Command, status: JobStatus, caplog: pytest.LogCaptureFixture
) -> None:
    queue = OnePageQueue()
    queue.completed = (command, status)
    with caplog.at_level('INFO'):
        metrics = run_one_page(queue)

    assert queue.calls == ['complete']
    assert f'released ({command})' in caplog.text
    assert count(metrics, 'released', reason=command) == 1
    assert count(metrics, 'completed') == 0


def test_a_job_that_the_queue_does_not_complete_fails_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = OnePageQueue()
    queue.completed = ApiRefused('PT409', 'it is not drained: 3 URLs are left')
    metrics = run_one_page(queue)

    assert queue.calls == ['complete', 'fail']
    assert (queue.failed_with['error_code'], queue.failed_with['is_retryable']) == (
        'protocol',
        True,
    )
    assert '3 URLs are left' in queue.failed_with['error_message']
    assert '3 URLs are left' in caplog.text
    assert count(metrics, 'failed', code='protocol') == 1


# Sends results as fast as the pipe takes them, and creates a file once it takes no more.
FLOOD = f"""
import os, select, sys
sys.path.insert(0, {str(ROOT)!r})
from uuid import uuid4
from silkline import framing, protocol
os.write(1, framing.encode(protocol.Ready(pid=os.getpid(), can_fork=False)))
while True:
    if not select.select([], [1], [], 1.0)[1]:
        open(sys.argv[1], 'w').close()
    os.write(1, framing.encode(protocol.Finished(url_key=uuid4(), status='done')))
"""


class FloodingSpare(Spare):
    def __init__(self, blocked: Path) -> None:
        super().__init__()
        self._blocked = blocked

    def take(self) -> Started:
        return start_process([sys.executable, '-c', FLOOD, str(self._blocked)])


class SlowQueue:
    """Answers no checkpoint until `command` is set."""

    def __init__(self) -> None:
        self.command: Command | None = None
        self.answer = asyncio.Event()
        self.is_released = False

    async def checkpoint_crawl_job(
        self, lease_token: UUID, batch: Mapping[str, Any], *, want: int
    ) -> Checkpoint:
        await self.answer.wait()
        if self.command is None:
            raise ApiUnavailable('away')
        return Checkpoint(command=self.command)

    async def release_crawl_job(self, lease_token: UUID, **_: object) -> list[Lease]:
        self.is_released = True
        return []


@pytest.mark.parametrize('how', ['cancelled', 'lost'])
def test_a_job_ends_with_its_lease_even_while_its_batches_are_full(
    how: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        queue = SlowQueue()
        blocked = tmp_path / 'blocked'
        run = JobRun(
            claimed_job(),
            cast(Rpc, queue),
            leased_at=time.monotonic(),
            metrics=Metrics(slots=1),
            completions=Completions(),
            spare=FloodingSpare(blocked),
        )
        running = asyncio.create_task(run.run())
        # One batch is being sent and the next one is full: nothing more is read.
        await asyncio.to_thread(wait_until, blocked.exists, what='a full batch')
        if how == 'cancelled':
            queue.command = 'cancel'
        else:
            run.obey('lost')
        queue.answer.set()
        async with asyncio.timeout(20):
            await running
        assert queue.is_released

    asyncio.run(scenario())

"""One leased job against a queue that answers late or not at all."""

import asyncio
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from silkline.errors import ApiUnavailable
from silkline.protocol import Command
from silkline.queue.rows import Checkpoint, ClaimedJob, Lease
from silkline.queue.rpc import Rpc
from silkline.supervisor.job_run import JobRun
from silkline.supervisor.metrics import Metrics
from silkline.supervisor.spawn import ROOT, Spare, Started, start_process
from tests.support.waiting import wait_until

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


def claimed_job() -> ClaimedJob:
    now = datetime.now(UTC)
    return ClaimedJob(
        lease_token=uuid4(),
        id=uuid4(),
        user_id=None,
        kind='crawl',
        payload={'url': 'https://a.example/'},
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

"""Following one job until it ends.

Shows snapshots of the database; Realtime only says when to take the next one. Without Realtime, a
snapshot is taken every second, and less often while nothing changes.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from silkline.queue.realtime import listen
from silkline.queue.rows import Progress
from silkline.queue.rpc import Rpc
from silkline.settings import Project

FIRST_POLL_SECONDS = 1.0
LONGEST_POLL_SECONDS = 5.0
# A job that changes often is shown twice a second.
SHORTEST_PAUSE_SECONDS = 0.5


async def watch(
    rpc: Rpc, project: Project, job_id: UUID, show: Callable[[Progress], None]
) -> Progress:
    """Show each change until the job has ended; return the last snapshot."""
    changed = asyncio.Event()
    is_live = False

    def on_joined(joined: bool) -> None:
        nonlocal is_live
        is_live = joined
        # The job may have changed before the channel was joined.
        changed.set()

    def on_event(event: str, payload: Mapping[str, Any]) -> None:
        changed.set()

    listening = asyncio.create_task(
        listen(project, f'crawl_job:{job_id}', on_event, on_joined=on_joined),
        name=f'listen to job {job_id}',
    )
    try:
        last: Progress | None = None
        poll_seconds = FIRST_POLL_SECONDS
        while True:
            changed.clear()
            snapshot = await rpc.crawl_progress(job_id)
            if last is None or differs(snapshot, last):
                show(snapshot)
                poll_seconds = FIRST_POLL_SECONDS
            else:
                poll_seconds = min(poll_seconds * 1.5, LONGEST_POLL_SECONDS)
            last = snapshot
            if snapshot.has_ended:
                return snapshot
            with suppress(TimeoutError):
                pause = pause_after(snapshot, is_live=is_live, poll_seconds=poll_seconds)
                async with asyncio.timeout(pause):
                    await changed.wait()
            await asyncio.sleep(SHORTEST_PAUSE_SECONDS)
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


def pause_after(snapshot: Progress, *, is_live: bool, poll_seconds: float) -> float:
    """How long to wait for an event before taking the next snapshot."""
    if snapshot.is_saving:
        # No event is sent when a worker has finished saving.
        return SHORTEST_PAUSE_SECONDS
    return LONGEST_POLL_SECONDS if is_live else poll_seconds


def differs(left: Progress, right: Progress) -> bool:
    """Whether two snapshots differ in anything but the time they were taken."""
    return left.model_dump(exclude={'now', 'eta_seconds'}) != right.model_dump(
        exclude={'now', 'eta_seconds'}
    )

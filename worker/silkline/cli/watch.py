"""Following one job to its end.

Snapshots of the database are what is shown; Realtime only says when to take the next one. With
Realtime away, they are taken each second, and less often while nothing changes.
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
    """Show each change until the job has ended; answer its last snapshot."""
    news = asyncio.Event()
    is_live = False

    def on_joined(joined: bool) -> None:
        nonlocal is_live
        is_live = joined
        # Something may have happened before.
        news.set()

    def hear(event: str, payload: Mapping[str, Any]) -> None:
        news.set()

    listening = asyncio.create_task(
        listen(project, f'crawl_job:{job_id}', hear, on_joined=on_joined),
        name=f'listen to job {job_id}',
    )
    try:
        shown: Progress | None = None
        poll = FIRST_POLL_SECONDS
        while True:
            news.clear()
            snapshot = await rpc.crawl_progress(job_id)
            if shown is None or is_other(snapshot, shown):
                show(snapshot)
                poll = FIRST_POLL_SECONDS
            else:
                poll = min(poll * 1.5, LONGEST_POLL_SECONDS)
            shown = snapshot
            if snapshot.has_ended:
                return snapshot
            with suppress(TimeoutError):
                pause = pause_after(snapshot, is_live=is_live, poll_seconds=poll)
                async with asyncio.timeout(pause):
                    await news.wait()
            await asyncio.sleep(SHORTEST_PAUSE_SECONDS)
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


def pause_after(snapshot: Progress, *, is_live: bool, poll_seconds: float) -> float:
    """How long news are waited for before the next snapshot."""
    if snapshot.is_saving:
        # Its end is no news.
        return SHORTEST_PAUSE_SECONDS
    return LONGEST_POLL_SECONDS if is_live else poll_seconds


def is_other(left: Progress, right: Progress) -> bool:
    return left.model_dump(exclude={'now', 'eta_seconds'}) != right.model_dump(
        exclude={'now', 'eta_seconds'}
    )

"""Asyncio tasks that run alongside other work, and work that must not be interrupted."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar('T')


@asynccontextmanager
async def side_tasks(*coroutines: Coroutine[Any, Any, object]) -> AsyncGenerator[None]:
    """Run `coroutines` while the block runs, and cancel them when it ends.

    If one of them fails, the block is cancelled and its error is raised here.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one, name=one.__qualname__) for one in coroutines]
            yield
            for task in tasks:
                task.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` even if this task is cancelled; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()

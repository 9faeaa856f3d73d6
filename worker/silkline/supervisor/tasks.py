"""Tasks of asyncio that belong together, or must not be broken off."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar('T')


async def beside(work: Coroutine[Any, Any, T], *sides: Coroutine[Any, Any, object]) -> T:
    """Do `work` with `sides` beside it. What breaks first breaks all; `sides` end with `work`."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(side, name=side.__qualname__) for side in sides]
            result = await work
            for task in tasks:
                task.cancel()
        return result
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` even when cancelled, then be cancelled."""
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

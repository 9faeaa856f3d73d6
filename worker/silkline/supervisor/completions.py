"""Complete jobs; those that end together, in one call.

One call is made at a time, and none waits to become larger: a job that ends is sent at once, and
the jobs that end during its call are sent together in the next one. Each job gets its own answer or
error; what that means for the job is left to `job_run.py`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from uuid import UUID

from silkline.errors import ApiRefused
from silkline.queue.rows import Lease
from silkline.queue.rpc import Rpc

# Far below what the database accepts, so that a call stays short.
MAX_JOBS_PER_CALL = 100


class Completions:
    """`run` makes the calls, in a task of its own: a job that is cancelled ends no other's call."""

    def __init__(self) -> None:
        self._waiting: list[Completion] = []
        self._has_some = asyncio.Event()

    async def complete(
        self, lease_token: UUID, *, result: Mapping[str, object], running_seconds: float
    ) -> Lease:
        """Complete a job, while `run` is running. Raises the error of its call."""
        answer: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiting.append(Completion(lease_token, result, running_seconds, answer))
        self._has_some.set()
        return await answer

    async def run(self, rpc: Rpc) -> NoReturn:
        while True:
            await self._has_some.wait()
            sent = self._waiting[:MAX_JOBS_PER_CALL]
            del self._waiting[:MAX_JOBS_PER_CALL]
            if not self._waiting:
                self._has_some.clear()
            left = await complete_together(rpc, sent) if len(sent) > 1 else sent
            await asyncio.gather(*(complete_alone(rpc, completion) for completion in left))


@dataclass(frozen=True, slots=True)
class Completion:
    """A job that has ended, and the answer that it waits for."""

    lease_token: UUID
    result: Mapping[str, object]
    running_seconds: float
    answer: asyncio.Future[Lease]

    def succeed(self, lease: Lease) -> None:
        # The job may have been cancelled meanwhile.
        if not self.answer.done():
            self.answer.set_result(lease)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


async def complete_together(rpc: Rpc, completions: Sequence[Completion]) -> list[Completion]:
    """Complete several jobs in one call; returns those that have to be sent alone."""
    try:
        leases = await rpc.complete_crawl_jobs(
            [completion.lease_token for completion in completions],
            results=[completion.result for completion in completions],
            running_seconds=[completion.running_seconds for completion in completions],
        )
    except ApiRefused:
        # The result of a single job is enough for that, and the answer does not say which.
        return list(completions)
    except Exception as error:
        for completion in completions:
            completion.fail(error)
        return []
    # A job that is not drained is not completed. Alone it is refused, and the error says why.
    answers = {lease.lease_token: lease for lease in leases if lease.status != 'processing'}
    left: list[Completion] = []
    for completion in completions:
        if (lease := answers.get(completion.lease_token)) is not None:
            completion.succeed(lease)
        else:
            left.append(completion)
    return left


async def complete_alone(rpc: Rpc, completion: Completion) -> None:
    try:
        [lease] = await rpc.complete_crawl_job(
            completion.lease_token,
            result=completion.result,
            running_seconds=completion.running_seconds,
        )
    except Exception as error:
        completion.fail(error)
    else:
        completion.succeed(lease)

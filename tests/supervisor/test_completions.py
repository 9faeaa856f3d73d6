"""Jobs that end together are completed in one call, and each gets its own answer."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from silkline.errors import ApiRefused, ApiUnavailable
from silkline.protocol import Command
from silkline.queue.rows import JobStatus, Lease
from silkline.queue.rpc import Rpc
from silkline.supervisor.completions import MAX_JOBS_PER_CALL, Completions
from silkline.supervisor.tasks import side_tasks


class Queue:
    """Completes jobs. Answers only the first `answered` calls; the others wait."""

    def __init__(self) -> None:
        self.calls: list[list[UUID]] = []
        self.completed: dict[UUID, Any] = {}
        self.not_drained: set[UUID] = set()
        self.ended: dict[UUID, tuple[Command, JobStatus | None]] = {}
        # By the number of the call.
        self.errors: dict[int, Exception] = {}
        self._answered = math.inf
        self._changed = asyncio.Condition()

    async def answer_only(self, calls: float) -> None:
        async with self._changed:
            self._answered = calls
            self._changed.notify_all()

    async def wait_for_calls(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.calls) >= count)

    async def complete_crawl_job(
        self, lease_token: UUID, *, result: Mapping[str, object], running_seconds: float
    ) -> list[Lease]:
        await self._take_call([lease_token], [result])
        if lease_token in self.not_drained:
            raise ApiRefused('PT409', 'it is not drained: 3 URLs are left')
        return [self._end(lease_token, result, running_seconds)]

    async def complete_crawl_jobs(
        self,
        lease_tokens: Sequence[UUID],
        *,
        results: Sequence[Mapping[str, object]],
        running_seconds: Sequence[float],
    ) -> list[Lease]:
        await self._take_call(lease_tokens, results)
        return [
            Lease(lease_token=token, job_id=token, command='continue', status='processing')
            if token in self.not_drained
            else self._end(token, result, seconds)
            for token, result, seconds in zip(lease_tokens, results, running_seconds, strict=True)
        ]

    async def _take_call(
        self, tokens: Sequence[UUID], results: Sequence[Mapping[str, object]]
    ) -> None:
        self.calls.append(list(tokens))
        number = len(self.calls)
        async with self._changed:
            self._changed.notify_all()
            await self._changed.wait_for(lambda: number <= self._answered)
        if number in self.errors:
            raise self.errors[number]
        if any('bad' in result for result in results):
            raise ApiRefused('PT422', 'p_result must be a JSON object of at most 64 KB')

    def _end(self, token: UUID, result: Mapping[str, object], seconds: float) -> Lease:
        command, status = self.ended.get(token, ('continue', 'completed'))
        if status == 'completed':
            assert token not in self.completed
            self.completed[token] = (dict(result), seconds)
        return Lease(lease_token=token, job_id=token, command=command, status=status)


def run(scenario: Callable[[Queue, Completions], Awaitable[None]]) -> None:
    async def with_calls() -> None:
        queue = Queue()
        completions = Completions()
        async with asyncio.timeout(20), side_tasks(completions.run(cast(Rpc, queue))):
            await scenario(queue, completions)

    asyncio.run(with_calls())


def begin(completions: Completions, token: UUID, **result: object) -> asyncio.Task[Lease]:
    return asyncio.create_task(completions.complete(token, result=result, running_seconds=1.5))


async def begin_behind_a_call(
    queue: Queue, completions: Completions, *tokens: UUID
) -> list[asyncio.Task[Lease]]:
    """Jobs that end while the call of another one is not answered."""
    await queue.answer_only(0)
    first = begin(completions, uuid4())
    await queue.wait_for_calls(1)
    ending = [begin(completions, token) for token in tokens]
    await asyncio.sleep(0)
    assert len(queue.calls) == 1
    await queue.answer_only(1)
    await first
    return ending


def test_a_job_that_ends_alone_is_completed_at_once() -> None:
    async def scenario(queue: Queue, completions: Completions) -> None:
        token = uuid4()
        lease = await completions.complete(token, result={'pages': 1}, running_seconds=2.5)
        assert (lease.lease_token, lease.status) == (token, 'completed')
        assert queue.calls == [[token]]
        assert queue.completed == {token: ({'pages': 1}, 2.5)}

    run(scenario)


def test_jobs_that_end_during_a_call_are_completed_together_by_the_next() -> None:
    async def scenario(queue: Queue, completions: Completions) -> None:
        tokens = [uuid4() for _ in range(5)]
        ending = await begin_behind_a_call(queue, completions, *tokens)
        await queue.answer_only(2)
        leases = await asyncio.gather(*ending)
        assert queue.calls[1:] == [tokens]
        assert [lease.lease_token for lease in leases] == tokens
        assert queue.completed.keys() >= set(tokens)

    run(scenario)


def test_a_call_has_a_bounded_number_of_jobs() -> None:
    async def scenario(queue: Queue, completions: Completions) -> None:
        tokens = [uuid4() for _ in range(2 * MAX_JOBS_PER_CALL + 1)]
        ending = await begin_behind_a_call(queue, completions, *tokens)
        await queue.answer_only(math.inf)
        await asyncio.gather(*ending)
        assert [len(call) for call in queue.calls] == [1, MAX_JOBS_PER_CALL, MAX_JOBS_PER_CALL, 1]

    run(scenario)


def test_an_answer_reaches_the_job_that_it_is_about() -> None:
    async def scenario(queue: Queue, completions: Completions) -> None:
        paused, lost, completed = (uuid4() for _ in range(3))
        queue.ended = {paused: ('pause', 'paused'), lost: ('lost', None)}
        ending = await begin_behind_a_call(queue, completions, paused, lost, completed)
        await queue.answer_only(2)
        leases = await asyncio.gather(*ending)
        assert [lease.command for lease in leases] == ['pause', 'lost', 'continue']
        assert completed in queue.completed

    run(scenario)


def test_a_call_that_fails_fails_only_its_own_jobs() -> None:
    async def scenario(queue: Queue, completions: Completions) -> None:
        queue.errors = {2: ApiUnavailable('away')}
        ending = await begin_behind_a_call(queue, completions, uuid4(), uuid4())
        await queue.wait_for_calls(2)
        later = [begin(completions, uuid4()) for _ in range(2)]
        await queue.answer_only(math.inf)
        ends = await asyncio.gather(*ending, return_exceptions=True)
        assert [type(end) for end in ends] == [ApiUnavailable, ApiUnavailable]
        assert [lease.status for lease in await asyncio.gather(*later)] == ['completed'] * 2

    run(scenario)


def test_a_refused_result_fails_only_the_job_that_it_is_from() -> None:
    async def scenario(queue: Queue, completions: Completions) -> None:
        [good] = await begin_behind_a_call(queue, completions, uuid4())
        await queue.wait_for_calls(2)
        bad, other = begin(completions, uuid4(), bad=True), begin(completions, uuid4())
        await queue.answer_only(math.inf)
        with pytest.raises(ApiRefused, match='64 KB'):
            await bad
        assert [lease.status for lease in await asyncio.gather(good, other)] == ['completed'] * 2
        assert max(map(len, queue.calls)) == 2

    run(scenario)


def test_a_job_that_is_not_drained_is_refused_with_the_reason_and_no_other_is() -> None:
    async def scenario(queue: Queue, completions: Completions) -> None:
        left, other = uuid4(), uuid4()
        queue.not_drained = {left}
        ending = await begin_behind_a_call(queue, completions, left, other)
        await queue.answer_only(math.inf)
        with pytest.raises(ApiRefused, match='3 URLs are left') as refused:
            await ending[0]
        assert refused.value.code == 'PT409'
        assert (await ending[1]).status == 'completed'
        assert left not in queue.completed

    run(scenario)


def test_a_cancelled_job_does_not_end_the_call_that_it_shares() -> None:
    async def scenario(queue: Queue, completions: Completions) -> None:
        cancelled, other = uuid4(), uuid4()
        ending = await begin_behind_a_call(queue, completions, cancelled, other)
        await queue.wait_for_calls(2)
        ending[0].cancel()
        await asyncio.wait([ending[0]])
        await queue.answer_only(2)
        assert (await ending[1]).status == 'completed'
        assert queue.calls[1:] == [[cancelled, other]]

    run(scenario)

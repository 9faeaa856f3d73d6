"""What a runner sent reaches the queue once: in batches, by number, whatever is cut off."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silkline import protocol
from silkline.errors import ApiRefused, ApiUnavailable
from silkline.queue.rows import Checkpoint
from silkline.queue.rpc import Rpc
from silkline.supervisor.checkpoints import SAVE_PAGES, SAVE_SECONDS, Batch, Saving

from tests.support.messages import results

KEY = UUID('00112233-4455-6677-8899-aabbccddeeff')
LINK = protocol.Discovered(urls=[protocol.FoundUrl(url_key=KEY, url='u', depth=1)])
PAGE = protocol.Finished(url_key=KEY, status='done')


class Queue:
    """Takes checkpoints; the first meets `trouble`, and one that hangs does not arrive."""

    def __init__(self, trouble: Exception | None = None, *, hangs: bool = False) -> None:
        self.saved: dict[int, set[str]] = {}
        self.pages: dict[int, int] = {}
        self.reached = asyncio.Event()
        self._trouble = trouble
        self._hangs = hangs

    async def checkpoint_crawl_job(
        self, lease_token: UUID, batch: Mapping[str, Any], *, want: int
    ) -> Checkpoint:
        self.reached.set()
        if self._hangs:
            self._hangs = False
            await asyncio.Event().wait()
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        assert batch['seq'] not in self.saved
        self.saved[batch['seq']] = batch.keys() - {'seq'}
        self.pages[batch['seq']] = len(batch.get('finished', ()))
        return Checkpoint(command='continue', pending=want)


def saving_to(queue: Queue, *, is_wanted: bool = True) -> tuple[Saving, list[Checkpoint]]:
    told: list[Checkpoint] = []
    saving = Saving(
        uuid4(),
        uuid4(),
        cast(Rpc, queue),
        is_wanted=lambda: is_wanted,
        on_saved=told.append,
    )
    return saving, told


@given(st.lists(results, max_size=6), st.integers(1, 10**9 - 1))
def test_a_batch_has_the_fields_of_a_checkpoint_and_no_other(
    messages: list[protocol.FromRunner], seq: int
) -> None:
    batch = Batch()
    assert all([batch.add(message) for message in messages])
    sent = batch.as_json(seq)
    assert msgspec.json.decode(msgspec.json.encode(sent)) == sent
    assert sent.keys() <= {
        'seq',
        'finished',
        'retried',
        'discovered',
        'hosts',
        'redirected_starts',
        'current_url',
    }
    entries: list[dict[str, Any]] = [
        entry
        for key in ('finished', 'retried', 'discovered', 'hosts')
        for entry in sent.get(key, [])
    ]
    assert all('type' not in entry for entry in entries)
    assert len(sent.get('finished', [])) == sum(isinstance(m, protocol.Finished) for m in messages)


def test_results_do_not_wait_for_what_is_no_result() -> None:
    batch = Batch()
    assert not batch.add(protocol.WantTasks(count=1))
    assert not batch.add(protocol.Done(reason='drained'))
    assert batch.as_json(1) == {'seq': 1}


def test_a_batch_is_full_before_the_database_would_refuse_it() -> None:
    batch = Batch()
    urls = [protocol.FoundUrl(url_key=KEY, url='u', depth=0)] * 5000
    while not batch.is_full:
        batch.add(protocol.Discovered(urls=urls))
    assert len(batch.discovered) <= 50_000
    batch = Batch()
    while not batch.is_full:
        batch.add(protocol.Finished(url_key=KEY, status='done'))
    assert len(batch.finished) <= 5000


def test_a_batch_that_was_cut_off_is_sent_again_before_the_next() -> None:
    """A link that was found is not lost with it, while its page counts as done."""

    async def scenario() -> None:
        queue = Queue(hangs=True)
        saving, told = saving_to(queue)
        saving.batch.add(LINK)
        cut_off = asyncio.create_task(saving.save())
        await queue.reached.wait()
        cut_off.cancel()
        await asyncio.wait([cut_off])
        saving.batch.add(PAGE)
        answer = await saving.save(protocol.WantTasks(count=3))

        assert queue.saved == {1: {'discovered'}, 2: {'finished'}}
        assert list(queue.saved) == [1, 2]
        assert len(told) == 2
        assert answer.pending == 3

    asyncio.run(scenario())


def test_a_batch_waits_for_a_queue_that_is_away() -> None:
    async def scenario() -> None:
        queue = Queue(ApiUnavailable('away'))
        saving, told = saving_to(queue)
        saving.batch.add(PAGE)
        await saving.save()

        assert queue.saved == {1: {'finished'}}
        assert len(told) == 1

    asyncio.run(scenario())


def test_a_batch_that_is_refused_is_not_sent_again() -> None:
    async def scenario() -> None:
        queue = Queue(ApiRefused('22P02', 'no'))
        saving, told = saving_to(queue)
        saving.batch.add(LINK)
        with pytest.raises(ApiRefused):
            await saving.save()
        saving.batch.add(PAGE)
        await saving.save()

        assert queue.saved == {2: {'finished'}}
        assert len(told) == 1

    asyncio.run(scenario())


def test_nothing_is_sent_that_is_not_wanted_any_more() -> None:
    async def scenario() -> None:
        queue = Queue()
        saving, told = saving_to(queue, is_wanted=False)
        saving.batch.add(PAGE)

        assert (await saving.save(protocol.WantTasks(count=1))).command == 'lost'
        assert (queue.saved, told) == ({}, [])

    asyncio.run(scenario())


def test_results_are_taken_in_while_others_are_on_their_way() -> None:
    async def scenario() -> None:
        queue = Queue(hangs=True)
        saving, _ = saving_to(queue)
        await saving.take(LINK)
        await saving.take(protocol.WantTasks(count=5))
        keeping = asyncio.create_task(saving.keep_saving(no_answer))
        await queue.reached.wait()
        for _ in range(500):
            assert await saving.take(PAGE)

        assert len(saving.batch.finished) == 500
        keeping.cancel()
        await asyncio.wait([keeping])

    asyncio.run(scenario())


def test_a_runner_waits_when_the_next_batch_is_full_too() -> None:
    async def scenario() -> None:
        queue = Queue(hangs=True)
        saving, _ = saving_to(queue)
        await saving.take(protocol.WantTasks(count=5))
        keeping = asyncio.create_task(saving.keep_saving(no_answer))
        await queue.reached.wait()
        for _ in range(Batch.MAX_RESULTS - 1):
            await saving.take(PAGE)
        last = asyncio.create_task(saving.take(PAGE))
        await asyncio.wait([last], timeout=0.05)
        assert not last.done()
        keeping.cancel()
        await asyncio.wait([keeping])
        await saving.save()

        assert await last
        assert list(queue.saved) == [1, 2]

    asyncio.run(scenario())


def test_a_hundred_pages_are_saved_at_once_and_a_wish_is_answered() -> None:
    async def scenario() -> None:
        queue = Queue()
        saving, _ = saving_to(queue)
        answered: asyncio.Queue[Checkpoint] = asyncio.Queue()
        keeping = asyncio.create_task(saving.keep_saving(answered.put))
        for _ in range(SAVE_PAGES):
            await saving.take(PAGE)
        await asyncio.wait_for(queue.reached.wait(), SAVE_SECONDS / 2)
        assert queue.pages[1] == SAVE_PAGES
        assert answered.empty()
        await saving.take(protocol.WantTasks(count=7))
        assert (await answered.get()).pending == 7
        keeping.cancel()
        await asyncio.wait([keeping])

    asyncio.run(scenario())


async def no_answer(answer: Checkpoint) -> None:
    raise AssertionError(answer)

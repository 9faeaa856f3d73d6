"""A runner's results reach the queue once: in numbered batches, whatever is interrupted."""

import asyncio
import json
from collections import Counter
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
from silkline.supervisor.checkpoints import SAVE_PAGES, SAVE_SECONDS, Batch, Checkpoints
from tests.support.messages import results

KEY = UUID('00112233-4455-6677-8899-aabbccddeeff')
LINK = protocol.Discovered(urls=[protocol.FoundUrl(url_key=KEY, url='u', depth=1)])
PAGE = protocol.Finished(url_key=KEY, status='done')


class Queue:
    """Takes checkpoints. The first one raises `error`, or hangs and is not saved."""

    def __init__(self, error: Exception | None = None, *, hangs: bool = False) -> None:
        self.saved: dict[int, set[str]] = {}
        self.pages: dict[int, int] = {}
        self.refused: Counter[str] = Counter()
        self.wanted: list[tuple[int, int]] = []
        self.command: protocol.Command = 'continue'
        self.reached = asyncio.Event()
        self._error = error
        self._hangs = hangs

    async def checkpoint_crawl_job(
        self, lease_token: UUID, batch: Mapping[str, Any], *, want: int
    ) -> Checkpoint:
        self.wanted.append((batch['seq'], want))
        self.reached.set()
        if self._hangs:
            self._hangs = False
            await asyncio.Event().wait()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        assert batch['seq'] not in self.saved
        self.saved[batch['seq']] = batch.keys() - {'seq'}
        self.pages[batch['seq']] = len(batch.get('finished', ()))
        self.refused.update(batch.get('refused', {}))
        return Checkpoint(command=self.command, for_runner={'pending': want})


def checkpoints_to(queue: Queue) -> Checkpoints:
    return Checkpoints(uuid4(), cast(Rpc, queue))


@given(st.lists(results, max_size=6), st.integers(1, 10**9 - 1))
def test_a_batch_has_the_fields_of_a_checkpoint_and_no_others(
    messages: list[protocol.FromRunner], seq: int
) -> None:
    batch = Batch(seq=seq)
    for message in messages:
        batch.add(message)
    sent = batch.as_json()
    # The client of the queue encodes it with the standard library.
    assert json.loads(json.dumps(sent)) == msgspec.json.decode(msgspec.json.encode(sent))
    assert sent['seq'] == seq
    assert sent.keys() <= {
        'seq',
        'finished',
        'retried',
        'discovered',
        'refused',
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


def test_a_batch_has_the_sum_of_the_links_refused_since_the_last_one() -> None:
    batch = Batch(seq=1)
    assert 'refused' not in batch.as_json()
    batch.add(protocol.LinksRefused(counts={'out_of_scope': 2}))
    assert batch.has_results
    batch.add(protocol.LinksRefused(counts={'out_of_scope': 3, 'excluded': 1}))
    assert batch.as_json() == {'seq': 1, 'refused': {'out_of_scope': 5, 'excluded': 1}}


def test_a_batch_ignores_messages_that_are_not_results() -> None:
    batch = Batch(seq=1)
    batch.add(protocol.WantTasks(count=1))
    batch.add(protocol.Done(reason='drained'))
    assert batch.as_json() == {'seq': 1}


def test_a_batch_is_full_before_the_database_would_refuse_it() -> None:
    batch = Batch(seq=1)
    urls = [protocol.FoundUrl(url_key=KEY, url='u', depth=0)] * 5000
    while not batch.is_full:
        batch.add(protocol.Discovered(urls=urls))
    assert len(batch.discovered) <= 50_000
    batch = Batch(seq=1)
    while not batch.is_full:
        batch.add(protocol.Finished(url_key=KEY, status='done'))
    assert len(batch.finished) <= 5000


def test_refused_links_of_an_interrupted_batch_are_counted_once() -> None:
    async def scenario() -> None:
        queue = Queue(hangs=True)
        checkpoints = checkpoints_to(queue)
        await checkpoints.add(protocol.LinksRefused(counts={'out_of_scope': 2}))
        interrupted = asyncio.create_task(checkpoints.save())
        await queue.reached.wait()
        interrupted.cancel()
        await asyncio.wait([interrupted])
        await checkpoints.add(protocol.LinksRefused(counts={'out_of_scope': 3, 'excluded': 1}))
        await checkpoints.save()

        assert queue.saved == {1: {'refused'}, 2: {'refused'}}
        assert queue.refused == {'out_of_scope': 5, 'excluded': 1}

    asyncio.run(scenario())


def test_an_interrupted_batch_is_sent_again_before_the_next() -> None:
    """Otherwise a link could be lost while the page it was found on counts as done."""

    async def scenario() -> None:
        queue = Queue(hangs=True)
        checkpoints = checkpoints_to(queue)
        await checkpoints.add(LINK)
        interrupted = asyncio.create_task(checkpoints.save(protocol.WantTasks(count=5)))
        await queue.reached.wait()
        interrupted.cancel()
        await asyncio.wait([interrupted])
        await checkpoints.add(PAGE)
        answer = await checkpoints.save(protocol.WantTasks(count=3))

        assert queue.saved == {1: {'discovered'}, 2: {'finished'}}
        # The URLs of the interrupted call are not leased: nobody waits for them any more.
        assert queue.wanted == [(1, 5), (1, 0), (2, 3)]
        assert answer.for_runner == {'pending': 3}

    asyncio.run(scenario())


def test_a_save_that_failed_is_repeated_with_the_same_number_and_wish() -> None:
    """The queue may have leased the URLs of the first call: a repeated one returns the same."""

    async def scenario() -> None:
        queue = Queue(ApiUnavailable('away'))
        checkpoints = checkpoints_to(queue)
        wish = protocol.WantTasks(count=4)
        await checkpoints.add(PAGE)
        with pytest.raises(ApiUnavailable):
            await checkpoints.save(wish)
        answer = await checkpoints.save(wish)

        assert queue.wanted == [(1, 4), (1, 4)]
        assert queue.saved == {1: {'finished'}}
        assert answer.for_runner == {'pending': 4}

    asyncio.run(scenario())


def test_what_was_added_or_not_answered_is_unsaved() -> None:
    async def scenario() -> None:
        checkpoints = checkpoints_to(Queue(ApiUnavailable('away')))
        assert not checkpoints.has_unsaved
        await checkpoints.add(PAGE)
        assert checkpoints.has_unsaved
        with pytest.raises(ApiUnavailable):
            await checkpoints.save()
        assert checkpoints.has_unsaved
        await checkpoints.save()
        assert not checkpoints.has_unsaved
        await checkpoints.add(protocol.RedirectedStart(url='https://a.example/'))
        assert checkpoints.has_unsaved

    asyncio.run(scenario())


def test_results_that_came_after_a_failed_save_are_saved_with_the_next() -> None:
    async def scenario() -> None:
        queue = Queue(ApiUnavailable('away'))
        checkpoints = checkpoints_to(queue)
        await checkpoints.add(LINK)
        with pytest.raises(ApiUnavailable):
            await checkpoints.save()
        await checkpoints.add(PAGE)
        await checkpoints.save()

        assert queue.saved == {1: {'discovered'}, 2: {'finished'}}

    asyncio.run(scenario())


def test_where_a_start_redirects_to_is_saved_after_a_failed_save_too() -> None:
    async def scenario() -> None:
        queue = Queue(ApiUnavailable('away'))
        checkpoints = checkpoints_to(queue)
        await checkpoints.add(PAGE)
        with pytest.raises(ApiUnavailable):
            await checkpoints.save()
        await checkpoints.add(protocol.RedirectedStart(url='https://a.example/'))
        await checkpoints.save()

        assert queue.saved == {1: {'finished'}, 2: {'redirected_starts'}}

    asyncio.run(scenario())


def test_nothing_follows_a_repeated_batch_whose_lease_has_ended() -> None:
    async def scenario() -> None:
        queue = Queue(ApiUnavailable('away'))
        checkpoints = checkpoints_to(queue)
        await checkpoints.add(LINK)
        with pytest.raises(ApiUnavailable):
            await checkpoints.save()
        await checkpoints.add(PAGE)
        queue.command = 'lost'
        answer = await checkpoints.save(protocol.WantTasks(count=1))

        assert answer.command == 'lost'
        assert list(queue.saved) == [1]

    asyncio.run(scenario())


def test_a_runner_does_not_wait_for_room_once_the_lease_has_ended() -> None:
    async def scenario() -> None:
        checkpoints = checkpoints_to(Queue())
        for _ in range(Batch.MAX_RESULTS - 1):
            await checkpoints.add(PAGE)
        last = asyncio.create_task(checkpoints.add(PAGE))
        await asyncio.wait([last], timeout=0.05)
        assert not last.done()
        checkpoints.drop()
        async with asyncio.timeout(5):
            await last

    asyncio.run(scenario())


def test_a_refused_batch_is_not_sent_again() -> None:
    async def scenario() -> None:
        queue = Queue(ApiRefused('22P02', 'no'))
        checkpoints = checkpoints_to(queue)
        await checkpoints.add(LINK)
        with pytest.raises(ApiRefused):
            await checkpoints.save()
        await checkpoints.add(PAGE)
        await checkpoints.save()

        assert queue.saved == {2: {'finished'}}

    asyncio.run(scenario())


def test_results_are_taken_in_while_a_batch_is_being_saved() -> None:
    async def scenario() -> None:
        queue = Queue(hangs=True)
        checkpoints = checkpoints_to(queue)
        await checkpoints.add(LINK)
        saving = asyncio.create_task(checkpoints.save())
        await queue.reached.wait()
        for _ in range(500):
            await checkpoints.add(PAGE)
        saving.cancel()
        await asyncio.wait([saving])
        await checkpoints.save()

        assert queue.pages == {1: 0, 2: 500}

    asyncio.run(scenario())


def test_a_runner_waits_once_the_next_batch_is_full_too() -> None:
    async def scenario() -> None:
        queue = Queue(hangs=True)
        checkpoints = checkpoints_to(queue)
        saving = asyncio.create_task(checkpoints.save(protocol.WantTasks(count=5)))
        await queue.reached.wait()
        for _ in range(Batch.MAX_RESULTS - 1):
            await checkpoints.add(PAGE)
        last = asyncio.create_task(checkpoints.add(PAGE))
        await asyncio.wait([last], timeout=0.05)
        assert not last.done()
        saving.cancel()
        await asyncio.wait([saving])
        await checkpoints.save()
        await last

        assert list(queue.saved) == [1, 2]

    asyncio.run(scenario())


def test_a_hundred_pages_or_a_wish_are_due_at_once() -> None:
    async def scenario() -> None:
        checkpoints = checkpoints_to(Queue())
        for _ in range(SAVE_PAGES):
            await checkpoints.add(PAGE)
        async with asyncio.timeout(SAVE_SECONDS / 2):
            assert await checkpoints.wait_until_due() is None
        await checkpoints.save()
        wish = protocol.WantTasks(count=7)
        await checkpoints.add(wish)
        async with asyncio.timeout(SAVE_SECONDS / 2):
            assert await checkpoints.wait_until_due() is wish

    asyncio.run(scenario())


def test_a_single_page_is_due_within_a_second() -> None:
    async def scenario() -> None:
        checkpoints = checkpoints_to(Queue())
        await checkpoints.add(PAGE)
        async with asyncio.timeout(3 * SAVE_SECONDS):
            assert await checkpoints.wait_until_due() is None

    asyncio.run(scenario())

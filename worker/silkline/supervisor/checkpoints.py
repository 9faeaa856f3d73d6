"""Batch and number the results of one lease, and save each batch once.

`Checkpoints` is a queue that `job_run.py` drives: messages of the runner go in, `save` sends them.
A batch that was sent but not answered goes out again under its number before any other, so that no
link is lost between two pages. What an answer means for the job is left to `job_run.py`.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

from msgspec import to_builtins

from silkline import protocol
from silkline.errors import ApiRefused
from silkline.queue.rows import Checkpoint
from silkline.queue.rpc import Rpc

# A worker that is killed loses what is not saved: at most this much.
SAVE_SECONDS = 1.0
SAVE_PAGES = 100
MAX_REDIRECTED_STARTS = 100

NO_WISH = protocol.WantTasks(count=0)

# Fields of a batch other than `seq`; each is an attribute of `Batch`.
FIELDS = (
    'finished',
    'retried',
    'discovered',
    'refused',
    'hosts',
    'redirected_starts',
    'current_url',
)


class Checkpoints:
    """Results are taken in while a batch is being saved, so that neither the crawl nor the database
    waits for the other. Once the next batch is full as well, `add` waits.
    """

    def __init__(self, lease_token: UUID, rpc: Rpc) -> None:
        self._lease_token = lease_token
        self._rpc = rpc
        self._batch = Batch(seq=1)
        # Sent, but not answered; with the wish that went with it.
        self._unanswered: tuple[Batch, protocol.WantTasks] | None = None
        self._saving = asyncio.Lock()
        self._wish: protocol.WantTasks | None = None
        self._due = asyncio.Event()
        self._has_room = asyncio.Event()

    async def add(self, message: protocol.FromRunner) -> None:
        """Take in a result or a wish for URLs; other messages are ignored."""
        if isinstance(message, protocol.WantTasks):
            self._wish = message
            self._due.set()
            return
        self._batch.add(message)
        if self._batch.is_due:
            self._due.set()
        while self._batch.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    async def wait_until_due(self) -> protocol.WantTasks | None:
        """Wait until something has to be saved; return the runner's wish, if it has one."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAVE_SECONDS):
                    await self._due.wait()
            self._due.clear()
            wish, self._wish = self._wish, None
            if wish is not None or self._batch.has_results:
                return wish

    async def save(self, wish: protocol.WantTasks = NO_WISH) -> Checkpoint:
        """Save what was added and lease the URLs of `wish`; an unanswered batch goes first.

        After `ApiUnavailable` call it again with the same wish: the queue answers with the URLs
        that it leased the first time. After `ApiRefused` the batch is dropped, because it would
        be refused again.
        """
        async with self._saving:
            if self._unanswered is not None:
                batch, asked_for = self._unanswered
                is_same = asked_for is wish
                answer = await self._send(batch, wish if is_same else NO_WISH)
                if answer.command in ('cancel', 'lost'):
                    return answer
                if is_same and (wish is not NO_WISH or self._batch.is_empty):
                    return answer
            batch, self._batch = self._batch, Batch(seq=self._batch.seq + 1)
            self._has_room.set()
            return await self._send(batch, wish)

    @property
    def has_unsaved(self) -> bool:
        """Whether something was added, or sent without an answer, since the last save."""
        return self._unanswered is not None or not self._batch.is_empty

    def drop(self) -> None:
        """Discard what was added, because the lease has ended; `add` does not wait any more."""
        self._batch = Batch(seq=self._batch.seq + 1)
        self._has_room.set()

    async def _send(self, batch: 'Batch', wish: protocol.WantTasks) -> Checkpoint:
        self._unanswered = (batch, wish)
        body = batch.as_json()
        if wish.hosts:
            body['want_hosts'] = wish.hosts
        if wish.links:
            body['want_links'] = [str(url_key) for url_key in wish.links]
        try:
            answer = await self._rpc.checkpoint_crawl_job(self._lease_token, body, want=wish.count)
        except ApiRefused:
            self._unanswered = None
            raise
        self._unanswered = None
        return answer


class Batch:
    """Results since the last checkpoint, as `checkpoint_crawl_job` takes them.

    Its bounds are lower than those of the database and the API by the longest message, so that a
    full batch is never refused.
    """

    MAX_RESULTS = 2000
    MAX_DISCOVERED = 40_000
    MAX_BYTES = 4 * 1024 * 1024

    # A batch of this size is saved at once. Only its last message goes beyond `MAX_BYTES`.
    DUE_BYTES = 2 * 1024 * 1024

    def __init__(self, *, seq: int) -> None:
        self.seq = seq
        self.finished: list[protocol.Finished] = []
        self.retried: list[protocol.Retried] = []
        self.discovered: list[protocol.FoundUrl] = []
        self.refused: Counter[protocol.RefusedReason] = Counter()
        self.hosts: list[protocol.HostFact] = []
        self.redirected_starts: list[str] = []
        self.current_url: str | None = None
        self.bytes = 0

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, name) for name in FIELDS)

    @property
    def has_results(self) -> bool:
        return bool(self.finished or self.retried or self.discovered or self.refused or self.hosts)

    @property
    def is_due(self) -> bool:
        return len(self.finished) >= SAVE_PAGES or self.bytes >= self.DUE_BYTES or self.is_full

    @property
    def is_full(self) -> bool:
        return (
            self.bytes >= self.MAX_BYTES
            or len(self.discovered) >= self.MAX_DISCOVERED
            or max(map(len, (self.finished, self.retried, self.hosts))) >= self.MAX_RESULTS
        )

    def add(self, message: protocol.FromRunner) -> None:
        """Keep a result; other messages are ignored."""
        match message:
            case protocol.Finished():
                self.finished.append(message)
                self.bytes += 200 + estimated_bytes(message.page)
            case protocol.Retried():
                self.retried.append(message)
            case protocol.Discovered():
                self.discovered += message.urls
                self.bytes += sum(150 + len(found.url) for found in message.urls)
            case protocol.LinksRefused(counts=counts):
                self.refused.update(counts)
            case protocol.HostFact():
                self.hosts.append(message)
                self.bytes += 200 + len(message.robots_txt or '')
            case protocol.RedirectedStart(url=url):
                # The queue keeps no more than this.
                if len(self.redirected_starts) < MAX_REDIRECTED_STARTS:
                    self.redirected_starts.append(url)
            case protocol.Begun(url=url):
                self.current_url = url
            case _:
                pass

    def as_json(self) -> dict[str, Any]:
        """`p_batch` of `checkpoint_crawl_job`."""
        batch: dict[str, Any] = {'seq': self.seq}
        for name in FIELDS:
            if value := getattr(self, name):
                batch[name] = to_builtins(value, str_keys=True)
        for name in ('finished', 'retried', 'hosts'):
            for entry in batch.get(name, ()):
                del entry['type']
        return batch


def estimated_bytes(page: protocol.Page | None) -> int:
    if page is None:
        return 0
    return 500 + len(page.markdown or '') + 100 * (len(page.links) + len(page.metadata))

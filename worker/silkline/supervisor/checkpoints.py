"""What a runner has sent, on its way to the queue: batched, numbered, saved once.

Owns the batches of one lease and their numbers. One that was cut off on its way, whatever cut it
off, is sent again under its number before any other, so that no link is lost between two pages.
What an answer means for the job is `job_run.py`'s.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NoReturn
from uuid import UUID

from msgspec import to_builtins

from silkline import protocol
from silkline.errors import ApiRefused, ApiUnavailable
from silkline.queue.rows import Checkpoint
from silkline.queue.rpc import Rpc

logger = logging.getLogger(__name__)

TRY_AGAIN_SECONDS = 1.0
# A killed worker takes what is not saved with it: at most so much.
SAVE_SECONDS = 1.0
SAVE_PAGES = 100
MOST_REDIRECTED_STARTS = 100

LOST = Checkpoint(command='lost')
NO_WISH = protocol.WantTasks(count=0)

# Of a batch, beside seq; each is an attribute of `Batch`.
KEYS = (
    'finished',
    'retried',
    'discovered',
    'hosts',
    'redirected_starts',
    'current_url',
)


class Saving:
    """The way of one lease. `is_wanted` says whether saving has a purpose still.

    Results are taken in while others are on their way, so that a crawl and the database work at
    the same time; when the next batch is full as well, `take` waits.
    """

    def __init__(
        self,
        job_id: UUID,
        lease_token: UUID,
        rpc: Rpc,
        *,
        is_wanted: Callable[[], bool],
        on_saved: Callable[[Checkpoint], None],
    ) -> None:
        self.batch = Batch()
        self._job_id = job_id
        self._lease_token = lease_token
        self._rpc = rpc
        self._is_wanted = is_wanted
        self._on_saved = on_saved
        self._seq = 0
        # Sent, and not answered.
        self._open: Batch | None = None
        self._turn = asyncio.Lock()
        # What the runner waits for.
        self._wish: protocol.WantTasks | None = None
        self._due = asyncio.Event()
        self._has_room = asyncio.Event()

    async def take(self, message: protocol.FromRunner) -> bool:
        """Take in a result, or the wish for more; answer whether it was one."""
        if isinstance(message, protocol.WantTasks):
            self._wish = message
            self._due.set()
            return True
        if not self.batch.add(message):
            return False
        if self.batch.is_due:
            self._due.set()
        while self.batch.is_full:
            self._has_room.clear()
            await self._has_room.wait()
        return True

    async def keep_saving(self, answer_runner: Callable[[Checkpoint], Awaitable[None]]) -> NoReturn:
        """Save what is due, and each second what is there. URLs wished for are passed on."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAVE_SECONDS):
                    await self._due.wait()
            self._due.clear()
            wish, self._wish = self._wish, None
            if wish is None and not self.batch.has_results:
                continue
            answer = await self.save(wish or NO_WISH)
            if wish is not None:
                await answer_runner(answer)

    async def save(self, wish: protocol.WantTasks = NO_WISH) -> Checkpoint:
        """Save what has come, and answer the queue's answer; `lost` where it is not wanted."""
        async with self._turn:
            if self._open is not None:
                await self._send(self._open, NO_WISH)
            self._open, self.batch = self.batch, Batch()
            self._has_room.set()
            self._seq += 1
            return await self._send(self._open, wish)

    async def _send(self, batch: 'Batch', wish: protocol.WantTasks) -> Checkpoint:
        body = batch.as_json(self._seq)
        if wish.hosts:
            body['want_hosts'] = wish.hosts
        if wish.links:
            body['want_links'] = [str(url_key) for url_key in wish.links]
        while self._is_wanted():
            try:
                answer = await self._rpc.checkpoint_crawl_job(
                    self._lease_token, body, want=wish.count
                )
            except ApiUnavailable as error:
                logger.warning('job %s: not saved yet: %s', self._job_id, error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            except ApiRefused:
                # It would be refused again; the job fails of it.
                self._open = None
                raise
            else:
                self._open = None
                self._on_saved(answer)
                return answer
        return LOST


class Batch:
    """What a runner has sent since the last checkpoint, as that function takes it.

    Only results are kept; `add` answers whether the message was one. The bounds lie below those
    of the database by the longest message, so that a full batch is never refused.
    """

    MAX_RESULTS = 2000
    MAX_DISCOVERED = 40_000
    MAX_BYTES = 4 * 1024 * 1024

    # How much is saved at once where there is time; `is_full` is what is never exceeded.
    DUE_BYTES = 2 * 1024 * 1024

    def __init__(self) -> None:
        self.finished: list[protocol.Finished] = []
        self.retried: list[protocol.Retried] = []
        self.discovered: list[protocol.FoundUrl] = []
        self.hosts: list[protocol.HostFact] = []
        self.redirected_starts: list[str] = []
        self.current_url: str | None = None
        self.bytes = 0

    @property
    def has_results(self) -> bool:
        return bool(self.finished or self.retried or self.discovered or self.hosts)

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

    def add(self, message: protocol.FromRunner) -> bool:
        match message:
            case protocol.Finished():
                self.finished.append(message)
                self.bytes += 200 + rough_bytes(message.page)
            case protocol.Retried():
                self.retried.append(message)
            case protocol.Discovered():
                self.discovered += message.urls
                self.bytes += sum(150 + len(found.url) for found in message.urls)
            case protocol.HostFact():
                self.hosts.append(message)
                self.bytes += 200 + len(message.robots_txt or '')
            case protocol.RedirectedStart(url=url):
                # The queue keeps no more of them.
                if len(self.redirected_starts) < MOST_REDIRECTED_STARTS:
                    self.redirected_starts.append(url)
            case protocol.Begun(url=url):
                self.current_url = url
            case _:
                return False
        return True

    def as_json(self, seq: int) -> dict[str, Any]:
        """`p_batch` of `checkpoint_crawl_job`."""
        batch: dict[str, Any] = {'seq': seq}
        for key in KEYS:
            if value := getattr(self, key):
                batch[key] = to_builtins(value, str_keys=True)
        for key in ('finished', 'retried', 'hosts'):
            for entry in batch.get(key, ()):
                del entry['type']
        return batch


def rough_bytes(page: protocol.Page | None) -> int:
    if page is None:
        return 0
    return 500 + len(page.markdown or '') + 100 * (len(page.links) + len(page.metadata))

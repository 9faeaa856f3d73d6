"""What a runner has sent, on its way to the queue: batched, numbered, saved once.

Owns the batches of one lease and their numbers. One that was cut off on its way, whatever cut it
off, is sent again under its number before any other, so that no link is lost between two pages.
What an answer means for the job is `job_run.py`'s.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from msgspec import to_builtins

from worker import pipe
from worker.answers import Checkpoint
from worker.errors import ApiRefused, ApiUnavailable
from worker.rpc import Rpc

logger = logging.getLogger(__name__)

TRY_AGAIN_SECONDS = 1.0

LOST = Checkpoint(command='lost')


class Saving:
    """The way of one lease. `is_wanted` says whether saving has a purpose still."""

    def __init__(
        self,
        job_id: UUID,
        lease_token: UUID,
        rpc: Rpc,
        *,
        is_wanted: Callable[[], bool],
        on_saved: Callable[['Batch', Checkpoint], None],
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

    async def save(self, *, want: int) -> Checkpoint:
        """Save what has come, and answer the queue's answer; `lost` where it is not wanted."""
        async with self._turn:
            if self._open is not None:
                await self._send(self._open, want=0)
            self._open, self.batch = self.batch, Batch()
            self._seq += 1
            return await self._send(self._open, want=want)

    async def _send(self, batch: 'Batch', *, want: int) -> Checkpoint:
        body = batch.as_json(self._seq)
        while self._is_wanted():
            try:
                answer = await self._rpc.checkpoint_crawl_job(self._lease_token, body, want=want)
            except ApiUnavailable as error:
                logger.warning('job %s: not saved yet: %s', self._job_id, error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            except ApiRefused:
                # It would be refused again; the job fails of it.
                self._open = None
                raise
            else:
                self._open = None
                self._on_saved(batch, answer)
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

    def __init__(self) -> None:
        self.finished: list[pipe.Finished] = []
        self.retried: list[pipe.Retried] = []
        self.discovered: list[pipe.FoundUrl] = []
        self.hosts: list[pipe.HostFact] = []
        self.want_hosts: list[str] = []
        self.current_url: str | None = None
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        return (
            self.bytes >= self.MAX_BYTES
            or len(self.discovered) >= self.MAX_DISCOVERED
            or max(map(len, (self.finished, self.retried, self.hosts, self.want_hosts)))
            >= self.MAX_RESULTS
        )

    def add(self, message: pipe.FromRunner) -> bool:
        match message:
            case pipe.Finished():
                self.finished.append(message)
                self.bytes += 200 + rough_bytes(message.page)
            case pipe.Retried():
                self.retried.append(message)
            case pipe.Discovered():
                self.discovered += message.urls
                self.bytes += sum(150 + len(found.url) for found in message.urls)
            case pipe.HostFact():
                self.hosts.append(message)
                self.bytes += 200 + len(message.robots_txt or '')
            case pipe.WantHosts():
                self.want_hosts += message.hosts
            case pipe.Progress():
                self.current_url = message.current_url
            case _:
                return False
        return True

    def as_json(self, seq: int) -> dict[str, Any]:
        """`p_batch` of `checkpoint_crawl_job`."""
        batch: dict[str, Any] = {'seq': seq}
        for key in ('finished', 'retried', 'discovered', 'hosts', 'want_hosts', 'current_url'):
            if value := getattr(self, key):
                batch[key] = to_builtins(value, str_keys=True)
        for key in ('finished', 'retried', 'hosts'):
            for entry in batch.get(key, ()):
                del entry['type']
        return batch


def rough_bytes(page: pipe.Page | None) -> int:
    if page is None:
        return 0
    return 500 + len(page.markdown or '') + 100 * (len(page.links) + len(page.metadata))

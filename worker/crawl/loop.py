"""The crawl loop: lease URLs, fetch a bounded number at a time, hand in what came of them.

The database keeps the frontier and decides what is fetched next, what the budget allows and
when the crawl has drained. This module keeps only what is open. How a page is fetched is left
to a `Fetcher`.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import UUID

from worker import pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What came of one URL. With `retry_after_seconds` it is fetched again later."""

    status: Literal['done', 'error', 'skipped']
    http_status: int | None = None
    bytes: int | None = None
    skip_reason: pipe.SkipReason | None = None
    error: str | None = None
    retry_after_seconds: float | None = None
    not_modified: bool | None = None
    page: pipe.Page | None = None
    links: Sequence[str] = field(default_factory=tuple[str, ...])


class Fetcher(Protocol):
    async def fetch(self, task: pipe.Task) -> Fetched:
        """Fetch one URL. An exception here is a bug, and fails the job."""
        ...


class Link(Protocol):
    """The supervisor, as the loop needs it: `worker.crawl.link.Link`."""

    @property
    def command(self) -> pipe.Verdict: ...
    @property
    def leaving(self) -> asyncio.Event: ...
    async def send(self, message: pipe.FromRunner) -> None: ...
    async def want_tasks(self, count: int, *, held: int) -> pipe.Tasks: ...


async def crawl_site(link: Link, fetcher: Fetcher, payload: dict[str, Any]) -> pipe.Done:
    """Crawl until the frontier has drained or the user wants otherwise."""
    crawl = Crawl(
        link,
        fetcher,
        concurrency=int(payload.get('concurrency', 8)),
        max_depth=int(payload.get('max_depth', 20)),
    )
    starts: list[str] = payload.get('urls') or [payload['url']]
    await crawl.discover(starts, depth=0, found_on=None)
    return await crawl.run()


class Crawl:
    """One run over the frontier of a job."""

    def __init__(self, link: Link, fetcher: Fetcher, *, concurrency: int, max_depth: int) -> None:
        self.link = link
        self.fetcher = fetcher
        self.concurrency = concurrency
        self.max_depth = max_depth
        self.ready: asyncio.Queue[pipe.Task] = asyncio.Queue()
        self.open = 0
        self.counts = {'done': 0, 'error': 0, 'skipped': 0, 'retried': 0}
        # Set when a page has ended: there may be new URLs, and there is room for more.
        self.moved = asyncio.Event()

    async def run(self) -> pipe.Done:
        async with asyncio.TaskGroup() as group:
            workers = [
                group.create_task(self.work(), name=f'fetch {number}')
                for number in range(self.concurrency)
            ]
            reason = await self.feed()
            for worker in workers:
                worker.cancel()
        return pipe.Done(reason=reason, result=dict(self.counts))

    async def feed(self) -> Literal['drained', 'pause', 'stop']:
        """Keep the workers in URLs; return when nothing is open and all is handed in."""
        patience_seconds = 0.02
        while True:
            if self.link.leaving.is_set():
                self.drop_ready()
                await self.wait_until_idle()
                # The answer may bring another command: a resumed crawl goes on.
                await self.link.want_tasks(0, held=0)
                if self.link.command in ('pause', 'stop'):
                    return self.link.command
                continue
            self.moved.clear()
            answer = await self.link.want_tasks(2 * self.concurrency - self.held, held=self.held)
            for task in answer.tasks:
                self.ready.put_nowait(task)
            for stored in answer.links:
                links = [link for link in stored.links if isinstance(link, str)]
                await self.discover(links, depth=stored.depth + 1, found_on=stored.url_key)
            if answer.drained and not self.held and not answer.links:
                return 'drained'
            if answer.tasks or answer.links:
                patience_seconds = 0.02
            else:
                # Nothing is due. Pages that end may bring more; otherwise ask now and then.
                due_seconds = answer.next_in_seconds or 0
                await self.wait_for_move(max(patience_seconds, min(due_seconds, 5)))
                patience_seconds = min(2 * patience_seconds, 1)
            while self.held > self.concurrency and not self.link.leaving.is_set():
                self.moved.clear()
                await self.wait_for_move(1)

    @property
    def held(self) -> int:
        return self.open + self.ready.qsize()

    async def wait_for_move(self, seconds: float) -> None:
        """Until a page ends, the user wants something, or the time is over."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.moved, self.link.leaving)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def wait_until_idle(self) -> None:
        while self.open:
            self.moved.clear()
            await self.moved.wait()

    def drop_ready(self) -> None:
        """Leave what was leased and not begun: releasing the job frees it."""
        with contextlib.suppress(asyncio.QueueEmpty):
            while True:
                self.ready.get_nowait()

    async def work(self) -> None:
        while True:
            task = await self.ready.get()
            self.open += 1
            try:
                await self.link.send(pipe.Progress(current_url=task.url, open=self.open))
                await self.hand_in(task, await self.fetcher.fetch(task))
            finally:
                self.open -= 1
                self.moved.set()

    async def hand_in(self, task: pipe.Task, fetched: Fetched) -> None:
        if fetched.retry_after_seconds is not None:
            self.counts['retried'] += 1
            await self.link.send(
                pipe.Retried(
                    url_key=task.url_key,
                    after_seconds=fetched.retry_after_seconds,
                    error=fetched.error or 'failed without a reason',
                    http_status=fetched.http_status,
                )
            )
            return
        # Before Finished: if the process dies in between, the page is fetched again.
        await self.discover(fetched.links, depth=task.depth + 1, found_on=task.url_key)
        self.counts[fetched.status] += 1
        await self.link.send(
            pipe.Finished(
                url_key=task.url_key,
                status=fetched.status,
                http_status=fetched.http_status,
                bytes=fetched.bytes,
                skip_reason=fetched.skip_reason,
                error=fetched.error,
                not_modified=fetched.not_modified,
                page=fetched.page,
            )
        )

    async def discover(self, links: Sequence[str], *, depth: int, found_on: UUID | None) -> None:
        is_too_deep = depth > self.max_depth
        found = [
            pipe.FoundUrl(
                url_key=url_key(link),
                url=link,
                depth=depth,
                found_on=found_on,
                skip_reason='too_deep' if is_too_deep else None,
            )
            for link in dict.fromkeys(links)
        ]
        for first in range(0, len(found), 1000):
            await self.link.send(pipe.Discovered(urls=found[first : first + 1000]))


def url_key(url: str) -> UUID:
    """The 16 bytes a URL is known by. Takes the URL as it is: the engine makes it canonical."""
    return UUID(bytes=hashlib.blake2b(url.encode(), digest_size=16).digest())

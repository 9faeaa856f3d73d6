"""The crawl loop against a queue in memory: what it leases, it ends."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from worker import pipe
from worker.crawl.hosts import Host
from worker.crawl.loop import Crawl


class Queue:
    """Hands each URL out once, as a lease does, and says pause for one call in the middle."""

    def __init__(self, count: int, *, pauses_at: int) -> None:
        self.command: pipe.Verdict = 'continue'
        self.leaving = asyncio.Event()
        self.pending = [
            pipe.Task(url_key=UUID(int=n), url=f'http://a.example/{n}', depth=0, attempts=1)
            for n in range(count)
        ]
        self.held: set[UUID] = set()
        self.unchanged: dict[UUID, Any] = {}
        self.visited: list[int] = []
        self._pauses_at = pauses_at

    async def send(self, message: pipe.FromRunner) -> None: ...

    async def want_tasks(self, wish: pipe.WantTasks) -> pipe.Tasks:
        await asyncio.sleep(0)
        tasks, self.pending = self.pending[: wish.count], self.pending[wish.count :]
        self.held |= {task.url_key for task in tasks}
        if self.leaving.is_set():
            self.command = 'continue'
            self.leaving.clear()
        return pipe.Tasks(
            tasks=tasks, pending=len(self.pending), drained=not self.pending and not self.held
        )

    async def visit(self, host: Host, task: pipe.Task) -> None:
        self.visited.append(task.url_key.int)
        self.held.discard(task.url_key)
        if len(self.visited) == self._pauses_at:
            self.command = 'pause'
            self.leaving.set()

    async def prepare(self, host: Host, known: object, *, scheme: str) -> None:
        host.is_ready = True

    async def begin(self, starts: object) -> None: ...

    def take_redirected_starts(self, urls: object) -> None: ...

    def starts(self, sitemaps: object) -> list[str]:
        return []


def test_a_crawl_that_is_resumed_while_it_hands_in_goes_on_with_the_urls_it_holds() -> None:
    async def run() -> tuple[pipe.Done, Queue]:
        queue = Queue(50, pauses_at=20)
        frontier = SimpleNamespace(
            has_news=False, begin=queue.begin, take_redirected_starts=queue.take_redirected_starts
        )
        options = SimpleNamespace(
            concurrency=8, delay_seconds=0.0, retry_seconds=1.0, strategy='links'
        )
        part = cast('Any', queue)
        crawl = Crawl(
            queue,
            part,
            cast('Any', frontier),
            part,
            part,
            cast('Any', options),
            first_url='http://a.example/',
        )
        async with asyncio.timeout(20):
            return await crawl.run(dict), queue

    done, queue = asyncio.run(run())
    assert done.reason == 'drained'
    assert sorted(queue.visited) == list(range(50))

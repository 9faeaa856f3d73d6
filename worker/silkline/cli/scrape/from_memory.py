"""A crawl without a database: this process runs one runner and answers it from memory.

Owns the frontier of such a crawl: what was found, what is leased, what is retried and when.
Nothing is stored, and nothing is left behind. The runner and its sandbox are those of a worker.
"""

import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any
from uuid import UUID, uuid4

import msgspec

from silkline import protocol
from silkline.errors import SilklineError
from silkline.queue.rows import UrlRow
from silkline.supervisor.job_run import can_render, has_plugins, limits_for
from silkline.supervisor.process import Runner

# A person is waiting: a site that asks for a longer pause is not asked again.
LONGEST_PAUSE_SECONDS = 10.0


class CrawlFailed(SilklineError):
    """The runner failed; the message is its own."""


class MemoryFrontier:
    """The URLs of one crawl, as the checkpoint function would lease them.

    `takes` decides which of the found URLs are fetched.
    """

    def __init__(
        self, takes: Callable[[protocol.FoundUrl], bool], *, max_pages: int | None = None
    ) -> None:
        self._takes = takes
        self._pages_left = max_pages
        # In the order they were found, and without those that the rules skip.
        self.found: dict[UUID, protocol.FoundUrl] = {}
        self._ready: deque[protocol.Task] = deque()
        self._open: dict[UUID, protocol.Task] = {}
        # Tasks to try again, with the time on the monotonic clock.
        self._later: list[tuple[float, protocol.Task]] = []
        self._redirected_starts: list[str] = []

    def discover(self, urls: list[protocol.FoundUrl]) -> list[UrlRow]:
        """Add URLs; returns those that are skipped without being fetched."""
        skipped: list[UrlRow] = []
        for one in urls:
            if one.url_key in self.found:
                continue
            task = protocol.Task(url_key=one.url_key, url=one.url, depth=one.depth)
            if one.skip_reason is not None:
                skipped.append(row_of(task, status='skipped', skip_reason=one.skip_reason))
                continue
            self.found[one.url_key] = one
            if self._takes(one):
                self._ready.append(task)
        return skipped

    def finish(self, message: protocol.Finished) -> UrlRow | None:
        """The row of a URL that has ended; None if it was not leased."""
        task = self._open.pop(message.url_key, None)
        if task is None:
            return None
        return row_of(
            task,
            status=message.status,
            skip_reason=message.skip_reason,
            http_status=message.http_status,
            error=message.error,
        )

    def retry(self, message: protocol.Retried) -> UrlRow | None:
        """Plan another try; returns the row of a URL that ends here, as its pause is too long."""
        task = self._open.pop(message.url_key, None)
        if task is None:
            return None
        if message.after_seconds > LONGEST_PAUSE_SECONDS:
            error = f'{message.error}; the next try would be in {message.after_seconds:.0f} s'
            return row_of(task, status='error', http_status=message.http_status, error=error)
        again = msgspec.structs.replace(task, attempts=task.attempts + 1)
        self._later.append((time.monotonic() + message.after_seconds, again))
        return None

    def redirect_start(self, url: str) -> None:
        self._redirected_starts.append(url)

    def lease(self, count: int) -> Mapping[str, Any]:
        """The fields of a `Tasks`."""
        now = time.monotonic()
        self._ready.extendleft(task for due, task in self._later if due <= now)
        self._later = [(due, task) for due, task in self._later if due > now]
        tasks: list[protocol.Task] = []
        while self._ready and len(tasks) < count and self._pages_left != 0:
            task = self._ready.popleft()
            # A retry is paid for already.
            if self._pages_left is not None and task.attempts == 1:
                self._pages_left -= 1
            self._open[task.url_key] = task
            tasks.append(task)
        if self._pages_left == 0:
            self._ready.clear()
        pending = len(self._ready) + len(self._later)
        return {
            'tasks': tasks,
            'pending': pending,
            'drained': not (pending or self._open),
            'next_in_seconds': min((due for due, _ in self._later), default=now) - now
            if self._later and not self._ready
            else None,
            'redirected_starts': self._redirected_starts,
        }


def row_of(
    task: protocol.Task,
    *,
    status: str,
    skip_reason: str | None = None,
    http_status: int | None = None,
    error: str | None = None,
) -> UrlRow:
    return UrlRow.model_validate(
        {
            'url_key': task.url_key,
            'url': task.url,
            'depth': task.depth,
            'status': status,
            'skip_reason': skip_reason,
            'last_error': error,
            'http_status': http_status,
            'attempts': task.attempts,
            'found_on': None,
            'finished_at': None,
        }
    )


async def crawl_from_memory(
    payload: Mapping[str, Any], frontier: MemoryFrontier, *, allow_networks: tuple[str, ...]
) -> AsyncGenerator[tuple[UrlRow, protocol.Page | None]]:
    """Crawl; yields each URL as it ends, with its page if there is one.

    Leaving the iteration early ends the crawl and its process.
    """
    start = protocol.Start(
        job_id=uuid4(),
        kind='crawl',
        payload=dict(payload),
        limits=limits_for(payload),
        allow_networks=list(allow_networks),
        has_plugins=has_plugins(),
        can_render=can_render(),
    )
    done: protocol.Done | None = None
    while done is None or done.reason == 'render':
        if done is not None:
            # Scripts draw a page: go on in a process that has a browser, as a worker does.
            limits = limits_for(payload, has_browser=True)
            start = msgspec.structs.replace(start, limits=limits, tasks=done.tasks)
        async with aclosing(run_once(start, frontier)) as messages:
            async for message in messages:
                if isinstance(message, protocol.Done):
                    done = message
                else:
                    yield message


async def run_once(
    start: protocol.Start, frontier: MemoryFrontier
) -> AsyncGenerator[tuple[UrlRow, protocol.Page | None] | protocol.Done]:
    """One process of the crawl: its URLs as they end, and how it ended."""
    async with Runner(start) as runner:
        async for message in runner.messages():
            match message:
                case protocol.Discovered(urls=urls):
                    for row in frontier.discover(urls):
                        yield row, None
                case protocol.Finished(page=page):
                    if (row := frontier.finish(message)) is not None:
                        yield row, page
                case protocol.Retried():
                    if (row := frontier.retry(message)) is not None:
                        yield row, None
                case protocol.RedirectedStart(url=url):
                    frontier.redirect_start(url)
                case protocol.WantTasks(count=count):
                    await runner.send_tasks(frontier.lease(count))
                case _:
                    pass
        outcome = await runner.wait()
        if outcome.error_code is not None:
            # Below the first line is the end of the runner's stderr.
            raise CrawlFailed((outcome.error_message or outcome.error_code).partition('\n')[0])
        if outcome.done is not None:
            yield outcome.done

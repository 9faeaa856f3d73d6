"""A small supervisor with its queue in memory, for tests of real runners."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import msgspec

from silkline import protocol
from silkline.linux import processes
from silkline.supervisor.checkpoints import Batch
from silkline.supervisor.outcome import Outcome
from silkline.supervisor.process import Runner
from silkline.supervisor.spawn import default_command
from tests.support.plugins import GENERATED, python_with_generated_site


def start_of(
    *, limits: protocol.Limits | None = None, payload: dict[str, Any] | None = None, **site: Any
) -> protocol.Start:
    """A job over a generated site; the keywords are the options in `generated_site.py`."""
    url = f'https://generated.example/?{urlencode(site)}'
    return protocol.Start(
        job_id=uuid4(),
        kind='crawl',
        payload={**GENERATED, 'url': url, 'concurrency': 4, **(payload or {})},
        limits=limits or protocol.Limits(memory_bytes=256 * 1024 * 1024, stall_seconds=20),
        alive_seconds=0.2,
        # There are no page hooks. The fetcher that the job names is found anyway.
        has_plugins=False,
    )


@dataclass
class Frontier:
    """The frontier of one job, with the rules of `checkpoint_crawl_job` that matter here."""

    max_pages: int = 1_000_000
    command: protocol.Command = 'continue'
    urls: dict[UUID, protocol.FoundUrl] = field(default_factory=dict[UUID, protocol.FoundUrl])
    pending: dict[UUID, int] = field(default_factory=dict[UUID, int])
    in_progress: dict[UUID, int] = field(default_factory=dict[UUID, int])
    ended: dict[UUID, protocol.Finished] = field(default_factory=dict[UUID, protocol.Finished])
    handed_out: Counter[UUID] = field(default_factory=Counter[UUID])
    refused: Counter[str] = field(default_factory=Counter[str])
    checkpoints: int = 0

    def check_in(self, batch: Batch, want: int) -> protocol.Tasks:
        self.checkpoints += 1
        self.refused.update(batch.refused)
        for found in batch.discovered:
            if found.url_key not in self.urls:
                self.urls[found.url_key] = found
                if found.skip_reason is None:
                    self.pending[found.url_key] = 0
        for finished in batch.finished:
            del self.in_progress[finished.url_key]
            assert finished.url_key not in self.ended
            self.ended[finished.url_key] = finished
        for retried in batch.retried:
            self.pending[retried.url_key] = self.in_progress.pop(retried.url_key)
        tasks = self.lease(want) if self.command == 'continue' else []
        return protocol.Tasks(
            tasks=tasks,
            drained=not self.pending and not self.in_progress,
            pending=len(self.pending),
            command=self.command,
        )

    def lease(self, want: int) -> list[protocol.Task]:
        tasks: list[protocol.Task] = []
        for key in list(self.pending):
            attempts = self.pending[key] + 1
            if attempts == 1 and len(self.handed_out) >= self.max_pages:
                del self.pending[key]
            elif len(tasks) < want:
                del self.pending[key]
                self.in_progress[key] = attempts
                self.handed_out[key] += 1
                found = self.urls[key]
                tasks.append(
                    protocol.Task(url_key=key, url=found.url, depth=found.depth, attempts=attempts)
                )
        return tasks

    def release(self) -> None:
        """Return what a runner had leased when it ended."""
        self.pending.update(self.in_progress)
        self.in_progress.clear()


Watcher = Callable[[Runner, protocol.FromRunner], None]


async def supervise(runner: Runner, frontier: Frontier, *, watch: Watcher | None = None) -> Outcome:
    """Serve a runner until it ends, as the worker does; results from before a crash are saved."""
    batch = Batch(seq=1)
    async for message in runner.messages():
        if watch is not None:
            watch(runner, message)
        batch.add(message)
        if isinstance(message, protocol.WantTasks):
            answer = frontier.check_in(batch, message.count)
            batch = Batch(seq=batch.seq + 1)
            await runner.send_tasks(msgspec.to_builtins(answer))
    frontier.check_in(batch, 0)
    outcome = await runner.wait()
    frontier.release()
    return outcome


def runner_of(start: protocol.Start) -> Runner:
    """A runner that has the fetcher `generated`."""
    return Runner(start, command=[python_with_generated_site(), *default_command()[1:]])


async def run_job(
    start: protocol.Start, frontier: Frontier | None = None, *, watch: Watcher | None = None
) -> Outcome:
    async with runner_of(start) as runner:
        return await supervise(runner, frontier or Frontier(), watch=watch)


def crawl(
    start: protocol.Start, frontier: Frontier | None = None, *, watch: Watcher | None = None
) -> Outcome:
    return asyncio.run(run_job(start, frontier, watch=watch))


def open_descriptors() -> set[str]:
    """What this process has open, as number and target."""
    return {f'{path.name} {read_link(path)}' for path in Path('/proc/self/fd').iterdir()}


def read_link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ''


def children_of(pid: int) -> set[int]:
    """The children of a process, zombies included."""
    return {process.pid for process in processes() if process.parent == pid}


def is_running(pid: int) -> bool:
    return any(process.pid == pid and not process.is_zombie for process in processes())

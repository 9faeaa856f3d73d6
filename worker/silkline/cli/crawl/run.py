"""One crawl of `silkline crawl`, from enqueueing its job to exporting its pages.

Owns the order: enqueue the job, start a worker unless another one claims it (`burst_worker.py`),
show progress, print how it ended (`summary.py`), export the pages. Ctrl-C stops the job, and the
worker exits with it.
"""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

from silkline.cli.crawl.burst_worker import BurstWorker
from silkline.cli.crawl.summary import print_summary
from silkline.cli.export.job import export_pages
from silkline.cli.progress_bar import progress_display
from silkline.cli.runtime import print_message
from silkline.cli.watch import watch
from silkline.errors import ApiRefused, ExitCode
from silkline.queue.rows import Progress
from silkline.queue.rpc import Rpc
from silkline.settings import Project
from silkline.supervisor.tasks import side_tasks

# Ahead of all other jobs: a person is waiting.
PRIORITY = 100


class CrawlRun:
    """One job, and the worker that this command starts for it."""

    def __init__(self, rpc: Rpc, project: Project, *, allow_networks: tuple[str, ...]) -> None:
        self._rpc = rpc
        self._project = project
        self._allow_networks = allow_networks
        self._worker = BurstWorker(rpc, project, allow_networks=allow_networks)
        self._interrupted = asyncio.Event()
        self._main: asyncio.Task[object] | None = None

    async def run(
        self, payload: dict[str, object], export: Path | None, *, as_json: bool
    ) -> ExitCode:
        self._main = asyncio.current_task()
        job = await self._rpc.enqueue_crawl_job(
            payload,
            kind='crawl',
            idempotency_key=str(uuid4()),
            # A shared project may have other people's jobs: this one does not overtake them.
            priority=PRIORITY if self._project.is_local else None,
        )
        where = 'the local stack' if self._project.is_local else 'the project of SUPABASE_URL'
        print_message(f'silkline: job {job.id} on {self._project.url}, {where}')
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt)
        try:
            with progress_display(to_stdout=False) as show:
                async with side_tasks(
                    self._worker.run_while_needed(job.id), self._stop_when_interrupted(job.id)
                ):
                    last = await watch(self._rpc, self._project, job.id, show)
        except asyncio.CancelledError:
            print_message(f'silkline: exited at once; silkline show {job.id} shows the job')
            return ExitCode.INTERRUPTED
        finally:
            # No job is left to stop: from here on, Ctrl-C ends the command.
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        if not last.pages_done:
            export = None
        if as_json and export is not None:
            # Before the summary: the JSON object says where the files are.
            await export_pages(self._rpc, job.id, export)
        await print_summary(
            self._rpc,
            last,
            project_url=self._project.url,
            export=export,
            allow_networks=self._allow_networks,
            as_json=as_json,
        )
        if export is not None and not as_json:
            await export_pages(self._rpc, job.id, export)
        return self._exit_code(last)

    def _exit_code(self, last: Progress) -> ExitCode:
        if self._interrupted.is_set():
            return ExitCode.INTERRUPTED
        has_pages = last.status == 'completed' and last.pages_done > 0
        return ExitCode.OK if has_pages else ExitCode.NOT_COMPLETED

    def _interrupt(self) -> None:
        """Stop the job; the second time, exit at once."""
        if not self._interrupted.is_set():
            self._interrupted.set()
            return
        self._worker.kill()
        if self._main is not None:
            self._main.cancel()

    async def _stop_when_interrupted(self, job_id: UUID) -> None:
        await self._interrupted.wait()
        print_message('silkline: stopping; stored pages are kept (Ctrl-C again exits at once)')
        # Refused if the job has just ended.
        with suppress(ApiRefused):
            await self._rpc.stop_crawl_job(job_id)

"""One crawl of `silkline crawl`, from the first moment of its job to the last.

Owns the order: the job is enqueued, a worker started unless one takes it (`own_worker.py`),
progress shown, the end told (`crawl_summary.py`), the pages exported. Ctrl-C stops the job, and
the worker ends with it.
"""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

from silkline.cli import output
from silkline.cli.commands.jobs import shown
from silkline.cli.commands.pages import export_pages
from silkline.cli.crawl.burst_worker import OwnWorker
from silkline.cli.crawl.summary import print_summary
from silkline.cli.watch import watch
from silkline.errors import ApiRefused, ExitCode
from silkline.queue.rows import Progress
from silkline.queue.rpc import Rpc
from silkline.settings import Project
from silkline.supervisor.tasks import beside

# Before all that waits: somebody sits before it.
PRIORITY = 100


class Crawl:
    """One job from its first moment to its last, with a worker of its own if need be."""

    def __init__(self, rpc: Rpc, project: Project, *, allow_networks: tuple[str, ...]) -> None:
        self._rpc = rpc
        self._project = project
        self._allow_networks = allow_networks
        self._worker = OwnWorker(rpc, project, allow_networks=allow_networks)
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
            # Others' jobs are not overtaken where there are others.
            priority=PRIORITY if self._project.is_local else None,
        )
        kept = 'the local stack' if self._project.is_local else 'the project of SUPABASE_URL'
        output.say(f'silkline: job {job.id} on {self._project.url}, {kept}')
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt)
        try:
            with shown(as_json=False, as_data=False) as show:
                last = await beside(
                    watch(self._rpc, self._project, job.id, show),
                    self._worker.keep(job.id),
                    self._stop_when_interrupted(job.id),
                )
        except asyncio.CancelledError:
            output.say(f'silkline: ended at once; silkline show {job.id} tells what became of it')
            return ExitCode.INTERRUPTED
        finally:
            # There is no job left to stop: from here on Ctrl-C ends the command.
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        if not last.pages_done:
            export = None
        if as_json and export is not None:
            # First: the object says where the files are.
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
        is_good = last.status == 'completed' and last.pages_done > 0
        return ExitCode.OK if is_good else ExitCode.NOT_COMPLETED

    def _interrupt(self) -> None:
        """Stop the job; the second time, end at once."""
        if not self._interrupted.is_set():
            self._interrupted.set()
            return
        self._worker.kill()
        if self._main is not None:
            self._main.cancel()

    async def _stop_when_interrupted(self, job_id: UUID) -> None:
        await self._interrupted.wait()
        output.say('silkline: stopping; what was crawled is kept (Ctrl-C again ends at once)')
        with suppress(ApiRefused):
            # Refused if it has ended meanwhile.
            await self._rpc.stop_crawl_job(job_id)

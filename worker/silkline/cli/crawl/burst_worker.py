"""The worker that `silkline crawl` starts, for as long as its job needs one.

Owns when it runs: the job is pending and due, and no other worker claims it. Prints the worker's
warnings. The worker has its own session, so Ctrl-C in the terminal does not reach it: the job is
stopped before the worker.
"""

import asyncio
import json
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, cast
from uuid import UUID

from silkline.cli.runtime import print_message
from silkline.cli.terminal import printable
from silkline.errors import ExitCode, SilklineError
from silkline.settings import Project

if TYPE_CHECKING:
    from silkline.queue.rpc import Rpc

# A live worker hears of a new job at once. One that was killed still counts as live for a while.
CLAIM_SECONDS = 1.5
POLL_SECONDS = 0.2
# Between two checks of a job that cannot run yet.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0
MAX_KILLS = 3
# The worker's grace period (20 s) and a margin.
EXIT_SECONDS = 25.0
LONGEST_LINE_BYTES = 1024 * 1024


class BurstWorker:
    def __init__(self, rpc: 'Rpc', project: Project, *, allow_networks: tuple[str, ...]) -> None:
        self._rpc = rpc
        self._project = project
        self._allow_networks = allow_networks
        self._process: asyncio.subprocess.Process | None = None
        self._reported: set[str] = set()

    async def run_while_needed(self, job_id: UUID) -> NoReturn:
        """Run a worker whenever the job is pending and no other worker claims it."""
        pause, kills = FIRST_PAUSE_SECONDS, 0
        if not self._allow_networks:
            await self._wait_for_other_workers(job_id)
        while True:
            progress = await self._rpc.crawl_progress(job_id)
            if progress.status == 'pending':
                await self._report_waits(job_id)
                if progress.run_after <= progress.now and await self._may_start():
                    code = await self._run()
                    while code < 0 and kills < MAX_KILLS:
                        # The next worker releases the job of the killed one and continues it.
                        kills += 1
                        print_message('silkline: the worker was killed; starting another one')
                        code = await self._run()
                    if code != 0:
                        raise WorkerFailed(code)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def kill(self) -> None:
        """End it at once; the next worker on this machine releases its job."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _wait_for_other_workers(self, job_id: UUID) -> None:
        if not await self._has_other_workers():
            return
        deadline = time.monotonic() + CLAIM_SECONDS
        while time.monotonic() < deadline:
            if (await self._rpc.crawl_progress(job_id)).status != 'pending':
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _may_start(self) -> bool:
        """Not in a shared project that has workers: a worker here would claim any of its jobs."""
        if self._project.is_local or not await self._has_other_workers():
            return True
        self._report_once('the workers of the project are busy')
        return False

    async def _has_other_workers(self) -> bool:
        workers = await self._rpc.list_crawl_workers()
        return any(worker.state == 'live' for worker in workers)

    async def _report_waits(self, job_id: UUID) -> None:
        explanation = await self._rpc.explain_crawl_job(job_id)
        for reason in explanation.reasons:
            if reason.code not in ('no_worker', 'in_line'):
                self._report_once(reason.text)

    def _report_once(self, reason: str) -> None:
        if reason not in self._reported:
            self._reported.add(reason)
            print_message(f'silkline: waiting: {printable(reason)}')

    async def _run(self) -> int:
        """Run a worker until it has nothing left to do; return its exit code.

        Cancelling this stops the worker.
        """
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            # -P: a file in the current directory, such as queue.py, must not shadow a module.
            '-P',
            '-m',
            'silkline',
            'worker',
            '--burst',
            '--slots=1',
            '--log-level=warning',
            '--log-format=json',
            *(f'--allow-network={network}' for network in self._allow_networks),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE_BYTES,
            start_new_session=True,
        )
        process = self._process
        try:
            async for line in cast(asyncio.StreamReader, process.stderr):
                print_message(printable(format_log_line(line.decode(errors='replace').rstrip())))
            return await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    async with asyncio.timeout(EXIT_SECONDS):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()


def format_log_line(line: str) -> str:
    """A JSON line of the worker's log as a message, without the job's id: there is one job."""
    try:
        entry = json.loads(line)
        text, traceback = entry['message'], entry.get('exception')
    except (ValueError, TypeError, KeyError):
        # Not from the log: printed by a process that could not start.
        return line
    prefix = f'job {entry.get("job")}: '
    return '\n'.join([f'silkline: {text.removeprefix(prefix)}', *filter(None, [traceback])])


class WorkerFailed(SilklineError):
    """The worker that the command started failed; its own messages were printed before."""

    def __init__(self, code: int) -> None:
        super().__init__(
            f'the worker exited with {code}; the job is still queued: silkline worker runs it'
        )
        with suppress(ValueError):
            self.exit_code = ExitCode(code)

"""The worker that `silkline crawl` starts, as long as its job needs one.

Owns when: the job is in line, it is due, and no worker that is there takes it. What is heard of it
are its warnings; Ctrl-C in the terminal does not reach it, so that a job is stopped before it.
"""

import asyncio
import json
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, cast
from uuid import UUID

from silkline.errors import ExitCode, SilklineError
from silkline.settings import Project

if TYPE_CHECKING:
    from silkline.queue.rpc import Rpc

# A worker that is there is told of a new job at once; one that is gone looks alive for a while.
CLAIM_SECONDS = 1.5
POLL_SECONDS = 0.2
# Between two looks at a job that nobody can run yet.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0
MOST_KILLS = 3
# The worker's own grace, and some more.
END_SECONDS = 25.0
LONGEST_LINE_BYTES = 1024 * 1024


class OwnWorker:
    def __init__(self, rpc: 'Rpc', project: Project, *, allow_networks: tuple[str, ...]) -> None:
        self._rpc = rpc
        self._project = project
        self._allow_networks = allow_networks
        self._process: asyncio.subprocess.Process | None = None
        self._told: set[str] = set()

    async def keep(self, job_id: UUID) -> NoReturn:
        """Have a worker whenever the job is in line and nobody takes it."""
        from silkline.cli import output

        pause, kills = FIRST_PAUSE_SECONDS, 0
        if not self._allow_networks:
            await self._wait_for_others(job_id)
        while True:
            progress = await self._rpc.crawl_progress(job_id)
            if progress.status == 'pending':
                await self._tell_why(job_id)
                if progress.run_after <= progress.now and await self._may_start():
                    code = await self._run()
                    while code < 0 and kills < MOST_KILLS:
                        # The next one hands its job back, and goes on where it was.
                        kills += 1
                        output.say('silkline: the worker was killed; another one goes on')
                        code = await self._run()
                    if code != 0:
                        raise WorkerFailed(code)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def kill(self) -> None:
        """End it without a word; the next worker on this machine hands its job back."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _wait_for_others(self, job_id: UUID) -> None:
        if not await self._has_others():
            return
        deadline = time.monotonic() + CLAIM_SECONDS
        while time.monotonic() < deadline:
            if (await self._rpc.crawl_progress(job_id)).status != 'pending':
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _may_start(self) -> bool:
        """A project that has workers is not given one of this machine, which would take any job."""
        if self._project.is_local or not await self._has_others():
            return True
        self._tell_once('the workers of the project are busy')
        return False

    async def _has_others(self) -> bool:
        workers = await self._rpc.list_crawl_workers()
        return any(worker.state == 'live' for worker in workers)

    async def _tell_why(self, job_id: UUID) -> None:
        explanation = await self._rpc.explain_crawl_job(job_id)
        for reason in explanation.reasons:
            if reason.code not in ('no_worker', 'in_line'):
                self._tell_once(reason.text)

    def _tell_once(self, reason: str) -> None:
        from silkline.cli import output
        from silkline.cli.terminal import plain

        if reason not in self._told:
            self._told.add(reason)
            output.say(f'silkline: waiting: {plain(reason)}')

    async def _run(self) -> int:
        """A worker until nothing is left to do, or until this is cancelled; its exit code."""
        from silkline.cli import output
        from silkline.cli.terminal import plain

        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            # -P: a project may have a module of its own called worker.
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
            # Ctrl-C in the terminal is this process's to pass on: the job stops before its worker.
            start_new_session=True,
        )
        process = self._process
        try:
            async for line in cast(asyncio.StreamReader, process.stderr):
                output.say(plain(said(line.decode(errors='replace').rstrip())))
            return await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    async with asyncio.timeout(END_SECONDS):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()


def said(line: str) -> str:
    """What a line of the worker's log says to somebody who knows which job it is about."""
    try:
        entry = json.loads(line)
        text, traceback = entry['message'], entry.get('exception')
    except (ValueError, TypeError, KeyError):
        # Not logged: told by a process that could not start.
        return line
    about_job = f'job {entry.get("job")}: '
    return '\n'.join([f'silkline: {text.removeprefix(about_job)}', *filter(None, [traceback])])


class WorkerFailed(SilklineError):
    """The worker that the command started could not work; what it said stands above."""

    def __init__(self, code: int) -> None:
        super().__init__(f'the worker ended with {code}; the job stays in line: silkline worker')
        with suppress(ValueError):
            self.exit_code = ExitCode(code)

"""The worker: claims jobs, runs each in its own process, keeps their leases, releases them.

The flow, from the command to the database: `cli/commands/worker.py` → `Worker.run` →
`Worker._claim` → `Rpc.claim_crawl_jobs` → the SQL function of that name (supabase/migrations,
silkline_claim; its head is the map of the SQL side). A claimed job becomes a `JobRun`
(`job_run.py`), which talks to its process (`process.py`). One heartbeat renews all leases. Realtime
delivers wake-ups and commands sooner; without it, polling finds them.

The database decides who owns a job. A worker that cannot reach it for so long that its leases may
have expired kills its own processes.
"""

import asyncio
import logging
import os
import random
import signal
import socket
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast
from uuid import UUID, uuid4

from silkline import __version__, linux
from silkline.errors import ApiRefused, ExitCode, SilklineError
from silkline.protocol import Command
from silkline.queue.realtime import listen
from silkline.queue.rows import ClaimedJob, HeartbeatSettings
from silkline.queue.rpc import UNREADABLE, Rpc
from silkline.settings import Project
from silkline.supervisor.completions import Completions
from silkline.supervisor.job_run import JobRun, can_render
from silkline.supervisor.lease_files import LeaseFiles
from silkline.supervisor.metrics import Metrics
from silkline.supervisor.spawn import Spare, kill_orphans
from silkline.supervisor.tasks import side_tasks

logger = logging.getLogger(__name__)

FIRST_POLL_SECONDS = 1.0
# A wake-up may arrive some milliseconds before its job is visible.
WOKEN_POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 5.0
# A worker that cannot reach the API gives its jobs up this long before their leases can expire.
MARGIN_SECONDS = 15.0
# A wrong address should be reported at once; a worker that has started retries for ever.
START_PATIENCE_SECONDS = 3.0
# For what is left after the grace period: an unanswered claim, jobs that were not released.
LAST_CALL_SECONDS = 2.0
COMMANDS: tuple[Command, ...] = ('pause', 'stop', 'cancel')


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    slots: int = 4
    kinds: tuple[str, ...] | None = None
    grace_seconds: float = 20.0
    # Exit when there is nothing left to claim, or after one job.
    ends_when_idle: bool = False
    ends_after_one: bool = False
    lease_directory: Path = Path('.')
    metrics_host: str = '127.0.0.1'
    metrics_port: int | None = None
    # Networks that crawls may reach besides the public internet.
    allow_networks: tuple[str, ...] = ()


class Worker:
    def __init__(self, project: Project, options: WorkerOptions) -> None:
        self.id = uuid4()
        self.project = project
        self.options = options
        self.lease_files = LeaseFiles(options.lease_directory)
        self.metrics = Metrics(slots=options.slots)
        self._completions = Completions()
        self._spare = Spare()
        self.runs: dict[UUID, JobRun] = {}
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        # Tokens of a claim that was not answered; sent again until it is.
        self._open_tokens: list[UUID] = []
        # Tokens of jobs whose end could not be written.
        self._left_tokens: set[UUID] = set()
        self._is_stopping = False
        self._is_trusted = False
        self._has_claimed = False
        self._claiming: asyncio.Timeout | None = None
        self._wake = asyncio.Event()
        self._poll_seconds = FIRST_POLL_SECONDS
        self._heartbeat_settings = HeartbeatSettings()

    async def run(self) -> None:
        """Claim and run jobs until told to stop, or until there is nothing left to do."""
        async with self._started() as rpc:
            while not self._is_stopping:
                self._wake.clear()
                jobs = await self._claim(rpc)
                if self._is_finished(jobs):
                    break
                await self._wait_for_work(has_claimed=bool(jobs))
            await self._finish_jobs()
        logger.info('worker %s: stopped', self.id)

    def stop(self) -> None:
        """Stop claiming and release the jobs; the second time, exit at once."""
        if self._is_stopping:
            # Runners die with this process. The next worker on this machine releases their jobs.
            logger.warning('worker %s: exiting at once', self.id)
            os._exit(ExitCode.INTERRUPTED)
        logger.info('worker %s: stopping, %d jobs to release', self.id, len(self.runs))
        self._is_stopping = True
        self._wake.set()
        if self._claiming is not None:
            self._claiming.reschedule(asyncio.get_running_loop().time() + LAST_CALL_SECONDS)

    @asynccontextmanager
    async def _started(self) -> AsyncGenerator[Rpc]:
        """Everything around the claims: metrics, lease file, heartbeat, Realtime, shutdown."""
        # The key is in the environment of this process; its runners have the same account.
        linux.hide_environment()
        linux.adopt_orphans()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        async with AsyncExitStack() as stack:
            if self.options.metrics_port is not None:
                # Imported here: a worker without metrics does not pay for an HTTP server.
                from silkline.supervisor.metrics_server import serve_metrics

                port = await stack.enter_async_context(
                    serve_metrics(
                        self.metrics, self.options.metrics_port, host=self.options.metrics_host
                    )
                )
                logger.info('worker %s: metrics on port %d', self.id, port)
            stack.enter_context(self.lease_files.held(self.id))
            async with Rpc(self.project, patience_seconds=START_PATIENCE_SECONDS) as rpc:
                self._heartbeat_settings = await rpc.read_heartbeat_settings()
                await self._release_abandoned_leases(rpc)
            logger.info('worker %s: %d slots, %s', self.id, self.options.slots, self.project.url)
            async with Rpc(self.project, on_call=self.metrics.time_call) as rpc:
                try:
                    async with side_tasks(
                        self._keep_leases(),
                        self._drop_expiring_leases(),
                        self._listen(),
                        self._completions.run(rpc),
                    ):
                        yield rpc
                finally:
                    await self._cancel_jobs()
                    self._spare.drop()
            await self._deregister()

    async def _claim(self, rpc: Rpc) -> list[ClaimedJob] | None:
        """Fill the free slots; return what was claimed, or None if that is not known."""
        free = self.options.slots - len(self.runs)
        if self.options.ends_after_one:
            free = min(free, 0 if self._has_claimed else 1)
        if free <= 0:
            return []
        while len(self._open_tokens) < free:
            self._open_tokens.append(uuid4())
        tokens = self._open_tokens[:free]
        # Before the claim: if the worker is killed now, its successor knows the leases.
        self._write_lease_file()
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(None) as self._claiming:
                try:
                    jobs = await rpc.claim_crawl_jobs(
                        self.id, tokens, kinds=self.options.kinds, can_render=can_render()
                    )
                except ApiRefused as error:
                    if error.code != UNREADABLE:
                        raise
                    jobs = await self._claim_readable(rpc, tokens)
        except (SilklineError, TimeoutError) as error:
            if isinstance(error, ApiRefused) and not self._is_trusted:
                raise
            reason = str(error) or 'no answer before the worker stopped'
            logger.warning('worker %s: cannot claim: %s', self.id, reason)
            return None
        finally:
            self._claiming = None
        self._is_trusted = True
        self.metrics.count_claimed(len(jobs))
        self._open_tokens.clear()
        for job in jobs:
            self._start(job, rpc, leased_at=asked_at)
        self._write_lease_file()
        await self._keep_spare()
        return jobs

    async def _claim_readable(self, rpc: Rpc, tokens: Sequence[UUID]) -> list[ClaimedJob]:
        """Claim one by one, and fail the jobs that cannot be parsed rather than claim them again.

        The same token brings the same job.
        """
        jobs: list[ClaimedJob] = []
        for token in tokens:
            try:
                jobs += await rpc.claim_crawl_jobs(
                    self.id, [token], kinds=self.options.kinds, can_render=can_render()
                )
            except ApiRefused as error:
                if error.code != UNREADABLE:
                    raise
                logger.error('worker %s: claimed a job that cannot be parsed', self.id)
                await rpc.fail_crawl_job(
                    token,
                    error_code='payload',
                    error_message=f'a worker cannot parse this job: {error.message}',
                    is_retryable=False,
                )
        return jobs

    def _start(self, job: ClaimedJob, rpc: Rpc, *, leased_at: float) -> None:
        run = JobRun(
            job,
            rpc,
            leased_at=leased_at,
            metrics=self.metrics,
            completions=self._completions,
            spare=self._spare,
            allow_networks=self.options.allow_networks,
        )
        self._has_claimed = True
        self.runs[run.lease_token] = run
        self.metrics.set_busy_slots(len(self.runs))
        self._tasks[run.lease_token] = asyncio.create_task(self._run(run), name=f'job {job.id}')

    async def _run(self, run: JobRun) -> None:
        """The boundary of a job: an error in it does not affect the others."""
        try:
            await run.run()
        except Exception:
            logger.exception('job %s: failed in this worker; its lease will expire', run.job.id)
        finally:
            if not run.is_over:
                self._left_tokens.add(run.lease_token)
            del self.runs[run.lease_token]
            self.metrics.set_busy_slots(len(self.runs))
            del self._tasks[run.lease_token]
            self._write_lease_file()
            self._wake.set()

    async def _keep_spare(self) -> None:
        """While a slot is free, keep a process ready: the next job does not wait for a start."""
        # The jobs just claimed start first and take the one there is.
        await asyncio.sleep(0)
        is_last = self.options.ends_after_one or self.options.ends_when_idle
        if len(self.runs) < self.options.slots and not (is_last or self._is_stopping):
            self._spare.keep()

    def _is_finished(self, claimed: list[ClaimedJob] | None) -> bool:
        if self.runs:
            return False
        is_idle = claimed == [] and self.options.ends_when_idle
        return is_idle or (self._has_claimed and self.options.ends_after_one)

    async def _wait_for_work(self, *, has_claimed: bool) -> None:
        """Wait for a wake-up or the next poll; an idle worker polls less and less often."""
        if has_claimed:
            self._poll_seconds = FIRST_POLL_SECONDS
        try:
            # With jitter: workers that started together do not poll together.
            seconds = self._poll_seconds * random.uniform(0.7, 1.0)  # noqa: S311 - no secret
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            growth = 1.5 if self._poll_seconds >= FIRST_POLL_SECONDS else 5
            self._poll_seconds = min(self._poll_seconds * growth, LONGEST_POLL_SECONDS)
        else:
            self._poll_seconds = WOKEN_POLL_SECONDS

    async def _keep_leases(self) -> NoReturn:
        """Renew every lease, and pass on what the users want of each job."""
        every = self._heartbeat_settings.heartbeat_every_seconds
        async with Rpc(self.project, patience_seconds=every, on_call=self.metrics.time_call) as rpc:
            while True:
                # Timed from before the call: a slow answer must not make a lease look longer
                # here than it is in the database.
                asked_at = time.monotonic()
                try:
                    leases = await rpc.heartbeat_crawl_jobs(
                        self.id, list(self.runs), worker=self._about()
                    )
                except SilklineError as error:
                    self.metrics.note_missed_heartbeat()
                    logger.warning('worker %s: heartbeat failed: %s', self.id, error)
                    await asyncio.sleep(FIRST_POLL_SECONDS)
                    continue
                self.metrics.note_heartbeat(asked_at)
                for lease in leases:
                    if (run := self.runs.get(lease.lease_token)) is not None:
                        run.renewed_at = asked_at
                        run.obey(lease.command)
                kill_orphans()
                await asyncio.sleep(every)

    async def _drop_expiring_leases(self) -> NoReturn:
        """Kill what runs on a lease that may be about to expire, even while a heartbeat hangs."""
        stale_after = self._heartbeat_settings.stale_after_seconds
        patience = stale_after - min(MARGIN_SECONDS, stale_after / 4)
        self.metrics.longest_silence_seconds = patience
        while True:
            for run in self.runs.values():
                if time.monotonic() - run.renewed_at >= patience:
                    run.obey('lost')
            await asyncio.sleep(min(1.0, patience / 10))

    def _about(self) -> Mapping[str, object]:
        return {
            'hostname': socket.gethostname(),
            'version': __version__,
            'slots': self.options.slots,
            'busy_slots': len(self.runs),
            'can_render': can_render(),
            **({'kinds': list(self.options.kinds)} if self.options.kinds else {}),
        }

    async def _listen(self) -> None:
        await listen(self.project, 'crawl_workers', self._on_broadcast, on_joined=lambda _: None)

    def _on_broadcast(self, event: str, payload: Mapping[str, Any]) -> None:
        if event == 'wake':
            self._wake.set()
        elif event == 'command' and payload.get('command') in COMMANDS:
            for run in self.runs.values():
                if str(run.job.id) == payload.get('job_id'):
                    run.obey(cast(Command, payload['command']))

    async def _finish_jobs(self) -> None:
        """Let the crawls save and release their jobs, for as long as the grace period lasts."""
        if not self._tasks:
            return
        grace = self.options.grace_seconds
        for run in self.runs.values():
            run.shut_down(within_seconds=max(grace - 5, grace / 2))
        _, late = await asyncio.wait(self._tasks.values(), timeout=grace)
        if late:
            logger.warning('worker %s: %d jobs were not released in time', self.id, len(late))

    async def _cancel_jobs(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _deregister(self) -> None:
        """Release what is left, in one last try, and leave the list of workers.

        Leases that cannot be released stay in the lease file for the next worker here.
        """
        self._left_tokens.update(self._open_tokens)
        self._open_tokens.clear()
        async with Rpc(self.project, patience_seconds=LAST_CALL_SECONDS) as rpc:
            with suppress(TimeoutError, SilklineError):
                async with asyncio.timeout(LAST_CALL_SECONDS):
                    # Concurrently, so that each is tried, however long another takes.
                    await asyncio.gather(*(self._release(rpc, left) for left in self._left_tokens))
                    await rpc.heartbeat_crawl_jobs(self.id, [], worker={'has_ended': True})
        if self._left_tokens:
            count = len(self._left_tokens)
            logger.warning(
                'worker %s: cannot release %d leases; the next worker on this machine will',
                self.id,
                count,
            )
        self._write_lease_file()

    async def _release(self, rpc: Rpc, token: UUID) -> None:
        try:
            await rpc.release_crawl_job(token, reason='shutdown')
        except SilklineError as error:
            logger.warning('worker %s: cannot release a lease: %s', self.id, error)
            return
        self._left_tokens.discard(token)

    async def _release_abandoned_leases(self, rpc: Rpc) -> None:
        for path, tokens in self.lease_files.abandoned().items():
            for token in tokens:
                for lease in await rpc.release_crawl_job(token, reason='worker_restarted'):
                    if lease.status == 'pending':
                        logger.info('job %s: released for a killed worker', lease.job_id)
            path.unlink(missing_ok=True)

    def _write_lease_file(self) -> None:
        self.lease_files.write([*self.runs, *self._left_tokens, *self._open_tokens])

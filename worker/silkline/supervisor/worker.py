"""The worker: claims jobs, runs each in a process of its own, keeps their leases, hands back.

The flow, from the command to the database: `cli.main` → `Worker.run` → `rpc.claim_crawl_jobs` → the
function of that name (supabase/migrations, crawl_claim; its head is the map of the SQL side). A
claimed job becomes a `JobRun` (`job_run.py`), which talks to its process (`process.py`). Beside the
slots beats one heart for all leases, and Realtime (`live.py`) brings wake-ups and commands sooner;
without it everything is found by asking.

The database decides who owns a job. A worker that cannot reach it for so long that its leases may
have ended, ends its own processes.
"""

import asyncio
import logging
import os
import random
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast
from uuid import UUID, uuid4

from silkline import __version__
from silkline.errors import ApiRefused, ExitCode, SilklineError
from silkline.queue.realtime import Publisher, listen
from silkline.queue.rows import Command, Job, Pace
from silkline.queue.rpc import UNREADABLE, Rpc
from silkline.runner import isolation
from silkline.settings import Project
from silkline.supervisor.job_run import JobRun
from silkline.supervisor.lease_file import State
from silkline.supervisor.metrics import Metrics, serve
from silkline.supervisor.spawn import Spare, end_orphans
from silkline.supervisor.tasks import beside

logger = logging.getLogger(__name__)

FIRST_POLL_SECONDS = 1.0
# A wake-up may come some milliseconds before the job it tells of can be seen.
CALLED_POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 5.0
# How long before a lease can end a worker that is out of touch gives its job up.
MARGIN_SECONDS = 15.0
# A wrong address is to be seen at once; a worker that has begun tries for ever.
START_PATIENCE_SECONDS = 3.0
# What is left after the grace: a claim without an answer, jobs that were not handed in.
LAST_CALL_SECONDS = 2.0
COMMANDS: tuple[Command, ...] = ('pause', 'stop', 'cancel')


@dataclass(frozen=True, slots=True)
class Options:
    slots: int = 4
    kinds: tuple[str, ...] | None = None
    grace_seconds: float = 20.0
    # Until nothing is left to claim, or after one job.
    ends_when_idle: bool = False
    ends_after_one: bool = False
    state_directory: Path = Path('.')
    metrics_host: str = '127.0.0.1'
    metrics_port: int | None = None
    # Networks that crawls may reach beside the public one.
    allow_networks: tuple[str, ...] = ()


class Worker:
    def __init__(self, project: Project, options: Options) -> None:
        self.id = uuid4()
        self.project = project
        self.options = options
        self.state = State(options.state_directory)
        self.metrics = Metrics(slots=options.slots)
        self._publisher = Publisher(project)
        self._spare = Spare()
        self.runs: dict[UUID, JobRun] = {}
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        # Sent with a claim that was not answered; sent again, until it is.
        self._open_tokens: list[UUID] = []
        # Of jobs whose end could not be written.
        self._left_tokens: set[UUID] = set()
        self._is_stopping = False
        self._is_trusted = False
        self._has_claimed = False
        self._claiming: asyncio.Timeout | None = None
        self._wake = asyncio.Event()
        self._pace = Pace()

    async def run(self) -> None:
        """Work until told to stop, or until there is nothing left to do."""
        # The key is in this process's environment; its runners have the same account.
        isolation.hide_environment()
        isolation.adopt_orphans()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        async with AsyncExitStack() as stack:
            if self.options.metrics_port is not None:
                port = await stack.enter_async_context(
                    serve(self.metrics, self.options.metrics_port, host=self.options.metrics_host)
                )
                logger.info('worker %s: metrics on port %d', self.id, port)
            stack.enter_context(self.state.held(self.id))
            async with Rpc(self.project, patience_seconds=START_PATIENCE_SECONDS) as rpc:
                self._pace = await rpc.read_pace()
                await self._hand_back_for_predecessors(rpc)
            logger.info('worker %s: %d slots, %s', self.id, self.options.slots, self.project.url)
            async with Rpc(self.project, on_call=self.metrics.time_call) as rpc:
                try:
                    await beside(
                        self._work(rpc),
                        self._beat(),
                        self._give_up_in_time(),
                        self._listen(),
                        self._publisher.run(),
                    )
                finally:
                    await self._end_jobs()
                    self._spare.drop()
            await self._say_goodbye()
        logger.info('worker %s: stopped', self.id)

    def stop(self) -> None:
        """Stop claiming and hand in; the second time, end at once."""
        if self._is_stopping:
            # Runners end with this process. The next worker here hands their jobs back.
            logger.warning('worker %s: ending at once', self.id)
            os._exit(ExitCode.INTERRUPTED)
        logger.info('worker %s: stopping, %d jobs to hand in', self.id, len(self.runs))
        self._is_stopping = True
        self._wake.set()
        if self._claiming is not None:
            self._claiming.reschedule(asyncio.get_running_loop().time() + LAST_CALL_SECONDS)

    async def _work(self, rpc: Rpc) -> None:
        await self._claim_until_stopped(rpc)
        await self._hand_in()

    async def _claim_until_stopped(self, rpc: Rpc) -> None:
        poll = FIRST_POLL_SECONDS
        while not self._is_stopping:
            self._wake.clear()
            claimed = await self._claim(rpc)
            if claimed:
                poll = FIRST_POLL_SECONDS
            if claimed == [] and not self.runs and self.options.ends_when_idle:
                return
            if self._has_claimed and self.options.ends_after_one and not self.runs:
                return
            try:
                # With jitter: workers that were started together do not ask together.
                seconds = poll * random.uniform(0.7, 1.0)  # noqa: S311 - no secret
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                growth = 1.5 if poll >= FIRST_POLL_SECONDS else 5
                poll = min(poll * growth, LONGEST_POLL_SECONDS)
            else:
                poll = CALLED_POLL_SECONDS

    async def _claim(self, rpc: Rpc) -> list[Job] | None:
        """Fill the free slots; answer what was claimed, or nothing if that is not known."""
        free = self.options.slots - len(self.runs)
        if self.options.ends_after_one:
            free = min(free, 0 if self._has_claimed else 1)
        if free <= 0:
            return []
        while len(self._open_tokens) < free:
            self._open_tokens.append(uuid4())
        tokens = self._open_tokens[:free]
        # Before the claim: a worker killed now leaves a note of leases that it may have.
        self._note_tokens()
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(None) as self._claiming:
                jobs = await self._claim_readable(rpc, tokens)
        except (SilklineError, TimeoutError) as error:
            if isinstance(error, ApiRefused) and not self._is_trusted:
                raise
            logger.warning('worker %s: cannot claim: %s', self.id, error)
            return None
        finally:
            self._claiming = None
        self._is_trusted = True
        self.metrics.count_claimed(len(jobs))
        self._open_tokens.clear()
        for job in jobs:
            if job.lease_token is not None:
                self._start(
                    JobRun(
                        job,
                        job.lease_token,
                        rpc,
                        leased_at=asked_at,
                        metrics=self.metrics,
                        publisher=self._publisher,
                        spare=self._spare,
                        allow_networks=self.options.allow_networks,
                    )
                )
        self._note_tokens()
        await self._keep_spare()
        return jobs

    async def _keep_spare(self) -> None:
        """While a slot is free, so is a process: whoever is next waits for none to start."""
        # The jobs just claimed begin, and take what there is.
        await asyncio.sleep(0)
        is_last = self.options.ends_after_one or self.options.ends_when_idle
        if len(self.runs) < self.options.slots and not (is_last or self._is_stopping):
            self._spare.keep()

    async def _claim_readable(self, rpc: Rpc, tokens: Sequence[UUID]) -> list[Job]:
        """Fail jobs whose rows cannot be read, rather than claim them for ever."""
        try:
            return await rpc.claim_crawl_jobs(self.id, tokens, kinds=self.options.kinds)
        except ApiRefused as error:
            if error.code != UNREADABLE:
                raise
            if len(tokens) == 1:
                logger.error('worker %s: claimed a job that cannot be read', self.id)
                await rpc.fail_crawl_job(
                    tokens[0],
                    error_code='payload',
                    error_message=f'no worker can read this job: {error.message}',
                    is_retryable=False,
                )
                return []
        # The same tokens bring the same jobs, and alone only one of them.
        return [job for token in tokens for job in await self._claim_readable(rpc, [token])]

    def _start(self, run: JobRun) -> None:
        self._has_claimed = True
        self.runs[run.lease_token] = run
        self.metrics.set_busy_slots(len(self.runs))
        self._tasks[run.lease_token] = asyncio.create_task(self._run(run), name=f'job {run.job.id}')

    async def _run(self, run: JobRun) -> None:
        """The boundary of a job: whatever breaks in it, the others do not notice."""
        try:
            await run.run()
        except Exception:
            logger.exception('job %s: broke in this worker; its lease will run out', run.job.id)
        finally:
            if not run.is_over:
                self._left_tokens.add(run.lease_token)
            del self.runs[run.lease_token]
            self.metrics.set_busy_slots(len(self.runs))
            del self._tasks[run.lease_token]
            self._note_tokens()
            self._wake.set()

    async def _beat(self) -> NoReturn:
        """Renew every lease, and pass on what is wanted of each."""
        every = self._pace.heartbeat_every_seconds
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
                    logger.warning('worker %s: no heartbeat: %s', self.id, error)
                    await asyncio.sleep(FIRST_POLL_SECONDS)
                    continue
                self.metrics.note_heartbeat(asked_at)
                for lease in leases:
                    if (run := self.runs.get(lease.lease_token)) is not None:
                        run.renewed_at = asked_at
                        run.obey(lease.command)
                end_orphans()
                await asyncio.sleep(every)

    async def _give_up_in_time(self) -> NoReturn:
        """End what runs on a lease that may be about to end; beside the heart, which may hang."""
        stale_after = self._pace.stale_after_seconds
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
            **({'kinds': list(self.options.kinds)} if self.options.kinds else {}),
        }

    async def _listen(self) -> None:
        await listen(self.project, 'crawl_workers', self._hear, on_joined=lambda _: None)

    def _hear(self, event: str, payload: Mapping[str, Any]) -> None:
        if event == 'wake':
            self._wake.set()
        elif event == 'command' and payload.get('command') in COMMANDS:
            for run in self.runs.values():
                if str(run.job.id) == payload.get('job_id'):
                    run.obey(cast(Command, payload['command']))

    async def _hand_in(self) -> None:
        """Let the crawls save and their jobs be released, as long as the grace lasts."""
        if not self._tasks:
            return
        grace = self.options.grace_seconds
        for run in self.runs.values():
            run.leave(within_seconds=max(grace - 5, grace / 2))
        _, late = await asyncio.wait(self._tasks.values(), timeout=grace)
        if late:
            logger.warning('worker %s: %d jobs did not hand in in time', self.id, len(late))

    async def _end_jobs(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _say_goodbye(self) -> None:
        """Release what is left, the last try, and leave the fleet: nobody waits for this worker.

        Leases that this does not reach, the next worker here finds noted.
        """
        self._left_tokens.update(self._open_tokens)
        self._open_tokens.clear()
        async with Rpc(self.project, patience_seconds=LAST_CALL_SECONDS) as rpc:
            with suppress(TimeoutError, SilklineError):
                async with asyncio.timeout(LAST_CALL_SECONDS):
                    # Together, so that each is tried, however long another takes.
                    await asyncio.gather(*(self._release(rpc, left) for left in self._left_tokens))
                    await rpc.heartbeat_crawl_jobs(self.id, [], worker={'has_ended': True})
        if self._left_tokens:
            count = len(self._left_tokens)
            logger.warning('worker %s: %d leases are left to the next worker here', self.id, count)
        self._note_tokens()

    async def _release(self, rpc: Rpc, token: UUID) -> None:
        try:
            await rpc.release_crawl_job(token, reason='shutdown')
        except SilklineError as error:
            logger.warning('worker %s: cannot give a lease back: %s', self.id, error)
            return
        self._left_tokens.discard(token)

    async def _hand_back_for_predecessors(self, rpc: Rpc) -> None:
        for path, tokens in self.state.abandoned().items():
            for token in tokens:
                for lease in await rpc.release_crawl_job(token, reason='worker_restarted'):
                    if lease.status == 'pending':
                        logger.info('job %s: handed back for a killed worker', lease.job_id)
            path.unlink(missing_ok=True)

    def _note_tokens(self) -> None:
        self.state.write([*self.runs, *self._left_tokens, *self._open_tokens])


def state_directory(project: Project, environment: Mapping[str, str] = os.environ) -> Path:
    """Where workers of this project leave their notes on this machine."""
    home = environment.get('XDG_STATE_HOME') or Path.home() / '.local/state'
    name = project.url.partition('://')[2].replace(':', '_').replace('/', '_')
    return Path(home) / 'silkline' / name


def run_worker(project: Project, options: Options) -> None:
    asyncio.run(Worker(project, options).run())

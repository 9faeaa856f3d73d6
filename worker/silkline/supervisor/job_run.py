"""One leased job, from its claim to the end of its lease.

Owns the passage between a runner and the queue: what the runner sends is saved (`saving.py`), what
the queue answers goes to the runner, and what the user wants is obeyed. How a process is held and
killed is `process.py`'s; which jobs are leased is `worker.py`'s.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any
from uuid import UUID

import msgspec

from silkline import protocol
from silkline.errors import ApiRefused, ApiUnavailable
from silkline.queue.realtime import Publisher
from silkline.queue.rows import Checkpoint, Command, Job
from silkline.queue.rpc import Rpc
from silkline.supervisor.checkpoints import Saving
from silkline.supervisor.metrics import Metrics
from silkline.supervisor.outcome import Outcome, broken
from silkline.supervisor.process import CannotStart, Runner
from silkline.supervisor.spawn import Spare
from silkline.supervisor.tasks import beside

logger = logging.getLogger(__name__)

# From pause or stop to the runner's last word; what it then has open is fetched again. The user
# watches the button meanwhile.
HAND_IN_SECONDS = 2.0
TRY_AGAIN_SECONDS = 1.0
# Of one attempt: a crawl may not fill the worker's log.
MOST_LOG_LINES = 1000
# More than a crawl can have open.
MAX_BEGUN = 1000
# A browser is many processes; the memory is that of each.
BROWSER_LIMITS = {'processes': 512, 'memory_bytes': 2 * 1024**3, 'open_files': 4096}


class JobRun:
    """`run` it once; `obey` and `leave` may come at any time, from anywhere in the loop."""

    def __init__(
        self,
        job: Job,
        lease_token: UUID,
        rpc: Rpc,
        *,
        leased_at: float,
        metrics: Metrics,
        publisher: Publisher,
        spare: Spare,
        allow_networks: Sequence[str] = (),
    ) -> None:
        self.job = job
        self.lease_token = lease_token
        # On the monotonic clock; the worker moves it on.
        self.renewed_at = leased_at
        # Whether the lease has ended, as far as anybody here knows.
        self.is_over = False
        self._rpc = rpc
        self._metrics = metrics
        self._publisher = publisher
        self._spare = spare
        self._allow_networks = allow_networks
        self._started_at = time.monotonic()
        self._log_lines = 0
        # Being fetched. What is left here when a process dies may be what killed it.
        self._begun: set[UUID] = set()
        self._saving = Saving(
            job.id, lease_token, rpc, is_wanted=self._is_saving_wanted, on_saved=self._take_answer
        )
        self._command: Command = 'continue'
        self._leave_at: float | None = None
        # Not taken back: the runner has let go of URLs that only a release frees. A crawl that is
        # resumed meanwhile hands in to its end, and is claimed again.
        self._is_handing_in = False
        self._is_ending = False
        self._news = asyncio.Event()

    def obey(self, command: Command) -> None:
        """Take what the user wants now, or that the lease is lost."""
        # While the end is being written, the calls themselves answer whether they may.
        if command == self._command or self._command == 'lost' or self._is_ending:
            return
        # Nobody takes back a cancel: what says otherwise was asked before it.
        if self._command == 'cancel' and command != 'lost':
            return
        self._command = command
        self._is_handing_in = self._is_handing_in or command in ('pause', 'stop')
        self._news.set()

    def leave(self, within_seconds: float) -> None:
        """Hand the job in, because the worker stops; the user wants nothing of the kind."""
        self._leave_at = time.monotonic() + within_seconds
        self._news.set()

    async def run(self) -> None:
        """Run the crawl to its end and write that end, whatever it is."""
        logger.info('job %s: starting, attempt %d', self.job.id, self.job.attempt)
        try:
            outcome = await self._crawl()
        except CannotStart as error:
            outcome = broken('start', str(error))
        except ApiRefused as error:
            outcome = refused(error)
        except Exception as error:
            logger.exception('job %s: broke in this worker', self.job.id)
            outcome = broken('failed', f'the worker broke: {type(error).__name__}: {error}')
        await self._end(outcome)

    async def _crawl(self) -> Outcome:
        async with Runner(self._start(), spare=self._spare) as runner:
            return await beside(
                self._serve(runner),
                self._saving.keep_saving(lambda answer: self._answer(runner, answer)),
                self._pass_commands_on(runner),
            )

    def _start(self) -> protocol.Start:
        return protocol.Start(
            job_id=self.job.id,
            kind=self.job.kind,
            payload=self.job.payload,
            limits=limits_for(self.job.payload, running_seconds=self.job.running_seconds),
            allow_networks=list(self._allow_networks),
            has_plugins=has_plugins(),
        )

    async def _serve(self, runner: Runner) -> Outcome:
        has_spoken = False
        async for message in runner.messages():
            if not has_spoken:
                has_spoken = True
                self._metrics.time_spawn(time.monotonic() - self._started_at)
            await self._take(message)
        return await runner.wait()

    async def _take(self, message: protocol.FromRunner) -> None:
        match message:
            case protocol.Begun(url_key=url_key) if len(self._begun) < MAX_BEGUN:
                self._begun.add(url_key)
            case protocol.Finished(url_key=url_key) | protocol.Retried(url_key=url_key):
                self._begun.discard(url_key)
            case protocol.Log(level=level, message=text):
                self._log(level, text)
            case _:
                pass
        await self._saving.take(message)

    def _log(self, level: str, text: str) -> None:
        self._log_lines += 1
        if self._log_lines <= MOST_LOG_LINES:
            logger.log(getattr(logging, level.upper()), 'job %s: %s', self.job.id, text)
        elif self._log_lines == MOST_LOG_LINES + 1:
            logger.warning('job %s: no more of its lines are logged', self.job.id)

    async def _answer(self, runner: Runner, answer: Checkpoint) -> None:
        # Without a lease there is nothing to answer: the process is being ended.
        if answer.command not in ('cancel', 'lost'):
            await runner.send(as_tasks(answer, command=self._wanted()))

    def _is_saving_wanted(self) -> bool:
        return self._command not in ('cancel', 'lost')

    def _take_answer(self, answer: Checkpoint) -> None:
        self._metrics.count_checkpoint()
        self.obey(answer.command)
        if answer.progress:
            told = {'job_id': str(self.job.id), 'attempt': self.job.attempt, **answer.progress}
            self._publisher.publish(f'crawl_job:{self.job.id}', told)

    async def _pass_commands_on(self, runner: Runner) -> None:
        passed_on: Command = 'continue'
        patience: float | None = None
        while True:
            try:
                async with asyncio.timeout(patience):
                    await self._news.wait()
            except TimeoutError:
                logger.warning('job %s: does not hand in, ending its process', self.job.id)
                await runner.kill()
                return
            self._news.clear()
            wanted = self._wanted()
            if wanted in ('cancel', 'lost'):
                logger.info('job %s: %s, ending its process', self.job.id, wanted)
                await runner.kill()
                return
            if wanted != passed_on:
                logger.info('job %s: %s, handing in', self.job.id, wanted)
                runner.tell(protocol.NewCommand(command=wanted))
                passed_on = wanted
            patience = self._patience_seconds()

    def _wanted(self) -> Command:
        """What the runner is to do: a worker that stops has it pause."""
        if self._command == 'continue' and (self._is_handing_in or self._leave_at is not None):
            return 'pause'
        return self._command

    def _patience_seconds(self) -> float:
        if self._is_handing_in or self._leave_at is None:
            return HAND_IN_SECONDS
        return max(self._leave_at - time.monotonic(), 0)

    async def _end(self, outcome: Outcome) -> None:
        """Write how it ended. Whoever cancels this meanwhile loses nothing: leases run out."""
        try:
            await self._saving.save()
        except ApiRefused as error:
            if outcome.error_code is None:
                outcome = refused(error)
        self._is_ending = True
        while not self.is_over:
            try:
                await self._write_end(outcome)
            except ApiUnavailable as error:
                logger.warning('job %s: its end is not written yet: %s', self.job.id, error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            except ApiRefused as error:
                if outcome.error_code is not None:
                    logger.error('job %s: its end was refused: %s', self.job.id, error)
                    return
                outcome = refused(error)
            else:
                self.is_over = True

    async def _write_end(self, outcome: Outcome) -> None:
        token = self.lease_token
        if self._is_handed_in(outcome):
            # Of a lost lease too: if it is not, it need not run out. If it is, this does nothing.
            await self._rpc.release_crawl_job(
                token, reason='shutdown', running_seconds=outcome.running_seconds
            )
            if self._command == 'lost':
                self._metrics.count_lost()
            else:
                self._metrics.count_released(self._released_for())
            logger.info('job %s: given back (%s)', self.job.id, self._wanted())
        elif outcome.done is not None and outcome.done.after_seconds is not None:
            seconds = outcome.done.after_seconds
            await self._rpc.release_crawl_job(
                token,
                reason='later',
                after_seconds=seconds,
                running_seconds=outcome.running_seconds,
            )
            self._metrics.count_released('later')
            logger.info('job %s: its site wants %d s of patience', self.job.id, seconds)
        elif outcome.done is not None:
            await self._rpc.complete_crawl_job(
                token, result=outcome.done.result, running_seconds=outcome.running_seconds
            )
            self._metrics.count_completed()
            logger.info('job %s: completed', self.job.id)
        else:
            code = outcome.error_code or 'failed'
            message = outcome.error_message or ''
            await self._rpc.fail_crawl_job(
                token,
                error_code=code,
                error_message=message,
                is_retryable=outcome.is_retryable,
                suspects=sorted(self._begun),
                running_seconds=outcome.running_seconds,
            )
            self._metrics.count_failed(code)
            logger.warning('job %s: failed with %s: %s', self.job.id, code, message[:200])

    def _released_for(self) -> str:
        return 'shutdown' if self._command == 'continue' else self._command

    def _is_handed_in(self, outcome: Outcome) -> bool:
        """Whether somebody wanted it to end, rather than its own end or error."""
        if self._command != 'continue' or outcome.error_code == 'killed':
            return True
        # Paused, and resumed after its last word: it is not at its end.
        return outcome.done is not None and outcome.done.reason in ('pause', 'stop')


def refused(error: ApiRefused) -> Outcome:
    return broken('protocol', f'the queue refused: {error}')


@cache
def has_plugins() -> bool:
    """Looked up once: what is installed while a worker runs is there for the next one."""
    return bool(entry_points(group='silkline.plugins'))


def limits_for(payload: Mapping[str, Any], *, running_seconds: float = 0.0) -> protocol.Limits:
    # What earlier attempts have used counts; a second is left to end in good order.
    seconds = float(payload.get('max_seconds') or 3600) - running_seconds
    limits = protocol.Limits(wall_seconds=max(seconds, 1.0))
    if payload.get('fetcher') == 'browser':
        return msgspec.structs.replace(limits, **BROWSER_LIMITS)
    return limits


def as_tasks(answer: Checkpoint, *, command: Command) -> protocol.Tasks:
    return msgspec.convert({**answer.model_dump(), 'command': command}, protocol.Tasks)

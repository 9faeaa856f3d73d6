"""One leased job, from its claim to the end of its lease.

Connects a runner to the queue: what the runner sends is saved (`checkpoints.py`), what the queue
answers goes to the runner, and the user's commands are passed on. How a process is run and killed
is in `process.py`; which jobs are leased is decided in `worker.py`.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any
from uuid import UUID

import msgspec

from silkline import protocol
from silkline.browser import find_browser
from silkline.errors import ApiRefused, ApiUnavailable
from silkline.plugins import GROUP
from silkline.protocol import Command
from silkline.queue.rows import Checkpoint, ClaimedJob
from silkline.queue.rpc import Rpc
from silkline.supervisor.checkpoints import NO_WISH, Checkpoints
from silkline.supervisor.completions import Completions
from silkline.supervisor.metrics import Metrics
from silkline.supervisor.outcome import Outcome, failed_outside
from silkline.supervisor.process import CannotStart, Runner
from silkline.supervisor.spawn import Spare
from silkline.supervisor.tasks import side_tasks

logger = logging.getLogger(__name__)

# How long a runner may take to finish after pause or stop; then it is killed, and its open URLs
# are fetched again. The user is watching the button meanwhile.
FINISH_SECONDS = 2.0
RETRY_SECONDS = 1.0
# Per attempt, so that a crawl cannot fill the worker's log.
MAX_LOG_LINES = 1000
# More than a crawl can have open.
MAX_BEGUN = 1000
# A browser is many processes; the memory limit applies to each.
BROWSER_LIMITS = {'processes': 512, 'memory_bytes': 2 * 1024**3, 'open_files': 4096}


class JobRun:
    """Call `run` once; `obey` and `shut_down` at any time, from anywhere in the event loop."""

    def __init__(
        self,
        job: ClaimedJob,
        rpc: Rpc,
        *,
        leased_at: float,
        metrics: Metrics,
        completions: Completions,
        spare: Spare,
        allow_networks: Sequence[str] = (),
    ) -> None:
        self.job = job
        self.lease_token = job.lease_token
        # On the monotonic clock; the worker's heartbeat moves it forward.
        self.renewed_at = leased_at
        # Whether the lease has ended, as far as this process knows.
        self.is_over = False
        self._rpc = rpc
        self._metrics = metrics
        self._completions = completions
        self._spare = spare
        self._allow_networks = allow_networks
        # None once the runner has sent its first message.
        self._started_at: float | None = time.monotonic()
        self._log_lines = 0
        # URLs being fetched. If the process dies, one of them may have killed it.
        self._begun: set[UUID] = set()
        self._checkpoints = Checkpoints(job.lease_token, rpc)
        self._command: Command = 'continue'
        self._shut_down_at: float | None = None
        # Never reset: the runner has given up URLs that only a release makes available again. A
        # job that is resumed meanwhile still finishes this run, and is then claimed again.
        self._is_finishing = False
        self._is_ending = False
        self._has_new_command = asyncio.Event()

    def obey(self, command: Command) -> None:
        """Take note of what the user wants now, or that the lease is lost."""
        # While the end is being written, the calls themselves report whether they still may.
        if command == self._command or self._command == 'lost' or self._is_ending:
            return
        # A cancel is never taken back: anything else is older than it.
        if self._command == 'cancel' and command != 'lost':
            return
        self._command = command
        self._is_finishing = self._is_finishing or command in ('pause', 'stop')
        self._has_new_command.set()

    def shut_down(self, *, within_seconds: float) -> None:
        """Finish and release the job because the worker stops; not what the user asked for."""
        self._shut_down_at = time.monotonic() + within_seconds
        self._has_new_command.set()

    async def run(self) -> None:
        """Run the crawl to its end and write that end, whatever it is."""
        logger.info('job %s: starting, attempt %d', self.job.id, self.job.attempt)
        try:
            outcome = await self._crawl()
        except CannotStart as error:
            outcome = failed_outside('start', str(error))
        except ApiRefused as error:
            outcome = refused(error)
        except Exception as error:
            logger.exception('job %s: failed in this worker', self.job.id)
            outcome = failed_outside('failed', f'worker error: {type(error).__name__}: {error}')
        await self._end(outcome)

    async def _crawl(self) -> Outcome:
        """Run it without a browser, and go on with one if scripts draw its pages."""
        outcome = await self._run_process(self._start())
        if outcome.done is None or outcome.done.reason != 'render':
            return outcome
        if self._runner_command() != 'continue':
            return replace(outcome, done=protocol.Done(reason='pause'))
        logger.info('job %s: scripts draw its pages, going on with a browser', self.job.id)
        self._begun.clear()
        start = self._start(after_seconds=outcome.running_seconds, tasks=outcome.done.tasks)
        rendered = await self._run_process(start)
        return replace(rendered, running_seconds=outcome.running_seconds + rendered.running_seconds)

    async def _run_process(self, start: protocol.Start) -> Outcome:
        async with (
            Runner(start, spare=self._spare) as runner,
            side_tasks(self._keep_saving(runner), self._pass_commands_on(runner)),
        ):
            async for message in runner.messages():
                await self._take(message)
            return await runner.wait()

    def _start(
        self, *, after_seconds: float = 0.0, tasks: list[protocol.Task] | None = None
    ) -> protocol.Start:
        """The job; with `tasks`, for a runner that renders what the first one has left."""
        payload = self.job.payload
        return protocol.Start(
            job_id=self.job.id,
            kind=self.job.kind,
            payload=payload,
            limits=limits_for(
                payload,
                running_seconds=self.job.running_seconds + after_seconds,
                has_browser=tasks is not None,
            ),
            can_render=can_render(),
            tasks=tasks or [],
            allow_networks=list(self._allow_networks),
            has_plugins=has_plugins(),
        )

    async def _take(self, message: protocol.FromRunner) -> None:
        if self._started_at is not None:
            self._metrics.time_spawn(time.monotonic() - self._started_at)
            self._started_at = None
        match message:
            case protocol.Begun(url_key=url_key) if len(self._begun) < MAX_BEGUN:
                self._begun.add(url_key)
            case protocol.Finished(url_key=url_key) | protocol.Retried(url_key=url_key):
                self._begun.discard(url_key)
            case protocol.Log(level=level, message=text):
                self._log(level, text)
            case _:
                pass
        await self._checkpoints.add(message)

    def _log(self, level: str, text: str) -> None:
        self._log_lines += 1
        if self._log_lines <= MAX_LOG_LINES:
            logger.log(getattr(logging, level.upper()), 'job %s: %s', self.job.id, text)
        elif self._log_lines == MAX_LOG_LINES + 1:
            logger.warning('job %s: logged %d lines, no more follow', self.job.id, MAX_LOG_LINES)

    async def _keep_saving(self, runner: Runner) -> None:
        """Save what is due; pass the URLs that were leased on to the runner, as they came."""
        while True:
            wish = await self._checkpoints.wait_until_due()
            answer = await self._save(wish or NO_WISH)
            if answer is None or answer.command in ('cancel', 'lost'):
                # The process is being killed; what it still sends has nowhere to go.
                self._checkpoints.drop()
            elif wish is not None:
                await runner.send_tasks({**answer.for_runner, 'command': self._runner_command()})

    async def _save(self, wish: protocol.WantTasks = NO_WISH) -> Checkpoint | None:
        """Save what has come in, however long the API is away; None if the lease has ended."""
        while self._command not in ('cancel', 'lost'):
            try:
                answer = await self._checkpoints.save(wish)
            except ApiUnavailable as error:
                logger.warning('job %s: not saved yet: %s', self.job.id, error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._metrics.count_checkpoint()
                self.obey(answer.command)
                return answer
        return None

    async def _pass_commands_on(self, runner: Runner) -> None:
        passed_on: Command = 'continue'
        patience: float | None = None
        while True:
            try:
                async with asyncio.timeout(patience):
                    await self._has_new_command.wait()
            except TimeoutError:
                logger.warning('job %s: did not finish in time, killing its process', self.job.id)
                await runner.kill()
                return
            self._has_new_command.clear()
            command = self._runner_command()
            if command in ('cancel', 'lost'):
                logger.info('job %s: %s, killing its process', self.job.id, command)
                await runner.kill()
                return
            if command != passed_on:
                logger.info('job %s: %s, finishing open requests', self.job.id, command)
                runner.send_command(command)
                passed_on = command
            patience = self._patience_seconds()

    def _runner_command(self) -> Command:
        """What the runner has to do: a worker that shuts down pauses it."""
        if self._command == 'continue' and (self._is_finishing or self._shut_down_at is not None):
            return 'pause'
        return self._command

    def _patience_seconds(self) -> float:
        if self._is_finishing or self._shut_down_at is None:
            return FINISH_SECONDS
        return max(self._shut_down_at - time.monotonic(), 0)

    async def _end(self, outcome: Outcome) -> None:
        """Write how it ended. If this is cancelled, nothing is lost: the lease runs out."""
        # A runner is done after the answer to a checkpoint: with nothing to save, one more would
        # only repeat that answer.
        if outcome.done is None or self._checkpoints.has_unsaved:
            try:
                await self._save()
            except ApiRefused as error:
                if outcome.error_code is None:
                    outcome = refused(error)
        self._is_ending = True
        while not self.is_over:
            try:
                await self._write_end(outcome)
            except ApiUnavailable as error:
                logger.warning('job %s: cannot report its end yet: %s', self.job.id, error)
                await asyncio.sleep(RETRY_SECONDS)
            except ApiRefused as error:
                if outcome.error_code is not None:
                    logger.error('job %s: its end was refused: %s', self.job.id, error)
                    return
                outcome = refused(error)
            else:
                self.is_over = True

    async def _write_end(self, outcome: Outcome) -> None:
        token = self.lease_token
        if self._is_released(outcome):
            # Also when the lease seems lost: if it is still held, it need not expire; if not,
            # this changes nothing.
            await self._rpc.release_crawl_job(
                token, reason='shutdown', running_seconds=outcome.running_seconds
            )
            if self._command == 'lost':
                self._metrics.count_lost()
            else:
                self._metrics.count_released(self._release_reason())
            logger.info('job %s: released (%s)', self.job.id, self._runner_command())
        elif outcome.done is not None and outcome.done.after_seconds is not None:
            seconds = outcome.done.after_seconds
            await self._rpc.release_crawl_job(
                token,
                reason='later',
                after_seconds=seconds,
                running_seconds=outcome.running_seconds,
            )
            self._metrics.count_released('later')
            logger.info(
                'job %s: released, its site asked for a pause of %d s', self.job.id, seconds
            )
        elif outcome.done is not None:
            lease = await self._completions.complete(
                token, result=outcome.done.result, running_seconds=outcome.running_seconds
            )
            self._note_completion(lease.command)
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

    def _note_completion(self, command: Command) -> None:
        """Its lease has ended. A user's command, or another worker's claim, may have come first."""
        if command == 'continue':
            self._metrics.count_completed()
            logger.info('job %s: completed', self.job.id)
        elif command == 'lost':
            self._metrics.count_lost()
            logger.warning('job %s: lost before it was completed', self.job.id)
        else:
            self._metrics.count_released(command)
            logger.info('job %s: released (%s)', self.job.id, command)

    def _release_reason(self) -> str:
        return 'shutdown' if self._command == 'continue' else self._command

    def _is_released(self, outcome: Outcome) -> bool:
        """Whether the user or a shutdown ended it, rather than that it finished or failed."""
        if self._command != 'continue' or outcome.error_code == 'killed':
            return True
        # Paused, and resumed after the runner's last message: the crawl itself is not finished.
        return outcome.done is not None and outcome.done.reason in ('pause', 'stop')


def refused(error: ApiRefused) -> Outcome:
    return failed_outside('protocol', f'the queue refused: {error}')


@cache
def has_plugins() -> bool:
    """Looked up once: plugins installed while a worker runs are found by the next worker."""
    return bool(entry_points(group=GROUP))


@cache
def can_render() -> bool:
    """Whether this machine has a browser; also looked up once."""
    return not find_browser().problem


def limits_for(
    payload: Mapping[str, Any], *, running_seconds: float = 0.0, has_browser: bool = False
) -> protocol.Limits:
    # The time of earlier attempts counts; at least a second is left to end in good order.
    seconds = float(payload.get('max_seconds') or 3600) - running_seconds
    limits = protocol.Limits(wall_seconds=max(seconds, 1.0))
    if has_browser or payload.get('fetcher') == 'browser':
        return msgspec.structs.replace(limits, **BROWSER_LIMITS)
    return limits

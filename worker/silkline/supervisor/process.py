"""One job, one subprocess: start it, talk to it, enforce its limits, kill it.

    async with Runner(start) as runner:
        async for message in runner.messages():
            ...
            await runner.send_tasks(answer)
        outcome = await runner.wait()

The subprocess is `runner/main.py`, its sandbox `runner/isolation.py`, the messages `protocol.py`.
How it is started is in `spawn.py`, how its end is named in `outcome.py`. This module adds the
clock, the stall detector and the kill. It calls no API and decides nothing about the job.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import msgspec

from silkline import framing, linux, protocol
from silkline.errors import SilklineError
from silkline.supervisor.outcome import ERROR_CODES, Outcome, code_of, oom_kills
from silkline.supervisor.spawn import (
    Spare,
    Started,
    default_command,
    end_process,
    living,
    make_scratch,
    reap,
    start_process,
)
from silkline.supervisor.tasks import uninterrupted

STDERR_TAIL_BYTES = 8 * 1024


class CannotStart(SilklineError):
    """The machine is out of processes or descriptors. The job fails as `start` and is retried."""


class Runner:
    """The subprocess of one job. Leaving the context kills and reaps whatever is left of it."""

    def __init__(
        self,
        start: protocol.Start,
        *,
        command: Sequence[str] | None = None,
        spare: Spare | None = None,
    ) -> None:
        self.start = msgspec.structs.replace(start, supervisor_pid=os.getpid())
        self.limits = start.limits
        self.command = tuple(command or default_command())
        self.mark = ''
        self.can_fork = True
        self.pid = 0
        self._crawl_pid = 0
        self._started_at = time.monotonic()
        self._spare = spare
        self._scratch: str | None = None
        self._stderr = Tail(STDERR_TAIL_BYTES)
        self._verdict: tuple[str, str] | None = None
        self._last: protocol.Done | protocol.Failed | None = None
        self._is_at_end = False
        self._outcome: Outcome | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        # Before there is a process: a job that cannot be encoded does not start one.
        job = framing.encode(self.start)
        self._oom_kills = oom_kills()
        self._ended: asyncio.Future[int] = loop.create_future()
        try:
            self._process, self.mark = self._start_process()
        except OSError as error:
            self._remove_scratch()
            raise CannotStart(f'cannot start a process for the crawl: {error}') from error
        self._started_at = time.monotonic()
        self.pid = self._process.pid
        self._ended.add_done_callback(lambda _: living.discard(self.pid))
        try:
            self._reap_on_exit(loop)
            await self._open_pipes(loop)
        except BaseException as error:
            # Blocking: what an asynchronous wait needs is what just failed.
            end_process(self._process)
            self._remove_scratch()
            if isinstance(error, OSError):
                raise CannotStart(f'cannot open the pipes of the crawl: {error}') from error
            raise
        self._side_tasks = asyncio.TaskGroup()
        await self._side_tasks.__aenter__()
        self._watch = self._side_tasks.create_task(
            self._watch_clock(), name=f'clock of runner {self.pid}'
        )
        # May exceed the buffer of the pipe; the transport sends the rest as it is read.
        self._stdin.write(job)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await uninterrupted(self._clean_up())
        except asyncio.CancelledError as cancelled:
            kind, error = type(cancelled), cancelled
        # Only a cancellation can come from the group itself, when a side task failed.
        if isinstance(error, asyncio.CancelledError):
            await self._side_tasks.__aexit__(kind, error, traceback)
        else:
            await self._side_tasks.__aexit__(None, None, None)

    def _start_process(self) -> Started:
        if self.limits.processes:
            self._scratch = make_scratch()
        elif self._spare is not None and (taken := self._spare.take()) is not None:
            return taken
        return start_process(self.command, scratch=self._scratch)

    async def _clean_up(self) -> None:
        await self.kill()
        # In a thread: a browser profile is thousands of files.
        if self._scratch is not None:
            await asyncio.to_thread(self._remove_scratch)

    def _remove_scratch(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    # Messages

    async def messages(self) -> AsyncIterator[protocol.FromRunner]:
        """What the runner sends, up to Done or Failed, or until it is dead.

        Nothing is read ahead, so a runner waits for a busy supervisor. The stall detector runs
        only while the supervisor is waiting.
        """
        while self._last is None and not self._is_at_end:
            try:
                async with asyncio.timeout(self.limits.stall_seconds):
                    message = await self._read()
            except TimeoutError:
                await self._kill_for(
                    'stalled', f'sent no message for {self.limits.stall_seconds:g} s', trace=True
                )
                self._is_at_end = True
            except framing.PipeError as error:
                await self._kill_for('protocol', str(error))
                self._is_at_end = True
            else:
                match message:
                    case None:
                        self._is_at_end = True
                    case protocol.Ready():
                        self._note_ready(message)
                    case protocol.Alive():
                        pass
                    case protocol.Done() | protocol.Failed():
                        self._last = message
                        yield message
                    case _:
                        yield message

    def _note_ready(self, ready: protocol.Ready) -> None:
        """Trust the first Ready only: it is sent before the runner has seen any page."""
        if self._crawl_pid == 0:
            self.can_fork = ready.can_fork
            self._crawl_pid = ready.pid

    async def send_tasks(self, answer: Mapping[str, Any]) -> None:
        """Send the fields of a `Tasks`, and wait until the runner has read them, or is dead."""
        try:
            async with asyncio.timeout(self.limits.stall_seconds):
                self._stdin.write(framing.encode_tasks(answer))
                await self._stdin.drain()
        except ConnectionError:
            pass
        except TimeoutError:
            await self._kill_for(
                'stalled', f'read nothing for {self.limits.stall_seconds:g} s', trace=True
            )

    def send_command(self, command: protocol.Command) -> None:
        """Send without waiting: the caller may have to kill next."""
        self._stdin.write(framing.encode(protocol.NewCommand(command=command)))

    # End

    async def wait(self) -> Outcome:
        """Wait until the runner exits by itself; after its last message, for a few seconds."""
        if self._outcome is None:
            if self._last is not None or self._is_at_end:
                try:
                    async with asyncio.timeout(self.limits.exit_seconds):
                        await asyncio.shield(self._ended)
                except TimeoutError:
                    self._verdict = self._verdict or (
                        'protocol',
                        'did not exit after its last message',
                    )
            else:
                await asyncio.shield(self._ended)
            await uninterrupted(self._end_group())
        return self._finish()

    async def kill(self) -> Outcome:
        """Kill the runner and all its children; return when they are gone."""
        if self._outcome is None:
            if self._last is None and not self._ended.done():
                self._verdict = self._verdict or ('killed', 'killed by the supervisor')
            await uninterrupted(self._end_group())
        return self._finish()

    async def _kill_for(self, code: str, why: str, *, trace: bool = False) -> None:
        """Kill the runner for breaking a rule; the first broken rule is the one reported."""
        if self._verdict is None and not self._ended.done():
            self._verdict = (code, why)
        # The runner reported this pid itself: never signal a process that is not its own.
        if trace and not self._ended.done() and self._crawl_pid in (self.pid, *self._children()):
            # faulthandler writes to stderr where the crawl hangs, and the signal kills it.
            with contextlib.suppress(ProcessLookupError, TimeoutError):
                os.kill(self._crawl_pid, signal.SIGABRT)
                async with asyncio.timeout(0.3):
                    await asyncio.shield(self._ended)
        await uninterrupted(self._end_group())

    async def _end_group(self) -> None:
        """Kill until nothing is left: children first, while their parents still lead to them."""
        killed: set[int] = set()
        if self.can_fork and not self._ended.done():
            self._freeze_group()
        while True:
            while self.can_fork and (left := self._children()):
                killed |= left
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.001)
            if self._ended.done():
                break
            # Not reaped yet, so the group id cannot have been reused.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            await asyncio.shield(self._ended)
        reap(killed)

    def _freeze_group(self) -> None:
        """Stop all at once, so that none can fork meanwhile; the warden must go on."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGSTOP)
            os.kill(self.pid, signal.SIGCONT)

    def _children(self) -> set[int]:
        return linux.descendants(self.pid, session=self.pid, mark=self.mark)

    def _finish(self) -> Outcome:
        if self._outcome is None:
            self._stdin.close()
            self._stdout_transport.close()
            self._watch.cancel()
            self._close_stderr()
            self._outcome = self._make_outcome(self._ended.result())
        return self._outcome

    def _make_outcome(self, status: int) -> Outcome:
        outcome = Outcome(
            done=None,
            error_code=None,
            error_message=None,
            is_retryable=True,
            running_seconds=time.monotonic() - self._started_at,
        )
        if isinstance(self._last, protocol.Done):
            return replace(outcome, done=self._last)
        is_retryable = True
        if isinstance(self._last, protocol.Failed):
            code, why = self._last.error_code, self._last.message
            is_retryable = self._last.is_retryable
        elif self._verdict is not None:
            code, why = self._verdict
        else:
            code, why = code_of(status, is_oom=oom_kills() > self._oom_kills)
        tail = self._stderr.text()
        return replace(
            outcome,
            error_code=code,
            error_message=f'{why}\n{tail}' if tail else why,
            is_retryable=is_retryable and ERROR_CODES[code.partition(':')[0]].is_retryable,
        )

    # Process and pipes

    def _reap_on_exit(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reap the process when it exits; where there is no pidfd, a thread waits for it."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            threading.Thread(
                target=self._wait_in_thread, args=(loop,), name=f'runner {self.pid}', daemon=True
            ).start()
            return

        def reap_it() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            self._ended.set_result(self._process.wait())

        loop.add_reader(pidfd, reap_it)

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        status = self._process.wait()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._ended.set_result, status)

    async def _open_pipes(self, loop: asyncio.AbstractEventLoop) -> None:
        process = self._process
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise TypeError('a runner is started with three pipes')
        self._stdout = asyncio.StreamReader()
        self._stdout_transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._stdout), stdout
        )
        os.set_blocking(stderr.fileno(), False)
        flow: asyncio.StreamReaderProtocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        try:
            loop.add_reader(stderr.fileno(), self._read_stderr)
            transport, _ = await loop.connect_write_pipe(lambda: flow, stdin)
        except BaseException:
            # Otherwise the loop would mistake later pipes with the same numbers for these.
            self._stdout_transport.close()
            loop.remove_reader(stderr.fileno())
            raise
        self._stdin = asyncio.StreamWriter(transport, flow, None, loop)

    async def _read(self) -> protocol.FromRunner | None:
        try:
            header = await self._stdout.readexactly(framing.HEADER_BYTES)
            body = await self._stdout.readexactly(framing.frame_length(header))
        except asyncio.IncompleteReadError:
            # The runner died in the middle of a frame: its exit status says more.
            return None
        return framing.decode_from_runner(body)

    def _read_stderr(self) -> bool:
        """Keep the tail of what is there; return whether there may be more."""
        stderr = self._process.stderr
        if stderr is None or stderr.closed:
            return False
        try:
            chunk = os.read(stderr.fileno(), 65536)
        except BlockingIOError:
            return False
        self._stderr.add(chunk)
        if not chunk:
            asyncio.get_running_loop().remove_reader(stderr.fileno())
            stderr.close()
        return bool(chunk)

    def _close_stderr(self) -> None:
        # A pipe holds at most 1 MB, so this ends even if an escaped child keeps writing.
        for _ in range(16):
            if not self._read_stderr():
                break
        stderr = self._process.stderr
        if stderr is not None and not stderr.closed:
            asyncio.get_running_loop().remove_reader(stderr.fileno())
            stderr.close()

    async def _watch_clock(self) -> None:
        # With a warden, the crawl itself is one of its children.
        allowed = self.limits.processes + 1 if self.limits.processes else 0
        ends_at = self._started_at + self.limits.wall_seconds
        while (left := ends_at - time.monotonic()) > 0:
            # In short steps while there may be children to count.
            await asyncio.sleep(min(left, 0.1 if self.can_fork else 1.0))
            if self.can_fork and len(linux.descendants(self.pid, session=self.pid)) > allowed:
                why = f'started more than {self.limits.processes} child processes'
                await self._kill_for('processes', why)
                return
        why = f'ran for more than {self.limits.wall_seconds:g} s'
        await self._kill_for('timeout', why, trace=True)


class Tail:
    """The last bytes of a stream."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = b''

    def add(self, chunk: bytes) -> None:
        self._bytes = (self._bytes + chunk)[-self._size :]

    def text(self) -> str:
        return self._bytes.decode(errors='replace').replace('\0', '').strip()

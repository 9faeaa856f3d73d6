"""How a runner ended, by name: `ERROR_CODES` is the closed set.

Owns the names and whether each is retried, and derives the name from an exit status.
"""

import contextlib
import signal
from dataclasses import dataclass

from silkline import protocol


@dataclass(frozen=True, slots=True)
class ErrorCode:
    meaning: str
    is_retryable: bool


# What a worker reports to `fail_crawl_job`; `crashed` and `exited` are followed by a colon and the
# signal or the exit code. A retry fetches the URLs that were in flight one at a time, so an error
# that a single page caused is retryable: that page ends as `poison`, and the job goes on.
ERROR_CODES = {
    'failed': ErrorCode('The crawl raised an error; the message says which.', True),
    'payload': ErrorCode('The options ask for something that this worker does not have.', False),
    'oom': ErrorCode('It reached its memory limit, or the machine ran out of memory.', True),
    'cpu': ErrorCode('It used up its processor time.', True),
    'timeout': ErrorCode('It used up its running time, max_seconds.', False),
    'stalled': ErrorCode('It sent nothing for too long.', True),
    'processes': ErrorCode('It started more child processes than it may.', True),
    'protocol': ErrorCode('It sent something that is not a message.', True),
    'crashed': ErrorCode('It was killed by a signal.', True),
    'exited': ErrorCode('It exited without a final message.', True),
    'start': ErrorCode('The process could not be started.', True),
    'killed': ErrorCode('The supervisor killed it on purpose; not an error of the job.', True),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a runner ended: either `done` or `error_code` is set."""

    done: protocol.Done | None
    error_code: str | None
    error_message: str | None
    is_retryable: bool
    running_seconds: float


def failed_outside(code: str, message: str) -> Outcome:
    """The outcome of a job that never ran, or that failed outside of its process."""
    return Outcome(
        done=None, error_code=code, error_message=message, is_retryable=True, running_seconds=0
    )


def code_of(status: int, *, is_oom: bool) -> tuple[str, str]:
    """The error code of a process that ended without a final message, and a sentence."""
    if status == protocol.EXIT_OUT_OF_MEMORY:
        return 'oom', 'out of memory'
    if status == protocol.EXIT_LOST:
        return f'exited:{status}', 'lost the connection to its supervisor'
    if status >= 0:
        return f'exited:{status}', f'exited with code {status} without a final message'
    name = signal_name(-status)
    if name == 'SIGKILL' and is_oom:
        return 'oom', 'killed by the kernel: the machine or container is out of memory'
    if name == 'SIGXCPU':
        return 'cpu', 'used up its processor time'
    return f'crashed:{name}', f'killed by {name}'


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f'SIG{number}'


def oom_kills() -> int:
    """How many processes the kernel has killed for lack of memory, containers included."""
    with contextlib.suppress(OSError), open('/proc/vmstat', 'rb') as file:
        for line in file:
            name, _, count = line.partition(b' ')
            if name == b'oom_kill':
                return int(count)
    return 0

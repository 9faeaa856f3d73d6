"""How a runner ended, by name: `ERROR_CODES` is the closed set.

Owns the names and what each means for a retry, and tells the end of a process by its exit status.
"""

import contextlib
import signal
from dataclasses import dataclass

from silkline import protocol
from silkline.runner import isolation


@dataclass(frozen=True, slots=True)
class ErrorCode:
    meaning: str
    is_retryable: bool


# What `fail_crawl_job` may be told; `crashed` and `exited` are followed by a colon and the name
# of the signal or the exit code. A retry fetches the URLs that were in flight one by one, so
# whatever a single page brought about is retryable: it ends as `poison`, and the job goes on.
ERROR_CODES = {
    'failed': ErrorCode('The crawl raised an error, told in the message.', True),
    'payload': ErrorCode('The options ask for something this worker does not have.', False),
    'oom': ErrorCode('It ran into its memory limit, or the machine was out of memory.', True),
    'cpu': ErrorCode('It used up its processor time.', True),
    'timeout': ErrorCode('It used up its running time, max_seconds.', False),
    'stalled': ErrorCode('It sent nothing for too long.', True),
    'processes': ErrorCode('It had more child processes than it may.', True),
    'protocol': ErrorCode('It sent what is no message.', True),
    'crashed': ErrorCode('A signal ended it.', True),
    'exited': ErrorCode('It ended without saying why.', True),
    'start': ErrorCode('The process could not be started.', True),
    'killed': ErrorCode('The supervisor ended it on purpose; not an error of the job.', True),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a runner ended. Either `done` is there, or `error_code`."""

    done: protocol.Done | None
    error_code: str | None
    error_message: str | None
    is_retryable: bool
    running_seconds: float


def broken(code: str, message: str) -> Outcome:
    """The end of a job that never ran, or broke outside of its process."""
    return Outcome(
        done=None, error_code=code, error_message=message, is_retryable=True, running_seconds=0
    )


def code_of(status: int, *, is_oom: bool) -> tuple[str, str]:
    """The error code of a process that ended without a word, and a sentence."""
    if status == isolation.OUT_OF_MEMORY:
        return 'oom', 'out of memory'
    if status == isolation.LOST:
        return 'exited:70', 'it found itself without a supervisor'
    if status >= 0:
        return f'exited:{status}', f'ended with exit code {status} and without a word'
    name = signal_name(-status)
    if name == 'SIGKILL' and is_oom:
        return 'oom', 'killed by the kernel: the machine or container is out of memory'
    if name == 'SIGXCPU':
        return 'cpu', 'used up its processor time'
    return f'crashed:{name}', f'ended by {name}'


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f'SIG{number}'


def oom_kills() -> int:
    """How many processes the kernel has killed for memory; also those of containers."""
    with contextlib.suppress(OSError), open('/proc/vmstat', 'rb') as file:
        for line in file:
            name, _, count = line.partition(b' ')
            if name == b'oom_kill':
                return int(count)
    return 0

"""A local stack for the benchmarks that need one, started as a user starts it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stack:
    """A running `silkline up`."""

    process: int
    variables: dict[str, str]
    seconds: float


@contextmanager
def run_stack(directory: Path) -> Generator[Stack]:
    began_at = time.perf_counter()
    process = subprocess.Popen(
        [Path(sys.executable).with_name('silkline'), 'up', '--directory', directory],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        output: list[str] = []
        for line in process.stderr:
            output.append(line)
            if 'ready in' in line:
                break
        else:
            sys.exit('silkline up failed:\n' + ''.join(output))
        seconds = time.perf_counter() - began_at
        lines = (directory / 'env').read_text().splitlines()
        yield Stack(process.pid, dict(line.split('=', 1) for line in lines), seconds)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def memory_megabytes(process: int) -> float:
    pages = int(Path(f'/proc/{process}/statm').read_text().split()[1])
    return pages * os.sysconf('SC_PAGE_SIZE') / 2**20

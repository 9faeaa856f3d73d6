"""One stack and one worker for all crawls in this directory."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.crawls import LOOPBACK
from tests.support.stack import StackProcess, own_stack
from tests.support.worker import Queue, WorkerProcess


@pytest.fixture(scope='package')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        stack.execute('update crawl_settings set backoff_base_seconds = 1', [])
        yield stack


@pytest.fixture(scope='package')
def worker(stack: StackProcess) -> Iterator[WorkerProcess]:
    with (
        TemporaryDirectory(prefix='silkline-') as state,
        WorkerProcess(stack, Path(state), '--slots', '4', *LOOPBACK) as worker,
    ):
        yield worker


@pytest.fixture
def queue(stack: StackProcess, worker: WorkerProcess) -> Iterator[Queue]:
    queue = Queue(stack)
    # A site may get the port of an earlier one, whose robots.txt would be reused.
    stack.execute('delete from crawl_hosts', [])
    yield queue
    queue.clear()
    queue.close()

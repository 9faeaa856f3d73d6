"""`silkline watch`: following a job until it ends."""

import json
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from silkline.cli.watch import pause_after
from silkline.queue.rows import Progress
from tests.cli.test_output import progress
from tests.support.proxy import RestProxy
from tests.support.stack import StackProcess, own_stack
from tests.support.user import User
from tests.support.waiting import wait_until


class Watching:
    """A `watch --json` that is running; `statuses` is what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.snapshots: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def statuses(self) -> list[str]:
        return [snapshot['status'] for snapshot in self.snapshots]

    def wait_for(self, status: str) -> None:
        wait_until(lambda: status in self.statuses, what=status)

    def end(self) -> int:
        code = self.process.wait(timeout=60)
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith('{'):
                self.snapshots.append(json.loads(line))


@contextmanager
def watching(user: User, *words: str) -> Generator[Watching]:
    with user.start('watch', *words) as process:
        try:
            yield Watching(process)
        finally:
            process.kill()


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        yield stack


@pytest.fixture(scope='module')
def user(stack: StackProcess) -> User:
    return User(stack.directory.parent)


@pytest.fixture
def job(user: User) -> str:
    """A new job, the next one to be claimed."""
    words = ('enqueue', f'https://{uuid4().hex}.example/', '--priority', '100')
    return user.run(*words).stdout.strip()


def test_a_job_is_watched_until_it_completes(stack: StackProcess, user: User, job: str) -> None:
    with watching(user, job, '--json') as watch:
        watch.wait_for('pending')
        token = str(uuid4())
        [claimed] = stack.rpc('claim_crawl_jobs', p_worker_id=str(uuid4()), p_lease_tokens=[token])
        assert claimed['id'] == job
        watch.wait_for('processing')
        stack.rpc('complete_crawl_job', p_lease_token=token)

        assert watch.end() == 0
        assert watch.statuses[-1] == 'completed'


def test_watch_says_which_job_it_follows_and_what_that_waits_for(user: User, job: str) -> None:
    user.run('pause', job)
    [shown] = user.lines('show', job, '--json')
    with watching(user) as watch:
        assert watch.process.stderr is not None
        messages = [watch.process.stderr.readline() for _ in range(2)]

    assert messages[0].startswith(f'silkline: job {job}, crawl of ')
    assert shown['host'] in messages[0]
    assert messages[1].endswith(f': silkline resume {job}\n')
    user.run('cancel', job)


def test_watching_a_job_that_does_not_complete_exits_with_4(user: User, job: str) -> None:
    with watching(user, job, '--json') as watch:
        watch.wait_for('pending')
        user.run('cancel', job)

        assert watch.end() == 4
        assert watch.statuses[-1] == 'cancelled'


def test_a_job_can_be_watched_without_realtime(stack: StackProcess, user: User, job: str) -> None:
    key = stack.variables['SUPABASE_SECRET_KEY']
    with RestProxy(stack.url) as proxy:
        elsewhere = User(user.directory, SUPABASE_URL=proxy.url, SUPABASE_SECRET_KEY=key)
        with watching(elsewhere, job, '--json') as watch:
            watch.wait_for('pending')
            user.run('cancel', job)

            assert watch.end() == 4


def test_a_job_that_is_saving_is_polled_often_because_no_event_follows() -> None:
    saving = Progress(**progress(status='stopped', is_saving=True))
    running = Progress(**progress())

    assert pause_after(saving, is_live=True, poll_seconds=5.0) <= 1
    assert pause_after(running, is_live=True, poll_seconds=1.0) == 5
    assert pause_after(running, is_live=False, poll_seconds=1.0) == 1

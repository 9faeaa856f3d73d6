"""A job that waits says what for and until when, so that it does not look stuck."""

import os
import re
import signal
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest

from tests.support.site import Answer, Site
from tests.support.stack import StackProcess, own_stack
from tests.support.user import User
from tests.support.worker import Queue

# With the date, unless it is today.
CLOCK = r'(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d'
# Longer than any of these tests. From two minutes on, a job would be released.
PATIENCE_SECONDS = 110


@pytest.fixture(scope='module')
def queue() -> Iterator[Queue]:
    with own_stack() as stack:
        queue = Queue(stack)
        yield queue
        queue.close()


@pytest.fixture(scope='module')
def user(queue: Queue) -> User:
    return User(queue.stack.directory.parent)


class LeasedJob:
    """A job that is being crawled, with one URL in flight; the test acts as its worker."""

    def __init__(self, queue: Queue, **options: Any) -> None:
        self.stack: StackProcess = queue.stack
        self.host = f'{uuid4().hex}.example'
        payload = {'url': f'https://{self.host}/', **options}
        # Claimed before the jobs that other tests have left.
        [job] = self.stack.rpc('enqueue_crawl_job', p_payload=payload, p_priority=100)
        self.id: str = job['id']
        self.token = str(uuid4())
        [claimed] = self.stack.rpc(
            'claim_crawl_jobs', p_worker_id=str(uuid4()), p_lease_tokens=[self.token]
        )
        assert claimed['id'] == self.id
        self.url_key = str(uuid4())
        self.seq = 0
        url = {'url_key': self.url_key, 'url': payload['url'], 'depth': 0}
        self.save(discovered=[url], want=1)

    def save(self, *, want: int = 0, **batch: Any) -> None:
        self.seq += 1
        self.stack.rpc(
            'checkpoint_crawl_job',
            p_lease_token=self.token,
            p_batch={'seq': self.seq, **batch},
            p_want=want,
        )


def wait_of(user: User, job: LeasedJob) -> Any:
    [shown] = user.lines('show', job.id, '--json')
    return shown['wait']


def test_a_job_that_fetches_waits_for_nothing(queue: Queue, user: User) -> None:
    job = LeasedJob(queue)

    assert wait_of(user, job) is None
    assert 'waiting' not in user.run('show', job.id).stdout


def test_a_host_in_backoff_is_named_with_its_time(queue: Queue, user: User) -> None:
    job = LeasedJob(queue)
    job.save(hosts=[{'host': job.host, 'backoff_seconds': PATIENCE_SECONDS}])
    shown = user.run('show', job.id).stdout

    assert re.search(rf'^waiting +no requests to {job.host} until {CLOCK}$', shown, re.MULTILINE)
    assert wait_of(user, job)['reason'] == 'host'


def test_a_url_that_will_be_retried_is_shown_with_its_error_and_time(
    queue: Queue, user: User
) -> None:
    job = LeasedJob(queue)
    retried = {'url_key': job.url_key, 'after_seconds': PATIENCE_SECONDS, 'error': 'HTTP 500'}
    job.save(retried=[retried])
    shown = user.run('show', job.id).stdout

    assert re.search(rf'^waiting +next retry at {CLOCK} \(HTTP 500\)$', shown, re.MULTILINE)
    assert wait_of(user, job)['reason'] == 'retry'


def test_the_delay_between_requests_is_shown(queue: Queue, user: User) -> None:
    slow = {'robots_status': 200, 'robots_txt': 'x', 'crawl_delay_seconds': 30}
    asked = LeasedJob(queue)
    asked.save(hosts=[{'host': asked.host, **slow}])
    unasked = LeasedJob(queue, obey_robots=False)
    unasked.save(hosts=[{'host': unasked.host, **slow}])
    own = LeasedJob(queue, delay_seconds=40)
    own.save(hosts=[{'host': own.host, **slow}])

    line = f'waiting   one request to {asked.host} every 30 s\n'
    assert line in user.run('show', asked.id).stdout
    assert wait_of(user, unasked) is None
    assert wait_of(user, own)['seconds'] == 40


def test_a_job_released_for_later_is_shown_with_its_time(queue: Queue, user: User) -> None:
    job = LeasedJob(queue)
    queue.stack.rpc(
        'release_crawl_job', p_lease_token=job.token, p_reason='later', p_after_seconds=600
    )
    wait = wait_of(user, job)

    assert wait['reason'] == 'time'
    assert datetime.fromisoformat(wait['until']) == queue.job(job.id)['run_after']
    assert re.search(
        rf'^waiting +not before {CLOCK}$', user.run('show', job.id).stdout, re.MULTILINE
    )


def test_a_crawl_that_waits_says_so_in_its_progress(user: User) -> None:
    headers = {'Retry-After': str(PATIENCE_SECONDS)}
    with Site({'/': Answer(status=429, headers=headers)}) as site:
        process = user.start('crawl', site.url, '--allow-network', '127.0.0.0/8')
        assert process.stderr is not None
        line = next((line for line in process.stderr if 'no requests to' in line), 'nothing')
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=60)

    host = site.url.removeprefix('http://')
    assert re.match(rf'processing  0 done, 1 left, no requests to {host} until {CLOCK}$', line)

"""A job that waits says for what, and until when: it does not look like one that hangs."""

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

# With the day, if it is another one.
CLOCK = r'(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d'
# Longer than any of these tests; from two minutes on, a job goes back into the line.
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


class Held:
    """A job that is being crawled, one URL of it in flight; the test is its worker."""

    def __init__(self, queue: Queue, **options: Any) -> None:
        self.stack: StackProcess = queue.stack
        self.host = f'{uuid4().hex}.example'
        payload = {'url': f'https://{self.host}/', **options}
        # Before all that other tests have left in line.
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


def wait_of(user: User, job: Held) -> Any:
    [told] = user.lines('show', job.id, '--json')
    return told['wait']


def test_a_job_at_work_waits_for_nothing(queue: Queue, user: User) -> None:
    job = Held(queue)

    assert wait_of(user, job) is None
    assert 'waits' not in user.run('show', job.id).stdout


def test_a_host_that_asked_for_patience_is_named_with_its_time(queue: Queue, user: User) -> None:
    job = Held(queue)
    job.save(hosts=[{'host': job.host, 'backoff_seconds': PATIENCE_SECONDS}])
    shown = user.run('show', job.id).stdout

    assert re.search(rf'^waits +{job.host} is left alone until {CLOCK}$', shown, re.MULTILINE)
    assert wait_of(user, job)['reason'] == 'host'


def test_a_url_that_is_tried_again_is_told_with_its_error_and_time(
    queue: Queue, user: User
) -> None:
    job = Held(queue)
    retried = {'url_key': job.url_key, 'after_seconds': PATIENCE_SECONDS, 'error': 'HTTP 500'}
    job.save(retried=[retried])
    shown = user.run('show', job.id).stdout

    assert re.search(rf'^waits +the next try is at {CLOCK} \(HTTP 500\)$', shown, re.MULTILINE)
    assert wait_of(user, job)['reason'] == 'retry'


def test_the_pause_between_two_requests_is_told(queue: Queue, user: User) -> None:
    slow = {'robots_status': 200, 'robots_txt': 'x', 'crawl_delay_seconds': 30}
    asked = Held(queue)
    asked.save(hosts=[{'host': asked.host, **slow}])
    unasked = Held(queue, obey_robots=False)
    unasked.save(hosts=[{'host': unasked.host, **slow}])
    own = Held(queue, delay_seconds=40)
    own.save(hosts=[{'host': own.host, **slow}])

    told = f'waits     {asked.host} gets one request in 30 s\n'
    assert told in user.run('show', asked.id).stdout
    assert wait_of(user, unasked) is None
    assert wait_of(user, own)['seconds'] == 40


def test_a_job_that_went_back_into_the_line_tells_when_it_goes_on(queue: Queue, user: User) -> None:
    job = Held(queue)
    queue.stack.rpc(
        'release_crawl_job', p_lease_token=job.token, p_reason='later', p_after_seconds=600
    )
    wait = wait_of(user, job)

    assert wait['reason'] == 'time'
    assert datetime.fromisoformat(wait['until']) == queue.job(job.id)['run_after']
    assert re.search(rf'^waits +not before {CLOCK}$', user.run('show', job.id).stdout, re.MULTILINE)


def test_a_crawl_that_waits_says_so_while_it_goes_on(user: User) -> None:
    headers = {'Retry-After': str(PATIENCE_SECONDS)}
    with Site({'/': Answer(status=429, headers=headers)}) as site:
        process = user.start('crawl', site.url, '--allow-network', '127.0.0.0/8')
        assert process.stderr is not None
        line = next((line for line in process.stderr if 'left alone' in line), 'nothing')
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=60)

    host = site.url.removeprefix('http://')
    assert re.match(rf'processing  0 done, 1 left, {host} is left alone until {CLOCK}$', line)

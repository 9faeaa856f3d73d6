"""A crawl of 2,000 pages whose processes are killed at many moments.

What was fetched is read from the site's log, what was recorded from the database.
"""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.site import NOT_FOUND, Answer, Site, page
from tests.support.stack import own_stack
from tests.support.waiting import wait_until
from tests.support.worker import Queue, WorkerProcess

PAGES = 2000
CHILDREN = 10
CONCURRENCY = 8
LOOPBACK = ('--allow-network', '127.0.0.1/32')


@pytest.fixture(scope='module')
def queue() -> Iterator[Queue]:
    with own_stack() as stack:
        stack.execute(
            'update crawl_settings set backoff_base_seconds = 1, backoff_cap_seconds = 1', []
        )
        queue = Queue(stack)
        yield queue
        queue.close()


async def answer(request: web.Request) -> Answer:
    """A tree of pages, each with links to its children, to its parent and to another page."""
    number = int(request.path.removeprefix('/p/') or 0) if request.path != '/' else 0
    if number >= PAGES:
        return NOT_FOUND
    first = number * CHILDREN + 1
    below = range(first, min(first + CHILDREN, PAGES))
    links = [f'/p/{child}' for child in (*below, number // 2, (number + 7) % PAGES) if child]
    return page('/', *links, text=f'The words of page {number}. ' * 20, title=f'Page {number}')


def enqueue(queue: Queue, site: Site) -> str:
    payload = {
        'url': f'{site.url}/',
        'max_pages': 100_000,
        'max_retries': 20,
        'concurrency': CONCURRENCY,
        'markdown': 'none',
        'obey_robots': False,
    }
    return queue.stack.rpc('enqueue_crawl_job', p_payload=payload)[0]['id']


def wait_for_requests(site: Site, count: int) -> None:
    """Wait until the site has answered `count` requests; it holds back the next ones."""
    site.answer_only(count)
    wait_until(lambda: len(site.log) > count, what=f'{count} requests')


def test_a_runner_killed_at_twenty_moments_repeats_only_its_open_pages(
    queue: Queue, tmp_path: Path
) -> None:
    moments = sorted(random.Random(20).sample(range(20, PAGES - 100), 20))
    with (
        Site(answer=answer) as site,
        WorkerProcess(queue.stack, tmp_path, *LOOPBACK) as worker,
    ):
        job = enqueue(queue, site)
        for moment in moments:
            wait_for_requests(site, moment)
            [runner] = worker.wait_for_runners(1)
            os.kill(runner, signal.SIGKILL)
            queue.wait_for('pending', job)
            queue.stack.execute('update silkline.jobs set run_after = now() where id = %s', [job])
        site.answer_all()
        queue.wait_for('completed', job)
        queue.assert_complete_once(job, pages=PAGES)
        requests = site.request_counts()
        assert len(requests) == PAGES
        assert sum(requests.values()) - PAGES <= len(moments) * CONCURRENCY


def test_a_killed_worker_repeats_at_most_the_pages_of_one_checkpoint(
    queue: Queue, tmp_path: Path
) -> None:
    kills, dice = 3, random.Random(3)
    with Site(answer=answer) as site:
        job = enqueue(queue, site)
        for kill in range(kills):
            with WorkerProcess(queue.stack, tmp_path, *LOOPBACK) as worker:
                wait_for_requests(site, dice.randint(100, 400) + kill * 500)
                worker.kill()
        site.answer_all()
        with WorkerProcess(queue.stack, tmp_path, *LOOPBACK):
            queue.wait_for('completed', job)
        queue.assert_complete_once(job, pages=PAGES)
        requests = site.request_counts()
        assert len(requests) == PAGES
        # A checkpoint has up to 100 pages; the open ones come on top.
        assert sum(requests.values()) - PAGES <= kills * (100 + CONCURRENCY)

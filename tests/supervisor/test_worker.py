"""`silkline worker` against a stack: killed, stopped, frozen and cut off while jobs run.

Everything is real: the worker is a process, its jobs are processes, the API is that of
`silkline up`. Jobs that must not end too soon crawl a site that holds back its answers.
"""

import asyncio
import os
import resource
import signal
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from silkline.queue.realtime import listen
from silkline.settings import Project
from tests.support.crawls import LOOPBACK
from tests.support.plugins import python_with_generated_site
from tests.support.proxy import RestProxy
from tests.support.runner import is_running
from tests.support.site import Site, page
from tests.support.stack import StackProcess, own_stack
from tests.support.waiting import quickest, wait_until
from tests.support.worker import Queue, WorkerProcess

# Leases do not expire during a test, unless it sets a shorter time.
HEARTBEAT_SECONDS, STALE_SECONDS = 1, 120
SOON_STALE_SECONDS = 5

# Half a second of work for one runner; and a page that takes longer than any test.
SHORT = {'pages': 20, 'links': 5, 'delay_ms': 50}
STUCK = {'pages': 4, 'links': 5, 'slow': 3, 'slow_ms': 300_000}

PAGES = 30


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        yield stack


@pytest.fixture
def queue(stack: StackProcess) -> Iterator[Queue]:
    """The queue, without open jobs of other tests."""
    queue = Queue(stack)
    set_pace(queue, HEARTBEAT_SECONDS, STALE_SECONDS)
    yield queue
    queue.clear()
    queue.close()


def set_pace(queue: Queue, heartbeat_seconds: int, stale_seconds: int) -> None:
    queue.stack.execute(
        'update crawl_settings set heartbeat_every_seconds = %s, stale_after_seconds = %s,'
        ' backoff_base_seconds = 1, backoff_cap_seconds = 1',
        [heartbeat_seconds, stale_seconds],
    )


def run_worker(
    queue: Queue, state: Path, *words: str, variables: Mapping[str, str] = {}
) -> WorkerProcess:
    """A worker that has the fetcher `generated`."""
    return WorkerProcess(
        queue.stack, state, *words, variables=variables, python=python_with_generated_site()
    )


def is_gone(pids: set[int]) -> bool:
    return not any(is_running(pid) for pid in pids)


def is_idle(worker: WorkerProcess) -> bool:
    """Whether its only child is the process for the next job."""
    return not worker.runners() and len(worker.children()) == 1


@dataclass(frozen=True)
class Crawl:
    """A job over a site of `PAGES` pages that holds back its answers after the first `answered`."""

    job: str
    site: Site
    answered: int

    def wait_until_held(self) -> None:
        wait_until(lambda: len(self.site.log) > self.answered, what='a request that is held back')


@contextmanager
def held_crawls(queue: Queue, count: int, *, answered: int = 8) -> Generator[list[Crawl]]:
    """Jobs that run as long as the test needs, with a few pages each to save."""
    links = {number: range(5 * number + 1, min(5 * number + 6, PAGES)) for number in range(PAGES)}
    pages = {
        f'/{number or ""}': page(*(f'/{below}' for below in links[number]), text=f'No. {number}.')
        for number in range(PAGES)
    }
    with ExitStack() as sites:
        crawls: list[Crawl] = []
        for _ in range(count):
            site = sites.enter_context(Site(pages))
            site.answer_only(answered)
            payload = {'url': f'{site.url}/', 'concurrency': 2, 'obey_robots': False}
            [job] = queue.stack.rpc('enqueue_crawl_job', p_payload=payload)
            crawls.append(Crawl(job['id'], site, answered))
        yield crawls


@contextmanager
def held_crawl(queue: Queue, *, answered: int = 8) -> Generator[Crawl]:
    with held_crawls(queue, 1, answered=answered) as [crawl]:
        yield crawl


def wait_until_running(queue: Queue, *crawls: Crawl) -> None:
    for crawl in crawls:
        crawl.wait_until_held()
        queue.wait_for_pages(crawl.answered - 2, crawl.job)


# A runner is started before its job


def test_a_worker_with_a_free_slot_keeps_a_process_ready_and_ends_it_on_exit(
    queue: Queue, directory: Path
) -> None:
    with run_worker(queue, directory, '--slots', '1') as worker:
        wait_until(lambda: is_idle(worker), what='a process that waits for a job')
        [ahead] = worker.children()
        job = queue.enqueue(**STUCK)
        queue.wait_for_pages(3, job)
        assert worker.children() == worker.runners() == {ahead}

        queue.control(job, 'cancel')
        wait_until(lambda: is_idle(worker), what='the next process')
        [ahead] = worker.children()
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert is_gone({ahead})


# A runner is killed


def test_the_job_of_a_killed_runner_is_retried_and_no_other_is_affected(
    queue: Queue, directory: Path
) -> None:
    with run_worker(queue, directory, *LOOPBACK) as worker, held_crawl(queue) as hit:
        wait_until_running(queue, hit)
        [runner] = worker.wait_for_runners(1)
        with held_crawl(queue) as other:
            wait_until_running(queue, other)

            os.kill(runner, signal.SIGKILL)
            wait_until(lambda: queue.job(hit.job)['error_code'], what='the error')
            assert queue.job(hit.job)['error_code'] == 'crashed:SIGKILL'
            assert queue.job(hit.job)['retry_count'] == 1
            hit.site.answer_all()
            other.site.answer_all()
            queue.wait_for('completed', hit.job, other.job)

    queue.assert_complete_once(hit.job, pages=PAGES)
    queue.assert_complete_once(other.job, pages=PAGES)
    assert queue.job(other.job)['attempt'] == 1


def test_a_killed_runner_without_retries_left_fails_its_job_at_once(
    queue: Queue, directory: Path
) -> None:
    with run_worker(queue, directory) as worker:

        def seconds_to_fail() -> float:
            job = queue.enqueue(**STUCK)
            queue.stack.execute('update silkline.jobs set max_retries = 0 where id = %s', [job])
            queue.wait_for_pages(3, job)
            [runner] = worker.runners()
            killed_at = time.monotonic()
            os.kill(runner, signal.SIGKILL)
            queue.wait_for('failed', job)
            assert queue.job(job)['error_code'] == 'crashed:SIGKILL'
            return time.monotonic() - killed_at

        assert quickest(seconds_to_fail, within_seconds=2) < 2


def test_a_page_that_kills_its_runner_fails_and_its_job_completes(
    queue: Queue, directory: Path
) -> None:
    poisoned = queue.enqueue(pages=5, links=5, crash='SIGSEGV', crash_at=2)
    fine = queue.enqueue(**SHORT)
    with run_worker(queue, directory) as worker:
        queue.wait_for('completed', poisoned, fine)
        assert not worker.has_ended

    progress = queue.progress(poisoned)
    assert (progress['pages_done'], progress['pages_failed']) == (4, 1)
    queue.assert_complete_once(fine, pages=20)


def test_a_worker_without_descriptors_fails_the_job_as_start_and_keeps_running(
    queue: Queue, directory: Path
) -> None:
    with run_worker(queue, directory, '--slots', '1') as worker:
        queue.wait_for('completed', queue.enqueue(**SHORT))
        wait_until(lambda: not worker.runners(), what='an idle worker')
        most = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
        highest = max(int(path.name) for path in Path(f'/proc/{worker.pid}/fd').iterdir())
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (highest + 3, most[1]))
        # A job with a browser does not take the process that was started ahead.
        payload = {'url': 'https://browser.example/', 'fetcher': 'browser'}
        job = queue.stack.rpc('enqueue_crawl_job', p_payload=payload)[0]['id']
        wait_until(lambda: queue.job(job)['error_code'] == 'start', what='the error code start')

        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, most)
        queue.wait_for('completed', queue.enqueue(**SHORT))


def test_a_worker_without_any_free_descriptor_keeps_running(queue: Queue, directory: Path) -> None:
    with run_worker(queue, directory) as worker:
        worker.wait_for_output('slots')
        job = queue.enqueue(**SHORT)
        queue.wait_for('completed', job)
        most = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (3, most[1]))
        seen = {row['last_seen_at'] for row in queue.stack.rpc('list_crawl_workers')}

        def has_sent_heartbeats() -> bool:
            assert not worker.has_ended, worker.output
            seen.update(row['last_seen_at'] for row in queue.stack.rpc('list_crawl_workers'))
            return len(seen) > 3

        wait_until(has_sent_heartbeats, what='two more heartbeats')
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, most)
        queue.wait_for('completed', queue.enqueue(**SHORT))


def test_a_runner_that_logs_too_much_does_not_fill_the_log(queue: Queue, directory: Path) -> None:
    job = queue.enqueue(pages=3, crash='chat:20000')
    with run_worker(queue, directory) as worker:
        queue.wait_for('completed', job)
        wait_until(lambda: 'completed' in worker.output)

        assert 100 <= worker.output.count('a line of chat') < 2000
        assert worker.output.count('no more follow') == 1


# The worker is killed


def test_a_killed_worker_that_is_restarted_runs_its_jobs_at_once(
    queue: Queue, directory: Path
) -> None:
    with held_crawls(queue, 2) as crawls:
        jobs = [crawl.job for crawl in crawls]
        with run_worker(queue, directory, *LOOPBACK) as worker:
            wait_until_running(queue, *crawls)
            runners = worker.runners()
            worker.kill()
        wait_until(lambda: is_gone(runners), what='the runners to end')
        saved = {job: queue.finished(job) for job in jobs}

        with run_worker(queue, directory, *LOOPBACK):
            wait_until(
                lambda: all(queue.job(job)['attempt'] == 2 for job in jobs), what='a second attempt'
            )
            for crawl in crawls:
                crawl.site.answer_all()
            queue.wait_for('completed', *jobs)
    for job in jobs:
        queue.assert_complete_once(job, pages=PAGES)
        assert saved[job].items() <= queue.finished(job).items()


def test_another_worker_takes_the_jobs_of_a_killed_one_once_they_are_stale(
    queue: Queue, directory: Path
) -> None:
    with (
        held_crawl(queue) as crawl,
        run_worker(queue, directory / 'one', *LOOPBACK) as worker,
    ):
        wait_until_running(queue, crawl)
        runners = worker.runners()
        with run_worker(queue, directory / 'two', *LOOPBACK) as other:
            other.wait_for_output('slots')
            worker.kill()
            wait_until(lambda: is_gone(runners), what='the runners to end')
            assert queue.status(crawl.job) == 'processing'
            queue.stack.execute(
                "update silkline.jobs set last_heartbeat = now() - interval '1 hour',"
                " lease_check_at = now() - interval '58 minutes' where id = %s",
                [crawl.job],
            )
            crawl.site.answer_all()
            queue.wait_for('completed', crawl.job)
    row = queue.job(crawl.job)
    assert (row['attempt'], row['retry_count']) == (2, 1)
    queue.assert_complete_once(crawl.job, pages=PAGES)


def test_a_start_with_a_wrong_key_keeps_the_lease_file_of_a_killed_worker(
    queue: Queue, directory: Path
) -> None:
    job = queue.enqueue(**STUCK)
    with run_worker(queue, directory) as worker:
        queue.wait_for_pages(3, job)
        worker.kill()
    variables = {'SUPABASE_URL': queue.stack.url, 'SUPABASE_SECRET_KEY': 'sb_secret_wrong'}
    with run_worker(queue, directory, variables=variables) as mistaken:
        assert mistaken.wait() == 1

    def seconds_to_run_again() -> float:
        attempt = queue.job(job)['attempt']
        started_at = time.monotonic()
        with run_worker(queue, directory) as worker:
            wait_until(lambda: queue.job(job)['attempt'] > attempt, what='one more attempt')
            seconds = time.monotonic() - started_at
            worker.kill()
        return seconds

    assert quickest(seconds_to_run_again, within_seconds=5) < 5


def test_the_readable_leases_of_a_damaged_lease_file_are_released(
    queue: Queue, directory: Path
) -> None:
    job = queue.enqueue(**STUCK)
    with run_worker(queue, directory) as worker:
        queue.wait_for_pages(3, job)
        worker.kill()
    [lease_file] = directory.iterdir()
    lease_file.write_bytes(lease_file.read_bytes() + b'\xff' * 37 + b'01a1e38a-6f1d')

    with run_worker(queue, directory):
        wait_until(lambda: queue.job(job)['attempt'] == 2, what='a second attempt')
        wait_until(lambda: not lease_file.exists(), what='the lease file to be deleted')


# A job that cannot be read


def test_a_job_that_cannot_be_read_fails_and_delays_no_other(queue: Queue, directory: Path) -> None:
    queue.stack.execute("update crawl_settings set plugin_kinds = '{bulky}'", [])
    first = queue.enqueue(**SHORT)
    queue.stack.rpc('enqueue_crawl_job', p_kind='bulky', p_payload={})
    # A few bytes in the database, but as JSON more digits than Python accepts.
    queue.stack.execute(
        "update silkline.jobs set payload = %s where kind = 'bulky'", ['{"size": 1e5000}']
    )
    second = queue.enqueue(**SHORT)
    with run_worker(queue, directory) as worker:
        queue.wait_for('completed', first, second)
        assert not worker.has_ended
    [row] = queue.rows("select status, error_code from silkline.jobs where kind = 'bulky'")
    assert row == {'status': 'failed', 'error_code': 'payload'}
    assert [queue.job(job)['attempt'] for job in (first, second)] == [1, 1]


# The worker is frozen


def test_a_frozen_worker_that_resumes_too_late_changes_nothing(
    queue: Queue, directory: Path
) -> None:
    set_pace(queue, HEARTBEAT_SECONDS, SOON_STALE_SECONDS)
    with (
        held_crawl(queue) as crawl,
        run_worker(queue, directory / 'one', *LOOPBACK) as frozen,
    ):
        job = crawl.job
        wait_until_running(queue, crawl)
        runners = frozen.runners()
        frozen.send(signal.SIGSTOP)
        crawl.site.answer_all()
        with run_worker(queue, directory / 'two', '--once', *LOOPBACK) as other:
            assert other.wait() == 0
        queue.assert_complete_once(job, pages=PAGES)
        before = queue.job(job), queue.finished(job)

        frozen.send(signal.SIGCONT)
        wait_until(lambda: is_gone(runners), what='its runners to end')
        frozen.wait_for_output(f'job {job}: lost')
        later = queue.enqueue(**SHORT)
        queue.wait_for('completed', later)

        assert (queue.job(job), queue.finished(job)) == before
        queue.assert_complete_once(job, pages=PAGES)


# The worker is stopped


def test_sigterm_saves_and_releases_four_jobs_and_another_worker_continues_them(
    queue: Queue, directory: Path
) -> None:
    with held_crawls(queue, 4) as crawls:
        jobs = [crawl.job for crawl in crawls]
        with run_worker(queue, directory / 'one', *LOOPBACK) as worker:
            wait_until_running(queue, *crawls)
            worker.send(signal.SIGTERM)
            worker.wait_for_output('to release')
            for crawl in crawls:
                # The worker waits for open requests.
                crawl.site.answer_only(len(crawl.site.log))
            assert worker.wait() == 0
        for job in jobs:
            row = queue.job(job)
            assert (row['status'], row['retry_count'], row['worker_id']) == ('pending', 0, None)
        assert list((directory / 'one').iterdir()) == []
        saved = {job: queue.finished(job) for job in jobs}

        for crawl in crawls:
            crawl.site.answer_all()
        with run_worker(queue, directory / 'two', '--burst', *LOOPBACK) as other:
            assert other.wait() == 0
    for job in jobs:
        queue.assert_complete_once(job, pages=PAGES)
        assert len(saved[job]) >= 5
        assert saved[job].items() <= queue.finished(job).items()
        assert queue.job(job)['retry_count'] == 0


def test_a_job_whose_page_takes_longer_than_the_grace_period_is_released(
    queue: Queue, directory: Path
) -> None:
    job = queue.enqueue(**STUCK)
    with run_worker(queue, directory, '--grace', '1') as worker:
        queue.wait_for_pages(3, job)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    row = queue.job(job)

    assert (row['status'], row['retry_count'], row['worker_id']) == ('pending', 0, None)


def test_a_second_sigterm_exits_at_once_and_the_next_worker_takes_over(
    queue: Queue, directory: Path
) -> None:
    job = queue.enqueue(**STUCK)
    with run_worker(queue, directory, '--grace', '300') as worker:
        queue.wait_for_pages(3, job)
        [runner] = worker.runners()
        worker.send(signal.SIGTERM)
        worker.wait_for_output('to release')
        worker.send(signal.SIGTERM)
        assert worker.wait() == 130
    wait_until(lambda: is_gone({runner}), what='its runner to end')

    with run_worker(queue, directory):
        wait_until(lambda: queue.job(job)['attempt'] == 2, what='a second attempt')


# Users cancel, pause, resume and stop jobs


def test_the_process_of_a_cancelled_job_ends_within_two_seconds(
    queue: Queue, directory: Path
) -> None:
    # By a live message: the next heartbeat would be too late.
    set_pace(queue, 30, 120)
    seconds: list[float] = []
    with run_worker(queue, directory, '--slots', '1') as worker:
        for _ in range(21):
            job = queue.enqueue(**STUCK)
            [runner] = worker.wait_for_runners(1)
            queue.wait_for('processing', job)
            called_at = time.monotonic()
            queue.control(job, 'cancel')
            wait_until(lambda: is_gone({runner}), what='the runner to end')  # noqa: B023
            seconds.append(time.monotonic() - called_at)
            wait_until(lambda: not queue.progress(job)['is_saving'], what='the lease to end')  # noqa: B023
    seconds.sort()
    print(f'cancel: p50 {seconds[10]:.3f} s, p90 {seconds[18]:.3f} s, longest {seconds[20]:.3f} s')

    # A busy machine may delay single ones.
    assert seconds[18] < 2


def test_a_paused_job_is_saved_and_continues_when_resumed(queue: Queue, directory: Path) -> None:
    with held_crawl(queue) as crawl, run_worker(queue, directory, *LOOPBACK) as worker:
        job = crawl.job
        wait_until_running(queue, crawl)
        queue.control(job, 'pause')
        wait_until(lambda: not queue.progress(job)['is_saving'], what='the job to be saved')
        row = queue.job(job)
        assert (row['status'], row['worker_id']) == ('paused', None)
        assert worker.runners() == set()
        saved = queue.finished(job)
        assert queue.progress(job)['pages_in_progress'] == 0

        crawl.site.answer_all()
        queue.control(job, 'resume')
        queue.wait_for('completed', job)
    queue.assert_complete_once(job, pages=PAGES)
    assert saved.items() <= queue.finished(job).items()
    assert queue.job(job)['retry_count'] == 0


def test_a_pause_does_not_wait_for_a_slow_page(queue: Queue, directory: Path) -> None:
    with run_worker(queue, directory):

        def seconds_to_pause() -> float:
            job = queue.enqueue(**STUCK)
            queue.wait_for_pages(3, job)
            called_at = time.monotonic()
            queue.control(job, 'pause')
            wait_until(lambda: not queue.progress(job)['is_saving'], what='the job to be saved')
            assert queue.status(job) == 'paused'
            assert len(queue.finished(job)) == 3
            return time.monotonic() - called_at

        assert quickest(seconds_to_pause, within_seconds=3) < 3


def test_pausing_and_resuming_in_quick_succession_loses_nothing(
    queue: Queue, directory: Path
) -> None:
    set_pace(queue, 10, 120)
    with held_crawl(queue, answered=2) as crawl, run_worker(queue, directory, *LOOPBACK):
        for count in range(2, 14, 2):
            wait_until(lambda count=count: len(crawl.site.log) > count, what='one more request')
            queue.control(crawl.job, 'pause')
            queue.control(crawl.job, 'resume')
            crawl.site.answer_only(count + 2)
        crawl.site.answer_all()
        queue.wait_for('completed', crawl.job)
    queue.assert_complete_once(crawl.job, pages=PAGES)


def test_a_stopped_job_keeps_its_pages(queue: Queue, directory: Path) -> None:
    with held_crawl(queue) as crawl, run_worker(queue, directory, *LOOPBACK):
        wait_until_running(queue, crawl)
        queue.control(crawl.job, 'stop')
        wait_until(lambda: not queue.progress(crawl.job)['is_saving'], what='the job to be saved')

    assert queue.status(crawl.job) == 'stopped'
    assert 5 <= len(queue.finished(crawl.job)) < PAGES


# Live progress


def test_live_progress_counts_the_whole_job(queue: Queue, directory: Path) -> None:
    """Also after a pause, so that a client can merge it into a snapshot."""
    messages: list[Mapping[str, Any]] = []
    with (
        held_crawl(queue) as crawl,
        listening(queue, crawl.job, messages),
        run_worker(queue, directory, *LOOPBACK),
    ):
        job = crawl.job
        wait_until_running(queue, crawl)
        # There is at most one message per second, and it comes with a checkpoint.
        silent = (
            'select from silkline.states'
            " where job_id = %s and progress_sent_at < now() - interval '1 second'"
        )
        wait_until(lambda: queue.rows(silent, [job]), what='a second without a message')
        crawl.site.answer_only(crawl.answered + 2)
        wait_until(lambda: any(message['eta_seconds'] for message in messages), what='an estimate')
        queue.control(job, 'pause')
        wait_until(lambda: not queue.progress(job)['is_saving'], what='the job to be saved')
        done = queue.progress(job)['pages_done']
        crawl.site.answer_all()
        queue.control(job, 'resume')
        queue.wait_for('completed', job)
        wait_until(lambda: messages[-1]['pages_done'] > done, what='more progress')

    assert [message['seq'] for message in messages] == sorted(
        {message['seq'] for message in messages}
    )
    assert queue.progress(job).keys() >= messages[-1].keys()


@contextmanager
def listening(queue: Queue, job: str, messages: list[Mapping[str, Any]]) -> Generator[None]:
    """Collect the progress messages of a job, as a user interface would."""
    project = Project(queue.stack.url, queue.stack.variables['SUPABASE_SECRET_KEY'], is_local=True)
    joined = threading.Event()

    def hear(event: str, payload: Mapping[str, Any]) -> None:
        if event == 'progress':
            messages.append(payload)

    async def run() -> None:
        await listen(project, f'crawl_job:{job}', hear, on_joined=lambda _: joined.set())

    loop = asyncio.new_event_loop()
    task = loop.create_task(run())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([task])))
    thread.start()
    try:
        assert joined.wait(60), 'the channel was not joined'
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


# The database or the API fails


def test_a_worker_survives_a_crash_of_the_database(queue: Queue, directory: Path) -> None:
    with (
        held_crawls(queue, 2) as crawls,
        run_worker(queue, directory, *LOOPBACK) as worker,
    ):
        jobs = [crawl.job for crawl in crawls]
        wait_until_running(queue, *crawls)
        pid_file = queue.stack.directory / 'postgres/data/postmaster.pid'
        server = int(pid_file.read_text().split()[0])
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: is_gone({server}), what='the database to end')
        for crawl in crawls:
            crawl.site.answer_all()
        queue.wait_for('completed', *jobs)
        assert not worker.has_ended
    for job in jobs:
        queue.assert_complete_once(job, pages=PAGES)
        assert queue.job(job)['attempt'] == 1


def test_a_worker_survives_a_restart_of_the_whole_stack(queue: Queue, directory: Path) -> None:
    with (
        held_crawls(queue, 2) as crawls,
        run_worker(queue, directory, *LOOPBACK) as worker,
    ):
        jobs = [crawl.job for crawl in crawls]
        wait_until_running(queue, *crawls)
        queue.stack.end(signal.SIGKILL)
        for crawl in crawls:
            crawl.site.answer_all()
        queue.stack.start()
        queue.wait_for('completed', *jobs)
        later = queue.enqueue(**SHORT)
        queue.wait_for('completed', later)
        assert not worker.has_ended
    for job in jobs:
        queue.assert_complete_once(job, pages=PAGES)
        assert queue.job(job)['attempt'] == 1


def test_a_worker_without_the_api_kills_its_runners_before_its_leases_expire(
    queue: Queue, directory: Path
) -> None:
    # A quarter of it is the margin, enough for a busy machine.
    set_pace(queue, HEARTBEAT_SECONDS, 8)
    with held_crawl(queue) as crawl, run_worker(queue, directory, *LOOPBACK) as worker:
        wait_until_running(queue, crawl)
        runners = worker.runners()
        # Frozen, it accepts connections and answers nothing: the worst kind of failure.
        os.kill(queue.stack.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: is_gone(runners), seconds=8, what='the runners to end')
        finally:
            os.kill(queue.stack.pid, signal.SIGCONT)
        crawl.site.answer_all()
        queue.wait_for('completed', crawl.job)
        assert not worker.has_ended
    queue.assert_complete_once(crawl.job, pages=PAGES)


def test_a_worker_without_the_api_stops_in_time_and_leaves_a_lease_file(
    queue: Queue, directory: Path
) -> None:
    with held_crawl(queue) as crawl:
        with run_worker(queue, directory, '--grace', '2', *LOOPBACK) as worker:
            wait_until_running(queue, crawl)
            os.kill(queue.stack.pid, signal.SIGSTOP)
            try:
                worker.send(signal.SIGTERM)
                assert worker.wait(30) == 0
            finally:
                os.kill(queue.stack.pid, signal.SIGCONT)

        crawl.site.answer_all()
        with run_worker(queue, directory, *LOOPBACK):
            queue.wait_for('completed', crawl.job)
    assert queue.job(crawl.job)['attempt'] == 2
    queue.assert_complete_once(crawl.job, pages=PAGES)


# What a worker says to the queue


@contextmanager
def worker_behind_a_proxy(
    queue: Queue, directory: Path, proxy: RestProxy, *words: str
) -> Generator[WorkerProcess]:
    key = queue.stack.variables['SUPABASE_SECRET_KEY']
    variables = {'SUPABASE_URL': proxy.url, 'SUPABASE_SECRET_KEY': key}
    with run_worker(queue, directory, *words, variables=variables) as worker:
        yield worker


def test_a_job_of_one_page_takes_two_checkpoints_and_one_completion(
    queue: Queue, directory: Path
) -> None:
    with (
        RestProxy(queue.stack.url) as proxy,
        worker_behind_a_proxy(queue, directory, proxy, '--once'),
    ):
        job = queue.enqueue(pages=1)
        queue.wait_for('completed', job)

    assert len(proxy.calls_of('checkpoint_crawl_job')) == 2
    assert len(proxy.calls_of('complete_crawl_job')) == 1
    assert proxy.calls_of('complete_crawl_jobs') == []
    queue.assert_complete_once(job, pages=1)


def test_jobs_that_end_during_a_completion_are_completed_in_one_call(
    queue: Queue, directory: Path
) -> None:
    jobs = [queue.enqueue(pages=3) for _ in range(4)]
    with RestProxy(queue.stack.url) as proxy:
        proxy.hold('complete_crawl_job')
        with worker_behind_a_proxy(queue, directory, proxy, '--burst') as worker:
            queue.wait_for_pages(3, *jobs)
            wait_until(lambda: not worker.runners(), what='all crawls to end')
            wait_until(lambda: proxy.calls_of('complete_crawl_job'), what='the first completion')
            proxy.release()
            assert worker.wait() == 0

    alone = len(proxy.calls_of('complete_crawl_job'))
    together = [len(call['p_lease_tokens']) for call in proxy.calls_of('complete_crawl_jobs')]
    assert alone + sum(together) == 4
    assert max(together) >= 2
    for job in jobs:
        queue.assert_complete_once(job, pages=3)


# Many jobs, many workers


def test_many_jobs_leave_no_zombie_and_no_open_descriptor(queue: Queue, directory: Path) -> None:
    with run_worker(queue, directory) as worker:
        queue.wait_for('completed', *[queue.enqueue(pages=3) for _ in range(4)])
        wait_until(lambda: is_idle(worker), what='an idle worker')
        before = len(worker.descriptors())
        jobs = [queue.enqueue(pages=3) for _ in range(24)]
        queue.wait_for('completed', *jobs)

        wait_until(lambda: is_idle(worker), what='all other children to be reaped')
        wait_until(lambda: len(worker.descriptors()) <= before, what='its descriptors to be closed')
    for job in jobs:
        queue.assert_complete_once(job, pages=3)


def test_two_workers_share_a_queue_and_run_no_job_twice(queue: Queue, directory: Path) -> None:
    jobs = [queue.enqueue(pages=5, delay_ms=50) for _ in range(16)]
    words = ('--burst', '--slots', '2')
    with (
        run_worker(queue, directory, *words) as one,
        run_worker(queue, directory, *words) as two,
    ):
        assert (one.wait(), two.wait()) == (0, 0)
        for job in jobs:
            started = [f'job {job}: starting' in worker.output for worker in (one, two)]
            assert sorted(started) == [False, True]
            assert queue.job(job)['attempt'] == 1
            queue.assert_complete_once(job, pages=5)
    assert list(directory.iterdir()) == []


def test_once_runs_exactly_one_job(queue: Queue, directory: Path) -> None:
    jobs = [queue.enqueue(pages=3) for _ in range(2)]
    with run_worker(queue, directory, '--once') as worker:
        assert worker.wait() == 0

    assert [queue.status(job) for job in jobs] == ['completed', 'pending']


def test_a_worker_that_has_ended_is_no_longer_listed(queue: Queue, directory: Path) -> None:
    with run_worker(queue, directory) as worker:
        worker.wait_for_output('slots')
        worker_id = worker.output.partition('worker ')[2].partition(':')[0]
        wait_until(lambda: worker_id in fleet(queue), what='the worker to be listed')
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0

    assert worker_id not in fleet(queue)


def fleet(queue: Queue) -> set[str]:
    return {row['id'] for row in queue.stack.rpc('list_crawl_workers')}


# At the start


def test_a_worker_that_cannot_reach_the_api_says_so_and_exits_with_3(
    queue: Queue, directory: Path
) -> None:
    variables = {'SUPABASE_URL': 'http://127.0.0.1:9', 'SUPABASE_SECRET_KEY': 'sb_secret_x'}
    with run_worker(queue, directory, variables=variables) as worker:
        assert worker.wait() == 3

        assert 'http://127.0.0.1:9 does not answer' in worker.output
        assert 'Traceback' not in worker.output


def test_a_worker_with_a_wrong_key_exits_with_1_and_does_not_print_it(
    queue: Queue, directory: Path
) -> None:
    key = f'sb_secret_{uuid4().hex}'
    variables = {'SUPABASE_URL': queue.stack.url, 'SUPABASE_SECRET_KEY': key}
    with run_worker(queue, directory, variables=variables) as worker:
        assert worker.wait() == 1

        assert 'Invalid API key' in worker.output
        assert key not in worker.output
        assert 'Traceback' not in worker.output


def test_the_error_names_a_state_directory_that_cannot_be_created(
    queue: Queue, directory: Path
) -> None:
    (directory / 'file').touch()
    with run_worker(queue, directory / 'file') as worker:
        assert worker.wait() == 2

        assert str(directory / 'file') in worker.output
        assert 'Traceback' not in worker.output


# The key


def test_a_runner_of_a_worker_has_no_key_and_nothing_open_but_its_pipes(
    queue: Queue, directory: Path
) -> None:
    key = queue.stack.variables['SUPABASE_SECRET_KEY']
    variables = {'SUPABASE_URL': queue.stack.url, 'SUPABASE_SECRET_KEY': key}
    with run_worker(queue, directory, variables=variables) as worker:
        queue.wait_for_pages(3, queue.enqueue(**STUCK))
        [runner] = worker.runners()
        home = Path(f'/proc/{runner}')
        opened = {os.readlink(path) for path in (home / 'fd').iterdir()}
        inet = (home / 'net/tcp').read_text() + (home / 'net/tcp6').read_text()
        sockets = [name[8:-1] for name in opened if name.startswith('socket:')]

        assert key.encode() in Path(f'/proc/{worker.pid}/environ').read_bytes()
        assert key.encode() not in (home / 'environ').read_bytes()
        assert key.encode() not in (home / 'cmdline').read_bytes()
        assert b'SUPABASE' not in (home / 'environ').read_bytes()
        assert [name for name in opened if name.startswith('/')] in ([], ['/dev/null'])
        # The two ends of the event loop's socket pair, none of the worker's connections.
        assert len(sockets) <= 2
        assert not [inode for inode in sockets if f' {inode} ' in inet]

"""`silkline enqueue`, `jobs`, `watch` and the others, run as a user runs them."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import ClientSession, web

from tests.support.servers import MIGRATIONS, ROOT
from tests.support.stack import SILKLINE, StackProcess, own_stack
from tests.support.waiting import wait_until


class User:
    """Somebody at a shell, in the directory of a stack; nothing is configured."""

    def __init__(self, stack: StackProcess, *, directory: Path | None = None) -> None:
        self.stack = stack
        self.directory = directory or stack.directory.parent
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(('SUPABASE_', 'SILKLINE_'))
        }

    def run(self, *words: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*SILKLINE, *words],
            cwd=self.directory,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, '--json').stdout)

    def enqueue(self, *words: str) -> str:
        """A job of a host of its own, so that nothing else holds it up."""
        return self.run('enqueue', f'https://{uuid4().hex}.example/', *words).stdout.strip()

    @contextmanager
    def watching(self, *words: str, **variables: str) -> 'Generator[Watching]':
        process = subprocess.Popen(
            [*SILKLINE, *words],
            cwd=self.directory,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield Watching(process)
            finally:
                process.kill()


class Watching:
    """A `watch --json` that goes on; `statuses` is what it has shown so far."""

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


@pytest.fixture(scope='module')
def user() -> Iterator[User]:
    with own_stack() as stack:
        yield User(stack)


def claim(user: User, job: str) -> str:
    """Lease a job as a worker does; answer its token."""
    token = str(uuid4())
    while True:
        jobs = user.stack.rpc('claim_crawl_jobs', p_worker_id=str(uuid4()), p_lease_tokens=[token])
        assert jobs, 'the job is not in line'
        if jobs[0]['id'] == job:
            return token
        user.stack.rpc('complete_crawl_job', p_lease_token=token)
        token = str(uuid4())


def report_worker(user: User) -> str:
    worker = str(uuid4())
    user.stack.rpc(
        'heartbeat_crawl_jobs',
        p_worker_id=worker,
        p_lease_tokens=[],
        p_worker={'hostname': 'here', 'version': '1', 'slots': 4},
    )
    return worker


def test_a_job_is_enqueued_with_its_options(user: User) -> None:
    job = user.enqueue('--max-pages', '5', '-o', 'concurrency=2', '-o', 'exclude=["/x"]')
    [row] = [row for row in user.json('jobs') if row['id'] == job]

    assert UUID(job)
    assert row['payload'] | {'max_pages': 5, 'concurrency': 2, 'exclude': ['/x']} == row['payload']
    assert row['status'] == 'pending'


def test_the_same_key_answers_the_same_job(user: User) -> None:
    key = uuid4().hex
    words = ('enqueue', 'https://same.example/', '--key', key)

    assert user.run(*words).stdout == user.run(*words).stdout


@pytest.mark.parametrize(
    ('words', 'said'),
    [
        (['enqueue', 'javascript:alert(1)'], 'http:// or https://'),
        (['enqueue', 'https://a.example/', '-o', 'max_page=3'], 'unknown key "max_page"'),
        (['enqueue', 'https://a.example/', '--kind', 'nope'], 'nope'),
        (['show', str(UUID(int=0))], 'there is no job'),
        (['cancel', str(UUID(int=0))], 'there is no job'),
    ],
)
def test_what_the_queue_refuses_is_told_in_its_words(
    user: User, words: list[str], said: str
) -> None:
    done = user.run(*words, code=1)

    assert said in done.stderr
    assert 'Traceback' not in done.stderr


@pytest.mark.parametrize(
    ('words', 'said'),
    [
        (['show', 'nonsense'], "'nonsense' is no id"),
        (['jobs', '--status', 'nope'], "'nope' is no status"),
        (['enqueue', 'https://a.example/', '-o', 'nonsense'], 'KEY=VALUE'),
    ],
)
def test_what_makes_no_sense_is_not_even_asked(user: User, words: list[str], said: str) -> None:
    assert said in user.run(*words, code=2).stderr


def test_the_buttons_change_a_job_and_say_to_what(user: User) -> None:
    job = user.enqueue()
    for words, status in (
        (['pause', job], 'paused'),
        (['resume', job], 'pending'),
        (['stop', job], 'stopped'),
        (['retry', job, '--all'], 'pending'),
        (['cancel', job], 'cancelled'),
    ):
        assert user.run(*words).stdout == f'{job} {status}\n'
    assert 'cancelled' in user.run('pause', job, code=1).stderr


def test_a_job_is_shown_with_its_history(user: User) -> None:
    job = user.enqueue()
    user.run('pause', job)
    shown = user.run('show', job).stdout

    assert 'status    paused' in shown
    assert '-> pending    enqueue' in shown
    assert 'pending -> paused     pause' in shown
    told = user.json('show', job)
    assert told['status'] == 'paused'
    assert told['url'] in shown
    assert [event['to_status'] for event in told['history']] == ['pending', 'paused']


def test_a_url_without_its_scheme_is_enqueued_as_it_is_meant(user: User) -> None:
    host = f'{uuid4().hex}.example'
    done = user.run('enqueue', host)

    assert f'{host} is taken for https://{host}' in done.stderr
    assert user.json('jobs', '--host', host)[0]['payload']['url'] == f'https://{host}'


def test_last_is_the_newest_job(user: User) -> None:
    job = user.enqueue()

    assert user.json('show', 'last')['job_id'] == job
    assert user.json('why')['job_id'] == job
    assert user.run('why').stdout.startswith(('no_worker: ', 'in_line: '))


def test_jobs_are_listed_by_status_and_host(user: User) -> None:
    job = user.enqueue()
    user.run('cancel', job)
    host = user.json('show', job)['host']
    listed = user.run('jobs', '--status', 'cancelled', '--host', host).stdout

    assert job in listed
    assert 'cancelled' in listed
    assert user.json('jobs', '--status', 'completed', '--host', host) == []


def test_the_queue_is_told_in_numbers(user: User) -> None:
    user.enqueue()
    report_worker(user)
    told = user.run('stats').stdout

    assert user.json('stats')['open']['pending'] >= 1
    assert re.search(r'^pending     \d+ \(\d+ in line', told, re.MULTILINE)
    assert re.search(r'^workers     \d+ live', told, re.MULTILINE)


def test_what_is_piped_has_no_spaces_at_the_ends_of_lines(user: User) -> None:
    user.enqueue()
    lines = user.run('jobs').stdout.splitlines()

    assert lines
    assert [line.rstrip() for line in lines] == lines


def test_a_doctor_who_finds_something_broken_ends_with_1(user: User) -> None:
    report_worker(user)
    assert 'ok      row_level_security' in user.run('doctor').stdout
    job = user.enqueue()
    claim(user, job)
    user.stack.execute(
        "update crawl_jobs set last_heartbeat = now() - interval '1 hour', "
        "lease_check_at = now() - interval '1 hour' where id = %s",
        [job],
    )
    broken = user.run('doctor', code=1).stdout

    assert 'error   leases: 1 overdue' in broken
    user.stack.rpc('reap_crawl_jobs')


def test_workers_are_listed(user: User) -> None:
    worker = report_worker(user)

    assert worker in user.run('workers').stdout
    assert worker in [found['id'] for found in user.json('workers')]


def test_a_job_is_watched_to_its_end(user: User) -> None:
    job = user.enqueue()
    with user.watching('watch', job, '--json') as watching:
        watching.wait_for('pending')
        token = claim(user, job)
        watching.wait_for('processing')
        user.stack.rpc('complete_crawl_job', p_lease_token=token)

        assert watching.end() == 0
        assert watching.statuses[-1] == 'completed'


def test_watching_says_which_job_it_is_and_what_it_waits_for(user: User) -> None:
    job = user.enqueue()
    user.run('pause', job)
    host = user.json('show', job)['host']
    with user.watching('watch') as watching:
        assert watching.process.stderr is not None
        said = [watching.process.stderr.readline() for _ in range(2)]

    assert said[0].startswith(f'silkline: job {job}, crawl of ')
    assert host in said[0]
    assert said[1].endswith(f': silkline resume {job}\n')
    user.run('cancel', job)


def test_watching_a_job_that_does_not_complete_ends_with_4(user: User) -> None:
    job = user.enqueue()
    with user.watching('watch', job, '--json') as watching:
        watching.wait_for('pending')
        user.run('cancel', job)

        assert watching.end() == 4
        assert watching.statuses[-1] == 'cancelled'


def test_without_realtime_a_job_is_watched_all_the_same(user: User) -> None:
    job = user.enqueue()
    with without_realtime(user.stack.url) as url:
        key = user.stack.variables['SUPABASE_SECRET_KEY']
        with user.watching(
            'watch', job, '--json', SUPABASE_URL=url, SUPABASE_SECRET_KEY=key
        ) as watching:
            watching.wait_for('pending')
            user.run('cancel', job)

            assert watching.end() == 4


def test_an_api_that_is_away_ends_with_3_and_says_what_to_do(user: User) -> None:
    key = user.stack.variables['SUPABASE_SECRET_KEY']
    done = user.run('stats', code=3, SUPABASE_URL='http://127.0.0.1:9', SUPABASE_SECRET_KEY=key)

    assert 'http://127.0.0.1:9 does not answer' in done.stderr
    assert key not in done.stderr


def test_a_wrong_key_ends_with_1_and_is_not_shown(user: User) -> None:
    key = f'sb_secret_{uuid4().hex}'
    done = user.run('stats', code=1, SUPABASE_URL=user.stack.url, SUPABASE_SECRET_KEY=key)

    assert 'Invalid API key' in done.stderr
    assert key not in done.stderr


def test_the_commands_of_the_stack_find_it_from_a_directory_below() -> None:
    with own_stack() as stack:
        below = stack.directory.parent / 'src/deep'
        below.mkdir(parents=True)
        user = User(stack, directory=below)

        assert user.run('token', 'me@example.com').stdout.startswith('ey')
        stopped = user.run('reset', '--yes').stderr
        assert (
            f'stopped process {stack.pid} and removed the database of {stack.directory}' in stopped
        )
        assert f'no stack is running in {stack.directory}' in user.run('down').stderr
        assert list(below.iterdir()) == []


def test_without_a_project_a_command_says_what_is_missing(directory: Path, user: User) -> None:
    done = subprocess.run(
        [sys.executable, '-m', 'silkline', 'jobs'],
        cwd=directory,
        env=user.environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert 'SUPABASE_URL is not set' in done.stderr
    assert 'silkline up' in done.stderr


def test_the_worker_can_be_run_as_a_file(directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / 'worker/worker.py'), '--help'],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert '--slots' in done.stdout


def test_install_adds_the_migrations_and_overwrites_nothing(directory: Path, user: User) -> None:
    assert 'supabase init' in user.run('install', str(directory), code=2).stderr
    target = directory / 'supabase/migrations'
    target.mkdir(parents=True)
    names = sorted(path.name for path in MIGRATIONS.glob('*.sql'))
    (target / names[0]).write_text('-- mine')
    (target / '20200101000000_own.sql').write_text('select 1;')
    done = user.run('install', str(directory), code=1)

    assert f'{len(names) - 1} migrations added' in done.stderr
    assert f'{names[0]} is there with other contents' in done.stderr
    assert (target / names[0]).read_text() == '-- mine'
    assert (target / names[1]).read_text() == (MIGRATIONS / names[1]).read_text()
    (target / names[0]).unlink()
    assert '1 migration added' in user.run('install', str(directory)).stderr
    assert '0 migrations added' in user.run('install', str(directory)).stderr


@contextmanager
def without_realtime(url: str) -> Generator[str]:
    """The same API behind a door that lets only REST through."""
    ready = threading.Event()
    addresses: list[str] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with ClientSession(auto_decompress=False) as session:

            async def pass_on(request: web.Request) -> web.Response:
                if not request.path.startswith('/rest/'):
                    raise web.HTTPBadGateway
                async with session.request(
                    request.method,
                    f'{url}{request.path_qs}',
                    headers={**request.headers, 'Host': '127.0.0.1'},
                    data=await request.read(),
                ) as answer:
                    return web.Response(
                        status=answer.status,
                        body=await answer.read(),
                        content_type=answer.content_type,
                    )

            application = web.Application()
            application.router.add_route('*', '/{path:.*}', pass_on)
            runner = web.AppRunner(application)
            await runner.setup()
            await web.TCPSite(runner, '127.0.0.1', 0).start()
            addresses.append('http://{}:{}'.format(*runner.addresses[0]))
            ready.set()
            await stop.wait()
            await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    try:
        assert ready.wait(60)
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()

"""`silkline pause --all` and the like: counted, confirmed, and changed in slices."""

import asyncio
import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web

from tests.support.stack import StackProcess, own_stack
from tests.support.user import User

# Nothing listens there: a command that reached the network would exit with 3.
UNREACHABLE = {'SUPABASE_URL': 'http://127.0.0.1:9', 'SUPABASE_SECRET_KEY': 'x'}


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        yield stack


@pytest.fixture(scope='module')
def local_user(stack: StackProcess) -> User:
    return User(stack.directory.parent)


def enqueue(stack: StackProcess, count: int, *, source: str) -> list[str]:
    jobs = [
        {'payload': {'url': f'https://{uuid4().hex}.example/'}, 'source_id': source}
        for _ in range(count)
    ]
    return stack.rpc('enqueue_crawl_jobs', p_jobs=jobs)['job_ids']


def statuses(user: User, source: str) -> dict[str, str]:
    """The statuses of the jobs of a source, by their ids."""
    jobs = json.loads(user.run('jobs', '--limit', '1000', '--json').stdout)
    return {job['id']: job['status'] for job in jobs if job['source_id'] == source}


class BulkApi:
    """Answers the bulk functions as a queue with `jobs` matching jobs does."""

    def __init__(self, jobs: int, *, count_limit: int = 100_000) -> None:
        self.jobs = jobs
        self.count_limit = count_limit
        self.calls: list[tuple[str, dict[str, Any]]] = []
        # How many jobs begin to match after each call that changes some.
        self.added_per_call = 0
        # How many a call can change at most.
        self.most_per_call = 100_000
        self.refuses_after: int | None = None

    async def answer(self, request: web.Request) -> web.Response:
        params: dict[str, Any] = await request.json()
        self.calls.append((request.path.rpartition('/')[2], params))
        if self.refuses_after is not None and len(self.calls) > self.refuses_after:
            refusal = {'code': 'PT429', 'message': 'too many open jobs', 'hint': 'Wait.'}
            return web.json_response(refusal, status=429)
        matched = self.jobs
        changed = min(self.jobs, params['p_limit'], self.most_per_call)
        self.jobs -= changed
        if params['p_limit']:
            self.jobs += self.added_per_call
        return web.json_response(
            {
                'matched': min(matched, self.count_limit),
                'changed': changed,
                'left': min(self.jobs, self.count_limit),
                'count_limit': self.count_limit,
            }
        )

    @property
    def limits(self) -> list[int]:
        return [params['p_limit'] for _, params in self.calls]


@contextmanager
def user_of(api: BulkApi, directory: Path) -> Generator[User]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    application = web.Application()
    application.router.add_route('*', '/{path:.*}', api.answer)
    runner = web.AppRunner(application)

    async def serve() -> str:
        await runner.setup()
        await web.TCPSite(runner, '127.0.0.1', 0).start()
        return 'http://{}:{}'.format(*runner.addresses[0])

    try:
        url = asyncio.run_coroutine_threadsafe(serve(), loop).result(60)
        yield User(directory, SUPABASE_URL=url, SUPABASE_SECRET_KEY='x')  # noqa: S106 - no secret
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        ([], 'which job? silkline jobs lists ids; --all would cancel all jobs'),
        (['--host', 'a.example'], 'add --all to cancel all jobs that match'),
        (['--status', 'pending'], 'add --all to cancel all jobs that match'),
        (['last', '--all'], '--all and its filters cannot be used with a job'),
        (['last', '--kind', 'crawl'], '--all and its filters cannot be used with a job'),
        (
            ['--all', '--status', 'running'],
            "'running' is not a status: use one of pending, processing, paused, completed, failed,"
            ' stopped, cancelled',
        ),
        (
            ['--all', '--created-before', 'noon'],
            "--created-before 'noon' is not a time: expected something like 2026-12-24,"
            ' 2026-12-24T18:00 (local time) or 2026-12-24T18:00Z',
        ),
    ],
)
def test_an_unclear_choice_of_jobs_is_refused_before_any_call(
    tmp_path: Path, words: list[str], message: str
) -> None:
    done = User(tmp_path, **UNREACHABLE).run('cancel', *words, code=2)

    assert done.stderr == f'silkline: {message}\n'


@pytest.mark.parametrize(
    ('command', 'participle'),
    [
        ('pause', 'paused'),
        ('resume', 'resumed'),
        ('stop', 'stopped'),
        ('cancel', 'cancelled'),
        ('retry', 'retried'),
    ],
)
def test_jobs_are_changed_in_slices_until_none_is_left(
    tmp_path: Path, command: str, participle: str
) -> None:
    api = BulkApi(2500)
    with user_of(api, tmp_path) as user:
        done = user.run(command, '--all', typed='y\n')

    assert {function for function, _ in api.calls} == {f'{command}_crawl_jobs'}
    assert api.limits == [0, 1000, 1000, 500]
    assert f'{command.capitalize()} 2500 jobs? [y/N]' in done.stderr
    assert f'silkline: {participle} 1000 of 2500 jobs\n' in done.stderr
    assert f'silkline: {participle} 2000 of 2500 jobs\n' in done.stderr
    assert done.stdout == f'{participle} 2500 jobs\n'


def test_the_filter_is_sent_as_typed_and_times_with_their_zone(tmp_path: Path) -> None:
    api = BulkApi(1)
    words = ('--host', 'a.example:8080', '--status', 'failed', '--status', 'stopped')
    words += ('--source', 'docs', '--kind', 'crawl', '--created-before', '2026-12-24T18:00Z')
    words += ('--created-after', '2026-12-01')
    with user_of(api, tmp_path) as user:
        done = user.run('retry', '--all', *words, '--urls', 'all', '--yes', TZ='HERE5')

    assert [params['p_filter'] for _, params in api.calls] == 2 * [
        {
            'host': 'a.example:8080',
            'status': ['failed', 'stopped'],
            'source_id': 'docs',
            'kind': 'crawl',
            'created_before': '2026-12-24T13:00:00-05:00',
            'created_after': '2026-12-01T00:00:00-05:00',
        }
    ]
    assert [params['p_urls'] for _, params in api.calls] == ['all', 'all']
    assert done.stderr == 'silkline: 1 job to retry\n'
    assert done.stdout == 'retried 1 job\n'


def test_all_without_a_filter_means_every_job(tmp_path: Path) -> None:
    api = BulkApi(3)
    with user_of(api, tmp_path) as user:
        user.run('stop', '--all', '--yes')

    assert [params['p_filter'] for _, params in api.calls] == [{'all': True}, {'all': True}]


def test_an_empty_filter_value_does_not_mean_every_job(tmp_path: Path) -> None:
    api = BulkApi(0)
    with user_of(api, tmp_path) as user:
        user.run('cancel', '--all', '--host', '', '--yes')

    assert [params['p_filter'] for _, params in api.calls] == [{'host': ''}]


@pytest.mark.parametrize('typed', ['n\n', ''])
def test_nothing_is_changed_unless_it_is_confirmed(tmp_path: Path, typed: str) -> None:
    api = BulkApi(7)
    with user_of(api, tmp_path) as user:
        done = user.run('cancel', '--all', typed=typed, code=1)

    assert api.limits == [0]
    assert done.stderr.endswith('no job was cancelled (--yes skips the question)\n')


def test_no_question_is_asked_about_no_job(tmp_path: Path) -> None:
    api = BulkApi(0)
    with user_of(api, tmp_path) as user:
        done = user.run('pause', '--all')

    assert (done.stdout, done.stderr) == ('paused 0 jobs\n', '')


def test_no_more_jobs_are_changed_than_were_counted(tmp_path: Path) -> None:
    api = BulkApi(1500)
    api.added_per_call = 10
    with user_of(api, tmp_path) as user:
        done = user.run('retry', '--all', '--yes', code=1)

    assert api.limits == [0, 1000, 500]
    assert done.stdout == 'retried 1500 jobs\n'
    assert done.stderr.endswith('silkline: 20 more match: run the command again\n')


def test_more_jobs_than_the_queue_counts_are_changed_to_the_last(tmp_path: Path) -> None:
    api = BulkApi(4300, count_limit=2000)
    with user_of(api, tmp_path) as user:
        done = user.run('pause', '--all', typed='y\n')

    assert 'Pause 2000 or more jobs? [y/N]' in done.stderr
    assert api.limits == [0, 1000, 1000, 1000, 1000, 1000]
    assert done.stdout == 'paused 4300 jobs\n'


def test_a_slice_that_changes_nothing_is_the_last(tmp_path: Path) -> None:
    api = BulkApi(5)
    api.most_per_call = 0
    with user_of(api, tmp_path) as user:
        done = user.run('pause', '--all', '--yes', code=1)

    assert api.limits == [0, 5]
    assert done.stdout == 'paused 0 jobs\n'


def test_a_refusal_in_the_middle_says_how_many_were_changed(tmp_path: Path) -> None:
    api = BulkApi(3000)
    api.refuses_after = 2
    with user_of(api, tmp_path) as user:
        done = user.run('resume', '--all', '--yes', code=1)

    assert 'silkline: resumed 1000 jobs, then:\n' in done.stderr
    assert done.stderr.endswith('silkline: too many open jobs\nWait.\n')


def test_the_result_can_be_printed_as_json(tmp_path: Path) -> None:
    with user_of(BulkApi(1200), tmp_path) as user:
        done = user.run('cancel', '--all', '--yes', '--json')

    assert json.loads(done.stdout) == {
        'matched': 1200,
        'changed': 1200,
        'left': 0,
        'count_limit': 100_000,
    }


def test_all_jobs_of_a_filter_are_changed_and_no_others(
    stack: StackProcess, local_user: User
) -> None:
    source, other = uuid4().hex, uuid4().hex
    enqueue(stack, 3, source=source)
    enqueue(stack, 2, source=other)
    for command, printed, status in (
        ('pause', 'paused', 'paused'),
        ('resume', 'resumed', 'pending'),
        ('stop', 'stopped', 'stopped'),
        ('retry', 'retried', 'pending'),
        ('cancel', 'cancelled', 'cancelled'),
    ):
        done = local_user.run(command, '--all', '--source', source, '--yes')
        assert done.stdout == f'{printed} 3 jobs\n'
        assert list(statuses(local_user, source).values()) == [status] * 3
    assert list(statuses(local_user, other).values()) == ['pending'] * 2


def test_a_filter_combines_status_host_kind_and_time(stack: StackProcess, local_user: User) -> None:
    source = uuid4().hex
    first, second, third = enqueue(stack, 3, source=source)
    local_user.run('stop', third)
    [shown] = local_user.lines('show', first, '--json')
    words = ('cancel', '--all', '--source', source, '--kind', 'crawl', '--yes')

    assert local_user.run(*words, '--created-before', '2020-01-01').stdout == 'cancelled 0 jobs\n'
    assert local_user.run(*words, '--host', shown['host']).stdout == 'cancelled 1 job\n'
    words += ('--status', 'pending', '--status', 'stopped', '--created-after', '2020-01-01')
    # A stopped job cannot be cancelled.
    assert local_user.run(*words).stdout == 'cancelled 1 job\n'
    assert statuses(local_user, source) == {
        first: 'cancelled',
        second: 'cancelled',
        third: 'stopped',
    }


def test_more_jobs_than_a_slice_are_all_changed(stack: StackProcess, local_user: User) -> None:
    source = uuid4().hex
    enqueue(stack, 1203, source=source)
    done = local_user.run('cancel', '--all', '--source', source, typed='y\n')

    assert 'Cancel 1203 jobs? [y/N]' in done.stderr
    assert 'silkline: cancelled 1000 of 1203 jobs\n' in done.stderr
    assert done.stdout == 'cancelled 1203 jobs\n'
    assert local_user.run('cancel', '--all', '--source', source).stdout == 'cancelled 0 jobs\n'

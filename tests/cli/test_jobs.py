"""`silkline enqueue`, `jobs`, `show`, `pause` and the others, run as a user runs them."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.support.servers import MIGRATIONS
from tests.support.stack import StackProcess, own_stack
from tests.support.user import User


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        yield stack


@pytest.fixture(scope='module')
def user(stack: StackProcess) -> User:
    return User(stack.directory.parent)


def read_json(user: User, *words: str) -> Any:
    [value] = user.lines(*words, '--json')
    return value


def enqueue(user: User, *words: str) -> str:
    """Enqueue a job for a host of its own, so that no other job holds it up."""
    return user.run('enqueue', f'https://{uuid4().hex}.example/', *words).stdout.strip()


def enqueue_elsewhere(user: User, *words: str) -> tuple[dict[str, Any], str]:
    """The job and the messages, where local time is five hours behind UTC."""
    done = user.run('enqueue', f'https://{uuid4().hex}.example/', *words, '--json', TZ='HERE5')
    return json.loads(done.stdout), done.stderr


def claim(stack: StackProcess, job: str) -> str:
    """Lease a job as a worker does; return its token."""
    token = str(uuid4())
    while True:
        jobs = stack.rpc('claim_crawl_jobs', p_worker_id=str(uuid4()), p_lease_tokens=[token])
        assert jobs, 'the job cannot be claimed'
        if jobs[0]['id'] == job:
            return token
        stack.rpc('complete_crawl_job', p_lease_token=token)
        token = str(uuid4())


def report_worker(stack: StackProcess) -> str:
    worker = str(uuid4())
    stack.rpc(
        'heartbeat_crawl_jobs',
        p_worker_id=worker,
        p_lease_tokens=[],
        p_worker={'hostname': 'here', 'version': '1', 'slots': 4},
    )
    return worker


def test_a_job_is_enqueued_with_its_options(user: User) -> None:
    job = enqueue(user, '--max-pages', '5', '-o', 'concurrency=2', '-o', 'exclude=["/x"]')
    [row] = [row for row in read_json(user, 'jobs') if row['id'] == job]

    assert UUID(job)
    assert row['payload'] | {'max_pages': 5, 'concurrency': 2, 'exclude': ['/x']} == row['payload']
    assert row['status'] == 'pending'


@pytest.mark.parametrize('name', ['--pages', '--max-pages'])
def test_enqueue_takes_the_number_of_pages_under_both_names_that_crawl_does(
    user: User, name: str
) -> None:
    job = enqueue(user, name, '3')
    [row] = [row for row in read_json(user, 'jobs') if row['id'] == job]

    assert row['payload']['max_pages'] == 3


def test_the_same_key_returns_the_same_job(user: User) -> None:
    key = uuid4().hex
    words = ('enqueue', 'https://same.example/', '--key', key)

    assert user.run(*words).stdout == user.run(*words).stdout


def test_a_url_without_a_scheme_is_enqueued_with_https(user: User) -> None:
    host = f'{uuid4().hex}.example'
    done = user.run('enqueue', host)

    assert done.stderr == f'silkline: using https://{host}\n'
    assert read_json(user, 'jobs', '--host', host)[0]['payload']['url'] == f'https://{host}'


def test_links_are_chosen_by_options_of_their_own(user: User) -> None:
    words = ('--depth', '2', '--pages', '7', '--scope', 'domain', '--exclude', 'x{1,2}')
    job = enqueue(user, *words, '--include', '/a', '--include', '/b,c', '-o', 'exclude=y,z{1,2}')

    payload = read_json(user, 'jobs', '--limit', '1')[0]['payload']
    assert read_json(user, 'jobs', '--limit', '1')[0]['id'] == job
    assert payload['max_depth'] == 2
    assert payload['max_pages'] == 7
    assert payload['scope'] == 'domain'
    assert payload['include'] == ['/a', '/b,c']
    # The option with its own name wins.
    assert payload['exclude'] == ['x{1,2}']


def test_a_list_of_urls_is_read_from_a_file_or_stdin(user: User) -> None:
    host = f'{uuid4().hex}.example'
    listed = f'# two pages\nhttps://{host}/a\n\n  {host}/b  \nhttps://{host}/a\n'
    (user.directory / 'urls.txt').write_text(listed)
    user.run('enqueue', '--urls', 'urls.txt')
    user.run('enqueue', '--urls', '-', typed=listed)

    payloads = [job['payload'] for job in read_json(user, 'jobs', '--host', host)]
    assert [payload['strategy'] for payload in payloads] == ['list', 'list']
    assert {tuple(payload['urls']) for payload in payloads} == {
        (f'https://{host}/a', f'https://{host}/b')
    }


@pytest.mark.parametrize(
    ('path', 'words', 'scope'),
    [
        ('/docs/start.html', (), 'prefix'),
        ('/docs', (), 'prefix'),
        ('/docs/', ('--scope', 'host'), 'host'),
        ('/docs/', ('-o', 'scope=domain'), 'domain'),
        ('/docs/', ('--include', '/blog/'), 'host'),
        ('/docs/', ('--strategy', 'sitemap'), 'host'),
        ('/index.html', (), 'host'),
        ('/', (), 'host'),
    ],
)
def test_a_start_url_with_a_path_is_crawled_from_there_down(
    user: User, path: str, words: tuple[str, ...], scope: str
) -> None:
    host = f'{uuid4().hex}.example'
    said = user.run('enqueue', f'https://{host}{path}', *words).stderr

    assert read_json(user, 'jobs', '--host', host)[0]['payload']['scope'] == scope
    below = f'silkline: crawling https://{host}/docs'
    assert said.startswith(below) if scope == 'prefix' else said == ''


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['enqueue', 'https://a.example/', '-o', 'max_page=3'], '"max_page"'),
        (['enqueue', 'https://a.example/', '--kind', 'nope'], 'nope'),
        (['show', str(UUID(int=0))], str(UUID(int=0))),
        (['cancel', str(UUID(int=0))], str(UUID(int=0))),
    ],
)
def test_a_refusal_of_the_queue_is_printed_with_the_value_that_was_typed(
    user: User, words: list[str], message: str
) -> None:
    assert message in user.run(*words, code=1).stderr


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['jobs', '--status', 'nope'], "'nope' is not a status: use one of pending, "),
        (
            ['enqueue', 'https://a.example/', '-o', 'nonsense'],
            "--option 'nonsense' is not of the form KEY=VALUE",
        ),
        (['enqueue', 'javascript:alert(1)'], "'javascript:alert(1)' is not a URL: expected"),
        (['enqueue'], 'expected a URL, or --urls FILE with a list of URLs'),
        (['enqueue', 'https://a.example/', '--urls', '-'], 'expected a URL, or --urls FILE'),
        (['enqueue', '--urls', '-'], '--urls - has no URLs: expected one per line'),
        (['enqueue', '--urls', 'nowhere.txt'], '--urls nowhere.txt: No such file or directory'),
    ],
)
def test_an_invalid_option_exits_with_2(user: User, words: list[str], message: str) -> None:
    assert message in user.run(*words, code=2).stderr


def test_hints_of_the_queue_name_commands_and_not_functions(
    stack: StackProcess, user: User
) -> None:
    job = enqueue(user, '--priority', '100')
    user.run('pause', job)
    assert user.run('retry', job, code=1).stderr.endswith('\nUse silkline resume.\n')
    user.run('resume', job)
    stack.rpc('complete_crawl_job', p_lease_token=claim(stack, job))

    assert user.run('retry', job, code=1).stderr.endswith('\nUse --urls all to start over.\n')


def test_a_command_that_changes_a_job_prints_its_new_status(user: User) -> None:
    job = enqueue(user)
    for words, status in (
        (['pause', job], 'paused'),
        (['resume', job], 'pending'),
        (['stop', job], 'stopped'),
        (['retry', job, '--urls', 'all'], 'pending'),
        (['cancel', job], 'cancelled'),
    ):
        assert user.run(*words).stdout == f'{job} {status}\n'
    assert 'cancelled' in user.run('pause', job, code=1).stderr


def test_show_prints_the_history_of_a_job(user: User) -> None:
    job = enqueue(user)
    user.run('pause', job)
    printed = user.run('show', job).stdout
    shown = read_json(user, 'show', job)

    assert 'status    paused' in printed
    assert '-> pending    enqueue' in printed
    assert 'pending -> paused     pause' in printed
    assert shown['status'] == 'paused'
    assert shown['url'] in printed
    assert [event['to_status'] for event in shown['history']] == ['pending', 'paused']


def test_last_is_the_newest_job(user: User) -> None:
    job = enqueue(user)

    assert read_json(user, 'show', 'last')['job_id'] == job
    assert read_json(user, 'why')['job_id'] == job
    assert user.run('why').stdout.startswith(('no_worker: ', 'in_line: '))


def test_a_time_without_a_zone_is_local_time(user: User) -> None:
    day = (datetime.now(UTC) + timedelta(days=3)).date()
    for typed, utc, local in (
        (f'{day}', f'{day}T05:00:00Z', f'{day} 00:00:00'),
        (f'{day} 18:00', f'{day}T23:00:00Z', f'{day} 18:00:00'),
        (f'{day}T18:00:00Z', f'{day}T18:00:00Z', f'{day} 13:00:00'),
    ):
        job, message = enqueue_elsewhere(user, '--run-after', typed)
        assert datetime.fromisoformat(job['run_after']) == datetime.fromisoformat(utc)
        assert message == f'silkline: not before {local}\n'


def test_a_job_whose_time_has_passed_runs_now(user: User) -> None:
    message = enqueue_elsewhere(user, '--run-after', '2020-01-01T00:00:00Z')[1]

    assert message == 'silkline: 2019-12-31 19:00:00 is in the past: runs now\n'


def test_jobs_are_listed_by_status_and_host(user: User) -> None:
    job = enqueue(user)
    user.run('cancel', job)
    host = read_json(user, 'show', job)['host']
    listed = user.run('jobs', '--status', 'cancelled', '--host', host).stdout

    assert job in listed
    assert 'cancelled' in listed
    assert read_json(user, 'jobs', '--status', 'completed', '--host', host) == []


def test_a_filter_that_matches_no_job_is_reported_on_stderr(user: User) -> None:
    words = ('jobs', '--host', 'a.example')
    done = user.run(*words)

    assert (done.stdout, done.stderr[:25]) == ('', 'no jobs for host a.exampl')
    assert read_json(user, *words) == []


def test_lines_in_a_pipe_have_no_trailing_spaces(user: User) -> None:
    enqueue(user)
    lines = user.run('jobs').stdout.splitlines()

    assert lines
    assert [line.rstrip() for line in lines] == lines


def test_stats_count_jobs_and_workers(stack: StackProcess, user: User) -> None:
    enqueue(user)
    report_worker(stack)
    printed = user.run('stats').stdout

    assert read_json(user, 'stats')['open']['pending'] >= 1
    assert re.search(r'^pending     \d+ \(\d+ ready to run', printed, re.MULTILINE)
    assert re.search(r'^workers     \d+ live', printed, re.MULTILINE)


def test_workers_are_listed(stack: StackProcess, user: User) -> None:
    worker = report_worker(stack)

    assert worker in user.run('workers').stdout
    assert worker in [found['id'] for found in read_json(user, 'workers')]


def test_doctor_exits_with_1_if_something_is_broken(stack: StackProcess, user: User) -> None:
    report_worker(stack)
    assert 'ok      row_level_security' in user.run('doctor').stdout
    job = enqueue(user)
    claim(stack, job)
    stack.execute(
        "update silkline.jobs set last_heartbeat = now() - interval '1 hour', "
        "lease_check_at = now() - interval '1 hour' where id = %s",
        [job],
    )
    broken = user.run('doctor', code=1).stdout

    assert 'error   leases: 1 overdue' in broken
    stack.rpc('reap_crawl_jobs')


def test_a_wrong_key_exits_with_1_and_is_not_printed(stack: StackProcess, user: User) -> None:
    key = f'sb_secret_{uuid4().hex}'
    done = user.run('stats', code=1, SUPABASE_URL=stack.url, SUPABASE_SECRET_KEY=key)

    assert 'Invalid API key' in done.stderr
    assert key not in done.stderr


def test_install_adds_the_migrations_and_overwrites_nothing(directory: Path) -> None:
    user = User(directory)
    assert 'supabase init' in user.run('install', str(directory), code=2).stderr
    target = directory / 'supabase/migrations'
    target.mkdir(parents=True)
    names = sorted(path.name for path in MIGRATIONS.glob('*.sql'))
    (target / names[0]).write_text('-- mine')
    (target / '20200101000000_own.sql').write_text('select 1;')
    done = user.run('install', str(directory), code=1)

    assert f'{len(names) - 1} migrations added' in done.stderr
    assert f'{names[0]} exists with different contents and was not overwritten' in done.stderr
    assert (target / names[0]).read_text() == '-- mine'
    assert (target / names[1]).read_text() == (MIGRATIONS / names[1]).read_text()
    (target / names[0]).unlink()
    assert '1 migration added' in user.run('install', str(directory)).stderr
    assert '0 migrations added' in user.run('install', str(directory)).stderr


def test_install_says_how_to_apply_the_migrations(directory: Path) -> None:
    user = User(directory)
    target = directory / 'supabase/migrations'
    target.mkdir(parents=True)
    (target / '20200101000000_own.sql').write_text('select 1;')
    first = user.run('install', str(directory)).stderr
    second = user.run('install', str(directory)).stderr
    (target / '29990101000000_own.sql').write_text('select 1;')
    third = user.run('install', str(directory)).stderr

    assert 'Next: supabase db push, if not done yet' in first
    assert 'Next: supabase db push, if not done yet' in second
    assert 'Next: supabase db push --include-all, if not done yet' in third

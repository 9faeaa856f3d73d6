"""What somebody is told about jobs who does not know the program yet."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.stack import StackProcess, own_stack
from tests.support.user import User


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        yield stack


@pytest.fixture(scope='module')
def user(stack: StackProcess) -> User:
    return User(stack.directory.parent)


def enqueued(user: User, *words: str) -> tuple[dict[str, Any], str]:
    """The job, and what was said about it where clocks are five hours behind."""
    done = user.run('enqueue', f'https://{uuid4().hex}.example/', *words, '--json', TZ='HERE5')
    return json.loads(done.stdout), done.stderr


def test_what_can_be_done_instead_is_told_in_the_words_of_the_command_line(
    stack: StackProcess, user: User
) -> None:
    # Before all that other tests have left in line.
    job, _ = enqueued(user, '--priority', '100')
    user.run('pause', job['id'])
    assert user.run('retry', job['id'], code=1).stderr.endswith('\nUse silkline resume.\n')
    user.run('resume', job['id'])
    token = str(uuid4())
    [claimed] = stack.rpc('claim_crawl_jobs', p_worker_id=str(uuid4()), p_lease_tokens=[token])
    assert claimed['id'] == job['id']
    stack.rpc('complete_crawl_job', p_lease_token=token)

    assert user.run('retry', job['id'], code=1).stderr.endswith('\nUse --all to start over.\n')


@pytest.mark.parametrize('name', ['--pages', '--max-pages'])
def test_the_number_of_pages_has_the_names_that_crawl_gives_it(user: User, name: str) -> None:
    assert enqueued(user, name, '3')[0]['payload']['max_pages'] == 3


@pytest.mark.parametrize(
    ('words', 'said'),
    [
        (['--host', 'a.example'], 'no job has the host a.example'),
        (['--status', 'stopped', '--status', 'failed'], 'no job is stopped or failed'),
        (['--host', 'a.example', '--status', 'failed'], 'no job of the host a.example is failed'),
    ],
)
def test_what_no_job_fits_is_told(user: User, words: list[str], said: str) -> None:
    port = '; a host is written with its port, if its URLs have one' * ('--host' in words)
    done = user.run('jobs', *words)

    assert done.stderr == f'{said}{port}\n'
    assert user.lines('jobs', *words, '--json') == [[]]


def test_a_time_without_a_zone_is_that_of_the_clock_on_the_wall(user: User) -> None:
    day = (datetime.now(UTC) + timedelta(days=3)).date()
    for typed, utc, local in (
        (f'{day}', f'{day}T05:00:00Z', f'{day} 00:00:00'),
        (f'{day} 18:00', f'{day}T23:00:00Z', f'{day} 18:00:00'),
        (f'{day}T18:00:00Z', f'{day}T18:00:00Z', f'{day} 13:00:00'),
    ):
        job, said = enqueued(user, '--run-after', typed)
        assert datetime.fromisoformat(job['run_after']) == datetime.fromisoformat(utc)
        assert said == f'silkline: not before {local}\n'


def test_a_time_that_has_passed_is_told_to_be_at_once(user: User) -> None:
    said = enqueued(user, '--run-after', '2020-01-01T00:00:00Z')[1]

    assert said == 'silkline: 2019-12-31 19:00:00 has passed: it runs at once\n'

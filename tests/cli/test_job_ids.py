"""A job is named by a part of its id, as people type it."""

from collections.abc import Iterator

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


@pytest.fixture(scope='module')
def jobs(stack: StackProcess) -> list[str]:
    """Two of the same moment, so that they begin alike, and end differently."""
    payloads = [{'payload': {'url': f'https://{name}.example/'}} for name in ('one', 'two')]
    return stack.rpc('enqueue_crawl_jobs', p_jobs=payloads)['job_ids']


@pytest.mark.parametrize('length', [6, 12, 20])
def test_the_last_characters_of_an_id_name_its_job(
    user: User, jobs: list[str], length: int
) -> None:
    for job in jobs:
        [told] = user.lines('show', job[-length:].upper(), '--json')
        assert told['job_id'] == job


def test_the_first_characters_do_where_they_are_of_one_job(user: User, jobs: list[str]) -> None:
    first, second = jobs
    length = next(n for n in range(6, 36) if first[:n] != second[:n])
    [told] = user.lines('show', first[:length], '--json')

    assert told['job_id'] == first


def test_a_part_of_several_ids_is_told_with_the_jobs_it_may_mean(
    user: User, jobs: list[str]
) -> None:
    done = user.run('cancel', jobs[0][:6], code=1)

    assert done.stdout == ''
    assert f"2 jobs begin or end with '{jobs[0][:6]}'" in done.stderr
    for job, name in zip(jobs, ('one', 'two'), strict=True):
        assert f'  {job}  pending  https://{name}.example/\n' in done.stderr
    assert user.run('jobs', '--status', 'cancelled').stdout == ''


def test_a_part_of_no_id_is_told_with_where_the_ids_are(user: User, jobs: list[str]) -> None:
    done = user.run('show', 'ffffffff', code=1)

    assert done.stderr == (
        "silkline: no job begins or ends with 'ffffffff': silkline jobs lists them\n"
    )


def test_too_little_of_an_id_is_refused(user: User, jobs: list[str]) -> None:
    done = user.run('show', jobs[0][-5:], code=2)

    assert 'is too short: give six or more characters' in done.stderr

"""Naming a job by a part of its id."""

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
    """Two of the same moment: their ids start alike and end differently."""
    payloads = [{'payload': {'url': f'https://{name}.example/'}} for name in ('one', 'two')]
    return stack.rpc('enqueue_crawl_jobs', p_jobs=payloads)['job_ids']


@pytest.mark.parametrize('length', [6, 12, 20])
def test_the_last_characters_of_an_id_find_its_job(
    user: User, jobs: list[str], length: int
) -> None:
    for job in jobs:
        [shown] = user.lines('show', job[-length:].upper(), '--json')
        assert shown['job_id'] == job


def test_the_first_characters_of_an_id_find_its_job_if_no_other_id_has_them(
    user: User, jobs: list[str]
) -> None:
    first, second = jobs
    length = next(n for n in range(6, 36) if first[:n] != second[:n])
    [shown] = user.lines('show', first[:length], '--json')

    assert shown['job_id'] == first


def test_a_part_that_matches_several_jobs_changes_none_and_lists_them(
    user: User, jobs: list[str]
) -> None:
    done = user.run('cancel', jobs[0][:6], code=1)

    assert done.stdout == ''
    assert f"'{jobs[0][:6]}' must match exactly one job, but matches 2" in done.stderr
    for job, name in zip(jobs, ('one', 'two'), strict=True):
        assert f'  {job}  pending  https://{name}.example/\n' in done.stderr
    assert user.run('jobs', '--status', 'cancelled').stdout == ''


def test_a_part_that_matches_no_job_is_reported_with_how_to_list_ids(
    user: User, jobs: list[str]
) -> None:
    done = user.run('show', 'ffffffff', code=1)

    assert done.stderr == (
        "silkline: no job has an id that starts or ends with 'ffffffff'; silkline jobs lists ids\n"
    )


def test_fewer_than_six_characters_are_refused(user: User, jobs: list[str]) -> None:
    done = user.run('show', jobs[0][-5:], code=2)

    assert 'is too short: type six or more characters' in done.stderr

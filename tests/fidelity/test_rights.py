"""Who may do what, through the API: nobody, a user, another user, a worker, the service."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.support.project import Project, User, tomorrow
from tests.support.rest_clients import Rest

Name = Callable[[str], str]

NOBODY = '00000000-0000-0000-0000-000000000000'
WORKER_FUNCTIONS: dict[str, dict[str, Any]] = {
    'claim_crawl_jobs': {'p_worker_id': NOBODY, 'p_lease_tokens': []},
    'heartbeat_crawl_jobs': {'p_worker_id': NOBODY, 'p_lease_tokens': []},
    'checkpoint_crawl_job': {'p_lease_token': NOBODY, 'p_batch': {'seq': 1}, 'p_want': 0},
    'complete_crawl_job': {'p_lease_token': NOBODY},
    'fail_crawl_job': {'p_lease_token': NOBODY, 'p_error_code': 'x', 'p_error_message': 'x'},
    'release_crawl_job': {'p_lease_token': NOBODY, 'p_reason': 'shutdown'},
}
BUTTONS = ('pause_crawl_job', 'resume_crawl_job', 'stop_crawl_job', 'cancel_crawl_job')


def test_a_key_or_token_stands_for_its_role(rest: Rest, function: Name, owner: User) -> None:
    def caller(client: Any) -> tuple[str, str, str | None]:
        answer = client.call(function('caller')).data
        return answer['role'], answer['claimed_role'], answer['uid']

    assert caller(rest.as_anonymous()) == ('anon', 'anon', None)
    assert caller(rest.as_user(owner)) == ('authenticated', 'authenticated', str(owner.id))
    assert caller(rest.as_service()) == ('service_role', 'service_role', None)


def test_a_function_sees_the_request(rest: Rest, function: Name) -> None:
    answer = rest.as_anonymous().call(function('caller')).data

    assert answer['method'] == 'POST'
    assert answer['path'] == f'/rpc/{function("caller")}'
    assert 'supabase' in answer['client'] or 'postgrest' in answer['client']


def test_a_role_has_its_own_timeout(rest: Rest, function: Name, owner: User) -> None:
    for client in (rest.as_anonymous(), rest.as_user(owner)):
        answer = client.call(function('caller')).data
        if answer['role_timeout'] is None:
            pytest.skip('this project has set no timeout for the role')
        assert answer['timeout'] == answer['role_timeout']


def test_a_user_sees_nothing_of_another_users_job(
    rest: Rest, owner: User, stranger: User, project: Project
) -> None:
    job = project.enqueue(owner)
    client = rest.as_user(stranger)

    seen = {
        table: client.read(table, ('select', '*'), ('eq', column, job['id'])).data
        for table, column in (
            ('crawl_jobs', 'id'),
            ('crawl_states', 'job_id'),
            ('crawl_events', 'job_id'),
        )
    }
    progress = client.call('crawl_progress', {'p_job_id': job['id']})
    explained = client.call('explain_crawl_job', {'p_job_id': job['id']})

    assert seen == {'crawl_jobs': [], 'crawl_states': [], 'crawl_events': []}
    assert (progress.status, progress.code) == (404, 'PT404')
    assert (explained.status, explained.code) == (404, 'PT404')


def test_a_user_cannot_press_the_buttons_of_another_users_job(
    rest: Rest, owner: User, stranger: User, project: Project
) -> None:
    job = project.enqueue(owner)
    client = rest.as_user(stranger)

    codes = {button: client.call(button, {'p_job_id': job['id']}).code for button in BUTTONS}

    assert codes == dict.fromkeys(BUTTONS, 'PT404')
    [row] = rest.as_user(owner).read('crawl_jobs', ('select', '*'), ('eq', 'id', job['id'])).data
    assert row == job


def test_a_user_lists_only_own_jobs(
    rest: Rest, owner: User, stranger: User, project: Project
) -> None:
    project.enqueue(owner)
    project.enqueue(stranger)

    for user in (owner, stranger):
        listed = rest.as_user(user).read('crawl_jobs', ('select', 'user_id')).data
        assert {row['user_id'] for row in listed} == {str(user.id)}


def test_the_service_sees_jobs_of_all_users(
    rest: Rest, owner: User, stranger: User, project: Project
) -> None:
    ids = {project.enqueue(owner)['id'], project.enqueue(stranger)['id']}

    listed = rest.as_service().read('crawl_jobs', ('select', 'id'), ('in', 'id', sorted(ids))).data

    assert {row['id'] for row in listed} == ids


def test_the_service_may_enqueue_for_a_user(rest: Rest, owner: User) -> None:
    [job] = (
        rest.as_service()
        .call(
            'enqueue_crawl_job',
            {
                'p_payload': {'url': f'https://{uuid4().hex}.example/'},
                'p_user_id': str(owner.id),
                'p_run_after': tomorrow(),
            },
        )
        .data
    )

    assert job['user_id'] == str(owner.id)


@pytest.mark.parametrize('function', WORKER_FUNCTIONS)
def test_users_may_not_do_the_work(rest: Rest, owner: User, function: str) -> None:
    answer = rest.as_user(owner).call(function, WORKER_FUNCTIONS[function])

    assert (answer.status, answer.code) == (403, '42501')


@pytest.mark.parametrize('function', WORKER_FUNCTIONS)
def test_nobody_does_the_work_unasked(rest: Rest, function: str) -> None:
    answer = rest.as_anonymous().call(function, WORKER_FUNCTIONS[function])

    assert (answer.status, answer.code) == (401, '42501')


@pytest.mark.parametrize('function', WORKER_FUNCTIONS)
def test_a_worker_may_do_the_work(rest: Rest, function: str, worker_id: str) -> None:
    params = {
        name: worker_id if name == 'p_worker_id' else value
        for name, value in WORKER_FUNCTIONS[function].items()
    }

    answer = rest.as_worker().call(function, params)

    assert (answer.status, answer.error) == (200, None)


def test_a_worker_may_do_nothing_else(rest: Rest, owner: User, project: Project) -> None:
    job = project.enqueue(owner)
    client = rest.as_worker()

    refused = [
        client.read('crawl_jobs', ('select', 'id')),
        client.read('crawl_settings', ('select', 'id')),
        client.call('cancel_crawl_job', {'p_job_id': job['id']}),
        client.call('enqueue_crawl_job', {'p_payload': {'url': 'https://worker.example/'}}),
        client.call('crawl_progress', {'p_job_id': job['id']}),
    ]

    assert [(answer.status, answer.code) for answer in refused] == [(403, '42501')] * 5

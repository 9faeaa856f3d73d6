"""Who may do what through the API: anonymous callers, users, workers, the service."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.support.project import Project, User, tomorrow
from tests.support.rest_clients import Rest

Name = Callable[[str], str]

UNKNOWN_ID = '00000000-0000-0000-0000-000000000000'
WORKER_FUNCTIONS: dict[str, dict[str, Any]] = {
    'claim_crawl_jobs': {'p_worker_id': UNKNOWN_ID, 'p_lease_tokens': []},
    'heartbeat_crawl_jobs': {'p_worker_id': UNKNOWN_ID, 'p_lease_tokens': []},
    'checkpoint_crawl_job': {'p_lease_token': UNKNOWN_ID, 'p_batch': {'seq': 1}, 'p_want': 0},
    'complete_crawl_job': {'p_lease_token': UNKNOWN_ID},
    'fail_crawl_job': {'p_lease_token': UNKNOWN_ID, 'p_error_code': 'x', 'p_error_message': 'x'},
    'release_crawl_job': {'p_lease_token': UNKNOWN_ID, 'p_reason': 'shutdown'},
}
CONTROLS = ('pause_crawl_job', 'resume_crawl_job', 'stop_crawl_job', 'cancel_crawl_job')


def test_each_key_or_token_maps_to_its_role(rest: Rest, function: Name, owner: User) -> None:
    def caller(client: Any) -> tuple[str, str, str | None]:
        response = client.call(function('caller')).data
        return response['role'], response['claimed_role'], response['uid']

    assert caller(rest.as_anonymous()) == ('anon', 'anon', None)
    assert caller(rest.as_user(owner)) == ('authenticated', 'authenticated', str(owner.id))
    assert caller(rest.as_service()) == ('service_role', 'service_role', None)


def test_a_function_sees_the_request(rest: Rest, function: Name) -> None:
    response = rest.as_anonymous().call(function('caller')).data

    assert response['method'] == 'POST'
    assert response['path'] == f'/rpc/{function("caller")}'
    assert 'supabase' in response['client'] or 'postgrest' in response['client']


def test_a_role_has_its_own_timeout(rest: Rest, function: Name, owner: User) -> None:
    for client in (rest.as_anonymous(), rest.as_user(owner)):
        response = client.call(function('caller')).data
        if response['role_timeout'] is None:
            pytest.skip('this project has no timeout for the role')
        assert response['timeout'] == response['role_timeout']


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


def test_a_user_cannot_control_another_users_job(
    rest: Rest, owner: User, stranger: User, project: Project
) -> None:
    job = project.enqueue(owner)
    client = rest.as_user(stranger)

    codes = {function: client.call(function, {'p_job_id': job['id']}).code for function in CONTROLS}

    assert codes == dict.fromkeys(CONTROLS, 'PT404')
    [row] = rest.as_user(owner).read('crawl_jobs', ('select', '*'), ('eq', 'id', job['id'])).data
    assert row == job


def test_a_user_lists_only_their_own_jobs(
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


def test_the_service_can_enqueue_for_a_user(rest: Rest, owner: User) -> None:
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
def test_users_cannot_call_worker_functions(rest: Rest, owner: User, function: str) -> None:
    response = rest.as_user(owner).call(function, WORKER_FUNCTIONS[function])

    assert (response.status, response.code) == (403, '42501')


@pytest.mark.parametrize('function', WORKER_FUNCTIONS)
def test_anonymous_callers_cannot_call_worker_functions(rest: Rest, function: str) -> None:
    response = rest.as_anonymous().call(function, WORKER_FUNCTIONS[function])

    assert (response.status, response.code) == (401, '42501')


@pytest.mark.parametrize('function', WORKER_FUNCTIONS)
def test_a_worker_can_call_worker_functions(rest: Rest, function: str, worker_id: str) -> None:
    params = {
        name: worker_id if name == 'p_worker_id' else value
        for name, value in WORKER_FUNCTIONS[function].items()
    }

    response = rest.as_worker().call(function, params)

    assert (response.status, response.error) == (200, None)


def test_a_worker_cannot_read_tables_or_call_other_functions(
    rest: Rest, owner: User, project: Project
) -> None:
    job = project.enqueue(owner)
    client = rest.as_worker()

    refused = [
        client.read('crawl_jobs', ('select', 'id')),
        client.read('crawl_settings', ('select', 'id')),
        client.call('cancel_crawl_job', {'p_job_id': job['id']}),
        client.call('enqueue_crawl_job', {'p_payload': {'url': 'https://worker.example/'}}),
        client.call('crawl_progress', {'p_job_id': job['id']}),
    ]

    assert [(response.status, response.code) for response in refused] == [(403, '42501')] * 5

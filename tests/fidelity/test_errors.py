"""Every class of error, as clients see it."""

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import jwt
import pytest

from tests.support.http import http
from tests.support.project import Project, User
from tests.support.rest_clients import Rest

Name = Callable[[str], str]

UNKNOWN_ID = '00000000-0000-0000-0000-000000000000'
PAYLOAD = {'url': 'https://errors.example/'}


@pytest.mark.parametrize(
    ('code', 'function', 'params', 'words', 'hint'),
    [
        ('PT400', 'enqueue_crawl_jobs', {'p_jobs': {}}, 'a list', '[{"payload"'),
        (
            'PT403',
            'enqueue_crawl_job',
            {'p_payload': PAYLOAD, 'p_user_id': UNKNOWN_ID},
            'only the service',
            'p_user_id',
        ),
        ('PT404', 'crawl_progress', {'p_job_id': UNKNOWN_ID}, UNKNOWN_ID, 'another user'),
        (
            'PT413',
            'enqueue_crawl_job',
            {'p_payload': {**PAYLOAD, 'user_agent': 'x' * 70_000}},
            '65536',
            '',
        ),
        (
            'PT422',
            'enqueue_crawl_job',
            {'p_payload': PAYLOAD, 'p_kind': 'stroll'},
            '"stroll"',
            '',
        ),
    ],
)
def test_the_queue_refuses_with_a_status_a_message_and_a_hint(
    rest: Rest,
    owner: User,
    *,
    code: str,
    function: str,
    params: dict[str, Any],
    words: str,
    hint: str,
) -> None:
    response = rest.as_user(owner).call(function, params)

    assert response.error is not None
    assert (response.status, response.code) == (int(code.removeprefix('PT')), code)
    assert words in response.error['message']
    assert hint in response.error['hint']


def test_a_change_to_an_ended_job_is_a_conflict(rest: Rest, owner: User, project: Project) -> None:
    job = project.enqueue(owner)
    project.call('cancel_crawl_job', token=owner.token, p_job_id=job['id'])

    response = rest.as_user(owner).call('pause_crawl_job', {'p_job_id': job['id']})

    assert response.error is not None
    assert (response.status, response.code) == (409, 'PT409')
    assert 'it is cancelled' in response.error['message']
    assert response.error['hint'] == 'Enqueue a new job.'


def test_more_jobs_than_the_quota_are_too_many_requests(rest: Rest, owner: User) -> None:
    client = rest.as_user(owner)
    [settings] = client.read('crawl_settings', ('select', 'max_open_jobs_per_user')).data
    allowed = settings['max_open_jobs_per_user']
    if allowed is None or allowed >= 10_000:
        pytest.skip('this project lets a user have more open jobs than one call may enqueue')

    response = client.call('enqueue_crawl_jobs', {'p_jobs': [{'payload': PAYLOAD}] * (allowed + 1)})

    assert response.error is not None
    assert (response.status, response.code) == (429, 'PT429')
    assert str(allowed) in response.error['message']


def test_a_function_can_choose_any_status(rest: Rest, function: Name) -> None:
    response = rest.as_anonymous().call(function('teapot'))

    assert response.status == 418
    assert response.error == {
        'code': 'PT418',
        'message': 'short and stout',
        'details': 'a handle',
        'hint': 'a spout',
    }


def test_a_plain_exception_is_a_bad_request(rest: Rest, function: Name) -> None:
    response = rest.as_anonymous().call(function('refuse'))

    assert response.status == 400
    assert response.error == {
        'code': 'P0001',
        'message': 'no such luck',
        'details': 'the detail',
        'hint': 'the hint',
    }


@pytest.mark.parametrize(
    ('name', 'params'),
    [
        pytest.param('crawl_nothing', {}, id='unknown-function'),
        pytest.param('crawl_progress', {'job_id': UNKNOWN_ID}, id='unknown-argument'),
        pytest.param('crawl_progress', {}, id='missing-argument'),
        pytest.param('crawl_progress', {'p_job_id': UNKNOWN_ID, 'more': 1}, id='one-too-many'),
    ],
)
def test_a_function_without_these_arguments_is_not_found(
    rest: Rest, owner: User, name: str, params: dict[str, Any]
) -> None:
    response = rest.as_user(owner).call(name, params)

    assert response.error is not None
    assert (response.status, response.code) == (404, 'PGRST202')
    assert f'public.{name}' in response.error['message']


def test_functions_that_differ_only_in_types_are_ambiguous(rest: Rest, function: Name) -> None:
    response = rest.as_anonymous().call(function('twice'), {'value': 1})

    assert (response.status, response.code) == (300, 'PGRST203')


def test_a_private_schema_is_not_served(rest: Rest) -> None:
    client = rest.as_service()

    called = client.call('own_job', {'p_job_id': UNKNOWN_ID}, schema='silkline')
    read = client.read('payload_options', ('select', '*'), schema='silkline')

    assert (called.status, called.code) == (406, 'PGRST106')
    assert (read.status, read.code) == (406, 'PGRST106')


def test_anonymous_callers_get_401(rest: Rest) -> None:
    client = rest.as_anonymous()

    called = client.call('enqueue_crawl_job', {'p_payload': PAYLOAD})
    read = client.read('crawl_jobs', ('select', 'id'))

    assert called.error is not None
    assert read.error is not None
    assert (called.status, called.code) == (401, '42501')
    assert called.error['message'] == 'permission denied for function enqueue_crawl_job'
    assert (read.status, read.code) == (401, '42501')
    assert read.error['message'] == 'permission denied for view crawl_jobs'


def test_users_get_403_for_functions_of_other_roles(rest: Rest, owner: User) -> None:
    client = rest.as_user(owner)

    called = client.call('claim_crawl_jobs', {'p_worker_id': UNKNOWN_ID, 'p_lease_tokens': []})
    read = client.read('crawl_workers', ('select', 'id'))

    assert (called.status, called.code) == (403, '42501')
    assert (read.status, read.code) == (403, '42501')


def test_a_duplicate_is_a_conflict(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('insert'), {'p_id': 1})

    assert response.error is not None
    assert (response.status, response.code) == (409, '23505')
    assert response.error['details'] == 'Key (id)=(1) already exists.'


def test_a_malformed_argument_is_a_bad_request(rest: Rest, owner: User) -> None:
    response = rest.as_user(owner).call('crawl_progress', {'p_job_id': 'not-a-uuid'})

    assert response.error is not None
    assert (response.status, response.code) == (400, '22P02')
    assert response.error['message'] == 'invalid input syntax for type uuid: "not-a-uuid"'


def test_a_function_is_cancelled_at_its_own_timeout(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('sleep'))

    assert response.error is not None
    assert (response.status, response.code) == (500, '57014')
    assert response.error['message'] == 'canceling statement due to statement timeout'


def test_a_stable_function_cannot_write(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('insert_stably'), {'p_id': 50})

    assert response.error is not None
    assert (response.status, response.code) == (405, '25006')
    assert 'read-only transaction' in response.error['message']


def test_a_get_cannot_write(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('insert'), {'p_id': 51}, options={'get': True})

    assert (response.status, response.code) == (405, '25006')


def test_a_token_with_a_foreign_signature_is_refused(rest: Rest, project: Project) -> None:
    forged = jwt.encode(
        {'role': 'service_role', 'exp': int(time.time()) + 3600}, 'x' * 48, algorithm='HS256'
    )

    response = rest.connect(project.publishable_key, forged).read('crawl_jobs', ('select', 'id'))

    assert (response.status, response.code) == (401, 'PGRST301')


def test_an_expired_token_is_refused(rest: Rest, project: Project) -> None:
    keys = project.own_gateway('tokens of Auth last an hour').keys
    expired = keys.user_token(str(uuid4()), seconds=-120)

    response = rest.connect(project.publishable_key, expired).call('crawl_queue_stats')

    assert response.error is not None
    assert (response.status, response.code) == (401, 'PGRST303')
    assert response.error['message'] == 'JWT expired'


@pytest.mark.parametrize('key', ['sb_publishable_nonsense', 'sb_secret_nonsense', 'nonsense'])
def test_a_wrong_key_is_refused(rest: Rest, key: str) -> None:
    response = rest.connect(key).call('crawl_queue_stats')

    assert response.error is not None
    assert response.status == 401
    assert 'API key' in response.error['message']


def test_a_request_without_a_key_is_refused(project: Project) -> None:
    response = http.post(f'{project.url}/rest/v1/rpc/crawl_queue_stats', json={})

    assert (response.status_code, response.json()['message']) == (
        401,
        'No API key found in request',
    )


def test_a_page_of_another_origin_can_call_and_read_the_response(
    project: Project, owner: User
) -> None:
    url = f'{project.url}/rest/v1/rpc/crawl_progress'
    origin = {'Origin': 'https://page.example'}
    preflight = http.options(
        url,
        headers={
            **origin,
            'Access-Control-Request-Method': 'POST',
            'Access-Control-Request-Headers': 'apikey,authorization,content-type,x-client-info',
        },
    )
    refused = http.post(
        url,
        headers={
            **origin,
            'apikey': project.publishable_key,
            'Authorization': f'Bearer {owner.token}',
        },
        json={'p_job_id': UNKNOWN_ID},
    )

    assert preflight.is_success
    assert 'POST' in preflight.headers['Access-Control-Allow-Methods']
    assert 'x-client-info' in preflight.headers['Access-Control-Allow-Headers'].lower()
    assert preflight.headers['Access-Control-Allow-Origin'] in ('*', origin['Origin'])
    assert refused.status_code == 404
    assert refused.headers['Access-Control-Allow-Origin'] in ('*', origin['Origin'])


def test_a_browser_cannot_use_the_secret_key(project: Project) -> None:
    if not project.secret_key.startswith('sb_secret_'):
        pytest.skip('needs a secret key of the newer form, sb_secret_…')

    response = http.post(
        f'{project.url}/rest/v1/rpc/crawl_queue_stats',
        headers={'apikey': project.secret_key, 'User-Agent': 'Mozilla/5.0 (X11; Linux x86_64)'},
        json={},
    )

    assert response.status_code == 401

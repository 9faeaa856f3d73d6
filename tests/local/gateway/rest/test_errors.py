"""Errors: their status, code, message, details and hint."""

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest

from silkline_local.keys import generate_keys
from tests.support.http import http
from tests.support.rest import Api, open_api
from tests.support.servers import Server

SETUP = r"""
create function public.fail(
  p_sqlstate text,
  p_message text default 'no',
  p_detail text default null
)
  returns int
  language plpgsql
  volatile
as $$
begin
  raise exception using
    errcode = p_sqlstate,
    message = p_message,
    detail = coalesce(p_detail, ''),
    hint = 'try less';
end;
$$;
create function public.fail_plainly() returns int language plpgsql volatile
  as $$begin raise exception 'plainly'; end$$;
create function public.add_numbers(p_first int, p_second int) returns int language sql volatile
  as 'select p_first + p_second';
create function public.twice(p_a int) returns int language sql volatile as 'select 1';
create function public.twice(p_a text) returns int language sql volatile as 'select 2';
create function public.same(p_value text) returns text language sql volatile as 'select p_value';
create function public.same_json(p_value json) returns json language sql volatile
  as 'select p_value';
create function public.divide(p_by int) returns int language sql volatile as 'select 1 / p_by';
create function public.is_well() returns boolean language sql volatile as 'select true';
create table public.parents (id int primary key);
create table public.children (
  parent_id int references public.parents deferrable initially deferred
);
create function public.add_orphan() returns void language sql volatile
  as 'insert into public.children values (99)';
revoke execute on all functions in schema public from public, anon, authenticated;
grant execute on all functions in schema public to service_role;
grant execute on function public.fail(text, text, text) to authenticated;
grant all on public.parents, public.children to service_role;
"""


@pytest.fixture(scope='module')
def api(server: Server, template: str) -> Iterator[Api]:
    with open_api(server, template, SETUP) as api:
        yield api
        # None of the refusals has left a connection unusable.
        for _ in range(20):
            assert api.call('is_well').json() is True


def outcome(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()['code']


STATUSES = {
    '08006': 503,
    '09000': 500,
    '0L000': 403,
    '0P000': 403,
    '22012': 400,
    '23502': 400,
    '23503': 409,
    '23505': 409,
    '23514': 400,
    '25006': 405,
    '25001': 500,
    '28000': 403,
    '2D000': 500,
    '38000': 500,
    '39000': 500,
    '3B000': 500,
    '40001': 500,
    '40P01': 500,
    '42501': 403,
    '42601': 400,
    '42703': 400,
    '42883': 404,
    '42P01': 404,
    '42P17': 500,
    '53100': 503,
    '53400': 500,
    '54000': 500,
    '55P03': 500,
    '57014': 500,
    '57P01': 503,
    '58000': 500,
    'F0000': 500,
    'HV000': 500,
    'P0001': 400,
    'P0002': 500,
    'XX000': 500,
    'ABCDE': 400,
    'PT404': 404,
    'PT409': 409,
    'PT429': 429,
    'PTXYZ': 500,
    'PT100': 500,
}


@pytest.mark.parametrize(('sqlstate', 'status'), STATUSES.items())
def test_each_database_error_has_its_status(api: Api, sqlstate: str, status: int) -> None:
    response = api.call('fail', {'p_sqlstate': sqlstate, 'p_detail': 'because'})
    assert response.status_code == status
    assert response.json() == {
        'code': sqlstate,
        'message': 'no',
        'details': 'because',
        'hint': 'try less',
    }
    assert response.headers['Proxy-Status'] == f'PostgREST; error={sqlstate}'
    assert response.headers['Content-Type'] == 'application/json; charset=utf-8'


def test_an_error_without_details_has_null_details(api: Api) -> None:
    assert api.call('fail_plainly').json() == {
        'code': 'P0001',
        'message': 'plainly',
        'details': None,
        'hint': None,
    }


def test_missing_rights_are_401_for_anonymous_callers_and_403_for_others(api: Api) -> None:
    refused = api.anonymous.post('/rpc/is_well')
    assert outcome(refused) == (401, '42501')
    assert refused.headers['WWW-Authenticate'] == 'Bearer'
    assert refused.json()['message'] == 'permission denied for function is_well'
    user = api.as_user(api.gateway.keys.user_token('f81d4fae-7dec-11d0-a765-00a0c91e6bf6'))
    refused = api.service.post('/rpc/is_well', headers=user)
    assert outcome(refused) == (403, '42501')
    assert 'WWW-Authenticate' not in refused.headers


def test_an_error_at_commit_is_reported(api: Api) -> None:
    assert outcome(api.call('add_orphan')) == (409, '23503')


def test_a_function_can_choose_the_whole_error_response(api: Api) -> None:
    response = api.call(
        'fail',
        {
            'p_sqlstate': 'PGRST',
            'p_message': '{"code":"123","message":"Pay first","details":"Quota","hint":"Pay"}',
            'p_detail': '{"status":402,"headers":{"X-Powered-By":"Rage","X-Bad":"a\\r\\nb: c"}}',
        },
    )
    assert response.status_code == 402
    assert response.json() == {
        'code': '123',
        'message': 'Pay first',
        'details': 'Quota',
        'hint': 'Pay',
    }
    assert response.headers['X-Powered-By'] == 'Rage'
    assert 'X-Bad' not in response.headers


@pytest.mark.parametrize(
    ('message', 'detail', 'details'),
    [
        ('oops', '{}', "Invalid JSON value for MESSAGE: 'oops'"),
        ('{"code":"1"}', '{}', """Invalid JSON value for MESSAGE: '{"code":"1"}'"""),
        ('{"code":"1","message":"m"}', None, "Invalid JSON value for DETAIL: ''"),
        ('{"code":"1","message":"m"}', '{"status":1}', """Invalid JSON value for DETAIL: '{"st"""),
    ],
)
def test_a_malformed_error_of_a_function_is_a_500(
    api: Api, message: str, detail: str | None, details: str
) -> None:
    arguments = {'p_sqlstate': 'PGRST', 'p_message': message, 'p_detail': detail}
    response = api.call('fail', arguments)
    assert outcome(response) == (500, 'PGRST121')
    assert response.json()['details'].startswith(details[:40])


def test_an_unknown_function_is_named_and_a_similar_one_suggested(api: Api) -> None:
    response = api.call('add_number', {'p_first': 1, 'p_second': 2})
    assert response.status_code == 404
    assert response.json() == {
        'code': 'PGRST202',
        'message': 'Could not find the function public.add_number(p_first, p_second) '
        'in the schema cache',
        'details': 'Searched for the function public.add_number with parameters p_first, p_second '
        'or with a single unnamed json/jsonb parameter, but no matches were found in the schema '
        'cache.',
        'hint': 'Perhaps you meant to call the function public.add_numbers',
    }


def test_wrong_arguments_are_named_and_the_right_ones_suggested(api: Api) -> None:
    response = api.call('add_numbers', {'p_first': 1})
    assert response.json() == {
        'code': 'PGRST202',
        'message': 'Could not find the function public.add_numbers(p_first) in the schema cache',
        'details': 'Searched for the function public.add_numbers with parameter p_first '
        'or with a single unnamed json/jsonb parameter, but no matches were found in the schema '
        'cache.',
        'hint': 'Perhaps you meant to call the function public.add_numbers(p_first, p_second)',
    }
    by_get = api.service.get('/rpc/add_numbers').json()
    assert by_get['message'] == (
        'Could not find the function public.add_numbers without parameters in the schema cache'
    )
    assert by_get['details'] == (
        'Searched for the function public.add_numbers without parameters, but no matches were '
        'found in the schema cache.'
    )
    assert api.call('zzzzzzzzzzzzzzzzzzzzzzzzzzzz').json()['hint'] is None


def test_overloads_with_the_same_argument_names_are_ambiguous(api: Api) -> None:
    response = api.call('twice', {'p_a': 1})
    assert outcome(response) == (300, 'PGRST203')
    assert 'public.twice(p_a => integer)' in response.json()['message']


def test_an_unknown_table_is_named_and_a_similar_one_suggested(api: Api) -> None:
    response = api.service.get('/parent')
    assert response.status_code == 404
    assert response.json() == {
        'code': 'PGRST205',
        'message': "Could not find the table 'public.parent' in the schema cache",
        'details': None,
        'hint': "Perhaps you meant the table 'public.parents'",
    }


@pytest.mark.parametrize(
    ('method', 'header'), [('POST', 'Content-Profile'), ('GET', 'Accept-Profile')]
)
def test_a_schema_that_is_not_exposed_is_refused(api: Api, method: str, header: str) -> None:
    response = api.service.request(method, '/rpc/is_well', headers={header: 'auth'})
    assert response.status_code == 406
    assert response.json() == {
        'code': 'PGRST106',
        'message': 'Invalid schema: auth',
        'details': None,
        'hint': 'Only the following schemas are exposed: public',
    }


@pytest.mark.parametrize(
    ('method', 'path', 'status', 'code'),
    [
        ('PUT', '/rpc/is_well', 405, 'PGRST101'),
        ('PATCH', '/rpc/is_well', 405, 'PGRST101'),
        ('DELETE', '/rpc/is_well', 405, 'PGRST101'),
        ('POST', '/parents', 405, 'PGRST117'),
        ('PATCH', '/parents', 405, 'PGRST117'),
        ('PUT', '/parents', 405, 'PGRST117'),
        ('DELETE', '/parents', 405, 'PGRST117'),
        ('TRACE', '/parents', 405, 'PGRST117'),
        ('GET', '/', 400, 'PGRST127'),
        ('GET', '', 400, 'PGRST127'),
        ('GET', '/rpc', 404, 'PGRST205'),
        ('POST', '/rpc/', 404, 'PGRST125'),
        ('POST', '/rpc/is_well/more', 404, 'PGRST125'),
        ('GET', '/parents/', 404, 'PGRST125'),
        ('GET', '/parents/1', 404, 'PGRST125'),
        ('GET', '/%FF', 404, 'PGRST125'),
        ('POST', '/rpc/%FF', 404, 'PGRST125'),
        ('POST', '/rpc/%00', 404, 'PGRST202'),
        ('POST', '/rpc/%2e%2e%2fis_well', 404, 'PGRST202'),
        ('POST', "/rpc/is_well';select%201--", 404, 'PGRST202'),
    ],
)
def test_unsupported_methods_and_paths_are_refused(
    api: Api, method: str, path: str, status: int, code: str
) -> None:
    assert outcome(api.service.request(method, api.url + path)) == (status, code)


@pytest.mark.parametrize(
    'body',
    [
        b'{',
        b'{]',
        b"{'p_value': 1}",
        b'{"p_value": "a" "b"}',
        b'{"p_value": \x00}',
        b'{"p_value": "\x00"}',
        b'{"p_value": "\x1f"}',
        b'{"p_value": NaN}',
        b'{"p_value": 1} {}',
        b'{"\xff": 1}',
        b'[1',
        b'nul',
        b'\xff\xfe',
        b'{"p_value": ' + b'[' * 100_000 + b']' * 100_000 + b'}',
    ],
)
def test_a_body_that_is_not_valid_json_is_refused(api: Api, body: bytes) -> None:
    response = api.service.post('/rpc/same_json', content=body)
    assert outcome(response) == (400, 'PGRST102')
    assert response.json()['message'] == 'Empty or invalid json'


@pytest.mark.parametrize(
    ('body', 'code'),
    [
        (b'{"p_value": "\xff"}', '22021'),
        (b'{"p_value": "\\u0000"}', '22P05'),
    ],
)
def test_text_that_the_database_cannot_store_is_refused(api: Api, body: bytes, code: str) -> None:
    assert outcome(api.service.post('/rpc/same', content=body)) == (400, code)


@pytest.mark.parametrize(
    ('arguments', 'code'),
    [
        ({'p_by': 'x'}, '22P02'),
        ({'p_by': {}}, '22P02'),
        ({'p_by': 10**12}, '22003'),
        ({'p_by': 0}, '22012'),
    ],
)
def test_an_argument_that_the_function_cannot_use_is_a_400(
    api: Api, arguments: dict[str, Any], code: str
) -> None:
    assert outcome(api.call('divide', arguments)) == (400, code)


def test_a_nul_in_the_query_string_is_refused(api: Api) -> None:
    for path in ('/rpc/same?p_value=a%00b', '/parents?id=eq.1%00', '/parents?id%00=eq.1'):
        response = api.service.get(path)
        assert response.status_code == 400
        assert response.json()['code'] in ('22021', 'PGRST100')


def test_deeply_nested_json_is_accepted(api: Api) -> None:
    value = b'[' * 500 + b']' * 500
    response = api.service.post('/rpc/same_json', content=b'{"p_value": ' + value + b'}')
    assert response.content == value


@pytest.mark.parametrize(
    'content_type', ['text/plain', 'text/csv', 'multipart/form-data; boundary=x']
)
def test_bodies_of_other_media_types_are_refused(api: Api, content_type: str) -> None:
    response = api.service.post(
        '/rpc/is_well', content=b'{}', headers={'Content-Type': content_type}
    )
    assert response.status_code == 415
    assert content_type.partition(';')[0] in response.json()['message']


@pytest.mark.parametrize('content_type', ['application/json; charset=utf-8', 'Application/JSON'])
def test_json_media_types_are_accepted_with_parameters_and_in_any_case(
    api: Api, content_type: str
) -> None:
    response = api.service.post(
        '/rpc/is_well', content=b'{}', headers={'Content-Type': content_type}
    )
    assert response.json() is True


@pytest.mark.parametrize('accept', ['text/csv', 'application/geo+json', 'image/png, text/html'])
def test_a_request_for_another_media_type_is_refused(api: Api, accept: str) -> None:
    response = api.call('is_well', Accept=accept)
    assert outcome(response) == (406, 'PGRST107')
    assert response.json()['message'] == f'None of these media types are available: {accept}'


def test_a_body_that_is_too_large_is_refused_before_it_is_read(api: Api) -> None:
    connection = HTTPConnection('127.0.0.1', api.gateway.port, timeout=60)
    try:
        connection.putrequest('POST', '/rest/v1/rpc/same')
        connection.putheader('apikey', api.gateway.keys.secret)
        connection.putheader('Content-Length', str(101 * 1024 * 1024))
        connection.endheaders()
        response = connection.getresponse()
        assert response.status == 413
        assert b'larger than 100 MB' in response.read()
    finally:
        connection.close()


def test_a_body_of_unknown_size_is_refused_once_it_is_too_large(api: Api) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(110):
            yield b' ' * 1024 * 1024

    try:
        response = api.service.post('/rpc/same', content=pieces())
    except httpx.WriteError:
        # The gateway closed the connection before everything was sent.
        return
    assert response.status_code == 413


@pytest.mark.parametrize(
    ('token', 'message'),
    [
        ('abc', 'Expected 3 parts in JWT; got 1'),
        ('a.b', 'Expected 3 parts in JWT; got 2'),
        ('a.b.c', 'No suitable key or wrong key type'),
    ],
)
def test_a_malformed_token_is_refused(api: Api, token: str, message: str) -> None:
    response = api.service.post('/rpc/is_well', headers={'Authorization': f'Bearer {token}'})
    assert outcome(response) == (401, 'PGRST301')
    assert response.json()['message'] == message
    assert response.headers['WWW-Authenticate'] == (
        f'Bearer error="invalid_token", error_description="{message}"'
    )


def test_a_token_of_another_stack_is_refused(api: Api) -> None:
    token = generate_keys().user_token('f81d4fae-7dec-11d0-a765-00a0c91e6bf6')
    response = api.service.post('/rpc/is_well', headers=api.as_user(token))
    assert outcome(response) == (401, 'PGRST301')
    assert response.json()['details'] == 'None of the keys was able to decode the JWT'


def test_an_expired_token_is_refused_after_30_seconds_of_leeway(api: Api) -> None:
    now = int(time.time())
    sign = api.gateway.keys.sign
    late = api.as_user(sign({'role': 'service_role', 'exp': now - 20}))
    assert api.service.post('/rpc/is_well', headers=late).json() is True
    too_late = api.as_user(sign({'role': 'service_role', 'exp': now - 40}))
    response = api.service.post('/rpc/is_well', headers=too_late)
    assert outcome(response) == (401, 'PGRST303')
    assert response.json()['message'] == 'JWT expired'
    assert 'error_description="JWT expired"' in response.headers['WWW-Authenticate']


@pytest.mark.parametrize(
    ('claims', 'message'),
    [
        ({'nbf': 40}, 'JWT not yet valid'),
        ({'iat': 40}, 'JWT issued at future'),
        ({'exp': 3600.5}, 'JWT expired'),
        ({'exp': 10**400}, 'JWT expired'),
        ({'exp': 'never'}, "The JWT 'exp' claim must be a number"),
        ({'nbf': True}, "The JWT 'nbf' claim must be a number"),
        ({'iat': []}, "The JWT 'iat' claim must be a number"),
        ({'aud': 5}, "The JWT 'aud' claim must be a string or an array of strings"),
    ],
)
def test_a_token_with_an_invalid_time_or_audience_is_refused(
    api: Api, claims: dict[str, Any], message: str
) -> None:
    now = int(time.time())
    claims = {
        name: now + value if type(value) in (int, float) and name != 'aud' else value
        for name, value in claims.items()
    }
    headers = api.as_user(api.gateway.keys.sign({'role': 'service_role', **claims}))
    response = api.service.post('/rpc/is_well', headers=headers)
    assert outcome(response) == (401, 'PGRST303')
    assert response.json()['message'] == message


def test_30_seconds_of_clock_skew_are_allowed(api: Api) -> None:
    soon = int(time.time()) + 20
    headers = api.as_user(
        api.gateway.keys.sign(
            {'role': 'service_role', 'nbf': soon, 'iat': soon, 'aud': ['a', 'b'], 'exp': None}
        )
    )
    assert api.service.post('/rpc/is_well', headers=headers).json() is True


def test_a_token_whose_claims_are_not_utf_8_is_refused(api: Api) -> None:
    headers = api.as_user(api.gateway.keys.sign({'role': 'service_role', 'name': '\ud800'}))
    response = api.service.post('/rpc/is_well', headers=headers)
    assert outcome(response) == (401, 'PGRST301')


@pytest.mark.parametrize(
    ('role', 'status', 'code'),
    [
        (5, 401, '22023'),
        (None, 401, '22023'),
        (['service_role'], 401, '22023'),
        ('nobody_has_this', 401, '22023'),
        ('postgres', 403, '42501'),
        ('supabase_admin', 403, '42501'),
        ("x'; drop table parents--", 401, '22023'),
        ('none', 403, '42501'),
    ],
)
def test_a_token_with_a_role_that_authenticator_cannot_assume_is_refused(
    api: Api, role: object, status: int, code: str
) -> None:
    headers = api.as_user(api.gateway.keys.sign({'role': role}))
    assert outcome(api.service.post('/rpc/is_well', headers=headers)) == (status, code)


def test_a_request_without_a_key_is_refused(api: Api) -> None:
    response = http.post(f'{api.url}/rpc/is_well')
    assert response.status_code == 401
    assert response.json()['message'] == 'No API key found in request'


def test_strict_handling_refuses_unknown_preferences(api: Api) -> None:
    response = api.call(
        'is_well',
        Prefer='handling=strict, params=single-object, count=exact, timezone=Nowhere',
    )
    assert response.status_code == 400
    assert response.json() == {
        'code': 'PGRST122',
        'message': 'Invalid preferences given with handling=strict',
        'details': 'Invalid preferences: params=single-object, timezone=Nowhere',
        'hint': None,
    }
    lenient = api.call('is_well', Prefer='handling=lenient, anything, timezone=Nowhere')
    assert lenient.headers['Preference-Applied'] == 'handling=lenient'


def test_errors_with_any_text_are_valid_json(api: Api) -> None:
    message = 'quote " backslash \\ newline \n ünï \U0001f353'
    response = api.call('fail', {'p_sqlstate': 'PT400', 'p_message': message})
    assert json.loads(response.content)['message'] == message

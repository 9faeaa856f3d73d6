"""The transaction of a request: role, claims, headers, timeouts, and changes of the schema."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.support.rest import Api, open_api
from tests.support.servers import Server
from tests.support.waiting import wait_until

SETUP = r"""
create role rest_impatient;
alter role rest_impatient set statement_timeout = '1s';
alter role rest_impatient set default_transaction_isolation = 'repeatable read';
grant rest_impatient to authenticator;
grant usage on schema public to rest_impatient;

create function public.setting(p_name text) returns text language sql volatile
  as 'select current_setting(p_name, true)';
create function public.who() returns jsonb language sql volatile as $$
  select jsonb_build_object(
    'role', current_user, 'session', session_user, 'uid', auth.uid(), 'jwt', auth.jwt()
  )
$$;
create function public.wait_a_while() returns boolean language sql volatile
  as 'select true from pg_sleep(1.5)';
create function public.wait_hastily() returns boolean language sql volatile
  set statement_timeout = '100ms'
  as 'select true from pg_sleep(60)';
create function public.wait_patiently() returns boolean language sql volatile
  set statement_timeout = '60s'
  as 'select true from pg_sleep(1.5)';
create function public.wait_for(p_lock int) returns boolean language sql volatile
  as 'select pg_advisory_xact_lock_shared(p_lock); select true';
create function public.work_memory() returns text language sql volatile
  set work_mem = '7MB'
  as $$select current_setting('work_mem')$$;
create function public.isolation() returns text language sql volatile
  as $$select current_setting('transaction_isolation')$$;
create function public.serializable() returns text language sql volatile
  set default_transaction_isolation = 'serializable'
  as $$select current_setting('transaction_isolation')$$;
create function public.reading() returns text language sql stable
  as $$select current_setting('transaction_read_only')$$;
create function public.writing() returns text language sql volatile
  as $$select current_setting('transaction_read_only')$$;
create function public.a_time() returns timestamptz language sql stable
  as $$select '2026-01-01 12:00Z'::timestamptz$$;
create function public.add_one(p_to int) returns int language sql stable as 'select p_to + 1';
create function public.deallocate() returns boolean language plpgsql volatile
  as $$begin deallocate all; return true; end$$;
create function public.repeat_text(p_times int) returns text language sql volatile
  as $$select repeat('x', p_times)$$;
create function public.count_text(p_text text) returns int language sql volatile
  as 'select length(p_text)';
create function public.backend() returns int language sql volatile as 'select pg_backend_pid()';
grant execute on all functions in schema public
  to service_role, anon, authenticated, rest_impatient;
revoke execute on function public.add_one(int) from public, anon, authenticated;
"""


@pytest.fixture(scope='module')
def api(server: Server, template: str) -> Iterator[Api]:
    try:
        with open_api(server, template, SETUP) as api:
            yield api
    finally:
        with server.database() as other:
            other.query('drop role if exists rest_impatient')


def test_each_caller_has_its_role_and_claims(api: Api) -> None:
    service = api.call('who').json()
    assert (service['role'], service['session']) == ('service_role', 'authenticator')
    assert service['jwt']['role'] == 'service_role'
    assert api.anonymous.post('/rpc/who').json()['role'] == 'anon'
    user = str(uuid4())
    headers = api.as_user(api.gateway.keys.user_token(user, email='a@example.com'))
    signed_in = api.service.post('/rpc/who', headers=headers).json()
    assert (signed_in['role'], signed_in['uid']) == ('authenticated', user)
    assert signed_in['jwt']['email'] == 'a@example.com'


def test_a_token_without_a_role_is_anonymous_and_says_so(api: Api) -> None:
    headers = api.as_user(api.gateway.keys.sign({'sub': str(uuid4())}))
    who = api.service.post('/rpc/who', headers=headers).json()
    assert (who['role'], who['jwt']['role']) == ('anon', 'anon')


def test_functions_can_read_the_request(api: Api) -> None:
    def setting(name: str, **headers: str) -> str:
        return api.call('setting', {'p_name': name}, **headers).json()

    assert setting('request.method') == 'POST'
    assert setting('request.path') == '/rpc/setting'
    assert setting('search_path') == '"public", "extensions"'
    assert '"x-forwarded-for":"1.2.3.4"' in setting('request.headers', X_Forwarded_For='1.2.3.4')
    assert 'cookie' not in setting('request.headers', Cookie='a=1; b=2')
    assert setting('request.cookies', Cookie='a=1; b=2') == '{"a":"1","b":"2"}'
    by_get = api.service.get('/rpc/setting?p_name=request.method')
    assert by_get.json() == 'GET'


def test_headers_that_are_not_utf_8_are_accepted(api: Api) -> None:
    response = api.service.post(
        '/rpc/setting',
        json={'p_name': 'request.headers'},
        headers=[(b'X-Odd', b'\xff\xfe "quoted" \\')],
    )
    assert response.status_code == 200
    assert '"x-odd":"' in response.json()


def test_settings_of_a_request_do_not_leak_into_the_next(api: Api) -> None:
    for _ in range(3):
        api.call('who', X_Left='over')
    assert 'over' not in api.call('setting', {'p_name': 'request.headers'}).text
    assert api.anonymous.post('/rpc/who').json()['uid'] is None


def test_a_cached_plan_does_not_give_one_roles_rights_to_another(api: Api) -> None:
    # After some calls the plan is cached with the function inlined: the function is no longer
    # called, so nothing would check the right to execute it.
    for _ in range(20):
        assert api.call('add_one', {'p_to': 1}).json() == 2
    refused = api.anonymous.post('/rpc/add_one', json={'p_to': 1})
    assert (refused.status_code, refused.json()['code']) == (401, '42501')


def test_a_function_that_deallocates_all_statements_does_not_break_later_calls(api: Api) -> None:
    assert api.call('setting', {'p_name': 'role'}).json() == 'service_role'
    for new in ('first', 'second'):
        assert api.call('deallocate').json() is True
        # A statement that was prepared already, and below one that was not.
        assert api.call('setting', {'p_name': 'role'}).json() == 'service_role'
        assert api.call('deallocate').json() is True
        assert api.service.get(f'/crawl_jobs?select={new}:id&limit=0').json() == []


@pytest.mark.parametrize(
    ('function', 'arguments'),
    [
        ('repeat_text', {'p_times': 5_000_000}),
        ('count_text', {'p_text': 'x' * 5_000_000}),
    ],
)
def test_a_connection_is_not_kept_after_a_large_message(
    api: Api, function: str, arguments: dict[str, Any]
) -> None:
    before = api.call('backend').json()
    assert api.call('backend').json() == before
    assert api.call(function, arguments).status_code == 200
    assert api.call('backend').json() != before


def test_the_statement_timeout_of_a_role_applies(api: Api) -> None:
    headers = api.as_user(api.gateway.keys.sign({'role': 'rest_impatient'}))
    response = api.service.post('/rpc/wait_a_while', headers=headers)
    assert (response.status_code, response.json()['code']) == (500, '57014')
    # The same connection, for a role without that timeout.
    assert api.call('wait_a_while').json() is True


def test_the_timeout_of_a_function_overrides_that_of_its_caller(api: Api) -> None:
    response = api.call('wait_hastily')
    assert (response.status_code, response.json()['code']) == (500, '57014')
    headers = api.as_user(api.gateway.keys.sign({'role': 'rest_impatient'}))
    assert api.service.post('/rpc/wait_patiently', headers=headers).json() is True


def test_other_settings_of_a_function_apply_inside_it(api: Api) -> None:
    assert api.call('work_memory').json() == '7MB'


def test_isolation_is_that_of_the_function_or_the_role(api: Api) -> None:
    assert api.call('isolation').json() == 'read committed'
    assert api.call('serializable').json() == 'serializable'
    headers = api.as_user(api.gateway.keys.sign({'role': 'rest_impatient'}))
    assert api.service.post('/rpc/isolation', headers=headers).json() == 'repeatable read'


def test_a_call_is_read_only_unless_a_volatile_function_is_posted(api: Api) -> None:
    assert api.call('reading').json() == 'on'
    assert api.call('writing').json() == 'off'
    assert api.service.get('/rpc/writing').json() == 'on'


def test_times_are_returned_in_the_preferred_time_zone(api: Api) -> None:
    response = api.call('a_time', Prefer='timezone=Asia/Tokyo')
    assert response.json() == '2026-01-01T21:00:00+09:00'
    assert response.headers['Preference-Applied'] == 'timezone=Asia/Tokyo'
    assert api.call('a_time').json() == '2026-01-01T12:00:00+00:00'
    unknown = api.call('a_time', Prefer='timezone=Europe/Atlantis')
    assert unknown.json() == '2026-01-01T12:00:00+00:00'
    assert 'Preference-Applied' not in unknown.headers


def test_concurrent_requests_run_in_parallel(api: Api) -> None:
    waiting = """
        select count(*) from pg_stat_activity
        where datname = current_database() and wait_event = 'advisory'
    """
    with api.database.connect() as other, ThreadPoolExecutor(6) as threads:
        other.execute('select pg_advisory_lock(74)')
        calls = [threads.submit(api.call, 'wait_for', {'p_lock': 74}) for _ in range(6)]
        wait_until(
            lambda: api.database.query(waiting, role='supabase_admin')[0]['count'] == 6,
            seconds=7,
            what='six calls at once',
        )
        other.execute('select pg_advisory_unlock(74)')
        assert all(call.result().json() is True for call in calls)


def test_new_functions_and_tables_are_known_at_once(api: Api) -> None:
    query = api.database.query
    assert api.call('brand_new').status_code == 404
    query("create function public.brand_new() returns int language sql volatile as 'select 1'")
    query('grant execute on function public.brand_new() to service_role')
    wait_until(lambda: api.call('brand_new').status_code == 200)
    query('drop function public.brand_new()')
    wait_until(lambda: api.call('brand_new').json()['code'] == 'PGRST202')
    query('create table public.brand_new (id int)')
    query('grant select on public.brand_new to service_role')
    wait_until(lambda: api.service.get('/brand_new').status_code == 200)
    query('drop table public.brand_new')
    wait_until(lambda: api.service.get('/brand_new').json()['code'] == 'PGRST205')


def test_settings_of_roles_are_reloaded_on_notify(api: Api) -> None:
    headers = api.as_user(api.gateway.keys.sign({'role': 'rest_impatient'}))
    alter = f'alter role rest_impatient in database {api.database.name}'

    def setting(name: str) -> str:
        return api.service.post('/rpc/setting', json={'p_name': name}, headers=headers).json()

    assert setting('work_mem') != '3MB'
    api.database.query(f"{alter} set log_statement = 'all'", role='supabase_admin')
    api.database.query(f"{alter} set work_mem = '3MB'")
    api.database.query("notify pgrst, 'reload config'")
    wait_until(lambda: setting('work_mem') == '3MB')
    # A setting that only a superuser may change is ignored without an error.
    assert setting('log_statement') == 'none'
    api.database.query(f'{alter} reset all', role='supabase_admin')


@pytest.mark.parametrize('pinned', ["set search_path = ''", ''])
def test_prepared_statements_survive_changes_to_what_they_use(api: Api, pinned: str) -> None:
    query = api.database.query
    query('create table public.shapes (id int)')
    query('insert into public.shapes values (1)')
    returns = 'returns setof public.shapes language sql stable'
    query(f"create function public.shapes() {returns} {pinned} as 'table public.shapes'")
    query('grant select on public.shapes to service_role')
    query('grant execute on function public.shapes() to service_role')

    def show() -> Any:
        called, read = api.call('shapes'), api.service.get('/shapes')
        assert (called.status_code, read.status_code) == (200, 200), called.text + read.text
        # A function that Postgres inlines may return the old columns until the schema is reloaded.
        return called.json()

    wait_until(lambda: api.call('shapes').status_code == 200)
    for _ in range(12):
        assert show() == [{'id': 1}]
    query("alter table public.shapes add column colour text default 'red'")
    wait_until(lambda: show() == [{'id': 1, 'colour': 'red'}])
    query('alter table public.shapes alter column id type text')
    wait_until(lambda: show() == [{'id': '1', 'colour': 'red'}])
    query('alter table public.shapes drop column colour')
    wait_until(lambda: show() == [{'id': '1'}])
    query('drop function public.shapes()')
    query("create function public.shapes() returns int language sql stable as 'select 5'")
    query('grant execute on function public.shapes() to service_role')
    wait_until(lambda: api.call('shapes').text == '5')
    query("create or replace function public.shapes() returns int language sql as 'select 6'")
    assert api.call('shapes').json() == 6
    query('drop function public.shapes()')
    query('drop table public.shapes')


def test_a_function_with_a_pinned_path_shows_new_columns_at_once(api: Api) -> None:
    query = api.database.query
    query('create table public.pinned (id int)')
    query('insert into public.pinned values (1)')
    query("""
        create function public.pinned() returns setof public.pinned language sql volatile
        set search_path = '' as 'select * from public.pinned'
    """)
    query('grant select on public.pinned to service_role')
    query('grant execute on function public.pinned() to service_role')
    wait_until(lambda: api.call('pinned').status_code == 200)
    expected = {'id': 1}
    for number in range(20):
        assert api.call('pinned').json() == [expected]
        query(f'alter table public.pinned add column c{number} int default {number}')
        expected[f'c{number}'] = number


def test_more_statements_than_are_kept_prepared_are_all_answered(api: Api) -> None:
    query = api.database.query
    columns = ', '.join(f'c{number} int' for number in range(40))
    query(f'create table public.wide ({columns})')
    query('grant select on public.wide to service_role')
    wait_until(lambda: api.service.get('/wide').status_code == 200)
    backends = {api.call('backend').json()}
    for number in range(600):
        assert api.service.get(f'/wide?select=a{number}:c{number % 40}').text == '[]'
    backends.add(api.call('backend').json())
    kept = query('select count(*) from pg_stat_activity where pid = any (%s)', [list(backends)])
    assert kept[0]['count'] == len(backends)

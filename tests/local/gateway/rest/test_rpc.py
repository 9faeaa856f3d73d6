"""Functions called over HTTP: their arguments, and the form of their results."""

from collections.abc import Iterator

import pytest

from tests.support.rest import Api, open_api
from tests.support.servers import Server

SETUP = r"""
create table public.fruits (
  id int primary key,
  name text not null,
  detail jsonb,
  origin text
);
insert into public.fruits values
  (1, 'apple', '{"colour": "red", "sizes": [1, 2]}', 'Almaty'),
  (2, 'pear', '{"colour": "green"}', null),
  (3, 'quince', null, null);

create function public.number() returns int language sql volatile as 'select 7';
create function public.no_number() returns int language sql volatile as 'select null::int';
create function public.nothing() returns void language sql volatile as '';
create function public.truth() returns boolean language sql volatile as 'select true';
create function public.words() returns text language sql volatile as $$select 'say "ü"'$$;
create function public.document() returns jsonb language sql volatile
  as $$select '{"b": [1, null], "a": {}}'::jsonb$$;
create function public.text_document() returns json language sql volatile
  as $$select '{"b":  1, "b": 2}'::json$$;
create function public.numbers(p_count int) returns setof int language sql volatile
  as 'select generate_series(1, p_count)';
create function public.all_fruits() returns setof public.fruits language sql stable
  as 'select * from public.fruits';
create function public.one_fruit(p_id int) returns public.fruits language sql stable
  as 'select * from public.fruits where id = p_id';
create function public.fruit_names() returns table (id int, name text) language sql stable
  as 'select id, name from public.fruits';
create type public.odd as (pgrst_call int, pgrst_row int, pgrst_scalar int, _postgrest_t int);
create function public.all_odd() returns setof public.odd language sql stable
  as 'select 1, 2, 3, 4';
create function public.one_odd() returns public.odd language sql stable as 'select 1, 2, 3, 4';
create function public.out_one(out result int) language sql volatile as 'select 5';
create function public.out_two(out first int, out second text) language sql volatile
  as $$select 1, 'x'$$;
create function public.in_out(inout p_value int, p_add int default 1) language sql volatile
  as 'select p_value + p_add';
create function public.describe(
  p_number int,
  p_text text default 'none',
  p_list int[] default null,
  p_document jsonb default null,
  p_when timestamptz default null
)
  returns jsonb
  language sql
  volatile
as $$
  select jsonb_build_object('n', p_number, 't', p_text, 'l', p_list, 'd', p_document, 'w', p_when)
$$;
create function public.whole(jsonb) returns jsonb language sql volatile as 'select $1';
create function public.whole_text(text) returns text language sql volatile as 'select $1';
create function public.many(variadic p_values int[]) returns int language sql volatile
  as 'select sum(value)::int from unnest(p_values) as value';
create function public.same(p_value json) returns json language sql volatile as 'select p_value';
create function public.same_text(p_value text) returns text language sql volatile
  as 'select p_value';
create function public.twice(p_a int) returns int language sql volatile as 'select 1';
create function public.twice(p_a text) returns int language sql volatile as 'select 2';
create function public."größe; drop table x--"("wért ""1"" " int) returns int language sql volatile
  as 'select $1';
create function public.add_fruits(p_ids int[]) returns setof public.fruits language sql volatile
as $$
  insert into public.fruits (id, name) select id, 'new' from unnest(p_ids) as id returning *
$$;
create function public.add_fruit_reading(p_id int) returns void language sql stable
  as 'insert into public.fruits (id, name) values (p_id, $$new$$)';
create procedure public.step() language sql as '';
create function public.on_change() returns trigger language plpgsql as 'begin return new; end';
create function public.answer_with(p_status text, p_headers text) returns int language sql volatile
as $$
  select set_config('response.status', p_status, true);
  select set_config('response.headers', p_headers, true);
  select 1;
$$;
grant all on all tables in schema public to service_role;
grant execute on all functions in schema public to service_role;
"""


@pytest.fixture(scope='module')
def api(server: Server, template: str) -> Iterator[Api]:
    with open_api(server, template, SETUP) as api:
        yield api


@pytest.mark.parametrize(
    ('function', 'expected'),
    [
        ('number', '7'),
        ('no_number', 'null'),
        ('truth', 'true'),
        ('words', '"say \\"ü\\""'),
        ('document', '{"a": {}, "b": [1, null]}'),
        ('text_document', '{"b":  1, "b": 2}'),
        ('out_one', '{"result":5}'),
        ('out_two', '{"first":1,"second":"x"}'),
    ],
)
def test_a_single_result_is_the_bare_value(api: Api, function: str, expected: str) -> None:
    response = api.call(function)
    assert (response.status_code, response.text) == (200, expected)
    assert response.headers['Content-Type'] == 'application/json; charset=utf-8'
    assert response.headers['Content-Range'] == '0-0/*'


def test_a_void_function_returns_204_without_a_body(api: Api) -> None:
    response = api.call('nothing')
    assert (response.status_code, response.content) == (204, b'')
    assert 'Content-Type' not in response.headers
    response = api.service.post('/rpc/nothing?limit=1', headers={'Prefer': 'count=exact'})
    assert (response.status_code, response.content) == (204, b'')


def test_a_set_is_an_array(api: Api) -> None:
    assert api.call('numbers', {'p_count': 3}).json() == [1, 2, 3]
    assert api.call('numbers', {'p_count': 0}).text == '[]'
    assert api.call('numbers', {'p_count': 0}).headers['Content-Range'] == '*/*'
    assert api.call('fruit_names').json()[0] == {'id': 1, 'name': 'apple'}
    response = api.call('all_fruits')
    assert [fruit['name'] for fruit in response.json()] == ['apple', 'pear', 'quince']
    assert response.headers['Content-Range'] == '0-2/*'


def test_a_composite_is_an_object_even_if_it_is_null(api: Api) -> None:
    assert api.call('one_fruit', {'p_id': 2}).json()['name'] == 'pear'
    missing = api.call('one_fruit', {'p_id': 99}).json()
    assert missing == {'id': None, 'name': None, 'detail': None, 'origin': None}


def test_columns_may_have_the_names_that_the_generated_sql_uses(api: Api) -> None:
    odd = {'pgrst_call': 1, 'pgrst_row': 2, 'pgrst_scalar': 3, '_postgrest_t': 4}
    assert api.call('all_odd').json() == [odd]
    assert api.call('one_odd').json() == odd
    assert api.service.post('/rpc/all_odd?pgrst_call=eq.1').json() == [odd]


def test_a_set_is_limited_to_max_rows(api: Api) -> None:
    response = api.call('numbers', {'p_count': 1500})
    assert len(response.json()) == 1000
    assert response.headers['Content-Range'] == '0-999/*'
    counted = api.call('numbers', {'p_count': 1500}, Prefer='count=exact')
    assert (counted.status_code, counted.headers['Content-Range']) == (206, '0-999/1500')


def test_arguments_reach_the_function_with_their_types(api: Api) -> None:
    document = {'deep': [{'ünï': None}], 'n': 1.50}
    arguments = {
        'p_number': 3,
        'p_text': 'a\'b"\\ \U0001f353',
        'p_list': [1, None, 3],
        'p_document': document,
        'p_when': '2026-01-01T00:00:00Z',
    }
    assert api.call('describe', arguments).json() == {
        'n': 3,
        't': arguments['p_text'],
        'l': [1, None, 3],
        'd': document,
        'w': '2026-01-01T00:00:00+00:00',
    }


def test_arguments_with_defaults_may_be_left_out(api: Api) -> None:
    assert api.call('describe', {'p_number': 1}).json()['t'] == 'none'
    assert api.call('describe', {'p_number': 1, 'p_text': None}).json()['t'] is None
    assert api.call('in_out', {'p_value': 1}).json() == {'p_value': 2}
    assert api.call('in_out', {'p_value': 1, 'p_add': 5}).json() == {'p_value': 6}


def test_a_variadic_argument_is_an_array(api: Api) -> None:
    assert api.call('many', {'p_values': [1, 2, 3]}).json() == 6
    assert api.service.get('/rpc/many?p_values=1&p_values=20').json() == 21


def test_the_body_may_be_empty(api: Api) -> None:
    assert api.service.post('/rpc/number').json() == 7
    assert api.service.post('/rpc/number', content=b'').json() == 7


@pytest.mark.parametrize('body', [b'null', b'5', b'"x"', b' true '])
def test_a_bare_value_counts_as_no_arguments(api: Api, body: bytes) -> None:
    assert api.service.post('/rpc/number', content=body).json() == 7


def test_an_unnamed_json_argument_takes_the_whole_body(api: Api) -> None:
    assert api.service.post('/rpc/whole', json={'a': [1]}).json() == {'a': [1]}
    assert api.service.post('/rpc/whole', json=[1, {'b': 2}]).json() == [1, {'b': 2}]
    refused = api.service.post('/rpc/whole_text', json={'a': 1})
    assert (refused.status_code, refused.json()['code']) == (404, 'PGRST202')


def test_arrays_of_arguments_are_refused(api: Api) -> None:
    response = api.service.post('/rpc/same', json=[{'p_value': 1}, {'p_value': 2}])
    assert (response.status_code, response.json()['code']) == (404, 'PGRST202')
    response = api.service.post('/rpc/number', json=[])
    assert (response.status_code, response.json()['code']) == (400, 'PGRST127')


def test_the_last_of_a_repeated_argument_counts(api: Api) -> None:
    response = api.service.post('/rpc/same', content=b'{"p_value": 1, "p_value": 2}')
    assert response.json() == 2


def test_names_are_quoted(api: Api) -> None:
    path = '/rpc/gr%C3%B6%C3%9Fe%3B%20drop%20table%20x--'
    assert api.service.post(path, json={'wért "1" ': 5}).json() == 5
    assert api.service.get(f'{path}?w%C3%A9rt+%221%22+=6').json() == 6


def test_a_large_body_arrives_unchanged(api: Api) -> None:
    text = 'x' * 4_000_000
    response = api.call('same_text', {'p_value': text})
    assert response.json() == text


def test_procedures_and_triggers_cannot_be_called(api: Api) -> None:
    for name in ('step', 'on_change'):
        response = api.call(name)
        assert (response.status_code, response.json()['code']) == (404, 'PGRST202')


def test_get_and_head_call_functions(api: Api) -> None:
    response = api.service.get('/rpc/one_fruit', params={'p_id': '1'})
    assert response.json()['name'] == 'apple'
    head = api.service.head('/rpc/one_fruit', params={'p_id': '1'})
    assert (head.status_code, head.content) == (200, b'')
    assert head.headers['Content-Type'] == 'application/json; charset=utf-8'
    described = api.service.get(
        '/rpc/describe', params={'p_number': '1', 'p_list': '{1,2}', 'p_document': '{"a": 1}'}
    )
    assert described.json() == {'n': 1, 't': 'none', 'l': [1, 2], 'd': {'a': 1}, 'w': None}


def test_a_read_only_call_cannot_write(api: Api) -> None:
    for response in (
        api.service.get('/rpc/add_fruits', params={'p_ids': '{70}'}),
        api.call('add_fruit_reading', {'p_id': 71}),
    ):
        assert response.status_code in (400, 405)
        assert response.json()['code'] in ('25006', '0A000')
    assert api.service.get('/rpc/add_fruits?p_ids={70}').status_code == 405


def test_results_are_selected_filtered_ordered_and_limited(api: Api) -> None:
    response = api.service.post(
        '/rpc/all_fruits?select=name,colour:detail->>colour&id=gte.2&order=name.desc&limit=1',
        headers={'Prefer': 'count=exact'},
    )
    assert response.json() == [{'name': 'quince', 'colour': None}]
    assert (response.status_code, response.headers['Content-Range']) == (206, '0-0/2')
    assert response.headers['Preference-Applied'] == 'count=exact'
    assert api.service.get('/rpc/all_fruits?select=id&name=in.(pear,apple)').json() == [
        {'id': 1},
        {'id': 2},
    ]
    assert api.service.get('/rpc/all_fruits?select=id&offset=2').json() == [{'id': 3}]
    single = api.service.post('/rpc/one_fruit?select=name', json={'p_id': 1})
    assert single.json() == {'name': 'apple'}


def test_a_malformed_filter_on_a_post_call_is_refused(api: Api) -> None:
    response = api.service.post('/rpc/number?p_id=5')
    assert (response.status_code, response.json()['code']) == (400, 'PGRST100')


def test_a_single_object_can_be_requested(api: Api) -> None:
    accept = {'Accept': 'application/vnd.pgrst.object+json'}
    one = api.service.post('/rpc/all_fruits?id=eq.1&select=id', headers=accept)
    assert one.json() == {'id': 1}
    assert one.headers['Content-Type'] == 'application/vnd.pgrst.object+json; charset=utf-8'
    many = api.service.post('/rpc/all_fruits', headers=accept)
    assert (many.status_code, many.json()) == (
        406,
        {
            'code': 'PGRST116',
            'details': 'The result contains 3 rows',
            'hint': None,
            'message': 'Cannot coerce the result to a single JSON object',
        },
    )
    none = api.service.post('/rpc/all_fruits?id=eq.0', headers=accept)
    assert none.json()['details'] == 'The result contains 0 rows'
    assert api.call('number', Accept='application/vnd.pgrst.object+json').json() == 7


def test_a_refused_result_rolls_back_the_call(api: Api) -> None:
    count = 'select count(*) from public.fruits where id >= 100'
    object_json = 'application/vnd.pgrst.object+json'
    refused = api.call('add_fruits', {'p_ids': [100, 101]}, Accept=object_json)
    assert refused.json()['code'] == 'PGRST116'
    refused = api.call('add_fruits', {'p_ids': [100, 101]}, Prefer='handling=strict,max-affected=1')
    assert (refused.status_code, refused.json()['code']) == (400, 'PGRST124')
    assert api.database.query(count)[0]['count'] == 0
    assert api.call('add_fruits', {'p_ids': [100]}, Accept=object_json).json()['id'] == 100
    assert api.database.query(count)[0]['count'] == 1
    api.database.query('delete from public.fruits where id >= 100')


def test_nulls_can_be_stripped(api: Api) -> None:
    array = api.service.post(
        '/rpc/all_fruits?id=eq.3&select=id,origin',
        headers={'Accept': 'application/vnd.pgrst.array+json;nulls=stripped'},
    )
    assert array.json() == [{'id': 3}]
    assert array.headers['Content-Type'] == (
        'application/vnd.pgrst.array+json;nulls=stripped; charset=utf-8'
    )
    stripped = 'application/vnd.pgrst.object+json;nulls=stripped'
    assert api.call('one_fruit', {'p_id': 3}, Accept=stripped).json() == {'id': 3, 'name': 'quince'}
    assert api.call('document', Accept=stripped).json() == {'a': {}, 'b': [1, None]}


@pytest.mark.parametrize(
    'accept',
    ['*/*', 'application/json', 'text/csv, application/json;q=0.5', 'application/vnd.pgrst.array'],
)
def test_every_accept_header_that_includes_json_gets_json(api: Api, accept: str) -> None:
    assert api.call('number', Accept=accept).json() == 7


def test_a_function_can_set_status_and_headers(api: Api) -> None:
    headers = '[{"X-One": "a"}, {"Set-Cookie": "b=1"}, {"Set-Cookie": "c=2"}]'
    response = api.call('answer_with', {'p_status': '202', 'p_headers': headers})
    assert (response.status_code, response.text) == (202, '1')
    assert response.headers['X-One'] == 'a'
    assert response.headers.get_list('Set-Cookie') == ['b=1', 'c=2']
    replaced = api.call(
        'answer_with', {'p_status': None, 'p_headers': '[{"content-type": "text/plain"}]'}
    )
    assert (replaced.status_code, replaced.headers['Content-Type']) == (200, 'text/plain')
    # The next request on this connection is not affected.
    assert api.call('number').status_code == 200


@pytest.mark.parametrize(
    ('status', 'headers', 'code'),
    [
        ('abc', None, 'PGRST112'),
        ('99', None, 'PGRST112'),
        ('9' * 5000, None, 'PGRST112'),
        (None, '{"X-One": "a"}', 'PGRST111'),
        (None, '[{"X-One": 1}]', 'PGRST111'),
        (None, '[{"a": "1", "b": "2"}]', 'PGRST111'),
        (None, '[{"X-One": "a\\r\\nX-Two: b"}]', 'PGRST111'),
        (None, 'nonsense', 'PGRST111'),
    ],
)
def test_an_invalid_status_or_header_set_by_a_function_is_an_error(
    api: Api, status: str | None, headers: str | None, code: str
) -> None:
    response = api.call('answer_with', {'p_status': status, 'p_headers': headers})
    assert (response.status_code, response.json()['code']) == (500, code)


def test_the_response_names_the_schema_if_the_request_did(api: Api) -> None:
    assert 'Content-Profile' not in api.call('number').headers
    named = api.call('number', Content_Profile='public')
    assert named.headers['Content-Profile'] == 'public'
    named = api.service.get('/rpc/numbers?p_count=1', headers={'Accept-Profile': 'public'})
    assert named.headers['Content-Profile'] == 'public'


def test_the_key_may_be_in_the_query_string(api: Api) -> None:
    with_key = api.gateway.keys.secret
    response = api.service.get(
        f'/rpc/numbers?p_count=1&apikey={with_key}', headers={'apikey': '', 'Authorization': ''}
    )
    assert response.json() == [1]

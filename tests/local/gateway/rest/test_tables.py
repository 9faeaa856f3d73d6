"""Tables and views read over HTTP: columns, conditions, order, ranges, counts."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.rest import Api, open_api
from tests.support.servers import Server

SETUP = r"""
create type public.mood as enum ('calm', 'wild');
create table public.animals (
  id int primary key,
  name text not null,
  mood public.mood,
  legs int,
  tame boolean,
  tags text[] not null default '{}',
  detail jsonb,
  seen daterange
);
insert into public.animals values
  (1, 'ant', 'calm', 6, false, '{small,black}', '{"food": {"name": "leaf"}, "n": [10, 20]}'),
  (2, 'bee, the', 'wild', 6, null, '{small}', '{"food": {"name": "nectar"}}'),
  (3, 'cat', 'calm', 4, true, '{}', null),
  (4, 'd"o\g', null, 4, true, '{big,black}', '{"food": null}'),
  (5, '(eel)', 'wild', null, false, '{}', '"text"');
update public.animals set seen = '[2026-01-01,2026-02-01)' where id = 2;
update public.animals set seen = '[2026-03-01,)' where id = 3;
create view public.tame_animals as select id, name from public.animals where tame;
create materialized view public.legs as select sum(legs) as total from public.animals;
create table public."odd ""table" (
  "sp ace" int,
  "a,b" int,
  "select" int,
  t int,
  _postgrest_t int
);
insert into public."odd ""table" values (1, 2, 3, 4, 5);
create table public.secrets (id int);
revoke all on public.secrets from anon, authenticated, service_role;
create table public.rows (id int primary key);
insert into public.rows select generate_series(1, 1500);
create table public.owned (id int primary key, owner text);
insert into public.owned values (1, 'anon'), (2, 'service_role');
alter table public.owned enable row level security;
create policy "own rows" on public.owned for select using (owner = current_user);
create table public.parted (id int) partition by list (id);
create table public.parted_one partition of public.parted for values in (1);
grant select on public.animals, public.tame_animals, public.legs, public."odd ""table",
  public.rows, public.parted to service_role;
grant select on public.owned to anon;
analyze public.rows;
"""


@pytest.fixture(scope='module')
def api(server: Server, template: str) -> Iterator[Api]:
    with open_api(server, template, SETUP) as api:
        yield api


def ids(api: Api, query: str) -> list[int]:
    response = api.service.get(f'/animals?select=id&order=id&{query}')
    assert response.status_code == 200, response.text
    return [row['id'] for row in response.json()]


def test_a_table_is_an_array_of_its_rows(api: Api) -> None:
    response = api.service.get('/animals?id=eq.3')
    assert response.json() == [
        {
            'id': 3,
            'name': 'cat',
            'mood': 'calm',
            'legs': 4,
            'tame': True,
            'tags': [],
            'detail': None,
            'seen': '[2026-03-01,)',
        }
    ]
    assert response.headers['Content-Range'] == '0-0/*'
    assert response.headers['Content-Location'] == '/animals?id=eq.3'
    assert api.service.get('/tame_animals?order=id').json()[0] == {'id': 3, 'name': 'cat'}
    assert api.service.get('/legs').json() == [{'total': 20}]
    assert api.service.get('/parted').json() == []
    assert api.service.get('/parted_one').json()['code'] == 'PGRST205'


@pytest.mark.parametrize(
    ('select', 'expected'),
    [
        ('id,name', {'id': 1, 'name': 'ant'}),
        (' id , name ', {'id': 1, 'name': 'ant'}),
        ('number:id', {'number': 1}),
        ('"two words":id', {'two words': 1}),
        ('id::text', {'id': '1'}),
        ('number:id::text', {'number': '1'}),
        ('legs::double precision', {'legs': 6}),
        ('mood::text', {'mood': 'calm'}),
        ('detail->food', {'food': {'name': 'leaf'}}),
        ('detail->food->>name', {'name': 'leaf'}),
        ('what:detail->food->>name', {'what': 'leaf'}),
        ('detail->n->0', {'n': 10}),
        ('detail->n->>-1', {'n': '20'}),
        ('detail->n->1::text', {'n': '20'}),
        ('tags->0', {'tags': 'small'}),
        ('detail->"food"->"na me"', {'na me': None}),
    ],
)
def test_columns_can_be_selected(api: Api, select: str, expected: dict[str, Any]) -> None:
    response = api.service.get('/animals', params={'select': select, 'id': 'eq.1'})
    assert response.json() == [expected]


def test_all_columns_can_be_selected_together_with_others(api: Api) -> None:
    (row,) = api.service.get('/animals?select=*,again:id&id=eq.1').json()
    assert (row['id'], row['again'], len(row)) == (1, 1, 9)


@pytest.mark.parametrize(
    ('query', 'expected'),
    [
        ('id=eq.2', [2]),
        ('id=neq.2', [1, 3, 4, 5]),
        ('id=gt.3', [4, 5]),
        ('id=gte.3', [3, 4, 5]),
        ('id=lt.2', [1]),
        ('id=lte.2', [1, 2]),
        ('id=gte.2&id=lte.3', [2, 3]),
        ('name=eq.bee, the', [2]),
        ('name=like.*a*', [1, 3]),
        ('name=ilike.%25A%25', [1, 3]),
        ('name=match.^[ab]', [1, 2]),
        ('name=imatch.^[AB]', [1, 2]),
        ('mood=eq.wild', [2, 5]),
        ('mood=is.null', [4]),
        ('mood=not.is.null', [1, 2, 3, 5]),
        ('mood=is.not_null', [1, 2, 3, 5]),
        ('mood=isdistinct.calm', [2, 4, 5]),
        ('tame=is.true', [3, 4]),
        ('tame=is.FALSE', [1, 5]),
        ('tame=is.unknown', [2]),
        ('tame=not.is.true', [1, 2, 5]),
        ('id=in.(1,3)', [1, 3]),
        ('id=not.in.(1,3)', [2, 4, 5]),
        ('id=in.()', []),
        ('name=in.("bee, the",cat)', [2, 3]),
        (r'name=in.("d\"o\\g","(eel)")', [4, 5]),
        ('name=eq.d"o\\g', [4]),
        ('name=eq.(eel)', [5]),
        ('tags=cs.{black}', [1, 4]),
        ('tags=cd.{small}', [2, 3, 5]),
        ('tags=ov.{big,small}', [1, 2, 4]),
        ('detail=cs.{"food": {"name": "leaf"}}', [1]),
        ('detail->food->>name=eq.nectar', [2]),
        ('detail->n->0=eq.10', [1]),
        ('seen=cs.[2026-01-05,2026-01-06)', [2]),
        ('seen=adj.[2026-02-01,2026-03-01)', [2, 3]),
        ('or=(id.eq.1,id.eq.2)', [1, 2]),
        ('and=(id.gt.1,id.lt.4)', [2, 3]),
        ('not.or=(id.eq.1,id.eq.2)', [3, 4, 5]),
        ('or=(id.eq.1,and(legs.eq.4,name.like.c*))', [1, 3]),
        ('or=(id.eq.1,not.and(legs.eq.4,tame.is.true),id.eq.3)', [1, 2, 3, 5]),
        ('or=(id.not.lt.5,id.in.(1,2))', [1, 2, 5]),
        ('or=(name.eq."bee, the",name.eq."(eel)")', [2, 5]),
        ('or=( id.eq.1 , tags.cs.{big,black} )', [1, 4]),
        ('or=(id.eq.1,id.eq.2)&legs=eq.6&id=neq.1', [2]),
        ('or=(detail->food->>name.eq.leaf,id.eq.3)', [1, 3]),
    ],
)
def test_rows_can_be_filtered(api: Api, query: str, expected: list[int]) -> None:
    name, _, value = query.partition('=')
    if '&' not in query and '%' not in query:
        response = api.service.get('/animals', params={'select': 'id', 'order': 'id', name: value})
        assert response.status_code == 200, response.text
        assert [row['id'] for row in response.json()] == expected
    else:
        assert ids(api, query) == expected


@pytest.mark.parametrize(
    ('order', 'expected'),
    [
        ('id', [1, 2, 3, 4, 5]),
        ('id.desc', [5, 4, 3, 2, 1]),
        ('legs,id.desc', [4, 3, 2, 1, 5]),
        ('legs.nullsfirst,id', [5, 3, 4, 1, 2]),
        ('legs.desc,id', [5, 1, 2, 3, 4]),
        ('legs.desc.nullslast,id.asc', [1, 2, 3, 4, 5]),
        ('detail->food->>name.asc.nullslast,id', [1, 2, 3, 4, 5]),
        ('mood.desc.nullslast, id', [2, 5, 1, 3, 4]),
    ],
)
def test_rows_can_be_ordered(api: Api, order: str, expected: list[int]) -> None:
    response = api.service.get('/animals', params={'select': 'id', 'order': order})
    assert [row['id'] for row in response.json()] == expected


@pytest.mark.parametrize(
    ('query', 'header', 'expected', 'status', 'content_range'),
    [
        ('', '', [1, 2, 3, 4, 5], 200, '0-4/*'),
        ('limit=2', '', [1, 2], 200, '0-1/*'),
        ('limit=2&offset=3', '', [4, 5], 200, '3-4/*'),
        ('offset=4', '', [5], 200, '4-4/*'),
        ('offset=50', '', [], 200, '*/*'),
        (f'offset={"9" * 5000}', '', [], 200, '*/*'),
        (f'offset={"0" * 30}3', '', [4, 5], 200, '3-4/*'),
        ('limit=0', '', [], 200, '*/*'),
        ('limit=99999999999', '', [1, 2, 3, 4, 5], 200, '0-4/*'),
        ('limit=abc', '', [1, 2, 3, 4, 5], 200, '0-4/*'),
        ('', '1-2', [2, 3], 200, '1-2/*'),
        ('', '3-', [4, 5], 200, '3-4/*'),
        ('', '99999999999999999999-', [], 200, '*/*'),
        ('', '3-99999999999999999999', [4, 5], 200, '3-4/*'),
        ('limit=1', '1-3', None, 416, None),
        ('limit=3', '1-9', [2, 3], 200, '1-2/*'),
        ('', 'bytes=1-2', [1, 2, 3, 4, 5], 200, '0-4/*'),
    ],
)
def test_a_range_of_rows_can_be_requested(
    api: Api,
    query: str,
    header: str,
    expected: list[int] | None,
    status: int,
    content_range: str | None,
) -> None:
    headers = {'Range-Unit': 'items', 'Range': header} if header else {}
    response = api.service.get(f'/animals?select=id&order=id&{query}', headers=headers)
    assert response.status_code == status
    if expected is not None:
        assert [row['id'] for row in response.json()] == expected
        assert response.headers['Content-Range'] == content_range


@pytest.mark.parametrize(
    ('query', 'header', 'details'),
    [
        ('limit=-1', '', 'Limit should be greater than or equal to zero.'),
        (
            '',
            '5-2',
            'The lower boundary must be lower than or equal to the upper boundary in the Range '
            'header.',
        ),
        ('offset=6', '', 'An offset of 6 was requested, but there are only 5 rows.'),
    ],
)
def test_an_impossible_range_is_refused(api: Api, query: str, header: str, details: str) -> None:
    headers = {'Prefer': 'count=exact', **({'Range': header} if header else {})}
    response = api.service.get(f'/animals?{query}', headers=headers)
    assert response.status_code == 416
    assert response.json() == {
        'code': 'PGRST103',
        'message': 'Requested range not satisfiable',
        'details': details,
        'hint': None,
    }


def test_rows_are_counted_on_request(api: Api) -> None:
    def counted(path: str, how: str) -> tuple[int, str, str]:
        response = api.service.head(path, headers={'Prefer': f'count={how}'})
        assert response.content == b''
        return (
            response.status_code,
            response.headers['Content-Range'],
            response.headers['Preference-Applied'],
        )

    assert counted('/animals', 'exact') == (200, '0-4/5', 'count=exact')
    assert counted('/animals?legs=eq.6&limit=1', 'exact') == (206, '0-0/2', 'count=exact')
    assert counted('/animals?id=eq.0', 'exact') == (200, '*/0', 'count=exact')
    assert counted('/animals?offset=5', 'exact') == (206, '*/5', 'count=exact')
    assert counted('/rows', 'exact') == (206, '0-999/1500', 'count=exact')
    assert counted('/rows', 'planned') == (206, '0-999/1500', 'count=planned')
    assert counted('/rows?limit=1', 'estimated') == (206, '0-0/1500', 'count=estimated')
    assert counted('/animals?legs=eq.4', 'estimated') == (200, '0-1/2', 'count=estimated')


def test_a_single_row_can_be_requested(api: Api) -> None:
    accept = {'Accept': 'application/vnd.pgrst.object+json'}
    assert api.service.get('/animals?id=eq.3&select=id', headers=accept).json() == {'id': 3}
    refused = api.service.get('/animals?select=id', headers=accept)
    assert (refused.status_code, refused.json()['code']) == (406, 'PGRST116')
    stripped = {'Accept': 'application/vnd.pgrst.object+json;nulls=stripped'}
    row = api.service.get('/animals?id=eq.3&select=id,detail', headers=stripped)
    assert row.json() == {'id': 3}


def test_row_level_security_and_grants_apply(api: Api) -> None:
    assert api.anonymous.get('/owned').json() == [{'id': 1, 'owner': 'anon'}]
    refused = api.anonymous.get('/secrets')
    assert (refused.status_code, refused.json()['code']) == (401, '42501')
    refused = api.service.get('/secrets')
    assert (refused.status_code, refused.json()['code']) == (403, '42501')


def test_names_are_quoted(api: Api) -> None:
    path = '/odd%20%22table'
    row = {'sp ace': 1, 'a,b': 2, 'select': 3, 't': 4, '_postgrest_t': 5}
    assert api.service.get(path).json() == [row]
    response = api.service.get(path, params={'select': '"sp ace","a,b",t', '"a,b"': 'eq.2'})
    assert response.json() == [{name: row[name] for name in ('sp ace', 'a,b', 't')}]
    response = api.service.get(path, params={'select': 'sp ace', 'order': 'sp ace.desc'})
    assert response.json() == [{'sp ace': 1}]


@pytest.mark.parametrize(
    'column',
    ['id"; drop table animals; --', "id' or '1'='1", 'id) from animals; --', 'pg_sleep(1)', 'nope'],
)
def test_an_unknown_column_is_a_database_error(api: Api, column: str) -> None:
    quoted = '"' + column.replace('\\', '\\\\').replace('"', '\\"') + '"'
    for params in ({'select': quoted}, {'order': quoted}, {quoted: 'eq.1'}):
        response = api.service.get('/animals', params=params)
        assert (response.status_code, response.json()['code']) == (400, '42703')
    response = api.service.get('/animals', params={'select': f'{quoted}:id', 'id': 'eq.1'})
    assert response.json() == [{column: 1}]


@pytest.mark.parametrize(
    ('query', 'code'),
    [
        ('id=eq.x', '22P02'),
        ("id=eq.1'; drop table animals; --", '22P02'),
        ('name=lt.1&id=eq.99999999999999999999', '22003'),
        ('legs=like.4', '42883'),
        ('select=name::no_such_type', '42704'),
        ('id=cs.{1}', '42883'),
    ],
)
def test_a_value_or_operator_that_does_not_fit_is_a_database_error(
    api: Api, query: str, code: str
) -> None:
    assert api.service.get(f'/animals?{query}').json()['code'] == code


@pytest.mark.parametrize(
    'query',
    [
        'id=5',
        'id=',
        'id=nop.5',
        'id=eq',
        'id=is.maybe',
        'id=in.1,2',
        'id=in.(1',
        'id=not.5',
        'select=id,',
        'select=id::',
        'select=id::int);drop',
        'select=',
        'select="id',
        'order=id.down',
        'order=id.asc.down',
        'order=',
        'or=id.eq.1',
        'or=()',
        'or=(id.eq.1',
        'or=(id.eq.1))',
        'or=(id)',
        'or=(and(id.eq.1)',
        'detail->=eq.1',
    ],
)
def test_a_query_that_cannot_be_parsed_is_refused(api: Api, query: str) -> None:
    response = api.service.get(f'/animals?{query}')
    assert (response.status_code, response.json()['code']) == (400, 'PGRST100')
    assert response.json()['message'].startswith('"failed to parse ')


def test_a_parse_error_names_the_column(api: Api) -> None:
    refused = api.service.get('/animals?id=nop.5').json()
    assert refused['message'] == '"failed to parse filter (nop.5)" (line 1, column 1)'
    assert refused['details'] == 'unexpected "n" expecting "not" or operator (eq, gt, ...)'


@pytest.mark.parametrize(
    ('query', 'what'),
    [
        ('select=id,rows(*)', 'embedding'),
        ('select=id,rows!inner(id)', 'embedding'),
        ('select=...rows(id)', 'spread'),
        ('select=id.sum()', 'aggregate'),
        ('select=count()', 'aggregate'),
        ('name=fts.cat', 'full text'),
        ('name=plfts(english).cat', 'full text'),
        ('id=eq(any).{1,2}', '`eq(any)`'),
        ('order=rows(id)', 'embedded'),
        ('columns=id', '`columns`'),
    ],
)
def test_an_unsupported_feature_is_refused_by_name(api: Api, query: str, what: str) -> None:
    response = api.service.get(f'/animals?{query}')
    assert (response.status_code, response.json()['code']) == (400, 'PGRST127')
    assert what in response.json()['details']


def test_conditions_nested_too_deeply_are_refused(api: Api) -> None:
    nested = '(' + 60 * 'or(' + 'id.eq.1' + 60 * ')' + ')'
    response = api.service.get('/animals', params={'or': nested})
    assert (response.status_code, response.json()['code']) == (400, 'PGRST127')


def test_a_condition_on_an_embedded_table_is_refused(api: Api) -> None:
    response = api.service.get('/animals?rows.id=eq.1')
    assert (response.status_code, response.json()['code']) == (400, 'PGRST108')


def test_the_preferred_time_zone_is_applied(api: Api) -> None:
    response = api.service.get(
        '/animals?select=id&limit=1', headers={'Prefer': 'timezone=Asia/Tokyo'}
    )
    assert response.headers['Preference-Applied'] == 'timezone=Asia/Tokyo'

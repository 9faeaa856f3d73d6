"""Arbitrary query strings are parsed or refused, and cannot inject SQL."""

import contextlib
import re

from hypothesis import example, given
from hypothesis import strategies as st

from silkline_local.gateway.http import Refusal
from silkline_local.gateway.rest.database.schema_cache import Table, similarity
from silkline_local.gateway.rest.media import PLAIN, response_form
from silkline_local.gateway.rest.preferences import CountMethod, parse_preferences
from silkline_local.gateway.rest.query import sql
from silkline_local.gateway.rest.query.parser import parse_query

WORDS = st.sampled_from(
    [
        *('id', 'name', '"a b"', '"', '\\', "'", ';', '--', '$1', '%', '*', ' ', '\x00', 'ü'),
        *('->', '->>', '::', '::text', '::int)', ':', '.', ',', '(', ')', '{', '}', '-1', '0'),
        *('eq', 'not', 'in', 'is', 'null', 'like', 'and', 'or', 'asc', 'desc', 'nullsfirst'),
        *('eq.', 'not.', 'in.(', 'is.null', 'and(', 'or(', 'fts.', 'any', '!', '...'),
    ]
)
TEXTS = st.lists(WORDS, max_size=8).map(''.join) | st.text(max_size=20)
NAMES = st.sampled_from(['select', 'order', 'limit', 'offset', 'and', 'or', 'not.or']) | TEXTS
PAIRS = st.lists(st.tuples(NAMES, TEXTS), max_size=4)

TABLE = Table(schema='public', name='things', json_columns=frozenset({'name'}))
QUOTED = re.compile(r'"(?:[^"]|"")*"')
LITERALS = ("'[]'", "'null'", "'response.headers'", "'response.status'", "''")
PLAIN_SQL = re.compile(r'[A-Za-z0-9_ ().,*=<>@&|~$:-]*')


@given(pairs=PAIRS, header=st.none() | TEXTS)
@example(pairs=[('id', 'eq.1'), ('select', '"; drop":id::text')], header='0-1')
@example(pairs=[('or', '(a.eq.1,not.and(b.in.("x,y",z),c.is.null))')], header=None)
def test_names_and_values_cannot_inject_sql(
    pairs: list[tuple[str, str]], header: str | None
) -> None:
    try:
        query = parse_query(pairs, range_header=header, takes_arguments=False)
    except Refusal:
        return
    writer = sql.SqlWriter()
    statement = sql.read_table(
        writer, TABLE, query=query, form=PLAIN, count=CountMethod.EXACT, max_rows=10
    )
    bare = QUOTED.sub('', statement)
    for literal in LITERALS:
        bare = bare.replace(literal, '')
    assert PLAIN_SQL.fullmatch(bare), bare
    assert '--' not in bare
    numbers = {int(number) for number in re.findall(r'\$(\d+)', bare)}
    assert numbers == set(range(1, len(writer.parameters) + 1))
    assert not any(b'\x00' in parameter for parameter in writer.parameters)


@given(pairs=PAIRS)
def test_a_parameter_that_is_not_a_condition_is_an_argument(pairs: list[tuple[str, str]]) -> None:
    try:
        query = parse_query(pairs, range_header=None, takes_arguments=True)
    except Refusal:
        return
    assert all(pair in pairs for pair in query.arguments)


@given(header=TEXTS)
def test_any_header_is_parsed_or_refused(header: str) -> None:
    parse_preferences(header)
    with contextlib.suppress(Refusal):
        response_form(header)


def test_the_media_type_with_the_greater_weight_wins() -> None:
    assert response_form('application/json;q=0.1, application/vnd.pgrst.object+json').is_object
    assert not response_form('application/vnd.pgrst.object+json;q=0.1, */*').is_object


def test_similarity_is_based_on_edit_distance() -> None:
    assert similarity('test', 'test') == 1
    assert similarity('testt', 'test') == 0.8
    assert similarity('', 'abc') == 0
    assert similarity('', '') == 1

"""Writes the one statement that a request comes down to.

Names are quoted and values are parameters, whatever they hold. Every statement answers one row
of the same five columns (`Row` in transaction.py), so no change of a table or a function can make
a prepared statement answer other columns than it promised.
"""

# ruff: noqa: S608 - names are quoted here, and values never get into the text.

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg import pq

from silkline_local.gateway.rest.database.connection import Command
from silkline_local.gateway.rest.database.schema_cache import Argument, Function, Table
from silkline_local.gateway.rest.media import Form
from silkline_local.gateway.rest.preferences import Count
from silkline_local.gateway.rest.query.model import (
    OPERATORS,
    PATTERNS,
    TRUTHS,
    Condition,
    Field,
    Group,
    Order,
    Query,
    Selected,
)

SETTINGS = (
    "nullif(current_setting('response.headers', true), ''), "
    "nullif(current_setting('response.status', true), '')"
)
ROWS = '_postgrest_t'
# With the star, because the bare name would mean a column that is called so.
ROW = f'{ROWS}.*'
SOURCE = '"pgrst_source"'
DIRECTIONS = {'asc': ' ASC', 'desc': ' DESC', None: ''}
NULLS = {'nullsfirst': ' NULLS FIRST', 'nullslast': ' NULLS LAST', None: ''}


class Writer:
    """Collects the parameters of a statement while it is written."""

    def __init__(self) -> None:
        self.parameters: list[bytes] = []
        self.formats: list[pq.Format] = []

    def text(self, value: str) -> str:
        """A value whose type Postgres infers from where it stands."""
        self.parameters.append(value.encode())
        self.formats.append(pq.Format.TEXT)
        return f'${len(self.parameters)}'

    def json(self, value: bytes) -> str:
        self.parameters.append(value)
        self.formats.append(pq.Format.BINARY)
        return f'${len(self.parameters)}::json'

    def command(self, statement: str) -> Command:
        return Command(statement.encode(), self.parameters, self.formats)


@dataclass(frozen=True, slots=True)
class Call:
    """A call as an expression, and what its arguments come from."""

    expression: str
    origin: str = ''

    @property
    def in_from(self) -> str:
        return f'{self.origin}, LATERAL {self.expression}' if self.origin else self.expression

    @property
    def after_select(self) -> str:
        return f'{self.expression} AS pgrst_scalar' + (
            f' FROM {self.origin}' if self.origin else ''
        )


def body_call(function: Function, given: frozenset[str], body: str) -> Call:
    """A call whose arguments are the members of a JSON object, or the whole of it."""
    name = qualified(function.schema, function.name)
    if function.takes_whole_body:
        return Call(f'{name}({body}::{function.arguments[0].type})')
    arguments = [argument for argument in function.arguments if argument.name in given]
    if not arguments:
        return Call(f'{name}()')
    columns = ', '.join(f'{identifier(argument.name)} {argument.type}' for argument in arguments)
    passed = ((argument, f'pgrst_body.{identifier(argument.name)}') for argument in arguments)
    return Call(
        f'{name}({named(passed)})', origin=f'json_to_record({body}) AS pgrst_body({columns})'
    )


def query_call(writer: Writer, function: Function, given: Sequence[tuple[str, str]]) -> Call:
    """A call whose arguments are texts of the query string; a variadic one may be repeated."""
    values: dict[str, list[str]] = {}
    for name, value in given:
        values.setdefault(name, []).append(value)
    passed: list[tuple[Argument, str]] = []
    for argument in function.arguments:
        if argument.name in values:
            texts = values[argument.name]
            text = array_literal(texts) if argument.is_variadic else texts[-1]
            passed.append((argument, f'{writer.text(text)}::{argument.type}'))
    return Call(f'{qualified(function.schema, function.name)}({named(passed)})')


def named(passed: Iterable[tuple[Argument, str]]) -> str:
    return ', '.join(
        f'{"VARIADIC " if argument.is_variadic else ""}{identifier(argument.name)} := {value}'
        for argument, value in passed
    )


def call_statement(function: Function, call: Call, *, form: Form, max_rows: int) -> str:
    """Ask for the whole result of a call."""
    if function.is_row:
        # Taken as one value: a bare `*` would be the columns that there were when it was prepared.
        rows = f'SELECT row_to_json(pgrst_call.*) AS pgrst_row FROM {call.in_from} AS pgrst_call'
        body = aggregate(f'{ROWS}.pgrst_row', form, is_single=form.is_object or not function.is_set)
        return (
            f'SELECT null::bigint, count(*), {body}, {SETTINGS}'
            f' FROM ({rows} LIMIT {max_rows}) AS {ROWS}'
        )
    if function.is_set:
        return filtered_call(
            Writer(), function, call, query=Query(), form=form, count=None, max_rows=max_rows
        )
    if function.is_composite:
        return (
            f'SELECT null::bigint, 1::bigint, {stripped(f"row_to_json({ROW})", form)}, {SETTINGS}'
            f' FROM (SELECT pgrst_call.* FROM {call.in_from} AS pgrst_call) AS {ROWS}'
        )
    body = call.expression
    if not function.is_void:
        body = f"coalesce({stripped(f'to_json({body})', form)}, 'null')"
    origin = f' FROM {call.origin}' if call.origin else ''
    return f'SELECT null::bigint, 1::bigint, {body}, {SETTINGS}{origin}'


def filtered_call(
    writer: Writer,
    function: Function,
    call: Call,
    *,
    query: Query,
    form: Form,
    count: Count | None,
    max_rows: int,
) -> str:
    """Ask for a part of the result of a call."""
    if function.is_composite:
        source = f'SELECT pgrst_call.* FROM {call.in_from} AS pgrst_call'
        result = ROW
    else:
        source = f'SELECT {call.after_select}'
        is_row = form.is_object and function.is_set
        result = ROW if is_row else f'{ROWS}.pgrst_scalar'
    condition = where(writer, query, SOURCE)
    total = 'null::bigint'
    if count in (Count.EXACT, Count.ESTIMATED):
        total = f'(SELECT count(*) FROM {SOURCE}{condition})'
    is_single = form.is_object or not function.is_set
    return (
        f'WITH {SOURCE} AS ({source}) SELECT {total}, count({ROW}),'
        f' {aggregate(result, form, is_single=is_single)}, {SETTINGS}'
        f' FROM (SELECT {items(writer, query.select, SOURCE)} FROM {SOURCE}{condition}'
        f'{order_and_range(writer, query, SOURCE, max_rows=max_rows)}) AS {ROWS}'
    )


def read_table(
    writer: Writer, table: Table, *, query: Query, form: Form, count: Count | None, max_rows: int
) -> str:
    name = qualified(table.schema, table.name)
    known = table.json_columns
    condition = where(writer, query, name, known)
    total = 'null::bigint'
    if count is Count.EXACT:
        total = f'(SELECT count(*) FROM {name}{condition})'
    elif count is Count.ESTIMATED:
        # One more than an answer holds tells that the planner's guess is wanted.
        limit = max_rows + 1
        total = f'(SELECT count(*) FROM (SELECT FROM {name}{condition} LIMIT {limit}) AS counted)'
    return (
        f'SELECT {total}, count({ROW}), {aggregate(ROW, form, is_single=form.is_object)},'
        f' {SETTINGS} FROM (SELECT {items(writer, query.select, name, known)} FROM {name}'
        f'{condition}{order_and_range(writer, query, name, known, max_rows=max_rows)}) AS {ROWS}'
    )


def explain_table(writer: Writer, table: Table, *, query: Query) -> str:
    """Ask how many rows the planner expects."""
    name = qualified(table.schema, table.name)
    condition = where(writer, query, name, table.json_columns)
    return f'EXPLAIN (FORMAT JSON) SELECT 1 FROM {name}{condition}'


def aggregate(rows: str, form: Form, *, is_single: bool) -> str:
    if is_single:
        return f"coalesce({stripped(f'json_agg({rows})->0', form)}, 'null')"
    return f"coalesce({stripped(f'json_agg({rows})', form)}, '[]')"


def stripped(value: str, form: Form) -> str:
    return f'json_strip_nulls({value})' if form.strips_nulls else value


def items(
    writer: Writer,
    selected: Sequence[Selected],
    source: str,
    json_columns: frozenset[str] = frozenset(),
) -> str:
    if not selected:
        return f'{source}.*'
    return ', '.join(item(writer, one, source, json_columns) for one in selected)


def item(writer: Writer, selected: Selected, source: str, json_columns: frozenset[str]) -> str:
    if selected.field is None:
        return f'{source}.*'
    expression = value_of(writer, selected.field, source, json_columns)
    if selected.cast is not None:
        expression = f'CAST({expression} AS {selected.cast})'
    alias = selected.alias or selected.field.column
    if selected.alias is None:
        keys = [arrow.key for arrow in selected.field.path if not arrow.is_index]
        alias = keys[-1] if keys else alias
    return f'{expression} AS {identifier(alias)}'


def value_of(writer: Writer, field: Field, source: str, json_columns: frozenset[str]) -> str:
    expression = f'{source}.{identifier(field.column)}'
    if not field.path:
        return expression
    if field.column not in json_columns:
        expression = f'to_jsonb({expression})'
    for arrow in field.path:
        kind = 'int' if arrow.is_index else 'text'
        operator = '->>' if arrow.gives_text else '->'
        expression += f'{operator}{writer.text(arrow.key)}::{kind}'
    return f'({expression})'


def where(
    writer: Writer, query: Query, source: str, json_columns: frozenset[str] = frozenset()
) -> str:
    if not query.conditions:
        return ''
    written = (holds(writer, one, source, json_columns) for one in query.conditions)
    return f' WHERE {" AND ".join(written)}'


def holds(
    writer: Writer, condition: Condition | Group, source: str, json_columns: frozenset[str]
) -> str:
    if isinstance(condition, Group):
        joint = f' {condition.operator.upper()} '
        test = joint.join(
            holds(writer, member, source, json_columns) for member in condition.members
        )
    else:
        test = compared(writer, condition, source, json_columns)
    return f'NOT ({test})' if condition.is_negated else f'({test})'


def compared(
    writer: Writer, condition: Condition, source: str, json_columns: frozenset[str]
) -> str:
    left = value_of(writer, condition.field, source, json_columns)
    value = condition.value
    if not isinstance(value, str):
        return f'{left} = ANY ({writer.text(array_literal(value))})'
    if condition.operator == 'is':
        return f'{left} IS {TRUTHS[value]}'
    if condition.operator in PATTERNS:
        value = value.replace('*', '%')
    return f'{left} {OPERATORS[condition.operator]} {writer.text(value)}'


def order_and_range(
    writer: Writer,
    query: Query,
    source: str,
    json_columns: frozenset[str] = frozenset(),
    *,
    max_rows: int,
) -> str:
    written = ''
    if query.order:
        terms = (order_term(writer, term, source, json_columns) for term in query.order)
        written = f' ORDER BY {", ".join(terms)}'
    rows = query.rows
    if rows.limit is None or rows.limit >= max_rows:
        written += f' LIMIT {max_rows}'
    else:
        written += f' LIMIT {writer.text(str(rows.limit))}::bigint'
    if rows.offset:
        written += f' OFFSET {writer.text(str(rows.offset))}::bigint'
    return written


def order_term(writer: Writer, term: Order, source: str, json_columns: frozenset[str]) -> str:
    value = value_of(writer, term.field, source, json_columns)
    return f'{value}{DIRECTIONS[term.direction]}{NULLS[term.nulls]}'


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def qualified(schema: str, name: str) -> str:
    return f'{identifier(schema)}.{identifier(name)}'


def array_literal(values: Iterable[str]) -> str:
    quoted = (value.replace('\\', '\\\\').replace('"', '\\"') for value in values)
    return '{' + ','.join(f'"{value}"' for value in quoted) + '}'

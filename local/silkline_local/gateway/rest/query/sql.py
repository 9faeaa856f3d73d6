"""Writes the one statement that a request becomes.

Names are quoted and values are parameters, whatever they contain. Every statement returns one row
with the same five columns (`ResultRow` in `transaction.py`), so no change to a table or a function
can make a prepared statement return other columns than those it was prepared with.
"""

# ruff: noqa: S608 - names are quoted here, and values never become part of the text.

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg import pq

from silkline_local.gateway.rest.database.connection import Statement
from silkline_local.gateway.rest.database.schema_cache import Argument, Function, Table
from silkline_local.gateway.rest.media import ResponseForm
from silkline_local.gateway.rest.preferences import CountMethod
from silkline_local.gateway.rest.query.model import (
    OPERATORS,
    PATTERNS,
    TRUTHS,
    Condition,
    ConditionGroup,
    Field,
    OrderTerm,
    Query,
    SelectItem,
)

SETTINGS = (
    "nullif(current_setting('response.headers', true), ''), "
    "nullif(current_setting('response.status', true), '')"
)
ROWS = '_postgrest_t'
# With the star, because the bare name could mean a column of that name.
ROW = f'{ROWS}.*'
SOURCE = '"pgrst_source"'
DIRECTIONS = {'asc': ' ASC', 'desc': ' DESC', None: ''}
NULLS = {'nullsfirst': ' NULLS FIRST', 'nullslast': ' NULLS LAST', None: ''}


class SqlWriter:
    """Collects the parameters of a statement while its text is written."""

    def __init__(self) -> None:
        self.parameters: list[bytes] = []
        self.formats: list[pq.Format] = []

    def text(self, value: str) -> str:
        """A value whose type Postgres infers from its position."""
        self.parameters.append(value.encode())
        self.formats.append(pq.Format.TEXT)
        return f'${len(self.parameters)}'

    def json(self, value: bytes) -> str:
        self.parameters.append(value)
        self.formats.append(pq.Format.BINARY)
        return f'${len(self.parameters)}::json'

    def statement(self, text: str) -> Statement:
        return Statement(text.encode(), self.parameters, self.formats)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call as an expression, and the source of its arguments."""

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


def body_call(function: Function, given: frozenset[str], body: str) -> FunctionCall:
    """A call whose arguments are the members of a JSON object, or the whole of it."""
    name = qualified(function.schema, function.name)
    if function.takes_whole_body:
        return FunctionCall(f'{name}({body}::{function.arguments[0].type})')
    arguments = [argument for argument in function.arguments if argument.name in given]
    if not arguments:
        return FunctionCall(f'{name}()')
    columns = ', '.join(f'{identifier(argument.name)} {argument.type}' for argument in arguments)
    passed = ((argument, f'pgrst_body.{identifier(argument.name)}') for argument in arguments)
    return FunctionCall(
        f'{name}({named(passed)})', origin=f'json_to_record({body}) AS pgrst_body({columns})'
    )


def query_call(
    writer: SqlWriter, function: Function, given: Sequence[tuple[str, str]]
) -> FunctionCall:
    """A call whose arguments come from the query string; a variadic one may be repeated."""
    values: dict[str, list[str]] = {}
    for name, value in given:
        values.setdefault(name, []).append(value)
    passed: list[tuple[Argument, str]] = []
    for argument in function.arguments:
        if argument.name in values:
            texts = values[argument.name]
            text = array_literal(texts) if argument.is_variadic else texts[-1]
            passed.append((argument, f'{writer.text(text)}::{argument.type}'))
    return FunctionCall(f'{qualified(function.schema, function.name)}({named(passed)})')


def named(passed: Iterable[tuple[Argument, str]]) -> str:
    return ', '.join(
        f'{"VARIADIC " if argument.is_variadic else ""}{identifier(argument.name)} := {value}'
        for argument, value in passed
    )


def call_statement(
    function: Function, call: FunctionCall, *, form: ResponseForm, max_rows: int
) -> str:
    """Select the whole result of a call."""
    if function.is_row:
        # Taken as one value: `*` would mean the columns that existed when it was prepared.
        rows = f'SELECT row_to_json(pgrst_call.*) AS pgrst_row FROM {call.in_from} AS pgrst_call'
        body = aggregate(f'{ROWS}.pgrst_row', form, is_single=form.is_object or not function.is_set)
        return (
            f'SELECT null::bigint, count(*), {body}, {SETTINGS}'
            f' FROM ({rows} LIMIT {max_rows}) AS {ROWS}'
        )
    if function.is_set:
        return filtered_call(
            SqlWriter(), function, call, query=Query(), form=form, count=None, max_rows=max_rows
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
    writer: SqlWriter,
    function: Function,
    call: FunctionCall,
    *,
    query: Query,
    form: ResponseForm,
    count: CountMethod | None,
    max_rows: int,
) -> str:
    """Select part of the result of a call."""
    if function.is_composite:
        source = f'SELECT pgrst_call.* FROM {call.in_from} AS pgrst_call'
        result = ROW
    else:
        source = f'SELECT {call.after_select}'
        is_row = form.is_object and function.is_set
        result = ROW if is_row else f'{ROWS}.pgrst_scalar'
    condition = where(writer, query, SOURCE)
    total = 'null::bigint'
    if count in (CountMethod.EXACT, CountMethod.ESTIMATED):
        total = f'(SELECT count(*) FROM {SOURCE}{condition})'
    is_single = form.is_object or not function.is_set
    return (
        f'WITH {SOURCE} AS ({source}) SELECT {total}, count({ROW}),'
        f' {aggregate(result, form, is_single=is_single)}, {SETTINGS}'
        f' FROM (SELECT {select_list(writer, query.select, SOURCE)} FROM {SOURCE}{condition}'
        f'{order_and_range(writer, query, SOURCE, max_rows=max_rows)}) AS {ROWS}'
    )


def read_table(
    writer: SqlWriter,
    table: Table,
    *,
    query: Query,
    form: ResponseForm,
    count: CountMethod | None,
    max_rows: int,
) -> str:
    name = qualified(table.schema, table.name)
    known = table.json_columns
    condition = where(writer, query, name, known)
    total = 'null::bigint'
    if count is CountMethod.EXACT:
        total = f'(SELECT count(*) FROM {name}{condition})'
    elif count is CountMethod.ESTIMATED:
        # One row more than a response can hold means that the planner's estimate is used.
        limit = max_rows + 1
        total = f'(SELECT count(*) FROM (SELECT FROM {name}{condition} LIMIT {limit}) AS counted)'
    return (
        f'SELECT {total}, count({ROW}), {aggregate(ROW, form, is_single=form.is_object)},'
        f' {SETTINGS} FROM (SELECT {select_list(writer, query.select, name, known)} FROM {name}'
        f'{condition}{order_and_range(writer, query, name, known, max_rows=max_rows)}) AS {ROWS}'
    )


def explain_table(writer: SqlWriter, table: Table, *, query: Query) -> str:
    """Ask the planner how many rows it expects."""
    name = qualified(table.schema, table.name)
    condition = where(writer, query, name, table.json_columns)
    return f'EXPLAIN (FORMAT JSON) SELECT 1 FROM {name}{condition}'


def aggregate(rows: str, form: ResponseForm, *, is_single: bool) -> str:
    if is_single:
        return f"coalesce({stripped(f'json_agg({rows})->0', form)}, 'null')"
    return f"coalesce({stripped(f'json_agg({rows})', form)}, '[]')"


def stripped(value: str, form: ResponseForm) -> str:
    return f'json_strip_nulls({value})' if form.strips_nulls else value


def select_list(
    writer: SqlWriter,
    selected: Sequence[SelectItem],
    source: str,
    json_columns: frozenset[str] = frozenset(),
) -> str:
    if not selected:
        return f'{source}.*'
    return ', '.join(select_item(writer, one, source, json_columns) for one in selected)


def select_item(
    writer: SqlWriter, selected: SelectItem, source: str, json_columns: frozenset[str]
) -> str:
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


def value_of(writer: SqlWriter, field: Field, source: str, json_columns: frozenset[str]) -> str:
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
    writer: SqlWriter, query: Query, source: str, json_columns: frozenset[str] = frozenset()
) -> str:
    if not query.conditions:
        return ''
    written = (condition_sql(writer, one, source, json_columns) for one in query.conditions)
    return f' WHERE {" AND ".join(written)}'


def condition_sql(
    writer: SqlWriter,
    condition: Condition | ConditionGroup,
    source: str,
    json_columns: frozenset[str],
) -> str:
    if isinstance(condition, ConditionGroup):
        joint = f' {condition.operator.upper()} '
        test = joint.join(
            condition_sql(writer, member, source, json_columns) for member in condition.members
        )
    else:
        test = comparison(writer, condition, source, json_columns)
    return f'NOT ({test})' if condition.is_negated else f'({test})'


def comparison(
    writer: SqlWriter, condition: Condition, source: str, json_columns: frozenset[str]
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
    writer: SqlWriter,
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


def order_term(
    writer: SqlWriter, term: OrderTerm, source: str, json_columns: frozenset[str]
) -> str:
    value = value_of(writer, term.field, source, json_columns)
    return f'{value}{DIRECTIONS[term.direction]}{NULLS[term.nulls]}'


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def qualified(schema: str, name: str) -> str:
    return f'{identifier(schema)}.{identifier(name)}'


def array_literal(values: Iterable[str]) -> str:
    quoted = (value.replace('\\', '\\\\').replace('"', '\\"') for value in values)
    return '{' + ','.join(f'"{value}"' for value in quoted) + '}'

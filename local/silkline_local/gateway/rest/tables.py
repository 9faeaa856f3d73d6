"""Reads of tables and views: `/rest/v1/<table>` by GET and HEAD.

Row level security and grants decide what is seen; here only the query is put together. Writing to
tables is refused: Silkline's clients write by calling functions.
"""

from urllib.parse import quote, urlencode

import msgspec
from aiohttp import web

from silkline_local.gateway.http import Refusal
from silkline_local.gateway.rest.backend import Backend, Work
from silkline_local.gateway.rest.database.transaction import Row
from silkline_local.gateway.rest.errors import failure, not_singular
from silkline_local.gateway.rest.preferences import Count
from silkline_local.gateway.rest.query import sql
from silkline_local.gateway.rest.request import Asked, read_query
from silkline_local.gateway.rest.response import answer

WRITING = frozenset({'POST', 'PATCH', 'PUT', 'DELETE'})


class Plan(msgspec.Struct, rename={'rows': 'Plan Rows'}):
    rows: int


class Explained(msgspec.Struct, rename={'plan': 'Plan'}):
    plan: Plan


async def read(backend: Backend, request: web.Request, asked: Asked, name: str) -> web.Response:
    refuse_method(asked.method)
    table = backend.cache.table(asked.schema, name)
    query = read_query(request, takes_arguments=False)
    timezone = await backend.timezone(asked)
    asked.preferences.refuse_unknown(timezone_is_known=timezone is not None)
    count = asked.preferences.count
    writer = sql.Writer()
    statement = sql.read_table(
        writer, table, query=query, form=asked.form, count=count, max_rows=backend.max_rows
    )
    commands = [writer.command(statement)]
    if count in (Count.PLANNED, Count.ESTIMATED):
        writer = sql.Writer()
        commands.append(writer.command(sql.explain_table(writer, table, query=query)))
    row, others = await backend.run(
        request,
        asked,
        Work(
            commands,
            settings=() if timezone is None else (('timezone', timezone),),
            check=is_single if asked.form.is_object else None,
        ),
    )
    total = row.total
    if others:
        expected = expected_rows(others[0].get_value(0, 0))
        total = combined_total(total, expected, max_rows=backend.max_rows)
    further = {'Content-Location': location(request, name)}
    if asked.is_schema_named:
        further['Content-Profile'] = asked.schema
    return answer(
        row,
        query.rows,
        total=total,
        content_type=asked.form.content_type,
        applied=asked.preferences.applied(timezone=timezone, may_affect=False),
        is_head=asked.method == 'HEAD',
        further=further,
    )


def refuse_method(method: str) -> None:
    if method in WRITING:
        raise failure(
            405,
            'PGRST117',
            f'Unsupported HTTP method: {method}',
            details='writing to tables is not supported by the local stack',
            hint='Call a function: POST /rest/v1/rpc/<function>.',
        )
    if method not in ('GET', 'HEAD'):
        raise failure(405, 'PGRST117', f'Unsupported HTTP method: {method}')


def is_single(row: Row) -> Refusal | None:
    return None if row.count == 1 else not_singular(row.count)


def expected_rows(explained: bytes | None) -> int:
    return msgspec.json.decode(explained or b'[]', type=list[Explained])[0].plan.rows


def combined_total(counted: int | None, expected: int, *, max_rows: int) -> int:
    """The planner's guess, unless the rows were few enough to be counted."""
    if counted is None:
        return expected
    return counted if counted <= max_rows else max(counted, expected)


def location(request: web.Request, name: str) -> str:
    """The path with the parameters in the order of their names."""
    pairs = sorted((key, value) for key, value in request.query.items() if key != 'apikey')
    path = f'/{quote(name)}'
    return f'{path}?{urlencode(pairs)}' if pairs else path

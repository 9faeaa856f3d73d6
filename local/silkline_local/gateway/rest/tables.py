"""Reads of tables and views: `/rest/v1/<table>` by GET and HEAD.

Grants and row level security decide what a caller sees; this module only builds the query. Writing
to tables is refused: Silkline's clients write by calling functions.
"""

from urllib.parse import quote, urlencode

import msgspec
from aiohttp import web

from silkline_local.gateway.http import Refusal
from silkline_local.gateway.rest.backend import Backend, TransactionWork
from silkline_local.gateway.rest.database.transaction import ResultRow
from silkline_local.gateway.rest.errors import failure, not_singular
from silkline_local.gateway.rest.preferences import CountMethod
from silkline_local.gateway.rest.query import sql
from silkline_local.gateway.rest.request import ParsedRequest, read_query
from silkline_local.gateway.rest.response import make_response

WRITING = frozenset({'POST', 'PATCH', 'PUT', 'DELETE'})


class ExplainedPlan(msgspec.Struct, rename={'rows': 'Plan Rows'}):
    rows: int


class ExplainOutput(msgspec.Struct, rename={'plan': 'Plan'}):
    plan: ExplainedPlan


async def read(
    backend: Backend, request: web.Request, parsed: ParsedRequest, name: str
) -> web.Response:
    refuse_method(parsed.method)
    table = backend.cache.table(parsed.schema, name)
    query = read_query(request, takes_arguments=False)
    timezone = await backend.timezone(parsed)
    parsed.preferences.refuse_unknown(timezone_is_known=timezone is not None)
    count = parsed.preferences.count
    writer = sql.SqlWriter()
    statement = sql.read_table(
        writer, table, query=query, form=parsed.form, count=count, max_rows=backend.max_rows
    )
    statements = [writer.statement(statement)]
    if count in (CountMethod.PLANNED, CountMethod.ESTIMATED):
        writer = sql.SqlWriter()
        statements.append(writer.statement(sql.explain_table(writer, table, query=query)))
    row, others = await backend.run(
        request,
        parsed,
        TransactionWork(
            statements,
            settings=() if timezone is None else (('timezone', timezone),),
            check=is_single if parsed.form.is_object else None,
        ),
    )
    total = row.total
    if others:
        expected = expected_rows(others[0].get_value(0, 0))
        total = combined_total(total, expected, max_rows=backend.max_rows)
    further = {'Content-Location': location(request, name)}
    if parsed.is_schema_named:
        further['Content-Profile'] = parsed.schema
    return make_response(
        row,
        query.rows,
        total=total,
        content_type=parsed.form.content_type,
        applied=parsed.preferences.applied(timezone=timezone, may_affect=False),
        is_head=parsed.method == 'HEAD',
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


def is_single(row: ResultRow) -> Refusal | None:
    return None if row.count == 1 else not_singular(row.count)


def expected_rows(explained: bytes | None) -> int:
    return msgspec.json.decode(explained or b'[]', type=list[ExplainOutput])[0].plan.rows


def combined_total(counted: int | None, expected: int, *, max_rows: int) -> int:
    """The planner's estimate, unless the rows were few enough to be counted."""
    if counted is None:
        return expected
    return counted if counted <= max_rows else max(counted, expected)


def location(request: web.Request, name: str) -> str:
    """The path, with the parameters sorted by name."""
    pairs = sorted((key, value) for key, value in request.query.items() if key != 'apikey')
    path = f'/{quote(name)}'
    return f'{path}?{urlencode(pairs)}' if pairs else path

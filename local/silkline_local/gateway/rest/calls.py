"""Calls of functions: `/rest/v1/rpc/<function>` by POST, GET and HEAD.

The body goes to Postgres and the result to the client without being decoded. Only the names of the
arguments are read, to choose the function.
"""

from collections.abc import Callable

from aiohttp import web
from psycopg import pq

from silkline_local.gateway.http import Refusal
from silkline_local.gateway.rest.backend import Backend, TransactionWork
from silkline_local.gateway.rest.database.connection import Statement
from silkline_local.gateway.rest.database.schema_cache import Function, SchemaCache
from silkline_local.gateway.rest.database.transaction import ResultRow
from silkline_local.gateway.rest.errors import failure, not_singular, not_supported
from silkline_local.gateway.rest.query import sql
from silkline_local.gateway.rest.query.model import EMPTY_QUERY, Query
from silkline_local.gateway.rest.request import Arguments, ParsedRequest, read_arguments, read_query
from silkline_local.gateway.rest.response import make_response

BINARY = (pq.Format.BINARY,)
STATEMENTS_KEPT = 2000


async def call(
    backend: Backend, request: web.Request, parsed: ParsedRequest, name: str
) -> web.Response:
    cache = backend.cache
    if parsed.method == 'POST':
        arguments = await read_arguments(request)
        query = read_query(request, takes_arguments=False)
        function = cache.function(parsed.schema, name, given=arguments.names, has_body=True)
        statement = post_statement(
            cache, function, arguments, query=query, parsed=parsed, limit=backend.max_rows
        )
    elif parsed.method in ('GET', 'HEAD'):
        query = read_query(request, takes_arguments=True)
        given = frozenset(argument for argument, _ in query.arguments)
        function = cache.function(parsed.schema, name, given=given, has_body=False)
        statement = get_statement(function, query=query, parsed=parsed, limit=backend.max_rows)
    else:
        raise failure(405, 'PGRST101', f'Cannot use the {parsed.method} method on RPC')
    timezone = await backend.timezone(parsed)
    parsed.preferences.refuse_unknown(timezone_is_known=timezone is not None)
    settings = function.hoisted
    row, _ = await backend.run(
        request,
        parsed,
        TransactionWork(
            [statement],
            is_read_only=parsed.method != 'POST' or not function.is_volatile,
            isolation=function.isolation,
            settings=settings if timezone is None else (('timezone', timezone), *settings),
            check=result_check(function, parsed),
        ),
    )
    return make_response(
        row,
        query.rows,
        total=row.total,
        content_type=None if function.is_void else parsed.form.content_type,
        applied=parsed.preferences.applied(timezone=timezone, may_affect=True),
        is_head=parsed.method == 'HEAD',
        further={'Content-Profile': parsed.schema} if parsed.is_schema_named else {},
    )


def post_statement(
    cache: SchemaCache,
    function: Function,
    arguments: Arguments,
    *,
    query: Query,
    parsed: ParsedRequest,
    limit: int,
) -> Statement:
    if arguments.is_array and not function.takes_whole_body:
        raise not_supported('an array of arguments', hint='Send one JSON object.')
    count = parsed.preferences.count
    needs_body = bool(arguments.names) or function.takes_whole_body
    if (query is not EMPTY_QUERY or count is not None) and not function.is_void:
        writer = sql.SqlWriter()
        body = writer.json(arguments.json) if needs_body else ''
        call = sql.body_call(function, arguments.names, body)
        return writer.statement(
            sql.filtered_call(
                writer,
                function,
                call,
                query=query,
                form=parsed.form,
                count=count,
                max_rows=limit,
            )
        )
    # The common case: the text depends only on the names, and is written once.
    key = (id(function), arguments.names, parsed.form)
    statement = cache.statements.get(key)
    if statement is None:
        call = sql.body_call(function, arguments.names, '$1::json')
        text = sql.call_statement(function, call, form=parsed.form, max_rows=limit)
        if len(cache.statements) >= STATEMENTS_KEPT:
            cache.statements.clear()
        cache.statements[key] = statement = text.encode()
    return Statement(statement, (arguments.json,), BINARY) if needs_body else Statement(statement)


def get_statement(
    function: Function, *, query: Query, parsed: ParsedRequest, limit: int
) -> Statement:
    writer = sql.SqlWriter()
    call = sql.query_call(writer, function, query.arguments)
    count = parsed.preferences.count
    if function.is_void or (count is None and query == Query(arguments=query.arguments)):
        statement = sql.call_statement(function, call, form=parsed.form, max_rows=limit)
    else:
        statement = sql.filtered_call(
            writer, function, call, query=query, form=parsed.form, count=count, max_rows=limit
        )
    return writer.statement(statement)


def result_check(
    function: Function, parsed: ParsedRequest
) -> Callable[[ResultRow], Refusal | None] | None:
    """What may refuse the result, and so roll back what the function has done."""
    limit = parsed.preferences.max_affected if parsed.preferences.is_strict else None
    if limit is not None and not function.is_set:
        raise failure(
            400,
            'PGRST128',
            'Function must return SETOF or TABLE when max-affected preference is used with '
            'handling=strict',
        )
    if limit is None and not parsed.form.is_object:
        return None

    def check(row: ResultRow) -> Refusal | None:
        if parsed.form.is_object and row.count != 1:
            return not_singular(row.count)
        if limit is not None and row.count > limit:
            return failure(
                400,
                'PGRST124',
                'Query result exceeds max-affected preference constraint',
                details=f'The query affects {row.count} rows',
            )
        return None

    return check

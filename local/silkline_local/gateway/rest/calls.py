"""Calls of functions: `/rest/v1/rpc/<function>` by POST, GET and HEAD.

The body goes to Postgres as it came and the result goes out as it came; only the names of the
arguments are looked at, to tell which function is meant.
"""

from collections.abc import Callable

from aiohttp import web
from psycopg import pq

from silkline_local.gateway.http import Refusal
from silkline_local.gateway.rest.backend import Backend, Work
from silkline_local.gateway.rest.database.connection import Command
from silkline_local.gateway.rest.database.schema_cache import Function, SchemaCache
from silkline_local.gateway.rest.database.transaction import Row
from silkline_local.gateway.rest.errors import failure, not_singular, not_supported
from silkline_local.gateway.rest.query import sql
from silkline_local.gateway.rest.query.model import NOTHING_ASKED, Query
from silkline_local.gateway.rest.request import Arguments, Asked, read_arguments, read_query
from silkline_local.gateway.rest.response import answer

BINARY = (pq.Format.BINARY,)
TEXTS_KEPT = 2000


async def call(backend: Backend, request: web.Request, asked: Asked, name: str) -> web.Response:
    cache = backend.cache
    if asked.method == 'POST':
        arguments = await read_arguments(request)
        query = read_query(request, takes_arguments=False)
        function = cache.function(asked.schema, name, given=arguments.names, has_body=True)
        command = post_command(
            cache, function, arguments, query=query, asked=asked, limit=backend.max_rows
        )
    elif asked.method in ('GET', 'HEAD'):
        query = read_query(request, takes_arguments=True)
        given = frozenset(argument for argument, _ in query.arguments)
        function = cache.function(asked.schema, name, given=given, has_body=False)
        command = get_command(function, query=query, asked=asked, limit=backend.max_rows)
    else:
        raise failure(405, 'PGRST101', f'Cannot use the {asked.method} method on RPC')
    timezone = await backend.timezone(asked)
    asked.preferences.refuse_unknown(timezone_is_known=timezone is not None)
    settings = function.hoisted
    row, _ = await backend.run(
        request,
        asked,
        Work(
            [command],
            is_read_only=asked.method != 'POST' or not function.is_volatile,
            isolation=function.isolation,
            settings=settings if timezone is None else (('timezone', timezone), *settings),
            check=checks(function, asked),
        ),
    )
    return answer(
        row,
        query.rows,
        total=row.total,
        content_type=None if function.is_void else asked.form.content_type,
        applied=asked.preferences.applied(timezone=timezone, may_affect=True),
        is_head=asked.method == 'HEAD',
        further={'Content-Profile': asked.schema} if asked.is_schema_named else {},
    )


def post_command(
    cache: SchemaCache,
    function: Function,
    arguments: Arguments,
    *,
    query: Query,
    asked: Asked,
    limit: int,
) -> Command:
    if arguments.is_array and not function.takes_whole_body:
        raise not_supported('an array of arguments', hint='Send one JSON object.')
    count = asked.preferences.count
    needs_body = bool(arguments.names) or function.takes_whole_body
    if (query is not NOTHING_ASKED or count is not None) and not function.is_void:
        writer = sql.Writer()
        body = writer.json(arguments.json) if needs_body else ''
        call = sql.body_call(function, arguments.names, body)
        return writer.command(
            sql.filtered_call(
                writer,
                function,
                call,
                query=query,
                form=asked.form,
                count=count,
                max_rows=limit,
            )
        )
    # The common case: its statement depends on the names only, and is written once.
    key = (id(function), arguments.names, asked.form)
    statement = cache.statements.get(key)
    if statement is None:
        call = sql.body_call(function, arguments.names, '$1::json')
        text = sql.call_statement(function, call, form=asked.form, max_rows=limit)
        if len(cache.statements) >= TEXTS_KEPT:
            cache.statements.clear()
        cache.statements[key] = statement = text.encode()
    return Command(statement, (arguments.json,), BINARY) if needs_body else Command(statement)


def get_command(function: Function, *, query: Query, asked: Asked, limit: int) -> Command:
    writer = sql.Writer()
    call = sql.query_call(writer, function, query.arguments)
    count = asked.preferences.count
    if function.is_void or (count is None and query == Query(arguments=query.arguments)):
        statement = sql.call_statement(function, call, form=asked.form, max_rows=limit)
    else:
        statement = sql.filtered_call(
            writer, function, call, query=query, form=asked.form, count=count, max_rows=limit
        )
    return writer.command(statement)


def checks(function: Function, asked: Asked) -> Callable[[Row], Refusal | None] | None:
    """What may refuse the result, and with it whatever the function has done."""
    limit = asked.preferences.max_affected if asked.preferences.is_strict else None
    if limit is not None and not function.is_set:
        raise failure(
            400,
            'PGRST128',
            'Function must return SETOF or TABLE when max-affected preference is used with '
            'handling=strict',
        )
    if limit is None and not asked.form.is_object:
        return None

    def check(row: Row) -> Refusal | None:
        if asked.form.is_object and row.count != 1:
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

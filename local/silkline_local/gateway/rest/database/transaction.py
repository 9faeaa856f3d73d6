"""The transaction of one request: its settings, its statements, and commit or rollback.

Owns what is set before the statements run (role, claims, headers, settings of role and function),
and rolls back a result that is refused.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from psycopg import pq
from psycopg.pq.abc import PGresult

from silkline_local.gateway.http import Refusal
from silkline_local.gateway.rest.database.connection import PipelineConnection, Statement

COMMIT = Statement(b'COMMIT')
ROLLBACK = Statement(b'ROLLBACK')
# The buffers of a connection grow to its largest message and never shrink.
LARGEST_KEPT = 4 * 1024 * 1024
ISOLATIONS = {'repeatable read': b'REPEATABLE READ', 'serializable': b'SERIALIZABLE'}


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """What is set for one transaction only."""

    search_path: bytes
    role: bytes
    claims: bytes
    method: bytes
    path: bytes
    headers: bytes
    cookies: bytes
    # Set before the role, with the rights of the login role.
    of_role: Sequence[tuple[str, str]] = ()
    # Set last: a function's settings take precedence over its caller's.
    further: Sequence[tuple[str, str]] = ()
    is_read_only: bool = False
    isolation: str | None = None

    def statements(self) -> list[Statement]:
        isolation = ISOLATIONS.get((self.isolation or '').lower(), b'READ COMMITTED')
        mode = b'READ ONLY' if self.is_read_only else b'READ WRITE'
        parameters: list[bytes] = [self.search_path]
        for name, value in self.of_role:
            parameters += (name.encode(), value.encode())
        parameters += (
            self.role,
            self.claims,
            self.method,
            self.path,
            self.headers,
            self.cookies,
        )
        for name, value in self.further:
            parameters += (name.encode(), value.encode())
        statement = settings_statement(len(self.of_role), len(self.further))
        return [
            Statement(b'BEGIN ISOLATION LEVEL %s %s' % (isolation, mode)),
            Statement(statement, parameters, [pq.Format.BINARY] * len(parameters)),
        ]


@functools.cache
def settings_statement(of_role: int, further: int) -> bytes:
    """Set all settings; `of_role` and `further` count those whose names are parameters, too."""
    numbers = itertools.count(1)

    def fixed(*names: str) -> list[str]:
        return [f"set_config('{name}', ${next(numbers)}::text, true)" for name in names]

    def free(count: int) -> list[str]:
        return [
            f'set_config(${next(numbers)}::text, ${next(numbers)}::text, true)'
            for _ in range(count)
        ]

    calls = [
        *fixed('search_path'),
        *free(of_role),
        *fixed('role', 'request.jwt.claims', 'request.method', 'request.path'),
        *fixed('request.headers', 'request.cookies'),
        *free(further),
    ]
    return f'SELECT {", ".join(calls)}'.encode()


@dataclass(frozen=True, slots=True)
class ResultRow:
    """The one row that every statement of `sql.py` returns."""

    total: int | None
    count: int
    body: bytes
    headers: bytes | None
    status: bytes | None


def read_row(result: PGresult) -> ResultRow:
    total = result.get_value(0, 0)
    return ResultRow(
        total=None if total is None else int(total),
        count=int(result.get_value(0, 1) or 0),
        body=result.get_value(0, 2) or b'',
        headers=result.get_value(0, 3),
        status=result.get_value(0, 4),
    )


async def run(
    connection: PipelineConnection,
    settings: TransactionSettings,
    statements: Sequence[Statement],
    *,
    check: Callable[[ResultRow], Refusal | None] | None = None,
) -> tuple[ResultRow, list[PGresult]]:
    """Run the statements; return the row of the first, and the results of the others.

    A result that `check` refuses is rolled back. It is checked before the commit only if there is
    something to roll back, because that costs a second round trip.
    """
    begin = settings.statements()
    if any(is_large(value) for statement in statements for value in statement.parameters):
        connection.retire()
    if check is None or settings.is_read_only:
        results = await connection.run([*begin, *statements, COMMIT], role=settings.role)
        row = read_row(results[2])
        refusal = None if check is None else check(row)
    else:
        results = await connection.run([*begin, *statements], role=settings.role)
        row = read_row(results[2])
        refusal = check(row)
        await connection.run([COMMIT if refusal is None else ROLLBACK], role=settings.role)
    if is_large(row.body):
        connection.retire()
    if refusal is not None:
        raise refusal
    return row, results[3 : 2 + len(statements)]


def is_large(value: bytes | None) -> bool:
    return value is not None and len(value) > LARGEST_KEPT

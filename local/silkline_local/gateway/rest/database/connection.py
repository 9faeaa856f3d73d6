"""One connection that runs a list of statements in one round trip.

psycopg opens it; from then on this module drives libpq's pipeline mode, because psycopg's cursors
cost more than the small calls that pass through. Each statement is prepared at its first use. When
the server closes a connection, that is noticed at once, even while the connection is idle.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGresult

from silkline_local.gateway.rest.errors import DatabaseError

CONNECT_SECONDS = 5
STATEMENTS_KEPT = 200

SHUTTING_DOWN = (b'57P01', b'57P02', b'57P03', b'57P05')
# The errors by which Postgres says that a prepared statement no longer fits the schema.
STALE = frozenset({'0A000', '42703', '42804', 'XX000'})
# The prepared statement does not exist: a function has deallocated it.
GONE = '26000'
OK_STATUSES = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)


class DatabaseUnreachable(Exception):
    """No connection could be opened."""


class ConnectionLost(Exception):
    """The connection broke. Only if it `was_refused` is it certain that nothing was done."""

    def __init__(self, why: str, *, was_refused: bool = False) -> None:
        super().__init__(why)
        self.was_refused = was_refused


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement and its parameters, each in the binary or the text format.

    Text and json are sent as binary: their bytes are the same, and Postgres refuses a NUL in them
    instead of ending the value there.
    """

    text: bytes
    parameters: Sequence[bytes | None] = ()
    formats: Sequence[pq.Format] = ()


class PipelineConnection:
    """For one task at a time; `ConnectionPool` ensures that."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection,
        *,
        on_lost: 'Callable[[PipelineConnection], None]',
    ) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._socket = connection.pgconn.socket
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        # By role and text. A plan may contain inlined functions; the right to execute them was
        # checked for the role that the plan was made for, and is not checked again for another.
        self._names: dict[tuple[bytes, bytes], bytes] = {}
        self._named = 0
        self._is_stale = False
        self._is_retired = False
        self._waiter: asyncio.Future[None] | None = None
        self._results: list[PGresult] = []
        self._why_lost: str | None = None
        self._loop.add_reader(self._socket, self._read)

    @classmethod
    async def open(cls, url: str, *, on_lost: 'Callable[[PipelineConnection], None]') -> Self:
        """Log in. `on_lost` is called once if the server closes the connection."""
        try:
            connection = await psycopg.AsyncConnection.connect(
                url,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                application_name='silkline-rest',
            )
        except psycopg.Error as error:
            raise DatabaseUnreachable(str(error)) from error
        connection.pgconn.nonblocking = 1
        connection.pgconn.enter_pipeline_mode()
        return cls(connection, on_lost=on_lost)

    async def close(self) -> None:
        # The socket of a lost connection is closed, and its number may be in use again.
        if self._why_lost is None:
            self._unregister_socket()
        await self._connection.close()

    @property
    def is_clean(self) -> bool:
        """Whether another transaction may start on it."""
        return (
            self._why_lost is None
            and not self._is_retired
            and self._waiter is None
            and self._pgconn.transaction_status == pq.TransactionStatus.IDLE
        )

    def retire(self) -> None:
        """Close it after this use."""
        self._is_retired = True

    def forget_statements(self) -> None:
        """Prepare all statements again, because the schema has changed."""
        self._is_stale = bool(self._names)

    async def run(self, statements: Sequence[Statement], *, role: bytes = b'') -> list[PGresult]:
        """Run the statements up to the first that fails, and raise `DatabaseError` for that one.

        They run as `role`, which shares no prepared statement with other roles.

        A transaction that a failure leaves open is rolled back. It is run once more if it may have
        failed because a table or function has changed since a statement was prepared, or because
        a prepared statement no longer exists.
        """
        if self._is_stale or len(self._names) > STATEMENTS_KEPT:
            await self._exchange([Statement(b'DEALLOCATE ALL')], prepare=False)
            self._names.clear()
            self._is_stale = False
        was_idle = self._pgconn.transaction_status == pq.TransactionStatus.IDLE
        prepared = [(role, statement.text) in self._names for statement in statements]
        try:
            return await self._exchange(statements, role=role)
        except DatabaseError as error:
            if self._pgconn.transaction_status == pq.TransactionStatus.INERROR:
                await self._exchange([Statement(b'ROLLBACK')], prepare=False)
            may_be_stale = error.sqlstate in STALE and all(prepared)
            is_gone = error.sqlstate == GONE and any(prepared)
            if not was_idle or not (may_be_stale or is_gone):
                raise
        # Nothing was done, and now everything is prepared again: there is no third attempt.
        self.forget_statements()
        return await self.run(statements, role=role)

    async def _exchange(
        self, statements: Sequence[Statement], *, role: bytes = b'', prepare: bool = True
    ) -> list[PGresult]:
        if self._why_lost is not None:
            raise ConnectionLost(self._why_lost)
        # What each result belongs to: text and name of a preparation, or None for an execution.
        expected: list[tuple[bytes, bytes] | None] = []
        self._results = []
        self._waiter = self._loop.create_future()
        try:
            for statement in statements:
                self._send(statement, expected, role=role, prepare=prepare)
            self._pgconn.pipeline_sync()
            if self._pgconn.flush():
                self._loop.add_writer(self._socket, self._write)
        except psycopg.Error as error:
            self._lose(error)
        # It stays set if the caller is cancelled here: the connection is no longer clean.
        await self._waiter
        self._waiter = None
        return self._sort(expected, role=role)

    def _send(
        self,
        statement: Statement,
        expected: list[tuple[bytes, bytes] | None],
        *,
        role: bytes,
        prepare: bool,
    ) -> None:
        if not prepare:
            self._pgconn.send_query_params(statement.text, None)
        else:
            name = self._names.get((role, statement.text))
            if name is None:
                self._named += 1
                name = b'rest_%d' % self._named
                self._pgconn.send_prepare(name, statement.text)
                expected.append((statement.text, name))
            self._pgconn.send_query_prepared(name, statement.parameters, statement.formats)
        expected.append(None)

    def _sort(self, expected: list[tuple[bytes, bytes] | None], *, role: bytes) -> list[PGresult]:
        """Record what was prepared, and return the other results."""
        executed: list[PGresult] = []
        # Not kept here: a result may be large, and the next use of the connection far away.
        results, self._results = self._results, []
        for result, preparation in zip(results, expected, strict=True):
            if result.status not in OK_STATUSES:
                raise database_error(result)
            if preparation is None:
                executed.append(result)
            else:
                text, name = preparation
                self._names[role, text] = name
        return executed

    def _read(self) -> None:
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            if self._waiter is None or self._waiter.done():
                return
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    # The end of one statement's results, or of all if the connection broke.
                    if pgconn.status != pq.ConnStatus.OK:
                        raise psycopg.OperationalError('the connection was closed')
                elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                    self._waiter.set_result(None)
                    return
                else:
                    self._results.append(result)
        except psycopg.Error as error:
            self._lose(error)

    def _write(self) -> None:
        try:
            if not self._pgconn.flush():
                self._loop.remove_writer(self._socket)
        except psycopg.Error as error:
            self._lose(error)

    def _lose(self, error: psycopg.Error) -> None:
        if self._why_lost is not None:
            return
        self._why_lost = str(error)
        self._unregister_socket()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ConnectionLost(str(error), was_refused=self._was_refused()))
        self._pgconn.finish()
        self._on_lost(self)

    def _was_refused(self) -> bool:
        """Whether the server's first answer was that it is shutting down."""
        with suppress(psycopg.Error):
            while not self._results and (result := self._pgconn.get_result()) is not None:
                self._results.append(result)
        return bool(self._results) and (
            self._results[0].error_field(pq.DiagnosticField.SQLSTATE) in SHUTTING_DOWN
        )

    def _unregister_socket(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)


def database_error(result: PGresult) -> DatabaseError:
    def field(code: pq.DiagnosticField) -> str | None:
        value = result.error_field(code)
        return None if value is None else value.decode(errors='replace')

    return DatabaseError(
        field(pq.DiagnosticField.SQLSTATE) or 'XX000',
        field(pq.DiagnosticField.MESSAGE_PRIMARY) or 'unknown error',
        details=field(pq.DiagnosticField.MESSAGE_DETAIL),
        hint=field(pq.DiagnosticField.MESSAGE_HINT),
    )

"""One connection that runs a list of statements in one round trip.

psycopg opens it; from then on libpq's pipeline mode is driven here, because psycopg's cursors cost
more than the small calls that pass through. Each statement is prepared at its first use. A
connection that the server closes is known to be lost at once, also while nobody uses it.
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
# The ways in which Postgres says that a prepared statement does not fit the schema any more.
STALE = frozenset({'0A000', '42703', '42804', 'XX000'})
# A function has deallocated it.
GONE = '26000'
OK_STATUSES = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)


class Unreachable(Exception):
    """No connection could be made."""


class Lost(Exception):
    """The connection broke; whether the work was done is known only if it `was_refused`."""

    def __init__(self, why: str, *, was_refused: bool = False) -> None:
        super().__init__(why)
        self.was_refused = was_refused


@dataclass(frozen=True, slots=True)
class Command:
    """A statement and its parameters, each in the binary or the text format.

    Text and json go as binary: their bytes are the same, and a NUL in them is refused by Postgres
    instead of ending the value early.
    """

    statement: bytes
    parameters: Sequence[bytes | None] = ()
    formats: Sequence[pq.Format] = ()


class Connection:
    """Not for use by two tasks at a time: `Pool` sees to that."""

    def __init__(
        self, connection: psycopg.AsyncConnection, *, on_lost: 'Callable[[Connection], None]'
    ) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._socket = connection.pgconn.socket
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        # By role and statement. A plan may have functions inlined in it whose EXECUTE right was
        # checked for the role that it was made for, and is not checked again for another.
        self._names: dict[tuple[bytes, bytes], bytes] = {}
        self._named = 0
        self._forgets = False
        self._is_retired = False
        self._waiter: asyncio.Future[None] | None = None
        self._results: list[PGresult] = []
        self._why_lost: str | None = None
        self._loop.add_reader(self._socket, self._read)

    @classmethod
    async def open(cls, url: str, *, on_lost: 'Callable[[Connection], None]') -> Self:
        """Log in. `on_lost` is called once if the server goes away."""
        try:
            connection = await psycopg.AsyncConnection.connect(
                url,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                application_name='silkline-rest',
            )
        except psycopg.Error as error:
            raise Unreachable(str(error)) from error
        connection.pgconn.nonblocking = 1
        connection.pgconn.enter_pipeline_mode()
        return cls(connection, on_lost=on_lost)

    async def close(self) -> None:
        # Of a lost one the socket is closed already, and its number may be another's by now.
        if self._why_lost is None:
            self._forget_socket()
        await self._connection.close()

    @property
    def is_clean(self) -> bool:
        """Whether the next transaction may start here."""
        return (
            self._why_lost is None
            and not self._is_retired
            and self._waiter is None
            and self._pgconn.transaction_status == pq.TransactionStatus.IDLE
        )

    def retire(self) -> None:
        """Have it closed after this use."""
        self._is_retired = True

    def forget_statements(self) -> None:
        """Prepare them anew: the schema that they were prepared for has changed."""
        self._forgets = bool(self._names)

    async def run(self, commands: Sequence[Command], *, role: bytes = b'') -> list[PGresult]:
        """Run the commands up to the first that fails, and raise `DatabaseError` for that one.

        `role` is the one that they run as: it shares no prepared statement with another.

        A transaction that a failure leaves open is rolled back. One that may have failed because
        a table or function is not any more what it was when the statement was prepared, or because
        a prepared statement is gone, is run once more.
        """
        if self._forgets or len(self._names) > STATEMENTS_KEPT:
            await self._exchange([Command(b'DEALLOCATE ALL')], prepare=False)
            self._names.clear()
            self._forgets = False
        was_idle = self._pgconn.transaction_status == pq.TransactionStatus.IDLE
        prepared = [(role, command.statement) in self._names for command in commands]
        try:
            return await self._exchange(commands, role=role)
        except DatabaseError as error:
            if self._pgconn.transaction_status == pq.TransactionStatus.INERROR:
                await self._exchange([Command(b'ROLLBACK')], prepare=False)
            may_be_stale = error.sqlstate in STALE and all(prepared)
            is_gone = error.sqlstate == GONE and any(prepared)
            if not was_idle or not (may_be_stale or is_gone):
                raise
        # Nothing was done, and now everything is prepared anew: there is no third time.
        self.forget_statements()
        return await self.run(commands, role=role)

    async def _exchange(
        self, commands: Sequence[Command], *, role: bytes = b'', prepare: bool = True
    ) -> list[PGresult]:
        if self._why_lost is not None:
            raise Lost(self._why_lost)
        # What each result will be of: a statement that is being prepared, or None for an answer.
        expected: list[tuple[bytes, bytes] | None] = []
        self._results = []
        self._waiter = self._loop.create_future()
        try:
            for command in commands:
                self._send(command, expected, role=role, prepare=prepare)
            self._pgconn.pipeline_sync()
            if self._pgconn.flush():
                self._loop.add_writer(self._socket, self._write)
        except psycopg.Error as error:
            self._lose(error)
        # Left set when the caller is cancelled here: the connection is not clean any more.
        await self._waiter
        self._waiter = None
        return self._sort(expected, role=role)

    def _send(
        self,
        command: Command,
        expected: list[tuple[bytes, bytes] | None],
        *,
        role: bytes,
        prepare: bool,
    ) -> None:
        if not prepare:
            self._pgconn.send_query_params(command.statement, None)
        else:
            name = self._names.get((role, command.statement))
            if name is None:
                self._named += 1
                name = b'rest_%d' % self._named
                self._pgconn.send_prepare(name, command.statement)
                expected.append((command.statement, name))
            self._pgconn.send_query_prepared(name, command.parameters, command.formats)
        expected.append(None)

    def _sort(self, expected: list[tuple[bytes, bytes] | None], *, role: bytes) -> list[PGresult]:
        """Note what was prepared, and answer the rest."""
        answers: list[PGresult] = []
        # Not kept here: an answer may be large, and the next to use the connection far off.
        results, self._results = self._results, []
        for result, preparation in zip(results, expected, strict=True):
            if result.status not in OK_STATUSES:
                raise database_error(result)
            if preparation is None:
                answers.append(result)
            else:
                statement, name = preparation
                self._names[role, statement] = name
        return answers

    def _read(self) -> None:
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            if self._waiter is None or self._waiter.done():
                return
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    # The end of one command's results; of all, if the connection broke.
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
        self._forget_socket()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(Lost(str(error), was_refused=self._was_refused()))
        self._pgconn.finish()
        self._on_lost(self)

    def _was_refused(self) -> bool:
        """Whether the first thing that the server said is that it will not go on."""
        with suppress(psycopg.Error):
            while not self._results and (result := self._pgconn.get_result()) is not None:
                self._results.append(result)
        return bool(self._results) and (
            self._results[0].error_field(pq.DiagnosticField.SQLSTATE) in SHUTTING_DOWN
        )

    def _forget_socket(self) -> None:
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

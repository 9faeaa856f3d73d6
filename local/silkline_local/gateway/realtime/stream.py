"""Rows of realtime.messages, as they are committed.

Owns the replication connection: a temporary slot, the walsender protocol over libpq, and
reconnecting after an outage. Rows that are committed while it is disconnected are not delivered.
`pgoutput.py` decodes the bytes; `delivery.py` decides who gets a row.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from uuid import uuid4

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow

from silkline_local.gateway.realtime.pgoutput import (
    Keepalive,
    MalformedStream,
    MessageRow,
    RowDecoder,
    decode_envelope,
    encode_status,
)

logger = logging.getLogger(__name__)

PUBLICATION = 'supabase_realtime_messages_publication'
STATUS_EVERY_SECONDS = 10.0
# After new rows, so that WAL does not pile up.
PROGRESS_EVERY_SECONDS = 1.0
FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 2.0
# Rows handled before other tasks get a turn.
BATCH = 50


class StreamEnded(Exception):
    """The server ended the stream; it is restarted."""


class DatabaseStream:
    """`follow` calls `receive` for each row; `is_up` says whether rows are arriving now."""

    def __init__(
        self, url: str, receive: Callable[[MessageRow], None], *, on_up: Callable[[], None]
    ) -> None:
        self._url = url
        self._receive = receive
        self._on_up = on_up
        self.up = asyncio.Event()

    @property
    def is_up(self) -> bool:
        return self.up.is_set()

    async def follow(self) -> None:
        """Stream forever; reconnect whenever the connection ends."""
        delay = FIRST_RETRY_SECONDS
        is_logged = False
        while True:
            try:
                await self._follow_once()
            except (psycopg.Error, StreamEnded, MalformedStream, TimeoutError) as error:
                if self.is_up or not is_logged:
                    logger.warning(
                        'database broadcasts stopped, retrying: %s',
                        str(error).strip().partition('\n')[0],
                    )
                is_logged = True
            if self.is_up:
                delay = FIRST_RETRY_SECONDS
            self.up.clear()
            await asyncio.sleep(delay)
            delay = min(delay * 2, LAST_RETRY_SECONDS)

    async def _follow_once(self) -> None:
        connection = await psycopg.AsyncConnection[TupleRow].connect(
            self._url,
            autocommit=True,
            replication='database',
            application_name='realtime_replication_connection',
            client_encoding='UTF8',
            # The format that `delivery.py` reads, whatever the database is set to.
            options='-c bytea_output=hex',
            connect_timeout=5,
        )
        try:
            slot = f'supabase_realtime_messages_{uuid4().hex}'
            # No timeout: it waits until all running transactions have ended.
            creation = (
                f'CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT'
            )
            await connection.execute(creation.encode())
            await Walsender(connection.pgconn, self._receive, on_up=self._announce).run(
                f'START_REPLICATION SLOT {slot} LOGICAL 0/0'
                f" (proto_version '1', publication_names '{PUBLICATION}')"
            )
        finally:
            await connection.close()

    def _announce(self) -> None:
        self.up.set()
        logger.info('database broadcasts are streaming')
        self._on_up()


class Walsender:
    """One connection in replication mode, read as its socket becomes readable."""

    def __init__(
        self,
        connection: pq.abc.PGconn,
        receive: Callable[[MessageRow], None],
        *,
        on_up: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._receive = receive
        self._on_up = on_up
        self._readable = asyncio.Event()
        self._decoder = RowDecoder()
        self._position = 0
        self._reported = 0
        self._reported_at = time.monotonic()

    async def run(self, command: str) -> None:
        loop = asyncio.get_running_loop()
        socket = self._connection.socket
        loop.add_reader(socket, self._readable.set)
        try:
            await self._start(command)
            self._on_up()
            await self._stream()
        finally:
            loop.remove_reader(socket)

    async def _start(self, command: str) -> None:
        self._connection.send_query(command.encode())
        self._connection.flush()
        while self._connection.is_busy():
            await self._read()
        result = self._connection.get_result()
        if result is None or result.status != pq.ExecStatus.COPY_BOTH:
            reason = '' if result is None else result.error_message.decode(errors='replace')
            raise StreamEnded(reason or 'no stream was started')

    async def _stream(self) -> None:
        handled = 0
        while True:
            size, data = self._connection.get_copy_data(1)
            if size < 0:
                result = self._connection.get_result()
                reason = '' if result is None else result.error_message.decode(errors='replace')
                raise StreamEnded(reason or 'the server ended the stream')
            if size == 0:
                handled = 0
                await self._read()
            else:
                self._handle(bytes(data))
                handled += 1
                if handled % BATCH == 0:
                    await asyncio.sleep(0)
            silent_seconds = time.monotonic() - self._reported_at
            if silent_seconds >= (
                STATUS_EVERY_SECONDS if self._reported == self._position else PROGRESS_EVERY_SECONDS
            ):
                self._report()

    async def _read(self) -> None:
        """Wait until there is something to read, or a status report is due."""
        self._readable.clear()
        try:
            async with asyncio.timeout(PROGRESS_EVERY_SECONDS):
                await self._readable.wait()
        except TimeoutError:
            return
        self._connection.consume_input()

    def _handle(self, data: bytes) -> None:
        envelope = decode_envelope(data)
        self._position = max(self._position, envelope.position)
        if isinstance(envelope, Keepalive):
            if envelope.wants_reply:
                self._report()
            return
        row = self._decoder.decode(envelope.message)
        if row is not None:
            self._receive(row)

    def _report(self) -> None:
        """Report the position up to which all is handled, so that the server can free its WAL."""
        self._reported_at = time.monotonic()
        self._reported = self._position
        self._connection.put_copy_data(encode_status(self._position))
        self._connection.flush()

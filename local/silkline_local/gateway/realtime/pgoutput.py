"""What Postgres sends to a logical replication client: `pgoutput` messages, protocol 1.

Owns their decoding, and the status replies of a client. Only inserts into realtime.messages are
returned. `stream.py` reads the bytes.
"""

import struct
import time
from dataclasses import dataclass
from datetime import UTC, datetime

WAL_DATA = ord('w')
KEEPALIVE = ord('k')
RELATION = ord('R')
INSERT = ord('I')

EPOCH = datetime(2000, 1, 1, tzinfo=UTC).timestamp()

MessageRow = dict[str, bytes | None]


class MalformedStream(Exception):
    """Bytes that are not pgoutput: the stream is restarted."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    position: int
    wants_reply: bool


@dataclass(frozen=True, slots=True)
class WalData:
    position: int
    message: bytes


def decode_envelope(data: bytes) -> Keepalive | WalData:
    """Decode what a walsender sends: WAL, or a keepalive."""
    try:
        if data[0] == WAL_DATA:
            start, end = struct.unpack_from('>QQ', data, 1)
            return WalData(max(start, end), data[25:])
        if data[0] == KEEPALIVE:
            end, _, wants_reply = struct.unpack_from('>QQB', data, 1)
            return Keepalive(end, bool(wants_reply))
    except (IndexError, struct.error) as error:
        raise MalformedStream(f'a message of {len(data)} bytes ends early') from error
    raise MalformedStream(f'a message of kind {data[:1]!r}')


def encode_status(position: int) -> bytes:
    """The reply that everything up to `position` has been handled."""
    now = int((time.time() - EPOCH) * 1_000_000)
    return struct.pack('>cQQQqB', b'r', position, position, position, now, 0)


class RowDecoder:
    """Remembers the columns of each relation, as the protocol requires."""

    def __init__(self) -> None:
        self._relations: dict[int, tuple[str, ...]] = {}

    def decode(self, message: bytes) -> MessageRow | None:
        """The row inserted into realtime.messages or a partition of it, or None."""
        try:
            if message[0] == INSERT:
                return self._decode_insert(message)
            if message[0] == RELATION:
                self._decode_relation(message)
        except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
            raise MalformedStream(f'a message of kind {message[:1]!r}: {error}') from error
        return None

    def _decode_relation(self, message: bytes) -> None:
        (relation,) = struct.unpack_from('>I', message, 1)
        schema, at = read_string(message, 5)
        name, at = read_string(message, at)
        (count,) = struct.unpack_from('>H', message, at + 1)
        at += 3
        columns: list[str] = []
        for _ in range(count):
            column, at = read_string(message, at + 1)
            columns.append(column)
            at += 8
        # Oids are reused: drop what is known of an earlier table.
        self._relations.pop(relation, None)
        if schema == 'realtime' and name.startswith('messages'):
            self._relations[relation] = tuple(columns)

    def _decode_insert(self, message: bytes) -> MessageRow | None:
        (relation,) = struct.unpack_from('>I', message, 1)
        columns = self._relations.get(relation)
        if columns is None:
            return None
        (count,) = struct.unpack_from('>H', message, 6)
        if count != len(columns):
            raise ValueError(f'{count} values for {len(columns)} columns')
        at = 8
        row: MessageRow = {}
        for column in columns:
            kind = message[at]
            at += 1
            if kind in (ord('n'), ord('u')):
                row[column] = None
                continue
            (size,) = struct.unpack_from('>I', message, at)
            at += 4
            if at + size > len(message):
                raise ValueError('a value ends early')
            row[column] = message[at : at + size]
            at += size
        return row


def read_string(message: bytes, start: int) -> tuple[str, int]:
    end = message.index(0, start)
    return message[start:end].decode(), end + 1

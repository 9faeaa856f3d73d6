"""What a walsender sends, byte for byte."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silkline_local.gateway.realtime.pgoutput import (
    Keepalive,
    MalformedStream,
    RowDecoder,
    WalData,
    decode_envelope,
    encode_status,
)


def relation(number: int, schema: str, name: str, columns: list[str]) -> bytes:
    head = b'R' + struct.pack('>I', number) + f'{schema}\0{name}\0d'.encode()
    tail = b''.join(b'\0' + column.encode() + b'\0' + bytes(8) for column in columns)
    return head + struct.pack('>H', len(columns)) + tail


def insert(number: int, values: list[bytes | None]) -> bytes:
    parts = [
        b'n' if value is None else b't' + struct.pack('>I', len(value)) + value for value in values
    ]
    return (
        b'I' + struct.pack('>I', number) + b'N' + struct.pack('>H', len(values)) + b''.join(parts)
    )


def test_an_insert_is_decoded_with_the_columns_of_its_relation() -> None:
    decoder = RowDecoder()
    assert decoder.decode(relation(5, 'realtime', 'messages_2026_11_16', ['id', 'topic'])) is None
    assert decoder.decode(insert(5, [b'x', None])) == {'id': b'x', 'topic': None}


def test_other_tables_are_ignored() -> None:
    decoder = RowDecoder()
    decoder.decode(relation(5, 'public', 'messages', ['id']))
    assert decoder.decode(insert(5, [b'x'])) is None
    assert decoder.decode(insert(6, [b'x'])) is None
    assert decoder.decode(b'B' + bytes(20)) is None
    assert decoder.decode(b'C' + bytes(25)) is None


def test_a_reused_oid_means_the_newer_table() -> None:
    decoder = RowDecoder()
    decoder.decode(relation(5, 'realtime', 'messages_2026_11_16', ['id']))
    decoder.decode(relation(5, 'public', 'things', ['id']))
    assert decoder.decode(insert(5, [b'x'])) is None


def test_a_row_that_does_not_fit_its_columns_is_malformed() -> None:
    decoder = RowDecoder()
    decoder.decode(relation(5, 'realtime', 'messages', ['id', 'topic']))
    with pytest.raises(MalformedStream):
        decoder.decode(insert(5, [b'x']))
    with pytest.raises(MalformedStream):
        decoder.decode(insert(5, [b'x', b'yy'])[:-1])


def test_keepalives_and_data_are_distinguished() -> None:
    assert decode_envelope(b'k' + struct.pack('>QQB', 77, 0, 1)) == Keepalive(77, True)
    assert decode_envelope(b'w' + struct.pack('>QQQ', 5, 9, 0) + b'C') == WalData(9, b'C')


def test_a_status_contains_the_position_three_times() -> None:
    status = encode_status(258)
    assert status[:1] == b'r'
    assert status[1:25] == (258).to_bytes(8, 'big') * 3
    assert len(status) == 34


@given(st.binary(max_size=60))
def test_garbage_raises_malformed_only(data: bytes) -> None:
    decoder = RowDecoder()
    decoder.decode(relation(0, 'realtime', 'messages', ['id']))
    for read in (decode_envelope, decoder.decode):
        try:
            read(data)
        except MalformedStream:
            pass

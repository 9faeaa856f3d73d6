"""Frames of both protocol versions, byte for byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silkline_local.gateway.realtime.broadcasts import TextBroadcast, UserBroadcast
from silkline_local.gateway.realtime.frames import (
    MalformedFrame,
    ProtocolVersion,
    UserPush,
    decode,
    encode,
    websocket_frame,
)
from tests.support.phoenix import push_frame, read_binary

SHORT_TEXT = st.text(st.characters(codec='utf-8'), max_size=50)


def body(frame: bytes | None) -> bytes:
    """What a WebSocket frame carries."""
    assert frame is not None
    size = frame[1]
    assert not size & 0x80, 'a server does not mask'
    start = {126: 4, 127: 10}.get(size, 2)
    if start > 2:
        size = int.from_bytes(frame[2:start], 'big')
    assert len(frame) == start + size
    return frame[start:]


def test_a_version_1_frame_is_an_object() -> None:
    incoming = decode(
        ProtocolVersion.ONE,
        '{"topic":"realtime:a","event":"phx_join","payload":{"x": 1},"ref":"7","join_ref":"7"}',
    )
    assert (incoming.topic, incoming.event) == ('realtime:a', 'phx_join')
    assert (incoming.ref, incoming.join_ref) == (b'"7"', b'"7"')
    assert incoming.payload == b'{"x": 1}'


def test_a_version_1_frame_may_lack_its_references() -> None:
    incoming = decode(ProtocolVersion.ONE, '{"topic":"phoenix","event":"heartbeat","payload":{}}')
    assert (incoming.ref, incoming.join_ref) == (b'null', b'null')


def test_a_version_2_frame_is_an_array() -> None:
    incoming = decode(ProtocolVersion.TWO, '["6","9","realtime:jobs","broadcast",{"a":[1,2]}]')
    assert (incoming.topic, incoming.event) == ('realtime:jobs', 'broadcast')
    assert (incoming.ref, incoming.join_ref) == (b'"9"', b'"6"')
    assert incoming.payload == b'{"a":[1,2]}'


def test_a_binary_push_is_decoded_byte_for_byte() -> None:
    data = (
        b'\x03\x01\x02\x06\x05\x02\x01' + b'6' + b'12' + b'real:t' + b'event' + b'{}' + b'{"a":1}'
    )
    incoming = decode(ProtocolVersion.TWO, data)
    assert (incoming.join_ref, incoming.ref) == (b'"6"', b'"12"')
    assert (incoming.topic, incoming.event) == ('real:t', 'broadcast')
    assert incoming.push == UserPush('event', b'{"a":1}', is_json=True)


def test_a_user_broadcast_is_encoded_byte_for_byte() -> None:
    broadcast = UserBroadcast('t', 'ev', b'{"a":1}', is_json=True, id='i')
    expected = b'\x04\x0a\x02\x0a\x01' + b'realtime:t' + b'ev' + b'{"id":"i"}' + b'{"a":1}'
    assert broadcast.frame(ProtocolVersion.TWO) == b'\x82' + bytes([len(expected)]) + expected


def test_a_binary_user_broadcast_is_marked_as_such() -> None:
    frame = UserBroadcast('t', 'ev', b'\x00\xff', is_json=False).frame(ProtocolVersion.TWO)
    assert body(frame) == b'\x04\x0a\x02\x00\x00' + b'realtime:t' + b'ev' + b'\x00\xff'


def test_version_1_clients_get_a_user_broadcast_as_json() -> None:
    frame = UserBroadcast('t', 'ev', b'{"a":1}', is_json=True, id='i').frame(ProtocolVersion.ONE)
    assert json.loads(body(frame)) == {
        'topic': 'realtime:t',
        'event': 'broadcast',
        'ref': None,
        'payload': {'type': 'broadcast', 'event': 'ev', 'payload': {'a': 1}, 'meta': {'id': 'i'}},
    }


@pytest.mark.parametrize('payload', [b'\xff', b'{"a":', b'{} {}', b'"\xff"', b''])
def test_version_1_clients_do_not_get_payloads_that_are_not_json(payload: bytes) -> None:
    assert UserBroadcast('t', 'ev', payload, is_json=True).frame(ProtocolVersion.ONE) is None
    assert UserBroadcast('t', 'ev', payload, is_json=False).frame(ProtocolVersion.ONE) is None


def test_names_too_long_for_a_length_byte_are_sent_as_text() -> None:
    broadcast = UserBroadcast('t', 'e' * 256, b'{"a":1}', is_json=True, id='i')
    assert json.loads(body(broadcast.frame(ProtocolVersion.TWO))) == [
        None,
        None,
        'realtime:t',
        'broadcast',
        {'type': 'broadcast', 'event': 'e' * 256, 'payload': {'a': 1}, 'meta': {'id': 'i'}},
    ]


def test_a_text_broadcast_is_sent_as_it_was_received() -> None:
    broadcast = TextBroadcast('t', b'{"type":"broadcast", "more":  1.0}')
    assert b'{"type":"broadcast", "more":  1.0}' in body(broadcast.frame(ProtocolVersion.ONE))
    assert json.loads(body(broadcast.frame(ProtocolVersion.TWO)))[:4] == [
        None,
        None,
        'realtime:t',
        'broadcast',
    ]


def test_a_frame_is_encoded_once_for_all_sockets() -> None:
    broadcast = UserBroadcast('t', 'ev', b'{}', is_json=True)
    assert broadcast.frame(ProtocolVersion.TWO) is broadcast.frame(ProtocolVersion.TWO)
    assert broadcast.frame(ProtocolVersion.ONE) is broadcast.frame(ProtocolVersion.ONE)


@pytest.mark.parametrize('size', [0, 125, 126, 65535, 65536, 200_000])
def test_websocket_frames_of_every_length_are_whole(size: int) -> None:
    assert body(websocket_frame(1, b'x' * size)) == b'x' * size


@given(SHORT_TEXT, SHORT_TEXT, SHORT_TEXT, st.binary(max_size=300), st.booleans())
def test_a_push_is_decoded_and_encoded_without_loss(
    ref: str, topic: str, event: str, payload: bytes, is_json: bool
) -> None:
    data = push_frame(topic, event, payload, int(is_json), ref=ref)
    incoming = decode(ProtocolVersion.TWO, data)
    assert incoming.push == UserPush(event, payload, is_json=is_json)
    assert json.loads(incoming.ref) == ref
    assert incoming.topic == topic
    sent = UserBroadcast(topic, event, payload, is_json=False).frame(ProtocolVersion.TWO)
    received = read_binary(body(sent))
    assert received.topic == f'realtime:{topic}'
    assert received.payload == {'type': 'broadcast', 'event': event, 'payload': payload}


@given(SHORT_TEXT, SHORT_TEXT, st.dictionaries(SHORT_TEXT, st.integers() | SHORT_TEXT))
def test_encoded_text_frames_of_both_versions_can_be_decoded(
    topic: str, event: str, payload: dict[str, object]
) -> None:
    text = json.dumps(payload).encode()
    for version in ProtocolVersion:
        frame = encode(version, topic, event, text, join_ref=b'"1"', ref=b'"2"')
        incoming = decode(version, body(frame).decode())
        assert (incoming.topic, incoming.event, incoming.payload) == (topic, event, text)
        assert incoming.ref == b'"2"'


@given(st.sampled_from(ProtocolVersion), st.text() | st.binary())
def test_garbage_raises_malformed_only(version: ProtocolVersion, data: str | bytes) -> None:
    try:
        decode(version, data)
    except MalformedFrame:
        pass


@given(st.binary(max_size=40))
def test_garbage_after_a_push_header_raises_malformed_only(data: bytes) -> None:
    try:
        decode(ProtocolVersion.TWO, b'\x03' + data)
    except MalformedFrame:
        pass


@pytest.mark.parametrize(
    'text',
    [
        '',
        'null',
        '[]',
        '{}',
        '["1","2","t","e"]',
        '["1","2",3,"e",{}]',
        '["1","2","t",null,{}]',
        '[["1"],"2","t","e",{}]',
        '["1","2","t","e",{bad}]',
        '[' * 100_000,
    ],
)
def test_text_that_is_not_a_frame_is_malformed(text: str) -> None:
    for version in ProtocolVersion:
        with pytest.raises(MalformedFrame):
            decode(version, text)


def test_version_1_has_no_binary_frames() -> None:
    with pytest.raises(MalformedFrame, match='vsn'):
        decode(ProtocolVersion.ONE, push_frame('realtime:t', 'e', b'{}', 1))

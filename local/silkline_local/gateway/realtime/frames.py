"""Frames of the Phoenix protocol, both versions, and the bytes of a WebSocket around them.

Version 1 has a JSON object per frame, version 2 a JSON array, or bytes for broadcasts. Owns both
directions; `socket.py` decides what a frame means. References and payloads stay the JSON text that
the client wrote: they are passed on, never re-encoded.
"""

import enum
from dataclasses import dataclass
from typing import Final

import msgspec

USER_BROADCAST_PUSH: Final = 3
USER_BROADCAST: Final = 4
BINARY_ENCODING: Final = 0
JSON_ENCODING: Final = 1
LONGEST_FIELD_BYTES: Final = 255

TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8

NULL: Final = b'null'
EMPTY: Final = b'{}'


class MalformedFrame(Exception):
    """A frame that breaks the protocol; the message says how."""


class ProtocolVersion(enum.Enum):
    ONE = '1.0.0'
    TWO = '2.0.0'


@dataclass(frozen=True, slots=True)
class UserPush:
    """A broadcast that came as bytes: its payload is the sender's, JSON or not."""

    event: str
    payload: bytes
    is_json: bool


@dataclass(frozen=True, slots=True)
class IncomingFrame:
    """One frame of a client. References are JSON, and so is `payload` unless `push` is set."""

    join_ref: bytes
    ref: bytes
    topic: str
    event: str
    payload: bytes
    push: UserPush | None = None


class ObjectFrame(msgspec.Struct):
    topic: str
    event: str
    payload: msgspec.Raw
    ref: msgspec.Raw = msgspec.Raw(NULL)
    join_ref: msgspec.Raw = msgspec.Raw(NULL)


OBJECT_DECODER = msgspec.json.Decoder(ObjectFrame)
ARRAY_DECODER = msgspec.json.Decoder(list[msgspec.Raw])
STRING_DECODER = msgspec.json.Decoder(str)
RAW_DECODER = msgspec.json.Decoder(msgspec.Raw)


def decode(version: ProtocolVersion, data: str | bytes) -> IncomingFrame:
    """Decode one frame of a client. Raises `MalformedFrame`."""
    try:
        if isinstance(data, bytes):
            if version is ProtocolVersion.ONE:
                raise MalformedFrame('binary frames need vsn=2.0.0')
            return decode_push(data)
        return decode_object(data) if version is ProtocolVersion.ONE else decode_array(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFrame(str(error)) from error


def decode_object(text: str) -> IncomingFrame:
    frame = OBJECT_DECODER.decode(text)
    return IncomingFrame(
        join_ref=reference(frame.join_ref),
        ref=reference(frame.ref),
        topic=frame.topic,
        event=frame.event,
        payload=bytes(frame.payload),
    )


def decode_array(text: str) -> IncomingFrame:
    fields = ARRAY_DECODER.decode(text)
    if len(fields) < 5:
        raise MalformedFrame('a frame is [join_ref, ref, topic, event, payload]')
    return IncomingFrame(
        join_ref=reference(fields[0]),
        ref=reference(fields[1]),
        topic=STRING_DECODER.decode(fields[2]),
        event=STRING_DECODER.decode(fields[3]),
        payload=bytes(fields[4]),
    )


def decode_push(data: bytes) -> IncomingFrame:
    """Decode kind 3: lengths, encoding, fields, and the payload up to the end."""
    if len(data) < 7 or data[0] != USER_BROADCAST_PUSH:
        raise MalformedFrame('a binary frame is a user broadcast push (kind 3)')
    sizes = data[1:6]
    start = 7
    fields: list[bytes] = []
    for size in sizes:
        fields.append(data[start : start + size])
        start += size
    if start > len(data):
        raise MalformedFrame('a binary frame is shorter than its lengths say')
    join_ref, ref, topic, event, metadata = fields
    if metadata:
        RAW_DECODER.decode(metadata)
    return IncomingFrame(
        join_ref=quote(join_ref.decode()),
        ref=quote(ref.decode()),
        topic=topic.decode(),
        event='broadcast',
        payload=EMPTY,
        push=UserPush(
            event=event.decode(), payload=data[start:], is_json=data[6] != BINARY_ENCODING
        ),
    )


def decode_payload(payload: bytes) -> object:
    """Decode the payload of a frame. Raises `MalformedFrame`, if only for a number too large."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedFrame(str(error)) from error


def encode(
    version: ProtocolVersion, topic: str, event: str, payload: bytes, *, join_ref: bytes, ref: bytes
) -> bytes:
    """Build a text frame, ready to be written."""
    if version is ProtocolVersion.ONE:
        body = b'{"topic":%b,"event":%b,"payload":%b,"ref":%b}' % (
            quote(topic),
            quote(event),
            payload,
            ref,
        )
    else:
        body = b'[%b,%b,%b,%b,%b]' % (join_ref, ref, quote(topic), quote(event), payload)
    return websocket_frame(TEXT, body)


def encode_user_broadcast(
    topic: str, event: str, payload: bytes, *, metadata: bytes, is_json: bool
) -> bytes | None:
    """Build kind 4, ready to be written; None if a field is too long for its length byte."""
    fields = (topic.encode(), event.encode(), metadata)
    if max(map(len, fields)) > LONGEST_FIELD_BYTES:
        return None
    header = bytes(
        (
            USER_BROADCAST,
            *map(len, fields),
            JSON_ENCODING if is_json else BINARY_ENCODING,
        )
    )
    return websocket_frame(BINARY, b''.join((header, *fields, payload)))


def websocket_frame(opcode: int, body: bytes) -> bytes:
    """Frame a whole message, unmasked as servers do, so that one copy fits every socket."""
    size = len(body)
    if size < 126:
        header = bytes((0x80 | opcode, size))
    elif size < 65536:
        header = bytes((0x80 | opcode, 126)) + size.to_bytes(2, 'big')
    else:
        header = bytes((0x80 | opcode, 127)) + size.to_bytes(8, 'big')
    return header + body


def is_json(text: bytes) -> bool:
    """Whether the bytes are one JSON value that can be put into a text frame."""
    try:
        text.decode()
        RAW_DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def quote(text: str) -> bytes:
    return msgspec.json.encode(text)


def reference(raw: msgspec.Raw) -> bytes:
    text = bytes(raw)
    if text[:1] in (b'{', b'['):
        raise MalformedFrame('references are strings')
    return text

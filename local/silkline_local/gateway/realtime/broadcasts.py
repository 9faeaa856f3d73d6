"""Messages on their way to many sockets.

Owns how a broadcast looks to clients of each protocol version; it is encoded once per version. Who
gets it is decided by `channels.py`.
"""

from typing import Protocol

from silkline_local.gateway.realtime.frames import (
    NULL,
    ProtocolVersion,
    encode,
    encode_user_broadcast,
    is_json,
    quote,
)

PREFIX = 'realtime:'


class Broadcast(Protocol):
    """What a channel delivers."""

    def frame(self, version: ProtocolVersion) -> bytes | None:
        """The frame for clients of that version; None if it cannot be sent to them."""
        ...


class TextBroadcast:
    """A payload object that clients get as it was sent: `{type, event, payload}`."""

    __slots__ = ('_frames', '_payload', '_topic')

    def __init__(self, topic: str, payload: bytes) -> None:
        self._topic = PREFIX + topic
        self._payload = payload
        self._frames: dict[ProtocolVersion, bytes] = {}

    def frame(self, version: ProtocolVersion) -> bytes | None:
        frame = self._frames.get(version)
        if frame is None:
            frame = encode(
                version, self._topic, 'broadcast', self._payload, join_ref=NULL, ref=NULL
            )
            self._frames[version] = frame
        return frame


class UserBroadcast:
    """A payload with a separate event: bytes for version 2, wrapped in JSON for version 1.

    `id` is that of the row if the message came from the database.
    """

    __slots__ = ('_event', '_frames', '_is_json', '_meta', '_payload', '_topic')

    def __init__(
        self,
        topic: str,
        event: str,
        payload: bytes,
        *,
        is_json: bool,
        id: str | None = None,
    ) -> None:
        self._topic = PREFIX + topic
        self._event = event
        self._payload = payload
        self._is_json = is_json
        self._meta = b'' if id is None else b'{"id":%b}' % quote(id)
        self._frames: dict[ProtocolVersion, bytes | None] = {}

    def frame(self, version: ProtocolVersion) -> bytes | None:
        if version not in self._frames:
            self._frames[version] = self._encode(version)
        return self._frames[version]

    def _encode(self, version: ProtocolVersion) -> bytes | None:
        if version is ProtocolVersion.TWO:
            frame = encode_user_broadcast(
                self._topic,
                self._event,
                self._payload,
                metadata=self._meta,
                is_json=self._is_json,
            )
            if frame is not None:
                return frame
        if not self._is_json or not is_json(self._payload):
            return None
        return encode(
            version,
            self._topic,
            'broadcast',
            text_payload(self._event, self._payload, meta=self._meta),
            join_ref=NULL,
            ref=NULL,
        )


def text_payload(event: str, payload: bytes, *, meta: bytes = b'') -> bytes:
    """Wrap a payload, which is JSON already, as a text broadcast."""
    return b'{"type":"broadcast","event":%b,"payload":%b%b}' % (
        quote(event),
        payload,
        b',"meta":' + meta if meta else b'',
    )

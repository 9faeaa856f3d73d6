"""A Realtime client that exposes raw frames, one at a time.

Owns the two forms of a frame, so that a test controls what it sends and sees what it gets. It never
reconnects, never sends heartbeats, and fails the test if an expected frame does not arrive.
"""

import json
import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection

V1 = '1.0.0'
V2 = '2.0.0'
SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Frame:
    topic: str
    event: str
    payload: Any
    ref: str | None = None
    join_ref: str | None = None
    is_binary: bool = False

    @property
    def status(self) -> str:
        return self.payload['status']

    @property
    def reason(self) -> str:
        return self.payload['response']['reason']


class Phoenix:
    """One open socket."""

    def __init__(self, connection: Connection, version: str) -> None:
        self.connection = connection
        self.version = version
        self._ref = 0

    def join(
        self,
        topic: str,
        *,
        private: bool = False,
        token: str | None = None,
        expect: str = 'ok',
        receives_own: bool = False,
        **broadcast: Any,
    ) -> Frame:
        """Join `realtime:<topic>` and return the reply."""
        config: dict[str, Any] = {
            'broadcast': {'ack': False, 'self': receives_own, **broadcast},
            'presence': {'key': '', 'enabled': False},
            'postgres_changes': [],
            'private': private,
        }
        payload = {'config': config} if token is None else {'config': config, 'access_token': token}
        ref = self.push(f'realtime:{topic}', 'phx_join', payload, is_join=True)
        reply = self.receive_reply(ref)
        assert reply.status == expect, reply
        return reply

    def push(
        self,
        topic: str,
        event: str,
        payload: Any,
        *,
        is_join: bool = False,
        join_ref: str | None = None,
    ) -> str:
        self._ref += 1
        ref = str(self._ref)
        join_ref = ref if is_join else join_ref
        frame: Any = [join_ref, ref, topic, event, payload]
        if self.version == V1:
            frame = {
                'topic': topic,
                'event': event,
                'payload': payload,
                'ref': ref,
                'join_ref': join_ref,
            }
        self.connection.send(json.dumps(frame))
        return ref

    def broadcast(self, topic: str, event: str, payload: Any) -> str:
        """Send as text, like version 1 clients."""
        return self.push(
            f'realtime:{topic}',
            'broadcast',
            {'type': 'broadcast', 'event': event, 'payload': payload},
        )

    def broadcast_binary(self, topic: str, event: str, payload: bytes, *, encoding: int) -> str:
        """Send as bytes, like version 2 clients."""
        self._ref += 1
        ref = str(self._ref)
        self.connection.send(push_frame(f'realtime:{topic}', event, payload, encoding, ref=ref))
        return ref

    def receive(self, *, seconds: float = SECONDS) -> Frame:
        data = self.connection.recv(timeout=seconds)
        if isinstance(data, bytes):
            return read_binary(data)
        body = json.loads(data)
        if self.version == V1:
            assert set(body) == {'topic', 'event', 'payload', 'ref'}, body
            return Frame(body['topic'], body['event'], body['payload'], body['ref'])
        join_ref, ref, topic, event, payload = body
        return Frame(topic, event, payload, ref, join_ref)

    def receive_reply(self, ref: str) -> Frame:
        frame = self.receive()
        assert (frame.event, frame.ref) == ('phx_reply', ref), frame
        return frame

    def receive_broadcast(self) -> Any:
        """The `{type, event, payload, meta}` of the next frame, which must be a broadcast."""
        frame = self.receive()
        assert frame.event == 'broadcast', frame
        return frame.payload

    def receive_until(self, condition: Callable[[Frame], bool]) -> list[Frame]:
        frames = [self.receive()]
        while not condition(frames[-1]):
            frames.append(self.receive())
        return frames

    def heartbeat(self) -> None:
        """A round trip. Any other frame fails the test, so nothing else was sent before."""
        assert self.receive_reply(self.push('phoenix', 'heartbeat', {})).status == 'ok'

    def receive_close(self, *, seconds: float = SECONDS) -> int | None:
        """Read until the connection closes, and return the close code of the server."""
        try:
            while True:
                self.connection.recv(timeout=seconds)
        except ConnectionClosed as closed:
            return None if closed.rcvd is None else closed.rcvd.code


@contextmanager
def open_socket(
    url: str, key: str, *, version: str = V1, max_size: int | None = None
) -> Generator[Phoenix]:
    query = urlencode({'apikey': key, 'vsn': version})
    address = f'{url.replace("http", "ws", 1)}/realtime/v1/websocket?{query}'
    with connect(address, max_size=max_size, open_timeout=SECONDS, close_timeout=1) as connection:
        yield Phoenix(connection, version)


def push_frame(
    topic: str,
    event: str,
    payload: bytes,
    encoding: int,
    *,
    ref: str = '1',
    join_ref: str = '1',
    metadata: bytes = b'',
) -> bytes:
    """A frame of kind 3."""
    fields = (join_ref.encode(), ref.encode(), topic.encode(), event.encode(), metadata)
    header = struct.pack('7B', 3, *map(len, fields), encoding)
    return header + b''.join(fields) + payload


def read_binary(data: bytes) -> Frame:
    """Decode kind 4 into the form of a text broadcast."""
    kind, topic_size, event_size, metadata_size, encoding = struct.unpack_from('5B', data)
    assert kind == 4, data
    ends = (
        5 + topic_size,
        5 + topic_size + event_size,
        5 + topic_size + event_size + metadata_size,
    )
    payload: Any = data[ends[2] :]
    body: dict[str, Any] = {
        'type': 'broadcast',
        'event': data[ends[0] : ends[1]].decode(),
        'payload': json.loads(payload) if encoding == 1 else payload,
    }
    if metadata_size:
        body['meta'] = json.loads(data[ends[1] : ends[2]])
    return Frame(data[5 : ends[0]].decode(), 'broadcast', body, is_binary=True)

"""The joined channels of all sockets, by topic.

Owns membership and the delivery of broadcasts. A private and a public channel of the same name are
two topics. `socket.py` decides about joining, leaving and everything else a client may do.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from silkline_local.gateway.callers import Caller
from silkline_local.gateway.realtime.broadcasts import PREFIX, Broadcast
from silkline_local.gateway.realtime.frames import ProtocolVersion


class Subscriber(Protocol):
    """The socket that a channel was joined on; see `socket.py`."""

    version: ProtocolVersion

    def send(self, frame: bytes) -> None: ...

    def send_system(self, channel: 'JoinedChannel', status: str, message: str) -> None: ...

    def shut_down(self, channel: 'JoinedChannel', message: str) -> None: ...


@dataclass(slots=True, eq=False)
class JoinedChannel:
    """One join of one socket. `may_write` is checked at the first broadcast and then cached."""

    socket: Subscriber
    topic: str
    join_ref: bytes
    caller: Caller
    is_private: bool
    wants_ack: bool
    receives_own: bool
    token: str | None = None
    may_write: bool | None = None
    expiry: asyncio.TimerHandle | None = None

    @property
    def wire_topic(self) -> str:
        return PREFIX + self.topic

    def deliver(self, broadcast: Broadcast) -> None:
        frame = broadcast.frame(self.socket.version)
        if frame is not None:
            self.socket.send(frame)


class Hub:
    """All joined channels."""

    def __init__(self) -> None:
        self._members: dict[tuple[bool, str], dict[JoinedChannel, None]] = {}

    def add(self, channel: JoinedChannel) -> None:
        self._members.setdefault((channel.is_private, channel.topic), {})[channel] = None

    def remove(self, channel: JoinedChannel) -> None:
        key = (channel.is_private, channel.topic)
        members = self._members.get(key)
        if members is None or channel not in members:
            return
        del members[channel]
        if not members:
            del self._members[key]

    def deliver(
        self,
        broadcast: Broadcast,
        *,
        topic: str,
        is_private: bool,
        sender: JoinedChannel | None = None,
    ) -> None:
        """Send it to every member except the sender."""
        for channel in tuple(self._members.get((is_private, topic), ())):
            if channel is not sender:
                channel.deliver(broadcast)

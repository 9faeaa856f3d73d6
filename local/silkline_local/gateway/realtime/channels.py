"""Who listens to what: the joined channels of all sockets, by topic.

Owns membership and the handing out of broadcasts. Private and public channels of one name are
two topics. Joining and leaving, and what else a client may do, are decided by `socket.py`.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from silkline_local.gateway.callers import Caller
from silkline_local.gateway.realtime.broadcasts import PREFIX, Broadcast
from silkline_local.gateway.realtime.frames import Version


class Subscriber(Protocol):
    """The socket that a channel was joined on; see `socket.py`."""

    version: Version

    def send(self, frame: bytes) -> None: ...

    def send_system(self, channel: 'Channel', status: str, message: str) -> None: ...

    def shut_down(self, channel: 'Channel', message: str) -> None: ...


@dataclass(slots=True, eq=False)
class Channel:
    """One join of one socket. `may_write` is asked for at the first broadcast and then kept."""

    socket: Subscriber
    topic: str
    join_ref: bytes
    caller: Caller
    is_private: bool
    wants_ack: bool
    hears_itself: bool
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
        self._members: dict[tuple[bool, str], dict[Channel, None]] = {}

    def add(self, channel: Channel) -> None:
        self._members.setdefault((channel.is_private, channel.topic), {})[channel] = None

    def remove(self, channel: Channel) -> None:
        key = (channel.is_private, channel.topic)
        members = self._members.get(key)
        if members is None or channel not in members:
            return
        del members[channel]
        if not members:
            del self._members[key]

    def deliver(
        self, broadcast: Broadcast, *, topic: str, is_private: bool, sender: Channel | None = None
    ) -> None:
        """Hand it to every member but the sender."""
        for channel in tuple(self._members.get((is_private, topic), ())):
            if channel is not sender:
                channel.deliver(broadcast)

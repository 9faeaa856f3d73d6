"""Who listens to what: the joined channels of all sockets, by topic.

Owns membership and the handing out of broadcasts. Private and public channels of one name are
two topics. Joining and leaving, and what else a client may do, are decided by `socket.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from silkline_local.gateway.callers import Caller
from silkline_local.gateway.realtime.broadcasts import PREFIX, Broadcast
from silkline_local.gateway.realtime.limits import Limits, Meter

if TYPE_CHECKING:
    from silkline_local.gateway.realtime.socket import Socket

MOST_WAITING = 1000


@dataclass(slots=True, eq=False)
class Channel:
    """One join of one socket. `may_write` is asked for at the first broadcast and then kept."""

    socket: Socket
    topic: str
    join_ref: bytes
    caller: Caller
    is_private: bool
    wants_ack: bool
    hears_itself: bool
    token: str | None = None
    may_write: bool | None = None
    # Told by replay already; the stream may tell them once more.
    replayed_ids: frozenset[str] = frozenset()
    # What arrives while replay is being read; none once it goes straight to the socket.
    waiting: list[Broadcast] | None = None
    has_missed: bool = False
    expiry: asyncio.TimerHandle | None = None

    @property
    def wire_topic(self) -> str:
        return PREFIX + self.topic

    def deliver(self, broadcast: Broadcast) -> None:
        if self.waiting is not None:
            if len(self.waiting) < MOST_WAITING:
                self.waiting.append(broadcast)
            else:
                self.has_missed = True
            return
        if broadcast.id is not None and broadcast.id in self.replayed_ids:
            return
        frame = broadcast.frame(self.socket.version)
        if frame is not None:
            self.socket.send(frame)

    def start_hearing(self) -> None:
        """Pass on what waited, and from now on everything at once."""
        waiting, self.waiting = self.waiting, None
        for broadcast in waiting or ():
            self.deliver(broadcast)


@dataclass(slots=True)
class Hub:
    """All joined channels, and the meters that the whole project shares."""

    limits: Limits | None
    messages: Meter = field(init=False)
    joins: Meter = field(init=False)
    _members: dict[tuple[bool, str], dict[Channel, None]] = field(init=False)
    _counts: dict[Socket, int] = field(init=False)

    def __post_init__(self) -> None:
        self.messages = Meter(self.limits and self.limits.messages_per_second)
        self.joins = Meter(self.limits and self.limits.joins_per_second)
        self._members = {}
        self._counts = {}

    @property
    def connections(self) -> int:
        """Sockets that have joined something, which is how hosted Realtime counts them."""
        return len(self._counts)

    def is_counted(self, socket: Socket) -> bool:
        return socket in self._counts

    def add(self, channel: Channel) -> None:
        self._members.setdefault((channel.is_private, channel.topic), {})[channel] = None
        self._counts[channel.socket] = self._counts.get(channel.socket, 0) + 1

    def remove(self, channel: Channel) -> None:
        key = (channel.is_private, channel.topic)
        members = self._members.get(key)
        if members is None or channel not in members:
            return
        del members[channel]
        if not members:
            del self._members[key]
        self._counts[channel.socket] -= 1
        if not self._counts[channel.socket]:
            del self._counts[channel.socket]

    def deliver(
        self, broadcast: Broadcast, *, topic: str, is_private: bool, sender: Channel | None = None
    ) -> None:
        """Hand it to every member but the sender; each delivery counts as a message."""
        members = self._members.get((is_private, topic))
        if not members:
            return
        is_metered = self.limits is not None
        for channel in tuple(members):
            if channel is sender:
                continue
            channel.deliver(broadcast)
            if is_metered:
                self.messages.add()
                if self.messages.is_exceeded:
                    channel.socket.shut_down(channel, 'Too many messages per second')

    def allow_payload(self, size: int) -> bool:
        return self.limits is None or self.limits.allow_payload(size)

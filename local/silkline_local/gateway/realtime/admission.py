"""Whether a join is granted.

Owns the order of the checks, which is hosted Realtime's: room, token, policies. Reading the join
is `join.py`'s business, asking the policies `authorization.py`'s; the channel itself is made by
`socket.py`. Everything here refuses by raising `JoinRefused`, whose text is for the client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from silkline_local.gateway.callers import Caller, Callers
from silkline_local.gateway.realtime.authorization import Asking, Authorizer
from silkline_local.gateway.realtime.broadcasts import PREFIX
from silkline_local.gateway.realtime.channels import Channel, Hub
from silkline_local.gateway.realtime.database import Database, Unanswered
from silkline_local.gateway.realtime.join import JoinRefused, JoinRequest, check_token

if TYPE_CHECKING:
    from silkline_local.gateway.realtime.socket import Socket

MOST_CHANNELS = 1000
LONGEST_TOPIC_BYTES = 1024


class TooManyJoins(JoinRefused):
    """The client is refused, and its socket closed."""


@dataclass(frozen=True, slots=True)
class Services:
    """What all sockets share."""

    callers: Callers
    hub: Hub
    database: Database
    authorizer: Authorizer
    await_stream: Callable[[Channel], None]


def check_room(hub: Hub, socket: Socket, *, wire_topic: str, channels: int) -> None:
    """Let no socket take more than its share. `channels` is how many it has joined."""
    limits = hub.limits
    if wire_topic == PREFIX:
        raise JoinRefused('TopicNameRequired: You must provide a topic name')
    if len(wire_topic.encode()) > LONGEST_TOPIC_BYTES:
        raise JoinRefused(f'TopicNameTooLong: more than {LONGEST_TOPIC_BYTES} bytes')
    if limits and not hub.is_counted(socket) and hub.connections >= limits.connections:
        raise JoinRefused('ConnectionRateLimitReached: Too many connected users')
    if hub.joins.is_exceeded:
        raise TooManyJoins('ClientJoinRateLimitReached: Too many joins per second')
    hub.joins.add()
    most = min(limits.channels_per_connection, MOST_CHANNELS) if limits else MOST_CHANNELS
    if channels >= most:
        raise JoinRefused('ChannelRateLimitReached: Too many channels')


async def admit(
    services: Services, request: JoinRequest, *, topic: str, key_caller: Caller, headers: str
) -> Caller:
    """Answer on whose behalf the channel may be joined: the token's, else the socket's key's."""
    caller = key_caller if request.token is None else check_token(services.callers, request.token)
    if request.wants_changes:
        raise JoinRefused('PostgresChangesNotSupported: the local stack has broadcasts only')
    if request.is_private:
        await check_read(services.authorizer, Asking(caller, topic, headers))
    elif request.names_replay:
        raise JoinRefused('UnableToReplayMessages: Replay is not allowed for public channels')
    return caller


async def check_read(authorizer: Authorizer, asking: Asking) -> None:
    try:
        may_read = await authorizer.may_read(asking)
    except Unanswered as error:
        raise JoinRefused(str(error)) from error
    if not may_read:
        raise JoinRefused(
            'Unauthorized: You do not have permissions to read from this Channel topic: '
            + asking.topic
        )

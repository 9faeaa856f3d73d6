"""Whether a join is granted.

Owns the order of the checks, which is hosted Realtime's: room, token, policies. Reading the join
is `join.py`'s business, asking the policies `authorization.py`'s; the channel itself is made by
`socket.py`. Everything here refuses by raising `JoinRefused`, whose text is for the client.
"""

from collections.abc import Callable
from dataclasses import dataclass

from silkline_local.gateway.callers import Caller, Callers
from silkline_local.gateway.realtime.authorization import Asking, Authorizer
from silkline_local.gateway.realtime.broadcasts import PREFIX
from silkline_local.gateway.realtime.channels import Channel, Hub
from silkline_local.gateway.realtime.database import Unanswered
from silkline_local.gateway.realtime.join import JoinRefused, JoinRequest, check_token

MOST_CHANNELS = 1000
LONGEST_TOPIC_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Services:
    """What all sockets share."""

    callers: Callers
    hub: Hub
    authorizer: Authorizer
    await_stream: Callable[[Channel], None]


def check_room(wire_topic: str, *, channels: int) -> None:
    """Let no socket take more than its share. `channels` is how many it has joined."""
    if wire_topic == PREFIX:
        raise JoinRefused('TopicNameRequired: You must provide a topic name')
    if len(wire_topic.encode()) > LONGEST_TOPIC_BYTES:
        raise JoinRefused(f'TopicNameTooLong: more than {LONGEST_TOPIC_BYTES} bytes')
    if channels >= MOST_CHANNELS:
        raise JoinRefused('ChannelRateLimitReached: Too many channels')


async def admit(
    services: Services, request: JoinRequest, *, topic: str, key_caller: Caller, headers: str
) -> Caller:
    """Answer on whose behalf the channel may be joined: the token's, else the socket's key's."""
    caller = key_caller if request.token is None else check_token(services.callers, request.token)
    if request.wants_changes:
        raise JoinRefused('PostgresChangesNotSupported: the local stack has broadcasts only')
    if request.wants_replay:
        raise JoinRefused('UnableToReplayMessages: the local stack does not replay broadcasts')
    if request.is_private:
        await check_read(services.authorizer, Asking(caller, topic, headers))
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

"""Joining a channel: what a client requests, as whom, and whether it may.

Owns the reading of a join's payload and tokens, as tolerant as hosted Realtime: values that cannot
be read count as missing. A join that asks for presence succeeds, and no one is ever present. The
checks come in hosted Realtime's order: topic and channel count, token, policies.
`authorization.py` checks the policies; `socket.py` creates the channel.
"""

import time
from dataclasses import dataclass
from typing import cast

import jwt

from silkline_local.gateway.callers import BadToken, Caller, Callers
from silkline_local.gateway.realtime.authorization import Authorizer, TopicAccess
from silkline_local.gateway.realtime.broadcasts import PREFIX
from silkline_local.gateway.realtime.database import DatabaseUnavailable
from silkline_local.gateway.realtime.frames import decode_payload

MOST_CHANNELS = 1000
LONGEST_TOPIC_BYTES = 1024


class JoinRefused(Exception):
    """The message is for the client: `Code: what happened`, in hosted Realtime's words."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    is_private: bool
    wants_ack: bool
    receives_own: bool
    wants_replication_ready: bool
    wants_changes: bool
    wants_replay: bool
    token: str | None


def read_join(payload: bytes) -> JoinRequest:
    join = as_mapping(decode_payload(payload))
    config = as_mapping(join.get('config'))
    broadcast = as_mapping(config.get('broadcast'))
    changes = config.get('postgres_changes')
    user_token = join.get('user_token')
    return JoinRequest(
        is_private=as_flag(config.get('private')),
        wants_ack=as_flag(broadcast.get('ack')),
        receives_own=as_flag(broadcast.get('self')),
        wants_replication_ready=as_flag(broadcast.get('replication_ready')),
        wants_changes=isinstance(changes, list) and any(cast(list[object], changes)),
        wants_replay=isinstance(broadcast.get('replay'), dict),
        token=read_token(join.get('access_token') if user_token is None else user_token),
    )


def check_topic(wire_topic: str, *, channels: int) -> None:
    """Refuse topics that no channel can have, and too many channels of one socket."""
    if wire_topic == PREFIX:
        raise JoinRefused('TopicNameRequired: You must provide a topic name')
    if len(wire_topic.encode()) > LONGEST_TOPIC_BYTES:
        raise JoinRefused(f'TopicNameTooLong: more than {LONGEST_TOPIC_BYTES} bytes')
    if channels >= MOST_CHANNELS:
        raise JoinRefused('ChannelRateLimitReached: Too many channels')


async def admit(
    request: JoinRequest,
    *,
    topic: str,
    key_caller: Caller,
    headers: str,
    callers: Callers,
    authorizer: Authorizer,
) -> Caller:
    """Return the caller that joins: that of the token, else that of the socket's key."""
    caller = key_caller if request.token is None else check_token(callers, request.token)
    if request.wants_changes:
        raise JoinRefused('PostgresChangesNotSupported: the local stack has broadcasts only')
    if request.wants_replay:
        raise JoinRefused('UnableToReplayMessages: the local stack does not replay broadcasts')
    if request.is_private:
        await check_read(authorizer, TopicAccess(caller, topic, headers))
    return caller


async def check_read(authorizer: Authorizer, access: TopicAccess) -> None:
    try:
        may_read = await authorizer.may_read(access)
    except DatabaseUnavailable as error:
        raise JoinRefused(str(error)) from error
    if not may_read:
        raise JoinRefused(
            'Unauthorized: You do not have permissions to read from this Channel topic: '
            + access.topic
        )


def read_token(value: object) -> str | None:
    """The token to check; None if it is an API key of the newer form, or not a string."""
    return value if isinstance(value, str) and not value.startswith('sb_') else None


def check_token(callers: Callers, token: str) -> Caller:
    """The caller of a token that is valid now. Raises `JoinRefused`."""
    try:
        caller = callers.by_token(token)
    except BadToken as error:
        if isinstance(error.__cause__, jwt.InvalidSignatureError):
            raise JoinRefused('JwtSignatureError: Failed to validate JWT signature') from error
        raise JoinRefused('MalformedJWT: The token provided is not a valid JWT') from error
    # The caller always has a role; only the token shows whether it names one.
    claims = jwt.decode(token, options={'verify_signature': False})
    if caller.expires_at is None or 'role' not in claims:
        raise JoinRefused('InvalidJWTToken: Fields `role` and `exp` are required in JWT')
    if caller.is_expired():
        raise JoinRefused(f'InvalidJWTToken: {expiry_message(caller)}')
    return caller


def expiry_message(caller: Caller) -> str:
    seconds = 0 if caller.expires_at is None else int(time.time() - caller.expires_at)
    return f'Token has expired {seconds} seconds ago'


def as_mapping(value: object) -> dict[str, object]:
    return cast(dict[str, object], value) if isinstance(value, dict) else {}


def as_flag(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == 'true')

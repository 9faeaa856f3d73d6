"""What a client asks for when it joins a channel, and on whose behalf.

Owns the reading of a join's payload and of the tokens in it, with hosted Realtime's tolerance:
what cannot be read counts as not said. Presence may be asked for and is not there: such a join
succeeds, and nobody is ever present. Whether the join is granted is decided by `socket.py`.
"""

import time
from dataclasses import dataclass
from typing import cast

import jwt

from silkline_local.gateway.callers import BadToken, Caller, Callers
from silkline_local.gateway.realtime.frames import decode_payload


class JoinRefused(Exception):
    """The reason is for the client; `Code: what happened`, as hosted Realtime words it."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    is_private: bool
    wants_ack: bool
    hears_itself: bool
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
        hears_itself=as_flag(broadcast.get('self')),
        wants_replication_ready=as_flag(broadcast.get('replication_ready')),
        wants_changes=isinstance(changes, list) and any(cast(list[object], changes)),
        wants_replay=isinstance(broadcast.get('replay'), dict),
        token=read_token(join.get('access_token') if user_token is None else user_token),
    )


def read_token(value: object) -> str | None:
    """A token to check; API keys of the newer form stand for the socket's own key."""
    return value if isinstance(value, str) and not value.startswith('sb_') else None


def check_token(callers: Callers, token: str) -> Caller:
    """The caller that a token names, now. Raises `JoinRefused`."""
    try:
        caller = callers.by_token(token)
    except BadToken as error:
        if isinstance(error.__cause__, jwt.InvalidSignatureError):
            raise JoinRefused('JwtSignatureError: Failed to validate JWT signature') from error
        raise JoinRefused('MalformedJWT: The token provided is not a valid JWT') from error
    # The caller has a role in any case; whether the token names one, only the token tells.
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

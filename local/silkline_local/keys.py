"""The keys of one local stack.

Owns how they are generated, their forms, and the file that keeps them, which only its owner can
read. What a key permits is decided by `gateway/callers.py`; tokens of users are in `auth.py`.
"""

import hashlib
import secrets
import time
from base64 import urlsafe_b64encode
from dataclasses import asdict, dataclass
from pathlib import Path

import jwt
import msgspec

from silkline_local.auth import ISSUER, USER_SECONDS, sign_user_token
from silkline_local.directory import write_private
from silkline_local.errors import KeysError

KEY_SECONDS = 10 * 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Keys:
    """What a Supabase project shows on its page of API keys."""

    publishable: str
    secret: str
    anon: str
    service_role: str
    crawl_worker: str
    jwt_secret: str

    def sign(self, claims: dict[str, object]) -> str:
        return jwt.encode(claims, self.jwt_secret, algorithm='HS256')

    def user_token(
        self, user_id: str, *, email: str | None = None, seconds: float = USER_SECONDS
    ) -> str:
        return sign_user_token(self.jwt_secret, user_id, email=email, seconds=seconds)


def load_keys(path: Path) -> Keys:
    """Read the keys; generate and store them the first time."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Keys)
    except FileNotFoundError:
        keys = generate_keys()
    except msgspec.DecodeError as error:
        raise KeysError(
            f'{path} is damaged ({error}): delete it, and silkline up creates new keys;'
            ' the data is kept'
        ) from error
    write_private(path, msgspec.json.format(msgspec.json.encode(asdict(keys))).decode())
    return keys


def generate_keys() -> Keys:
    jwt_secret = secrets.token_urlsafe(48)
    now = int(time.time())

    def role_key(role: str) -> str:
        claims = {'iss': ISSUER, 'role': role, 'iat': now, 'exp': now + KEY_SECONDS}
        return jwt.encode(claims, jwt_secret, algorithm='HS256')

    return Keys(
        publishable=opaque_key('sb_publishable_'),
        secret=opaque_key('sb_secret_'),
        anon=role_key('anon'),
        service_role=role_key('service_role'),
        crawl_worker=role_key('crawl_worker'),
        jwt_secret=jwt_secret,
    )


def opaque_key(prefix: str) -> str:
    """A key of the newer form: the prefix, 22 random characters, and a checksum of 8."""
    body = secrets.token_urlsafe(16)
    checksum = urlsafe_b64encode(hashlib.sha256((prefix + body).encode()).digest()).decode()
    return f'{prefix}{body}_{checksum[:8]}'

"""The keys of one local stack.

Owns their making, their forms and the file that keeps them, which nobody else can read. Who may
do what with a key is decided by `gateway/callers.py`.
"""

import hashlib
import secrets
import time
from base64 import urlsafe_b64encode
from dataclasses import asdict, dataclass
from pathlib import Path

import jwt
import msgspec

from silkline_local.directory import write_private

ISSUER = 'silkline-local'
KEY_SECONDS = 10 * 365 * 24 * 3600
USER_SECONDS = 24 * 3600


class KeysError(Exception):
    """The file of keys cannot be used; the message says what to do."""


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


def sign_user_token(
    jwt_secret: str, user_id: str, *, email: str | None = None, seconds: float = USER_SECONDS
) -> str:
    """What Auth hands to a signed-in user."""
    now = int(time.time())
    claims: dict[str, object] = {
        'iss': ISSUER,
        'aud': 'authenticated',
        'role': 'authenticated',
        'sub': user_id,
        'iat': now,
        'exp': int(now + seconds),
    }
    if email is not None:
        claims['email'] = email
    return jwt.encode(claims, jwt_secret, algorithm='HS256')


def load_keys(path: Path) -> Keys:
    """Read the keys; at first, make them."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Keys)
    except FileNotFoundError:
        keys = make_keys()
    except msgspec.DecodeError as error:
        raise KeysError(
            f'{path} holds no keys ({error}): remove that file, and silkline up makes new ones;'
            ' the data stays'
        ) from error
    write_private(path, msgspec.json.format(msgspec.json.encode(asdict(keys))).decode())
    return keys


def make_keys() -> Keys:
    jwt_secret = secrets.token_urlsafe(48)
    now = int(time.time())

    def role_key(role: str) -> str:
        claims = {'iss': ISSUER, 'role': role, 'iat': now, 'exp': now + KEY_SECONDS}
        return jwt.encode(claims, jwt_secret, algorithm='HS256')

    return Keys(
        publishable=opaque('sb_publishable_'),
        secret=opaque('sb_secret_'),
        anon=role_key('anon'),
        service_role=role_key('service_role'),
        crawl_worker=role_key('crawl_worker'),
        jwt_secret=jwt_secret,
    )


def opaque(prefix: str) -> str:
    """A key of the newer form: prefix, 22 random characters, 8 that check them."""
    body = secrets.token_urlsafe(16)
    check = urlsafe_b64encode(hashlib.sha256((prefix + body).encode()).digest()).decode()
    return f'{prefix}{body}_{check[:8]}'

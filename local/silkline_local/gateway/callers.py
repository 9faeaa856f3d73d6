"""Who is calling: API keys and tokens, as Supabase's edge reads them.

Owns the mapping from a key or token to a role. The database decides what the role may do; REST and
Realtime each have their own response to a bad token.
"""

import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass

import jwt
import msgspec

from silkline_local.auth import ISSUER
from silkline_local.gateway.http import Refusal
from silkline_local.keys import Keys

TOKENS_KEPT = 1000

SIGNATURES = jwt.PyJWS()
CLAIMS = msgspec.json.Decoder(dict[str, object])


class BadToken(Exception):
    """A token that is malformed or not signed with this stack's secret."""


class BadClaims(BadToken):
    """A signed token with an invalid claim; the message names the claim."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A role, and the claims that row level security reads; times are those of the token."""

    role: str
    claims: str
    expires_at: float | None = None
    not_before: float | None = None
    issued_at: float | None = None
    is_anonymous: bool = False

    def is_expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at


class Callers:
    """Turns keys and tokens into callers; caches tokens that were verified."""

    def __init__(self, keys: Keys) -> None:
        self._secret = keys.jwt_secret
        anon = role_caller('anon', is_anonymous=True)
        service = role_caller('service_role')
        self._by_key = {
            keys.publishable.encode(): anon,
            keys.anon.encode(): anon,
            keys.secret.encode(): service,
            keys.service_role.encode(): service,
        }
        self._secret_key = keys.secret.encode()
        self._checked: dict[str, Caller] = {}

    def by_key(self, key: str | None, *, user_agent: str = '') -> Caller:
        """The caller for an API key alone."""
        if not key:
            raise Refusal(
                401,
                {
                    'message': 'No API key found in request',
                    'hint': 'No `apikey` request header or url param was found.',
                },
            )
        given = key.encode(errors='surrogateescape')
        # Every key is compared, each in constant time: the response time reveals nothing.
        found = [
            (known, caller)
            for known, caller in self._by_key.items()
            if hmac.compare_digest(known, given)
        ]
        if not found:
            raise Refusal(
                401,
                {
                    'message': 'Invalid API key',
                    'hint': 'Double check your Supabase `anon` or `service_role` API key.',
                },
            )
        known, caller = found[0]
        if known == self._secret_key and user_agent.startswith('Mozilla/'):
            raise Refusal(
                401,
                {
                    'message': 'Forbidden use of secret API key in browser',
                    'hint': 'Secret API keys can only be used in a protected environment and '
                    'should never be used in a browser. Delete this secret API key immediately.',
                },
            )
        return caller

    def by_headers(self, headers: Mapping[str, str], *, key: str | None = None) -> Caller:
        """The caller of an HTTP request: that of the bearer token if there is one, else of the key.

        Raises `Refusal` for a bad key and `BadToken` for a bad token. Times are not checked.
        """
        key = headers.get('apikey') or key
        caller = self.by_key(key, user_agent=headers.get('User-Agent', ''))
        scheme, _, token = headers.get('Authorization', '').partition(' ')
        token = token.strip()
        if scheme.lower() != 'bearer' or not token or token == key:
            return caller
        return self.by_token(token)

    def by_token(self, token: str) -> Caller:
        """The caller of a signed token. Raises `BadToken`; times are not checked."""
        known = self._checked.get(token)
        if known is not None:
            return known
        try:
            payload = SIGNATURES.decode(token, self._secret, algorithms=['HS256'])
            claims = CLAIMS.decode(payload)
        except (jwt.PyJWTError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise BadToken(str(error)) from error
        check_audience(claims.get('aud'))
        role = claims.get('role', 'anon')
        if not isinstance(role, str):
            # A role that does not exist, so that the caller is refused and not treated as anon.
            role = msgspec.json.encode(role).decode()
        caller = Caller(
            role=role,
            claims=msgspec.json.encode({**claims, 'role': role}).decode(),
            expires_at=time_claim(claims, 'exp'),
            not_before=time_claim(claims, 'nbf'),
            issued_at=time_claim(claims, 'iat'),
            is_anonymous=role == 'anon',
        )
        if len(self._checked) >= TOKENS_KEPT:
            self._checked.clear()
        self._checked[token] = caller
        return caller


def time_claim(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise BadClaims(f"The JWT '{name}' claim must be a number")
    return value


def check_audience(audience: object) -> None:
    """Accept any audience, but only of the right type: a string or a list of strings."""
    try:
        msgspec.convert(audience, str | list[str] | None)
    except msgspec.ValidationError as error:
        raise BadClaims("The JWT 'aud' claim must be a string or an array of strings") from error


def role_caller(role: str, *, is_anonymous: bool = False) -> Caller:
    claims = msgspec.json.encode({'iss': ISSUER, 'role': role}).decode()
    return Caller(role=role, claims=claims, is_anonymous=is_anonymous)

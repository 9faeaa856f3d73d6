"""Users and their access tokens, which on Supabase belong to Auth.

Owns the claims of a token and the rows of auth.users. There is no sign-in: `silkline token` creates
a user and prints a token. The keys of the stack itself are in `keys.py`.
"""

import time
from uuid import uuid4

import jwt
import psycopg

from silkline_local.errors import StackError

ISSUER = 'silkline-local'
USER_SECONDS = 24 * 3600


def sign_user_token(
    jwt_secret: str, user_id: str, *, email: str | None = None, seconds: float = USER_SECONDS
) -> str:
    """Sign the token that Auth returns when a user signs in."""
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


def find_or_create_user(database_url: str, email: str) -> str:
    """Return the id of the user with this address."""
    try:
        with psycopg.connect(database_url, autocommit=True, connect_timeout=10) as connection:
            found = connection.execute(
                'select id from auth.users where email = %s', [email]
            ).fetchone()
            if found is not None:
                return str(found[0])
            user_id = str(uuid4())
            connection.execute(
                'insert into auth.users (id, email) values (%s, %s)', [user_id, email]
            )
            return user_id
    except psycopg.Error as error:
        raise StackError(f'cannot look up {email} in the database: {error}') from error

"""Users of the local stack: rows of auth.users, which on Supabase belong to Auth."""

from uuid import uuid4

import psycopg

from silkline_local.lock import StackError


def find_or_make_user(database_url: str, email: str) -> str:
    """Answer the id of the user with this address."""
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
        raise StackError(f'the database refused: {error}') from error

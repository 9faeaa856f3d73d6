"""The database of one test, used with the roles of a Supabase project."""

import json
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

import psycopg
from psycopg import sql
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb
from psycopg.types.numeric import Float4

from silkline_local.postgres.server import SUPERUSER, Postgres

Session = psycopg.Connection[DictRow]
OWN_LOGIN = ('postgres', SUPERUSER)


class Database:
    """Connections close with the test; `call` and `query` keep one per role and user."""

    def __init__(self, postgres: Postgres, name: str) -> None:
        self.postgres = postgres
        self.name = name
        self._sessions: dict[tuple[str, UUID | None], Session] = {}
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.close()

    def url(self, role: str = 'postgres') -> str:
        return self.postgres.url(self.name, role)

    def connect(
        self, role: str = 'postgres', user: UUID | None = None, *, autocommit: bool = True
    ) -> Session:
        """Open a session like PostgREST: log in as `authenticator`, then set role and claims."""
        login = role if role in OWN_LOGIN else 'authenticator'
        connection = Session.connect(self.url(login), autocommit=True, row_factory=dict_row)
        self._closing.callback(connection.close)
        if login == 'authenticator':
            claims = {'role': role} if user is None else {'role': role, 'sub': str(user)}
            connection.execute(
                "select set_config('role', %s, false), set_config('request.jwt.claims', %s, false)",
                [role, json.dumps(claims)],
            )
        connection.autocommit = autocommit
        return connection

    def user(self, email: str | None = None) -> UUID:
        """Create a user."""
        user = uuid4()
        self.query(
            'insert into auth.users (id, email) values (%s, %s)',
            [user, email or f'{user}@example.com'],
        )
        return user

    def call(
        self, function: str, *, role: str | None = None, user: UUID | None = None, **params: Any
    ) -> list[DictRow]:
        """Call a function of schema public: with `user` as authenticated, else as service_role."""
        role = role or ('service_role' if user is None else 'authenticated')
        return call(self._session(role, user), function, **params)

    def query(self, statement: str, params: Any = None, *, role: str = 'postgres') -> list[DictRow]:
        cursor = self._session(role, None).execute(statement.encode(), params)
        return [] if cursor.description is None else cursor.fetchall()

    def _session(self, role: str, user: UUID | None) -> Session:
        if (role, user) not in self._sessions:
            self._sessions[role, user] = self.connect(role, user)
        return self._sessions[role, user]


def call(connection: Session, function: str, **params: Any) -> list[DictRow]:
    """Run `select * from public.function(name => value, ...)`; dicts are jsonb, floats real."""
    arguments = sql.SQL(', ').join(
        sql.SQL('{} => {}').format(sql.Identifier(name), sql.Placeholder(name)) for name in params
    )
    statement = sql.SQL('select * from public.{}({})').format(sql.Identifier(function), arguments)
    return connection.execute(
        statement, {name: as_parameter(value) for name, value in params.items()}
    ).fetchall()


def as_parameter(value: Any) -> Any:
    if isinstance(value, dict) or (
        isinstance(value, list) and value and isinstance(value[0], dict)
    ):
        return Jsonb(value)
    return Float4(value) if isinstance(value, float) else value

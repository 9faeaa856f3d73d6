"""One face for the three clients that speak REST: postgrest-py, supabase-py, supabase-js.

A test names what it wants the way supabase-js spells it (`('order', 'id', {'ascending': False})`),
and gets an `Answer` whichever client asked. Nothing is checked here.
"""

import ssl
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, Protocol, Self

import httpx
from postgrest import APIError, SyncPostgrestClient
from postgrest.types import CountMethod
from supabase.client import Client, create_client
from supabase.lib.client_options import SyncClientOptions

from tests.support.javascript import JavaScript
from tests.support.project import Project, User

REST_CLIENTS = ('postgrest-py', 'supabase-py', 'supabase-js')
IN_PYTHON: dict[str, str] = {
    'in': 'in_',
    'is': 'is_',
    'or': 'or_',
    'maybeSingle': 'maybe_single',
}

Step = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `error` has code, message, details and hint."""

    status: int
    data: Any = None
    count: int | None = None
    error: dict[str, Any] | None = None

    @property
    def code(self) -> str | None:
        return None if self.error is None else self.error.get('code')


class RestClient(Protocol):
    """A client with a key and perhaps a token."""

    def call(
        self,
        function: str,
        params: dict[str, Any] | None = None,
        *steps: Step,
        schema: str = 'public',
        options: dict[str, Any] | None = None,
    ) -> Answer: ...

    def read(self, table: str, *steps: Step, schema: str = 'public') -> Answer: ...


class Rest:
    """Makes clients of one make; leaving it closes them."""

    def __init__(self, make: str, project: Project, javascript: Callable[[], JavaScript]) -> None:
        self.make = make
        self.project = project
        self._javascript = javascript
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

    def as_anonymous(self) -> RestClient:
        return self.connect(self.project.publishable_key)

    def as_user(self, user: User) -> RestClient:
        return self.connect(self.project.publishable_key, user.token)

    def as_service(self) -> RestClient:
        return self.connect(self.project.secret_key)

    def as_worker(self) -> RestClient:
        return self.connect(self.project.publishable_key, self.project.own_worker_token())

    def connect(self, key: str, token: str | None = None) -> RestClient:
        if self.make == 'supabase-js':
            return self._connect_javascript(key, token)
        statuses: list[int] = []

        def note_status(answer: httpx.Response) -> None:
            statuses.append(answer.status_code)

        session = self._closing.enter_context(
            httpx.Client(timeout=30, verify=certificates(), event_hooks={'response': [note_status]})
        )
        if self.make == 'postgrest-py':
            client = SyncPostgrestClient(
                f'{self.project.url}/rest/v1',
                headers={'apikey': key, 'Authorization': f'Bearer {token or key}'},
                http_client=session,
            )
        else:
            options = SyncClientOptions(
                auto_refresh_token=False, persist_session=False, httpx_client=session
            )
            if token is not None:
                options.headers['Authorization'] = f'Bearer {token}'
            client = create_client(self.project.url, key, options)
        return PythonRest(client, statuses)

    def _connect_javascript(self, key: str, token: str | None) -> RestClient:
        javascript = self._javascript()
        number = javascript.new_id()
        javascript.ask('open', client=number, url=self.project.url, key=key, token=token)
        self._closing.callback(javascript.ask, 'close', client=number)
        return JavaScriptRest(javascript, number)


class PythonRest:
    """postgrest-py, alone or inside supabase-py; the status of an error is seen by httpx only."""

    def __init__(self, client: SyncPostgrestClient | Client, statuses: list[int]) -> None:
        self._client = client
        self._statuses = statuses

    def call(
        self,
        function: str,
        params: dict[str, Any] | None = None,
        *steps: Step,
        schema: str = 'public',
        options: dict[str, Any] | None = None,
    ) -> Answer:
        client = self._client if schema == 'public' else self._client.schema(schema)
        return self._execute(client.rpc(function, params or {}, **in_python(options)), steps)

    def read(self, table: str, *steps: Step, schema: str = 'public') -> Answer:
        client = self._client if schema == 'public' else self._client.schema(schema)
        return self._execute(client.table(table), steps)

    def _execute(self, builder: Any, steps: tuple[Step, ...]) -> Answer:
        for step in steps:
            name, values = str(step[0]), list(step[1:])
            has_options = bool(values) and isinstance(values[-1], dict)
            options = in_python(values.pop()) if has_options else {}
            if name == 'not':
                column, operator, value = values
                method = getattr(builder.not_, IN_PYTHON.get(str(operator), str(operator)))
                builder = method(column, value)
            else:
                builder = getattr(builder, IN_PYTHON.get(name, name))(*values, **options)
        try:
            answer = builder.execute()
        except APIError as error:
            told = {
                'code': error.code,
                'message': error.message,
                'details': error.details,
                'hint': error.hint,
            }
            return Answer(self._statuses[-1], error=told)
        if answer is None:  # maybe_single() of nothing
            return Answer(self._statuses[-1])
        return Answer(self._statuses[-1], answer.data, answer.count)


class JavaScriptRest:
    """supabase-js, in the Node process of the run."""

    def __init__(self, javascript: JavaScript, number: int) -> None:
        self._javascript = javascript
        self._number = number

    def call(
        self,
        function: str,
        params: dict[str, Any] | None = None,
        *steps: Step,
        schema: str = 'public',
        options: dict[str, Any] | None = None,
    ) -> Answer:
        return self._ask(
            'call',
            schema=schema,
            name=function,
            params=params or {},
            options=options or {},
            steps=steps,
        )

    def read(self, table: str, *steps: Step, schema: str = 'public') -> Answer:
        return self._ask('read', schema=schema, table=table, steps=steps)

    def _ask(self, do: str, **command: Any) -> Answer:
        answer = self._javascript.ask(do, client=self._number, **command)
        return Answer(answer['status'], answer['data'], answer['count'], answer['error'])


@cache
def certificates() -> ssl.SSLContext:
    """Read once: httpx would read them anew for each client, which takes longer than most calls."""
    return httpx.create_ssl_context()


def in_python(options: dict[str, Any] | None) -> dict[str, Any]:
    """The options of supabase-js by their names in Python."""
    given = dict(options or {})
    if 'ascending' in given:
        given['desc'] = not given.pop('ascending')
    if 'nullsFirst' in given:
        given['nullsfirst'] = given.pop('nullsFirst')
    if 'count' in given:
        given['count'] = CountMethod(given['count'])
    return given

"""One interface to the three REST clients: postgrest-py, supabase-py, supabase-js.

A test spells a query like supabase-js (`('order', 'id', {'ascending': False})`), and gets a
`RestResult` from every client. Nothing is checked here.
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
PYTHON_NAMES: dict[str, str] = {
    'in': 'in_',
    'is': 'is_',
    'or': 'or_',
    'maybeSingle': 'maybe_single',
}

Step = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RestResult:
    """The result of a request. `error` has code, message, details and hint."""

    status: int
    data: Any = None
    count: int | None = None
    error: dict[str, Any] | None = None

    @property
    def code(self) -> str | None:
        return None if self.error is None else self.error.get('code')


class RestClient(Protocol):
    """A client with a key and optionally a token."""

    def call(
        self,
        function: str,
        params: dict[str, Any] | None = None,
        *steps: Step,
        schema: str = 'public',
        options: dict[str, Any] | None = None,
    ) -> RestResult: ...

    def read(self, table: str, *steps: Step, schema: str = 'public') -> RestResult: ...


class Rest:
    """Creates clients of one library; leaving it closes them."""

    def __init__(
        self, library: str, project: Project, javascript: Callable[[], JavaScript]
    ) -> None:
        self.library = library
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
        if self.library == 'supabase-js':
            return self._connect_javascript(key, token)
        statuses: list[int] = []

        def note_status(response: httpx.Response) -> None:
            statuses.append(response.status_code)

        session = self._closing.enter_context(
            httpx.Client(timeout=30, verify=certificates(), event_hooks={'response': [note_status]})
        )
        if self.library == 'postgrest-py':
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
        javascript.run('open', client=number, url=self.project.url, key=key, token=token)
        self._closing.callback(javascript.run, 'close', client=number)
        return JavaScriptRest(javascript, number)


class PythonRest:
    """postgrest-py, alone or inside supabase-py; only httpx sees the status of an error."""

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
    ) -> RestResult:
        client = self._client if schema == 'public' else self._client.schema(schema)
        return self._execute(client.rpc(function, params or {}, **python_options(options)), steps)

    def read(self, table: str, *steps: Step, schema: str = 'public') -> RestResult:
        client = self._client if schema == 'public' else self._client.schema(schema)
        return self._execute(client.table(table), steps)

    def _execute(self, builder: Any, steps: tuple[Step, ...]) -> RestResult:
        for step in steps:
            name, values = str(step[0]), list(step[1:])
            has_options = bool(values) and isinstance(values[-1], dict)
            options = python_options(values.pop()) if has_options else {}
            if name == 'not':
                column, operator, value = values
                method = getattr(builder.not_, PYTHON_NAMES.get(str(operator), str(operator)))
                builder = method(column, value)
            else:
                builder = getattr(builder, PYTHON_NAMES.get(name, name))(*values, **options)
        try:
            result = builder.execute()
        except APIError as error:
            details = {
                'code': error.code,
                'message': error.message,
                'details': error.details,
                'hint': error.hint,
            }
            return RestResult(self._statuses[-1], error=details)
        if result is None:  # maybe_single() without a row
            return RestResult(self._statuses[-1])
        return RestResult(self._statuses[-1], result.data, result.count)


class JavaScriptRest:
    """supabase-js, in the Node process of the test run."""

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
    ) -> RestResult:
        return self._run(
            'call',
            schema=schema,
            name=function,
            params=params or {},
            options=options or {},
            steps=steps,
        )

    def read(self, table: str, *steps: Step, schema: str = 'public') -> RestResult:
        return self._run('read', schema=schema, table=table, steps=steps)

    def _run(self, do: str, **command: Any) -> RestResult:
        result = self._javascript.run(do, client=self._number, **command)
        return RestResult(result['status'], result['data'], result['count'], result['error'])


@cache
def certificates() -> ssl.SSLContext:
    """Load them once: httpx loads them per client, which takes longer than most calls."""
    return httpx.create_ssl_context()


def python_options(options: dict[str, Any] | None) -> dict[str, Any]:
    """The options of supabase-js under their Python names."""
    given = dict(options or {})
    if 'ascending' in given:
        given['desc'] = not given.pop('ascending')
    if 'nullsFirst' in given:
        given['nullsfirst'] = given.pop('nullsFirst')
    if 'count' in given:
        given['count'] = CountMethod(given['count'])
    return given

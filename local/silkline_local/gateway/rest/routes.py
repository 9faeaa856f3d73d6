"""REST as PostgREST answers it, under `/rest/v1`.

A request is read (`request.py`), checked against the schema cache, written as one statement
(`query/sql.py`), run in one transaction (`database/transaction.py`) and answered (`response.py`):
`calls.py` does that for functions and `tables.py` for tables. Each step may raise a `Refusal`.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from aiohttp import web

from silkline_local.gateway.callers import Callers
from silkline_local.gateway.rest.backend import Backend
from silkline_local.gateway.rest.calls import call
from silkline_local.gateway.rest.errors import not_supported
from silkline_local.gateway.rest.request import PREFIX, invalid_path, read_request
from silkline_local.gateway.rest.tables import read


class Rest:
    """Enter it to open the connections; leaving it closes them."""

    def __init__(
        self,
        *,
        database_url: str,
        callers: Callers,
        schemas: Sequence[str] = ('public',),
        max_rows: int = 1000,
        pool_size: int = 10,
    ) -> None:
        self._callers = callers
        self._backend = Backend(
            database_url=database_url, schemas=schemas, max_rows=max_rows, pool_size=pool_size
        )

    async def __aenter__(self) -> Self:
        await self._backend.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._backend.__aexit__(kind, error, traceback)

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_route('*', PREFIX, self.handle)
        router.add_route('*', PREFIX + '/{path:.*}', self.handle)

    async def handle(self, request: web.Request) -> web.Response:
        parsed = read_request(request, self._callers, self._backend.schemas)
        match parsed.segments:
            case ['rpc', name] if name:
                return await call(self._backend, request, parsed, name)
            case [name] if name:
                return await read(self._backend, request, parsed, name)
            case ['']:
                raise not_supported('the description of the API (OpenAPI)')
            case _:
                raise invalid_path()

"""The gateway: REST, Realtime and the dashboard on one loopback port.

Owns the routes, the checks that apply to all of them (CORS, host names), and the response to every
failure. The services are in `rest/`, `realtime/` and `dashboard.py`.
"""

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
from aiohttp import hdrs, web

from silkline_local.gateway.callers import Callers
from silkline_local.gateway.dashboard import Dashboard
from silkline_local.gateway.http import Refusal
from silkline_local.gateway.realtime.routes import Realtime
from silkline_local.gateway.rest.routes import Rest
from silkline_local.keys import Keys

logger = logging.getLogger(__name__)

LOOPBACK = '127.0.0.1'
LOOPBACK_NAMES = frozenset({'127.0.0.1', 'localhost', '[::1]'})
SHUTDOWN_SECONDS = 2.0
# Also the time within which a new connection must send its first request.
IDLE_SECONDS = 75.0
# Enough for a filter with some hundred ids, or a token with many claims.
LONGEST_LINE = 16 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What the gateway serves. `database_url` returns the URL for a role."""

    database_url: Callable[[str], str]
    keys: Keys
    dashboard: Path | None = None


class Gateway:
    """Serves on `listener` while entered; leaving closes every socket and every connection."""

    def __init__(self, listener: socket.socket, settings: GatewaySettings) -> None:
        self.settings = settings
        self._listener = listener
        self._closing = AsyncExitStack()
        callers = Callers(settings.keys)
        self._rest = Rest(database_url=settings.database_url('authenticator'), callers=callers)
        self._realtime = Realtime(
            database_url=settings.database_url('supabase_realtime_admin'), callers=callers
        )

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            # Services open before the port and close after it, so every request finds them open.
            await opened.enter_async_context(self._rest)
            await opened.enter_async_context(self._realtime)
            runner = web.AppRunner(
                self._application(),
                access_log=None,
                shutdown_timeout=SHUTDOWN_SECONDS,
                keepalive_timeout=IDLE_SECONDS,
                max_line_size=LONGEST_LINE,
                max_field_size=LONGEST_LINE,
            )
            await runner.setup()
            opened.push_async_callback(runner.cleanup)
            await web.SockSite(runner, self._listener).start()
            self._closing = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    def _application(self) -> web.Application:
        # The first is the outermost: browsers may read the responses to failures, too.
        middlewares = [allow_browsers, answer_failures]
        if self._listener.getsockname()[0] == LOOPBACK:
            middlewares.append(refuse_foreign_hosts)
        application = web.Application(middlewares=middlewares)
        application.on_shutdown.append(self._realtime.close_sockets)
        self._rest.add_routes(application.router)
        self._realtime.add_routes(application.router)
        dashboard = Dashboard(self.settings.dashboard, self.settings.keys)
        dashboard.add_routes(application.router)
        return application


@web.middleware
async def answer_failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return json_response(refusal.status, refusal.body, refusal.headers)
    except web.HTTPException as error:
        return json_response(error.status, {'message': error.reason}, {})
    except Exception:
        logger.exception('%s %s failed', request.method, request.path)
        return json_response(500, {'message': 'An unexpected error occurred'}, {})


@web.middleware
async def refuse_foreign_hosts(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse host names that a website has pointed at loopback (DNS rebinding)."""
    name = request.headers.get(hdrs.HOST, '').rsplit(':', 1)[0]
    if name not in LOOPBACK_NAMES:
        raise Refusal(
            403, {'message': f'{name!r} is not a name of this gateway', 'hint': 'Use 127.0.0.1.'}
        )
    return await handler(request)


@web.middleware
async def allow_browsers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Allow pages of any origin, as Supabase does: the key is what protects the API."""
    if (
        request.method == hdrs.METH_OPTIONS
        and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers
    ):
        requested = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, '')
        return web.Response(
            headers={
                hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: '*',
                hdrs.ACCESS_CONTROL_ALLOW_METHODS: 'GET,HEAD,POST,PATCH,PUT,DELETE,OPTIONS',
                hdrs.ACCESS_CONTROL_ALLOW_HEADERS: requested,
                hdrs.ACCESS_CONTROL_MAX_AGE: '3600',
            }
        )
    response = await handler(request)
    if not response.prepared:
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = '*'
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = (
            'Content-Encoding, Content-Location, Content-Range, Content-Type, Date, Location, '
            'Preference-Applied, Proxy-Status, Range-Unit, Server, Transfer-Encoding'
        )
    return response


def json_response(status: int, body: object, headers: Mapping[str, str]) -> web.Response:
    return web.Response(
        status=status,
        body=msgspec.json.encode(body),
        headers={hdrs.CONTENT_TYPE: 'application/json; charset=utf-8', **headers},
    )

"""Serve a worker's metrics and health over HTTP: GET /metrics and GET /healthz, nothing else.

aiohttp parses the requests. This module bounds how many connections there are and how long each
may last, so that no client can use up the worker's file descriptors.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from silkline.errors import SettingsError
from silkline.supervisor.metrics import Metrics

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

logger = logging.getLogger(__name__)
# aiohttp logs a traceback for every malformed request: any port scanner would fill the log.
silent_logger = logging.getLogger(f'{__name__}.aiohttp')
silent_logger.setLevel(logging.CRITICAL + 1)

TEXT_FORMAT = 'text/plain; version=0.0.4; charset=utf-8'
CONNECTION_SECONDS = 5.0
MAX_CONNECTIONS = 32
MAX_REQUEST_BYTES = 8 * 1024
SHUTDOWN_SECONDS = 0.1


@asynccontextmanager
async def serve_metrics(
    metrics: Metrics,
    port: int,
    *,
    host: str = '127.0.0.1',
    connection_seconds: float = CONNECTION_SECONDS,
) -> AsyncGenerator[int]:
    """Serve while the context is open; yields the port. Port 0 picks a free one."""

    async def respond(request: web.BaseRequest) -> web.Response:
        try:
            response = response_to(request, metrics)
        except Exception:
            logger.exception('cannot answer a request for metrics')
            response = web.Response(status=500)
        response.headers['Server'] = 'silkline'
        response.headers['Cache-Control'] = 'no-store'
        response.headers['X-Content-Type-Options'] = 'nosniff'
        response.force_close()
        return response

    server = BoundedServer(
        respond,
        connection_seconds=connection_seconds,
        access_log=None,
        logger=silent_logger,
        max_line_size=MAX_REQUEST_BYTES,
        max_field_size=MAX_REQUEST_BYTES,
        # What follows the request is not read.
        lingering_time=0,
    )

    try:
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(server, host, port)
    except (OSError, OverflowError) as error:
        raise SettingsError(f'cannot serve metrics on {host}:{port}: {error}') from error
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        server.abort_connections()
        await server.shutdown(SHUTDOWN_SECONDS)
        await listener.wait_closed()


def response_to(request: web.BaseRequest, metrics: Metrics) -> web.Response:
    if request.path not in ('/metrics', '/healthz'):
        return web.Response(status=404, text='only /metrics and /healthz are served\n')
    if request.method not in ('GET', 'HEAD'):
        return web.Response(
            status=405, text='only GET and HEAD are allowed\n', headers={'Allow': 'GET, HEAD'}
        )
    if request.path == '/metrics':
        return web.Response(body=metrics.exposition(), headers={'Content-Type': TEXT_FORMAT})
    health = metrics.health()
    body = {
        'status': health.status,
        'reason': health.reason,
        'heartbeat_age_seconds': health.heartbeat_age_seconds,
    }
    return web.json_response(body, status=200 if health.is_healthy else 503)


class BoundedServer(web.Server):
    """Bounds the number of connections, and how long each may last."""

    def __init__(self, handler: Handler, *, connection_seconds: float, **settings: Any) -> None:
        super().__init__(handler, **settings)
        self._connection_seconds = connection_seconds

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        # By its transport: aiohttp forgets that when it closes a connection itself.
        asyncio.get_running_loop().call_later(self._connection_seconds, transport.abort)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()

    def abort_connections(self) -> None:
        for handler in self.connections:
            if handler.transport is not None:
                handler.transport.abort()

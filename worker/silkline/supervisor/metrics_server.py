"""Serve a worker's metrics and health over HTTP: GET /metrics and GET /healthz, nothing else.

aiohttp parses the requests. This module bounds how many connections there are and how long each
may last, so that no client can use up the worker's file descriptors.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web

from silkline.errors import SettingsError
from silkline.supervisor.metrics import Metrics

logger = logging.getLogger(__name__)
# aiohttp logs a traceback for every malformed request: any port scanner would fill the log.
unheard = logging.getLogger(f'{__name__}.aiohttp')
unheard.setLevel(logging.CRITICAL + 1)

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
    """Serve while the context is open; yields the port, which is a free one if `port` is 0."""
    loop = asyncio.get_running_loop()

    async def respond(request: web.BaseRequest) -> web.Response:
        try:
            response = response_to(request, metrics)
        except Exception:
            logger.exception('cannot answer a request for metrics')
            response = web.Response(status=500)
        response.headers['Cache-Control'] = 'no-store'
        response.headers['X-Content-Type-Options'] = 'nosniff'
        response.force_close()
        return response

    server = web.Server(
        respond,
        access_log=None,
        logger=unheard,
        max_line_size=MAX_REQUEST_BYTES,
        max_field_size=MAX_REQUEST_BYTES,
        # What follows the request is not read.
        lingering_time=0,
    )

    def accept() -> asyncio.BaseProtocol:
        if len(server.connections) >= MAX_CONNECTIONS:
            return RefusedConnection()
        handler = server()
        loop.call_later(connection_seconds, abort, handler)
        return handler

    try:
        listener = await loop.create_server(accept, host, port)
    except (OSError, OverflowError) as error:
        raise SettingsError(f'cannot serve metrics on {host}:{port}: {error}') from error
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for handler in list(server.connections):
            abort(handler)
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


def abort(handler: web.RequestHandler) -> None:
    if handler.transport is not None:
        handler.transport.abort()


class RefusedConnection(asyncio.Protocol):
    """Closes a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()

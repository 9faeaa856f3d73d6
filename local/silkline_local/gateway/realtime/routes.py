"""Realtime under `/realtime/v1`: the handshake, and the background tasks.

Owns what lives as long as the server: the sockets, the stream of database broadcasts, maintenance.
`socket.py` handles the frames of a client, `rest_broadcast.py` broadcasts over HTTP.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Self

from aiohttp import WSCloseCode, hdrs, web

from silkline_local.gateway.callers import Callers
from silkline_local.gateway.http import Refusal, encode_headers
from silkline_local.gateway.realtime.authorization import Authorizer
from silkline_local.gateway.realtime.channels import Hub, JoinedChannel
from silkline_local.gateway.realtime.database import RealtimeDatabase
from silkline_local.gateway.realtime.delivery import Delivery
from silkline_local.gateway.realtime.frames import ProtocolVersion
from silkline_local.gateway.realtime.rest_broadcast import RestBroadcast
from silkline_local.gateway.realtime.socket import Socket, SocketServices
from silkline_local.gateway.realtime.stream import DatabaseStream

logger = logging.getLogger(__name__)

LARGEST_MESSAGE_BYTES = 3 * 1024 * 1024 + 64 * 1024
MOST_SOCKETS = 10_000
PING_SECONDS = 25.0
# How long the start waits for the stream, which an open transaction may delay.
STREAM_SECONDS = 5.0
READY_SECONDS = 10.0
SWEEP_SECONDS = 1.0
RESTART_SECONDS = 1.0


class Realtime:
    """Enter it to start the stream and the maintenance; leaving it closes every socket."""

    def __init__(
        self,
        *,
        database_url: str,
        callers: Callers,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        self._callers = callers
        self._ping_seconds = ping_seconds
        self._sockets: set[Socket] = set()
        # Channels that asked for a message when the stream is up, with their deadlines.
        self._awaiting_stream: dict[JoinedChannel, float] = {}
        self._database = RealtimeDatabase(database_url)
        self._hub = Hub()
        delivery = Delivery(self._hub)
        self._stream = DatabaseStream(database_url, delivery.receive, on_up=self._announce_stream)
        authorizer = Authorizer(self._database)
        self._services = SocketServices(
            callers=callers,
            hub=self._hub,
            authorizer=authorizer,
            await_stream=self._await_stream,
        )
        self._rest = RestBroadcast(callers=callers, hub=self._hub, authorizer=authorizer)
        self._closing = AsyncExitStack()

    @property
    def socket_count(self) -> int:
        return len(self._sockets)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            await opened.enter_async_context(self._database)
            group = await opened.enter_async_context(asyncio.TaskGroup())
            await self._database.create_partitions()
            tasks = [
                group.create_task(supervise(name, work), name=name)
                for name, work in (
                    ('realtime stream', self._stream.follow),
                    ('realtime partitions', self._database.keep_partitions),
                    ('realtime sweep', self._sweep),
                )
            ]
            opened.callback(cancel, tasks)
            opened.push_async_callback(self.close_sockets)
            with suppress(TimeoutError):
                async with asyncio.timeout(STREAM_SECONDS):
                    await self._stream.up.wait()
            self._closing = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get('/realtime/v1/websocket', self.open_socket)
        self._rest.add_routes(router)

    async def open_socket(self, request: web.Request) -> web.StreamResponse:
        """Check key and version before the upgrade, then serve the client until it leaves."""
        key = (
            request.headers.get('x-api-key')
            or request.headers.get('apikey')
            or request.query.get('apikey')
        )
        caller = self._callers.by_key(key, user_agent=request.headers.get(hdrs.USER_AGENT, ''))
        version = read_version(request.query.get('vsn', ProtocolVersion.ONE.value))
        if len(self._sockets) >= MOST_SOCKETS:
            raise Refusal(429, {'error': f'more than {MOST_SOCKETS} sockets are open'})
        response = web.WebSocketResponse(
            heartbeat=self._ping_seconds,
            max_msg_size=LARGEST_MESSAGE_BYTES,
            compress=False,
        )
        await response.prepare(request)
        transport = request.transport
        if transport is None:
            return response
        socket = Socket(
            response,
            transport,
            version=version,
            caller=caller,
            headers=x_headers(request),
            services=self._services,
        )
        self._sockets.add(socket)
        try:
            await socket.serve()
        finally:
            self._sockets.discard(socket)
        return response

    def _await_stream(self, channel: JoinedChannel) -> None:
        self._awaiting_stream[channel] = time.monotonic() + READY_SECONDS
        if self._stream.is_up:
            self._announce_stream()

    def _announce_stream(self) -> None:
        for channel in self._awaiting_stream:
            channel.socket.send_system(channel, 'ok', 'Replication connection established')
        self._awaiting_stream.clear()

    async def _sweep(self) -> None:
        """Check for stalled clients and passed deadlines, so that no socket needs a timer."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = time.monotonic()
            for socket in tuple(self._sockets):
                socket.outbox.disconnect_if_stalled(now)
            for channel, deadline in tuple(self._awaiting_stream.items()):
                if now > deadline:
                    del self._awaiting_stream[channel]
                    channel.socket.shut_down(
                        channel, 'Replication connection was not established in time'
                    )

    async def close_sockets(self, _: web.Application | None = None) -> None:
        """Close every socket. For `on_shutdown`, because aiohttp waits for handlers."""
        async with asyncio.TaskGroup() as group:
            for socket in tuple(self._sockets):
                group.create_task(socket.close(WSCloseCode.GOING_AWAY, 'the server is stopping'))


def read_version(requested: str) -> ProtocolVersion:
    try:
        return ProtocolVersion(requested)
    except ValueError as error:
        known = ' or '.join(version.value for version in ProtocolVersion)
        raise Refusal(
            400, {'error': f'vsn {requested!r} is not supported', 'hint': f'Use {known}.'}
        ) from error


def x_headers(request: web.Request) -> str:
    """The headers of the handshake that policies may read, as JSON: those that begin with x-."""
    return encode_headers(
        (name, value)
        for name, value in request.headers.items()
        if name.lower().startswith('x-') and name.lower() != 'x-api-key'
    ).decode()


async def supervise(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` forever; if it fails, log it and start it again."""
    while True:
        try:
            await work()
        except Exception:
            logger.exception('%s failed and is restarted', name)
        await asyncio.sleep(RESTART_SECONDS)


def cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()

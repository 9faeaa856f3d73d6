"""How the frames of one client are handled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from aiohttp import WSMessage, WSMsgType, web

from silkline_local.gateway.callers import role_caller
from silkline_local.gateway.realtime.frames import ProtocolVersion
from silkline_local.gateway.realtime.socket import Socket, SocketServices

HEARTBEAT = '{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"1"}'


class Client:
    """A connection that delivers these frames, then closes; it keeps what is sent to it."""

    closed = False

    def __init__(self, frames: list[str]) -> None:
        self.frames = frames
        self.received = b''

    async def receive(self) -> WSMessage:
        if not self.frames:
            return WSMessage(WSMsgType.CLOSED, None, None)
        return WSMessage(WSMsgType.TEXT, self.frames.pop(), None)

    def write(self, data: bytes) -> None:
        self.received += data

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0


def serve(client: Client, services: SocketServices) -> Coroutine[Any, Any, None]:
    return Socket(
        cast(web.WebSocketResponse, client),
        cast(asyncio.Transport, client),
        version=ProtocolVersion.ONE,
        caller=role_caller('anon'),
        headers='{}',
        services=services,
    ).serve()


def test_a_client_that_sends_without_pause_does_not_block_other_tasks() -> None:
    async def run() -> None:
        serving = asyncio.ensure_future(
            serve(Client([HEARTBEAT] * 100), services=cast(SocketServices, None))
        )
        turns = 0
        while not serving.done():
            await asyncio.sleep(0)
            turns += 1
        await serving
        assert turns >= 100

    asyncio.run(run())

"""How one client's frames are taken, whatever the network gives of them at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from aiohttp import WSMessage, WSMsgType, web
from silkline_local.gateway.callers import Callers, role_caller
from silkline_local.gateway.realtime.admission import Services
from silkline_local.gateway.realtime.authorization import Authorizer
from silkline_local.gateway.realtime.broadcasts import UserBroadcast
from silkline_local.gateway.realtime.channels import Hub
from silkline_local.gateway.realtime.database import Database
from silkline_local.gateway.realtime.frames import Version
from silkline_local.gateway.realtime.socket import Socket

JOIN = (
    '{"topic":"realtime:room","event":"phx_join","ref":"1","join_ref":"1","payload":'
    '{"config":{"private":true,"broadcast":{"replay":{"since":0}}}}}'
)
HEARTBEAT = '{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"1"}'


class Client:
    """A connection that has these frames at hand, and then its end; it keeps what it is sent."""

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


class Allowing:
    """Policies that let everybody hear everything."""

    async def may_read(self, asking: object) -> bool:
        return True


class BusyDatabase:
    """A database that has nothing to replay, and while it looks, much is said in the room."""

    def __init__(self, hub: Hub, count: int) -> None:
        self.hub = hub
        self.count = count

    async def ask(self, question: object) -> list[UserBroadcast]:
        for number in range(self.count):
            said = UserBroadcast('room', 'news', b'{}', is_json=True, id=str(number))
            self.hub.deliver(said, topic='room', is_private=True)
        return []


def serve(client: Client, services: Services) -> Coroutine[Any, Any, None]:
    return Socket(
        cast(web.WebSocketResponse, client),
        cast(asyncio.Transport, client),
        version=Version.ONE,
        caller=role_caller('anon'),
        headers='{}',
        services=services,
    ).serve()


def test_frames_without_pause_leave_the_others_their_turn() -> None:
    async def run() -> None:
        serving = asyncio.ensure_future(
            serve(Client([HEARTBEAT] * 100), services=cast(Services, None))
        )
        turns = 0
        while not serving.done():
            await asyncio.sleep(0)
            turns += 1
        await serving
        assert turns >= 100

    asyncio.run(run())


@pytest.mark.parametrize(('said_meanwhile', 'is_refused'), [(1000, False), (1001, True)])
def test_a_replay_that_is_overrun_is_refused_instead_of_leaving_a_gap(
    said_meanwhile: int, is_refused: bool
) -> None:
    async def run() -> None:
        hub = Hub()
        services = Services(
            callers=cast(Callers, None),
            hub=hub,
            database=cast(Database, BusyDatabase(hub, said_meanwhile)),
            authorizer=cast(Authorizer, Allowing()),
            await_stream=lambda channel: None,
        )
        client = Client([JOIN])
        await serve(client, services)

        refusal = b'UnableToReplayMessages: Too many messages came meanwhile'
        assert (refusal in client.received) == is_refused
        assert client.received.count(b'"event":"broadcast"') == (0 if is_refused else 1000)

    asyncio.run(run())

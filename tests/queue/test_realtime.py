"""Live messages, as workers receive them, and what happens without Realtime."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from silkline.queue.realtime import listen
from silkline.settings import Project
from tests.support.database import Database
from tests.support.gateway import GatewayThread

SECONDS = 60.0


class Ear:
    """The messages received, and when listening began and ended."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[str, Mapping[str, Any]]] = asyncio.Queue()
        self.joined: asyncio.Queue[bool] = asyncio.Queue()

    def hear(self, event: str, payload: Mapping[str, Any]) -> None:
        self.heard.put_nowait((event, payload))
        if payload.get('is_bad'):
            raise ValueError('this listener cannot take it')

    async def wait_for(self, event: str) -> Mapping[str, Any]:
        async with asyncio.timeout(SECONDS):
            while True:
                name, payload = await self.heard.get()
                if name == event:
                    return payload

    async def wait_until_joined(self, expected: bool) -> None:
        async with asyncio.timeout(SECONDS):
            while await self.joined.get() is not expected:
                pass


def project_of(gateway: GatewayThread) -> Project:
    return Project(gateway.url, gateway.keys.secret, is_local=True)


def send(database: Database, event: str, payload: str = '{}') -> None:
    database.query('select realtime.send(%s::jsonb, %s, %s)', [payload, event, 'crawl_workers'])


@pytest.fixture
def ear() -> Ear:
    return Ear()


def run_listening(gateway: GatewayThread, ear: Ear, scenario: Any) -> None:
    async def run() -> None:
        listening = asyncio.create_task(
            listen(project_of(gateway), 'crawl_workers', ear.hear, on_joined=ear.joined.put_nowait)
        )
        try:
            await ear.wait_until_joined(True)
            await scenario()
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening

    asyncio.run(run())


def test_wake_ups_arrive_even_after_a_callback_raised(
    gateway: GatewayThread, database: Database, ear: Ear
) -> None:
    async def scenario() -> None:
        await asyncio.to_thread(send, database, 'wake', '{"is_bad": true}')
        await ear.wait_for('wake')
        await asyncio.to_thread(send, database, 'wake', '{"kinds": ["crawl"]}')
        assert (await ear.wait_for('wake'))['kinds'] == ['crawl']

    run_listening(gateway, ear, scenario)


def test_listening_resumes_after_the_server_was_down(
    gateway: GatewayThread, database: Database, ear: Ear
) -> None:
    async def scenario() -> None:
        await asyncio.to_thread(gateway.stop)
        await ear.wait_until_joined(False)
        await asyncio.to_thread(gateway.start)
        await ear.wait_until_joined(True)
        await asyncio.to_thread(send, database, 'wake')
        await ear.wait_for('wake')

    run_listening(gateway, ear, scenario)

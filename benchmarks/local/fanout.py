"""Sockets that listen to one private topic, and the time until a broadcast reaches each."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import aiohttp
import psycopg

TOPIC = 'benchmark'
SECONDS = 30.0
JOINS_AT_ONCE = 50
# As large as a progress message.
PAYLOAD: dict[str, object] = {
    'seq': 1234,
    'pages_done': 1234,
    'pending': 56789,
    'errors': 12,
    'pages_per_second': 12.5,
    'url': 'https://docs.example.com/guides/getting-started/installation',
}


class Audience:
    """`count` sockets that have joined the topic, and one that sends."""

    def __init__(self, variables: Mapping[str, str], count: int) -> None:
        self._variables = variables
        self._count = count
        self._key = variables['SUPABASE_SECRET_KEY']
        self._closing = AsyncExitStack()
        self._listeners: list[aiohttp.ClientWebSocketResponse] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            self._session = await opened.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
            )
            gate = asyncio.Semaphore(JOINS_AT_ONCE)

            async def join() -> aiohttp.ClientWebSocketResponse:
                async with gate:
                    return await self._join()

            joined = await asyncio.gather(*(join() for _ in range(self._count + 1)))
            self._sender, *self._listeners = joined
            self._connection = await opened.enter_async_context(
                await psycopg.AsyncConnection.connect(
                    self._variables['SUPABASE_DB_URL'], autocommit=True
                )
            )
            self._closing = opened.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._closing.aclose()

    async def send_as_client(self) -> None:
        await self._sender.send_str(
            frame('broadcast', {'type': 'broadcast', 'event': 'progress', 'payload': PAYLOAD})
        )

    async def send_from_database(self) -> None:
        await self._connection.execute(
            'select realtime.send(%s, %s, %s)', [json.dumps(PAYLOAD), 'progress', TOPIC]
        )

    async def time_delivery(self, send: Callable[[], Awaitable[None]]) -> list[float]:
        """Send once; return the milliseconds until each listener has received it."""

        async def receive(listener: aiohttp.ClientWebSocketResponse) -> float:
            await next_event(listener, 'broadcast')
            return (time.perf_counter() - began_at) * 1000

        waiting = [asyncio.create_task(receive(listener)) for listener in self._listeners]
        await asyncio.sleep(0)
        began_at = time.perf_counter()
        await send()
        return await asyncio.gather(*waiting)

    async def _join(self) -> aiohttp.ClientWebSocketResponse:
        url = self._variables['SUPABASE_URL'].replace('http', 'ws', 1)
        listener = await self._session.ws_connect(
            f'{url}/realtime/v1/websocket?apikey={self._key}&vsn=1.0.0'
        )
        await listener.send_str(frame('phx_join', {'config': {'private': True}}))
        reply = await next_event(listener, 'phx_reply')
        if reply['payload']['status'] != 'ok':
            raise ConnectionError(f'the join was refused: {reply}')
        return listener


def frame(event: str, payload: Mapping[str, object]) -> str:
    return json.dumps(
        {
            'topic': f'realtime:{TOPIC}',
            'event': event,
            'payload': payload,
            'ref': '1',
            'join_ref': '1',
        }
    )


async def next_event(listener: aiohttp.ClientWebSocketResponse, event: str) -> dict[str, Any]:
    while True:
        message: dict[str, Any] = json.loads(await listener.receive_str(timeout=SECONDS))
        if message['event'] == event:
            return message

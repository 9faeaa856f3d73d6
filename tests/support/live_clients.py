"""One interface to the three Realtime clients: realtime-py, supabase-py, supabase-js.

A `Channel` keeps the events of its client in order until a test takes them. Every wait is for an
event and has a deadline; nothing else is checked here.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
from realtime import AsyncRealtimeChannel, AsyncRealtimeClient, RealtimeSubscribeStates
from realtime.types import (
    BroadcastPayload,
    RealtimeAcknowledgementStatus,
    RealtimeChannelBroadcastConfig,
    RealtimeChannelConfig,
)
from supabase.client import AsyncClientOptions, acreate_client

from tests.support.javascript import Event, JavaScript
from tests.support.project import Project

LIVE_CLIENTS = ('realtime-py', 'supabase-py', 'supabase-js')
# Enough retries for a restart of the gateway, at a rate that suits a test.
MAX_RETRIES = 1000
FIRST_RETRY_SECONDS = 0.05

Options = RealtimeChannelBroadcastConfig


@dataclass(frozen=True, slots=True)
class Broadcast:
    event: str
    payload: dict[str, Any]


class Channel:
    """A topic as one client sees it."""

    def __init__(self, topic: str, broadcast: Options | None, patience_seconds: float) -> None:
        self.topic = topic
        self.is_acknowledged = bool(broadcast and broadcast.get('ack'))
        self.reasons: list[str] = []
        self.is_ready = asyncio.Event()
        self._states: asyncio.Queue[str] = asyncio.Queue()
        self._broadcasts: asyncio.Queue[Broadcast] = asyncio.Queue()
        self._patience_seconds = patience_seconds

    async def receive(self) -> Broadcast:
        """The next broadcast."""
        return await self._within(self._broadcasts.get(), 'broadcast')

    async def receive_all(self, count: int) -> list[Broadcast]:
        return [await self.receive() for _ in range(count)]

    async def next_state(self) -> str:
        return await self._within(self._states.get(), 'state')

    async def wait_for_state(self, state: str) -> None:
        """Wait for a state, ignoring others."""
        while await self.next_state() != state:
            pass

    async def wait_for_replication(self) -> None:
        """Wait until broadcasts of the database arrive; the join must set `replication_ready`."""
        await self._within(self.is_ready.wait(), 'message that replication is ready')

    def add_state(self, state: str, reason: str) -> None:
        if reason:
            self.reasons.append(reason)
        self._states.put_nowait(state)

    def add_broadcast(self, message: Any) -> None:
        self._broadcasts.put_nowait(Broadcast(message['event'], message['payload']))

    def add_system(self, status: str, message: str) -> None:
        if status == 'error':
            self.reasons.append(message)
        elif 'Replication' in message:
            self.is_ready.set()

    async def _within(self, wait: Any, what: str) -> Any:
        try:
            return await asyncio.wait_for(wait, timeout=self._patience_seconds)
        except TimeoutError:
            raise AssertionError(
                f'{self.topic}: no {what} within {self._patience_seconds} s; '
                f'errors so far: {self.reasons}'
            ) from None


class LiveClient(Protocol):
    """A client with a key and optionally a token."""

    async def join(
        self, topic: str, *, private: bool = False, broadcast: Options | None = None
    ) -> Channel:
        """Start to join; the states of the channel show the outcome."""
        ...

    async def send(
        self, channel: Channel, event: str, payload: dict[str, Any], *, timeout_seconds: int = 10
    ) -> str:
        """Send over the socket: 'ok', 'error' or 'timed out'. Without ack it is always 'ok'."""
        ...

    async def post(
        self, topic: str, event: str, payload: dict[str, Any], *, private: bool = False
    ) -> None:
        """Send over HTTP without joining; raises what the client raises."""
        ...

    async def leave(self, channel: Channel) -> None: ...

    async def set_auth(self, token: str) -> None: ...


class Live:
    """Creates clients of one library; leaving it closes them."""

    def __init__(
        self, library: str, project: Project, javascript: Callable[[], JavaScript]
    ) -> None:
        self.library = library
        self.project = project
        self._javascript = javascript

    @asynccontextmanager
    async def connect(self, key: str, token: str | None = None) -> AsyncGenerator[LiveClient]:
        async with AsyncExitStack() as closing:
            match self.library:
                case 'supabase-js':
                    client = await self._javascript_client(key, token, closing)
                case 'supabase-py':
                    session = await closing.enter_async_context(httpx.AsyncClient(timeout=30))
                    options = AsyncClientOptions(
                        auto_refresh_token=False,
                        persist_session=False,
                        httpx_client=session,
                        realtime={
                            'max_retries': MAX_RETRIES,
                            'initial_backoff': FIRST_RETRY_SECONDS,
                        },
                    )
                    supabase = await acreate_client(self.project.url, key, options)
                    client = await self._python_client(supabase.realtime, token, closing)
                case _:
                    realtime = AsyncRealtimeClient(
                        f'{self.project.url}/realtime/v1',
                        token=key,
                        max_retries=MAX_RETRIES,
                        initial_backoff=FIRST_RETRY_SECONDS,
                    )
                    client = await self._python_client(realtime, token, closing)
            yield client

    async def _python_client(
        self, realtime: AsyncRealtimeClient, token: str | None, closing: AsyncExitStack
    ) -> LiveClient:
        closing.push_async_callback(realtime.close)
        if token is not None:
            await realtime.set_auth(token)
        return PythonLive(realtime, self.project.patience_seconds)

    async def _javascript_client(
        self, key: str, token: str | None, closing: AsyncExitStack
    ) -> LiveClient:
        javascript = self._javascript()
        number = javascript.new_id()
        await javascript.run_async(
            'open', client=number, url=self.project.url, key=key, token=token
        )
        client = JavaScriptLive(javascript, number, self.project.patience_seconds)
        closing.push_async_callback(client.close)
        return client


class PythonLive:
    """realtime-py, alone or inside supabase-py.

    Callbacks only store: one that raises would silently stop the client from listening.
    """

    def __init__(self, client: AsyncRealtimeClient, patience_seconds: float) -> None:
        self._client = client
        self._patience_seconds = patience_seconds
        self._joined: dict[Channel, AsyncRealtimeChannel] = {}

    async def join(
        self, topic: str, *, private: bool = False, broadcast: Options | None = None
    ) -> Channel:
        channel = Channel(topic, broadcast, self._patience_seconds)
        joined = self._client.channel(topic, {'config': config(private, broadcast)})
        self._joined[channel] = joined

        def on_state(state: RealtimeSubscribeStates, error: Exception | None) -> None:
            channel.add_state(state.value, str(error or ''))

        def on_broadcast(message: BroadcastPayload) -> None:
            channel.add_broadcast(message)

        joined.on_broadcast('*', on_broadcast)
        joined.on_system(lambda system: channel.add_system(system.status, system.message))
        await asyncio.wait_for(joined.subscribe(on_state), timeout=self._patience_seconds)
        return channel

    async def send(
        self, channel: Channel, event: str, payload: dict[str, Any], *, timeout_seconds: int = 10
    ) -> str:
        joined = self._joined[channel]
        if not channel.is_acknowledged:
            await joined.send_broadcast(event, payload)
            return 'ok'
        acknowledged: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        push = await joined.push(
            'broadcast', {'type': 'broadcast', 'event': event, 'payload': payload}, timeout_seconds
        )
        push.receive(RealtimeAcknowledgementStatus.Ok, lambda _: acknowledged.set_result('ok'))
        push.receive(
            RealtimeAcknowledgementStatus.Error, lambda _: acknowledged.set_result('error')
        )
        push.receive(
            RealtimeAcknowledgementStatus.Timeout, lambda: acknowledged.set_result('timed out')
        )
        return await asyncio.wait_for(acknowledged, timeout=timeout_seconds + 5)

    async def post(
        self, topic: str, event: str, payload: dict[str, Any], *, private: bool = False
    ) -> None:
        await self._client.channel(topic, {'config': config(private)}).http_send(event, payload)

    async def leave(self, channel: Channel) -> None:
        # client.remove_channel() would drop the channel before the server has confirmed it.
        await self._joined.pop(channel).unsubscribe()

    async def set_auth(self, token: str) -> None:
        await self._client.set_auth(token)


class JavaScriptLive:
    """supabase-js, in the Node process of the test run."""

    def __init__(self, javascript: JavaScript, number: int, patience_seconds: float) -> None:
        self._javascript = javascript
        self._number = number
        self._patience_seconds = patience_seconds
        self._joined: dict[Channel, int] = {}

    async def join(
        self, topic: str, *, private: bool = False, broadcast: Options | None = None
    ) -> Channel:
        channel = Channel(topic, broadcast, self._patience_seconds)
        number = self._joined[channel] = self._javascript.new_id()

        def on_event(event: Event) -> None:
            if 'state' in event:
                channel.add_state(event['state'], event['reason'])
            elif 'broadcast' in event:
                channel.add_broadcast(event['broadcast'])
            else:
                channel.add_system(event['system']['status'], event['system']['message'])

        self._javascript.listen(number, on_event)
        await self._javascript.run_async(
            'join',
            client=self._number,
            channel=number,
            topic=topic,
            config=config(private, broadcast),
        )
        return channel

    async def send(
        self, channel: Channel, event: str, payload: dict[str, Any], *, timeout_seconds: int = 10
    ) -> str:
        return await self._javascript.run_async(
            'send',
            channel=self._joined[channel],
            event=event,
            payload=payload,
            timeout=timeout_seconds * 1000,
        )

    async def post(
        self,
        topic: str,
        event: str,
        payload: dict[str, Any],
        *,
        private: bool = False,
        is_batch: bool = False,
    ) -> None:
        await self._javascript.run_async(
            'post',
            client=self._number,
            topic=topic,
            config=config(private),
            event=event,
            payload=payload,
            isBatch=is_batch,
        )

    async def close(self) -> None:
        await self._javascript.run_async('close', client=self._number)
        for number in self._joined.values():
            self._javascript.remove_listener(number)

    async def heartbeat(self) -> str:
        return await self._javascript.run_async('heartbeat', client=self._number)

    async def leave(self, channel: Channel) -> None:
        number = self._joined.pop(channel)
        await self._javascript.run_async('leave', client=self._number, channel=number)

    async def set_auth(self, token: str) -> None:
        await self._javascript.run_async('setAuth', client=self._number, token=token)


def config(private: bool, broadcast: Options | None = None) -> RealtimeChannelConfig:
    return {
        'broadcast': {'ack': False, 'self': False, **(broadcast or {})},
        'presence': {'key': '', 'enabled': False},
        'private': private,
    }

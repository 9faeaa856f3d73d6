"""Realtime, as an optional extra that nothing depends on.

Hides the client library and its silent failures: a connection or channel that ends is opened
again, for ever, and an exception in a callback stays here. Messages are hints; the database sends
them, and is the source of truth.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from realtime import AsyncRealtimeClient, RealtimeSubscribeStates
from realtime.types import BroadcastPayload

from silkline.settings import Project

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0
LOOK_SECONDS = 1.0
JOIN_SECONDS = 10.0
CLOSE_SECONDS = 2.0

OnBroadcast = Callable[[str, Mapping[str, Any]], None]


async def listen(
    project: Project, topic: str, on_broadcast: OnBroadcast, *, on_joined: Callable[[bool], None]
) -> NoReturn:
    """Call `on_broadcast(event, payload)` for each message on a private topic, until cancelled.

    `on_joined` is called with True when listening begins, and with False when it ends.
    """
    pause = FIRST_PAUSE_SECONDS
    while True:
        client = AsyncRealtimeClient(
            f'{project.url}/realtime/v1', token=project.key, auto_reconnect=False, max_retries=1
        )
        joined = asyncio.Event()
        ended = asyncio.Event()
        try:
            await join(client, project, topic, guarded(on_broadcast), joined=joined, ended=ended)
            async with asyncio.timeout(JOIN_SECONDS):
                await joined.wait()
            on_joined(True)
            pause = FIRST_PAUSE_SECONDS
            while client.is_connected and not ended.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await ended.wait()
        except Exception as error:
            # Whatever the error, the reaction is the same: everything works without Realtime.
            logger.debug('Realtime on %s: %s', topic, error)
        finally:
            on_joined(False)
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await client.close()
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


async def join(
    client: AsyncRealtimeClient,
    project: Project,
    topic: str,
    on_broadcast: Callable[[BroadcastPayload], None],
    *,
    joined: asyncio.Event,
    ended: asyncio.Event,
) -> None:
    def notice(state: RealtimeSubscribeStates, error: Exception | None) -> None:
        (joined if state == RealtimeSubscribeStates.SUBSCRIBED else ended).set()

    async with asyncio.timeout(JOIN_SECONDS):
        await client.connect()
        if project.token is not None:
            await client.set_auth(project.token)
        channel = client.channel(
            topic,
            {
                'config': {
                    'private': True,
                    'broadcast': {'ack': False, 'self': False},
                    'presence': {'key': '', 'enabled': False},
                }
            },
        )
        channel.on_broadcast('*', on_broadcast)
        await channel.subscribe(notice)


def guarded(on_broadcast: OnBroadcast) -> Callable[[BroadcastPayload], None]:
    """If a callback raises, the library silently stops listening."""

    def call(message: BroadcastPayload) -> None:
        try:
            on_broadcast(message['event'], message['payload'])
        except Exception:
            logger.exception('cannot handle a Realtime message')

    return call

"""Realtime, heard by somebody who does not depend on it.

Owns the client library and its ways of going deaf: a connection or a channel that ends is made
anew, for ever, and what a callback raises stays here. Messages are hints; whoever needs to know
asks the database.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from realtime import AsyncRealtimeClient, RealtimeSubscribeStates
from realtime.types import BroadcastPayload

from worker.settings import Project

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0
LOOK_SECONDS = 1.0
JOIN_SECONDS = 10.0
CLOSE_SECONDS = 2.0

Hear = Callable[[str, Mapping[str, Any]], None]


async def listen(
    project: Project, topic: str, hear: Hear, *, on_joined: Callable[[bool], None]
) -> NoReturn:
    """Call `hear(event, payload)` for each broadcast on a private topic, until cancelled.

    `on_joined` is told when listening begins, and when it has ended and is tried again.
    """
    pause = FIRST_PAUSE_SECONDS
    while True:
        client = AsyncRealtimeClient(
            f'{project.url}/realtime/v1', token=project.key, auto_reconnect=False, max_retries=1
        )
        joined = asyncio.Event()
        ended = asyncio.Event()
        try:
            await join(client, project, topic, guarded(hear), joined=joined, ended=ended)
            async with asyncio.timeout(JOIN_SECONDS):
                await joined.wait()
            on_joined(True)
            pause = FIRST_PAUSE_SECONDS
            while client.is_connected and not ended.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), LOOK_SECONDS)
        except Exception as error:
            # Whatever it is, the answer is the same: without Realtime everything still works.
            logger.debug('Realtime on %s: %s', topic, error)
        finally:
            on_joined(False)
            with suppress(Exception):
                await asyncio.wait_for(client.close(), CLOSE_SECONDS)
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


async def join(
    client: AsyncRealtimeClient,
    project: Project,
    topic: str,
    hear: Callable[[BroadcastPayload], None],
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
        channel.on_broadcast('*', hear)
        await channel.subscribe(notice)


def guarded(hear: Hear) -> Callable[[BroadcastPayload], None]:
    """The library stops listening, silently, when a callback raises."""

    def heard(message: BroadcastPayload) -> None:
        try:
            hear(message['event'], message['payload'])
        except Exception:
            logger.exception('a live message could not be used')

    return heard

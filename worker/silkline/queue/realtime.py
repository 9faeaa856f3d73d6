"""Realtime, for somebody who does not depend on it.

Owns the client library and its ways of going deaf: a connection or a channel that ends is made
anew, for ever, and what a callback raises stays here. Also tells progress, and forgets it where
it cannot. Messages are hints; whoever needs to know asks the database.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import httpx
from realtime import AsyncRealtimeClient, RealtimeSubscribeStates
from realtime.types import BroadcastPayload

from silkline.settings import Project

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0
LOOK_SECONDS = 1.0
JOIN_SECONDS = 10.0
CLOSE_SECONDS = 2.0
PUBLISH_EVERY_SECONDS = 1.0
PUBLISH_SECONDS = 5.0

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
                    async with asyncio.timeout(LOOK_SECONDS):
                        await ended.wait()
        except Exception as error:
            # Whatever it is, the answer is the same: without Realtime everything still works.
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


class Publisher:
    """Tells the latest progress of each job, at most once a second, and all jobs in one call.

    Over HTTP, since sending so needs no joined channel that could have ended unnoticed. What
    cannot be told is dropped: it never delays and never fails a crawl.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._latest: dict[str, Mapping[str, Any]] = {}
        self._news = asyncio.Event()

    def publish(self, topic: str, payload: Mapping[str, Any]) -> None:
        self._latest[topic] = payload
        self._news.set()

    async def run(self) -> NoReturn:
        headers = {
            'apikey': self._project.key,
            'Authorization': f'Bearer {self._project.bearer}',
        }
        async with httpx.AsyncClient(
            headers=headers, timeout=PUBLISH_SECONDS, trust_env=not self._project.is_local
        ) as client:
            pause = PUBLISH_EVERY_SECONDS
            while True:
                await self._news.wait()
                self._news.clear()
                latest, self._latest = self._latest, {}
                is_told = await self._tell(client, latest)
                # Realtime that is away is asked less and less often.
                pause = PUBLISH_EVERY_SECONDS if is_told else min(pause * 2, LONGEST_PAUSE_SECONDS)
                await asyncio.sleep(pause)

    async def _tell(
        self, client: httpx.AsyncClient, latest: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        messages = [
            {'topic': topic, 'event': 'progress', 'payload': payload, 'private': True}
            for topic, payload in latest.items()
        ]
        try:
            answer = await client.post(
                f'{self._project.url}/realtime/v1/api/broadcast', json={'messages': messages}
            )
        except httpx.HTTPError as error:
            logger.debug('progress was not told: %s', error)
            return False
        if answer.is_error:
            logger.debug('progress was not told: %s', answer.status_code)
        return not answer.is_error

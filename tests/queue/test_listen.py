"""Listening to Realtime can be cancelled at any moment."""

import asyncio

from silkline.queue.realtime import listen
from silkline.settings import Project
from tests.support.ports import unused_port


def test_listening_to_a_server_that_does_not_answer_can_be_cancelled() -> None:
    project = Project(url=f'http://127.0.0.1:{unused_port()}', key='sb_secret_x', is_local=True)

    async def run(turns: int) -> None:
        listening = asyncio.create_task(
            listen(project, 'crawl_workers', lambda event, payload: None, on_joined=lambda _: None)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        listening.cancel()
        await asyncio.wait([listening], timeout=5)
        assert listening.cancelled(), f'it goes on, though cancelled after {turns} turns'

    for turns in range(60):
        asyncio.run(run(turns))

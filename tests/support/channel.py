"""A channel to no supervisor, for tests of single parts of the crawl engine."""

import asyncio

from silkline import protocol


class RecordingChannel:
    """Keeps what a crawl sends, and has no task for it."""

    command: protocol.Command = 'continue'

    def __init__(self) -> None:
        self.messages: list[protocol.FromRunner] = []
        self.leaving = asyncio.Event()

    async def send(self, message: protocol.FromRunner) -> None:
        self.messages.append(message)

    async def want_tasks(self, wish: protocol.WantTasks) -> protocol.Tasks:
        self.messages.append(wish)
        return protocol.Tasks(drained=True)

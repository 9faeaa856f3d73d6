"""A gateway in a thread of the test process, on its own port."""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from silkline_local.gateway.app import Gateway, GatewaySettings
from silkline_local.keys import Keys, generate_keys
from tests.support.database import Database
from tests.support.ports import unused_port

T = TypeVar('T')


class GatewayThread:
    """A gateway over `database` while entered; `stop` and `start` keep the port and the keys."""

    def __init__(
        self,
        database: Database,
        *,
        keys: Keys | None = None,
        dashboard: Path | None = None,
    ) -> None:
        self.keys = keys or generate_keys()
        self._database = database
        self._dashboard = dashboard
        self.port = unused_port()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def url(self) -> str:
        return f'http://127.0.0.1:{self.port}'

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)))
        self._thread.start()
        ready.result(timeout=60)

    def stop(self) -> None:
        if self._thread is None or self._loop is None or self._stop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), 'the gateway did not stop'
        self._thread = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the gateway's event loop, and return its result."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    async def _serve(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        settings = GatewaySettings(
            database_url=self._database.url,
            keys=self.keys,
            dashboard=self._dashboard,
        )
        try:
            listener = socket.create_server(('127.0.0.1', self.port))
            async with Gateway(listener, settings):
                ready.set_result(None)
                await self._stop.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

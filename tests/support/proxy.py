"""The REST API of a stack behind a proxy, which logs the calls of functions and can hold them up.

Realtime does not pass. Runs in a thread with its own event loop.
"""

import asyncio
import json
import threading
from types import TracebackType
from typing import Any, NamedTuple, Self

from aiohttp import ClientSession, web


class Call(NamedTuple):
    function: str
    params: dict[str, Any]


class RestProxy:
    def __init__(self, url: str) -> None:
        self.calls: list[Call] = []
        self._target = url
        self._held: str | None = None
        self._released = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self, function: str) -> None:
        """Pass no call of this function on until `release`."""
        self._held = function

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._released.set)

    def calls_of(self, function: str) -> list[dict[str, Any]]:
        return [call.params for call in self.calls if call.function == function]

    async def _open(self) -> str:
        self._session = ClientSession(auto_decompress=False)
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route('*', '/{path:.*}', self._pass_on)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, '127.0.0.1', 0).start()
        return 'http://{}:{}'.format(*self._runner.addresses[0])

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.Response:
        if not request.path.startswith('/rest/'):
            raise web.HTTPBadGateway
        body = await request.read()
        if request.path.startswith('/rest/v1/rpc/'):
            function = request.path.rpartition('/')[2]
            self.calls.append(Call(function, json.loads(body)))
            if function == self._held:
                await self._released.wait()
        async with self._session.request(
            request.method,
            f'{self._target}{request.path_qs}',
            headers={**request.headers, 'Host': '127.0.0.1'},
            data=body,
        ) as answer:
            return web.Response(
                status=answer.status, body=await answer.read(), content_type=answer.content_type
            )

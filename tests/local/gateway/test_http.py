"""Bodies of requests that are too large, too slow, or never end."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from silkline_local.gateway.http import UnreadableBody, read_body


@asynccontextmanager
async def serve() -> AsyncGenerator[tuple[str, int]]:
    """A server that echoes a body of at most 10 bytes that arrives quickly."""

    async def echo(request: web.Request) -> web.Response:
        try:
            body = await read_body(request, largest_bytes=10, silent_seconds=0.2)
        except UnreadableBody as error:
            return web.Response(status=error.status, text=str(error))
        return web.Response(body=body)

    application = web.Application()
    application.router.add_post('/', echo)
    # Otherwise aiohttp waits ten seconds for the rest of a refused body.
    runner = web.AppRunner(application, lingering_time=0)
    await runner.setup()
    await web.TCPSite(runner, '127.0.0.1', 0).start()
    try:
        yield runner.addresses[0]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ('sent', 'status'),
    [
        (b'Content-Length: 2\r\n\r\n{}', 200),
        (b'Content-Length: 0\r\n\r\n', 200),
        (b'Content-Length: 11\r\n\r\n', 413),
        (b'Transfer-Encoding: chunked\r\n\r\nb\r\n12345678901\r\n', 413),
        (b'Content-Length: 2\r\n\r\n{', 408),
        (b'Transfer-Encoding: chunked\r\n\r\n2\r\n{', 408),
    ],
)
def test_a_body_is_read_within_limits_of_size_and_time(sent: bytes, status: int) -> None:
    async def scenario() -> bytes:
        async with serve() as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b'POST / HTTP/1.1\r\nHost: x\r\n' + sent)
            status_line = await asyncio.wait_for(reader.readline(), 10)
            writer.close()
            return status_line

    assert f' {status} '.encode() in asyncio.run(scenario())

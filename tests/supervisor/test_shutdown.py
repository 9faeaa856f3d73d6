"""How a worker shuts down while the API is failing."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

SLOTS = 4


class Api:
    """Never answers a claim, and refuses to release one lease."""

    def __init__(self) -> None:
        self.claimed: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.is_over = asyncio.Event()
        self.released: list[str] = []
        self.has_deregistered = False

    async def answer(self, request: web.Request) -> web.Response:
        function = request.path.rpartition('/')[2]
        params: dict[str, Any] = await request.json() if request.can_read_body else {}
        if function == 'claim_crawl_jobs':
            if not self.claimed.done():
                self.claimed.set_result(params['p_lease_tokens'])
            await self.is_over.wait()
        if function == 'release_crawl_job':
            self.released.append(params['p_lease_token'])
            if params['p_lease_token'] == self.claimed.result()[0]:
                return web.json_response({'code': 'PT409', 'message': 'not that one'}, status=409)
        if function == 'heartbeat_crawl_jobs' and params['p_worker'].get('has_ended'):
            self.has_deregistered = True
        return web.json_response([])


async def run_and_stop_a_worker(state: Path) -> tuple[Api, str]:
    api = Api()
    application = web.Application()
    application.router.add_route('*', '/{path:.*}', api.answer)
    server = web.AppRunner(application)
    await server.setup()
    await web.TCPSite(server, '127.0.0.1', 0).start()
    try:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, '-m', 'silkline', 'worker', f'--slots={SLOTS}', f'--state={state}'),
            env={
                **os.environ,
                'SUPABASE_URL': 'http://{}:{}'.format(*server.addresses[0]),
                'SUPABASE_SECRET_KEY': 'sb_secret_x',
            },
            stderr=asyncio.subprocess.PIPE,
        )
        await api.claimed
        worker.send_signal(signal.SIGTERM)
        said = (await worker.communicate())[1].decode()
    finally:
        api.is_over.set()
        await server.cleanup()
    assert worker.returncode == 0, said
    return api, said


def test_a_lease_that_cannot_be_released_does_not_delay_the_others(tmp_path: Path) -> None:
    api, said = asyncio.run(run_and_stop_a_worker(tmp_path))
    refused, *taken = api.claimed.result()
    notes = ' '.join(path.read_text() for path in tmp_path.rglob('*') if path.is_file())

    assert sorted(api.released) == sorted([refused, *taken])
    assert api.has_deregistered
    assert 'not that one' in said
    # For the next worker here.
    assert refused in notes
    assert not [token for token in taken if token in notes]

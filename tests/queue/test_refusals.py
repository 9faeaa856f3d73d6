"""What the user reads when the API refuses a call: its message, and which variable to check."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from silkline.errors import ApiRefused
from silkline.queue.rpc import Rpc
from silkline.settings import Project


def refusal_for(status: int, body: dict[str, Any], *, token: str | None = None) -> str:
    """The error of a call that the API answers like this; its URL is replaced by "URL"."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    async def scenario() -> str:
        application = web.Application()
        application.router.add_route('*', '/{path:.*}', answer)
        server = web.AppRunner(application)
        await server.setup()
        await web.TCPSite(server, '127.0.0.1', 0).start()
        project = Project('http://{}:{}'.format(*server.addresses[0]), 'the-key', token)
        try:
            async with Rpc(project) as rpc:
                with pytest.raises(ApiRefused) as refused:
                    await rpc.crawl_queue_stats()
        finally:
            await server.cleanup()
        return str(refused.value).replace(project.url, 'URL')

    return asyncio.run(scenario())


def test_a_wrong_key_is_reported_with_its_variable() -> None:
    body = {'message': 'Invalid API key', 'hint': 'Double check your `anon` key.'}

    assert refusal_for(401, body) == (
        'Invalid API key\nIs SUPABASE_SECRET_KEY the secret key of URL?'
    )


def test_a_denied_call_is_explained_differently_for_a_key_and_a_worker_token() -> None:
    denied = {'code': '42501', 'message': 'permission denied', 'hint': None}

    assert refusal_for(403, denied).endswith('is SUPABASE_SECRET_KEY a secret key?')
    assert refusal_for(403, denied, token='a.b.c').endswith(  # noqa: S106 - no secret
        'SUPABASE_WORKER_TOKEN is for workers only: this needs SUPABASE_SECRET_KEY.'
    )

"""What somebody is told who does not know the program yet: what to do next."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from silkline.errors import ApiRefused
from silkline.queue.rpc import Rpc
from silkline.settings import Project

from tests.support.user import User

NOBODY = {'SUPABASE_URL': 'http://127.0.0.1:9', 'SUPABASE_SECRET_KEY': 'x'}


@pytest.mark.parametrize('words', [['-h'], ['crawl', '-h']])
def test_help_is_there_under_its_short_name(tmp_path: Path, words: list[str]) -> None:
    assert 'Usage: ' in User(tmp_path).run(*words).stdout


@pytest.mark.parametrize('typed', ['http://', 'https:///path', 'no address', ''])
def test_what_is_no_address_starts_nothing_and_is_told_with_one_that_is(
    tmp_path: Path, typed: str
) -> None:
    said = User(tmp_path).run('crawl', typed, code=2).stderr

    assert said.startswith(f'silkline: {typed!r} is no address of a site')
    assert 'like https://example.com' in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('command', [['crawl', 'https://a.example/'], ['worker']])
def test_what_is_no_network_is_told_with_one_that_is(tmp_path: Path, command: list[str]) -> None:
    user = User(tmp_path, **NOBODY)
    said = user.run(*command, '--allow-network', 'lan', code=2).stderr

    assert '--allow-network lan: ' in said
    assert 'a network is written like 127.0.0.0/8' in said


def test_a_key_that_is_missing_is_told_with_where_it_is(tmp_path: Path) -> None:
    said = User(tmp_path, SUPABASE_URL='https://a.example').run('jobs', code=2).stderr

    assert said == (
        'silkline: SUPABASE_SECRET_KEY is not set in the environment:'
        ' your project has it in its settings, under API keys\n'
    )


def test_an_api_that_is_not_there_is_told_with_what_may_be_wrong(tmp_path: Path) -> None:
    user = User(tmp_path, **NOBODY)

    assert user.run('jobs', code=3).stderr.endswith('): is SUPABASE_URL right?\n')


def refusal_of(status: int, body: dict[str, Any], *, token: str | None = None) -> str:
    """What is told when the API answers so."""

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


def test_a_wrong_key_is_told_with_its_variable() -> None:
    told = refusal_of(401, {'message': 'Invalid API key', 'hint': 'Double check your `anon` key.'})

    assert told == 'Invalid API key\nIs SUPABASE_SECRET_KEY the secret key of URL?'


def test_a_workers_token_is_told_from_a_key() -> None:
    denied = {'code': '42501', 'message': 'permission denied', 'hint': None}

    assert refusal_of(403, denied).endswith('is SUPABASE_SECRET_KEY a secret key?')
    assert refusal_of(403, denied, token='a.b.c').endswith(  # noqa: S106 - no secret
        'SUPABASE_WORKER_TOKEN is for workers: this needs SUPABASE_SECRET_KEY.'
    )

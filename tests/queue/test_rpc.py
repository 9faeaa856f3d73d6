"""Which calls are retried, and which are not."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from silkline.errors import ApiRefused, ApiUnavailable
from silkline.queue.rows import QueueStats
from silkline.queue.rpc import UNREADABLE, Rpc
from silkline.settings import Project

STATS = {
    'open': {},
    'pending': {},
    'ended_in_24_hours': {},
    'workers': {'live': 0, 'late': 0, 'slots': 0, 'busy_slots': 0},
    'oldest_in_line_seconds': None,
    'count_limit': 1,
    'from_a_newer_database': True,
}
Answer = tuple[int, Any]
GARBLED = b'this is not gzip'


class Api:
    """Answers each call with the next of these; the last one repeats."""

    def __init__(self, answers: list[Answer]) -> None:
        self.answers = answers
        self.calls: list[tuple[str, dict[str, str]]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.calls.append((request.path, dict(request.headers)))
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(body, bytes):
            return web.Response(status=status, body=body, headers={'Content-Encoding': 'gzip'})
        if isinstance(body, str):
            return web.Response(status=status, text=body)
        return web.json_response(body, status=status)


@asynccontextmanager
async def serve(api: Api) -> AsyncGenerator[str]:
    application = web.Application()
    application.router.add_route('*', '/{path:.*}', api.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, '127.0.0.1', 0).start()
    try:
        yield 'http://{}:{}'.format(*runner.addresses[0])
    finally:
        await runner.cleanup()


def ask(api: Api, *, patience_seconds: float = 10) -> QueueStats:
    async def scenario() -> QueueStats:
        async with serve(api) as url:
            project = Project(url, 'the-key', 'the-token', is_local=True)
            async with Rpc(project, patience_seconds=patience_seconds) as rpc:
                return await rpc.crawl_queue_stats()

    return asyncio.run(scenario())


def refusal(code: str) -> dict[str, str | None]:
    return {'code': code, 'message': 'it is so', 'details': None, 'hint': 'do that'}


def test_a_call_carries_the_key_and_the_token() -> None:
    api = Api([(200, STATS)])
    ask(api)

    [(path, headers)] = api.calls
    assert path == '/rest/v1/rpc/crawl_queue_stats'
    assert headers['apikey'] == 'the-key'
    assert headers['Authorization'] == 'Bearer the-token'
    assert headers['User-Agent'].startswith('silkline/')


@pytest.mark.parametrize(
    'trouble',
    [
        (503, refusal('PGRST001')),
        (500, refusal('40001')),
        (500, refusal('57014')),
        (503, refusal('53300')),
        (502, '<html>bad gateway</html>'),
        # A gateway's own error has no code.
        (503, {'message': 'failure to get a peer from the ring-balancer'}),
        (500, {}),
        (429, '<html>slow down</html>'),
        (429, {'message': 'API rate limit exceeded'}),
        (200, GARBLED),
    ],
    ids=[
        'no database',
        'serialization',
        'timeout',
        'too many connections',
        'no JSON',
        'a gateway without a server',
        'nothing told',
        'too many requests',
        'too many requests, told',
        'not what it says it is',
    ],
)
def test_a_transient_error_is_retried(trouble: Answer) -> None:
    api = Api([trouble, trouble, (200, STATS)])

    assert ask(api).count_limit == 1
    assert len(api.calls) == 3


@pytest.mark.parametrize(
    ('status', 'code'), [(409, 'PT409'), (403, '42501'), (400, '22P02'), (429, 'PT429')]
)
def test_a_refusal_is_not_retried(status: int, code: str) -> None:
    api = Api([(status, refusal(code))])
    with pytest.raises(ApiRefused) as refused:
        ask(api)

    assert (refused.value.code, refused.value.hint) == (code, 'do that')
    assert str(refused.value) == 'it is so\ndo that'
    assert len(api.calls) == 1


def test_the_error_of_a_project_without_the_queue_says_how_to_install_it() -> None:
    with pytest.raises(ApiRefused, match='not installed') as refused:
        ask(Api([(404, refusal('PGRST202'))]))

    assert 'silkline install' in (refused.value.hint or '')


def test_a_successful_answer_that_is_not_json_is_a_refusal() -> None:
    api = Api([(404, 'not here')])
    with pytest.raises(ApiRefused):
        ask(api)

    assert len(api.calls) == 1


def test_a_gateway_that_rejects_the_key_is_not_asked_again() -> None:
    api = Api([(401, {'message': 'Invalid authentication credentials'})])
    with pytest.raises(ApiRefused, match='Invalid authentication'):
        ask(api)

    assert len(api.calls) == 1


@pytest.mark.parametrize('body', ['[' * 100_000, f'{{"open": {"1" * 5000}}}'])
def test_unparseable_answers_have_another_code_than_those_of_another_version(body: str) -> None:
    with pytest.raises(ApiRefused) as refused:
        ask(Api([(200, body)]))

    assert refused.value.code == UNREADABLE


def test_retries_end_when_patience_is_over() -> None:
    api = Api([(503, refusal('PGRST000'))])
    with pytest.raises(ApiUnavailable, match='does not answer'):
        ask(api, patience_seconds=1)

    assert len(api.calls) >= 2


def test_an_answer_of_another_version_is_reported_as_such() -> None:
    with pytest.raises(ApiRefused, match='does not understand') as refused:
        ask(Api([(200, {'open': 'many'})]))

    assert 'migrations' in (refused.value.hint or '')

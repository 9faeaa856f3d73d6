"""Channels: who may join, and what clients tell each other on them."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from realtime import RealtimeHTTPError

from tests.support.javascript import JavaScript, JavaScriptError
from tests.support.live_clients import Broadcast, Channel, JavaScriptLive, Live, LiveClient, Options
from tests.support.project import Project, User

PAYLOAD = {'text': 'Grüße \U0001f577', 'deep': [{'n': 1.5}, None, True]}

pair = pytest.mark.parametrize(
    ('speaks', 'hears'),
    [
        ('realtime-py', 'supabase-js'),
        ('supabase-js', 'realtime-py'),
        ('supabase-js', 'supabase-js'),
        ('realtime-py', 'supabase-py'),
    ],
)


def public_topic() -> str:
    return f'silkline_test:{uuid4().hex}'


async def join_public(client: LiveClient, topic: str, broadcast: Options | None = None) -> Channel:
    channel = await client.join(topic, broadcast=broadcast)
    state = await channel.next_state()
    if any('PrivateOnly' in reason for reason in channel.reasons):
        pytest.skip('this project allows private channels only')
    assert state == 'SUBSCRIBED', channel.reasons
    return channel


async def join_private(client: LiveClient, topic: str, broadcast: Options | None = None) -> Channel:
    channel = await client.join(topic, private=True, broadcast=broadcast)
    assert await channel.next_state() == 'SUBSCRIBED', channel.reasons
    return channel


@pair
async def test_a_broadcast_goes_from_client_to_client(
    project: Project, javascript: Callable[[], JavaScript], speaks: str, hears: str
) -> None:
    topic = public_topic()
    key = project.publishable_key
    async with (
        Live(speaks, project, javascript).connect(key) as speaker,
        Live(hears, project, javascript).connect(key) as hearer,
    ):
        heard = await join_public(hearer, topic)
        said = await join_public(speaker, topic)

        await speaker.send(said, 'greeting', PAYLOAD)

        assert await heard.hear() == Broadcast('greeting', PAYLOAD)


@pair
async def test_broadcasts_of_one_client_keep_their_order(
    project: Project, javascript: Callable[[], JavaScript], speaks: str, hears: str
) -> None:
    topic = public_topic()
    key = project.publishable_key
    async with (
        Live(speaks, project, javascript).connect(key) as speaker,
        Live(hears, project, javascript).connect(key) as hearer,
    ):
        heard = await join_public(hearer, topic)
        said = await join_public(speaker, topic)

        for n in range(20):
            await speaker.send(said, 'count', {'n': n})

        assert [told.payload['n'] for told in await heard.hear_all(20)] == list(range(20))


@pair
async def test_the_service_speaks_to_the_owner_of_a_job(
    project: Project,
    javascript: Callable[[], JavaScript],
    owner: User,
    *,
    speaks: str,
    hears: str,
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        Live(speaks, project, javascript).connect(project.secret_key) as worker,
        Live(hears, project, javascript).connect(project.publishable_key, owner.token) as browser,
    ):
        heard = await join_private(browser, topic)
        said = await join_private(worker, topic)

        await worker.send(said, 'progress', {'pages_done': 7})

        assert await heard.hear() == Broadcast('progress', {'pages_done': 7})


async def test_a_sender_hears_itself_only_when_asked_to(live: Live, project: Project) -> None:
    topic = public_topic()
    async with (
        live.connect(project.publishable_key) as talker,
        live.connect(project.publishable_key) as other,
    ):
        heard_loud = await join_public(talker, topic, {'self': True})
        heard_quiet = await join_public(other, topic, {'self': False})

        await talker.send(heard_loud, 'first', {})
        assert (await heard_loud.hear()).event == 'first'
        assert (await heard_quiet.hear()).event == 'first'

        await other.send(heard_quiet, 'second', {})
        assert (await heard_loud.hear()).event == 'second'

        await talker.send(heard_loud, 'third', {})
        assert (await heard_quiet.hear()).event == 'third'


async def test_a_broadcast_is_acknowledged_when_asked_for(live: Live, project: Project) -> None:
    topic = public_topic()
    async with (
        live.connect(project.publishable_key) as speaker,
        live.connect(project.publishable_key) as hearer,
    ):
        heard = await join_public(hearer, topic)
        said = await join_public(speaker, topic, {'ack': True})

        assert await speaker.send(said, 'greeting', {}) == 'ok'
        assert (await heard.hear()).event == 'greeting'


async def test_one_socket_carries_many_channels(live: Live, project: Project) -> None:
    topics = [public_topic() for _ in range(10)]
    async with (
        live.connect(project.publishable_key) as speaker,
        live.connect(project.publishable_key) as hearer,
    ):
        heard = [await join_public(hearer, topic) for topic in topics]
        for topic in reversed(topics):
            await speaker.post(topic, 'here', {'topic': topic})

        assert [(await channel.hear()).payload['topic'] for channel in heard] == topics


async def test_a_channel_that_was_left_can_be_joined_again(live: Live, project: Project) -> None:
    topic, other = public_topic(), public_topic()
    async with (
        live.connect(project.publishable_key) as hearer,
        live.connect(project.publishable_key) as speaker,
    ):
        stayed = await join_public(hearer, other)
        left = await join_public(hearer, topic)
        await hearer.leave(left)
        await left.reach('CLOSED')
        # The server confirms a leave twice, and realtime-py would take the second word for the
        # new channel's: so first let it pass.
        await speaker.post(other, 'meanwhile', {})
        await stayed.hear()

        heard = await join_public(hearer, topic)
        await speaker.post(topic, 'again', {})

        assert (await heard.hear()).event == 'again'


async def test_a_heartbeat_is_answered(
    project: Project, javascript: Callable[[], JavaScript]
) -> None:
    """By supabase-js only: realtime-py does not look at the answer."""
    async with Live('supabase-js', project, javascript).connect(project.publishable_key) as client:
        assert isinstance(client, JavaScriptLive)
        await join_public(client, public_topic())

        assert await client.heartbeat() == 'ok'


async def test_a_broadcast_can_be_posted(live: Live, project: Project) -> None:
    topic = public_topic()
    async with (
        live.connect(project.publishable_key) as speaker,
        live.connect(project.publishable_key) as hearer,
    ):
        heard = await join_public(hearer, topic)

        await speaker.post(topic, 'by post: 50%', PAYLOAD)

        assert await heard.hear() == Broadcast('by post: 50%', PAYLOAD)


async def test_the_service_can_post_to_a_private_channel(
    live: Live, project: Project, owner: User
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.secret_key) as worker,
        live.connect(project.publishable_key, owner.token) as browser,
    ):
        heard = await join_private(browser, topic)

        await worker.post(topic, 'progress', {'pages_done': 7}, private=True)

        assert await heard.hear() == Broadcast('progress', {'pages_done': 7})


async def test_a_batch_of_broadcasts_can_be_posted(
    live: Live, project: Project, owner: User
) -> None:
    open_topic, private_topic = public_topic(), f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, owner.token) as hearer:
        heard = await join_public(hearer, open_topic)
        heard_private = await join_private(hearer, private_topic)

        answer = await post_batch(
            project,
            project.secret_key,
            None,
            [
                {'topic': open_topic, 'event': 'first', 'payload': {'n': 1}},
                {'topic': open_topic, 'event': 'second', 'payload': {'n': 2}},
                {'topic': private_topic, 'event': 'third', 'payload': {'n': 3}, 'private': True},
            ],
        )

        assert (answer.status_code, answer.content) == (202, b'')
        assert [told.event for told in await heard.hear_all(2)] == ['first', 'second']
        assert await heard_private.hear() == Broadcast('third', {'n': 3})


async def test_supabase_js_posts_what_it_sends_before_it_has_joined(
    live: Live, project: Project, javascript: Callable[[], JavaScript]
) -> None:
    topic = public_topic()
    async with (
        Live('supabase-js', project, javascript).connect(project.publishable_key) as speaker,
        live.connect(project.publishable_key) as hearer,
    ):
        heard = await join_public(hearer, topic)
        assert isinstance(speaker, JavaScriptLive)

        await speaker.post(topic, 'early', PAYLOAD, is_batch=True)

        assert await heard.hear() == Broadcast('early', PAYLOAD)


@pytest.mark.parametrize(
    'messages',
    [
        pytest.param([{'event': 'e', 'payload': {}}], id='no-topic'),
        pytest.param([{'topic': 't', 'payload': {}}], id='no-event'),
        pytest.param([{'topic': 't', 'event': 'e'}], id='no-payload'),
    ],
)
async def test_a_malformed_batch_is_refused(
    project: Project, messages: list[dict[str, Any]]
) -> None:
    answer = await post_batch(project, project.secret_key, None, messages)

    assert answer.status_code == 422


async def test_a_broadcast_needs_a_key(project: Project) -> None:
    async with httpx.AsyncClient(timeout=30) as session:
        answer = await session.post(
            f'{project.url}/realtime/v1/api/broadcast',
            json={'messages': [{'topic': 't', 'event': 'e', 'payload': {}}]},
        )

    assert answer.status_code == 401


@pytest.mark.parametrize('topic', ['crawl_job', 'crawl_user', 'crawl_workers'])
@pytest.mark.parametrize('who', ['nobody', 'stranger'])
async def test_a_private_channel_is_refused_to_others(
    live: Live, project: Project, owner: User, stranger: User, *, topic: str, who: str
) -> None:
    full_topic = {
        'crawl_job': f'crawl_job:{project.enqueue(owner)["id"]}',
        'crawl_user': f'crawl_user:{owner.id}',
        'crawl_workers': 'crawl_workers',
    }[topic]
    token = stranger.token if who == 'stranger' else None
    async with live.connect(project.publishable_key, token) as client:
        channel = await client.join(full_topic, private=True)

        assert await channel.next_state() == 'CHANNEL_ERROR'
        assert any(
            f'You do not have permissions to read from this Channel topic: {full_topic}' in reason
            for reason in channel.reasons
        ), channel.reasons


async def test_a_channel_of_a_job_that_is_not_there_is_refused(
    live: Live, project: Project, owner: User
) -> None:
    async with live.connect(project.publishable_key, owner.token) as client:
        channel = await client.join(f'crawl_job:{uuid4()}', private=True)

        assert await channel.next_state() == 'CHANNEL_ERROR'


async def test_a_refused_join_leaves_other_channels_alone(
    live: Live, project: Project, owner: User, stranger: User
) -> None:
    async with (
        live.connect(project.publishable_key, owner.token) as client,
        live.connect(project.secret_key) as service,
    ):
        own = await join_private(client, f'crawl_user:{owner.id}')
        foreign = await client.join(f'crawl_user:{stranger.id}', private=True)
        await foreign.reach('CHANNEL_ERROR')

        await service.post(own.topic, 'still', {}, private=True)

        while (await own.hear()).event != 'still':
            pass


async def test_the_owner_may_join_own_channels(live: Live, project: Project, owner: User) -> None:
    job_id = project.enqueue(owner)['id']
    async with live.connect(project.publishable_key, owner.token) as client:
        await join_private(client, f'crawl_job:{job_id}')
        await join_private(client, f'crawl_user:{owner.id}')


async def test_the_service_may_join_any_channel(live: Live, project: Project, owner: User) -> None:
    async with live.connect(project.secret_key) as client:
        await join_private(client, f'crawl_user:{owner.id}')
        await join_private(client, 'crawl_workers')


@pytest.fixture
def worker_token(project: Project) -> Iterator[str]:
    """A token of crawl_worker, where that role may use Realtime: migrations can only ask for it."""
    token = project.own_worker_token()
    if project.database is not None:
        admin = 'supabase_admin'
        project.database.query('grant usage on schema realtime to crawl_worker', role=admin)
        yield token
        project.database.query('revoke usage on schema realtime from crawl_worker', role=admin)
        return
    [granted] = project.own_session().execute(
        """
        select
          has_schema_privilege('crawl_worker', 'realtime', 'usage')
          and has_table_privilege('crawl_worker', 'realtime.messages', 'select')
          and has_table_privilege('crawl_worker', 'realtime.messages', 'insert') as all
        """
    )
    if not granted['all']:
        pytest.skip('this project does not let crawl_worker use Realtime')
    yield token


async def test_a_worker_hears_commands_and_speaks_of_jobs(
    live: Live, project: Project, owner: User, worker_token: str
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.publishable_key, worker_token) as worker,
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.secret_key) as service,
    ):
        commands = await join_private(worker, 'crawl_workers')
        progress = await join_private(browser, topic)
        mark = uuid4().hex

        await worker.post(topic, 'progress', {'pages_done': 7}, private=True)
        await service.post('crawl_workers', mark, {}, private=True)

        assert await progress.hear() == Broadcast('progress', {'pages_done': 7})
        while (await commands.hear()).event != mark:
            pass


async def test_a_worker_may_not_listen_to_jobs_or_command_others(
    live: Live, project: Project, owner: User, worker_token: str
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, worker_token) as worker:
        channel = await worker.join(topic, private=True)

        assert await channel.next_state() == 'CHANNEL_ERROR'
        with pytest.raises((RealtimeHTTPError, JavaScriptError), match='Unauthorized'):
            await worker.post('crawl_workers', 'wake', {}, private=True)


async def test_a_user_cannot_post_to_a_private_channel(
    live: Live, project: Project, owner: User
) -> None:
    async with live.connect(project.publishable_key, owner.token) as client:
        with pytest.raises((RealtimeHTTPError, JavaScriptError), match='Unauthorized'):
            await client.post(f'crawl_user:{owner.id}', 'forged', {}, private=True)


async def test_what_a_user_says_on_a_private_channel_is_not_heard(
    live: Live, project: Project, owner: User
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.publishable_key, owner.token) as second_tab,
        live.connect(project.secret_key) as worker,
    ):
        heard = await join_private(second_tab, topic)
        said = await join_private(browser, topic, {'ack': True})

        forging = asyncio.create_task(browser.send(said, 'forged', {}, timeout_seconds=2))
        batch = [{'topic': topic, 'event': 'forged', 'payload': {}, 'private': True}]
        # A batch is accepted whoever sends it, and what is not allowed is dropped.
        answer = await post_batch(project, project.publishable_key, owner.token, batch)
        assert answer.status_code == 202
        # No acknowledgement: the client gives up waiting.
        assert await forging == 'timed out'
        await worker.post(topic, 'progress', {}, private=True)

        assert (await heard.hear()).event == 'progress'


async def test_a_public_channel_does_not_leak_into_a_private_one_of_its_name(
    live: Live, project: Project, owner: User
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.publishable_key) as intruder,
        live.connect(project.secret_key) as worker,
    ):
        heard = await join_private(browser, topic)
        overheard = await join_public(intruder, topic, {'ack': True, 'self': True})

        assert await intruder.send(overheard, 'forged', {}) == 'ok'
        assert (await overheard.hear()).event == 'forged'
        await worker.post(topic, 'progress', {}, private=True)
        await intruder.send(overheard, 'end', {})

        assert (await heard.hear()).event == 'progress'
        assert (await overheard.hear()).event == 'end'


async def test_a_socket_needs_a_key_that_is_known(project: Project) -> None:
    async with httpx.AsyncClient(timeout=30) as session:
        answer = await session.get(
            f'{project.url}/realtime/v1/websocket',
            params={'apikey': 'sb_publishable_nonsense', 'vsn': '1.0.0'},
            headers={
                'Connection': 'Upgrade',
                'Upgrade': 'websocket',
                'Sec-WebSocket-Version': '13',
                'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
            },
        )

    assert answer.status_code in (401, 403)


async def post_batch(
    project: Project, key: str, token: str | None, messages: list[dict[str, Any]]
) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as session:
        return await session.post(
            f'{project.url}/realtime/v1/api/broadcast',
            headers={'apikey': key, 'Authorization': f'Bearer {token or key}'},
            json={'messages': messages},
        )

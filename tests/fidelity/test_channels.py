"""Channels: who may join, and what clients send to each other on them."""

import asyncio
from collections.abc import Callable
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
    ('sender_client', 'receiver_client'),
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
    project: Project, javascript: Callable[[], JavaScript], sender_client: str, receiver_client: str
) -> None:
    topic = public_topic()
    key = project.publishable_key
    async with (
        Live(sender_client, project, javascript).connect(key) as sender,
        Live(receiver_client, project, javascript).connect(key) as receiver,
    ):
        channel = await join_public(receiver, topic)
        sending = await join_public(sender, topic)

        await sender.send(sending, 'greeting', PAYLOAD)

        assert await channel.receive() == Broadcast('greeting', PAYLOAD)


@pair
async def test_broadcasts_of_one_client_keep_their_order(
    project: Project, javascript: Callable[[], JavaScript], sender_client: str, receiver_client: str
) -> None:
    topic = public_topic()
    key = project.publishable_key
    async with (
        Live(sender_client, project, javascript).connect(key) as sender,
        Live(receiver_client, project, javascript).connect(key) as receiver,
    ):
        channel = await join_public(receiver, topic)
        sending = await join_public(sender, topic)

        for n in range(20):
            await sender.send(sending, 'count', {'n': n})

        assert [broadcast.payload['n'] for broadcast in await channel.receive_all(20)] == list(
            range(20)
        )


@pair
async def test_a_broadcast_of_the_service_reaches_the_owner_of_a_job(
    project: Project,
    javascript: Callable[[], JavaScript],
    owner: User,
    *,
    sender_client: str,
    receiver_client: str,
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        Live(sender_client, project, javascript).connect(project.secret_key) as worker,
        Live(receiver_client, project, javascript).connect(
            project.publishable_key, owner.token
        ) as browser,
    ):
        channel = await join_private(browser, topic)
        sending = await join_private(worker, topic)

        await worker.send(sending, 'progress', {'pages_done': 7})

        assert await channel.receive() == Broadcast('progress', {'pages_done': 7})


async def test_a_sender_gets_its_own_broadcast_only_on_request(
    live: Live, project: Project
) -> None:
    topic = public_topic()
    async with (
        live.connect(project.publishable_key) as first,
        live.connect(project.publishable_key) as other,
    ):
        with_own = await join_public(first, topic, {'self': True})
        without_own = await join_public(other, topic, {'self': False})

        await first.send(with_own, 'first', {})
        assert (await with_own.receive()).event == 'first'
        assert (await without_own.receive()).event == 'first'

        await other.send(without_own, 'second', {})
        assert (await with_own.receive()).event == 'second'

        await first.send(with_own, 'third', {})
        assert (await without_own.receive()).event == 'third'


async def test_a_broadcast_is_acknowledged_on_request(live: Live, project: Project) -> None:
    topic = public_topic()
    async with (
        live.connect(project.publishable_key) as sender,
        live.connect(project.publishable_key) as receiver,
    ):
        channel = await join_public(receiver, topic)
        sending = await join_public(sender, topic, {'ack': True})

        assert await sender.send(sending, 'greeting', {}) == 'ok'
        assert (await channel.receive()).event == 'greeting'


async def test_one_socket_carries_many_channels(live: Live, project: Project) -> None:
    topics = [public_topic() for _ in range(10)]
    async with (
        live.connect(project.publishable_key) as sender,
        live.connect(project.publishable_key) as receiver,
    ):
        channel = [await join_public(receiver, topic) for topic in topics]
        for topic in reversed(topics):
            await sender.post(topic, 'here', {'topic': topic})

        assert [(await channel.receive()).payload['topic'] for channel in channel] == topics


async def test_a_channel_that_was_left_can_be_joined_again(live: Live, project: Project) -> None:
    topic, other = public_topic(), public_topic()
    async with (
        live.connect(project.publishable_key) as receiver,
        live.connect(project.publishable_key) as sender,
    ):
        stayed = await join_public(receiver, other)
        left = await join_public(receiver, topic)
        await receiver.leave(left)
        await left.wait_for_state('CLOSED')
        # The server confirms a leave twice, and realtime-py would apply the second confirmation to
        # the new channel: wait until it has arrived.
        await sender.post(other, 'in between', {})
        await stayed.receive()

        channel = await join_public(receiver, topic)
        await sender.post(topic, 'again', {})

        assert (await channel.receive()).event == 'again'


async def test_a_heartbeat_is_answered(
    project: Project, javascript: Callable[[], JavaScript]
) -> None:
    """By supabase-js only: realtime-py does not look at the response."""
    async with Live('supabase-js', project, javascript).connect(project.publishable_key) as client:
        assert isinstance(client, JavaScriptLive)
        await join_public(client, public_topic())

        assert await client.heartbeat() == 'ok'


async def test_a_broadcast_can_be_posted(live: Live, project: Project) -> None:
    topic = public_topic()
    async with (
        live.connect(project.publishable_key) as sender,
        live.connect(project.publishable_key) as receiver,
    ):
        channel = await join_public(receiver, topic)

        await sender.post(topic, 'by post: 50%', PAYLOAD)

        assert await channel.receive() == Broadcast('by post: 50%', PAYLOAD)


async def test_the_service_can_post_to_a_private_channel(
    live: Live, project: Project, owner: User
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.secret_key) as worker,
        live.connect(project.publishable_key, owner.token) as browser,
    ):
        channel = await join_private(browser, topic)

        await worker.post(topic, 'progress', {'pages_done': 7}, private=True)

        assert await channel.receive() == Broadcast('progress', {'pages_done': 7})


async def test_a_batch_of_broadcasts_can_be_posted(
    live: Live, project: Project, owner: User
) -> None:
    open_topic, private_topic = public_topic(), f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, owner.token) as receiver:
        channel = await join_public(receiver, open_topic)
        private_channel = await join_private(receiver, private_topic)

        response = await post_batch(
            project,
            project.secret_key,
            None,
            [
                {'topic': open_topic, 'event': 'first', 'payload': {'n': 1}},
                {'topic': open_topic, 'event': 'second', 'payload': {'n': 2}},
                {'topic': private_topic, 'event': 'third', 'payload': {'n': 3}, 'private': True},
            ],
        )

        assert (response.status_code, response.content) == (202, b'')
        assert [broadcast.event for broadcast in await channel.receive_all(2)] == [
            'first',
            'second',
        ]
        assert await private_channel.receive() == Broadcast('third', {'n': 3})


async def test_supabase_js_posts_broadcasts_that_it_sends_before_joining(
    live: Live, project: Project, javascript: Callable[[], JavaScript]
) -> None:
    topic = public_topic()
    async with (
        Live('supabase-js', project, javascript).connect(project.publishable_key) as sender,
        live.connect(project.publishable_key) as receiver,
    ):
        channel = await join_public(receiver, topic)
        assert isinstance(sender, JavaScriptLive)

        await sender.post(topic, 'early', PAYLOAD, is_batch=True)

        assert await channel.receive() == Broadcast('early', PAYLOAD)


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
    response = await post_batch(project, project.secret_key, None, messages)

    assert response.status_code == 422


async def test_a_broadcast_needs_a_key(project: Project) -> None:
    async with httpx.AsyncClient(timeout=30) as session:
        response = await session.post(
            f'{project.url}/realtime/v1/api/broadcast',
            json={'messages': [{'topic': 't', 'event': 'e', 'payload': {}}]},
        )

    assert response.status_code == 401


@pytest.mark.parametrize('topic', ['crawl_job', 'crawl_user', 'crawl_workers'])
@pytest.mark.parametrize('who', ['anonymous', 'stranger'])
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


async def test_the_channel_of_an_unknown_job_is_refused(
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
        await foreign.wait_for_state('CHANNEL_ERROR')

        await service.post(own.topic, 'still', {}, private=True)

        while (await own.receive()).event != 'still':
            pass


async def test_owners_can_join_their_own_channels(
    live: Live, project: Project, owner: User
) -> None:
    job_id = project.enqueue(owner)['id']
    async with live.connect(project.publishable_key, owner.token) as client:
        await join_private(client, f'crawl_job:{job_id}')
        await join_private(client, f'crawl_user:{owner.id}')


async def test_the_service_can_join_any_channel(live: Live, project: Project, owner: User) -> None:
    async with live.connect(project.secret_key) as client:
        await join_private(client, f'crawl_user:{owner.id}')
        await join_private(client, 'crawl_workers')


@pytest.fixture
def worker_token(project: Project) -> str:
    """A token of crawl_worker, if the project let the migrations open Realtime to that role."""
    token = project.own_worker_token()
    [granted] = project.own_session().execute(
        """
        select
          has_schema_privilege('crawl_worker', 'realtime', 'usage')
          and has_table_privilege('crawl_worker', 'realtime.messages', 'select') as all
        """
    )
    if project.is_hosted and not granted['all']:
        pytest.skip('this project does not let crawl_worker use Realtime')
    return token


async def test_a_worker_gets_commands(live: Live, project: Project, worker_token: str) -> None:
    async with (
        live.connect(project.publishable_key, worker_token) as worker,
        live.connect(project.secret_key) as service,
    ):
        commands = await join_private(worker, 'crawl_workers')
        mark = uuid4().hex

        await service.post('crawl_workers', mark, {}, private=True)

        while (await commands.receive()).event != mark:
            pass


async def test_a_worker_cannot_listen_to_jobs(
    live: Live, project: Project, owner: User, worker_token: str
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, worker_token) as worker:
        channel = await worker.join(topic, private=True)

        assert await channel.next_state() == 'CHANNEL_ERROR'


@pytest.mark.parametrize(
    ('topic', 'event'),
    [('crawl_workers', 'wake'), ('crawl_job', 'status'), ('crawl_job', 'progress')],
)
async def test_a_worker_cannot_send_messages(
    live: Live, project: Project, owner: User, worker_token: str, *, topic: str, event: str
) -> None:
    if topic == 'crawl_job':
        topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, worker_token) as worker:
        with pytest.raises((RealtimeHTTPError, JavaScriptError), match='Unauthorized'):
            await worker.post(topic, event, {}, private=True)


async def test_a_user_cannot_post_to_a_private_channel(
    live: Live, project: Project, owner: User
) -> None:
    async with live.connect(project.publishable_key, owner.token) as client:
        with pytest.raises((RealtimeHTTPError, JavaScriptError), match='Unauthorized'):
            await client.post(f'crawl_user:{owner.id}', 'forged', {}, private=True)


async def test_broadcasts_of_a_user_on_a_private_channel_are_dropped(
    live: Live, project: Project, owner: User
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.publishable_key, owner.token) as second_tab,
        live.connect(project.secret_key) as worker,
    ):
        channel = await join_private(second_tab, topic)
        sending = await join_private(browser, topic, {'ack': True})

        sending_forged = asyncio.create_task(browser.send(sending, 'forged', {}, timeout_seconds=2))
        batch = [{'topic': topic, 'event': 'forged', 'payload': {}, 'private': True}]
        # Every batch is accepted, and messages without permission are dropped.
        response = await post_batch(project, project.publishable_key, owner.token, batch)
        assert response.status_code == 202
        # There is no acknowledgement, so the client times out.
        assert await sending_forged == 'timed out'
        await worker.post(topic, 'progress', {}, private=True)

        assert (await channel.receive()).event == 'progress'


async def test_a_public_channel_does_not_leak_into_a_private_one_of_the_same_name(
    live: Live, project: Project, owner: User
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.publishable_key) as intruder,
        live.connect(project.secret_key) as worker,
    ):
        channel = await join_private(browser, topic)
        public_channel = await join_public(intruder, topic, {'ack': True, 'self': True})

        assert await intruder.send(public_channel, 'forged', {}) == 'ok'
        assert (await public_channel.receive()).event == 'forged'
        await worker.post(topic, 'progress', {}, private=True)
        await intruder.send(public_channel, 'end', {})

        assert (await channel.receive()).event == 'progress'
        assert (await public_channel.receive()).event == 'end'


async def test_a_socket_needs_a_valid_key(project: Project) -> None:
    async with httpx.AsyncClient(timeout=30) as session:
        response = await session.get(
            f'{project.url}/realtime/v1/websocket',
            params={'apikey': 'sb_publishable_nonsense', 'vsn': '1.0.0'},
            headers={
                'Connection': 'Upgrade',
                'Upgrade': 'websocket',
                'Sec-WebSocket-Version': '13',
                'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
            },
        )

    assert response.status_code in (401, 403)


async def post_batch(
    project: Project, key: str, token: str | None, messages: list[dict[str, Any]]
) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as session:
        return await session.post(
            f'{project.url}/realtime/v1/api/broadcast',
            headers={'apikey': key, 'Authorization': f'Bearer {token or key}'},
            json={'messages': messages},
        )

"""Broadcasts of the database: after the commit and in order."""

import asyncio

import pytest

from tests.support.database import Session
from tests.support.live_clients import Broadcast, Channel, Live, LiveClient, Options
from tests.support.project import Project, User, own_kind


async def join(client: LiveClient, topic: str) -> Channel:
    """Join a private channel, and wait until broadcasts of the database arrive."""
    broadcast: Options = {'replication_ready': True}
    channel = await client.join(topic, private=True, broadcast=broadcast)
    assert await channel.next_state() == 'SUBSCRIBED', channel.reasons
    await channel.wait_for_replication()
    return channel


async def change_job(project: Project, user: User, function: str, job_id: str) -> None:
    await asyncio.to_thread(project.call, function, token=user.token, p_job_id=job_id)


def send(session: Session, topic: str, event: str, payload: str = '{}') -> None:
    session.execute('select realtime.send(%s::jsonb, %s, %s)', [payload, event, topic])


def changes(broadcasts: list[Broadcast]) -> list[tuple[str, str, str, int]]:
    return [
        (
            broadcast.event,
            broadcast.payload['from'],
            broadcast.payload['to'],
            broadcast.payload['seq'],
        )
        for broadcast in broadcasts
    ]


async def test_each_change_of_a_job_is_sent_to_its_channel_in_order(
    live: Live, project: Project, owner: User
) -> None:
    job_id = project.enqueue(owner)['id']
    async with live.connect(project.publishable_key, owner.token) as browser:
        channel = await join(browser, f'crawl_job:{job_id}')

        for action in ('pause', 'resume', 'pause', 'cancel'):
            await change_job(project, owner, f'{action}_crawl_job', job_id)

        assert changes(await channel.receive_all(4)) == [
            ('status', 'pending', 'paused', 2),
            ('status', 'paused', 'pending', 3),
            ('status', 'pending', 'paused', 4),
            ('status', 'paused', 'cancelled', 5),
        ]


async def test_a_user_gets_the_changes_of_all_their_jobs_on_one_channel(
    live: Live, project: Project, owner: User
) -> None:
    async with live.connect(project.publishable_key, owner.token) as browser:
        channel = await join(browser, f'crawl_user:{owner.id}')

        job_id = (await asyncio.to_thread(project.enqueue, owner))['id']
        await change_job(project, owner, 'cancel_crawl_job', job_id)

        # Broadcasts of earlier tests may still arrive.
        while (broadcast := await channel.receive()).payload.get('job_ids') != [job_id]:
            pass
        assert (broadcast.event, broadcast.payload['count']) == ('enqueued', 1)
        assert changes([await channel.receive()]) == [('status', 'pending', 'cancelled', 2)]


async def test_two_clients_get_the_same_broadcasts(
    live: Live, project: Project, owner: User
) -> None:
    job_id = project.enqueue(owner)['id']
    async with (
        live.connect(project.publishable_key, owner.token) as first,
        live.connect(project.publishable_key, owner.token) as second,
    ):
        channels = [await join(client, f'crawl_job:{job_id}') for client in (first, second)]

        await change_job(project, owner, 'pause_crawl_job', job_id)

        [one, other] = [await channel.receive() for channel in channels]
        assert one == other
        assert one.payload['job_id'] == job_id


async def test_no_one_gets_the_changes_of_another_users_job(
    live: Live, project: Project, owner: User, stranger: User
) -> None:
    async with live.connect(project.publishable_key, stranger.token) as browser:
        channel = await join(browser, f'crawl_user:{stranger.id}')

        others = (await asyncio.to_thread(project.enqueue, owner))['id']
        await change_job(project, owner, 'cancel_crawl_job', others)
        own = (await asyncio.to_thread(project.enqueue, stranger))['id']

        received: list[Broadcast] = []
        while not received or received[-1].payload.get('job_ids') != [own]:
            received.append(await channel.receive())
        assert others not in str(received)


async def test_broadcasts_that_were_rolled_back_are_never_sent(
    live: Live, project: Project, owner: User
) -> None:
    session = project.own_session()
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, owner.token) as browser:
        channel = await join(browser, topic)

        with session.transaction(force_rollback=True):
            send(session, topic, 'undone')
        send(session, topic, 'done')

        assert (await channel.receive()).event == 'done'


async def test_broadcasts_of_one_transaction_arrive_in_order_after_its_commit(
    live: Live, project: Project, owner: User
) -> None:
    session = project.own_session()
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.secret_key) as worker,
    ):
        channel = await join(browser, topic)

        with session.transaction():
            for n in range(10):
                send(session, topic, 'count', f'{{"n": {n}}}')
            await worker.post(topic, 'before the commit', {}, private=True)
            assert (await channel.receive()).event == 'before the commit'

        assert [broadcast.payload['n'] for broadcast in await channel.receive_all(10)] == list(
            range(10)
        )


async def test_a_payload_arrives_as_it_was_sent(live: Live, project: Project, owner: User) -> None:
    session = project.own_session()
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, owner.token) as browser:
        channel = await join(browser, topic)

        send(
            session,
            topic,
            'größer',
            '{"id": "own", "text": "a\\"b\\\\c \U0001f577", "n": [1, null]}',
        )

        assert await channel.receive() == Broadcast(
            'größer', {'id': 'own', 'text': 'a"b\\c \U0001f577', 'n': [1, None]}
        )


async def test_a_large_payload_arrives_whole(live: Live, project: Project, owner: User) -> None:
    session = project.own_session()
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    text = 'x' * 100_000
    async with live.connect(project.publishable_key, owner.token) as browser:
        channel = await join(browser, topic)

        send(session, topic, 'large', f'{{"text": "{text}"}}')

        assert (await channel.receive()).payload['text'] == text


async def test_a_public_message_from_the_database_reaches_public_channels_only(
    live: Live, project: Project, owner: User
) -> None:
    session = project.own_session()
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.publishable_key) as anonymous,
    ):
        channel = await join(browser, topic)
        public_channel = await anonymous.join(topic)
        if await public_channel.next_state() != 'SUBSCRIBED':
            pytest.skip('this project allows private channels only')

        session.execute("select realtime.send('{}', 'for all', %s, false)", [topic])
        send(session, topic, 'for the owner')
        session.execute("select realtime.send('{}', 'for all again', %s, false)", [topic])

        assert (await channel.receive()).event == 'for the owner'
        assert [broadcast.event for broadcast in await public_channel.receive_all(2)] == [
            'for all',
            'for all again',
        ]


async def test_a_new_job_wakes_workers(live: Live, project: Project, owner: User) -> None:
    async with live.connect(project.secret_key) as worker:
        channel = await join(worker, 'crawl_workers')

        with own_kind(project) as kind:
            await asyncio.to_thread(project.enqueue, owner, p_kind=kind, p_run_after=None)

        while (broadcast := await channel.receive()).payload.get('kinds') != [kind]:
            pass
        assert broadcast.event == 'wake'

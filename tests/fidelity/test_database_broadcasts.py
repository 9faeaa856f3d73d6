"""What the database itself broadcasts: after the commit and in order."""

import asyncio

import pytest

from tests.support.database import Session
from tests.support.live_clients import Broadcast, Channel, Live, LiveClient, Options
from tests.support.project import Project, User, own_kind


async def join(client: LiveClient, topic: str) -> Channel:
    """Join a private channel, and wait until broadcasts of the database flow."""
    broadcast: Options = {'replication_ready': True}
    channel = await client.join(topic, private=True, broadcast=broadcast)
    assert await channel.next_state() == 'SUBSCRIBED', channel.reasons
    await channel.replication()
    return channel


async def press(project: Project, user: User, button: str, job_id: str) -> None:
    await asyncio.to_thread(project.call, button, token=user.token, p_job_id=job_id)


def send(session: Session, topic: str, event: str, payload: str = '{}') -> None:
    session.execute('select realtime.send(%s::jsonb, %s, %s)', [payload, event, topic])


def changes(heard: list[Broadcast]) -> list[tuple[str, str, str, int]]:
    return [
        (told.event, told.payload['from'], told.payload['to'], told.payload['seq'])
        for told in heard
    ]


async def test_each_change_of_a_job_is_told_to_its_channel_in_order(
    live: Live, project: Project, owner: User
) -> None:
    job_id = project.enqueue(owner)['id']
    async with live.connect(project.publishable_key, owner.token) as browser:
        heard = await join(browser, f'crawl_job:{job_id}')

        for button in ('pause', 'resume', 'pause', 'cancel'):
            await press(project, owner, f'{button}_crawl_job', job_id)

        assert changes(await heard.hear_all(4)) == [
            ('status', 'pending', 'paused', 2),
            ('status', 'paused', 'pending', 3),
            ('status', 'pending', 'paused', 4),
            ('status', 'paused', 'cancelled', 5),
        ]


async def test_a_user_hears_of_all_own_jobs_on_one_channel(
    live: Live, project: Project, owner: User
) -> None:
    async with live.connect(project.publishable_key, owner.token) as browser:
        heard = await join(browser, f'crawl_user:{owner.id}')

        job_id = (await asyncio.to_thread(project.enqueue, owner))['id']
        await press(project, owner, 'cancel_crawl_job', job_id)

        # What an earlier test did may still be on its way.
        while (told := await heard.hear()).payload.get('job_ids') != [job_id]:
            pass
        assert (told.event, told.payload['count']) == ('enqueued', 1)
        assert changes([await heard.hear()]) == [('status', 'pending', 'cancelled', 2)]


async def test_two_clients_hear_the_same(live: Live, project: Project, owner: User) -> None:
    job_id = project.enqueue(owner)['id']
    async with (
        live.connect(project.publishable_key, owner.token) as first,
        live.connect(project.publishable_key, owner.token) as second,
    ):
        channels = [await join(client, f'crawl_job:{job_id}') for client in (first, second)]

        await press(project, owner, 'pause_crawl_job', job_id)

        [one, other] = [await channel.hear() for channel in channels]
        assert one == other
        assert one.payload['job_id'] == job_id


async def test_nobody_hears_of_another_users_job(
    live: Live, project: Project, owner: User, stranger: User
) -> None:
    async with live.connect(project.publishable_key, stranger.token) as browser:
        heard = await join(browser, f'crawl_user:{stranger.id}')

        others = (await asyncio.to_thread(project.enqueue, owner))['id']
        await press(project, owner, 'cancel_crawl_job', others)
        own = (await asyncio.to_thread(project.enqueue, stranger))['id']

        told: list[Broadcast] = []
        while not told or told[-1].payload.get('job_ids') != [own]:
            told.append(await heard.hear())
        assert others not in str(told)


async def test_what_was_rolled_back_is_never_told(
    live: Live, project: Project, owner: User
) -> None:
    session = project.own_session()
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, owner.token) as browser:
        heard = await join(browser, topic)

        with session.transaction(force_rollback=True):
            send(session, topic, 'undone')
        send(session, topic, 'done')

        assert (await heard.hear()).event == 'done'


async def test_what_is_sent_in_one_transaction_is_told_in_order_after_its_commit(
    live: Live, project: Project, owner: User
) -> None:
    session = project.own_session()
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.secret_key) as worker,
    ):
        heard = await join(browser, topic)

        with session.transaction():
            for n in range(10):
                send(session, topic, 'count', f'{{"n": {n}}}')
            await worker.post(topic, 'before the commit', {}, private=True)
            assert (await heard.hear()).event == 'before the commit'

        assert [told.payload['n'] for told in await heard.hear_all(10)] == list(range(10))


async def test_a_payload_arrives_as_it_was_sent(live: Live, project: Project, owner: User) -> None:
    session = project.own_session()
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, owner.token) as browser:
        heard = await join(browser, topic)

        send(
            session,
            topic,
            'größer',
            '{"id": "own", "text": "a\\"b\\\\c \U0001f577", "n": [1, null]}',
        )

        assert await heard.hear() == Broadcast(
            'größer', {'id': 'own', 'text': 'a"b\\c \U0001f577', 'n': [1, None]}
        )


async def test_a_large_payload_arrives_whole(live: Live, project: Project, owner: User) -> None:
    session = project.own_session()
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    text = 'x' * 100_000
    async with live.connect(project.publishable_key, owner.token) as browser:
        heard = await join(browser, topic)

        send(session, topic, 'large', f'{{"text": "{text}"}}')

        assert (await heard.hear()).payload['text'] == text


async def test_a_public_message_of_the_database_reaches_public_channels_only(
    live: Live, project: Project, owner: User
) -> None:
    session = project.own_session()
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.publishable_key) as passer_by,
    ):
        heard = await join(browser, topic)
        overheard = await passer_by.join(topic)
        if await overheard.next_state() != 'SUBSCRIBED':
            pytest.skip('this project allows private channels only')

        session.execute("select realtime.send('{}', 'for all', %s, false)", [topic])
        send(session, topic, 'for the owner')
        session.execute("select realtime.send('{}', 'for all again', %s, false)", [topic])

        assert (await heard.hear()).event == 'for the owner'
        assert [told.event for told in await overheard.hear_all(2)] == ['for all', 'for all again']


async def test_workers_are_woken_by_a_new_job(live: Live, project: Project, owner: User) -> None:
    async with live.connect(project.secret_key) as worker:
        heard = await join(worker, 'crawl_workers')

        with own_kind(project) as kind:
            await asyncio.to_thread(project.enqueue, owner, p_kind=kind, p_run_after=None)

        while (told := await heard.hear()).payload.get('kinds') != [kind]:
            pass
        assert told.event == 'wake'

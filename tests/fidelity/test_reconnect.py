"""Clients come back by themselves after the gateway was away, and receive again."""

import asyncio

from tests.support.live_clients import Live
from tests.support.project import Project, User
from tests.support.rest_clients import Rest

WHY = 'the tests cannot restart it'


async def test_a_client_reconnects_after_a_restart_and_gets_broadcasts_again(
    live: Live, project: Project, owner: User
) -> None:
    gateway = project.own_gateway(WHY)
    job_id = project.enqueue(owner)['id']
    public_topic = f'silkline_test:{job_id}'
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.secret_key) as worker,
    ):
        private = await browser.join(
            f'crawl_job:{job_id}', private=True, broadcast={'replication_ready': True}
        )
        public = await browser.join(public_topic)
        await private.wait_for_state('SUBSCRIBED')
        await public.wait_for_state('SUBSCRIBED')

        await asyncio.to_thread(gateway.stop)
        try:
            await private.wait_for_state('CHANNEL_ERROR')
            await public.wait_for_state('CHANNEL_ERROR')
        finally:
            await asyncio.to_thread(gateway.start)
        await private.wait_for_state('SUBSCRIBED')
        await public.wait_for_state('SUBSCRIBED')
        await private.wait_for_replication()

        await worker.post(public_topic, 'from a client', {})
        await asyncio.to_thread(project.call, 'pause_crawl_job', token=owner.token, p_job_id=job_id)

        assert (await public.receive()).event == 'from a client'
        broadcast = await private.receive()
        assert (broadcast.event, broadcast.payload['to']) == ('status', 'paused')


async def test_a_client_rejoins_with_its_newest_token(
    live: Live, project: Project, owner: User
) -> None:
    gateway = project.own_gateway(WHY)
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    short = gateway.keys.user_token(str(owner.id), seconds=5)
    async with (
        live.connect(project.publishable_key, short) as browser,
        live.connect(project.publishable_key, short) as not_renewed,
        live.connect(project.secret_key) as worker,
    ):
        channel = await browser.join(topic, private=True)
        expired = await not_renewed.join(topic, private=True)
        await channel.wait_for_state('SUBSCRIBED')
        await expired.wait_for_state('SUBSCRIBED')
        await browser.set_auth(project.sign_in(owner))
        await expired.wait_for_state('CLOSED')

        await asyncio.to_thread(gateway.stop)
        await asyncio.to_thread(gateway.start)
        await channel.wait_for_state('SUBSCRIBED')
        await worker.post(topic, 'progress', {}, private=True)

        assert (await channel.receive()).event == 'progress'


def test_rest_clients_work_again_after_a_restart(rest: Rest, project: Project, owner: User) -> None:
    gateway = project.own_gateway(WHY)
    client = rest.as_user(owner)
    before = client.call('crawl_queue_stats')

    gateway.stop()
    gateway.start()
    # A read: all three clients retry it if the connection is stale.
    after = client.read('crawl_settings', ('select', 'id'))

    assert (before.status, after.status) == (200, 200)

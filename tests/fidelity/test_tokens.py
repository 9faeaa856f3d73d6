"""The token of a channel: renewed, replaced by another user's, expired."""

import asyncio

from tests.support.live_clients import Channel, Live, LiveClient
from tests.support.project import Project, User


async def join(client: LiveClient, topic: str) -> Channel:
    channel = await client.join(topic, private=True)
    assert await channel.next_state() == 'SUBSCRIBED', channel.reasons
    return channel


async def test_a_new_token_of_the_same_user_keeps_the_channel(
    live: Live, project: Project, owner: User
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.secret_key) as worker,
    ):
        channel = await join(browser, topic)

        await browser.set_auth(await asyncio.to_thread(project.sign_in, owner))
        await worker.post(topic, 'progress', {}, private=True)

        assert (await channel.receive()).event == 'progress'
        assert channel.reasons == []


async def test_a_token_of_another_user_closes_the_channel(
    live: Live, project: Project, owner: User, stranger: User
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, owner.token) as browser:
        channel = await join(browser, topic)

        await browser.set_auth(stranger.token)

        await channel.wait_for_state('CLOSED')
        assert 'permission' in str(channel.reasons)


async def test_a_token_of_another_user_does_not_affect_public_channels(
    live: Live, project: Project, owner: User, stranger: User
) -> None:
    job_id = project.enqueue(owner)['id']
    async with (
        live.connect(project.publishable_key, owner.token) as browser,
        live.connect(project.secret_key) as worker,
    ):
        own = await join(browser, f'crawl_job:{job_id}')
        public = await browser.join(f'silkline_test:{job_id}')
        await public.wait_for_state('SUBSCRIBED')

        await browser.set_auth(stranger.token)
        await own.wait_for_state('CLOSED')
        await worker.post(public.topic, 'still here', {})

        assert (await public.receive()).event == 'still here'


async def test_a_forged_token_closes_the_channel(live: Live, project: Project, owner: User) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    head, claims, signature = owner.token.split('.')
    forged = '.'.join((head, claims, signature[::-1]))
    async with live.connect(project.publishable_key, owner.token) as browser:
        channel = await join(browser, topic)

        await browser.set_auth(forged)

        await channel.wait_for_state('CLOSED')


async def test_a_join_with_a_forged_token_is_refused(
    live: Live, project: Project, owner: User
) -> None:
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    head, claims, signature = owner.token.split('.')
    forged = '.'.join((head, claims, signature[::-1]))
    async with live.connect(project.publishable_key, forged) as browser:
        channel = await browser.join(topic, private=True)

        assert await channel.next_state() == 'CHANNEL_ERROR'


async def test_a_join_with_an_expired_token_is_refused(
    live: Live, project: Project, owner: User
) -> None:
    keys = project.own_gateway('tokens of Auth last an hour').keys
    expired = keys.user_token(str(owner.id), seconds=-120)
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    async with live.connect(project.publishable_key, expired) as browser:
        channel = await browser.join(topic, private=True)

        assert await channel.next_state() == 'CHANNEL_ERROR'
        assert 'InvalidJWTToken' in str(channel.reasons)


async def test_a_channel_closes_when_its_token_expires(
    live: Live, project: Project, owner: User
) -> None:
    keys = project.own_gateway('tokens of Auth last an hour').keys
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    short = keys.user_token(str(owner.id), seconds=3)
    async with live.connect(project.publishable_key, short) as browser:
        channel = await join(browser, topic)

        await channel.wait_for_state('CLOSED')
        assert 'expired' in str(channel.reasons)


async def test_a_channel_survives_the_token_that_it_was_joined_with(
    live: Live, project: Project, owner: User
) -> None:
    keys = project.own_gateway('tokens of Auth last an hour').keys
    topic = f'crawl_job:{project.enqueue(owner)["id"]}'
    short = keys.user_token(str(owner.id), seconds=4)
    async with (
        live.connect(project.publishable_key, short) as browser,
        live.connect(project.publishable_key, short) as not_renewed,
        live.connect(project.secret_key) as worker,
    ):
        channel = await join(browser, topic)
        expired = await join(not_renewed, topic)

        await browser.set_auth(project.sign_in(owner))
        await expired.wait_for_state('CLOSED')
        await worker.post(topic, 'progress', {}, private=True)

        assert (await channel.receive()).event == 'progress'
        assert channel.reasons == []

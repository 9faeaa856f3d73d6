"""A whole job through the API: a worker on postgrest-py, its owner in a browser on supabase-js."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from postgrest import AsyncPostgrestClient

from tests.support.javascript import JavaScript
from tests.support.live_clients import Live
from tests.support.project import Project, User, own_kind
from tests.support.queue import fetched, found

Call = Callable[..., Any]


@asynccontextmanager
async def worker_calls(project: Project, token: str | None) -> AsyncGenerator[Call]:
    """Functions as the worker calls them: with the secret key, or with a token of its role."""
    key = project.secret_key if token is None else project.publishable_key
    async with (
        httpx.AsyncClient(timeout=30) as session,
        AsyncPostgrestClient(
            f'{project.url}/rest/v1',
            headers={'apikey': key, 'Authorization': f'Bearer {token or key}'},
            http_client=session,
        ) as client,
    ):

        async def call(function: str, **params: Any) -> Any:
            return (await client.rpc(function, params).execute()).data

        yield call


@pytest.mark.parametrize('role', ['service_role', 'crawl_worker'])
async def test_a_job_runs_to_its_end_while_its_owner_watches(
    project: Project,
    javascript: Callable[[], JavaScript],
    owner: User,
    worker_id: str,
    *,
    role: str,
) -> None:
    token = project.own_worker_token() if role == 'crawl_worker' else None
    browser_clients = Live('supabase-js', project, javascript)
    with own_kind(project) as kind:
        async with (
            worker_calls(project, token) as call,
            browser_clients.connect(project.publishable_key, owner.token) as browser,
        ):
            job = await asyncio.to_thread(project.enqueue, owner, p_kind=kind, p_run_after=None)
            topic = f'crawl_job:{job["id"]}'
            channel = await browser.join(topic, private=True, broadcast={'replication_ready': True})
            await channel.wait_for_state('SUBSCRIBED')
            await channel.wait_for_replication()

            lease = str(uuid4())
            [claimed] = await call(
                'claim_crawl_jobs', p_worker_id=worker_id, p_lease_tokens=[lease], p_kinds=[kind]
            )
            assert (claimed['id'], claimed['status']) == (job['id'], 'processing')
            first = await call(
                'checkpoint_crawl_job',
                p_lease_token=lease,
                p_batch={'seq': 1, 'discovered': [found(1, depth=0)]},
                p_want=5,
            )
            [beat] = await call(
                'heartbeat_crawl_jobs', p_worker_id=worker_id, p_lease_tokens=[lease]
            )
            second = await call(
                'checkpoint_crawl_job',
                p_lease_token=lease,
                p_batch={'seq': 2, 'finished': [fetched(1)]},
                p_want=5,
            )
            progress = await asyncio.to_thread(
                project.call, 'crawl_progress', token=owner.token, p_job_id=job['id']
            )
            [ended] = await call('complete_crawl_job', p_lease_token=lease)
            received = [await channel.receive()]
            while received[-1].payload.get('to') != 'completed':
                received.append(await channel.receive())

            assert (first['command'], len(first['tasks'])) == ('continue', 1)
            assert beat['command'] == 'continue'
            assert (second['drained'], progress['pages_done']) == (True, 1)
            assert ended['status'] == 'completed'
            # At most one message per second says how far the job is.
            events = [broadcast.event for broadcast in received]
            assert events == ['status', *['progress'] * (len(events) - 2), 'status']
            assert len(events) > 2
            claim, end = received[0].payload, received[-1].payload
            assert (claim['from'], claim['to'], claim['seq']) == ('pending', 'processing', 2)
            assert (end['from'], end['to'], end['seq']) == ('processing', 'completed', 3)


async def test_a_worker_gets_the_commands_of_the_owner(
    project: Project, javascript: Callable[[], JavaScript], owner: User, worker_id: str
) -> None:
    with own_kind(project) as kind:
        async with (
            worker_calls(project, None) as call,
            Live('realtime-py', project, javascript).connect(project.secret_key) as worker,
        ):
            commands = await worker.join(
                'crawl_workers', private=True, broadcast={'replication_ready': True}
            )
            await commands.wait_for_state('SUBSCRIBED')
            await commands.wait_for_replication()
            job = await asyncio.to_thread(project.enqueue, owner, p_kind=kind, p_run_after=None)
            lease = str(uuid4())
            await call(
                'claim_crawl_jobs', p_worker_id=worker_id, p_lease_tokens=[lease], p_kinds=[kind]
            )

            await asyncio.to_thread(
                project.call, 'cancel_crawl_job', token=owner.token, p_job_id=job['id']
            )

            while (broadcast := await commands.receive()).payload.get('worker_id') != worker_id:
                pass
            assert (broadcast.event, broadcast.payload['command']) == ('command', 'cancel')
            [released] = await call('release_crawl_job', p_lease_token=lease)
            assert released['status'] == 'cancelled'

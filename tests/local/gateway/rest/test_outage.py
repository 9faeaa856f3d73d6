"""Outages of the database, too few connections, and clients that disconnect."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest
from aiohttp import web

from silkline_local.gateway.app import answer_failures
from silkline_local.gateway.callers import Callers
from silkline_local.gateway.rest.database.connection import (
    ConnectionLost,
    PipelineConnection,
    Statement,
)
from silkline_local.gateway.rest.database.pool import ConnectionPool, PoolExhausted
from silkline_local.gateway.rest.routes import Rest
from silkline_local.keys import generate_keys
from silkline_local.postgres.migrations import bootstrap
from tests.support.database import Database
from tests.support.gateway import GatewayThread
from tests.support.http import http
from tests.support.ports import unused_port
from tests.support.rest import Api, open_api
from tests.support.servers import Missing, Server, kill_with_sessions, make_server
from tests.support.waiting import wait_until

SETUP = r"""
create function public.is_well() returns boolean language sql volatile as 'select true';
create function public.backend() returns int language sql volatile as 'select pg_backend_pid()';
create function public.wait_for(p_lock int) returns boolean language sql volatile
  as 'select pg_advisory_xact_lock(p_lock); select true';
grant execute on all functions in schema public to service_role;
"""


@pytest.fixture(scope='module')
def api(server: Server, template: str) -> Iterator[Api]:
    with open_api(server, template, SETUP) as api:
        yield api


def terminate(api: Api, condition: str) -> None:
    api.database.query(
        f'select pg_terminate_backend(pid) from pg_stat_activity where {condition}',  # noqa: S608 - written here
        role='supabase_admin',
    )


def backends(api: Api, condition: str) -> int:
    """The number of the gateway's connections that match `condition`."""
    rows = api.database.query(
        f"""
          select count(*)
          from pg_stat_activity
          where application_name = 'silkline-rest'
            and datname = current_database()
            and {condition}
        """,  # noqa: S608 - written here
        role='supabase_admin',
    )
    return rows[0]['count']


def test_clients_do_not_notice_that_idle_connections_ended(api: Api) -> None:
    for _ in range(5):
        pid = api.call('backend').json()
        terminate(api, f'pid = {pid}')
        wait_until(lambda pid=pid: backends(api, f'pid = {pid}') == 0)
        assert api.call('is_well').json() is True


def test_a_connection_that_ends_during_a_call_is_a_503(api: Api) -> None:
    with api.database.connect() as other, ThreadPoolExecutor(1) as threads:
        other.execute('select pg_advisory_lock(71)')
        waiting = threads.submit(api.call, 'wait_for', {'p_lock': 71})
        wait_until(lambda: backends(api, "wait_event = 'advisory'"))
        terminate(api, "wait_event = 'advisory'")
        response = waiting.result()
    assert response.status_code == 503
    assert response.json()['code'] in ('57P01', 'PGRST001')
    assert api.call('is_well').json() is True


def test_the_schema_is_watched_again_after_a_lost_connection(api: Api) -> None:
    terminate(api, "application_name = 'silkline-rest-watcher' and datname = current_database()")
    api.database.query("create function public.later() returns int language sql as 'select 1'")
    api.database.query('grant execute on function public.later() to service_role')
    wait_until(lambda: api.call('later').status_code == 200)


def test_a_client_that_disconnects_leaves_no_transaction_open(api: Api) -> None:
    with api.database.connect() as other:
        other.execute('select pg_advisory_lock(72)')
        body = b'{"p_lock": 72}'
        with socket.create_connection(('127.0.0.1', api.gateway.port)) as connection:
            connection.sendall(
                f'POST /rest/v1/rpc/wait_for HTTP/1.1\r\nHost: 127.0.0.1\r\n'
                f'apikey: {api.gateway.keys.secret}\r\nContent-Type: application/json\r\n'
                f'Content-Length: {len(body)}\r\n\r\n'.encode()
                + body
            )
            wait_until(lambda: backends(api, "wait_event = 'advisory'") == 1)
    wait_until(lambda: backends(api, "state <> 'idle'") == 0)
    assert api.call('is_well').json() is True


def test_a_slow_body_holds_no_connection(api: Api) -> None:
    request = (
        f'POST /rest/v1/rpc/is_well HTTP/1.1\r\nHost: 127.0.0.1\r\n'
        f'apikey: {api.gateway.keys.secret}\r\nContent-Length: 10\r\n\r\n{{'
    ).encode()
    with contextlib.ExitStack() as opened:
        for _ in range(30):
            connection = socket.create_connection(('127.0.0.1', api.gateway.port))
            opened.enter_context(connection)
            connection.sendall(request)
        assert api.call('is_well').json() is True
        assert backends(api, "state <> 'idle'") == 0


def test_a_body_that_ends_early_does_not_affect_other_requests(api: Api) -> None:
    with socket.create_connection(('127.0.0.1', api.gateway.port)) as connection:
        connection.sendall(
            f'POST /rest/v1/rpc/is_well HTTP/1.1\r\nHost: 127.0.0.1\r\n'
            f'apikey: {api.gateway.keys.secret}\r\nContent-Length: 10\r\n\r\n{{'.encode()
        )
    assert api.call('is_well').json() is True


def test_requests_wait_for_a_free_connection(api: Api) -> None:
    with api.database.connect() as other, ThreadPoolExecutor(40) as threads:
        other.execute('select pg_advisory_lock(73)')
        waiting = [threads.submit(api.call, 'wait_for', {'p_lock': 73}) for _ in range(30)]
        wait_until(lambda: backends(api, "wait_event = 'advisory'") == 10)
        other.execute('select pg_advisory_unlock(73)')
        assert all(call.result().json() is True for call in waiting)
    assert backends(api, 'true') <= 10


def test_a_request_that_waits_too_long_for_a_connection_fails(
    server: Server, template: str
) -> None:
    async def scenario(url: str) -> None:
        pool = ConnectionPool(url, size=1, wait_seconds=0.05)
        async with pool.connection():
            with pytest.raises(PoolExhausted):
                async with pool.connection():
                    pass
        # The request that gave up no longer waits.
        async with pool.connection() as connection:
            await connection.run([Statement(b'select 1')])
        await pool.close()

    with server.database(template) as database:
        asyncio.run(scenario(database.url('authenticator')))


def test_a_cancelled_request_leaves_its_connection_to_the_next(
    server: Server, template: str
) -> None:
    async def scenario(url: str) -> None:
        pool = ConnectionPool(url, size=1)

        has_one = asyncio.Event()

        async def work(statement: bytes) -> int:
            async with pool.connection() as connection:
                has_one.set()
                return len(await connection.run([Statement(statement)]))

        async with asyncio.timeout(50), asyncio.TaskGroup() as tasks:
            first = tasks.create_task(work(b'select pg_sleep(60)'))
            await has_one.wait()
            second = tasks.create_task(work(b'select 1'))
            third = tasks.create_task(work(b'select 1'))
            # Both start to wait.
            await asyncio.sleep(0)
            second.cancel()
            first.cancel()
            assert await third == 1
        await pool.close()

    with server.database(template) as database:
        asyncio.run(scenario(database.url('authenticator')))


def test_a_lost_connection_is_reported_once(server: Server, template: str) -> None:
    async def scenario(url: str, admin: psycopg.Connection) -> None:
        lost: list[PipelineConnection] = []
        is_lost = asyncio.Event()

        def on_lost(connection: PipelineConnection) -> None:
            lost.append(connection)
            is_lost.set()

        connection = await PipelineConnection.open(url, on_lost=on_lost)
        (result,) = await connection.run([Statement(b'select pg_backend_pid()')])
        admin.execute('select pg_terminate_backend(%s)', [int(result.get_value(0, 0) or b'')])
        async with asyncio.timeout(50):
            await is_lost.wait()
        assert not connection.is_clean
        with pytest.raises(ConnectionLost):
            await connection.run([Statement(b'select 1')])
        assert lost == [connection]
        await connection.close()

    with (
        server.database(template) as database,
        psycopg.connect(database.url('supabase_admin'), autocommit=True) as admin,
    ):
        asyncio.run(scenario(database.url('authenticator'), admin))


def test_closing_a_lost_connection_does_not_touch_a_reused_socket(
    server: Server, template: str
) -> None:
    async def scenario(url: str, admin: psycopg.Connection) -> None:
        is_lost = asyncio.Event()
        lost = await PipelineConnection.open(url, on_lost=lambda _: is_lost.set())
        (result,) = await lost.run([Statement(b'select pg_backend_pid()')])
        admin.execute('select pg_terminate_backend(%s)', [int(result.get_value(0, 0) or b'')])
        async with asyncio.timeout(50):
            await is_lost.wait()
            # It gets the file number of the closed socket, before `lost` is closed.
            following = await PipelineConnection.open(url, on_lost=lambda _: None)
            await lost.close()
            assert len(await following.run([Statement(b'select 1')])) == 1
        await following.close()

    with (
        server.database(template) as database,
        psycopg.connect(database.url('supabase_admin'), autocommit=True) as admin,
    ):
        asyncio.run(scenario(database.url('authenticator'), admin))


def test_a_killed_database_is_a_503_at_once_and_calls_work_again_after_its_restart(
    directory: Path,
) -> None:
    try:
        postgres = make_server(18, directory)
    except Missing as missing:
        pytest.skip(str(missing))
    with postgres:
        bootstrap(postgres)
        with Database(postgres, 'postgres') as database:
            database.query(SETUP)
        with GatewayThread(Database(postgres, 'postgres')) as gateway:
            keys = gateway.keys

            def call(function: str = 'is_well') -> httpx.Response:
                return http.post(
                    f'{gateway.url}/rest/v1/rpc/{function}', headers={'apikey': keys.secret}
                )

            assert call().json() is True
            port = postgres.port
            kill_with_sessions(postgres)
            wait_until(lambda: call().status_code == 503)
            started = time.monotonic()
            for _ in range(20):
                response = call()
                assert (response.status_code, response.json()['code']) == (503, 'PGRST000')
                assert response.json()['message'] == (
                    'Database connection error. Retrying the connection.'
                )
            # A request that waited for a connection would take longer.
            assert time.monotonic() - started < 20
            postgres.stop()
            postgres.start()
            assert postgres.port == port
            wait_until(lambda: call().status_code == 200)
            with Database(postgres, 'postgres') as database:
                database.query(
                    "create function public.later() returns int language sql as 'select 1'"
                )
                database.query('grant execute on function public.later() to service_role')
            wait_until(lambda: call('later').status_code == 200)


def test_a_gateway_that_starts_without_a_database_answers_503() -> None:
    async def scenario() -> None:
        keys = generate_keys()
        rest = Rest(
            database_url=f'postgresql://authenticator@127.0.0.1:{unused_port()}/postgres',
            callers=Callers(keys),
        )
        async with rest:
            application = web.Application(middlewares=[answer_failures])
            rest.add_routes(application.router)
            runner = web.AppRunner(application)
            await runner.setup()
            await web.TCPSite(runner, '127.0.0.1', 0).start()
            async with httpx.AsyncClient() as client:
                url = f'http://127.0.0.1:{runner.addresses[0][1]}/rest/v1/rpc/x'
                response = await client.post(url, headers={'apikey': keys.secret})
            await runner.cleanup()
        assert (response.status_code, response.json()['code']) == (503, 'PGRST002')

    asyncio.run(scenario())

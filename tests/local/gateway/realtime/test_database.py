"""Broadcasts from the database: after commit and in order."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from silkline_local.gateway.realtime.database import RealtimeDatabase
from silkline_local.postgres.migrations import bootstrap
from silkline_local.postgres.server import SUPERUSER, Postgres
from tests.support.database import Database
from tests.support.gateway import GatewayThread
from tests.support.phoenix import V1, V2, Phoenix, open_socket
from tests.support.servers import FAST, kill_with_sessions
from tests.support.waiting import wait_until

SEND = 'select realtime.send(%s::jsonb, %s, %s, %s)'


def send(
    database: Database, payload: dict[str, Any], *, topic: str = 'room', private: bool = True
) -> None:
    database.query(SEND, [json.dumps(payload), 'news', topic, private])


@pytest.fixture(params=[V1, V2])
def client(gateway: GatewayThread, request: pytest.FixtureRequest) -> Iterator[Phoenix]:
    """A client that may join anything."""
    with open_socket(gateway.url, gateway.keys.secret, version=request.param) as socket:
        yield socket


def test_a_message_from_the_database_carries_the_id_of_its_row(
    client: Phoenix, database: Database
) -> None:
    client.join('room', private=True)
    send(database, {'a': 1, 'id': 'mine'})
    [row] = database.query('select id from realtime.messages')
    received = client.receive()
    assert received.is_binary == (client.version == V2)
    assert received.payload == {
        'type': 'broadcast',
        'event': 'news',
        'payload': {'a': 1, 'id': 'mine'},
        'meta': {'id': str(row['id'])},
    }


def test_a_payload_arrives_as_the_database_wrote_it(client: Phoenix, database: Database) -> None:
    client.join('room', private=True)
    payload = {
        'id': 'x',
        'big': 123456789012345678901234567890,
        'text': 'ü "quoted" \\ \u2028 名',
        'nested': [None, True, {'deep': []}],
    }
    send(database, payload)
    assert client.receive_broadcast()['payload'] == payload


def test_private_messages_reach_private_channels_and_public_ones_public(
    gateway: GatewayThread, client: Phoenix, database: Database
) -> None:
    with open_socket(gateway.url, gateway.keys.publishable) as public:
        public.join('room')
        client.join('room', private=True)
        send(database, {'is': 'private'})
        send(database, {'is': 'public'}, private=False)
        assert public.receive_broadcast()['payload']['is'] == 'public'
        assert client.receive_broadcast()['payload']['is'] == 'private'
        public.heartbeat()
        client.heartbeat()


def test_broadcasts_of_the_job_triggers_reach_the_owner(
    gateway: GatewayThread, database: Database
) -> None:
    user = database.user()
    with open_socket(gateway.url, gateway.keys.publishable) as owner:
        owner.join(f'crawl_user:{user}', private=True, token=gateway.keys.user_token(str(user)))
        [job] = database.call(
            'enqueue_crawl_job', user=user, p_payload={'url': 'https://a.example/'}
        )
        assert owner.receive_broadcast()['event'] == 'enqueued'
        database.call('pause_crawl_job', user=user, p_job_id=job['id'])
        assert owner.receive_broadcast()['payload']['to'] == 'paused'


def test_nothing_is_sent_before_commit_or_after_rollback(
    client: Phoenix, database: Database
) -> None:
    client.join('room', private=True)
    writer = database.connect(autocommit=False)
    writer.execute(SEND, ['{"is": "rolled back"}', 'news', 'room', True])
    writer.rollback()
    writer.execute(SEND, ['{"is": "committed"}', 'news', 'room', True])
    send(database, {'is': 'meanwhile'})
    assert client.receive_broadcast()['payload']['is'] == 'meanwhile'
    client.heartbeat()
    writer.commit()
    assert client.receive_broadcast()['payload']['is'] == 'committed'
    client.heartbeat()


def test_transactions_are_sent_whole_and_in_commit_order(
    client: Phoenix, database: Database
) -> None:
    client.join('room', private=True)
    commits: list[int] = []
    turn = threading.Lock()

    def write(number: int) -> None:
        with Database(database.postgres, database.name) as own:
            writer = own.connect(autocommit=False)
            for step in range(10):
                payload = json.dumps({'number': number, 'step': step})
                writer.execute(SEND, [payload, 'news', 'room', True])
            with turn:
                writer.commit()
                commits.append(number)

    threads = [threading.Thread(target=write, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    payloads = [client.receive_broadcast()['payload'] for _ in range(80)]
    for thread in threads:
        thread.join()
    received = [(payload['number'], payload['step']) for payload in payloads]
    assert received == [(number, step) for number in commits for step in range(10)]


def test_a_large_transaction_arrives_whole_while_other_clients_are_served(
    gateway: GatewayThread, client: Phoenix, database: Database
) -> None:
    count = 10_000
    with open_socket(gateway.url, gateway.keys.publishable) as other:
        client.join('room', private=True)
        database.query(
            """
            insert into realtime.messages (topic, extension, event, private, payload)
            select 'room', 'broadcast', 'news', true, jsonb_build_object('n', n)
            from generate_series(1, %s) as n
            """,
            [count],
            role='service_role',
        )
        slowest = 0.0
        for number in range(1, count + 1):
            assert client.receive_broadcast()['payload'] == {'n': number}
            if number % 500 == 0:
                asked_at = time.monotonic()
                other.heartbeat()
                slowest = max(slowest, time.monotonic() - asked_at)
    assert slowest < 5


def test_binary_messages_reach_version_2_clients_only(
    gateway: GatewayThread, database: Database
) -> None:
    with (
        open_socket(gateway.url, gateway.keys.secret, version=V1) as old,
        open_socket(gateway.url, gateway.keys.secret, version=V2) as new,
    ):
        old.join('room', private=True)
        new.join('room', private=True)
        database.query("select realtime.send_binary(%s, 'raw', 'room', true)", [b'\x00\xff\x01'])
        received = new.receive()
        assert received.payload['payload'] == b'\x00\xff\x01'
        assert 'id' in received.payload['meta']
        send(database, {'is': 'next'})
        assert old.receive_broadcast()['payload']['is'] == 'next'


def test_binary_messages_do_not_depend_on_bytea_output(database: Database) -> None:
    database.query(f"alter database {database.name} set bytea_output = 'escape'")
    with (
        GatewayThread(database) as gateway,
        open_socket(gateway.url, gateway.keys.secret, version=V2) as client,
    ):
        client.join('room', private=True)
        database.query("select realtime.send_binary(%s, 'raw', 'room', true)", [b'\x00\xff'])
        assert client.receive_broadcast()['payload'] == b'\x00\xff'


def test_rows_that_cannot_be_sent_are_skipped(client: Phoenix, database: Database) -> None:
    client.join('room', private=True)
    database.query(
        """
        insert into realtime.messages (topic, extension, event, private, payload)
        values
          ('room', 'broadcast', null, true, '{}'),
          ('room', 'broadcast', 'news', null, '{}'),
          ('room', 'broadcast', 'news', true, null),
          ('room', 'presence', 'news', true, '{}'),
          ('', 'broadcast', 'news', true, '{}'),
          (repeat('x', 100000), 'broadcast', 'news', true, '{}'),
          ('room', 'broadcast', repeat('e', 300), true, '{"is": "long"}'),
          ('room', 'broadcast', 'news', true, '[1]'),
          ('room', 'broadcast', 'news', true, '{"is": "last"}')
        """,
        role='service_role',
    )
    assert client.receive_broadcast()['event'] == 'e' * 300
    assert client.receive_broadcast()['payload'] == [1]
    assert client.receive_broadcast()['payload'] == {'is': 'last'}
    client.heartbeat()


def test_other_tables_in_the_publication_are_ignored(client: Phoenix, database: Database) -> None:
    client.join('room', private=True)
    database.query(
        """
        create table realtime.messages_archive (topic text);
        insert into realtime.messages_archive values ('room');
        alter publication supabase_realtime_messages_publication
          add table realtime.messages_archive;
        insert into realtime.messages_archive values ('room');
        """,
        role='supabase_admin',
    )
    send(database, {'is': 'after'})
    assert client.receive_broadcast()['payload']['is'] == 'after'


SLOT = """
    select slot_name, confirmed_flush_lsn
    from pg_replication_slots
    where database = current_database()
"""


def test_the_slot_is_dropped_when_the_gateway_stops(
    gateway: GatewayThread, database: Database
) -> None:
    [slot] = database.query(SLOT, role=SUPERUSER)
    gateway.stop()
    wait_until(
        lambda: not database.query(SLOT, role=SUPERUSER), what=f'the end of {slot["slot_name"]}'
    )


def test_the_slot_advances_over_wal_without_messages(
    gateway: GatewayThread, database: Database
) -> None:
    assert gateway.url
    database.query('create table public.other (id int)')

    def has_advanced() -> bool:
        [before] = database.query('select pg_current_wal_lsn() as lsn', role=SUPERUSER)
        database.query('insert into public.other select generate_series(1, 100)')
        wait_until(
            lambda: database.query(
                f'select from ({SLOT}) as slot where confirmed_flush_lsn > %s',
                [before['lsn']],
                role=SUPERUSER,
            ),
            what='a confirmed position',
        )
        return True

    assert has_advanced()
    assert has_advanced()


def test_a_gateway_stops_at_once_while_its_stream_is_still_starting(database: Database) -> None:
    writer = database.connect(autocommit=False)
    writer.execute('create table public.other (id int)')
    with GatewayThread(database) as gateway:
        stopped_at = time.monotonic()
        gateway.stop()
        assert time.monotonic() - stopped_at < 2


def test_partitions_are_created_when_the_gateway_starts(
    gateway: GatewayThread, database: Database
) -> None:
    gateway.stop()
    database.query(
        """
        do $$ declare v_name text; begin
          for v_name in select inhrelid::regclass::text from pg_inherits
            where inhparent = 'realtime.messages'::regclass
          loop execute 'drop table ' || v_name; end loop;
        end $$
        """,
        role='supabase_admin',
    )
    gateway.start()
    with open_socket(gateway.url, gateway.keys.secret) as socket:
        socket.join('room', private=True)
        send(database, {'is': 'stored'})
        assert socket.receive_broadcast()['payload']['is'] == 'stored'


def test_a_missing_partition_is_created_while_the_gateway_runs(database: Database) -> None:
    """As after days of sleep: there is no partition for today."""
    today = f'realtime.messages_{datetime.now(UTC):%Y_%m_%d}'

    def is_there() -> bool:
        [row] = database.query('select to_regclass(%s) is not null as is_there', [today])
        return row['is_there']

    async def run() -> None:
        async with RealtimeDatabase(database.url('supabase_admin')) as realtime:
            keeping = asyncio.ensure_future(realtime.keep_partitions(every_seconds=0.01))
            await asyncio.to_thread(wait_until, is_there, what=f'a new {today}')
            keeping.cancel()

    database.query(f'drop table {today}', role='supabase_admin')
    asyncio.run(run())


def test_a_missing_partition_refuses_the_join(client: Phoenix, database: Database) -> None:
    today = datetime.now(UTC).strftime('%Y_%m_%d')
    database.query(f'drop table realtime.messages_{today}', role='supabase_admin')
    assert client.join('room', private=True, expect='error').reason.startswith('MissingPartition')


def test_a_client_can_ask_for_a_message_when_the_stream_is_up(client: Phoenix) -> None:
    client.join('room', private=True, replication_ready=True)
    system = client.receive()
    assert system.event == 'system'
    assert system.payload == {
        'extension': 'system',
        'status': 'ok',
        'message': 'Replication connection established',
        'channel': 'room',
    }


# Outages of the database


@pytest.fixture
def own_database(directory: Path) -> Iterator[Database]:
    """A database on its own server, which may be killed."""
    with Postgres(directory, settings=FAST) as postgres:
        bootstrap(postgres, 'postgres')
        with Database(postgres, 'postgres') as database:
            yield database


def test_sockets_survive_an_outage_of_the_database_and_get_its_messages_again(
    own_database: Database,
) -> None:
    postgres = own_database.postgres
    with (
        GatewayThread(own_database) as gateway,
        open_socket(gateway.url, gateway.keys.secret) as client,
        open_socket(gateway.url, gateway.keys.secret) as other,
    ):
        client.join('room', private=True, ack=True)
        other.join('room', private=True)
        assert client.receive_reply(client.broadcast('room', 'before', {})).status == 'ok'
        assert other.receive_broadcast()['event'] == 'before'
        kill_with_sessions(postgres)

        assert client.receive_reply(client.broadcast('room', 'without', {})).status == 'ok'
        assert other.receive_broadcast()['event'] == 'without'
        refused = client.join('hall', private=True, expect='error')
        assert refused.reason == (
            'UnableToConnectToProject: Realtime was unable to connect to the project database'
        )
        client.join('public')

        postgres.start()
        with (
            Database(postgres, 'postgres') as again,
            open_socket(gateway.url, gateway.keys.secret) as late,
        ):
            send(again, {'is': 'maybe missed'})
            late.join('hall', private=True, replication_ready=True)
            assert late.receive().payload['status'] == 'ok'
            send(again, {'is': 'heard'})
            received = other.receive_until(lambda frame: frame.payload['payload']['is'] == 'heard')
            assert len(received) <= 2


def test_a_gateway_starts_although_an_open_transaction_delays_its_stream(
    own_database: Database,
) -> None:
    """An open transaction delays the stream, but must not delay the start."""
    writer = own_database.connect(SUPERUSER, autocommit=False)
    writer.execute('create table slow (id int)')
    with (
        GatewayThread(own_database) as gateway,
        open_socket(gateway.url, gateway.keys.secret) as client,
    ):
        client.join('room', private=True, replication_ready=True)
        client.heartbeat()
        writer.commit()
        assert client.receive().event == 'system'
        send(own_database, {'is': 'heard'})
        assert client.receive_broadcast()['payload']['is'] == 'heard'

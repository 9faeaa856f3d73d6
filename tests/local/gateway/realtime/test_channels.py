"""Joining, leaving and broadcasting, as in Phoenix and hosted Realtime."""

import time
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from websockets.exceptions import InvalidStatus

from tests.support.database import Database
from tests.support.gateway import GatewayThread
from tests.support.phoenix import V1, V2, Frame, Phoenix, open_socket
from tests.support.waiting import wait_until


@pytest.fixture
def client(gateway: GatewayThread) -> Iterator[Phoenix]:
    with open_socket(gateway.url, gateway.keys.publishable) as socket:
        yield socket


@pytest.fixture
def other(gateway: GatewayThread) -> Iterator[Phoenix]:
    with open_socket(gateway.url, gateway.keys.publishable, version=V2) as socket:
        yield socket


def user_topic(user: UUID) -> str:
    return f'crawl_user:{user}'


def allow_rooms(database: Database) -> None:
    """Let signed-in users read and write private topics that begin with room:."""
    database.query("""
        create policy "Users read rooms" on realtime.messages for select to authenticated
          using (extension = 'broadcast' and (select realtime.topic()) like 'room:%');
        create policy "Users write rooms" on realtime.messages for insert to authenticated
          with check (extension = 'broadcast' and (select realtime.topic()) like 'room:%')
    """)


# The handshake


def refused_status(url: str, key: str, *, version: str = V1) -> int:
    with pytest.raises(InvalidStatus) as refused, open_socket(url, key, version=version):
        pass
    assert refused.value.response.headers['Content-Type'].startswith('application/json')
    return refused.value.response.status_code


def test_a_bad_key_is_refused_before_the_upgrade(gateway: GatewayThread) -> None:
    assert refused_status(gateway.url, 'sb_publishable_nobody') == 401
    assert refused_status(gateway.url, '') == 401


def test_an_unknown_version_is_refused_before_the_upgrade(gateway: GatewayThread) -> None:
    assert refused_status(gateway.url, gateway.keys.anon, version='3.0.0') == 400


def test_every_key_of_the_project_opens_a_socket(gateway: GatewayThread) -> None:
    keys = gateway.keys
    for key in (keys.publishable, keys.secret, keys.anon, keys.service_role):
        with open_socket(gateway.url, key) as socket:
            socket.heartbeat()


# Joining and leaving


@pytest.mark.parametrize('version', [V1, V2])
def test_a_join_is_answered_with_its_reference(gateway: GatewayThread, version: str) -> None:
    with open_socket(gateway.url, gateway.keys.publishable, version=version) as socket:
        reply = socket.join('room')
        assert reply.topic == 'realtime:room'
        assert reply.payload == {'status': 'ok', 'response': {'postgres_changes': []}}
        assert reply.join_ref == (reply.ref if version == V2 else None)


def test_a_topic_outside_realtime_is_unmatched(client: Phoenix) -> None:
    ref = client.push('room', 'phx_join', {}, is_join=True)
    assert client.receive_reply(ref).payload == {
        'status': 'error',
        'response': {'reason': 'unmatched topic'},
    }


def test_an_empty_or_overlong_topic_is_refused(client: Phoenix) -> None:
    assert client.join('', expect='error').reason.startswith('TopicNameRequired')
    assert client.join('x' * 2000, expect='error').reason.startswith('TopicNameTooLong')


def test_a_message_for_a_topic_not_joined_is_unmatched(client: Phoenix) -> None:
    reply = client.receive_reply(client.broadcast('room', 'hi', {}))
    assert (reply.status, reply.reason) == ('error', 'unmatched topic')


def test_a_leave_is_answered_and_the_channel_closed(other: Phoenix) -> None:
    joined = other.join('room')
    ref = other.push('realtime:room', 'phx_leave', {}, join_ref=joined.join_ref)
    assert other.receive_reply(ref).status == 'ok'
    assert other.receive() == Frame('realtime:room', 'phx_close', {}, joined.ref, joined.join_ref)
    assert other.receive_reply(other.broadcast('room', 'hi', {})).status == 'error'


def test_leaving_a_topic_that_was_not_joined_is_answered(client: Phoenix) -> None:
    assert client.receive_reply(client.push('realtime:room', 'phx_leave', {})).status == 'ok'


def test_a_leave_of_an_earlier_join_is_ignored(other: Phoenix, client: Phoenix) -> None:
    other.join('room')
    client.join('room')
    other.push('realtime:room', 'phx_leave', {}, join_ref='99')
    other.heartbeat()
    client.broadcast('room', 'hi', {})
    assert other.receive_broadcast()['event'] == 'hi'


def test_joining_twice_closes_the_earlier_join(other: Phoenix, client: Phoenix) -> None:
    first = other.join('room')
    ref = other.push('realtime:room', 'phx_join', {'config': {}}, is_join=True)
    assert other.receive() == Frame('realtime:room', 'phx_close', {}, first.ref, first.join_ref)
    assert other.receive_reply(ref).join_ref == ref
    client.join('room')
    client.broadcast('room', 'hi', {})
    other.receive_broadcast()
    other.heartbeat()


def test_a_join_that_asks_for_presence_succeeds_and_no_one_is_present(client: Phoenix) -> None:
    config = {'config': {'presence': {'key': 'me', 'enabled': True}}}
    ref = client.push('realtime:room', 'phx_join', config, is_join=True)
    assert client.receive_reply(ref).status == 'ok'
    track = {'type': 'presence', 'event': 'track', 'payload': {}}
    assert client.receive_reply(client.push('realtime:room', 'presence', track)).status == 'ok'
    client.heartbeat()


def test_a_join_that_asks_for_table_changes_is_refused_by_name(client: Phoenix) -> None:
    config = {'config': {'postgres_changes': [{'event': '*', 'schema': 'public'}]}}
    ref = client.push('realtime:room', 'phx_join', config, is_join=True)
    assert client.receive_reply(ref).reason.startswith('PostgresChangesNotSupported')


@pytest.mark.parametrize('private', [True, False])
def test_a_join_that_asks_for_replay_is_refused_by_name(client: Phoenix, private: bool) -> None:
    refused = client.join('room', private=private, replay={'since': 0}, expect='error')
    assert refused.reason.startswith('UnableToReplayMessages')


@pytest.mark.parametrize(
    'payload', [None, [], 'x', 7, {'config': 'x'}, {'config': {'broadcast': 1}}]
)
def test_a_join_with_an_unreadable_payload_is_a_plain_join(
    client: Phoenix, payload: object
) -> None:
    ref = client.push('realtime:room', 'phx_join', payload, is_join=True)
    assert client.receive_reply(ref).status == 'ok'


def test_an_unknown_event_is_ignored(client: Phoenix) -> None:
    client.join('room')
    client.push('realtime:room', 'no_such_event', {})
    client.heartbeat()


# Broadcasts between clients


def test_text_reaches_clients_of_both_versions(
    gateway: GatewayThread, client: Phoenix, other: Phoenix
) -> None:
    with open_socket(gateway.url, gateway.keys.publishable) as sender:
        for socket in (sender, client, other):
            socket.join('room')
        sender.broadcast('room', 'hi', {'a': 1})
        expected = {'type': 'broadcast', 'event': 'hi', 'payload': {'a': 1}}
        assert client.receive_broadcast() == expected
        assert other.receive_broadcast() == expected
        sender.heartbeat()


def test_binary_frames_with_json_reach_clients_of_both_versions(
    gateway: GatewayThread, client: Phoenix, other: Phoenix
) -> None:
    with open_socket(gateway.url, gateway.keys.publishable, version=V2) as sender:
        for socket in (sender, client, other):
            socket.join('room')
        sender.broadcast_binary('room', 'hi', b'{"a":1}', encoding=1)
        expected = {'type': 'broadcast', 'event': 'hi', 'payload': {'a': 1}}
        assert client.receive_broadcast() == expected
        received = other.receive()
        assert received.is_binary
        assert received.payload == expected
        sender.heartbeat()


def test_binary_payloads_reach_version_2_clients_only(
    gateway: GatewayThread, client: Phoenix, other: Phoenix
) -> None:
    with open_socket(gateway.url, gateway.keys.publishable, version=V2) as sender:
        for socket in (sender, client, other):
            socket.join('room')
        sender.broadcast_binary('room', 'raw', b'\x00\xff', encoding=0)
        assert other.receive_broadcast()['payload'] == b'\x00\xff'
        client.heartbeat()


def test_a_sender_gets_its_own_broadcast_only_on_request(client: Phoenix, other: Phoenix) -> None:
    client.join('room', receives_own=True)
    client.broadcast('room', 'hi', {})
    assert client.receive_broadcast()['event'] == 'hi'
    other.join('room')
    other.broadcast('room', 'yo', {})
    assert client.receive_broadcast()['event'] == 'yo'
    other.heartbeat()


def test_a_burst_of_broadcasts_arrives_complete_and_in_order(
    client: Phoenix, other: Phoenix
) -> None:
    client.join('room')
    other.join('room')
    for number in range(3000):
        client.broadcast('room', 'hi', {'number': number})
    for number in range(3000):
        assert other.receive_broadcast()['payload'] == {'number': number}
    other.heartbeat()


def test_a_broadcast_is_acknowledged_only_on_request(client: Phoenix, other: Phoenix) -> None:
    client.join('room', ack=True)
    assert client.receive_reply(client.broadcast('room', 'hi', {})).payload == {
        'status': 'ok',
        'response': {},
    }
    other.join('room', ack=True)
    ref = other.broadcast_binary('room', 'hi', b'{}', encoding=1)
    client.receive_broadcast()
    assert other.receive_reply(ref).status == 'ok'


def test_a_broadcast_whose_payload_is_not_an_object_closes_the_senders_channel(
    client: Phoenix, other: Phoenix
) -> None:
    client.join('room')
    other.join('room')
    client.push('realtime:room', 'broadcast', 'text')
    assert client.receive().event == 'phx_error'
    client.heartbeat()
    other.heartbeat()


def test_private_and_public_channels_of_the_same_name_are_separate(gateway: GatewayThread) -> None:
    with (
        open_socket(gateway.url, gateway.keys.secret) as private,
        open_socket(gateway.url, gateway.keys.secret) as public,
        open_socket(gateway.url, gateway.keys.secret) as another,
    ):
        private.join('room', private=True)
        public.join('room')
        another.join('room', private=True)
        private.broadcast('room', 'secret', {})
        assert another.receive_broadcast()['event'] == 'secret'
        public.broadcast('room', 'open', {})
        public.heartbeat()
        private.heartbeat()
        another.heartbeat()


# Private channels


def test_a_user_can_join_topics_that_the_policies_let_them_read(
    gateway: GatewayThread, database: Database, client: Phoenix
) -> None:
    user, stranger = database.user(), database.user()
    token = gateway.keys.user_token(str(user))
    client.join(user_topic(user), private=True, token=token)
    refused = client.join(user_topic(stranger), private=True, token=token, expect='error')
    assert refused.payload['response'] == {
        'reason': 'Unauthorized: You do not have permissions to read from this Channel topic: '
        + user_topic(stranger)
    }


def test_a_user_can_join_the_topic_of_their_own_job_only(
    gateway: GatewayThread, database: Database, client: Phoenix
) -> None:
    user, stranger = database.user(), database.user()
    [job] = database.call('enqueue_crawl_job', user=user, p_payload={'url': 'https://a.example/'})
    topic = f'crawl_job:{job["id"]}'
    client.join(topic, private=True, token=gateway.keys.user_token(str(stranger)), expect='error')
    client.join(topic, private=True, token=gateway.keys.user_token(str(user)))


def test_a_join_without_a_token_uses_the_key_of_the_socket(
    gateway: GatewayThread, client: Phoenix
) -> None:
    client.join('crawl_workers', private=True, expect='error')
    client.join('crawl_workers', private=True, token=gateway.keys.publishable, expect='error')
    with open_socket(gateway.url, gateway.keys.secret) as service:
        service.join('crawl_workers', private=True)
        service.join('crawl_workers_too', private=True, token=gateway.keys.secret)


def test_a_worker_with_the_limited_key_gets_commands_and_nothing_else(
    gateway: GatewayThread, database: Database, client: Phoenix
) -> None:
    [job] = database.call('enqueue_crawl_job', p_payload={'url': 'https://a.example/'})
    token = gateway.keys.crawl_worker
    client.join('crawl_workers', private=True, token=token)
    client.join(f'crawl_user:{uuid4()}', private=True, token=token, expect='error')
    client.join(f'crawl_job:{job["id"]}', private=True, token=token, expect='error')


@pytest.mark.parametrize('role', ['postgres', 'supabase_admin', 'authenticator', 'nobody'])
def test_a_role_that_was_not_granted_to_realtime_joins_nothing(
    gateway: GatewayThread, client: Phoenix, role: str
) -> None:
    token = gateway.keys.sign({'role': role, 'exp': int(time.time()) + 60})
    client.join('crawl_workers', private=True, token=token, expect='error')


def test_a_probe_leaves_nothing_behind(gateway: GatewayThread, database: Database) -> None:
    allow_rooms(database)
    token = gateway.keys.user_token(str(database.user()))
    with open_socket(gateway.url, gateway.keys.publishable) as socket:
        socket.join('room:1', private=True, token=token, ack=True)
        assert socket.receive_reply(socket.broadcast('room:1', 'hi', {})).status == 'ok'
        assert database.query('select count(*) from realtime.messages', role='supabase_admin') == [
            {'count': 0}
        ]


def test_a_broadcast_of_a_user_who_may_write_is_delivered(
    gateway: GatewayThread, database: Database, client: Phoenix, other: Phoenix
) -> None:
    allow_rooms(database)
    token = gateway.keys.user_token(str(database.user()))
    client.join('room:1', private=True, token=token, ack=True)
    other.join('room:1', private=True, token=token)
    assert client.receive_reply(client.broadcast('room:1', 'hi', {})).status == 'ok'
    assert other.receive_broadcast()['event'] == 'hi'


def test_a_broadcast_of_a_user_who_may_not_write_is_dropped_without_an_ack(
    gateway: GatewayThread, database: Database, client: Phoenix, other: Phoenix
) -> None:
    user = database.user()
    token = gateway.keys.user_token(str(user))
    client.join(user_topic(user), private=True, token=token, ack=True)
    other.join(user_topic(user), private=True, token=token)
    client.broadcast(user_topic(user), 'forged', {})
    client.heartbeat()
    other.heartbeat()


def test_a_policy_that_raises_an_error_refuses_the_join(
    gateway: GatewayThread, database: Database
) -> None:
    database.query("""
        create policy "Broken" on realtime.messages for select to authenticated
          using ((select realtime.topic())::uuid is null)
    """)
    token = gateway.keys.user_token(str(database.user()))
    with open_socket(gateway.url, gateway.keys.publishable) as socket:
        refused = socket.join('not-a-uuid', private=True, token=token, expect='error')
        assert refused.reason.startswith('Unauthorized')
        socket.join('room')


@pytest.mark.parametrize('topic', ["'; drop table x; --", '%s %(role)s', 'ü:名', 'a\\b"c', 'a\0b'])
def test_topics_may_contain_any_characters(gateway: GatewayThread, topic: str) -> None:
    with open_socket(gateway.url, gateway.keys.secret) as socket:
        expect = 'error' if '\0' in topic else 'ok'
        assert socket.join(topic, private=True, expect=expect).topic == f'realtime:{topic}'


# Tokens


def test_an_invalid_token_is_refused_with_the_reason(
    gateway: GatewayThread, client: Phoenix
) -> None:
    keys = gateway.keys
    user = str(uuid4())
    expired = keys.user_token(user, seconds=-60)
    refused = client.join('room', token=expired, expect='error')
    assert refused.reason.startswith('InvalidJWTToken: Token has expired 6')
    head, body, _ = keys.user_token(user).split('.')
    forged = client.join('room', token=f'{head}.{body}.AAAA', expect='error')
    assert forged.reason == 'JwtSignatureError: Failed to validate JWT signature'
    assert client.join('room', token='.'.join('abc'), expect='error').reason.startswith(
        'MalformedJWT'
    )
    assert client.join('room', token='', expect='error').reason.startswith('MalformedJWT')
    for bare in (keys.sign({'role': 'anon'}), keys.sign({'exp': int(time.time()) + 60})):
        refused = client.join('room', token=bare, expect='error')
        assert refused.reason == 'InvalidJWTToken: Fields `role` and `exp` are required in JWT'


def test_an_unknown_role_is_refused(gateway: GatewayThread, client: Phoenix) -> None:
    token = gateway.keys.sign({'role': 'nobody', 'exp': int(time.time()) + 60})
    assert client.join('x', private=True, token=token, expect='error').reason.startswith(
        'Unauthorized'
    )


def join_with_a_short_token(gateway: GatewayThread, client: Phoenix) -> None:
    """Join before the token expires; on a busy machine, not always with the first one."""

    def has_joined() -> bool:
        token = gateway.keys.user_token(str(uuid4()), seconds=1.5)
        payload = {'config': {}, 'access_token': token}
        ref = client.push('realtime:room', 'phx_join', payload, is_join=True)
        return client.receive_reply(ref).status == 'ok'

    wait_until(has_joined, what='a join before the token expires')


def test_a_channel_is_closed_when_its_token_expires(
    gateway: GatewayThread, client: Phoenix
) -> None:
    join_with_a_short_token(gateway, client)
    system = client.receive()
    assert system.event == 'system'
    assert system.payload['status'] == 'error'
    assert system.payload['message'].startswith('Token has expired')
    assert system.payload['channel'] == 'room'
    assert client.receive().event == 'phx_close'
    client.heartbeat()


def test_a_new_token_keeps_a_channel_open_past_the_end_of_the_old_one(
    gateway: GatewayThread, client: Phoenix
) -> None:
    user = str(uuid4())
    ends_at = time.time() + 4
    client.join('room', token=gateway.keys.user_token(user, seconds=4))
    token = gateway.keys.user_token(user, seconds=600)
    client.push('realtime:room', 'access_token', {'access_token': token})
    wait_until(lambda: time.time() > ends_at, what='the end of the old token')
    client.heartbeat()
    with open_socket(gateway.url, gateway.keys.publishable) as sender:
        sender.join('room')
        sender.broadcast('room', 'hi', {})
        assert client.receive_broadcast()['event'] == 'hi'


def test_a_new_token_without_the_right_to_read_closes_the_channel(
    gateway: GatewayThread, database: Database, client: Phoenix
) -> None:
    user, stranger = database.user(), database.user()
    topic = user_topic(user)
    client.join(topic, private=True, token=gateway.keys.user_token(str(user)))
    token = gateway.keys.user_token(str(stranger))
    client.push(f'realtime:{topic}', 'access_token', {'access_token': token})
    system = client.receive()
    assert system.payload['message'] == (
        f'You do not have permissions to read from this Channel topic: {topic}'
    )
    assert client.receive().event == 'phx_close'


def test_the_right_to_write_is_checked_again_for_a_new_token(
    gateway: GatewayThread, database: Database, client: Phoenix, other: Phoenix
) -> None:
    allow_rooms(database)
    database.query("""
        create policy "Anonymous read rooms" on realtime.messages for select to anon
          using ((select realtime.topic()) like 'room:%')
    """)
    other.join('room:1', private=True)
    client.join('room:1', private=True)
    client.broadcast('room:1', 'too_early', {})
    client.heartbeat()
    token = gateway.keys.user_token(str(database.user()))
    client.push('realtime:room:1', 'access_token', {'access_token': token})
    client.broadcast('room:1', 'hi', {})
    assert other.receive_broadcast()['event'] == 'hi'


def test_an_invalid_new_token_closes_the_channel_and_a_key_is_ignored(
    gateway: GatewayThread, client: Phoenix
) -> None:
    client.join('room')
    for ignored in (gateway.keys.publishable, 'sb_anything', None, 7):
        client.push('realtime:room', 'access_token', {'access_token': ignored})
    client.push('realtime:room', 'access_token', ['no', 'token'])
    client.heartbeat()
    client.push('realtime:room', 'access_token', {'access_token': 'garbage'})
    assert client.receive().payload['message'] == 'The token provided is not a valid JWT'
    assert client.receive().event == 'phx_close'
    client.heartbeat()


# The end


def test_a_stopping_gateway_closes_sockets_at_once(gateway: GatewayThread) -> None:
    with (
        open_socket(gateway.url, gateway.keys.publishable) as first,
        open_socket(gateway.url, gateway.keys.publishable, version=V2) as second,
    ):
        first.join('room')
        stopped_at = time.monotonic()
        gateway.stop()
        assert time.monotonic() - stopped_at < 2
        assert first.receive_close() == 1001
        assert second.receive_close() == 1001

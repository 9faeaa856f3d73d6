"""The limits of hosted Realtime's free tier, made small, and their absence."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from silkline_local.gateway.realtime import Limits

from tests.support.database import Database
from tests.support.gateway import GatewayThread
from tests.support.phoenix import V1, V2, Frame, Phoenix, open_socket
from tests.support.waiting import wait_until


@contextmanager
def limited(database: Database, **limits: int) -> Generator[GatewayThread]:
    with GatewayThread(database, limits=Limits(**limits)) as gateway:
        yield gateway


def test_too_many_messages_shut_the_channel_down_and_spare_the_socket(
    database: Database,
) -> None:
    with (
        limited(database, messages_per_second=50) as gateway,
        open_socket(gateway.url, gateway.keys.publishable) as sender,
        open_socket(gateway.url, gateway.keys.publishable) as listener,
    ):
        sender.join('room')
        listener.join('room')
        frames = talk_until_shut_down(sender, listener)
        assert [frame.event for frame in frames[-2:]] == ['system', 'phx_close']
        assert frames[-2].payload['message'] == 'Too many messages per second'
        listener.heartbeat()
        sender.heartbeat()


def talk_until_shut_down(sender: Phoenix, listener: Phoenix) -> list[Frame]:
    """Say something each time the last was heard, which is faster than any limit allows."""
    frames: list[Frame] = []
    while not frames or frames[-1].event == 'broadcast':
        sender.broadcast('room', 'hi', {})
        frames.append(listener.receive())
    return [*frames, listener.receive()]


def test_slow_talk_is_never_shut_down(database: Database) -> None:
    with (
        limited(database, messages_per_second=50) as gateway,
        open_socket(gateway.url, gateway.keys.publishable) as sender,
        open_socket(gateway.url, gateway.keys.publishable) as listener,
    ):
        sender.join('room', ack=True)
        listener.join('room')
        for _ in range(10):
            assert sender.receive_reply(sender.broadcast('room', 'hi', {})).status == 'ok'
            assert listener.receive_broadcast()['event'] == 'hi'


def test_too_many_joins_close_the_socket(database: Database) -> None:
    with (
        limited(database, joins_per_second=5) as gateway,
        open_socket(gateway.url, gateway.keys.publishable) as client,
    ):
        replies = [client.join('room')]

        def is_refused() -> bool:
            ref = client.push('realtime:room', 'phx_join', {}, is_join=True)
            frames = client.receive_until(lambda frame: frame.ref == ref)
            replies.append(frames[-1])
            return frames[-1].status == 'error'

        wait_until(is_refused, what='a refused join')
        assert replies[-1].reason == 'ClientJoinRateLimitReached: Too many joins per second'
        assert client.receive_close() == 1000


def test_too_many_channels_are_refused(database: Database) -> None:
    with (
        limited(database, channels_per_connection=3) as gateway,
        open_socket(gateway.url, gateway.keys.publishable) as client,
    ):
        for number in range(3):
            client.join(f'room:{number}')
        refused = client.join('room:3', expect='error')
        assert refused.reason == 'ChannelRateLimitReached: Too many channels'
        client.push('realtime:room:0', 'phx_leave', {}, join_ref='1')
        client.receive_until(lambda frame: frame.event == 'phx_close')
        client.join('room:3')


def test_too_many_connections_are_refused_until_one_leaves(database: Database) -> None:
    with (
        limited(database, connections=2) as gateway,
        open_socket(gateway.url, gateway.keys.publishable) as third,
    ):
        with (
            open_socket(gateway.url, gateway.keys.publishable) as first,
            open_socket(gateway.url, gateway.keys.publishable) as second,
        ):
            first.join('room')
            second.join('room')
            first.join('hall')
            refused = third.join('room', expect='error')
            assert refused.reason == 'ConnectionRateLimitReached: Too many connected users'

        def is_let_in() -> bool:
            ref = third.push('realtime:room', 'phx_join', {}, is_join=True)
            return third.receive_reply(ref).status == 'ok'

        wait_until(is_let_in, what='a place')


@pytest.mark.parametrize('version', [V1, V2])
def test_a_payload_too_large_is_not_passed_on(database: Database, version: str) -> None:
    with (
        limited(database, payload_bytes=1000) as gateway,
        open_socket(gateway.url, gateway.keys.publishable, version=version) as sender,
        open_socket(gateway.url, gateway.keys.publishable) as listener,
    ):
        sender.join('room', ack=True)
        listener.join('room')
        ref = sender.broadcast('room', 'large', {'x': 'y' * 2000})
        assert sender.receive_reply(ref).payload == {
            'status': 'error',
            'response': 'payload_size_exceeded',
        }
        if version == V2:
            ref = sender.broadcast_binary('room', 'large', b'x' * 2000, encoding=0)
            assert sender.receive_reply(ref).status == 'error'
        assert sender.receive_reply(sender.broadcast('room', 'small', {})).status == 'ok'
        assert listener.receive_broadcast()['event'] == 'small'


def test_database_broadcasts_over_the_limits_are_dropped_with_a_line_in_the_log(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        limited(database, payload_bytes=1000) as gateway,
        open_socket(gateway.url, gateway.keys.secret) as client,
    ):
        client.join('room', private=True)
        send = "select realtime.send(jsonb_build_object('x', repeat('y', %s)), %s, 'room')"
        database.query(send, [2000, 'large'])
        database.query(send, [10, 'small'])
        assert client.receive_broadcast()['event'] == 'small'
    assert 'a database broadcast was dropped: its payload is too large' in caplog.text


def test_without_limits_nobody_is_throttled(gateway: GatewayThread) -> None:
    with (
        open_socket(gateway.url, gateway.keys.publishable) as sender,
        open_socket(gateway.url, gateway.keys.publishable) as listener,
    ):
        sender.join('room')
        listener.join('room')
        for number in range(150):
            listener.join(f'room:{number}')
        for number in range(3000):
            sender.broadcast('room', 'hi', {'number': number})
        for number in range(3000):
            assert listener.receive_broadcast()['payload'] == {'number': number}
        listener.heartbeat()

"""Broadcasts over HTTP."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.support.database import Database
from tests.support.gateway import GatewayThread
from tests.support.phoenix import V2, Phoenix, open_socket

BATCH = '/realtime/v1/api/broadcast'


def post(
    gateway: GatewayThread,
    path: str,
    body: Any,
    *,
    key: str | None = None,
    token: str | None = None,
    content_type: str | None = 'application/json',
) -> tuple[int, Any]:
    """The status and the body of the response, decoded as JSON if there is any."""
    headers = {'apikey': key or gateway.keys.publishable}
    if token is not None:
        headers['Authorization'] = f'Bearer {token}'
    if content_type is not None:
        headers['Content-Type'] = content_type
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = HTTPConnection(urlsplit(gateway.url).netloc, timeout=60)
    try:
        connection.request('POST', path, body=data, headers=headers)
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None
    finally:
        connection.close()


def message(topic: str = 'room', **changes: Any) -> dict[str, Any]:
    return {'topic': topic, 'event': 'hi', 'payload': {'a': 1}, **changes}


def one(topic: str, event: str = 'hi') -> str:
    return f'{BATCH}/{quote(topic, safe="")}/events/{quote(event, safe="")}'


@pytest.fixture
def public(gateway: GatewayThread) -> Iterator[Phoenix]:
    with open_socket(gateway.url, gateway.keys.publishable) as socket:
        socket.join('room')
        yield socket


@pytest.fixture
def private(gateway: GatewayThread) -> Iterator[Phoenix]:
    with open_socket(gateway.url, gateway.keys.secret, version=V2) as socket:
        socket.join('room', private=True)
        yield socket


def test_a_batch_is_accepted_and_sent_in_order(gateway: GatewayThread, public: Phoenix) -> None:
    messages = [message(payload={'number': number}) for number in range(5)]
    assert post(gateway, BATCH, {'messages': messages}) == (202, None)
    for number in range(5):
        assert public.receive_broadcast() == {
            'type': 'broadcast',
            'event': 'hi',
            'payload': {'number': number},
        }


@pytest.mark.parametrize('flag', [True, 'true', '1'])
def test_every_spelling_of_a_private_message_is_understood(
    gateway: GatewayThread, private: Phoenix, public: Phoenix, flag: object
) -> None:
    body = {'messages': [message(private=flag)]}
    assert post(gateway, BATCH, body, key=gateway.keys.secret) == (202, None)
    assert private.receive_broadcast()['event'] == 'hi'
    public.heartbeat()


def test_a_private_message_needs_the_right_to_write(
    gateway: GatewayThread, private: Phoenix, public: Phoenix
) -> None:
    body = {'messages': [message(private=True)]}
    assert post(gateway, BATCH, body) == (202, None)
    private.heartbeat()
    assert post(gateway, BATCH, body, key=gateway.keys.secret) == (202, None)
    assert private.receive_broadcast()['payload'] == {'a': 1}
    public.heartbeat()


@pytest.mark.parametrize(
    ('body', 'errors'),
    [
        ({}, {'messages': ["can't be blank"]}),
        ({'messages': 'x'}, {'messages': ['is invalid']}),
        ({'messages': [1]}, {'messages': ['is invalid']}),
        ([], {'messages': ['is invalid']}),
        (
            {'messages': [message(), {'topic': '', 'event': 7, 'payload': 'x'}]},
            {
                'messages': [
                    {},
                    {
                        'topic': ["can't be blank"],
                        'event': ['is invalid'],
                        'payload': ['is invalid'],
                    },
                ]
            },
        ),
        ({'messages': [message(private='maybe')]}, {'messages': [{'private': ['is invalid']}]}),
        ({'messages': [message(' ')]}, {'messages': [{'topic': ["can't be blank"]}]}),
    ],
)
def test_the_errors_of_a_batch_are_listed_per_message(
    gateway: GatewayThread, public: Phoenix, body: Any, errors: Any
) -> None:
    assert post(gateway, BATCH, body) == (422, {'errors': errors})
    public.heartbeat()


@pytest.mark.parametrize('body', [b'', b'{', b'\xff', b'{"messages":' + b'[' * 100_000])
def test_a_batch_that_is_not_json_is_refused(gateway: GatewayThread, body: bytes) -> None:
    assert post(gateway, BATCH, body)[0] == 400


def test_the_path_names_topic_and_event_of_a_single_message(
    gateway: GatewayThread, public: Phoenix
) -> None:
    assert post(gateway, one('room'), {'a': [1, None]}) == (202, None)
    assert public.receive_broadcast() == {
        'type': 'broadcast',
        'event': 'hi',
        'payload': {'a': [1, None]},
    }


def test_names_in_a_path_may_contain_any_characters(gateway: GatewayThread) -> None:
    topic, event = 'crawl_job:1/2 ü', 'a/b c'
    with open_socket(gateway.url, gateway.keys.publishable) as client:
        client.join(topic)
        assert post(gateway, one(topic, event), {}) == (202, None)
        received = client.receive()
        assert (received.topic, received.payload['event']) == (f'realtime:{topic}', event)


def test_a_single_binary_message_reaches_version_2_clients(
    gateway: GatewayThread, private: Phoenix
) -> None:
    path = one('room') + '?private=true'
    answer = post(
        gateway,
        path,
        b'\x00\xff',
        key=gateway.keys.secret,
        content_type='application/octet-stream',
    )
    assert answer == (202, None)
    assert private.receive_broadcast()['payload'] == b'\x00\xff'


def test_a_single_private_message_without_the_right_to_write_is_refused(
    gateway: GatewayThread, database: Database, private: Phoenix
) -> None:
    path = one('room') + '?private=true'
    token = gateway.keys.user_token(str(database.user()))
    assert post(gateway, path, {}, token=token) == (403, {'message': 'Unauthorized'})
    assert post(gateway, path, {})[0] == 403
    private.heartbeat()


def test_other_content_types_are_refused(gateway: GatewayThread) -> None:
    assert post(gateway, one('room'), b'<a/>', content_type='text/xml')[0] == 415
    assert post(gateway, one('room'), b'{}', content_type=None)[0] == 202
    assert post(gateway, one('room'), b'{', content_type='application/json')[0] == 400


def test_keys_and_tokens_are_checked(gateway: GatewayThread) -> None:
    body = {'messages': [message()]}
    assert post(gateway, BATCH, body, key='sb_secret_nobody')[0] == 401
    assert post(gateway, BATCH, body, token='.'.join('abc'))[0] == 401
    expired = gateway.keys.user_token('x', seconds=-1)
    assert post(gateway, BATCH, body, token=expired)[0] == 401
    assert post(gateway, BATCH, body, token=gateway.keys.publishable)[0] == 202


def test_a_body_that_is_too_large_is_refused(gateway: GatewayThread, public: Phoenix) -> None:
    assert post(gateway, BATCH, b'x' * (9 * 1024 * 1024))[0] == 413
    public.heartbeat()

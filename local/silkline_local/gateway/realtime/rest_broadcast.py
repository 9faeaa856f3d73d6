"""Broadcasts over HTTP: many messages in one request, or one message named by its path.

Owns the reading of both forms and their responses. A private message needs the right to write to
its topic, which is checked for each request. Without it, a batch drops the message, and the single
form is refused.
"""

import asyncio
from typing import Literal

import msgspec
from aiohttp import hdrs, web

from silkline_local.gateway.callers import BadToken, Caller, Callers
from silkline_local.gateway.http import Refusal, UnreadableBody, encode_headers, read_body
from silkline_local.gateway.realtime.authorization import Authorizer, TopicAccess
from silkline_local.gateway.realtime.broadcasts import TextBroadcast, UserBroadcast, text_payload
from silkline_local.gateway.realtime.channels import Hub
from silkline_local.gateway.realtime.database import DatabaseUnavailable
from silkline_local.gateway.realtime.frames import NULL

LARGEST_BYTES = 8 * 1024 * 1024

# The values that Ecto, which reads a batch for hosted Realtime, accepts as booleans.
TRUE = (b'true', b'"true"', b'"1"')
FALSE = (b'false', b'"false"', b'"0"', NULL)

OBJECT_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
LIST_DECODER = msgspec.json.Decoder(list[msgspec.Raw])

Errors = dict[str, list[str]]


class BroadcastMessage(msgspec.Struct):
    topic: str
    event: str
    payload: bytes
    is_private: bool


class RestBroadcast:
    def __init__(self, *, callers: Callers, hub: Hub, authorizer: Authorizer) -> None:
        self._callers = callers
        self._hub = hub
        self._authorizer = authorizer

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post('/realtime/v1/api/broadcast', self.send_many)
        router.add_post('/realtime/v1/api/broadcast/{topic}/events/{event}', self.send_one)

    async def send_many(self, request: web.Request) -> web.StreamResponse:
        """Answer 202, whether or not anyone listens; drop private messages without permission."""
        caller = self._caller(request)
        messages = read_messages(await read(request))
        allowed: dict[str, bool] = {}
        for message in messages:
            if message.is_private:
                if message.topic not in allowed:
                    allowed[message.topic] = await self._may_write(request, caller, message.topic)
                if not allowed[message.topic]:
                    continue
            self._hub.deliver(
                TextBroadcast(message.topic, text_payload(message.event, message.payload)),
                topic=message.topic,
                is_private=message.is_private,
            )
            # A long batch must not block other tasks.
            await asyncio.sleep(0)
        return web.Response(status=202)

    async def send_one(self, request: web.Request) -> web.StreamResponse:
        """Answer 202 once the message is sent, or say why it is not."""
        caller = self._caller(request)
        content_type = request.headers.get(hdrs.CONTENT_TYPE, 'application/json')
        if not content_type.startswith(('application/json', 'application/octet-stream')):
            raise Refusal(
                415,
                {
                    'error': 'Unsupported Media Type. '
                    'Use application/json or application/octet-stream'
                },
            )
        is_json = content_type.startswith('application/json')
        topic, event = request.match_info['topic'], request.match_info['event']
        payload = await read(request)
        if is_json:
            payload = read_json(payload)
        is_private = request.query.get('private') == 'true'
        if is_private:
            try:
                may_write = await self._authorizer.may_write(topic_access(request, caller, topic))
            except DatabaseUnavailable as error:
                raise Refusal(422, {'message': error.message}) from error
            if not may_write:
                raise Refusal(403, {'message': 'Unauthorized'})
        self._hub.deliver(
            UserBroadcast(topic, event, payload, is_json=is_json),
            topic=topic,
            is_private=is_private,
        )
        return web.Response(status=202)

    def _caller(self, request: web.Request) -> Caller:
        try:
            caller = self._callers.by_headers(request.headers, key=request.query.get('apikey'))
        except BadToken as error:
            raise Refusal(401, {'message': 'Unauthorized'}) from error
        if caller.is_expired():
            raise Refusal(401, {'message': 'Token has expired'})
        return caller

    async def _may_write(self, request: web.Request, caller: Caller, topic: str) -> bool:
        try:
            return await self._authorizer.may_write(topic_access(request, caller, topic))
        except DatabaseUnavailable:
            return False


def topic_access(request: web.Request, caller: Caller, topic: str) -> TopicAccess:
    headers = encode_headers(
        (name, value)
        for name, value in request.headers.items()
        if name.lower() not in ('apikey', 'authorization', 'x-api-key', 'cookie')
    ).decode()
    return TopicAccess(caller=caller, topic=topic, headers=headers)


async def read(request: web.Request) -> bytes:
    try:
        return await read_body(request, largest_bytes=LARGEST_BYTES)
    except UnreadableBody as error:
        raise Refusal(error.status, {'message': str(error)}) from error


def read_json(body: bytes) -> bytes:
    """The payload of a single message: an object, or any other value under `_json`."""
    try:
        body.decode()
        value = bytes(msgspec.json.decode(body, type=msgspec.Raw)) if body.strip() else b'{}'
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, {'message': 'the body is not JSON'}) from error
    # Plug, which reads the body for hosted Realtime, wraps values that are not objects.
    return value if value.startswith(b'{') else b'{"_json":%b}' % value


def read_messages(body: bytes) -> list[BroadcastMessage]:
    """The messages of a batch. Raises a refusal that says what is wrong with each."""
    try:
        body.decode()
        raw = OBJECT_DECODER.decode(body).get('messages')
        if raw is None:
            raise unprocessable({'messages': ["can't be blank"]})
        items = LIST_DECODER.decode(raw)
        fields = [OBJECT_DECODER.decode(item) for item in items]
    except msgspec.ValidationError as error:
        raise unprocessable({'messages': ['is invalid']}) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, {'message': 'the body is not JSON'}) from error
    messages: list[BroadcastMessage] = []
    all_errors: list[Errors] = []
    for item in fields:
        errors: Errors = {}
        topic = read_field(item, 'topic', errors)
        event = read_field(item, 'event', errors)
        payload = read_field(item, 'payload', errors, kind='object')
        private = bytes(item.get('private', NULL))
        if private not in (*TRUE, *FALSE):
            errors['private'] = ['is invalid']
        all_errors.append(errors)
        messages.append(
            BroadcastMessage(
                msgspec.json.decode(topic) if topic else '',
                msgspec.json.decode(event) if event else '',
                payload,
                private in TRUE,
            )
        )
    if any(all_errors):
        raise unprocessable({'messages': all_errors})
    return messages


def read_field(
    item: dict[str, msgspec.Raw],
    name: str,
    errors: Errors,
    *,
    kind: Literal['string', 'object'] = 'string',
) -> bytes:
    text = bytes(item.get(name, NULL))
    if text == NULL or (text.startswith(b'"') and not msgspec.json.decode(text, type=str).strip()):
        errors[name] = ["can't be blank"]
    elif not text.startswith(b'"' if kind == 'string' else b'{'):
        errors[name] = ['is invalid']
    else:
        return text
    return b''


def unprocessable(errors: Errors | dict[str, list[str] | list[Errors]]) -> Refusal:
    return Refusal(422, {'errors': errors})

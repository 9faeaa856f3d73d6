"""One client's WebSocket: its frames in order, its channels, and what is sent to it.

Owns the protocol's events, from phx_join to phx_close, and a channel's life between them. Joins
are granted by `admission.py`; what waits to be read by the client is in `outbox.py`.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from silkline_local.gateway.callers import Caller, Callers
from silkline_local.gateway.realtime.authorization import Asking, Authorizer
from silkline_local.gateway.realtime.broadcasts import (
    PREFIX,
    Broadcast,
    TextBroadcast,
    UserBroadcast,
)
from silkline_local.gateway.realtime.channels import Channel, Hub
from silkline_local.gateway.realtime.database import Unanswered
from silkline_local.gateway.realtime.frames import (
    CLOSE,
    EMPTY,
    NULL,
    Incoming,
    MalformedFrame,
    Version,
    decode,
    decode_payload,
    encode,
    websocket_frame,
)
from silkline_local.gateway.realtime.join import (
    JoinRefused,
    admit,
    as_mapping,
    check_read,
    check_room,
    check_token,
    expiry_message,
    read_join,
    read_token,
)
from silkline_local.gateway.realtime.outbox import Outbox

logger = logging.getLogger(__name__)

CHECK_TOKEN_SECONDS = 3600.0
CLOSE_SECONDS = 1.0
JOINED = b'{"status":"ok","response":{"postgres_changes":[]}}'
OK = b'{"status":"ok","response":{}}'


@dataclass(frozen=True, slots=True)
class Services:
    """What all sockets share."""

    callers: Callers
    hub: Hub
    authorizer: Authorizer
    await_stream: Callable[[Channel], None]


class Socket:
    """`serve` runs until the client or the server ends it; the rest is called from outside."""

    __slots__ = (
        '_caller',
        '_channels',
        '_headers',
        '_response',
        '_services',
        'outbox',
        'version',
    )

    def __init__(
        self,
        response: web.WebSocketResponse,
        transport: asyncio.Transport,
        *,
        version: Version,
        caller: Caller,
        headers: str,
        services: Services,
    ) -> None:
        self.version = version
        self._response = response
        self.outbox = Outbox(response, transport)
        self._caller = caller
        self._headers = headers
        self._services = services
        self._channels: dict[str, Channel] = {}

    async def serve(self) -> None:
        """Handle the client's frames one after the other; a join delays what follows it."""
        try:
            while not self.outbox.is_closed:
                message = await self._response.receive()
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break
                try:
                    await self._handle(decode(self.version, message.data))
                except MalformedFrame as error:
                    await self.close(WSCloseCode.UNSUPPORTED_DATA, str(error))
                except Exception:
                    logger.exception('a frame could not be handled')
                    await self.close(WSCloseCode.INTERNAL_ERROR, 'the frame could not be handled')
                # One that sends without pause must not keep the others from their turn.
                await asyncio.sleep(0)
        finally:
            for channel in tuple(self._channels.values()):
                self._forget(channel)
            if not self._response.closed:
                # The server is ending, and waits for no answer.
                self.send(websocket_frame(CLOSE, int(WSCloseCode.GOING_AWAY).to_bytes(2, 'big')))
            self.outbox.end()

    def send(self, frame: bytes) -> None:
        self.outbox.write(frame)

    def shut_down(self, channel: Channel, message: str) -> None:
        """End one channel from this side, telling why."""
        if self._channels.get(channel.wire_topic) is channel:
            self.send_system(channel, 'error', message)
            self._close_channel(channel)

    def send_system(self, channel: Channel, status: str, message: str) -> None:
        """Tell a channel something about itself, if it is still joined."""
        if self._channels.get(channel.wire_topic) is not channel:
            return
        payload = msgspec.json.encode(
            {
                'extension': 'system',
                'status': status,
                'message': message,
                'channel': channel.topic,
            }
        )
        self._send(channel.wire_topic, 'system', payload, join_ref=channel.join_ref)

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye; a client that does not read gets no longer than the others to hear it."""
        self.outbox.is_closed = True
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._response.close(code=code, message=reason.encode()[:120])
        except TimeoutError:
            self.outbox.abort()

    async def _handle(self, incoming: Incoming) -> None:
        channel = self._channels.get(incoming.topic)
        match incoming.event:
            case 'heartbeat' if incoming.topic == 'phoenix':
                self._reply(incoming, OK)
            case 'phx_join':
                if channel is not None:
                    self._close_channel(channel)
                await self._join(incoming)
            case 'phx_leave' if channel is None:
                self._reply(incoming, OK)
            case 'phx_leave' if channel is not None:
                # Of another join: the client has raced the end of it.
                if channel.join_ref in (incoming.join_ref, NULL):
                    self._reply(incoming, OK)
                    self._close_channel(channel)
            case _ if channel is None:
                self._refuse(incoming, 'unmatched topic')
            case 'broadcast':
                await self._broadcast(channel, incoming)
            case 'access_token':
                await self._renew(channel, incoming)
            case 'presence':
                self._reply(incoming, OK)
            case _:
                # An event that hosted Realtime ignores, too.
                pass

    async def _join(self, incoming: Incoming) -> None:
        if not incoming.topic.startswith(PREFIX):
            self._refuse(incoming, 'unmatched topic')
            return
        topic = incoming.topic.removeprefix(PREFIX)
        services = self._services
        try:
            check_room(incoming.topic, channels=len(self._channels))
            request = read_join(incoming.payload)
            caller = await admit(
                request,
                topic=topic,
                key_caller=self._caller,
                headers=self._headers,
                callers=services.callers,
                authorizer=services.authorizer,
            )
        except JoinRefused as refused:
            self._refuse(incoming, str(refused))
            return
        channel = Channel(
            socket=self,
            topic=topic,
            join_ref=incoming.join_ref,
            caller=caller,
            is_private=request.is_private,
            wants_ack=request.wants_ack,
            hears_itself=request.hears_itself,
            token=request.token,
        )
        self._channels[channel.wire_topic] = channel
        services.hub.add(channel)
        self._reply(incoming, JOINED)
        self._watch_expiry(channel)
        if request.wants_replication_ready:
            services.await_stream(channel)

    async def _broadcast(self, channel: Channel, incoming: Incoming) -> None:
        """Pass a client's message on; what it may not say is dropped without a word."""
        if channel.is_private:
            if channel.may_write is None:
                try:
                    channel.may_write = await self._services.authorizer.may_write(
                        self._asking(channel.topic, channel.caller)
                    )
                except Unanswered as error:
                    logger.warning('a broadcast to %r was dropped: %s', channel.topic, error)
            if not channel.may_write:
                return
        push = incoming.push
        broadcast: Broadcast
        if push is not None:
            broadcast = UserBroadcast(channel.topic, push.event, push.payload, is_json=push.is_json)
        elif incoming.payload.startswith(b'{'):
            broadcast = TextBroadcast(channel.topic, incoming.payload)
        else:
            # Hosted Realtime's channel dies of it.
            self._close_channel(channel, event='phx_error')
            return
        self._services.hub.deliver(
            broadcast,
            topic=channel.topic,
            is_private=channel.is_private,
            sender=None if channel.hears_itself else channel,
        )
        if channel.wants_ack:
            self._reply(incoming, OK)

    async def _renew(self, channel: Channel, incoming: Incoming) -> None:
        """Go on with a new token: all that was granted is asked for again."""
        token = read_token(as_mapping(decode_payload(incoming.payload)).get('access_token'))
        if token is None or token == channel.token:
            return
        try:
            caller = check_token(self._services.callers, token)
            if channel.is_private:
                await check_read(self._services.authorizer, self._asking(channel.topic, caller))
        except JoinRefused as refused:
            self.shut_down(channel, str(refused).partition(': ')[2])
            return
        channel.token = token
        channel.caller = caller
        channel.may_write = None
        self._watch_expiry(channel)

    def _watch_expiry(self, channel: Channel) -> None:
        """Shut the channel down when its token ends."""
        if channel.expiry is not None:
            channel.expiry.cancel()
            channel.expiry = None
        expires_at = channel.caller.expires_at
        if self._channels.get(channel.wire_topic) is not channel or expires_at is None:
            return
        if channel.caller.is_expired():
            self.shut_down(channel, expiry_message(channel.caller))
            return
        # Looked at again each hour, since a loop's timers do not reach for ever.
        delay = min(max(expires_at - time.time(), 0.0), CHECK_TOKEN_SECONDS)
        channel.expiry = asyncio.get_running_loop().call_later(delay, self._watch_expiry, channel)

    def _close_channel(self, channel: Channel, *, event: str = 'phx_close') -> None:
        self._forget(channel)
        self._send(
            channel.wire_topic, event, EMPTY, join_ref=channel.join_ref, ref=channel.join_ref
        )

    def _forget(self, channel: Channel) -> None:
        if self._channels.get(channel.wire_topic) is channel:
            del self._channels[channel.wire_topic]
        self._services.hub.remove(channel)
        if channel.expiry is not None:
            channel.expiry.cancel()
            channel.expiry = None

    def _asking(self, topic: str, caller: Caller) -> Asking:
        return Asking(caller=caller, topic=topic, headers=self._headers)

    def _refuse(self, incoming: Incoming, reason: str) -> None:
        body = msgspec.json.encode({'status': 'error', 'response': {'reason': reason}})
        self._reply(incoming, body)

    def _reply(self, incoming: Incoming, body: bytes) -> None:
        self._send(incoming.topic, 'phx_reply', body, join_ref=incoming.join_ref, ref=incoming.ref)

    def _send(
        self, topic: str, event: str, payload: bytes, *, join_ref: bytes, ref: bytes = NULL
    ) -> None:
        self.send(encode(self.version, topic, event, payload, join_ref=join_ref, ref=ref))

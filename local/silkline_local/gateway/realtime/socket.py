"""One client's WebSocket: its frames in order, its channels, and what is sent to it.

Owns the events of the protocol, from phx_join to phx_close, and the life of a channel between them.
`join.py` decides about joins; `outbox.py` holds what the client has not read yet.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from silkline_local.gateway.callers import Caller, Callers
from silkline_local.gateway.realtime.authorization import Authorizer, TopicAccess
from silkline_local.gateway.realtime.broadcasts import (
    PREFIX,
    Broadcast,
    TextBroadcast,
    UserBroadcast,
)
from silkline_local.gateway.realtime.channels import Hub, JoinedChannel
from silkline_local.gateway.realtime.database import DatabaseUnavailable
from silkline_local.gateway.realtime.frames import (
    CLOSE,
    EMPTY,
    NULL,
    IncomingFrame,
    MalformedFrame,
    ProtocolVersion,
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
    check_token,
    check_topic,
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
class SocketServices:
    """What all sockets share."""

    callers: Callers
    hub: Hub
    authorizer: Authorizer
    await_stream: Callable[[JoinedChannel], None]


class Socket:
    """`serve` runs until the client or the server ends it; other tasks call the rest."""

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
        version: ProtocolVersion,
        caller: Caller,
        headers: str,
        services: SocketServices,
    ) -> None:
        self.version = version
        self._response = response
        self.outbox = Outbox(response, transport)
        self._caller = caller
        self._headers = headers
        self._services = services
        self._channels: dict[str, JoinedChannel] = {}

    async def serve(self) -> None:
        """Handle the client's frames one after the other; a join delays those that follow it."""
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
                    logger.exception('cannot handle a frame')
                    await self.close(WSCloseCode.INTERNAL_ERROR, 'the frame could not be handled')
                # A client that sends without pause must not block other tasks.
                await asyncio.sleep(0)
        finally:
            for channel in tuple(self._channels.values()):
                self._forget(channel)
            if not self._response.closed:
                # The server is stopping, and does not wait for an answer.
                self.send(websocket_frame(CLOSE, int(WSCloseCode.GOING_AWAY).to_bytes(2, 'big')))
            self.outbox.end()

    def send(self, frame: bytes) -> None:
        self.outbox.write(frame)

    def shut_down(self, channel: JoinedChannel, message: str) -> None:
        """Close one channel from this side, with a message that says why."""
        if self._channels.get(channel.wire_topic) is channel:
            self.send_system(channel, 'error', message)
            self._close_channel(channel)

    def send_system(self, channel: JoinedChannel, status: str, message: str) -> None:
        """Send a system message to a channel, if it is still joined."""
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
        """Send a close frame; disconnect a client that does not answer within `CLOSE_SECONDS`."""
        self.outbox.is_closed = True
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._response.close(code=code, message=reason.encode()[:120])
        except TimeoutError:
            self.outbox.abort()

    async def _handle(self, incoming: IncomingFrame) -> None:
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
                # Otherwise it is about an earlier join that has ended in the meantime.
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

    async def _join(self, incoming: IncomingFrame) -> None:
        if not incoming.topic.startswith(PREFIX):
            self._refuse(incoming, 'unmatched topic')
            return
        topic = incoming.topic.removeprefix(PREFIX)
        services = self._services
        try:
            check_topic(incoming.topic, channels=len(self._channels))
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
        channel = JoinedChannel(
            socket=self,
            topic=topic,
            join_ref=incoming.join_ref,
            caller=caller,
            is_private=request.is_private,
            wants_ack=request.wants_ack,
            receives_own=request.receives_own,
            token=request.token,
        )
        self._channels[channel.wire_topic] = channel
        services.hub.add(channel)
        self._reply(incoming, JOINED)
        self._watch_expiry(channel)
        if request.wants_replication_ready:
            services.await_stream(channel)

    async def _broadcast(self, channel: JoinedChannel, incoming: IncomingFrame) -> None:
        """Pass a client's message on; drop it silently if the client may not send it."""
        if channel.is_private:
            if channel.may_write is None:
                try:
                    channel.may_write = await self._services.authorizer.may_write(
                        self._access(channel.topic, channel.caller)
                    )
                except DatabaseUnavailable as error:
                    logger.warning('dropped a broadcast to %r: %s', channel.topic, error)
            if not channel.may_write:
                return
        push = incoming.push
        broadcast: Broadcast
        if push is not None:
            broadcast = UserBroadcast(channel.topic, push.event, push.payload, is_json=push.is_json)
        elif incoming.payload.startswith(b'{'):
            broadcast = TextBroadcast(channel.topic, incoming.payload)
        else:
            # As hosted Realtime does: its channel crashes.
            self._close_channel(channel, event='phx_error')
            return
        self._services.hub.deliver(
            broadcast,
            topic=channel.topic,
            is_private=channel.is_private,
            sender=None if channel.receives_own else channel,
        )
        if channel.wants_ack:
            self._reply(incoming, OK)

    async def _renew(self, channel: JoinedChannel, incoming: IncomingFrame) -> None:
        """Continue with a new token: all permissions are checked again."""
        token = read_token(as_mapping(decode_payload(incoming.payload)).get('access_token'))
        if token is None or token == channel.token:
            return
        try:
            caller = check_token(self._services.callers, token)
            if channel.is_private:
                await check_read(self._services.authorizer, self._access(channel.topic, caller))
        except JoinRefused as refused:
            self.shut_down(channel, str(refused).partition(': ')[2])
            return
        channel.token = token
        channel.caller = caller
        channel.may_write = None
        self._watch_expiry(channel)

    def _watch_expiry(self, channel: JoinedChannel) -> None:
        """Close the channel when its token expires."""
        if channel.expiry is not None:
            channel.expiry.cancel()
            channel.expiry = None
        expires_at = channel.caller.expires_at
        if self._channels.get(channel.wire_topic) is not channel or expires_at is None:
            return
        if channel.caller.is_expired():
            self.shut_down(channel, expiry_message(channel.caller))
            return
        # Checked again every hour, because an event loop's timers have a limited range.
        delay = min(max(expires_at - time.time(), 0.0), CHECK_TOKEN_SECONDS)
        channel.expiry = asyncio.get_running_loop().call_later(delay, self._watch_expiry, channel)

    def _close_channel(self, channel: JoinedChannel, *, event: str = 'phx_close') -> None:
        self._forget(channel)
        self._send(
            channel.wire_topic, event, EMPTY, join_ref=channel.join_ref, ref=channel.join_ref
        )

    def _forget(self, channel: JoinedChannel) -> None:
        if self._channels.get(channel.wire_topic) is channel:
            del self._channels[channel.wire_topic]
        self._services.hub.remove(channel)
        if channel.expiry is not None:
            channel.expiry.cancel()
            channel.expiry = None

    def _access(self, topic: str, caller: Caller) -> TopicAccess:
        return TopicAccess(caller=caller, topic=topic, headers=self._headers)

    def _refuse(self, incoming: IncomingFrame, reason: str) -> None:
        body = msgspec.json.encode({'status': 'error', 'response': {'reason': reason}})
        self._reply(incoming, body)

    def _reply(self, incoming: IncomingFrame, body: bytes) -> None:
        self._send(incoming.topic, 'phx_reply', body, join_ref=incoming.join_ref, ref=incoming.ref)

    def _send(
        self, topic: str, event: str, payload: bytes, *, join_ref: bytes, ref: bytes = NULL
    ) -> None:
        self.send(encode(self.version, topic, event, payload, join_ref=join_ref, ref=ref))

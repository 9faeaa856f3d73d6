"""The frames that one client has not read yet.

Owns the bound on them. Frames are written to the transport whole and at once; what the kernel does
not accept waits in the transport, and a client that leaves too much unread, or reads nothing for a
while, is disconnected. So no one waits for a slow reader, and no task per socket is needed. Close
frames and pings are aiohttp's.
"""

import asyncio
import logging
import socket
import time

from aiohttp import web

logger = logging.getLogger(__name__)

BACKLOG_BYTES = 4 * 1024 * 1024
STALLED_SECONDS = 30.0
# How long unread frames are kept for a connection that is being closed.
LINGER_SECONDS = 1.0
# The kernel's send buffer, which would otherwise grow to megabytes.
KERNEL_BYTES = 256 * 1024


class Outbox:
    __slots__ = ('_drained', '_drained_at', '_response', '_transport', '_written', 'is_closed')

    def __init__(self, response: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        self.is_closed = False
        self._response = response
        self._transport = transport
        self._written = 0
        self._drained = 0
        self._drained_at = time.monotonic()
        connection: socket.socket | None = transport.get_extra_info('socket')
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)

    def write(self, frame: bytes) -> None:
        """Write a whole frame; disconnect the client if it has left too much unread."""
        if self.is_closed or self._response.closed or self._transport.is_closing():
            return
        self._transport.write(frame)
        self._written += len(frame)
        if self._transport.get_write_buffer_size() > BACKLOG_BYTES:
            self._disconnect('it reads too slowly')

    def disconnect_if_stalled(self, now: float) -> None:
        """Disconnect the client if it has read nothing for `STALLED_SECONDS`."""
        backlog = self._transport.get_write_buffer_size()
        drained = self._written - backlog
        if not backlog or drained > self._drained:
            self._drained = drained
            self._drained_at = now
        elif now - self._drained_at > STALLED_SECONDS:
            self._disconnect('it has stopped reading')

    def end(self) -> None:
        """Write no more; drop what the client does not read within `LINGER_SECONDS`."""
        self.is_closed = True
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """Close the connection now, whatever is unread."""
        self.is_closed = True
        self._transport.abort()

    def _disconnect(self, reason: str) -> None:
        logger.warning('disconnected a client: %s', reason)
        self.abort()

"""What waits to be read by one client.

Owns the bound on it. Frames go to the transport whole and at once; what the kernel does not take
waits in the transport, and a client that leaves too much or takes nothing is cut off. So nobody
waits for a slow reader, and no task per socket is needed. Close frames and pings are aiohttp's.
"""

import asyncio
import logging
import socket
import time

from aiohttp import web

logger = logging.getLogger(__name__)

BACKLOG_BYTES = 4 * 1024 * 1024
STALLED_SECONDS = 30.0
# How long a connection that is over may still hold what was not taken.
LINGER_SECONDS = 1.0
# The kernel's own share, which it would else let grow to megabytes.
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
        """Write a whole frame, or cut the client off when it has left too many unread."""
        if self.is_closed or self._response.closed or self._transport.is_closing():
            return
        self._transport.write(frame)
        self._written += len(frame)
        if self._transport.get_write_buffer_size() > BACKLOG_BYTES:
            self._cut('it reads too slowly')

    def cut_if_stalled(self, now: float) -> None:
        """Cut the client off when it has taken nothing of what waits for it in a while."""
        backlog = self._transport.get_write_buffer_size()
        drained = self._written - backlog
        if not backlog or drained > self._drained:
            self._drained = drained
            self._drained_at = now
        elif now - self._drained_at > STALLED_SECONDS:
            self._cut('it has stopped reading')

    def end(self) -> None:
        """Write no more, and let what the client does not take soon go with its connection."""
        self.is_closed = True
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """End the connection now, whatever waits."""
        self.is_closed = True
        self._transport.abort()

    def _cut(self, reason: str) -> None:
        logger.warning('a client was cut off: %s', reason)
        self.abort()

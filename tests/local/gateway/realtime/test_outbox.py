"""When a client that does not read is disconnected."""

import asyncio
import time
from typing import Any, cast

from aiohttp import web

from silkline_local.gateway.realtime.outbox import BACKLOG_BYTES, STALLED_SECONDS, Outbox


class FakeTransport:
    """A transport whose client reads only when a test calls `read`."""

    def __init__(self) -> None:
        self.unread = 0
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.unread += len(data)

    def read(self, size: int) -> None:
        self.unread -= size

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, name: str) -> Any:
        return None


def make_outbox() -> tuple[Outbox, FakeTransport]:
    transport = FakeTransport()
    return Outbox(web.WebSocketResponse(), cast(asyncio.Transport, transport)), transport


def test_a_client_that_leaves_too_much_unread_is_disconnected() -> None:
    outbox, transport = make_outbox()
    outbox.write(b'x' * BACKLOG_BYTES)
    assert not transport.is_aborted
    outbox.write(b'x')
    assert transport.is_aborted
    outbox.write(b'x')
    assert transport.unread == BACKLOG_BYTES + 1


def test_a_client_that_reads_nothing_for_long_is_disconnected() -> None:
    outbox, transport = make_outbox()
    outbox.write(b'x' * 10)
    now = time.monotonic()
    outbox.disconnect_if_stalled(now + STALLED_SECONDS / 2)
    assert not transport.is_aborted
    outbox.disconnect_if_stalled(now + STALLED_SECONDS + 1)
    assert transport.is_aborted


def test_a_client_that_reads_slowly_stays_connected() -> None:
    outbox, transport = make_outbox()
    now = time.monotonic()
    for _ in range(10):
        outbox.write(b'x' * 10)
        outbox.disconnect_if_stalled(now)
        transport.read(5)
        now += STALLED_SECONDS - 1
        outbox.disconnect_if_stalled(now)
    assert not transport.is_aborted


def test_a_client_with_nothing_to_read_stays_connected() -> None:
    outbox, transport = make_outbox()
    now = time.monotonic()
    outbox.disconnect_if_stalled(now + 10_000)
    outbox.write(b'x')
    outbox.disconnect_if_stalled(now + 10_001)
    assert not transport.is_aborted

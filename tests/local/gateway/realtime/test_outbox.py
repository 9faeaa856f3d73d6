"""When a client that does not read is cut off."""

import asyncio
import time
from typing import Any, cast

from aiohttp import web
from silkline_local.gateway.realtime.outbox import BACKLOG_BYTES, STALLED_SECONDS, Outbox


class Pipe:
    """A transport whose reader takes what `take` says, and nothing else."""

    def __init__(self) -> None:
        self.waiting = 0
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.waiting += len(data)

    def take(self, size: int) -> None:
        self.waiting -= size

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def get_extra_info(self, name: str) -> Any:
        return None


def make_outbox() -> tuple[Outbox, Pipe]:
    pipe = Pipe()
    return Outbox(web.WebSocketResponse(), cast(asyncio.Transport, pipe)), pipe


def test_too_much_left_unread_cuts_the_client_off() -> None:
    outbox, pipe = make_outbox()
    outbox.write(b'x' * BACKLOG_BYTES)
    assert not pipe.is_aborted
    outbox.write(b'x')
    assert pipe.is_aborted
    outbox.write(b'x')
    assert pipe.waiting == BACKLOG_BYTES + 1


def test_taking_nothing_for_long_cuts_the_client_off() -> None:
    outbox, pipe = make_outbox()
    outbox.write(b'x' * 10)
    now = time.monotonic()
    outbox.disconnect_if_stalled(now + STALLED_SECONDS / 2)
    assert not pipe.is_aborted
    outbox.disconnect_if_stalled(now + STALLED_SECONDS + 1)
    assert pipe.is_aborted


def test_taking_a_little_now_and_then_is_enough() -> None:
    outbox, pipe = make_outbox()
    now = time.monotonic()
    for _ in range(10):
        outbox.write(b'x' * 10)
        outbox.disconnect_if_stalled(now)
        pipe.take(5)
        now += STALLED_SECONDS - 1
        outbox.disconnect_if_stalled(now)
    assert not pipe.is_aborted


def test_having_nothing_to_read_is_no_stall() -> None:
    outbox, pipe = make_outbox()
    now = time.monotonic()
    outbox.disconnect_if_stalled(now + 10_000)
    outbox.write(b'x')
    outbox.disconnect_if_stalled(now + 10_001)
    assert not pipe.is_aborted

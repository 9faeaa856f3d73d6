"""Turns rows of realtime.messages into broadcasts.

Owns which rows are sent and to whom. A row that cannot be sent is dropped with a rate-limited line
in the log, as hosted Realtime does: there is no client to answer.
"""

import logging
import time

from silkline_local.gateway.realtime.broadcasts import UserBroadcast
from silkline_local.gateway.realtime.channels import Hub
from silkline_local.gateway.realtime.pgoutput import MessageRow

logger = logging.getLogger(__name__)

LOG_EVERY_SECONDS = 10.0


class Delivery:
    """Passes the rows of the stream to the hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._logged_at = -LOG_EVERY_SECONDS
        self._dropped = 0

    def receive(self, row: MessageRow) -> None:
        topic, event, id = row.get('topic'), row.get('event'), row.get('id')
        payload, is_json = read_payload(row)
        private = row.get('private')
        if row.get('extension') != b'broadcast':
            return
        if topic is None or event is None or id is None or private is None or payload is None:
            self._drop('it has no topic, event, payload or private flag')
        else:
            name = topic.decode()
            self._hub.deliver(
                UserBroadcast(name, event.decode(), payload, is_json=is_json, id=id.decode()),
                topic=name,
                is_private=private == b't',
            )

    def _drop(self, reason: str) -> None:
        self._dropped += 1
        now = time.monotonic()
        if now - self._logged_at >= LOG_EVERY_SECONDS:
            logger.warning('dropped a database broadcast: %s (%d so far)', reason, self._dropped)
            self._logged_at = now


def read_payload(row: MessageRow) -> tuple[bytes | None, bool]:
    """The payload, and whether it is JSON; Postgres writes bytes as \\x and hexadecimal digits."""
    binary = row.get('binary_payload')
    if binary is not None:
        return bytes.fromhex(binary[2:].decode()), False
    return row.get('payload'), True

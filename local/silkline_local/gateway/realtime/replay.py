"""Messages of the last days, for a client that was away.

Owns what may be asked for and the query, both as hosted Realtime has them: private channels, the
newest 25 at most, oldest first. When they are sent is decided by `socket.py`.
"""

from datetime import UTC, datetime
from typing import cast

import psycopg

from silkline_local.gateway.realtime.broadcasts import UserBroadcast
from silkline_local.gateway.realtime.database import Connection, Database, Unanswered

MOST = 25
DEFAULT_LIMIT = 10

# Messages of one transaction share inserted_at; their place in the table is their order.
NEWEST = """
  select id::text, event, payload::text, binary_payload
  from realtime.messages
  where topic = %s
    and private
    and extension = 'broadcast'
    and inserted_at >= %s
    and event is not null
  order by inserted_at desc, tableoid desc, ctid desc
  limit %s
"""


class ReplayRefused(Exception):
    """The message is for the client, as the reason why the join failed."""


async def replay(database: Database, topic: str, asked: dict[str, object]) -> list[UserBroadcast]:
    """The messages that `config.broadcast.replay` asks for, in order. Raises `ReplayRefused`."""
    since, limit = read_config(asked)

    async def fetch(connection: Connection) -> list[UserBroadcast]:
        cursor = await connection.execute(NEWEST, [topic, since, limit])
        rows = cast(
            list[tuple[str, str, str | None, bytes | None]],
            await cursor.fetchall(),
        )
        return [
            UserBroadcast(
                topic,
                event,
                text.encode() if text is not None else binary or b'',
                is_json=text is not None,
                id=id,
                is_replayed=True,
            )
            for id, event, text, binary in reversed(rows)
            if text is not None or binary is not None
        ]

    try:
        return await database.ask(fetch)
    except (Unanswered, psycopg.Error) as error:
        raise ReplayRefused('Realtime was unable to replay messages') from error


def read_config(asked: dict[str, object]) -> tuple[datetime, int]:
    refusal = ReplayRefused('Replay params are not valid')
    since = asked.get('since')
    limit = asked.get('limit')
    since = 0 if since is None else since
    limit = DEFAULT_LIMIT if limit is None else limit
    if type(since) is not int or type(limit) is not int:
        raise refusal
    try:
        moment = datetime.fromtimestamp(since / 1000, UTC).replace(tzinfo=None)
    except (OverflowError, ValueError, OSError) as error:
        raise refusal from error
    return moment, max(1, min(limit, MOST))

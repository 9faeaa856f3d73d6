"""Whether a caller may read or write a private topic, as the policies decide.

Owns the probing of the policies on realtime.messages, as hosted Realtime does it: rows are inserted
and selected as the caller, in a transaction that is always rolled back. The channel caches the
results, not this module.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

import msgspec
import psycopg
from psycopg import errors

from silkline_local.gateway.callers import Caller
from silkline_local.gateway.realtime.database import Connection, RealtimeDatabase

logger = logging.getLogger(__name__)

Probe = Callable[[Connection], Awaitable[bool]]

BECOME = """
  select
    set_config('role', %(role)s, true),
    set_config('realtime.topic', %(topic)s, true),
    set_config('request.jwt.claims', %(claims)s, true),
    set_config('request.jwt.claim.sub', %(sub)s, true),
    set_config('request.jwt.claim.role', %(role)s, true),
    set_config('request.headers', %(headers)s, true)
"""
INSERT = """
  insert into realtime.messages (id, topic, extension)
  values (%(id)s, %(topic)s, 'broadcast')
"""
SELECT = """
  select id
  from realtime.messages
  where id = %(id)s and topic = %(topic)s and extension = 'broadcast'
"""


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """A caller and the topic that it wants to read or write; `headers` is JSON."""

    caller: Caller
    topic: str
    headers: str

    def parameters(self) -> dict[str, str | UUID]:
        claims: object = msgspec.json.decode(self.caller.claims)
        sub = claims.get('sub') if isinstance(claims, dict) else None
        return {
            'id': uuid4(),
            'role': self.caller.role,
            'topic': self.topic,
            'claims': self.caller.claims,
            'sub': sub if isinstance(sub, str) else '',
            'headers': self.headers,
        }


class Authorizer:
    """Each check is one round trip. Raises `DatabaseUnavailable` if there is no answer."""

    def __init__(self, database: RealtimeDatabase) -> None:
        self._database = database

    async def may_read(self, access: TopicAccess) -> bool:
        """Whether the caller can see a row of this topic that Realtime has inserted."""
        parameters = access.parameters()

        async def probe(connection: Connection) -> bool:
            async with connection.pipeline():
                await connection.execute('begin')
                await connection.execute(INSERT, parameters)
                await connection.execute(BECOME, parameters)
                seen = await connection.execute(SELECT, parameters)
                await connection.execute('rollback')
            return await seen.fetchone() is not None

        return await self._probe(probe, access)

    async def may_write(self, access: TopicAccess) -> bool:
        """Whether the caller may insert a row of this topic."""
        parameters = access.parameters()

        async def probe(connection: Connection) -> bool:
            async with connection.pipeline():
                await connection.execute('begin')
                await connection.execute(BECOME, parameters)
                await connection.execute(INSERT, parameters)
                await connection.execute('rollback')
            return True

        return await self._probe(probe, access)

    async def _probe(self, probe: Probe, access: TopicAccess) -> bool:
        try:
            return await self._database.run(probe)
        except errors.InsufficientPrivilege:
            return False
        except (psycopg.DatabaseError, psycopg.InterfaceError, ValueError) as error:
            # A policy that fails, a role that does not exist, a topic with a zero byte.
            logger.warning(
                'RlsPolicyError on %r as %r: %s', access.topic, access.caller.role, error
            )
            return False

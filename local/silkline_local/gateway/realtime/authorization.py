"""May this caller hear, or speak on, this private topic? The policies decide.

Owns the probing of the policies on realtime.messages, as hosted Realtime does it: rows are
inserted and looked for as the caller, in a transaction that is always rolled back. Answers are
kept by the channel, not here.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

import msgspec
import psycopg
from psycopg import errors

from silkline_local.gateway.callers import Caller
from silkline_local.gateway.realtime.database import Connection, Database

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
class Asking:
    """Who asks about which topic; `headers` is JSON."""

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
    """Each question is one round trip. Both raise `Unanswered` when it cannot be asked."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def may_read(self, asking: Asking) -> bool:
        """Say whether a row of this topic, put there by Realtime, is seen by the caller."""
        parameters = asking.parameters()

        async def probe(connection: Connection) -> bool:
            async with connection.pipeline():
                await connection.execute('begin')
                await connection.execute(INSERT, parameters)
                await connection.execute(BECOME, parameters)
                seen = await connection.execute(SELECT, parameters)
                await connection.execute('rollback')
            return await seen.fetchone() is not None

        return await self._probe(probe, asking)

    async def may_write(self, asking: Asking) -> bool:
        """Say whether the caller may insert a row of this topic."""
        parameters = asking.parameters()

        async def probe(connection: Connection) -> bool:
            async with connection.pipeline():
                await connection.execute('begin')
                await connection.execute(BECOME, parameters)
                await connection.execute(INSERT, parameters)
                await connection.execute('rollback')
            return True

        return await self._probe(probe, asking)

    async def _probe(self, probe: Probe, asking: Asking) -> bool:
        try:
            return await self._database.ask(probe)
        except errors.InsufficientPrivilege:
            return False
        except (psycopg.DatabaseError, psycopg.InterfaceError, ValueError) as error:
            # A policy that fails, a role that does not exist, a topic with a zero byte.
            logger.warning(
                'RlsPolicyError on %r as %r: %s', asking.topic, asking.caller.role, error
            )
            return False

"""What the migrations leave open, on projects whose default privileges differ.

Old projects grant everything in schema public to the roles of the API, new ones nothing. The rights
that are meant are listed in supabase/tests/00_schema.sql, which runs on both.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.support.database import Database
from tests.support.servers import Server

# Of every relation, column, function and schema. A null list of rights means the built-in ones.
RIGHTS = """
  with owned as (
    select
      namespace.oid::regnamespace::text as name,
      coalesce(namespace.nspacl, acldefault('n', namespace.nspowner)) as acl
    from pg_catalog.pg_namespace as namespace
    where namespace.nspname in ('public', 'silkline')
    union all
    select
      relation.oid::regclass::text,
      coalesce(
        relation.relacl,
        acldefault(
          case relation.relkind when 'S' then 's'::"char" else 'r'::"char" end,
          relation.relowner
        )
      )
    from pg_catalog.pg_class as relation
    where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and relation.relkind in ('r', 'p', 'v', 'm', 'S')
    union all
    select
      attribute.attrelid::regclass || '.' || attribute.attname,
      attribute.attacl
    from pg_catalog.pg_attribute as attribute
    join pg_catalog.pg_class as relation
      on relation.oid = attribute.attrelid
    where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and attribute.attacl is not null
    union all
    select
      routine.oid::regprocedure::text,
      coalesce(routine.proacl, acldefault('f', routine.proowner))
    from pg_catalog.pg_proc as routine
    where routine.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
  )
  select
    owned.name,
    item.privilege_type || case when item.is_grantable then ' with grant option' else '' end
      as privilege,
    case item.grantee when 0 then 'public' else item.grantee::regrole::text end as grantee
  from owned
  cross join lateral aclexplode(owned.acl) as item
"""

# A template per statement, with %s for the name.
USES = """
  select format(template, relation.oid::regclass) as statement
  from pg_catalog.pg_class as relation
  cross join unnest(%(templates)s::text[]) as template
  where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
    and relation.relkind = any (%(kinds)s)
  order by statement
"""

CALLS = """
  select
    format(
      'select %I.%I(%s)',
      namespace.nspname,
      routine.proname,
      (
        select string_agg('null::' || argument::regtype, ', ')
        from unnest(routine.proargtypes::oid[]) as argument
      )
    ) as statement
  from pg_catalog.pg_proc as routine
  join pg_catalog.pg_namespace as namespace
    on namespace.oid = routine.pronamespace
  where namespace.nspname in ('public', 'silkline')
    and routine.prokind = 'f'
  order by statement
"""


@pytest.fixture(scope='module')
def old_project(server: Server) -> Iterator[Database]:
    with (
        server.template(privileges='classic') as template,
        server.database(template) as database,
    ):
        yield database


@pytest.fixture(scope='module')
def new_project(server: Server) -> Iterator[Database]:
    with (
        server.template(privileges='new') as template,
        server.database(template) as database,
    ):
        yield database


def rights(database: Database) -> set[str]:
    return {
        f'{row["privilege"]} on {row["name"]} to {row["grantee"]}' for row in database.query(RIGHTS)
    }


def allowed(connection: psycopg.Connection[Any], statements: list[str]) -> list[str]:
    """The statements that are not refused for want of a right; all are undone."""
    through: list[str] = []
    for statement in statements:
        try:
            connection.execute(statement.encode())
        except errors.InsufficientPrivilege:
            continue
        except psycopg.Error as error:
            through.append(f'{statement}: {error}')
        else:
            through.append(statement)
        finally:
            connection.rollback()
    return through


def uses(database: Database, kinds: list[str], *templates: str) -> list[str]:
    rows = database.query(USES, {'kinds': kinds, 'templates': list(templates)})
    assert rows
    return [row['statement'] for row in rows]


def test_old_and_new_projects_end_with_the_same_rights(
    old_project: Database, new_project: Database
) -> None:
    old, new = rights(old_project), rights(new_project)

    assert (sorted(old - new), sorted(new - old)) == ([], [])


def test_an_anonymous_caller_has_no_right_at_all_on_an_old_project(old_project: Database) -> None:
    open_to_all = {
        right
        for right in rights(old_project)
        if right.endswith((' to anon', ' to public')) and not right.startswith('USAGE on public ')
    }

    assert open_to_all == set()


def test_an_anonymous_caller_can_use_no_table_or_view_of_an_old_project(
    old_project: Database,
) -> None:
    anonymous = old_project.connect('anon', autocommit=False)

    reads = uses(old_project, ['v', 'm'], 'select from %s limit 0')
    everything = uses(
        old_project,
        ['r', 'p'],
        'select from %s limit 0',
        'insert into %s default values',
        'delete from %s where false',
        'truncate %s',
        'lock table %s',
    )

    assert allowed(anonymous, reads + everything) == []


def test_an_anonymous_caller_can_use_no_sequence_of_an_old_project(old_project: Database) -> None:
    anonymous = old_project.connect('anon', autocommit=False)

    statements = uses(
        old_project,
        ['S'],
        "select nextval('%s')",
        "select setval('%s', 1)",
        'select last_value from %s',
    )

    assert allowed(anonymous, statements) == []


def test_an_anonymous_caller_can_call_no_function_of_an_old_project(old_project: Database) -> None:
    anonymous = old_project.connect('anon', autocommit=False)
    calls = [row['statement'] for row in old_project.query(CALLS)]
    assert calls

    assert allowed(anonymous, calls) == []

"""A bootstrapped database must allow and refuse what a Supabase database does."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors

from silkline_local.postgres.migrations import bootstrap
from silkline_local.postgres.server import SUPERUSER
from tests.support.database import Database, Session
from tests.support.servers import Server

API_ROLES = ('anon', 'authenticated', 'service_role')


@pytest.fixture
def warnings(bare_database: Database) -> list[str]:
    """The warnings that `sender` got."""
    return []


@pytest.fixture
def sender(bare_database: Database, warnings: list[str]) -> Session:
    connection = bare_database.connect('service_role')
    connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ''))
    return connection


def messages(database: Database) -> list[dict[str, Any]]:
    return database.query('select * from realtime.messages order by inserted_at')


def test_bootstrap_can_be_run_again(server: Server, bare_database: Database) -> None:
    bare_database.query('insert into auth.users (id) values (gen_random_uuid())')
    bootstrap(server.postgres, bare_database.name)
    assert len(bare_database.query('select from auth.users')) == 1


def test_postgres_is_not_a_superuser(bare_database: Database) -> None:
    [role] = bare_database.query('select * from pg_roles where rolname = current_user')
    assert role['rolname'] == 'postgres'
    assert not role['rolsuper']
    assert role['rolcreatedb']
    assert role['rolcreaterole']
    assert role['rolreplication']
    assert role['rolbypassrls']
    assert role['rolcanlogin']


def test_only_service_role_of_the_api_roles_bypasses_row_security(bare_database: Database) -> None:
    rows = bare_database.query(
        'select rolname, rolcanlogin, rolbypassrls from pg_roles where rolname = any (%s)',
        [list(API_ROLES)],
    )
    assert {row['rolname'] for row in rows if row['rolbypassrls']} == {'service_role'}
    assert not any(row['rolcanlogin'] for row in rows)


@pytest.mark.parametrize(
    ('role', 'setting', 'value'),
    [
        ('anon', 'statement_timeout', '3s'),
        ('authenticated', 'statement_timeout', '8s'),
        ('authenticator', 'statement_timeout', '8s'),
        ('authenticator', 'lock_timeout', '8s'),
        ('postgres', 'search_path', '"$user", public, extensions'),
    ],
)
def test_a_role_has_its_settings(
    bare_database: Database, role: str, setting: str, value: str
) -> None:
    [row] = bare_database.query('select rolconfig from pg_roles where rolname = %s', [role])
    assert f'{setting}={value}' in row['rolconfig']


def test_authenticator_has_no_rights_of_its_own(bare_database: Database) -> None:
    bare_database.query('create table public.things (id int)')
    bare_database.query('grant select on public.things to service_role')
    with (
        psycopg.connect(bare_database.url('authenticator')) as connection,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        connection.execute('select from public.things')


def create_things(database: Database) -> None:
    database.query('create table public.things (id int)')
    database.query('create sequence public.numbers')


def test_what_migrations_create_is_granted_to_no_one_by_default(server: Server) -> None:
    with server.database(privileges='new') as database:
        create_things(database)
        for role in API_ROLES:
            with pytest.raises(errors.InsufficientPrivilege, match='for table things'):
                database.query('select from public.things', role=role)
            with pytest.raises(errors.InsufficientPrivilege, match='for sequence numbers'):
                database.query("select nextval('public.numbers')", role=role)


def test_what_migrations_create_is_granted_to_all_on_an_old_project(server: Server) -> None:
    with server.database(privileges='classic') as database:
        create_things(database)
        for role in API_ROLES:
            database.query('truncate public.things', role=role)
            database.query("select setval('public.numbers', 7)", role=role)


def test_postgres_may_add_a_trigger_to_the_users_but_not_change_their_table(
    bare_database: Database,
) -> None:
    bare_database.query(
        """
        create table public.profiles (id uuid primary key);
        create function public.handle_new_user() returns trigger
          language plpgsql security definer set search_path = '' as $$
        begin
          insert into public.profiles (id) values (new.id);
          return new;
        end;
        $$;
        create trigger on_auth_user_created after insert on auth.users
          for each row execute function public.handle_new_user();
        """
    )
    user = uuid4()
    with psycopg.connect(bare_database.url('supabase_auth_admin')) as auth_server:
        auth_server.execute('insert into auth.users (id) values (%s)', [user])
    assert bare_database.query('select id from public.profiles') == [{'id': user}]

    for statement in (
        "comment on trigger on_auth_user_created on auth.users is 'theirs'",
        'alter table auth.users add column mine text',
        'create index on auth.users (email)',
    ):
        with pytest.raises(errors.InsufficientPrivilege, match='must be owner of'):
            bare_database.query(statement)


@pytest.mark.parametrize('schema', ['auth', 'realtime'])
def test_postgres_cannot_create_in_a_schema_of_supabase(
    bare_database: Database, schema: str
) -> None:
    with pytest.raises(errors.InsufficientPrivilege, match='permission denied for schema'):
        bare_database.query(f'create table {schema}.things (id int)')


def test_a_session_with_claims_knows_its_user(bare_database: Database) -> None:
    user = bare_database.user()
    row = (
        bare_database.connect('authenticated', user)
        .execute('select auth.uid(), auth.role(), auth.jwt(), current_user')
        .fetchone()
    )
    assert row == {
        'uid': user,
        'role': 'authenticated',
        'jwt': {'role': 'authenticated', 'sub': str(user)},
        'current_user': 'authenticated',
    }


def test_a_session_without_claims_has_no_user(bare_database: Database) -> None:
    assert bare_database.query('select auth.uid(), auth.jwt()') == [{'uid': None, 'jwt': None}]


def test_send_adds_an_id(bare_database: Database, sender: Session) -> None:
    sender.execute("""select realtime.send('{"a": 1}', 'progress', 'job:1')""")
    [message] = messages(bare_database)
    assert message['payload'] == {'a': 1, 'id': str(message['id'])}
    assert (message['topic'], message['event'], message['extension'], message['private']) == (
        'job:1',
        'progress',
        'broadcast',
        True,
    )


def test_send_keeps_an_existing_id(bare_database: Database, sender: Session) -> None:
    sender.execute("""select realtime.send('{"id": 7}', 'progress', 'job:1', false)""")
    [message] = messages(bare_database)
    assert message['payload'] == {'id': 7}
    assert not message['private']


@pytest.mark.parametrize('payload', ['[1]', '"text"'])
def test_send_drops_a_payload_that_is_not_an_object_with_a_warning(
    bare_database: Database, sender: Session, warnings: list[str], payload: str
) -> None:
    sender.execute("select realtime.send(%s::jsonb, 'progress', 'job:1')", [payload])
    assert messages(bare_database) == []
    [warning] = warnings
    assert warning.startswith('WarnSendingBroadcastMessage: ')


def test_send_without_a_partition_warns_and_lets_the_statement_succeed(
    bare_database: Database, sender: Session, warnings: list[str]
) -> None:
    bare_database.query(
        """
        do $$
        declare
          v_partition regclass;
        begin
          for v_partition in
            select inhrelid from pg_inherits where inhparent = 'realtime.messages'::regclass
          loop
            execute format('drop table %s', v_partition);
          end loop;
        end;
        $$
        """,
        role=SUPERUSER,
    )
    sender.execute("select realtime.send('{}', 'progress', 'job:1')")
    [warning] = warnings
    assert 'no partition of relation "messages" found' in warning

    bare_database.query('select realtime.local_create_partitions()', role=SUPERUSER)
    sender.execute("select realtime.send('{}', 'progress', 'job:1')")
    assert len(messages(bare_database)) == 1


def test_send_as_a_user_needs_a_policy_that_postgres_may_create(bare_database: Database) -> None:
    warnings: list[str] = []
    connection = bare_database.connect('authenticated', bare_database.user())
    connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ''))

    connection.execute("select realtime.send('{}', 'progress', 'job:1')")
    [warning] = warnings
    assert 'violates row-level security policy' in warning
    assert messages(bare_database) == []

    bare_database.query(
        """
        create policy "users send to jobs" on realtime.messages
          for insert to authenticated with check (realtime.topic() like 'job:%')
        """
    )
    connection.execute("select realtime.send('{}', 'progress', 'job:1')")
    assert len(messages(bare_database)) == 1


def test_postgres_may_not_create_policies_on_messages_without_supautils(
    server: Server, bare_database: Database
) -> None:
    with (
        server.without_supautils(),
        pytest.raises(errors.InsufficientPrivilege, match='must be owner of table messages'),
    ):
        bare_database.query('create policy "anyone" on realtime.messages for select using (true)')


def test_postgres_may_grant_what_it_has_on_messages(
    server: Server, bare_database: Database
) -> None:
    """Without being a member of their owner, as on Supabase."""
    connection = bare_database.connect(autocommit=False)
    with server.without_supautils():
        # Rolled back: a role belongs to the whole server.
        connection.execute('create role listener')
        connection.execute('grant usage on schema realtime to listener')
        connection.execute('grant select, insert on realtime.messages to listener')
        row = connection.execute(
            """
            select
              has_schema_privilege('listener', 'realtime', 'usage') as uses,
              has_table_privilege('listener', 'realtime.messages', 'select') as reads,
              has_table_privilege('listener', 'realtime.messages', 'insert') as writes
            """
        ).fetchone()
        connection.rollback()
    assert row == {'uses': True, 'reads': True, 'writes': True}


def test_send_binary_stores_bytes(bare_database: Database, sender: Session) -> None:
    sender.execute(r"select realtime.send_binary('\x01ff', 'frame', 'job:1')")
    [message] = messages(bare_database)
    assert (message['payload'], message['binary_payload']) == (None, b'\x01\xff')


def test_broadcast_changes_sends_the_old_and_the_new_row(bare_database: Database) -> None:
    bare_database.query(
        """
        create table public.things (id int);
        create function public.notify() returns trigger language plpgsql as $$
        begin
          perform realtime.broadcast_changes(
            'things', tg_op, tg_op, tg_table_name, tg_table_schema, new, old
          );
          return null;
        end;
        $$;
        create trigger notify after insert on public.things
          for each row execute function public.notify();
        """
    )
    bare_database.query('insert into public.things values (1)')
    [message] = messages(bare_database)
    payload = message['payload']
    assert payload['record'] == {'id': 1}
    assert payload['old_record'] is None
    assert (payload['operation'], payload['table'], payload['schema']) == (
        'INSERT',
        'things',
        'public',
    )


def test_messages_are_published_to_realtime(bare_database: Database) -> None:
    rows = bare_database.query(
        'select distinct schemaname from pg_publication_tables where pubname = %s',
        ['supabase_realtime_messages_publication'],
    )
    assert rows == [{'schemaname': 'realtime'}]


def test_pg_cron_runs_jobs_for_postgres(cron_database: Database) -> None:
    [job] = cron_database.query("select cron.schedule('idle', '0 0 1 1 *', 'select 1') as id")
    cron_database.query('select cron.unschedule(%s::bigint)', [job['id']])
    with pytest.raises(errors.InsufficientPrivilege):
        cron_database.query('delete from cron.job where jobid = 0')

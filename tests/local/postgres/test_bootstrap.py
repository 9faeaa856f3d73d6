"""A bootstrapped database must allow and refuse what a Supabase database does."""

from typing import Any

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


@pytest.mark.parametrize('role', API_ROLES)
def test_a_new_table_is_granted_to_no_one(bare_database: Database, role: str) -> None:
    bare_database.query('create table public.things (id int)')
    with pytest.raises(errors.InsufficientPrivilege, match='permission denied for table things'):
        bare_database.query('select from public.things', role=role)


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

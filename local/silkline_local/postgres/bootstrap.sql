-- Make a plain database look like a Supabase one to migrations.
--
-- Run as supabase_admin in each such database; safe to run again. Roles belong to the whole
-- server, the rest to the database. Passwords are set by migrations.py. What postgres creates in
-- schema public is granted to no one, as on projects created since May 2026; for older projects,
-- classic_privileges.sql is run after this file.
--
-- Differs from Supabase in four ways. There is no supautils, so postgres is made a member of
-- supabase_realtime_admin, the only way a plain Postgres lets it create policies on
-- realtime.messages, and it cannot drop a trigger that it has created on auth.users. There is no
-- Realtime server, so realtime.local_create_partitions() creates the partitions. Realtime's
-- stand-in logs in as supabase_realtime_admin, hosted Realtime still as supabase_admin, which may
-- become any role. There is no safeupdate, so an UPDATE without WHERE is not refused.

do $$
declare
  v_role text;
begin
  foreach v_role in array array[
    'postgres',
    'anon',
    'authenticated',
    'service_role',
    'authenticator',
    'dashboard_user',
    'pgbouncer',
    'supabase_auth_admin',
    'supabase_storage_admin',
    'supabase_realtime_admin',
    'supabase_replication_admin',
    'supabase_read_only_user'
  ] loop
    if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
      execute format('create role %I', v_role);
    end if;
  end loop;
end;
$$;

alter role postgres with nosuperuser createdb createrole login replication bypassrls inherit;
alter role anon with nologin inherit;
alter role authenticated with nologin inherit;
alter role service_role with nologin inherit bypassrls;
alter role authenticator with login noinherit;
alter role dashboard_user with nologin createdb createrole replication;
alter role pgbouncer with login;
alter role supabase_auth_admin with login noinherit createrole;
alter role supabase_storage_admin with login noinherit createrole;
alter role supabase_realtime_admin with login noinherit replication;
alter role supabase_replication_admin with login replication;
alter role supabase_read_only_user with login bypassrls;

grant
  anon,
  authenticated,
  service_role,
  pg_monitor,
  pg_read_all_data,
  pg_signal_backend,
  supabase_realtime_admin
to postgres;
grant anon, authenticated, service_role to authenticator;
grant anon, authenticated, service_role to supabase_realtime_admin;
grant pg_read_all_data to supabase_read_only_user;

alter role postgres set search_path = "$user", public, extensions;
alter role postgres set statement_timeout = '2min';
alter role supabase_admin set search_path = "$user", public, auth, extensions;
alter role anon set statement_timeout = '3s';
alter role authenticated set statement_timeout = '8s';
alter role authenticator set statement_timeout = '8s';
alter role authenticator set lock_timeout = '8s';
alter role supabase_auth_admin set search_path = auth;

-- The owner of the database owns schema public too, through pg_database_owner.
do $$
begin
  execute format('alter database %I owner to postgres', current_database());
end;
$$;

grant usage on schema public to postgres, anon, authenticated, service_role;

create schema if not exists extensions authorization postgres;
grant usage on schema extensions to anon, authenticated, service_role;
grant all on schema extensions to dashboard_user;

create schema if not exists auth authorization supabase_admin;
grant usage on schema auth to postgres, anon, authenticated, service_role;
grant all on schema auth to supabase_auth_admin, dashboard_user;

create table if not exists auth.users (
  id uuid primary key,
  email text,
  created_at timestamptz not null default now()
);
alter table auth.users owner to supabase_auth_admin;
alter table auth.users enable row level security;
grant all on auth.users to postgres, dashboard_user;
grant select on auth.users to postgres with grant option;

create or replace function auth.uid()
  returns uuid
  language sql
  stable
as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.sub', true), ''),
    nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub'
  )::uuid
$$;

create or replace function auth.role()
  returns text
  language sql
  stable
as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.role', true), ''),
    nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'role'
  )::text
$$;

create or replace function auth.email()
  returns text
  language sql
  stable
as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.email', true), ''),
    nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'email'
  )::text
$$;

create or replace function auth.jwt()
  returns jsonb
  language sql
  stable
as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim', true), ''),
    nullif(current_setting('request.jwt.claims', true), '')
  )::jsonb
$$;

alter function auth.uid() owner to supabase_auth_admin;
alter function auth.role() owner to supabase_auth_admin;
alter function auth.email() owner to supabase_auth_admin;
alter function auth.jwt() owner to supabase_auth_admin;

-- After a change to the schema, tell PostgREST, or its stand-in, to reload it.
create or replace function extensions.pgrst_ddl_watch()
  returns event_trigger
  language plpgsql
as $$
begin
  if exists (
    select
    from pg_event_trigger_ddl_commands() as command
    where command.command_tag in (
        'CREATE SCHEMA',
        'ALTER SCHEMA',
        'CREATE TABLE',
        'CREATE TABLE AS',
        'SELECT INTO',
        'ALTER TABLE',
        'CREATE FOREIGN TABLE',
        'ALTER FOREIGN TABLE',
        'CREATE VIEW',
        'ALTER VIEW',
        'CREATE MATERIALIZED VIEW',
        'ALTER MATERIALIZED VIEW',
        'CREATE FUNCTION',
        'ALTER FUNCTION',
        'CREATE TRIGGER',
        'CREATE TYPE',
        'ALTER TYPE',
        'CREATE RULE',
        'COMMENT'
      )
      and command.schema_name is distinct from 'pg_temp'
  ) then
    notify pgrst, 'reload schema';
  end if;
end;
$$;

create or replace function extensions.pgrst_drop_watch()
  returns event_trigger
  language plpgsql
as $$
begin
  if exists (
    select
    from pg_event_trigger_dropped_objects() as dropped
    where dropped.object_type in (
        'schema',
        'table',
        'foreign table',
        'view',
        'materialized view',
        'function',
        'trigger',
        'type',
        'rule'
      )
      and not dropped.is_temporary
  ) then
    notify pgrst, 'reload schema';
  end if;
end;
$$;

alter function extensions.pgrst_ddl_watch() owner to supabase_admin;
alter function extensions.pgrst_drop_watch() owner to supabase_admin;

do $$
begin
  if not exists (select from pg_catalog.pg_event_trigger where evtname = 'pgrst_ddl_watch') then
    create event trigger pgrst_ddl_watch
      on ddl_command_end
      execute function extensions.pgrst_ddl_watch();
  end if;
  if not exists (select from pg_catalog.pg_event_trigger where evtname = 'pgrst_drop_watch') then
    create event trigger pgrst_drop_watch
      on sql_drop
      execute function extensions.pgrst_drop_watch();
  end if;
end;
$$;

-- Owned by supabase_admin, so that membership in supabase_realtime_admin gives postgres no right
-- to create here, as on Supabase.
create schema if not exists realtime authorization supabase_admin;
grant usage on schema realtime to anon, authenticated, service_role, supabase_realtime_admin;
grant usage on schema realtime to postgres with grant option;

create table if not exists realtime.messages (
  topic text not null,
  extension text not null,
  payload jsonb,
  event text,
  private boolean default false,
  updated_at timestamp not null default now(),
  inserted_at timestamp not null default now(),
  id uuid not null default gen_random_uuid(),
  binary_payload bytea,
  primary key (id, inserted_at),
  check (payload is null or binary_payload is null)
) partition by range (inserted_at);
create index if not exists messages_inserted_at_topic_index
  on realtime.messages (inserted_at desc, topic)
  where extension = 'broadcast' and private is true;
alter table realtime.messages owner to supabase_realtime_admin;
alter table realtime.messages enable row level security;
grant select, insert, update on realtime.messages to anon, authenticated, service_role;
grant all on realtime.messages to postgres, dashboard_user;
grant select, insert on realtime.messages to postgres with grant option;

-- Never fails its caller: a message that cannot be stored is dropped with a warning.
create or replace function realtime.send(
  payload jsonb,
  event text,
  topic text,
  private boolean default true
)
  returns void
  language plpgsql
as $$
declare
  generated_id uuid;
  final_payload jsonb;
begin
  begin
    generated_id := gen_random_uuid();
    if payload ? 'id' then
      final_payload := payload;
    else
      final_payload := jsonb_set(payload, '{id}', to_jsonb(generated_id));
    end if;
    perform set_config('realtime.topic', topic, true);
    insert into realtime.messages (id, payload, event, topic, private, extension)
    values (generated_id, final_payload, event, topic, private, 'broadcast');
  exception
    when others then
      raise warning 'WarnSendingBroadcastMessage: %', sqlerrm;
  end;
end;
$$;

create or replace function realtime.send_binary(
  payload bytea,
  event text,
  topic text,
  private boolean default true
)
  returns void
  language plpgsql
as $$
begin
  begin
    perform set_config('realtime.topic', topic, true);
    insert into realtime.messages (binary_payload, event, topic, private, extension)
    values (payload, event, topic, private, 'broadcast');
  exception
    when others then
      raise warning 'WarnSendingBroadcastMessage: %', sqlerrm;
  end;
end;
$$;

create or replace function realtime.broadcast_changes(
  topic_name text,
  event_name text,
  operation text,
  table_name text,
  table_schema text,
  new record,
  old record,
  level text default 'ROW'
)
  returns void
  language plpgsql
as $$
begin
  if level = 'STATEMENT' then
    raise exception 'function can only be triggered for each row, not for each statement';
  end if;
  perform realtime.send(
    jsonb_build_object(
      'old_record', old,
      'record', new,
      'operation', operation,
      'table', table_name,
      'schema', table_schema
    ),
    event_name,
    topic_name
  );
exception
  when others then
    raise exception 'Failed to process the row: %', sqlerrm;
end;
$$;

create or replace function realtime.topic()
  returns text
  language sql
  stable
as $$
  select nullif(current_setting('realtime.topic', true), '')::text
$$;

alter function realtime.send(jsonb, text, text, boolean) owner to supabase_realtime_admin;
alter function realtime.send_binary(bytea, text, text, boolean) owner to supabase_realtime_admin;
alter function realtime.broadcast_changes(text, text, text, text, text, record, record, text)
  owner to supabase_realtime_admin;
alter function realtime.topic() owner to supabase_realtime_admin;

-- Does what the Realtime server does: creates the partitions from yesterday to three days ahead
-- and drops those older than 72 hours. Call it at start and regularly: a laptop may sleep for days.
-- definer because supabase_realtime_admin may not create in schema realtime: postgres, a member of
-- it, would then have that right, too
create or replace function realtime.local_create_partitions()
  returns void
  language plpgsql
  security definer
  set search_path = ''
  set client_min_messages = warning
as $$
declare
  v_today constant date := (now() at time zone 'utc')::date;
  v_day date;
  v_name text;
begin
  for v_day in select v_today + offset_days from generate_series(-1, 3) as offset_days loop
    v_name := to_char(v_day, '"messages_"YYYY_MM_DD');
    -- Takes no lock if there is nothing to do.
    continue when to_regclass(format('realtime.%I', v_name)) is not null;
    execute format(
      'create table realtime.%I partition of realtime.messages
         for values from (%L) to (%L)',
      v_name,
      v_day,
      v_day + 1
    );
    execute format('alter table realtime.%I owner to supabase_realtime_admin', v_name);
  end loop;
  for v_name in
    select partition.relname
    from pg_catalog.pg_inherits as inheritance
    join pg_catalog.pg_class as partition
      on partition.oid = inheritance.inhrelid
    where inheritance.inhparent = 'realtime.messages'::regclass
      and partition.relname < to_char(v_today - 3, '"messages_"YYYY_MM_DD')
  loop
    execute format('drop table realtime.%I', v_name);
  end loop;
end;
$$;

revoke execute on function realtime.local_create_partitions() from public;
grant execute on function realtime.local_create_partitions() to supabase_realtime_admin;

select realtime.local_create_partitions();

do $$
begin
  if not exists (select from pg_catalog.pg_publication where pubname = 'supabase_realtime') then
    create publication supabase_realtime;
  end if;
  if not exists (
    select from pg_catalog.pg_publication where pubname = 'supabase_realtime_messages_publication'
  ) then
    create publication supabase_realtime_messages_publication for table realtime.messages;
  end if;

  if exists (select from pg_catalog.pg_available_extensions where name = 'plpgsql_check') then
    create extension if not exists plpgsql_check with schema extensions;
  end if;

  -- pg_cron works in one database of a server, and only if it is preloaded.
  if current_setting('cron.database_name', true) = current_database()
    and 'pg_cron' = any (
      string_to_array(replace(current_setting('shared_preload_libraries'), ' ', ''), ',')
    )
  then
    create extension if not exists pg_cron with schema pg_catalog;
    grant usage on schema cron to postgres;
    grant execute on all functions in schema cron to postgres;
    grant all on all tables in schema cron to postgres;
    revoke all on cron.job from postgres;
    grant select on cron.job to postgres;
  end if;
end;
$$;

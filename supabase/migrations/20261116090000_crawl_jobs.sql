-- The jobs table, and the tables for settings, history and workers.
--
-- Reading order of the migrations:
--   crawl_jobs               this file
--   crawl_frontier           states, tasks, pages, hosts, audits
--   crawl_state_machine      the rules for a row of crawl_jobs, and its state machine
--   crawl_scheduling         the order in which pending jobs are claimed
--   crawl_claim              the map of all worker functions, and the first of them
--   crawl_heartbeat          renews leases, returns the users' commands
--   crawl_leases             complete, fail, release
--   crawl_reap               ends leases whose worker fell silent
--   crawl_canonical          pages that name another page as their canonical
--   crawl_checkpoint_input   checks and stores the parts of a checkpoint
--   crawl_checkpoint_output  picks the next URLs, and reads what the crawl asked for
--   crawl_checkpoint         pages, finished and found URLs in; the next URLs out
--   crawl_payload            the options of a job, and the check of payloads against them
--   crawl_access             who is calling, which jobs are theirs, and their quotas
--   crawl_enqueue            one job, or thousands
--   crawl_job_control        pause, resume, stop, cancel, retry
--   crawl_progress           the progress of one job
--   crawl_stats              pending work, statistics, workers
--   crawl_explain            "why is it not running?"
--   crawl_events             history and Realtime messages
--   crawl_maintenance        retention, overlooked jobs, pg_cron
--   crawl_doctor             health checks
--   crawl_results            the pages of a job
--
-- Schema public is the API. Older projects grant everything in it by default, newer ones
-- nothing, so every table and function here first revokes everything, then grants what it
-- needs. Schema silkline is private: it is not exposed over HTTP and holds what the API
-- functions share.
--
-- Lock order, everywhere: job row, then state, then tasks, then pages, then hosts. A claim
-- takes the advisory locks of hosts and owners without waiting; the end of a lease takes
-- them after the job row.

create schema silkline;

comment on schema silkline is
  'Private parts of the crawl queue. Not exposed over the API.';

revoke all on schema silkline from public;
grant usage on schema silkline to authenticated, service_role;

-- The role behind a limited key for worker machines: it may execute the worker functions and
-- read or write no table. Roles belong to the whole cluster, hence the guard.
do $$
begin
  if not exists (select from pg_catalog.pg_roles as role where role.rolname = 'crawl_worker') then
    create role crawl_worker nologin noinherit;
  end if;
end
$$;

grant crawl_worker to authenticator;
grant usage on schema public to crawl_worker;

create type public.crawl_job_status as enum (
  'pending',     -- waits for a worker
  'processing',  -- pending -> processing: a worker holds its lease
  'paused',      -- pending, processing -> paused: by a user
  'completed',   -- processing -> completed: the frontier has drained
  'failed',      -- processing -> failed: no retries left
  'stopped',     -- ended early by a user, results kept
  'cancelled'    -- ended by a user; it cannot be resumed
);

-- Why a pending job is not in line.
create type public.crawl_job_wait as enum (
  'time',   -- run_after is in the future
  'host',   -- its host is at its limit of running jobs
  'owner'   -- its owner is at their limit of running jobs
);

create type public.crawl_task_status as enum (
  'pending',
  'in_progress',
  'done',
  'error',
  'skipped'
);

-- Who changed a job.
create type public.crawl_actor as enum (
  'user',
  'worker',
  'system',
  'operator'
);

-- What a call about a lease returns.
create type public.crawl_command as (
  lease_token uuid,
  job_id uuid,
  command text,  -- continue | pause | stop | cancel | lost
  status public.crawl_job_status
);

-- Settings

create table public.crawl_settings (
  id boolean primary key default true,
  heartbeat_every_seconds integer not null default 10,
  stale_after_seconds integer not null default 120,
  default_max_retries integer not null default 3,
  backoff_base_seconds integer not null default 15,
  backoff_cap_seconds integer not null default 900,
  max_jobs_per_host smallint not null default 1,
  max_open_jobs_per_user integer default 1000,
  max_jobs_per_user_per_day integer default 10000,
  max_running_jobs_per_user integer,
  max_user_priority integer not null default 10,
  plugin_kinds text[] not null default '{}',
  keep_ended_jobs_days integer not null default 30,
  keep_old_page_versions_days integer not null default 90,
  constraint crawl_settings_is_one_row check (id),
  constraint crawl_settings_heartbeat_fits_lease
    check (heartbeat_every_seconds > 0 and stale_after_seconds >= 3 * heartbeat_every_seconds),
  constraint crawl_settings_backoff_is_ordered
    check (backoff_base_seconds > 0 and backoff_cap_seconds >= backoff_base_seconds),
  constraint crawl_settings_limits_are_positive check (
    default_max_retries between 0 and 100
    and max_jobs_per_host between 1 and 100
    and max_open_jobs_per_user > 0
    and max_jobs_per_user_per_day > 0
    and max_running_jobs_per_user > 0
    and max_user_priority between -100 and 100
    and keep_ended_jobs_days > 0
    and keep_old_page_versions_days > 0
  )
);
alter table public.crawl_settings enable row level security;

comment on table public.crawl_settings is
  'The settings of the queue: a single row. A limit of null means no limit.';

create policy "Signed-in users read the settings"
  on public.crawl_settings
  for select
  to authenticated
  using ((select auth.uid()) is not null);

revoke all on public.crawl_settings from anon, authenticated, service_role;
grant select on public.crawl_settings to authenticated;
grant select, update on public.crawl_settings to service_role;

insert into public.crawl_settings default values;

-- Jobs

-- UUID version 7, which PostgreSQL 17 has no function for. An id starts with its time, so jobs
-- of the same hour are neighbours in every index, and claims dirty a few index pages instead
-- of random ones.
create function silkline.new_id()
  returns uuid
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_bytes bytea := overlay(
    uuid_send(gen_random_uuid())
    placing substring(int8send((extract(epoch from now()) * 1000)::bigint) from 3)
    from 1
  );
begin
  return encode(set_byte(v_bytes, 6, get_byte(v_bytes, 6) & 15 | 112), 'hex')::uuid;
end
$$;

comment on function silkline.new_id() is
  'A new UUID version 7: random, and sorted by time.';

revoke execute on function silkline.new_id() from public, anon, authenticated;

-- The rules for a row are in a trigger, silkline.check_job, instead of CHECK constraints:
-- Postgres parses a table's CHECKs again for each UPDATE statement, and fifteen of them took
-- 110 of the 200 microseconds of a claim's UPDATE. The trigger takes 5 to 20.
create table public.crawl_jobs (
  id uuid primary key default silkline.new_id(),
  user_id uuid references auth.users (id) on delete cascade,
  kind text not null,
  payload jsonb not null,
  priority smallint not null default 0,
  source_id text not null,
  host text not null,
  idempotency_key text,
  status public.crawl_job_status not null default 'pending',
  waits_for public.crawl_job_wait,
  place bigint not null,
  run_after timestamptz not null default now(),
  worker_id uuid,
  lease_token uuid,
  lease_check_at timestamptz,
  host_slot smallint,
  last_heartbeat timestamptz,
  attempt integer not null default 0,
  retry_count integer not null default 0,
  max_retries integer not null default 3,
  event_seq integer not null default 1,
  running_seconds real not null default 0,
  progress_percentage smallint not null default 0,
  error_code text,
  error_message text,
  result jsonb,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  completed_at timestamptz
)
-- Each page has room for two versions of every row, so a heartbeat of all rows at once is a
-- HOT update and touches no index.
with (
  fillfactor = 40,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 500,
  autovacuum_analyze_scale_factor = 0.05
);
alter table public.crawl_jobs enable row level security;

comment on table public.crawl_jobs is
  'One row per job.';
comment on column public.crawl_jobs.user_id is
  'The owner, or null for a job of the service itself.';
comment on column public.crawl_jobs.place is
  'Sort key of the claim: the band of its priority, then the turn of its owner. Lowest first.';
comment on column public.crawl_jobs.lease_check_at is
  'When the reaper next checks this lease; null when no worker holds the job.';
comment on column public.crawl_jobs.running_seconds is
  'How long workers have run it, as reported at the end of each lease; limited by max_seconds.';
comment on column public.crawl_jobs.host_slot is
  'Which of the host''s slots this job occupies while it is leased.';

-- Exactly the WHERE and ORDER BY of the claim.
create index crawl_jobs_in_line on public.crawl_jobs (kind, place)
  where status = 'pending' and waits_for is null;
create index crawl_jobs_turns_of_owner
  on public.crawl_jobs (coalesce(user_id, '00000000-0000-0000-0000-000000000000'::uuid), place)
  where status = 'pending' and waits_for is null;
create index crawl_jobs_waiting_for_time on public.crawl_jobs (run_after)
  where status = 'pending' and waits_for = 'time';
create index crawl_jobs_waiting_for_host on public.crawl_jobs (host, place)
  where status = 'pending' and waits_for = 'host';
create index crawl_jobs_waiting_for_owner on public.crawl_jobs (user_id, place)
  where status = 'pending' and waits_for = 'owner';
create index crawl_jobs_open_of_owner on public.crawl_jobs (user_id, status)
  where status in ('pending', 'processing', 'paused');
create index crawl_jobs_leases_to_check on public.crawl_jobs (lease_check_at)
  where lease_check_at is not null;
create index crawl_jobs_of_owner on public.crawl_jobs (user_id, created_at desc);
create index crawl_jobs_ended on public.crawl_jobs (completed_at)
  where completed_at is not null;
create unique index crawl_jobs_lease_token_is_unique on public.crawl_jobs (lease_token)
  where lease_token is not null;
create unique index crawl_jobs_host_slot_is_held_once on public.crawl_jobs (host, host_slot)
  where host_slot is not null;
create unique index crawl_jobs_idempotency_key_is_unique
  on public.crawl_jobs (
    coalesce(user_id, '00000000-0000-0000-0000-000000000000'::uuid),
    idempotency_key
  )
  where idempotency_key is not null;

create policy "Users read their own jobs"
  on public.crawl_jobs
  for select
  to authenticated
  using (user_id = (select auth.uid()));

revoke all on public.crawl_jobs from anon, authenticated, service_role;
grant select on public.crawl_jobs to authenticated, service_role;

create table public.crawl_events (
  job_id uuid not null,
  seq integer not null,
  at timestamptz not null default now(),
  from_status public.crawl_job_status,
  to_status public.crawl_job_status not null,
  actor public.crawl_actor not null,
  actor_id uuid,
  reason text not null,
  attempt integer not null,
  error_code text,
  primary key (job_id, seq)
);
alter table public.crawl_events enable row level security;

comment on table public.crawl_events is
  'Append-only history of every job, written by triggers: from, to, who, why.';

create policy "Users read the history of their own jobs"
  on public.crawl_events
  for select
  to authenticated
  using (
    exists (
      select
      from public.crawl_jobs as job
      where job.id = job_id
        and job.user_id = (select auth.uid())
    )
  );

revoke all on public.crawl_events from anon, authenticated, service_role;
grant select on public.crawl_events to authenticated, service_role;

create table public.crawl_workers (
  id uuid primary key,
  hostname text not null,
  version text not null,
  slots integer not null,
  busy_slots integer not null,
  kinds text[] not null,
  started_at timestamptz not null default now(),
  last_seen_at timestamptz not null default now(),
  constraint crawl_workers_slots_are_not_negative check (least(slots, busy_slots) >= 0)
)
with (fillfactor = 50);
alter table public.crawl_workers enable row level security;

comment on table public.crawl_workers is
  'The workers. list_crawl_workers() says which are live, late or lost, by database time.';

create policy "Only the service reads workers"
  on public.crawl_workers
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on public.crawl_workers from anon, authenticated, service_role;
grant select on public.crawl_workers to service_role;

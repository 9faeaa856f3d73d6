-- The private schema, the roles, the types of the API, the locks and the settings.
--
-- Reading order of the migrations; each uses only earlier ones:
--   schema              this file
--   jobs                the jobs, what remembers deleted ones, and the workers
--   frontier            states, tasks, pages, hosts, audits
--   state_machine       the rules for a row of jobs, and its state machine
--   history             events and live messages of every change of status
--   line                the order in which pending jobs are claimed
--   tasks               copies of pages, and the URLs of a lease that ends
--   lease_input         checks of what a worker sends about its leases
--   leases              lock_lease and end_lease; complete, fail, release, reap
--   claim               the map of all worker functions, and the first of them
--   access              who is calling, which jobs are theirs, and their quotas
--   progress            the progress of one job
--   checkpoint_input    checks and stores the parts of a checkpoint
--   checkpoint_output   picks the next URLs, and reads what the crawl asked for
--   checkpoint          pages, finished and found URLs in; the next URLs out
--   payload             the options of a job, and the check of payloads against them
--   enqueue             one job, or thousands
--   job_control         pause, resume, stop, cancel, retry
--   stats               pending work, statistics, workers
--   explain             "why is it not running?"
--   results             the pages of a job
--   deletion            retention, and the rows of deleted jobs and accounts
--   maintenance         overlooked jobs, and the schedule in pg_cron
--   doctor              health checks
--   realtime            who may receive live messages
--   heartbeat           renews leases, returns the users' commands
--   bulk                pause, resume, stop, cancel, retry all jobs that match a filter
--
-- Schema public is the API: functions, and views or tables with row level security. Older projects
-- grant everything in it by default, newer ones nothing, so everything here first revokes, then
-- grants what it needs. Schema silkline is private: it is not exposed over HTTP. It holds the
-- tables behind the views, which have columns that are nobody's business (lease tokens, places in
-- line), and the functions that the API functions share.
--
-- Lock order, everywhere: job rows, then states, tasks, pages and hosts, then the advisory locks
-- of hosts and of owners, each in sorted order. A claim and the reaper never wait for a job row or
-- for one of these advisory locks: they skip what is locked.

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

-- A claimed job, for the worker that leases it.
create type public.crawl_lease as (
  lease_token uuid,
  id uuid,
  user_id uuid,
  kind text,
  payload jsonb,
  priority smallint,
  source_id text,
  host text,
  status public.crawl_job_status,
  attempt integer,
  retry_count integer,
  max_retries integer,
  running_seconds real,
  created_at timestamptz,
  started_at timestamptz
);

-- Advisory locks, held until the end of the transaction. The kinds are worker, host, owner,
-- enqueue, source and reaper. A hash collision costs a short wait and nothing else.

create function silkline.try_lock(p_kind text, p_name text)
  returns boolean
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return pg_try_advisory_xact_lock(hashtextextended(p_name, hashtext(p_kind)));
end
$$;

comment on function silkline.try_lock(text, text) is
  'Take an advisory lock without waiting; returns whether it was free.';

revoke execute on function silkline.try_lock(text, text) from public, anon, authenticated;

create function silkline.lock(p_kind text, p_name text)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  perform pg_advisory_xact_lock(hashtextextended(p_name, hashtext(p_kind)));
end
$$;

comment on function silkline.lock(text, text) is
  'Take an advisory lock; waits until it is free.';

revoke execute on function silkline.lock(text, text) from public, anon, authenticated;

-- Settings

create table public.crawl_settings (
  id boolean primary key default true,
  heartbeat_every_seconds integer not null default 10,
  stale_after_seconds integer not null default 120,
  default_max_retries integer not null default 3,
  backoff_base_seconds integer not null default 15,
  backoff_cap_seconds integer not null default 900,
  max_jobs_per_host smallint not null default 1,
  max_lists_per_user smallint not null default 1,
  max_open_jobs_per_user integer default 1000,
  max_jobs_per_user_per_day integer default 10000,
  max_running_jobs_per_user integer,
  max_user_priority integer not null default 0,
  max_user_concurrency integer,
  min_user_delay_seconds real,
  max_user_pages integer,
  max_user_page_bytes integer,
  max_user_seconds integer,
  user_fetchers text[],
  user_agents text[],
  users_may_ignore_robots boolean not null default true,
  allowed_user_hosts text[],
  denied_user_hosts text[] not null default '{}',
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
    and max_lists_per_user between 1 and 100
    and max_open_jobs_per_user > 0
    and max_jobs_per_user_per_day > 0
    and max_running_jobs_per_user > 0
    and max_user_priority between -100 and 100
    and keep_ended_jobs_days > 0
    and keep_old_page_versions_days > 0
  ),
  constraint crawl_settings_user_limits_can_be_met check (
    max_user_concurrency >= 1
    and min_user_delay_seconds between 0 and 60
    and max_user_pages >= 1
    and max_user_page_bytes >= 1024
    and max_user_seconds >= 1
  ),
  constraint crawl_settings_lists_have_no_nulls check (
    array_position(plugin_kinds, null) is null
    and array_position(user_fetchers, null) is null
    and array_position(user_agents, null) is null
    and array_position(allowed_user_hosts, null) is null
    and array_position(denied_user_hosts, null) is null
  )
);
alter table public.crawl_settings enable row level security;

comment on table public.crawl_settings is
  'The settings of the queue: a single row. A limit or list of null means no limit.';
comment on column public.crawl_settings.max_user_priority is
  'A user''s priority above this orders only that user''s own jobs.';
comment on column public.crawl_settings.max_lists_per_user is
  'How many lists of URLs on several hosts an owner may run at a time.';
comment on column public.crawl_settings.allowed_user_hosts is
  'Users may crawl only these hosts and their subdomains.';

create policy "Signed-in users read the settings"
  on public.crawl_settings
  for select
  to authenticated
  using ((select auth.uid()) is not null);

revoke all on public.crawl_settings from anon, authenticated, service_role;
grant select on public.crawl_settings to authenticated;
grant select, update on public.crawl_settings to service_role;

insert into public.crawl_settings default values;

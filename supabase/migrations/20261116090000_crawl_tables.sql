-- The tables of the queue, and what is true of every row at rest.
--
-- Reading order of the migrations:
--   crawl_tables            this file: tables, rules that hold for each row, who may read
--   crawl_line              the state machine, and how a job gets its place in the line
--   crawl_worker_functions  claim, heartbeat, complete, fail, release, reap
--   crawl_checkpoint        pages, finished and found URLs in; the next URLs out
--   crawl_payload           what a job may ask for
--   crawl_user_functions    enqueue, pause, resume, stop, cancel, retry
--   crawl_read_functions    progress, pending work, statistics, "why is it not running?"
--   crawl_live              history and Realtime messages
--   crawl_maintenance       retention, doctor, pg_cron
--
-- Schema public is the API. Older projects grant everything in it by default, newer ones
-- nothing: every table and function here revokes first and grants what is meant. Schema silkline is private: it is not exposed over HTTP, and
-- holds what the API functions share.
--
-- Lock order, everywhere: job row, then state, then tasks, then pages, then hosts.
-- Advisory locks on a host or an owner are taken by claims without waiting, and by the
-- end of a lease after the job row.

create schema silkline;

comment on schema silkline is
  'Private parts of the crawl queue. Not exposed over the API.';

revoke all on schema silkline from public;
grant usage on schema silkline to authenticated, service_role;

-- A key for a machine that is trusted less than the service key: it may execute the
-- worker functions and touch no table. Roles are shared by a cluster, hence the guard.
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
  'paused',      -- pending, processing -> paused: a user's word
  'completed',   -- processing -> completed: the frontier drained by itself
  'failed',      -- processing -> failed: no retries left
  'stopped',     -- ended early by a user, results kept
  'cancelled'    -- ended by a user, for good
);

-- Why a pending job is not in the line.
create type public.crawl_job_wait as enum (
  'time',   -- run_after lies ahead
  'host',   -- its host is being crawled
  'owner'   -- its owner runs as many jobs as allowed
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

-- What a lease call answers.
create type public.crawl_command as (
  lease_token uuid,
  job_id uuid,
  command text,  -- continue | pause | stop | cancel | lost
  status public.crawl_job_status
);

-- One row of settings for the whole queue

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
  'The settings of the queue, one row. A limit of null means no limit.';

create policy "Signed-in users read the limits that bind them"
  on public.crawl_settings
  for select
  to authenticated
  using ((select auth.uid()) is not null);

revoke all on public.crawl_settings from anon, authenticated, service_role;
grant select on public.crawl_settings to authenticated;
grant select, update on public.crawl_settings to service_role;

insert into public.crawl_settings default values;

-- Jobs

-- The rules for a row are in silkline.check_job, a trigger, and not CHECK constraints:
-- Postgres parses the CHECKs of a table anew for each UPDATE statement, and fifteen of
-- them took 110 of the 200 microseconds of a claim's UPDATE. The trigger takes 5.
create table public.crawl_jobs (
  id uuid primary key default gen_random_uuid(),
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
  progress_percentage smallint not null default 0,
  error_code text,
  error_message text,
  result jsonb,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  completed_at timestamptz
)
-- Room on each page for every row twice, so that a heartbeat of all of them at once is a
-- HOT update: it touches no index.
with (
  fillfactor = 40,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 500,
  autovacuum_analyze_scale_factor = 0.05
);
alter table public.crawl_jobs enable row level security;

comment on table public.crawl_jobs is
  'One row per crawl or audit that somebody asked for.';
comment on column public.crawl_jobs.user_id is
  'The owner; null for jobs of the service itself.';
comment on column public.crawl_jobs.place is
  'Place in the line: the band of its priority, then the turn of its owner. Lower runs first.';
comment on column public.crawl_jobs.lease_check_at is
  'When the reaper looks at this lease next; null when no worker holds the job.';
comment on column public.crawl_jobs.host_slot is
  'Which of the host''s places this job occupies while it is leased.';

-- The line itself: exactly the WHERE and ORDER BY of the claim.
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
  on public.crawl_jobs (coalesce(user_id, '00000000-0000-0000-0000-000000000000'::uuid), idempotency_key)
  where idempotency_key is not null;

create policy "Users read their own jobs"
  on public.crawl_jobs
  for select
  to authenticated
  using (user_id = (select auth.uid()));

revoke all on public.crawl_jobs from anon, authenticated, service_role;
grant select on public.crawl_jobs to authenticated, service_role;

-- State of a crawl: the frontier's counters, 1:1 with the job

create table public.crawl_states (
  job_id uuid primary key references public.crawl_jobs (id) on delete cascade,
  total_pending integer not null default 0,
  total_in_progress integer not null default 0,
  total_done integer not null default 0,
  total_error integer not null default 0,
  total_skipped integer not null default 0,
  total_bytes bigint not null default 0,
  pages_new integer not null default 0,
  pages_changed integer not null default 0,
  pages_unchanged integer not null default 0,
  pages_spent integer not null default 0,
  pages_per_second real not null default 0,
  current_url text,
  seq integer not null default 0,
  batch_token uuid,
  batch_seq integer not null default 0,
  checkpoint_at timestamptz,
  constraint crawl_states_counts_are_not_negative check (
    least(
      total_pending,
      total_in_progress,
      total_done,
      total_error,
      total_skipped,
      total_bytes,
      pages_spent
    ) >= 0
  )
)
with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
alter table public.crawl_states enable row level security;

comment on table public.crawl_states is
  'Counters of each job''s frontier, kept in the transactions that change it.';
comment on column public.crawl_states.pages_spent is
  'URLs handed out for a first fetch: what counts against max_pages.';
comment on column public.crawl_states.seq is
  'Number of checkpoints over the life of the job; live progress carries it.';

create policy "Users read the state of their own jobs"
  on public.crawl_states
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

revoke all on public.crawl_states from anon, authenticated, service_role;
grant select on public.crawl_states to authenticated, service_role;

-- The frontier

-- No foreign key to crawl_jobs: tasks are written only under the lock of their job, the
-- check would run for each of thousands of links, and tg_crawl_jobs_forget deletes them.
create table public.crawl_tasks (
  job_id uuid not null,
  url_key uuid not null,
  url text not null,
  depth smallint not null,
  status public.crawl_task_status not null default 'pending',
  skip_reason text,
  attempts smallint not null default 0,
  crashes smallint not null default 0,
  http_status smallint,
  lease_seq integer,
  next_run_at timestamptz not null default now(),
  lease_token uuid,
  found_on uuid,
  page_id bigint,
  last_error text,
  finished_at timestamptz,
  primary key (job_id, url_key),
  constraint crawl_tasks_url_is_short check (length(url) between 1 and 4096),
  constraint crawl_tasks_depth_is_in_range check (depth between 0 and 1000),
  constraint crawl_tasks_lease_fits_status
    check ((status = 'in_progress') = (lease_token is not null)),
  constraint crawl_tasks_error_is_told check (status <> 'error' or last_error is not null),
  constraint crawl_tasks_skip_reason_is_known check (
    (status = 'skipped') = (skip_reason is not null)
    and skip_reason in (
      'robots',
      'out_of_scope',
      'excluded',
      'too_deep',
      'budget',
      'content_type',
      'too_large',
      'redirect',
      'canonical',
      'duplicate',
      'noindex',
      'nofollow',
      'trap',
      'invalid_url',
      'forbidden_address',
      'host_unavailable'
    )
  )
)
with (
  fillfactor = 90,
  autovacuum_vacuum_scale_factor = 0.05,
  autovacuum_vacuum_insert_scale_factor = 0.1
);
alter table public.crawl_tasks enable row level security;

comment on table public.crawl_tasks is
  'The frontier: one row per URL of a job, each ending in one state with a reason.';
comment on column public.crawl_tasks.url_key is
  'A 16-byte hash of the canonical URL; the uuid type is its cheapest container.';
comment on column public.crawl_tasks.crashes is
  'How often a process died with this URL in flight. 1 = leased alone, 2 = poison.';
comment on column public.crawl_tasks.found_on is
  'url_key of the page that linked here first.';

create index crawl_tasks_to_lease on public.crawl_tasks (job_id, next_run_at)
  where status = 'pending' and crashes = 0;
create index crawl_tasks_suspect on public.crawl_tasks (job_id, next_run_at)
  where status = 'pending' and crashes > 0;
create index crawl_tasks_leased on public.crawl_tasks (job_id)
  where status = 'in_progress';
create index crawl_tasks_failed on public.crawl_tasks (job_id)
  where status = 'error';

create policy "Users read the URLs of their own jobs"
  on public.crawl_tasks
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

revoke all on public.crawl_tasks from anon, authenticated, service_role;
grant select on public.crawl_tasks to authenticated, service_role;

-- Pages, versioned

-- Pages outlive the job that found them: retention forgets jobs, not what they brought home.
create table public.crawl_pages (
  id bigint generated always as identity primary key,
  user_id uuid references auth.users (id) on delete cascade,
  source_id text not null,
  url_key uuid not null,
  url text not null,
  version integer not null,
  is_latest boolean not null default true,
  job_id uuid not null,
  http_status smallint,
  content_hash text not null,
  title text,
  markdown text,
  links jsonb not null default '[]',
  metadata jsonb not null default '{}',
  etag text,
  last_modified text,
  extractor text,
  extractor_version text,
  first_seen_at timestamptz not null default now(),
  last_seen_at timestamptz not null default now(),
  constraint crawl_pages_version_is_positive check (version > 0),
  constraint crawl_pages_links_are_a_list check (jsonb_typeof(links) = 'array'),
  constraint crawl_pages_metadata_is_an_object check (jsonb_typeof(metadata) = 'object')
)
with (fillfactor = 90);
alter table public.crawl_pages enable row level security;

comment on table public.crawl_pages is
  'What crawls brought home, one row per version of a page; unchanged pages make no version.';

create unique index crawl_pages_version_is_unique
  on public.crawl_pages (
    coalesce(user_id, '00000000-0000-0000-0000-000000000000'::uuid),
    source_id,
    url_key,
    version
  );
create unique index crawl_pages_latest_is_unique
  on public.crawl_pages (
    coalesce(user_id, '00000000-0000-0000-0000-000000000000'::uuid),
    source_id,
    url_key
  )
  where is_latest;
create index crawl_pages_of_owner on public.crawl_pages (user_id, source_id)
  where is_latest;
create index crawl_pages_outdated on public.crawl_pages (last_seen_at)
  where not is_latest;

create policy "Users read their own pages"
  on public.crawl_pages
  for select
  to authenticated
  using (user_id = (select auth.uid()));

revoke all on public.crawl_pages from anon, authenticated, service_role;
grant select on public.crawl_pages to authenticated, service_role;

-- Hosts, audits, history, workers

create table public.crawl_hosts (
  host text primary key,
  robots_txt text,
  robots_status smallint,
  robots_fetched_at timestamptz,
  crawl_delay_seconds real,
  backoff_until timestamptz,
  error_streak integer not null default 0,
  last_error text,
  updated_at timestamptz not null default now(),
  constraint crawl_hosts_host_is_short check (length(host) between 1 and 300),
  constraint crawl_hosts_robots_txt_is_bounded check (length(robots_txt) <= 524288),
  constraint crawl_hosts_delay_is_in_range check (crawl_delay_seconds between 0 and 3600)
);
alter table public.crawl_hosts enable row level security;

comment on table public.crawl_hosts is
  'What all jobs and users share about a host: robots.txt, crawl delay, backoff.';

create policy "Only the service reads hosts"
  on public.crawl_hosts
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on public.crawl_hosts from anon, authenticated, service_role;
grant select on public.crawl_hosts to service_role;

create table public.crawl_audits (
  job_id uuid primary key references public.crawl_jobs (id) on delete cascade,
  score smallint not null,
  grade text not null,
  categories jsonb not null,
  findings jsonb not null,
  ruleset_version text not null,
  created_at timestamptz not null default now(),
  constraint crawl_audits_score_is_a_percentage check (score between 0 and 100),
  constraint crawl_audits_grade_is_short check (length(grade) between 1 and 10),
  constraint crawl_audits_categories_are_an_object check (jsonb_typeof(categories) = 'object'),
  constraint crawl_audits_findings_are_a_list check (jsonb_typeof(findings) = 'array')
);
alter table public.crawl_audits enable row level security;

comment on table public.crawl_audits is
  'The result of each audit job.';

create policy "Users read their own audits"
  on public.crawl_audits
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

revoke all on public.crawl_audits from anon, authenticated, service_role;
grant select on public.crawl_audits to authenticated, service_role;

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
  'Append-only history of every job, written by trigger: from, to, who, why.';

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
  'The fleet. A worker is live, late or lost by database time: see list_crawl_workers().';

create policy "Only the service reads workers"
  on public.crawl_workers
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on public.crawl_workers from anon, authenticated, service_role;
grant select on public.crawl_workers to service_role;

-- The jobs, what remembers deleted ones, and the workers.

-- UUID version 7 with microseconds, which PostgreSQL 17 has no function for: 48 bits of
-- milliseconds, then 12 bits of the millisecond's fraction. So ids sort by time, jobs of the same
-- hour are neighbours in every index, and claims dirty a few index pages instead of random ones.
create function silkline.new_id()
  returns uuid
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_microseconds constant bigint := (extract(epoch from now()) * 1000000)::bigint;
begin
  return encode(
    overlay(
      uuid_send(gen_random_uuid())
      placing substring(
        int8send(
          v_microseconds / 1000 << 16 | 28672 | (v_microseconds % 1000 * 4096 / 1000)
        )
        from 1
      )
      from 1
    ),
    'hex'
  )::uuid;
end
$$;

comment on function silkline.new_id() is
  'A new UUID version 7: random, and sorted by time.';

revoke execute on function silkline.new_id() from public, anon, authenticated;

-- The rules for a row are in a trigger, silkline.check_job, instead of CHECK constraints:
-- Postgres parses a table's CHECKs again for each UPDATE statement, and fifteen of them took
-- 110 of the 200 microseconds of a claim's UPDATE. The trigger takes 5 to 20.
create table silkline.jobs (
  id uuid primary key default silkline.new_id(),
  user_id uuid,
  owner_id uuid not null default '00000000-0000-0000-0000-000000000000',
  kind text not null,
  lane text not null default 'crawl',
  payload jsonb not null,
  priority smallint not null default 0,
  source_id text not null,
  host text not null,
  idempotency_key text,
  idempotency_request jsonb,
  status public.crawl_job_status not null default 'pending',
  waits_for public.crawl_job_wait,
  place bigint not null,
  has_lost_turn boolean not null default false,
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
alter table silkline.jobs enable row level security;

comment on table silkline.jobs is
  'One row per job. The view public.crawl_jobs shows it to users.';
comment on column silkline.jobs.user_id is
  'The owner, or null for a job of the service itself. No foreign key: see deleted_accounts.';
comment on column silkline.jobs.owner_id is
  'The owner as a key that is never null; all zeros for the service. Set by check_new_job.';
comment on column silkline.jobs.lane is
  'The workers it needs: those of its kind, or of its kind with a browser. Set by check_new_job.';
comment on column silkline.jobs.idempotency_request is
  'What the caller sent with the idempotency key, to compare with a repeated call.';
comment on column silkline.jobs.place is
  'Sort key of the claim: the band of its priority, then the turn of its owner. Lowest first.';
comment on column silkline.jobs.has_lost_turn is
  'A job that its owner preferred has taken its turn: it takes the owner''s next one.';
comment on column silkline.jobs.lease_check_at is
  'When the reaper next checks this lease; null when no worker holds the job.';
comment on column silkline.jobs.running_seconds is
  'How long workers have run it, as reported at the end of each lease; limited by max_seconds.';
comment on column silkline.jobs.host_slot is
  'Which of the host''s slots this job occupies while it is leased.';

-- Each index costs every update of the row 2 or 3 microseconds, even if its predicate is false.

-- Exactly the WHERE and ORDER BY of the claim. Among equal places the older job is first.
create index jobs_in_line on silkline.jobs (lane, place, id)
  where status = 'pending' and waits_for is null;
-- Jobs that come before others of their owner: see silkline.take_turn.
create index jobs_preferred_by_owner on silkline.jobs (owner_id, lane, priority desc, id)
  where status = 'pending'
    and waits_for is null
    and (priority > 100 - (place >> 40) or has_lost_turn);
create index jobs_open_of_owner on silkline.jobs (owner_id, status, waits_for, lane, place)
  where status in ('pending', 'processing', 'paused') or worker_id is not null;
create index jobs_waiting_for_time on silkline.jobs (run_after)
  where status = 'pending' and waits_for = 'time';
create index jobs_pending_on_host on silkline.jobs (host, waits_for, place, id)
  where status = 'pending';
create index jobs_leases_to_check on silkline.jobs (lease_check_at)
  where lease_check_at is not null;
create index jobs_of_owner on silkline.jobs (owner_id, created_at desc);
create index jobs_ended_early_of_owner on silkline.jobs (owner_id, created_at desc)
  where status in ('failed', 'stopped', 'cancelled');
create index jobs_ended on silkline.jobs (completed_at)
  where completed_at is not null;
create unique index jobs_lease_token_is_unique on silkline.jobs (lease_token)
  where lease_token is not null;
create unique index jobs_host_slot_is_held_once on silkline.jobs (host, host_slot)
  where host_slot is not null;
create unique index jobs_idempotency_key_is_unique on silkline.jobs (owner_id, idempotency_key)
  where idempotency_key is not null;

-- Plans for the jobs of an owner must suit one who has five as well as one who has a third of all
-- jobs. At the true average, a read of ten jobs scans the table until it has found them.
alter table silkline.jobs alter column owner_id set (n_distinct = -0.001);

-- Deleted jobs and accounts

-- A deleted job is gone at once; its other rows are swept later, in slices: silkline.sweep_deleted.
create table silkline.deleted_jobs (
  job_id uuid primary key,
  deleted_at timestamptz not null default now()
);
alter table silkline.deleted_jobs enable row level security;

comment on table silkline.deleted_jobs is
  'Deleted jobs whose states, tasks, events and audits are yet to be swept.';

create policy "Only the service reads deleted jobs"
  on silkline.deleted_jobs
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on silkline.deleted_jobs from anon, authenticated, service_role;
grant select on silkline.deleted_jobs to service_role;

-- A deleted account: nothing of it is visible or claimed from this moment; its jobs and pages are
-- swept later. Foreign keys to auth.users would make the deletion take as long as its rows, and
-- would make checkpoints wait for it.
create table silkline.deleted_accounts (
  owner_id uuid primary key,
  deleted_at timestamptz not null default now()
);
alter table silkline.deleted_accounts enable row level security;

comment on table silkline.deleted_accounts is
  'Deleted accounts, until their jobs and pages are swept and their JWTs have expired.';

create policy "Only the service reads deleted accounts"
  on silkline.deleted_accounts
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on silkline.deleted_accounts from anon, authenticated, service_role;
grant select on silkline.deleted_accounts to service_role;

-- Tokens that no job has any more: their lease was ended by someone else, or their receipt was
-- overwritten by the next lease. A repeated claim with one of them takes no job.
create table silkline.spent_tokens (
  lease_token uuid primary key,
  spent_at timestamptz not null default now()
);
alter table silkline.spent_tokens enable row level security;

comment on table silkline.spent_tokens is
  'Lease tokens that have been used and are on no job; kept for a day.';

create policy "Only the service reads spent tokens"
  on silkline.spent_tokens
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on silkline.spent_tokens from anon, authenticated, service_role;
grant select on silkline.spent_tokens to service_role;

-- definer because Auth deletes users with its own role
create function silkline.remember_deleted_account()
  returns trigger
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
begin
  insert into silkline.deleted_accounts (owner_id)
  values (old.id)
  on conflict do nothing;
  return null;
end
$$;

comment on function silkline.remember_deleted_account() is
  'Trigger: hide the jobs and pages of a deleted account, and have them swept.';

revoke execute on function silkline.remember_deleted_account() from public, anon, authenticated;

create trigger tg_silkline_remember_deleted_account
  after delete on auth.users
  for each row
  execute function silkline.remember_deleted_account();

-- The signed-in user, or null if the account has been deleted: its JWT is valid for a while.
-- definer because users may not read deleted_accounts
create function silkline.caller_id()
  returns uuid
  language plpgsql
  stable
  security definer
  set search_path = ''
as $$
declare
  v_caller_id constant uuid := auth.uid();
begin
  if exists (
    select
    from silkline.deleted_accounts as account
    where account.owner_id = v_caller_id
  ) then
    return null;
  end if;

  return v_caller_id;
end
$$;

comment on function silkline.caller_id() is
  'The signed-in user, if the account exists.';

revoke execute on function silkline.caller_id() from public, anon, authenticated;
grant execute on function silkline.caller_id() to authenticated, service_role;

create policy "Users read their own jobs"
  on silkline.jobs
  for select
  to authenticated
  using (owner_id = (select silkline.caller_id()));

create view public.crawl_jobs
  with (security_invoker = true)
as
select
  job.id,
  job.user_id,
  job.kind,
  job.payload,
  job.priority,
  job.source_id,
  job.host,
  job.idempotency_key,
  job.status,
  job.waits_for,
  job.run_after,
  job.worker_id,
  job.last_heartbeat,
  job.attempt,
  job.retry_count,
  job.max_retries,
  job.event_seq,
  job.running_seconds,
  job.progress_percentage,
  job.error_code,
  job.error_message,
  job.result,
  job.created_at,
  job.started_at,
  job.completed_at
from silkline.jobs as job;

comment on view public.crawl_jobs is
  'One row per job.';

revoke all on public.crawl_jobs from anon, authenticated, service_role;
grant select on public.crawl_jobs to authenticated, service_role;
revoke all on silkline.jobs from anon, authenticated, service_role;
grant select (
  id,
  user_id,
  owner_id,
  kind,
  payload,
  priority,
  source_id,
  host,
  idempotency_key,
  status,
  waits_for,
  run_after,
  worker_id,
  last_heartbeat,
  lease_check_at,
  attempt,
  retry_count,
  max_retries,
  event_seq,
  running_seconds,
  progress_percentage,
  error_code,
  error_message,
  result,
  created_at,
  started_at,
  completed_at
) on silkline.jobs to authenticated, service_role;

-- Workers

create table public.crawl_workers (
  id uuid primary key,
  hostname text not null,
  version text not null,
  slots integer not null,
  busy_slots integer not null,
  kinds text[] not null,
  can_render boolean not null default true,
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

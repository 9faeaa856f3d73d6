-- What the other files share: users, jobs and leases by name, calls as a role, and a
-- fingerprint that changes when any row is written.
--
-- No transaction around the definitions: they stay in the database for the other files.
-- Names stand for ids everywhere: tests.user_id('ann'), tests.job('first'),
-- tests.token('first').

create extension if not exists pgtap with schema extensions;

create schema if not exists tests;
grant usage on schema tests to anon, authenticated, service_role, crawl_worker;

create or replace function tests.user_id(p_name text)
  returns uuid
  language sql
  immutable
  set search_path = ''
as $$
  select md5('user ' || p_name)::uuid;
$$;

create or replace function tests.worker_id(p_name text default 'worker')
  returns uuid
  language sql
  immutable
  set search_path = ''
as $$
  select md5('worker ' || p_name)::uuid;
$$;

create or replace function tests.token(p_name text)
  returns uuid
  language sql
  immutable
  set search_path = ''
as $$
  select md5('token ' || p_name)::uuid;
$$;

create or replace function tests.url_key(p_url text)
  returns uuid
  language sql
  immutable
  set search_path = ''
as $$
  select md5(p_url)::uuid;
$$;

-- Sign users up.
create or replace function tests.make_users(variadic p_names text[])
  returns void
  language sql
  volatile
  set search_path = ''
as $$
  insert into auth.users (id, email)
  select tests.user_id(name), name || '@example.com'
  from unnest(p_names) as name;
$$;

-- The id of a job that tests.enqueue created: its name is its idempotency key.
-- definer because names are also resolved for roles that must not see the row
create or replace function tests.job(p_name text)
  returns uuid
  language sql
  stable
  security definer
  set search_path = ''
as $$
  select job.id
  from silkline.jobs as job
  where job.idempotency_key = p_name;
$$;

create or replace function tests.status(p_name text)
  returns text
  language sql
  stable
  set search_path = ''
as $$
  select job.status::text
  from silkline.jobs as job
  where job.idempotency_key = p_name;
$$;

-- Run a query as a role with the claims of a user, and return its rows; a single column
-- comes without its name. Errors are passed on.
create or replace function tests.run_as(p_role text, p_user_id uuid, p_query text)
  returns setof jsonb
  language plpgsql
  volatile
  set search_path = ''
as $$
declare
  v_role constant text := current_setting('role');
  v_claims constant text := coalesce(current_setting('request.jwt.claims', true), '');
begin
  perform tests.become(p_role, p_user_id);
  return query execute
    'select case
       when (select count(*) from jsonb_object_keys(to_jsonb(answer))) = 1
         then (select value from jsonb_each(to_jsonb(answer)))
       else to_jsonb(answer)
     end
     from (' || p_query || ') as answer';
  perform set_config('role', v_role, true);
  perform set_config('request.jwt.claims', v_claims, true);
end
$$;

-- The same for a statement that returns no rows, such as a write to a table.
create or replace function tests.write_as(p_role text, p_user_id uuid, p_statement text)
  returns void
  language plpgsql
  volatile
  set search_path = ''
as $$
declare
  v_role constant text := current_setting('role');
  v_claims constant text := coalesce(current_setting('request.jwt.claims', true), '');
begin
  perform tests.become(p_role, p_user_id);
  execute p_statement;
  perform set_config('role', v_role, true);
  perform set_config('request.jwt.claims', v_claims, true);
end
$$;

-- Switch to a role until the caller switches back. The role that created crawl_worker is not
-- automatically a member of it; the rollback removes the grant.
create or replace function tests.become(p_role text, p_user_id uuid)
  returns void
  language plpgsql
  volatile
  set search_path = ''
as $$
begin
  perform set_config(
    'request.jwt.claims',
    jsonb_strip_nulls(jsonb_build_object('role', p_role, 'sub', p_user_id))::text,
    true
  );
  begin
    perform set_config('role', p_role, true);
  exception
    when insufficient_privilege then
      grant crawl_worker to current_user;
      perform set_config('role', p_role, true);
  end;
end
$$;

create or replace function tests.as_user(p_name text, p_query text)
  returns setof jsonb
  language sql
  volatile
  set search_path = ''
as $$
  select tests.run_as('authenticated', tests.user_id(p_name), p_query);
$$;

create or replace function tests.as_anon(p_query text)
  returns setof jsonb
  language sql
  volatile
  set search_path = ''
as $$
  select tests.run_as('anon', null, p_query);
$$;

create or replace function tests.as_service(p_query text)
  returns setof jsonb
  language sql
  volatile
  set search_path = ''
as $$
  select tests.run_as('service_role', null, p_query);
$$;

create or replace function tests.as_worker(p_query text)
  returns setof jsonb
  language sql
  volatile
  set search_path = ''
as $$
  select tests.run_as('crawl_worker', null, p_query);
$$;

-- Enqueue a job as its owner, through the public function; without an owner, as the service.
-- Each job has its own host unless its payload has a URL.
create or replace function tests.enqueue(
  p_name text,
  p_owner text default null,
  p_payload jsonb default '{}',
  p_kind text default 'crawl',
  p_priority integer default 0,
  p_run_after timestamptz default null
)
  returns uuid
  language plpgsql
  volatile
  set search_path = ''
as $$
begin
  perform tests.run_as(
    case when p_owner is null then 'service_role' else 'authenticated' end,
    tests.user_id(p_owner),
    format(
      'select id
       from public.enqueue_crawl_job(
         p_payload => %L,
         p_kind => %L,
         p_priority => %L,
         p_idempotency_key => %L,
         p_run_after => %L
       )',
      jsonb_build_object('url', 'https://' || p_name || '.example/') || p_payload,
      p_kind,
      p_priority,
      p_name,
      p_run_after
    )
  );
  return tests.job(p_name);
end
$$;

-- Claim the first job in line with the token of this name; it has to be this job.
create or replace function tests.claim(p_name text, p_worker text default 'worker')
  returns uuid
  language plpgsql
  volatile
  set search_path = ''
as $$
declare
  v_id uuid;
begin
  select job.id
  into v_id
  from public.claim_crawl_jobs(tests.worker_id(p_worker), array[tests.token(p_name)]) as job;

  if v_id is distinct from tests.job(p_name) then
    raise exception 'claimed %, not %: enqueue and claim % before others', v_id, tests.job(p_name), p_name;
  end if;
  return v_id;
end
$$;

-- A job that a worker holds.
create or replace function tests.claimed_job(
  p_name text,
  p_owner text default null,
  p_payload jsonb default '{}',
  p_worker text default 'worker'
)
  returns uuid
  language plpgsql
  volatile
  set search_path = ''
as $$
begin
  perform tests.enqueue(p_name, p_owner, p_payload);
  return tests.claim(p_name, p_worker);
end
$$;

-- The checkpoint of a claimed job.
create or replace function tests.checkpoint(p_name text, p_batch jsonb, p_want integer default 0)
  returns jsonb
  language sql
  volatile
  set search_path = ''
as $$
  select public.checkpoint_crawl_job(tests.token(p_name), p_batch, p_want);
$$;

-- The entries of `discovered` for some URLs.
create or replace function tests.links(variadic p_urls text[])
  returns jsonb
  language sql
  immutable
  set search_path = ''
as $$
  select jsonb_agg(
    jsonb_build_object('url_key', tests.url_key(url), 'url', url, 'depth', 1)
    order by nth
  )
  from unnest(p_urls) with ordinality as listed (url, nth);
$$;

-- A URL that was fetched, with its page, as an entry of `finished`.
create or replace function tests.fetched(p_url text, p_hash text default 'hash', p_page jsonb default '{}')
  returns jsonb
  language sql
  immutable
  set search_path = ''
as $$
  select jsonb_build_object(
    'url_key', tests.url_key(p_url),
    'status', 'done',
    'http_status', 200,
    'bytes', 100,
    'page', jsonb_build_object('url', p_url, 'content_hash', p_hash, 'http_status', 200) || p_page
  );
$$;

-- Let time pass for one job: now() is constant within a test, so its rows are moved back.
create or replace function tests.age(p_name text, p_interval interval)
  returns void
  language plpgsql
  volatile
  set search_path = ''
as $$
begin
  update silkline.jobs as job
  set
    created_at = job.created_at - p_interval,
    run_after = job.run_after - p_interval,
    started_at = job.started_at - p_interval,
    completed_at = job.completed_at - p_interval,
    last_heartbeat = job.last_heartbeat - p_interval,
    lease_check_at = job.lease_check_at - p_interval
  where job.id = tests.job(p_name);

  update silkline.states as state
  set checkpoint_at = state.checkpoint_at - p_interval
  where state.job_id = tests.job(p_name);

  update silkline.tasks as task
  set
    next_run_at = task.next_run_at - p_interval,
    finished_at = task.finished_at - p_interval
  where task.job_id = tests.job(p_name);
end
$$;

-- Changes when any row of the queue is inserted, deleted or updated, even to the same values:
-- every version of a row has its own ctid.
create or replace function tests.fingerprint()
  returns text
  language sql
  volatile
  set search_path = ''
as $$
  select md5(string_agg(written.row_version, ' ' order by written.row_version))
  from (
    select 'settings ' || ctid || crawl_settings as row_version from public.crawl_settings
    union all
    select 'job ' || ctid || jobs from silkline.jobs
    union all
    select 'state ' || ctid || states from silkline.states
    union all
    select 'task ' || ctid || tasks from silkline.tasks
    union all
    select 'page ' || ctid || crawl_pages from public.crawl_pages
    union all
    select 'host ' || ctid || crawl_hosts from public.crawl_hosts
    union all
    select 'audit ' || ctid || crawl_audits from public.crawl_audits
    union all
    select 'event ' || ctid || events from silkline.events
    union all
    select 'worker ' || ctid || crawl_workers from public.crawl_workers
    union all
    select 'deleted job ' || ctid || deleted_jobs from silkline.deleted_jobs
    union all
    select 'deleted account ' || ctid || deleted_accounts from silkline.deleted_accounts
    union all
    select 'token ' || ctid || spent_tokens from silkline.spent_tokens
    union all
    select 'quota ' || ctid || quota_uses from silkline.quota_uses
  ) as written;
$$;

-- Keep the fingerprint, to compare it with a later one.
create or replace function tests.remember()
  returns void
  language sql
  volatile
  set search_path = ''
as $$
  select set_config('tests.fingerprint', tests.fingerprint(), true);
$$;

create or replace function tests.remembered()
  returns text
  language sql
  stable
  set search_path = ''
as $$
  select current_setting('tests.fingerprint');
$$;

-- Jobs whose counters differ from the rows that they count.
create or replace function tests.wrong_counters()
  returns setof uuid
  language sql
  stable
  set search_path = ''
as $$
  select state.job_id
  from silkline.states as state
  cross join lateral (
    select
      count(*) filter (where task.status = 'pending') as pending,
      count(*) filter (where task.status = 'in_progress') as in_progress,
      count(*) filter (where task.status = 'done') as done,
      count(*) filter (where task.status = 'error') as error,
      count(*) filter (where task.status = 'skipped') as skipped,
      count(*) filter (where page.quality -> 'warnings' <> '[]') as with_warnings
    from silkline.tasks as task
    left join public.crawl_pages as page
      on page.id = task.page_id
      and task.status = 'done'
    where task.job_id = state.job_id
  ) as counted
  cross join lateral (
    select coalesce(jsonb_object_agg(warning.kind, warning.pages), '{}') as by_kind
    from (
      select kind, count(*) as pages
      from silkline.tasks as task
      join public.crawl_pages as page
        on page.id = task.page_id
      cross join lateral jsonb_array_elements_text(page.quality -> 'warnings') as kind
      where task.job_id = state.job_id
        and task.status = 'done'
      group by kind
    ) as warning
  ) as warnings
  where (
    state.total_pending,
    state.total_in_progress,
    state.total_done,
    state.total_error,
    state.total_skipped,
    state.pages_with_warnings,
    state.page_warnings
  ) is distinct from (
    counted.pending,
    counted.in_progress,
    counted.done,
    counted.error,
    counted.skipped,
    counted.with_warnings,
    warnings.by_kind
  );
$$;

-- Tests age rows by hours: below floors that a claim would raise meanwhile.
update silkline.time_floors set noted_at = 'infinity' where id;

begin;
select plan(1);
select has_schema('tests', 'the helpers are installed');
select * from finish();
rollback;

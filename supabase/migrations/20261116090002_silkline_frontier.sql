-- The tables of a crawl: counters, frontier and pages; facts about hosts; results of audits.

-- Counters of the frontier, one row per job

-- A trigger inserts this row with its job (tg_jobs_record_new); it is swept after the job was
-- deleted (silkline.sweep_deleted). A foreign key would check each of thousands of new jobs again.
create table silkline.states (
  job_id uuid primary key,
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
  pages_free integer not null default 0,
  pages_per_second real not null default 0,
  current_url text,
  redirected_starts jsonb not null default '[]',
  links_refused jsonb not null default '{}',
  pages_with_warnings integer not null default 0,
  page_warnings jsonb not null default '{}',
  seq integer not null default 0,
  batch_token uuid,
  batch_seq integer not null default 0,
  checkpoint_at timestamptz,
  progress_sent_at timestamptz,
  constraint states_counts_are_not_negative check (
    least(
      total_pending,
      total_in_progress,
      total_done,
      total_error,
      total_skipped,
      total_bytes,
      pages_spent,
      pages_free,
      pages_with_warnings
    ) >= 0
  ),
  constraint states_redirected_starts_are_a_list
    check (jsonb_typeof(redirected_starts) = 'array')
)
with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
alter table silkline.states enable row level security;

comment on table silkline.states is
  'Counters of each job''s frontier, updated in the transactions that change it.';
comment on column silkline.states.pages_spent is
  'What counts against max_pages: URLs leased, minus those that turned out not to be pages.';
comment on column silkline.states.pages_free is
  'URLs that were fetched but do not count against max_pages, such as redirects.';
comment on column silkline.states.redirected_starts is
  'Where start URLs redirected to; the scope of the crawl follows them.';
comment on column silkline.states.links_refused is
  'How many links the rules of the crawl refused, by reason. They are not in tasks.';
comment on column silkline.states.pages_with_warnings is
  'Pages whose Markdown may lack something, as this job saw them; see crawl_pages.quality.';
comment on column silkline.states.page_warnings is
  'The same by kind of warning: a page with two kinds counts for both.';
comment on column silkline.states.seq is
  'Number of checkpoints over the life of the job; progress messages carry it.';

-- One probe per row. With exists, a plan may first read all jobs of the caller into a hash table.
create policy "Users read the state of their own jobs"
  on silkline.states
  for select
  to authenticated
  using (
    (
      select job.owner_id = (select silkline.caller_id())
      from silkline.jobs as job
      where job.id = job_id
    )
  );

-- Joins jobs, so that a plan starts with the jobs of the caller, and deleted jobs are out.
create view public.crawl_states
  with (security_invoker = true)
as
select
  state.job_id,
  state.total_pending,
  state.total_in_progress,
  state.total_done,
  state.total_error,
  state.total_skipped,
  state.total_bytes,
  state.pages_new,
  state.pages_changed,
  state.pages_unchanged,
  state.pages_spent,
  state.pages_free,
  state.pages_per_second,
  state.current_url,
  state.redirected_starts,
  state.links_refused,
  state.pages_with_warnings,
  state.page_warnings,
  state.seq,
  state.checkpoint_at
from silkline.jobs as job
join silkline.states as state
  on state.job_id = job.id;

comment on view public.crawl_states is
  'Counters of each job.';

revoke all on public.crawl_states from anon, authenticated, service_role;
grant select on public.crawl_states to authenticated, service_role;
revoke all on silkline.states from anon, authenticated, service_role;
grant select (
  job_id,
  total_pending,
  total_in_progress,
  total_done,
  total_error,
  total_skipped,
  total_bytes,
  pages_new,
  pages_changed,
  pages_unchanged,
  pages_spent,
  pages_free,
  pages_per_second,
  current_url,
  redirected_starts,
  links_refused,
  pages_with_warnings,
  page_warnings,
  seq,
  checkpoint_at
) on silkline.states to authenticated, service_role;

-- The frontier

-- No foreign key to crawl_jobs: its check would run for each of thousands of links. Tasks are
-- written only under the lock of their job, and swept after it was deleted.
create table silkline.tasks (
  job_id uuid not null,
  url_key uuid not null,
  url text not null,
  depth smallint not null,
  status public.crawl_task_status not null default 'pending',
  skip_reason text,
  attempts smallint not null default 0,
  crashes smallint not null default 0,
  losses smallint not null default 0,
  http_status smallint,
  lease_seq integer,
  next_run_at timestamptz not null default now(),
  lease_token uuid,
  found_on uuid,
  page_id bigint,
  copy_of uuid,
  copy_title text,
  last_error text,
  finished_at timestamptz,
  primary key (job_id, url_key),
  constraint tasks_url_is_short check (length(url) between 1 and 4096),
  constraint tasks_depth_is_in_range check (depth between 0 and 1000),
  constraint tasks_lease_fits_status
    check ((status = 'in_progress') = (lease_token is not null)),
  constraint tasks_error_has_message check (status <> 'error' or last_error is not null),
  constraint tasks_skip_reason_is_known check (
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
      'noindex',
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
alter table silkline.tasks enable row level security;

comment on table silkline.tasks is
  'The frontier: one row per URL of a job. Each ends in one status, with a reason.';
comment on column silkline.tasks.url_key is
  'A 16-byte hash of the canonical URL, stored as uuid because that is the cheapest type.';
comment on column silkline.tasks.crashes is
  'How often a process died while fetching this URL. 1: it is leased alone. 2: poison.';
comment on column silkline.tasks.losses is
  'How often a worker was lost with this URL in flight. The second time counts as a crash.';
comment on column silkline.tasks.attempts is
  'How often it was leased. Above 0, it counts against max_pages.';
comment on column silkline.tasks.found_on is
  'url_key of the first page that linked here.';
comment on column silkline.tasks.copy_of is
  'url_key of the original that this copy was dropped for; its own once that was no substitute.';
comment on column silkline.tasks.copy_title is
  'Title of a dropped copy; its original must have the same title.';

-- Three indexes that never overlap: new URLs, URLs tried before (which need no budget), and
-- URLs that are leased alone. A query for one of them never reads the others, whatever its plan.
create index tasks_to_begin on silkline.tasks (job_id, next_run_at)
  where status = 'pending' and crashes = 0 and attempts = 0;
create index tasks_to_try_again on silkline.tasks (job_id, next_run_at)
  where status = 'pending' and crashes = 0 and attempts > 0;
create index tasks_suspect on silkline.tasks (job_id, next_run_at)
  where status = 'pending' and crashes > 0;
-- Lists the URLs of a job by status, in the order of their keys.
create index tasks_by_status on silkline.tasks (job_id, status, url_key);
-- Shows with one probe that a job has none: a shorter path to such a URL is rare.
create index tasks_too_deep on silkline.tasks (job_id, url_key)
  where skip_reason = 'too_deep';
create index tasks_copies on silkline.tasks (job_id, copy_of)
  where skip_reason = 'canonical';

-- Not exists: see states.
create policy "Users read the URLs of their own jobs"
  on silkline.tasks
  for select
  to authenticated
  using (
    (
      select job.owner_id = (select silkline.caller_id())
      from silkline.jobs as job
      where job.id = job_id
    )
  );

-- Joins jobs, so that a plan starts with the jobs of the caller, and deleted jobs are out.
create view public.crawl_tasks
  with (security_invoker = true)
as
select
  task.job_id,
  task.url_key,
  task.url,
  task.depth,
  task.status,
  task.skip_reason,
  task.attempts,
  task.crashes,
  task.losses,
  task.http_status,
  task.next_run_at,
  task.found_on,
  task.page_id,
  task.copy_of,
  task.copy_title,
  task.last_error,
  task.finished_at
from silkline.jobs as job
join silkline.tasks as task
  on task.job_id = job.id;

comment on view public.crawl_tasks is
  'The URLs of each job.';

revoke all on public.crawl_tasks from anon, authenticated, service_role;
grant select on public.crawl_tasks to authenticated, service_role;
revoke all on silkline.tasks from anon, authenticated, service_role;
grant select (
  job_id,
  url_key,
  url,
  depth,
  status,
  skip_reason,
  attempts,
  crashes,
  losses,
  http_status,
  next_run_at,
  found_on,
  page_id,
  copy_of,
  copy_title,
  last_error,
  finished_at
) on silkline.tasks to authenticated, service_role;

-- Pages, versioned

-- Pages outlive the job that found them: retention deletes jobs and keeps their pages.
create table public.crawl_pages (
  id bigint generated always as identity primary key,
  user_id uuid,
  owner_id uuid not null generated always as (
    coalesce(user_id, '00000000-0000-0000-0000-000000000000'::uuid)
  ) stored,
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
  quality jsonb,
  first_seen_at timestamptz not null default now(),
  last_seen_at timestamptz not null default now(),
  constraint crawl_pages_version_is_positive check (version > 0),
  constraint crawl_pages_links_are_a_list check (jsonb_typeof(links) = 'array'),
  constraint crawl_pages_metadata_is_an_object check (jsonb_typeof(metadata) = 'object'),
  constraint crawl_pages_quality_is_a_small_object check (
    jsonb_typeof(quality) = 'object'
    and jsonb_typeof(coalesce(quality -> 'warnings', '[]')) = 'array'
    and pg_column_size(quality) <= 2000
  )
)
with (fillfactor = 90);
alter table public.crawl_pages enable row level security;

comment on table public.crawl_pages is
  'One row per version of a page. A crawl that finds a page unchanged adds no version.';
comment on column public.crawl_pages.quality is
  'What the Markdown has of the page, and a list of warnings; null if that is unknown.';

create unique index crawl_pages_version_is_unique
  on public.crawl_pages (owner_id, source_id, url_key, version);
create unique index crawl_pages_latest_is_unique
  on public.crawl_pages (owner_id, source_id, url_key)
  where is_latest;
create index crawl_pages_outdated on public.crawl_pages (last_seen_at)
  where not is_latest;
create index crawl_pages_of_job on public.crawl_pages (job_id);

-- See silkline.jobs.
alter table public.crawl_pages alter column owner_id set (n_distinct = -0.01);

create policy "Users read their own pages"
  on public.crawl_pages
  for select
  to authenticated
  using (owner_id = (select silkline.caller_id()));

revoke all on public.crawl_pages from anon, authenticated, service_role;
grant select on public.crawl_pages to authenticated, service_role;
revoke all on sequence public.crawl_pages_id_seq from anon, authenticated, service_role;

-- Compresses in a third of the time of the default. Not every build of Postgres has it.
do $$
begin
  alter table public.crawl_pages
    alter column markdown set compression lz4,
    alter column links set compression lz4,
    alter column metadata set compression lz4;
exception
  when feature_not_supported then
    raise notice 'this Postgres has no lz4: storing pages takes longer';
end
$$;

-- Hosts and audits

create table public.crawl_hosts (
  host text primary key,
  robots_txt text,
  robots_status smallint,
  robots_fetched_at timestamptz,
  crawl_delay_seconds real,
  backoff_until timestamptz,
  error_streak integer,
  last_error text,
  updated_at timestamptz not null default now(),
  constraint crawl_hosts_host_is_short check (length(host) between 1 and 300),
  constraint crawl_hosts_robots_txt_is_bounded check (length(robots_txt) <= 524288),
  constraint crawl_hosts_delay_is_in_range check (crawl_delay_seconds between 0 and 3600)
);
alter table public.crawl_hosts enable row level security;
create index crawl_hosts_by_age on public.crawl_hosts (updated_at);

comment on table public.crawl_hosts is
  'Facts about hosts, shared by all jobs and users: robots.txt, crawl delay, backoff.';
comment on column public.crawl_hosts.error_streak is
  'Consecutive errors; null until a crawl has reported.';

create policy "Only the service reads hosts"
  on public.crawl_hosts
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on public.crawl_hosts from anon, authenticated, service_role;
grant select on public.crawl_hosts to service_role;

create table public.crawl_audits (
  job_id uuid primary key,
  owner_id uuid not null,
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

create index crawl_audits_of_owner on public.crawl_audits (owner_id, created_at desc);

-- See silkline.jobs.
alter table public.crawl_audits alter column owner_id set (n_distinct = -0.001);

create policy "Users read their own audits"
  on public.crawl_audits
  for select
  to authenticated
  using (owner_id = (select silkline.caller_id()));

revoke all on public.crawl_audits from anon, authenticated, service_role;
grant select on public.crawl_audits to authenticated, service_role;

-- The tables of a crawl: counters, frontier and pages; facts about hosts; results of audits.

-- Counters of the frontier, one row per job

-- Triggers insert this row with its job (tg_crawl_jobs_record_new) and delete it with the job
-- (tg_crawl_jobs_delete_rows). A foreign key would check each of thousands of new jobs again.
create table public.crawl_states (
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
      pages_spent,
      pages_free
    ) >= 0
  ),
  constraint crawl_states_redirected_starts_are_a_list
    check (jsonb_typeof(redirected_starts) = 'array')
)
with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
alter table public.crawl_states enable row level security;

comment on table public.crawl_states is
  'Counters of each job''s frontier, updated in the transactions that change it.';
comment on column public.crawl_states.pages_spent is
  'What counts against max_pages: URLs leased, minus those that turned out not to be pages.';
comment on column public.crawl_states.pages_free is
  'URLs that were fetched but do not count against max_pages, such as redirects.';
comment on column public.crawl_states.redirected_starts is
  'Where start URLs redirected to; the scope of the crawl follows them.';
comment on column public.crawl_states.seq is
  'Number of checkpoints over the life of the job; progress messages carry it.';

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

-- No foreign key to crawl_jobs: its check would run for each of thousands of links. Tasks are
-- written only under the lock of their job, and tg_crawl_jobs_delete_rows deletes them.
create table public.crawl_tasks (
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
  constraint crawl_tasks_url_is_short check (length(url) between 1 and 4096),
  constraint crawl_tasks_depth_is_in_range check (depth between 0 and 1000),
  constraint crawl_tasks_lease_fits_status
    check ((status = 'in_progress') = (lease_token is not null)),
  constraint crawl_tasks_error_has_message check (status <> 'error' or last_error is not null),
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
alter table public.crawl_tasks enable row level security;

comment on table public.crawl_tasks is
  'The frontier: one row per URL of a job. Each ends in one status, with a reason.';
comment on column public.crawl_tasks.url_key is
  'A 16-byte hash of the canonical URL, stored as uuid because that is the cheapest type.';
comment on column public.crawl_tasks.crashes is
  'How often a process died while fetching this URL. 1: it is leased alone. 2: poison.';
comment on column public.crawl_tasks.losses is
  'How often a worker was lost with this URL in flight. The second time counts as a crash.';
comment on column public.crawl_tasks.attempts is
  'How often it was leased. Above 0, it counts against max_pages.';
comment on column public.crawl_tasks.found_on is
  'url_key of the first page that linked here.';
comment on column public.crawl_tasks.copy_of is
  'url_key of the original that this copy was dropped for; its own once that was no substitute.';
comment on column public.crawl_tasks.copy_title is
  'Title of a dropped copy; its original must have the same title.';

-- Three indexes that never overlap: new URLs, URLs tried before (which need no budget), and
-- URLs that are leased alone. A query for one of them never reads the others, whatever its plan.
create index crawl_tasks_to_begin on public.crawl_tasks (job_id, next_run_at)
  where status = 'pending' and crashes = 0 and attempts = 0;
create index crawl_tasks_to_try_again on public.crawl_tasks (job_id, next_run_at)
  where status = 'pending' and crashes = 0 and attempts > 0;
create index crawl_tasks_suspect on public.crawl_tasks (job_id, next_run_at)
  where status = 'pending' and crashes > 0;
create index crawl_tasks_leased on public.crawl_tasks (job_id, url_key)
  where status = 'in_progress';
create index crawl_tasks_failed on public.crawl_tasks (job_id, url_key)
  where status = 'error';
-- Shows with one probe that a job has none: a shorter path to such a URL is rare.
create index crawl_tasks_too_deep on public.crawl_tasks (job_id, url_key)
  where skip_reason = 'too_deep';
create index crawl_tasks_copies on public.crawl_tasks (job_id, copy_of)
  where skip_reason = 'canonical';

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

-- Pages outlive the job that found them: retention deletes jobs and keeps their pages.
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
  'One row per version of a page. A crawl that finds a page unchanged adds no version.';

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
-- Includes url_key, so that a plan made while the table is empty does not use it to look up a
-- whole source. Covers all versions, so that deleting an account finds its pages.
create index crawl_pages_of_owner on public.crawl_pages (user_id, source_id, url_key);
create index crawl_pages_outdated on public.crawl_pages (last_seen_at)
  where not is_latest;

create policy "Users read their own pages"
  on public.crawl_pages
  for select
  to authenticated
  using (user_id = (select auth.uid()));

revoke all on public.crawl_pages from anon, authenticated, service_role;
grant select on public.crawl_pages to authenticated, service_role;

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

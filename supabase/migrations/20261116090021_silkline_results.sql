-- The results of a job, page by page. docs/how-to/query-pages.md has SQL for other questions
-- about pages.

-- A URL of a job, and the version of its page that the job saw; nulls if there is none.
create type public.crawl_job_page as (
  url_key uuid,
  url text,
  depth smallint,
  status public.crawl_task_status,
  skip_reason text,
  last_error text,
  http_status smallint,
  attempts smallint,
  found_on uuid,
  finished_at timestamptz,
  page_url text,
  version integer,
  change text,  -- new | changed | unchanged since the previous crawl
  title text,
  content_hash text,
  extractor text,
  extractor_version text,
  quality jsonb,
  first_seen_at timestamptz,
  last_seen_at timestamptz,
  metadata jsonb,
  markdown text,
  links jsonb
);

-- The keys of some of a job's URLs, in order: a range scan of one index, however far the caller has
-- paged.
create function silkline.job_keys(
  p_job_id uuid,
  p_status public.crawl_task_status,
  p_after uuid,
  p_limit integer
)
  returns uuid[]
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_from constant uuid := coalesce(p_after, '00000000-0000-0000-0000-000000000000');
begin
  if p_status is null then
    return array(
      select task.url_key
      from silkline.tasks as task
      where task.job_id = p_job_id
        and task.url_key >= v_from
        and task.url_key is distinct from p_after
      order by task.url_key
      limit p_limit
    );
  end if;

  return array(
    select task.url_key
    from silkline.tasks as task
    where task.job_id = p_job_id
      and task.status = p_status
      and task.url_key >= v_from
      and task.url_key is distinct from p_after
    order by task.url_key
    limit p_limit
  );
end
$$;

comment on function silkline.job_keys(uuid, public.crawl_task_status, uuid, integer) is
  'The keys of some of the URLs of a job.';

revoke execute on function silkline.job_keys(uuid, public.crawl_task_status, uuid, integer)
  from public, anon, authenticated;

-- Some of a job's URLs, in the order of their keys: as many as p_limit and about 4 MB of metadata
-- and content allow, and at least one. A hundred pages of a crawl may have a gigabyte, and the API
-- builds each answer in memory.
-- definer because under row level security a plan may read all pages of the owner
create function silkline.job_pages(
  p_job_id uuid,
  p_status text,
  p_with_content boolean,
  p_after uuid,
  p_limit integer
)
  returns setof public.crawl_job_page
  language plpgsql
  stable
  security definer
  set search_path = ''
  -- A plan made while the frontier was small must not scan it once it is large.
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  c_bytes constant integer := 4000000;
  v_job constant silkline.jobs := silkline.own_job(p_job_id);
  v_page public.crawl_job_page;
  v_rows integer := 0;
  v_bytes bigint := 0;
begin
  if p_status not in ('pending', 'in_progress', 'done', 'error', 'skipped') then
    raise sqlstate 'PT422' using
      message = format(
        'p_status must be pending, in_progress, done, error or skipped, not %L',
        left(p_status, 60)
      ),
      hint = 'Omit it for all URLs.';
  end if;

  if p_limit is null or p_limit not between 1 and 1000 then
    raise sqlstate 'PT422' using
      message = format('p_limit must be from 1 to 1000, not %s', coalesce(p_limit::text, 'null')),
      hint = 'Send the last url_key as p_after for more.';
  end if;

  for v_page in
    select
      task.url_key,
      task.url,
      task.depth,
      task.status,
      task.skip_reason,
      task.last_error,
      task.http_status,
      task.attempts,
      task.found_on,
      task.finished_at,
      page.url,
      page.version,
      case
        when page.id is null then null
        when page.job_id <> v_job.id then 'unchanged'
        when page.version = 1 then 'new'
        else 'changed'
      end,
      page.title,
      page.content_hash,
      page.extractor,
      page.extractor_version,
      page.quality,
      page.first_seen_at,
      page.last_seen_at,
      page.metadata,
      case when p_with_content then page.markdown end,
      case when p_with_content then page.links end
    from unnest(
      silkline.job_keys(v_job.id, p_status::public.crawl_task_status, p_after, p_limit)
    ) as listed (url_key)
    -- lateral and limit: one probe per URL under every plan
    cross join lateral (
      select known.*
      from silkline.tasks as known
      where known.job_id = v_job.id
        and known.url_key = listed.url_key
      limit 1
    ) as task
    left join lateral (
      select stored.*
      from public.crawl_pages as stored
      where stored.id = task.page_id
      limit 1
    ) as page
      on true
    order by task.url_key
  loop
    v_rows := v_rows + 1;
    v_bytes := v_bytes
      + coalesce(octet_length(v_page.markdown), 0)
      + coalesce(octet_length(v_page.links::text), 0)
      + coalesce(octet_length(v_page.metadata::text), 0);
    exit when v_bytes > c_bytes and v_rows > 1;
    return next v_page;
  end loop;
end
$$;

comment on function silkline.job_pages(uuid, text, boolean, uuid, integer) is
  'Some of the URLs of a job of the caller, with their pages.';

revoke execute on function silkline.job_pages(uuid, text, boolean, uuid, integer)
  from public, anon, authenticated;
grant execute on function silkline.job_pages(uuid, text, boolean, uuid, integer)
  to authenticated, service_role;

-- The URLs of a job, how each ended, and its page. To read on, send the last url_key of an answer
-- as p_after, until an answer is empty: one that would be large has fewer rows than p_limit.
-- Markdown and links may be large and come only with p_with_content.
create function public.crawl_job_pages(
  p_job_id uuid,
  p_status text default null,
  p_with_content boolean default false,
  p_after uuid default null,
  p_limit integer default 100
)
  returns setof public.crawl_job_page
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return query
    select *
    from silkline.job_pages(p_job_id, p_status, p_with_content, p_after, p_limit);
end
$$;

comment on function public.crawl_job_pages(uuid, text, boolean, uuid, integer) is
  'The URLs of a job with their pages; read on with the last url_key as p_after until it is empty.';

revoke execute on function public.crawl_job_pages(uuid, text, boolean, uuid, integer)
  from public, anon, authenticated;
grant execute on function public.crawl_job_pages(uuid, text, boolean, uuid, integer)
  to authenticated, service_role;

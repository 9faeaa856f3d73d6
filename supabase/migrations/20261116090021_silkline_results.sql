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
  first_seen_at timestamptz,
  last_seen_at timestamptz,
  metadata jsonb,
  markdown text,
  links jsonb
);

-- Some of a job's URLs, in the order of their keys. It reads the keys first, then their rows: each
-- is a range scan of one index, however far the caller has paged.
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
  v_job constant silkline.jobs := silkline.own_job(p_job_id);
  v_from constant uuid := coalesce(p_after, '00000000-0000-0000-0000-000000000000');
  v_keys uuid[];
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

  -- Failed URLs are rare and have their own index.
  if p_status = 'error' then
    v_keys := array(
      select task.url_key
      from silkline.tasks as task
      where task.job_id = v_job.id
        and task.status = 'error'
        and task.url_key >= v_from
        and task.url_key is distinct from p_after
      order by task.url_key
      limit p_limit
    );
  else
    v_keys := array(
      select task.url_key
      from silkline.tasks as task
      where task.job_id = v_job.id
        and task.url_key >= v_from
        and task.url_key is distinct from p_after
        and (p_status is null or task.status::text = p_status)
      order by task.url_key
      limit p_limit
    );
  end if;

  return query
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
      page.first_seen_at,
      page.last_seen_at,
      page.metadata,
      case when p_with_content then page.markdown end,
      case when p_with_content then page.links end
    from unnest(v_keys) as listed (url_key)
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
    order by task.url_key;
end
$$;

comment on function silkline.job_pages(uuid, text, boolean, uuid, integer) is
  'Some of the URLs of a job of the caller, with their pages.';

revoke execute on function silkline.job_pages(uuid, text, boolean, uuid, integer)
  from public, anon, authenticated;
grant execute on function silkline.job_pages(uuid, text, boolean, uuid, integer)
  to authenticated, service_role;

-- The URLs of a job, how each ended, and its page. To read on, send the last url_key of an answer
-- as p_after, until an answer has fewer than p_limit rows. Markdown and links may be large and
-- come only with p_with_content.
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
  'The URLs of a job with their pages, p_limit at a time: the last url_key is the next p_after.';

revoke execute on function public.crawl_job_pages(uuid, text, boolean, uuid, integer)
  from public, anon, authenticated;
grant execute on function public.crawl_job_pages(uuid, text, boolean, uuid, integer)
  to authenticated, service_role;

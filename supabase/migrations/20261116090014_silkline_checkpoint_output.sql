-- What a checkpoint returns: the next URLs, the links of stored pages, facts about hosts. These
-- functions run inside checkpoint_crawl_job, which holds the lock of the job.

-- Lease URLs, in the order they were found; retries when they are due. The first fetch of a URL
-- counts against the budget here. Suspects of a crash come last, each alone; they have been
-- counted already.
create function silkline.lease_tasks(
  p_job silkline.jobs,
  p_seq integer,
  p_want integer,
  p_budget integer,
  p_in_progress integer
)
  returns table (leased integer, spent integer)
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_leased integer := 0;
  v_spent integer := 0;
begin
  -- While a suspect is leased alone, nothing else is leased.
  if p_in_progress = 1 and exists (
    select
    from silkline.tasks as suspect
    where suspect.job_id = p_job.id
      and suspect.status = 'in_progress'
      and suspect.crashes > 0
  ) then
    return query select 0, 0;
    return;
  end if;

  -- By ctid: linear under every plan, whatever the statistics say. Under the lock of the job its
  -- rows do not move.
  with handed_out as (
    update silkline.tasks as task
    set
      status = 'in_progress',
      lease_token = p_job.lease_token,
      lease_seq = p_seq,
      attempts = least(task.attempts + 1, 32767)
    where task.ctid = any (
      array(
        select due.place
        from (
          (
            select next.ctid as place, next.next_run_at
            from silkline.tasks as next
            where next.job_id = p_job.id
              and next.status = 'pending'
              and next.crashes = 0
              and next.attempts = 0
              and next.next_run_at <= now()
            order by next.next_run_at
            limit least(p_want, p_budget)
          )
          union all
          (
            select again.ctid as place, again.next_run_at
            from silkline.tasks as again
            where again.job_id = p_job.id
              and again.status = 'pending'
              and again.crashes = 0
              and again.attempts > 0
              and again.next_run_at <= now()
            order by again.next_run_at
            limit p_want
          )
        ) as due
        order by due.next_run_at
        limit p_want
      )
    )
    returning task.attempts
  )
  select count(*), count(*) filter (where handed_out.attempts = 1)
  into v_leased, v_spent
  from handed_out;

  if v_leased = 0 and p_in_progress = 0 and p_want > 0 then
    update silkline.tasks as task
    set
      status = 'in_progress',
      lease_token = p_job.lease_token,
      lease_seq = p_seq,
      attempts = least(task.attempts + 1, 32767)
    where task.job_id = p_job.id
      and task.url_key = (
        select suspect.url_key
        from silkline.tasks as suspect
        where suspect.job_id = p_job.id
          and suspect.status = 'pending'
          and suspect.crashes > 0
          and suspect.next_run_at <= now()
        order by suspect.next_run_at
        limit 1
      );
    get diagnostics v_leased = row_count;
  end if;

  return query select v_leased, v_spent;
end
$$;

comment on function silkline.lease_tasks(silkline.jobs, integer, integer, integer, integer) is
  'Lease the next URLs of a job to its worker.';

revoke execute
  on function silkline.lease_tasks(silkline.jobs, integer, integer, integer, integer)
  from public, anon, authenticated;

-- The URLs that one batch leased and that are still in flight. Each comes with the validators of
-- its stored page, so that the crawl can send a conditional request, and with the options that
-- page was made with: under other options its validators must not be used.
create function silkline.tasks_of_batch(p_job silkline.jobs, p_seq integer)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select coalesce(
      jsonb_agg(
        jsonb_build_object(
          'url_key', task.url_key,
          'url', task.url,
          'depth', task.depth,
          'attempts', task.attempts,
          'etag', page.etag,
          'last_modified', page.last_modified,
          'made_with', page.made_with
        )
        order by task.depth, task.url_key
      ),
      '[]'
    )
    from silkline.tasks as task
    -- lateral and limit: one probe of the unique index per URL, even if the table was small when
    -- the plan was made.
    left join lateral (
      select
        latest.etag,
        latest.last_modified,
        latest.metadata ->> 'made_with' as made_with
      from public.crawl_pages as latest
      where latest.owner_id = p_job.owner_id
        and latest.source_id = p_job.source_id
        and latest.url_key = task.url_key
        and latest.is_latest
      limit 1
    ) as page
      on true
    where task.job_id = p_job.id
      and task.status = 'in_progress'
      and task.lease_token = p_job.lease_token
      and task.lease_seq = p_seq
  );
end
$$;

comment on function silkline.tasks_of_batch(silkline.jobs, integer) is
  'The URLs that a checkpoint leased, as its answer lists them.';

revoke execute on function silkline.tasks_of_batch(silkline.jobs, integer)
  from public, anon, authenticated;

-- The links of the stored pages of these URLs, in this order; an empty list where no page is
-- stored. Returns as many pages as fit into about 4 MB, at least one; the crawl asks again for
-- the others.
create function silkline.stored_links(p_job silkline.jobs, p_keys jsonb)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_page record;
  v_bytes bigint := 0;
  v_links jsonb[] := '{}'::jsonb[];
begin
  -- A loop, because it can end early and leave the other links unread.
  for v_page in
    select wanted.url_key, coalesce(stored.links, '[]') as links
    from (
      select listed.url_key::uuid as url_key, min(listed.nth) as nth
      from jsonb_array_elements_text(p_keys) with ordinality as listed (url_key, nth)
      group by listed.url_key::uuid
      order by min(listed.nth)
    ) as wanted
    -- lateral and limit: see silkline.tasks_of_batch
    left join lateral (
      select latest.links
      from public.crawl_pages as latest
      where latest.owner_id = p_job.owner_id
        and latest.source_id = p_job.source_id
        and latest.url_key = wanted.url_key
        and latest.is_latest
      limit 1
    ) as stored
      on true
    order by wanted.nth
  loop
    v_bytes := v_bytes + octet_length(v_page.links::text);
    exit when v_bytes > 4000000 and v_links <> '{}';
    v_links := v_links || jsonb_build_object('url_key', v_page.url_key, 'links', v_page.links);
  end loop;

  return to_jsonb(v_links);
end
$$;

comment on function silkline.stored_links(silkline.jobs, jsonb) is
  'The links of the latest stored pages of some URLs, as many as fit.';

revoke execute on function silkline.stored_links(silkline.jobs, jsonb)
  from public, anon, authenticated;

-- How long until the next pending URL of a job is due; 0 if one is due already. Null if all of
-- them are new and none may begin, because the budget is spent but may still get refunds.
create function silkline.next_task_in_seconds(p_job_id uuid, p_may_begin boolean)
  returns double precision
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_next_at constant timestamptz := least(
    (
      select min(next.next_run_at)
      from silkline.tasks as next
      where p_may_begin
        and next.job_id = p_job_id
        and next.status = 'pending'
        and next.crashes = 0
        and next.attempts = 0
    ),
    (
      select min(again.next_run_at)
      from silkline.tasks as again
      where again.job_id = p_job_id
        and again.status = 'pending'
        and again.crashes = 0
        and again.attempts > 0
    ),
    (
      select min(suspect.next_run_at)
      from silkline.tasks as suspect
      where suspect.job_id = p_job_id
        and suspect.status = 'pending'
        and suspect.crashes > 0
    )
  );
begin
  return case
    when v_next_at is not null then greatest(0, extract(epoch from v_next_at - now()))
  end;
end
$$;

comment on function silkline.next_task_in_seconds(uuid, boolean) is
  'Seconds until the next pending URL of a job is due.';

revoke execute on function silkline.next_task_in_seconds(uuid, boolean)
  from public, anon, authenticated;

-- The stored facts about the hosts that a crawl asks for.
create function silkline.host_facts(p_hosts jsonb)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  if p_hosts is null then
    return '[]'::jsonb;
  end if;

  return (
    select coalesce(
      jsonb_agg(
        jsonb_build_object(
          'host', host.host,
          'robots_txt', host.robots_txt,
          'robots_status', host.robots_status,
          'robots_age_seconds', extract(epoch from now() - host.robots_fetched_at),
          'backoff_seconds', greatest(0, extract(epoch from host.backoff_until - now())),
          'error_streak', coalesce(host.error_streak, 0),
          'age_seconds', extract(epoch from now() - host.updated_at)
        )
        order by host.host
      ),
      '[]'
    )
    from jsonb_array_elements_text(p_hosts) as wanted (name)
    join public.crawl_hosts as host
      on host.host = lower(wanted.name)
  );
end
$$;

comment on function silkline.host_facts(jsonb) is
  'robots.txt, backoff and errors of the hosts that a crawl asks for.';

revoke execute on function silkline.host_facts(jsonb) from public, anon, authenticated;

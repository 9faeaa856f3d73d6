-- What a checkpoint returns: the next URLs, the links of stored pages, facts about hosts, and the
-- progress that is also sent live. These functions run inside checkpoint_crawl_job, which holds the
-- lock of the job.

-- The keys of the URLs that a checkpoint leases, and how they change the counters.
create type silkline.leased_tasks as (
  keys uuid[],
  counts silkline.task_counts
);

-- Lease URLs, in the order they were found; retries when they are due. The first fetch of a URL
-- counts against the budget here. Suspects of a crash come last, each alone; they have been
-- counted already.
create function silkline.lease_tasks(
  p_job silkline.jobs,
  p_state silkline.states,
  p_seq integer,
  p_want integer
)
  returns silkline.leased_tasks
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_budget constant integer := greatest(
    silkline.page_budget(p_job.payload) - p_state.pages_spent,
    0
  );
  v_keys uuid[];
  v_counts silkline.task_counts;
begin
  -- While a suspect is leased alone, nothing else is leased.
  if p_state.total_in_progress = 1 and (
    select suspect.crashes > 0
    from silkline.tasks as suspect
    where suspect.job_id = p_job.id
      and suspect.status between 'in_progress' and 'in_progress'
    -- The order names the index: see silkline.describe_tasks.
    order by suspect.status
    limit 1
  ) then
    return null;
  end if;

  -- Nor while URLs beyond the budget have to be skipped: a retry in flight would stop that.
  if v_budget = 0 and p_state.total_in_progress = 0 and exists (
    select
    from silkline.tasks as unpaid
    where unpaid.job_id = p_job.id
      and unpaid.status = 'pending'
      and unpaid.crashes = 0
      and unpaid.attempts = 0
  ) then
    return null;
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
            limit least(p_want, v_budget)
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
    returning task.url_key, task.attempts
  )
  select
    array_agg(handed_out.url_key),
    count(*) filter (where handed_out.attempts = 1)
  into v_keys, v_counts.spent
  from handed_out;

  if v_keys is null and p_state.total_in_progress = 0 then
    update silkline.tasks as task
    set
      status = 'in_progress',
      lease_token = p_job.lease_token,
      lease_seq = p_seq,
      attempts = least(task.attempts + 1, 32767)
    where task.ctid = (
      select suspect.ctid
      from silkline.tasks as suspect
      where suspect.job_id = p_job.id
        and suspect.status = 'pending'
        and suspect.crashes > 0
        and suspect.next_run_at <= now()
      order by suspect.next_run_at
      limit 1
    )
    returning array[task.url_key] into v_keys;
  end if;

  v_counts.in_progress := cardinality(v_keys);
  v_counts.pending := - cardinality(v_keys);
  return row (v_keys, v_counts)::silkline.leased_tasks;
end
$$;

comment on function silkline.lease_tasks(
  silkline.jobs, silkline.states, integer, integer
) is
  'Lease the next URLs of a job to its worker.';

revoke execute on function silkline.lease_tasks(
  silkline.jobs, silkline.states, integer, integer
) from public, anon, authenticated;

-- The URLs that a batch leased and that are still in flight.
create function silkline.tasks_of_batch(p_job silkline.jobs, p_seq integer)
  returns uuid[]
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select array_agg(leased.url_key)
    from (
      select task.url_key
      from silkline.tasks as task
      where task.job_id = p_job.id
        and task.status between 'in_progress' and 'in_progress'
        and task.lease_token = p_job.lease_token
        and task.lease_seq = p_seq
      -- The order names the index: see silkline.describe_tasks.
      order by task.status
    ) as leased
  );
end
$$;

comment on function silkline.tasks_of_batch(silkline.jobs, integer) is
  'The keys of the URLs that a checkpoint leased; null if there are none.';

revoke execute on function silkline.tasks_of_batch(silkline.jobs, integer)
  from public, anon, authenticated;

-- Leased URLs, as an answer lists them. Each comes with the validators of its stored page, so that
-- the crawl can send a conditional request, and with the options that page was made with: under
-- other options its validators must not be used.
create function silkline.describe_tasks(p_job silkline.jobs, p_keys uuid[])
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
          'url_key', leased.url_key,
          'url', task.url,
          'depth', task.depth,
          'attempts', task.attempts,
          'etag', page.etag,
          'last_modified', page.last_modified,
          'made_with', page.made_with
        )
        order by task.depth, leased.url_key
      ),
      '[]'
    )
    from unnest(p_keys) as leased (url_key)
    -- lateral and limit: one probe per URL, even if the table was small when the plan was made. The
    -- order names the index, because to a plan for an empty table all indexes are equal; between
    -- instead of =, because constants are not sorted.
    cross join lateral (
      select
        known.url,
        known.depth,
        known.attempts
      from silkline.tasks as known
      where known.job_id = p_job.id
        and known.url_key between leased.url_key and leased.url_key
      order by known.url_key
      limit 1
    ) as task
    left join lateral (
      select
        latest.etag,
        latest.last_modified,
        latest.metadata ->> 'made_with' as made_with
      from public.crawl_pages as latest
      where latest.owner_id = p_job.owner_id
        and latest.source_id = p_job.source_id
        and latest.url_key = leased.url_key
        and latest.is_latest
      order by latest.version desc
      limit 1
    ) as page
      on true
  );
end
$$;

comment on function silkline.describe_tasks(silkline.jobs, uuid[]) is
  'Leased URLs, as the answer of a checkpoint lists them.';

revoke execute on function silkline.describe_tasks(silkline.jobs, uuid[])
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
    -- lateral, order and limit: see silkline.describe_tasks
    left join lateral (
      select latest.links
      from public.crawl_pages as latest
      where latest.owner_id = p_job.owner_id
        and latest.source_id = p_job.source_id
        and latest.url_key = wanted.url_key
        and latest.is_latest
      order by latest.version desc
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

-- The stored facts about the hosts that a crawl asks for.
create function silkline.host_facts(p_hosts jsonb)
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
    -- lateral, order and limit: see silkline.describe_tasks
    cross join lateral (
      select known.*
      from public.crawl_hosts as known
      where known.host = lower(wanted.name)
      limit 1
    ) as host
  );
end
$$;

comment on function silkline.host_facts(jsonb) is
  'robots.txt, backoff and errors of the hosts that a crawl asks for.';

revoke execute on function silkline.host_facts(jsonb) from public, anon, authenticated;

-- The answer to a checkpoint.
create function silkline.answer_checkpoint(
  p_job silkline.jobs,
  p_state silkline.states,
  p_batch jsonb,
  p_leased uuid[]
)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return jsonb_build_object(
    'command', silkline.command_for(p_job.status),
    'job_id', p_job.id,
    'seq', p_state.seq,
    'pending', p_state.total_pending,
    'drained', p_state.total_pending = 0 and p_state.total_in_progress = 0,
    'next_in_seconds', case
      when p_leased is null and p_state.total_pending > 0
        then silkline.next_task_in_seconds(
          p_job.id,
          p_state.pages_spent < silkline.page_budget(p_job.payload)
            or p_state.total_in_progress = 0
        )
    end,
    'tasks', case
      when p_leased is null then '[]'
      else silkline.describe_tasks(p_job, p_leased)
    end,
    'links', case
      when p_batch ? 'want_links' then silkline.stored_links(p_job, p_batch -> 'want_links')
      else '[]'
    end,
    'hosts', case
      when p_batch ? 'want_hosts' then silkline.host_facts(p_batch -> 'want_hosts')
      else '[]'
    end,
    'progress', silkline.page_counts(p_job, p_state)
  ) || case p_state.redirected_starts
    when '[]' then '{}'
    else jsonb_build_object('redirected_starts', p_state.redirected_starts)
  end;
end
$$;

comment on function silkline.answer_checkpoint(
  silkline.jobs, silkline.states, jsonb, uuid[]
) is
  'The answer to a checkpoint: the command, the next URLs, and what the crawl asked for.';

revoke execute on function silkline.answer_checkpoint(
  silkline.jobs, silkline.states, jsonb, uuid[]
) from public, anon, authenticated;

-- Announce the progress of a job to its owner. Never raises.
create function silkline.send_progress(p_job silkline.jobs, p_progress jsonb)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  perform silkline.publish(
    array['crawl_job:' || p_job.id],
    array['progress'],
    array[jsonb_build_object('job_id', p_job.id, 'attempt', p_job.attempt) || p_progress]
  );
end
$$;

comment on function silkline.send_progress(silkline.jobs, jsonb) is
  'Send the live message about the progress of a job.';

revoke execute on function silkline.send_progress(silkline.jobs, jsonb)
  from public, anon, authenticated;

-- The queue as a whole: pending work, statistics, workers. A user sees numbers of their own
-- jobs, the service those of all.
--
-- The counting functions run as their owner, because under row level security no condition on a
-- status can use an index: the equality of an enum is not leakproof. They are planned at each call:
-- a plan for the jobs of one owner is no plan for those of all.

-- How much is left to fetch in running jobs, without reading the frontier. The 1,000 jobs with the
-- most URLs are listed.
-- definer because of the plans, see above
create function silkline.pending_work()
  returns jsonb
  language plpgsql
  stable
  security definer
  set search_path = ''
  set plan_cache_mode = 'force_custom_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  v_owner_id constant uuid := silkline.owner_for(null);
begin
  return (
    with work as (
      select
        job.id,
        job.host,
        state.total_pending,
        state.total_in_progress,
        state.pages_per_second,
        row_number() over (order by state.total_pending desc) as nth
      from silkline.jobs as job
      join silkline.states as state
        on state.job_id = job.id
      where job.status = 'processing'
        and job.lease_check_at is not null
        and (v_owner_id is null or job.owner_id = v_owner_id)
    )
    select jsonb_build_object(
      'jobs', count(*),
      'total_pending', coalesce(sum(work.total_pending), 0),
      'total_in_progress', coalesce(sum(work.total_in_progress), 0),
      'pages_per_second', round(coalesce(sum(work.pages_per_second), 0)::numeric, 2),
      'parts', coalesce(
        jsonb_agg(
          jsonb_build_object(
            'job_id', work.id,
            'host', work.host,
            'total_pending', work.total_pending,
            'total_in_progress', work.total_in_progress
          )
          order by work.nth
        ) filter (where work.nth <= 1000 and work.total_pending + work.total_in_progress > 0),
        '[]'
      )
    )
    from work
  );
end
$$;

comment on function silkline.pending_work() is
  'How many URLs are pending in the running jobs that the caller may see.';

revoke execute on function silkline.pending_work() from public, anon, authenticated;
grant execute on function silkline.pending_work() to authenticated, service_role;

create function public.pending_crawl_work()
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return silkline.pending_work();
end
$$;

comment on function public.pending_crawl_work() is
  'How many URLs are pending in running jobs, in total and per job.';

revoke execute on function public.pending_crawl_work() from public, anon, authenticated;
grant execute on function public.pending_crawl_work() to authenticated, service_role;

-- live: the last heartbeat is at most 2.5 intervals old; lost: older than stale_after; late:
-- between the two.
create function silkline.worker_state(p_last_seen_at timestamptz)
  returns text
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select case
      when p_last_seen_at > now() - make_interval(secs => settings.heartbeat_every_seconds * 2.5)
        then 'live'
      when p_last_seen_at > now() - make_interval(secs => settings.stale_after_seconds)
        then 'late'
      else 'lost'
    end
    from public.crawl_settings as settings
  );
end
$$;

comment on function silkline.worker_state(timestamptz) is
  'Whether a worker is live, late or lost, by database time.';

revoke execute on function silkline.worker_state(timestamptz) from public, anon, authenticated;

-- How many workers are live and late, and their slots. Users may see these numbers.
create function silkline.worker_counts()
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select jsonb_build_object(
      'live', count(*) filter (where worker.state = 'live'),
      'late', count(*) filter (where worker.state = 'late'),
      'slots', coalesce(sum(worker.slots) filter (where worker.state = 'live'), 0),
      'busy_slots', coalesce(sum(worker.busy_slots) filter (where worker.state = 'live'), 0)
    )
    from (
      select
        listed.slots,
        listed.busy_slots,
        silkline.worker_state(listed.last_seen_at) as state
      from public.crawl_workers as listed
      cross join public.crawl_settings as settings
      -- Lost workers stay in the table for a week.
      where listed.last_seen_at > now() - make_interval(secs => settings.stale_after_seconds)
    ) as worker
  );
end
$$;

comment on function silkline.worker_counts() is
  'How many workers and slots there are.';

revoke execute on function silkline.worker_counts() from public, anon, authenticated;

-- The queue in numbers. Each count stops at count_limit, so that the cost stays flat. Ended jobs are
-- counted among that many of the newest: those that ended last, or that an owner enqueued last.
-- definer because of the plans, see above
create function silkline.queue_stats()
  returns jsonb
  language plpgsql
  stable
  security definer
  set search_path = ''
  set plan_cache_mode = 'force_custom_plan'
  set enable_seqscan = 'off'
  -- A bitmap reads a whole index before the first row.
  set enable_bitmapscan = 'off'
  set jit = 'off'
as $$
declare
  c_limit constant integer := 5000;
  v_owner_id constant uuid := silkline.owner_for(null);
  v_in_line bigint;
  v_oldest timestamptz;
  v_waits jsonb;
  v_open jsonb;
  v_ended jsonb;
begin
  select count(*)
  into v_in_line
  from (
    select
    from silkline.jobs as listed
    where listed.status = 'pending'
      and listed.waits_for is null
      and (v_owner_id is null or listed.owner_id = v_owner_id)
    limit c_limit
  ) as job;

  -- The oldest is near the head of the line, which is where an index begins.
  select min(job.created_at)
  into v_oldest
  from (
    select listed.created_at
    from silkline.jobs as listed
    where listed.status = 'pending'
      and listed.waits_for is null
      and (v_owner_id is null or listed.owner_id = v_owner_id)
    limit 500
  ) as job;

  select jsonb_object_agg(wait.name, counted.count) || jsonb_build_object('in_line', v_in_line)
  into v_waits
  from unnest(enum_range(null::public.crawl_job_wait)) as wait (name)
  cross join lateral (
    select count(*) as count
    from (
      select
      from silkline.jobs as listed
      where listed.status = 'pending'
        and listed.waits_for = wait.name
        and (v_owner_id is null or listed.owner_id = v_owner_id)
      limit c_limit
    ) as job
  ) as counted;

  select jsonb_object_agg(open.status, counted.count) || jsonb_build_object(
    'pending', (
      select least(sum(wait.count::bigint), c_limit)
      from jsonb_each_text(v_waits) as wait (name, count)
    )
  )
  into v_open
  from unnest('{processing,paused}'::public.crawl_job_status[]) as open (status)
  cross join lateral (
    select count(*) as count
    from (
      select
      from silkline.jobs as listed
      where listed.status = open.status
        and listed.status in ('pending', 'processing', 'paused')
        and (v_owner_id is null or listed.owner_id = v_owner_id)
      limit c_limit
    ) as job
  ) as counted;

  if v_owner_id is null then
    select jsonb_object_agg(ended.status, ended.count)
    into v_ended
    from (
      select job.status, count(*) as count
      from (
        select listed.status
        from silkline.jobs as listed
        where listed.completed_at > now() - interval '1 day'
        order by listed.completed_at desc
        limit c_limit
      ) as job
      group by job.status
    ) as ended;
  else
    select jsonb_object_agg(ended.status, ended.count)
    into v_ended
    from (
      select job.status, count(*) as count
      from (
        select listed.status, listed.completed_at
        from silkline.jobs as listed
        where listed.owner_id = v_owner_id
        order by listed.created_at desc
        limit c_limit
      ) as job
      where job.completed_at > now() - interval '1 day'
      group by job.status
    ) as ended;
  end if;

  return jsonb_build_object(
    'open', v_open,
    'pending', v_waits,
    'oldest_in_line_seconds', floor(extract(epoch from now() - v_oldest)),
    'ended_in_24_hours', coalesce(v_ended, '{}'),
    'workers', silkline.worker_counts(),
    'count_limit', c_limit
  );
end
$$;

comment on function silkline.queue_stats() is
  'The queue in numbers, as far as the caller may see it.';

revoke execute on function silkline.queue_stats() from public, anon, authenticated;
grant execute on function silkline.queue_stats() to authenticated, service_role;

create function public.crawl_queue_stats()
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return silkline.queue_stats();
end
$$;

comment on function public.crawl_queue_stats() is
  'The queue in numbers.';

revoke execute on function public.crawl_queue_stats() from public, anon, authenticated;
grant execute on function public.crawl_queue_stats() to authenticated, service_role;

-- All workers, for operators.
create function public.list_crawl_workers()
  returns table (
    id uuid,
    hostname text,
    version text,
    state text,
    slots integer,
    busy_slots integer,
    kinds text[],
    started_at timestamptz,
    last_seen_at timestamptz
  )
  language plpgsql
  stable
  security definer  -- definer because worker_state is private
  set search_path = ''
as $$
begin
  return query
    select
      worker.id,
      worker.hostname,
      worker.version,
      silkline.worker_state(worker.last_seen_at),
      worker.slots,
      worker.busy_slots,
      worker.kinds,
      worker.started_at,
      worker.last_seen_at
    from public.crawl_workers as worker
    order by worker.last_seen_at desc;
end
$$;

comment on function public.list_crawl_workers() is
  'All workers, with their state by database time.';

revoke execute on function public.list_crawl_workers() from public, anon, authenticated;
grant execute on function public.list_crawl_workers() to service_role;

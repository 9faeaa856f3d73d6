-- The queue as a whole: pending work, statistics, workers. A user sees numbers of their own
-- jobs, the service those of all.

-- How much is left to fetch in all running jobs, without reading the frontier.
create function public.pending_crawl_work()
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select jsonb_build_object(
      'jobs', count(*),
      'total_pending', coalesce(sum(state.total_pending), 0),
      'total_in_progress', coalesce(sum(state.total_in_progress), 0),
      'pages_per_second', round(coalesce(sum(state.pages_per_second), 0)::numeric, 2),
      'parts', coalesce(
        jsonb_agg(
          jsonb_build_object(
            'job_id', job.id,
            'host', job.host,
            'total_pending', state.total_pending,
            'total_in_progress', state.total_in_progress
          )
          order by state.total_pending desc
        ) filter (where state.total_pending + state.total_in_progress > 0),
        '[]'
      )
    )
    from silkline.jobs as job
    join silkline.states as state
      on state.job_id = job.id
    where job.status = 'processing'
      and (silkline.is_service() or job.user_id = (select auth.uid()))
  );
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
-- definer because users may not read crawl_workers
create function silkline.worker_counts()
  returns jsonb
  language plpgsql
  stable
  security definer
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
    ) as worker
  );
end
$$;

comment on function silkline.worker_counts() is
  'How many workers and slots there are.';

revoke execute on function silkline.worker_counts() from public, anon, authenticated;
grant execute on function silkline.worker_counts() to authenticated, service_role;

-- The queue in numbers. Each count stops at 100,000 (count_limit), so that the cost stays flat.
create function public.crawl_queue_stats()
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_limit constant integer := 100000;
  v_is_service constant boolean := silkline.is_service();
  v_user_id constant uuid := auth.uid();
  v_open jsonb;
  v_waits jsonb;
  v_ended jsonb;
  v_oldest timestamptz;
begin
  select jsonb_object_agg(counted.status, counted.count)
  into v_open
  from (
    select listed.status, (
      select count(*)
      from (
        select
        from silkline.jobs as job
        where job.status = listed.status
          and job.status in ('pending', 'processing', 'paused')
          and (v_is_service or job.user_id = v_user_id)
        limit v_limit
      ) as job
    ) as count
    from unnest('{pending,processing,paused}'::public.crawl_job_status[]) as listed (status)
  ) as counted;

  select jsonb_build_object(
    'in_line', count(*) filter (where job.waits_for is null),
    'time', count(*) filter (where job.waits_for = 'time'),
    'host', count(*) filter (where job.waits_for = 'host'),
    'owner', count(*) filter (where job.waits_for = 'owner')
  ), min(job.created_at) filter (where job.waits_for is null)
  into v_waits, v_oldest
  from (
    select job.waits_for, job.created_at
    from silkline.jobs as job
    where job.status = 'pending'
      and (v_is_service or job.user_id = v_user_id)
    limit v_limit
  ) as job;

  select coalesce(jsonb_object_agg(ended.status, ended.count), '{}')
  into v_ended
  from (
    select job.status, count(*) as count
    from (
      select job.status
      from silkline.jobs as job
      where job.completed_at > now() - interval '1 day'
        and (v_is_service or job.user_id = v_user_id)
      limit v_limit
    ) as job
    group by job.status
  ) as ended;

  return jsonb_build_object(
    'open', v_open,
    'pending', v_waits,
    'oldest_in_line_seconds', floor(extract(epoch from now() - v_oldest)),
    'ended_in_24_hours', v_ended,
    'workers', silkline.worker_counts(),
    'count_limit', v_limit
  );
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

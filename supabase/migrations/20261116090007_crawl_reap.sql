-- Ends leases whose worker has fallen silent: a bounded number in every claim, and the rest
-- each minute by pg_cron.

-- Reap up to p_limit leases whose worker has fallen silent.
--
-- A claim sets lease_check_at and heartbeats leave it alone, so they touch no index. When the
-- check is due and the lease was renewed meanwhile, it is postponed: one index write per job
-- and stale_after, and a dead worker is still noticed in time.
create function silkline.reap_leases(p_limit integer)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_stale_after constant interval := (
    select make_interval(secs => settings.stale_after_seconds)
    from public.crawl_settings as settings
  );
  v_job public.crawl_jobs;
  v_poison integer;
begin
  -- One reaper at a time: a second one would only find the rows of the first locked.
  if not pg_try_advisory_xact_lock(hashtextextended('silkline reaper', 0)) then
    return;
  end if;

  -- Postpone the checks of renewed leases first: they are many and cheap, and would otherwise
  -- fill the limit below.
  update public.crawl_jobs as job
  set lease_check_at = job.last_heartbeat + v_stale_after
  where job.id = any (
    array(
      select alive.id
      from public.crawl_jobs as alive
      where alive.lease_check_at <= now()
        and alive.last_heartbeat > now() - v_stale_after
      order by alive.lease_check_at
      limit 20 * p_limit
      for update skip locked
    )
  );

  for v_job in
    select job.*
    from public.crawl_jobs as job
    where job.lease_check_at <= now()
      and job.last_heartbeat <= now() - v_stale_after
    order by job.lease_check_at
    limit p_limit
    for update skip locked
  loop
    -- A host or owner that another call has locked is left for the next sweep: waiting while
    -- holding other locks could deadlock.
    continue when not pg_try_advisory_xact_lock(hashtextextended('host ' || v_job.host, 0))
      or not coalesce(
        pg_try_advisory_xact_lock(hashtextextended('owner ' || v_job.user_id, 0)),
        true
      );

    v_poison := silkline.free_tasks(v_job.id, 'worker_lost');
    perform set_config('silkline.reason', 'worker_lost', true);

    update public.crawl_jobs as job
    set
      status = case
        when job.status <> 'processing' then job.status
        when job.retry_count < job.max_retries or v_poison > 0 then 'pending'
        else 'failed'
      end,
      retry_count = case
        when job.status = 'processing' and v_poison = 0
          then least(job.retry_count + 1, job.max_retries)
        else job.retry_count
      end,
      completed_at = case
        when job.status = 'processing' and job.retry_count >= job.max_retries and v_poison = 0
          then now()
        else job.completed_at
      end,
      error_code = case when job.status = 'processing' then 'worker_lost' else job.error_code end,
      error_message = case
        when job.status = 'processing'
          then format('no heartbeat from worker %s since %s', job.worker_id, job.last_heartbeat)
        else job.error_message
      end,
      place = silkline.front_place(job.priority),
      run_after = now(),
      worker_id = null,
      lease_token = null,
      lease_check_at = null,
      host_slot = null
    where job.id = v_job.id
    returning job.status into v_job.status;

    return next row (v_job.lease_token, v_job.id, 'lost', v_job.status)::public.crawl_command;
  end loop;
end
$$;

comment on function silkline.reap_leases(integer) is
  'End leases whose heartbeats have stopped; a bounded number per call.';

revoke execute on function silkline.reap_leases(integer) from public, anon, authenticated;

-- End the leases of silent workers, and put due jobs in line. Claims do the same; pg_cron calls
-- this each minute for a queue that no worker claims from.
-- definer because crawl_worker has no rights on tables
create function public.reap_crawl_jobs(p_limit integer default 100)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
begin
  if p_limit is null or p_limit not between 1 and 1000 then
    raise sqlstate 'PT422' using
      message = format('p_limit must be from 1 to 1000, not %s', coalesce(p_limit::text, 'null')),
      hint = 'Call it again for more.';
  end if;

  perform silkline.unblock_due_jobs(p_limit);
  return query select * from silkline.reap_leases(p_limit);
end
$$;

comment on function public.reap_crawl_jobs(integer) is
  'End leases whose worker fell silent; returns one row per ended lease.';

revoke execute on function public.reap_crawl_jobs(integer)
  from public, anon, authenticated;
grant execute on function public.reap_crawl_jobs(integer)
  to service_role, crawl_worker;

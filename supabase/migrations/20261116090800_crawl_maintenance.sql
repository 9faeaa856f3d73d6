-- What keeps the queue healthy without anybody looking: retention, lost turns, pg_cron; and
-- the doctor, for when somebody looks.

-- Call back jobs that stand aside for a host or an owner that has room. Triggers do this
-- as it happens; this finds what they cannot see: raised limits and deleted jobs.
create function silkline.call_forgotten_jobs(p_limit integer)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_settings public.crawl_settings;
  v_next record;
  v_called integer := 0;
begin
  select settings.* into v_settings from public.crawl_settings as settings;

  for v_next in
    with recursive waiting as (
      (
        select job.host
        from public.crawl_jobs as job
        where job.status = 'pending'
          and job.waits_for = 'host'
        order by job.host
        limit 1
      )
      union all
      select (
        select job.host
        from public.crawl_jobs as job
        where job.status = 'pending'
          and job.waits_for = 'host'
          and job.host > waiting.host
        order by job.host
        limit 1
      )
      from waiting
      where waiting.host is not null
    )
    select waiting.host, v_settings.max_jobs_per_host - held.count as room
    from waiting
    cross join lateral (
      select count(*) as count
      from public.crawl_jobs as holder
      where holder.host = waiting.host
        and holder.host_slot is not null
    ) as held
    where waiting.host is not null
      and held.count < v_settings.max_jobs_per_host
    limit p_limit
  loop
    -- Whoever decides about it now calls the next one, too; never wait while holding others.
    continue when not pg_try_advisory_xact_lock(hashtextextended('host ' || v_next.host, 0));

    for v_nth in 1..v_next.room loop
      v_called := v_called + silkline.call_next_of_host(v_next.host);
    end loop;
  end loop;

  for v_next in
    select
      waiting.user_id,
      coalesce(v_settings.max_running_jobs_per_user, 100) - silkline.count_leases(waiting.user_id)
        as room
    from (
      select distinct job.user_id
      from public.crawl_jobs as job
      where job.status = 'pending'
        and job.waits_for = 'owner'
      limit p_limit
    ) as waiting
  loop
    continue when not pg_try_advisory_xact_lock(hashtextextended('owner ' || v_next.user_id, 0));

    for v_nth in 1..v_next.room loop
      v_called := v_called + silkline.call_next_of_owner(v_next.user_id);
    end loop;
  end loop;

  return v_called;
end
$$;

comment on function silkline.call_forgotten_jobs(integer) is
  'Put jobs back into the line whose host or owner has room.';

revoke execute on function silkline.call_forgotten_jobs(integer) from public, anon, authenticated;

-- Forget what is older than the settings keep, a bounded number of rows per call. Pages
-- stay; only their outdated versions go.
create function silkline.prune(p_limit integer)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_settings public.crawl_settings;
  v_tasks integer;
  v_jobs integer := 0;
  v_pages integer;
  v_workers integer;
begin
  select settings.* into v_settings from public.crawl_settings as settings;

  -- Frontiers first, in slices: a job goes once its own is gone.
  with old_job as materialized (
    select job.id
    from public.crawl_jobs as job
    where job.completed_at < now() - make_interval(days => v_settings.keep_ended_jobs_days)
    order by job.completed_at
    limit 100
    for update skip locked
  )
  delete from public.crawl_tasks as task
  where (task.job_id, task.url_key) in (
    select listed.job_id, listed.url_key
    from old_job
    cross join lateral (
      select doomed.job_id, doomed.url_key
      from public.crawl_tasks as doomed
      where doomed.job_id = old_job.id
      limit p_limit
    ) as listed
    limit p_limit
  );
  get diagnostics v_tasks = row_count;

  if v_tasks < p_limit then
    delete from public.crawl_jobs as job
    where job.id in (
      select old_job.id
      from public.crawl_jobs as old_job
      where old_job.completed_at < now() - make_interval(days => v_settings.keep_ended_jobs_days)
        and not exists (select from public.crawl_tasks as task where task.job_id = old_job.id)
      order by old_job.completed_at
      limit 100
      for update skip locked
    );
    get diagnostics v_jobs = row_count;
  end if;

  delete from public.crawl_pages as page
  where page.id in (
    select old_page.id
    from public.crawl_pages as old_page
    where not old_page.is_latest
      and old_page.last_seen_at
        < now() - make_interval(days => v_settings.keep_old_page_versions_days)
    order by old_page.last_seen_at
    limit p_limit
  );
  get diagnostics v_pages = row_count;

  delete from public.crawl_workers as worker
  where worker.last_seen_at < now() - interval '7 days';
  get diagnostics v_workers = row_count;

  return jsonb_build_object(
    'tasks', v_tasks,
    'jobs', v_jobs,
    'page_versions', v_pages,
    'workers', v_workers
  );
end
$$;

comment on function silkline.prune(integer) is
  'Delete what the retention settings no longer keep; a bounded number of rows per call.';

revoke execute on function silkline.prune(integer) from public, anon, authenticated;

-- Everything that has to happen now and then, in one call: pg_cron makes it each minute,
-- and where pg_cron is absent anybody with the service key may.
-- definer because the service writes no table
create function public.maintain_crawl_queue()
  returns jsonb
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_reaped integer;
begin
  select count(*) into v_reaped from public.reap_crawl_jobs(1000);

  return silkline.prune(10000)
    || jsonb_build_object('reaped', v_reaped, 'called_back', silkline.call_forgotten_jobs(1000));
end
$$;

comment on function public.maintain_crawl_queue() is
  'Reap, call back and prune; each a bounded amount per call.';

revoke execute on function public.maintain_crawl_queue() from public, anon, authenticated;
grant execute on function public.maintain_crawl_queue() to service_role;

-- Is everything as it should be? One row per check, with what to do about it.
-- definer because the catalogs of cron are not the service's to read
create function public.crawl_doctor()
  returns table (check_name text, status text, detail text, hint text)
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_settings public.crawl_settings;
  v_count bigint;
  v_text text;
  v_time timestamptz;
  v_bytes bigint;
begin
  select settings.* into v_settings from public.crawl_settings as settings;

  check_name := 'cron';
  hint := 'Enable pg_cron (Database > Extensions) and run the last migration again, or call maintain_crawl_queue each minute.';
  if to_regclass('cron.job') is null then
    status := 'warning';
    detail := 'pg_cron is not installed: silent workers are noticed only when somebody claims';
  else
    select count(*) into v_count from cron.job as job where job.jobname = 'silkline-maintain' and job.active;
    select max(run.start_time), max(run.return_message) filter (where run.status = 'failed')
    into v_time, v_text
    from cron.job_run_details as run
    join cron.job as job
      on job.jobid = run.jobid
    where job.jobname = 'silkline-maintain'
      and run.start_time > now() - interval '10 minutes';
    status := case when v_count = 0 or v_text is not null then 'error' when v_time is null then 'warning' else 'ok' end;
    detail := case
      when v_count = 0 then 'the job silkline-maintain is not scheduled'
      when v_text is not null then 'silkline-maintain failed: ' || v_text
      when v_time is null then 'silkline-maintain has not run in the last 10 minutes'
      else 'silkline-maintain last ran at ' || v_time
    end;
  end if;
  return next;

  check_name := 'leases';
  hint := 'Call reap_crawl_jobs, and see why pg_cron or the workers do not.';
  select count(*)
  into v_count
  from public.crawl_jobs as job
  where job.lease_check_at < now() - make_interval(secs => v_settings.stale_after_seconds + 60);
  status := case when v_count = 0 then 'ok' else 'error' end;
  detail := format('%s leases are long overdue', v_count);
  return next;

  check_name := 'workers';
  hint := 'Start a worker: silkline worker.';
  v_text := silkline.fleet_counts() ->> 'live';
  select count(*)
  into v_count
  from (
    select
    from public.crawl_jobs as job
    where job.status = 'pending'
      and job.waits_for is null
    limit 1000
  ) as line;
  status := case when v_text = '0' and v_count > 0 then 'error' else 'ok' end;
  detail := format('%s live workers, %s%s jobs in line', v_text, case when v_count = 1000 then 'over ' else '' end, v_count);
  return next;

  check_name := 'line';
  hint := 'Call maintain_crawl_queue.';
  select count(*)
  into v_count
  from (
    select
    from public.crawl_jobs as job
    where job.status = 'pending'
      and (
        (job.waits_for = 'time' and job.run_after < now() - interval '5 minutes')
        or (
          job.waits_for = 'host'
          and not exists (
            select
            from public.crawl_jobs as other
            where other.host = job.host
              and other.host_slot is not null
          )
          and not exists (
            select
            from public.crawl_jobs as other
            where other.host = job.host
              and other.status = 'pending'
              and other.waits_for is null
          )
        )
      )
    limit 1000
  ) as stuck;
  status := case when v_count = 0 then 'ok' else 'error' end;
  detail := format('%s jobs wait for nothing', v_count);
  return next;

  check_name := 'grants';
  hint := 'Run the migrations again: a grant was added by hand.';
  select count(*), string_agg(function.oid::regprocedure::text, ', ')
  into v_count, v_text
  from pg_catalog.pg_proc as function
  where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
    and (function.proname like '%crawl%' or function.pronamespace = 'silkline'::regnamespace)
    and has_function_privilege('anon', function.oid, 'execute');
  status := case when v_count = 0 then 'ok' else 'error' end;
  detail := coalesce('anybody may execute ' || v_text, 'no function is open to anonymous callers');
  return next;

  check_name := 'row_level_security';
  hint := 'alter table … enable row level security';
  select count(*), string_agg(relation.relname, ', ')
  into v_count, v_text
  from pg_catalog.pg_class as relation
  where relation.relnamespace = 'public'::regnamespace
    and relation.relkind = 'r'
    and relation.relname like 'crawl\_%'
    and not relation.relrowsecurity;
  status := case when v_count = 0 then 'ok' else 'error' end;
  detail := coalesce('it is off for ' || v_text, 'on for every table');
  return next;

  check_name := 'realtime';
  hint := 'Connect a client to Realtime once; it makes the partitions. Until then screens poll.';
  if to_regclass('realtime.messages') is null then
    status := 'warning';
    detail := 'there is no realtime.messages: nothing is live';
  else
    status := case
      when to_regclass(format('realtime.messages_%s', to_char(now() at time zone 'utc', 'YYYY_MM_DD'))) is null
        then 'warning'
      else 'ok'
    end;
    detail := case status when 'ok' then 'today''s partition exists' else 'realtime.messages has no partition for today' end;
  end if;
  return next;

  check_name := 'bloat';
  hint := 'See what holds autovacuum back: long transactions, replication slots.';
  select stats.n_dead_tup, format('%s dead of %s rows', stats.n_dead_tup, stats.n_dead_tup + stats.n_live_tup)
  into v_count, v_text
  from pg_catalog.pg_stat_user_tables as stats
  where stats.relid = 'public.crawl_jobs'::regclass
    and stats.n_dead_tup > 50000 + stats.n_live_tup;
  status := case when v_count is null then 'ok' else 'warning' end;
  detail := coalesce(v_text, 'crawl_jobs is vacuumed');
  return next;

  check_name := 'cron_history';
  hint := 'Run the last migration again: it schedules silkline-forget-cron-history.';
  v_bytes := pg_total_relation_size(to_regclass('cron.job_run_details'));
  status := case when v_bytes > 100000000 then 'warning' else 'ok' end;
  detail := coalesce(pg_size_pretty(v_bytes) || ' of cron.job_run_details', 'pg_cron is not installed');
  return next;
end
$$;

comment on function public.crawl_doctor() is
  'Check the health of the queue; one row per check.';

revoke execute on function public.crawl_doctor() from public, anon, authenticated;
grant execute on function public.crawl_doctor() to service_role;

-- Schedule with pg_cron where it can be had; elsewhere say so and go on. Minutes, not
-- seconds: older pg_cron knows no others, and claims reap in passing anyway.
do $$
begin
  if not exists (
    select from pg_catalog.pg_available_extensions as extension where extension.name = 'pg_cron'
  ) then
    raise notice 'pg_cron is not available here: call maintain_crawl_queue each minute instead';
    return;
  end if;

  begin
    create extension if not exists pg_cron with schema pg_catalog;
  exception
    when others then
      raise notice 'pg_cron cannot be installed here (%): call maintain_crawl_queue each minute instead', sqlerrm;
      return;
  end;

  perform cron.schedule(
    'silkline-maintain',
    '* * * * *',
    'select public.maintain_crawl_queue()'
  );
  perform cron.schedule(
    'silkline-forget-cron-history',
    '17 3 * * *',
    $sql$delete from cron.job_run_details where end_time < now() - interval '7 days'$sql$
  );
end
$$;

-- Health checks of the installation.

-- One row per check, with what to do if it fails.
-- definer because service_role may not read the tables of pg_cron
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
  hint := 'Enable pg_cron (Database > Extensions) and schedule silkline-maintain as the migration '
    || 'crawl_maintenance does, or call maintain_crawl_queue each minute.';
  if to_regclass('cron.job') is null then
    select maintenance.ran_at
    into v_time
    from silkline.maintenance as maintenance
    where maintenance.ran_at > now() - interval '10 minutes';

    status := case when v_time is null then 'warning' else 'ok' end;
    detail := case
      when v_time is null
        then 'pg_cron is not installed: silent workers are noticed only when another worker claims'
      else 'pg_cron is not installed; maintain_crawl_queue was called at ' || v_time
    end;
  else
    select count(*)
    into v_count
    from cron.job as job
    where job.jobname = 'silkline-maintain'
      and job.active;

    select max(run.start_time), max(run.return_message) filter (where run.status = 'failed')
    into v_time, v_text
    from cron.job_run_details as run
    join cron.job as job
      on job.jobid = run.jobid
    where job.jobname = 'silkline-maintain'
      and run.start_time > now() - interval '10 minutes';

    status := case
      when v_count = 0 or v_text is not null then 'error'
      when v_time is null then 'warning'
      else 'ok'
    end;
    detail := case
      when v_count = 0 then 'the job silkline-maintain is not scheduled'
      when v_text is not null then 'silkline-maintain failed: ' || v_text
      when v_time is null then 'silkline-maintain has not run in the last 10 minutes'
      else 'silkline-maintain last ran at ' || v_time
    end;
  end if;
  return next;

  check_name := 'leases';
  hint := 'Call reap_crawl_jobs, and find out why neither pg_cron nor a worker does.';
  select count(*)
  into v_count
  from silkline.jobs as job
  where job.lease_check_at < now() - make_interval(secs => v_settings.stale_after_seconds + 60);
  status := case when v_count = 0 then 'ok' else 'error' end;
  detail := format('%s overdue', v_count);
  return next;

  check_name := 'workers';
  hint := 'Start a worker with: silkline worker.';
  v_text := silkline.worker_counts() ->> 'live';
  select count(*)
  into v_count
  from (
    select
    from silkline.jobs as job
    where job.status = 'pending'
      and job.waits_for is null
    limit 1000
  ) as line;
  status := case when v_text = '0' and v_count > 0 then 'error' else 'ok' end;
  detail := format(
    '%s live; jobs in line: %s%s',
    v_text,
    case when v_count = 1000 then 'at least ' else '' end,
    v_count
  );
  return next;

  check_name := 'stuck_jobs';
  hint := 'Call maintain_crawl_queue.';
  select count(*)
  into v_count
  from (
    select
    from silkline.jobs as job
    where job.status = 'pending'
      and (
        (job.waits_for = 'time' and job.run_after < now() - interval '5 minutes')
        or (
          job.waits_for = 'host'
          and not exists (
            select
            from silkline.jobs as other
            where other.host = job.host
              and other.host_slot is not null
          )
          and not exists (
            select
            from silkline.jobs as other
            where other.host = job.host
              and other.status = 'pending'
              and other.waits_for is null
          )
        )
      )
    limit 1000
  ) as stuck;
  status := case when v_count = 0 then 'ok' else 'error' end;
  detail := format('%s waiting without a reason', v_count);
  return next;

  check_name := 'grants';
  hint := 'Someone added a grant: revoke execute on function … from public, anon.';
  select count(*), string_agg(function.oid::regprocedure::text, ', ')
  into v_count, v_text
  from pg_catalog.pg_proc as function
  where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
    and (
      function.proname ~ '_crawl_(jobs?|work|workers|queue)$'
      or function.proname in ('crawl_progress', 'crawl_queue_stats', 'crawl_doctor')
      or function.pronamespace = 'silkline'::regnamespace
    )
    and has_function_privilege('anon', function.oid, 'execute');
  status := case when v_count = 0 then 'ok' else 'error' end;
  detail := coalesce('anyone may execute ' || v_text, 'no function is open to anonymous callers');
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
  detail := coalesce('off for ' || v_text, 'on for every table');
  return next;

  check_name := 'realtime';
  hint := 'Connect a client to Realtime once: it creates the partitions. Until then, clients poll.';
  if to_regclass('realtime.messages') is null then
    status := 'warning';
    detail := 'realtime.messages does not exist: no live messages are sent';
  else
    status := case
      when to_regclass(
        format('realtime.messages_%s', to_char(now() at time zone 'utc', 'YYYY_MM_DD'))
      ) is null
        then 'warning'
      else 'ok'
    end;
    detail := case status
      when 'ok' then 'today''s partition exists'
      else 'realtime.messages has no partition for today'
    end;
  end if;
  return next;

  check_name := 'bloat';
  hint := 'Find what holds autovacuum back: long transactions, replication slots.';
  select
    stats.n_dead_tup,
    format(
      '%s of %s rows in crawl_jobs are dead',
      stats.n_dead_tup, stats.n_dead_tup + stats.n_live_tup
    )
  into v_count, v_text
  from pg_catalog.pg_stat_user_tables as stats
  where stats.relid = 'silkline.jobs'::regclass
    and stats.n_dead_tup > 50000 + stats.n_live_tup;
  status := case when v_count is null then 'ok' else 'warning' end;
  detail := coalesce(v_text, 'crawl_jobs has few dead rows');
  return next;

  check_name := 'cron_history';
  hint := 'Schedule silkline-prune-cron-history as the migration crawl_maintenance does.';
  v_bytes := pg_total_relation_size(to_regclass('cron.job_run_details'));
  status := case when v_bytes > 100000000 then 'warning' else 'ok' end;
  detail := coalesce(
    'cron.job_run_details has ' || pg_size_pretty(v_bytes),
    'pg_cron is not installed'
  );
  return next;
end
$$;

comment on function public.crawl_doctor() is
  'Check the health of the queue; one row per check.';

revoke execute on function public.crawl_doctor() from public, anon, authenticated;
grant execute on function public.crawl_doctor() to service_role;

-- Health checks of the installation: one row per check, with what to do if it fails. Each reads a
-- bounded number of rows.

create type silkline.finding as (
  check_name text,
  status text,  -- ok | warning | error
  detail text,
  hint text
);

-- Whether all parts of maintenance run.
create function silkline.check_schedule()
  returns setof silkline.finding
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  c_jobs constant text[] := array[
    'silkline-reap',
    'silkline-unblock',
    'silkline-prune',
    'silkline-sweep',
    'silkline-prune-cron-history'
  ];
  v_finding silkline.finding;
  v_missing text;
  v_late text;
  v_message text;
  v_bytes bigint;
begin
  select string_agg(maintenance.part, ', ' order by maintenance.part)
  into v_late
  from silkline.maintenance as maintenance
  where maintenance.ran_at < now() - interval '10 minutes';

  v_finding.check_name := 'cron';
  v_finding.hint := 'Enable pg_cron (Database > Extensions) and schedule the jobs as the migration '
    || 'silkline_maintenance does, or call maintain_crawl_queue each minute.';

  if to_regclass('cron.job') is null then
    v_finding.status := case when v_late is null then 'ok' else 'warning' end;
    v_finding.detail := case
      when v_late is null then 'pg_cron is not installed; maintain_crawl_queue is called instead'
      else 'pg_cron is not installed: silent workers are noticed only when another worker claims'
    end;
    return next v_finding;
  else
    select string_agg(wanted.name, ', ')
    into v_missing
    from unnest(c_jobs) as wanted (name)
    where not exists (
      select
      from cron.job as job
      where job.jobname = wanted.name
        and job.active
    );

    -- What pg_cron says of a run that never reached the queue. The table has no index but its key.
    select format(' (%s: %s)', job.jobname, run.return_message)
    into v_message
    from (
      select listed.jobid, listed.status, listed.return_message
      from cron.job_run_details as listed
      order by listed.runid desc
      limit 1000
    ) as run
    join cron.job as job
      on job.jobid = run.jobid
    where job.jobname = any (c_jobs)
      and run.status = 'failed'
    limit 1;

    v_finding.status := case
      when v_missing is not null then 'error'
      when v_late is not null then 'warning'
      else 'ok'
    end;
    v_finding.detail := case
      when v_missing is not null then 'not scheduled: ' || v_missing
      when v_late is not null
        then format('not run in the last 10 minutes: %s%s', v_late, v_message)
      else 'all parts of maintenance ran in the last 10 minutes'
    end;
    return next v_finding;
  end if;

  v_finding.check_name := 'maintenance';
  v_finding.hint := 'Put right what the error says; the part runs again within a minute.';
  select string_agg(
    format('%s failed at %s: %s', maintenance.part, maintenance.ran_at, maintenance.error),
    '; '
    order by maintenance.part
  )
  into v_message
  from silkline.maintenance as maintenance
  where maintenance.error is not null;
  v_finding.status := case when v_message is null then 'ok' else 'error' end;
  v_finding.detail := coalesce(v_message, 'no part failed when it last ran');
  return next v_finding;

  v_finding.check_name := 'cron_history';
  v_finding.hint :=
    'Schedule silkline-prune-cron-history as the migration silkline_maintenance does.';
  v_bytes := pg_total_relation_size(to_regclass('cron.job_run_details'));
  v_finding.status := case when v_bytes > 100000000 then 'warning' else 'ok' end;
  v_finding.detail := coalesce(
    'cron.job_run_details has ' || pg_size_pretty(v_bytes),
    'pg_cron is not installed'
  );
  return next v_finding;
end
$$;

comment on function silkline.check_schedule() is
  'Whether maintenance is scheduled, runs and succeeds.';

revoke execute on function silkline.check_schedule() from public, anon, authenticated;

-- Jobs whose counters differ from their URLs, among the newest jobs that have 50,000 URLs together.
create function silkline.wrong_counters()
  returns uuid[]
  language plpgsql
  stable
  security invoker
  set search_path = ''
  set plan_cache_mode = 'force_custom_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
begin
  return array(
    with newest as (
      select
        state.*,
        state.total_pending + state.total_in_progress + state.total_done + state.total_error
          + state.total_skipped as total
      from (
        select job.id
        from silkline.jobs as job
        order by job.id desc
        limit 1000
      ) as listed
      join silkline.states as state
        on state.job_id = listed.id
    ),
    sampled as (
      select
        newest.*,
        sum(newest.total) over (order by newest.total, newest.job_id) as running_total
      from newest
    )
    select sampled.job_id
    from sampled
    cross join lateral (
      select
        count(*) filter (where task.status = 'pending') as pending,
        count(*) filter (where task.status = 'in_progress') as in_progress,
        count(*) filter (where task.status = 'done') as done,
        count(*) filter (where task.status = 'error') as error,
        count(*) filter (where task.status = 'skipped') as skipped
      from (
        select listed.status
        from silkline.tasks as listed
        where listed.job_id = sampled.job_id
        limit sampled.total + 1
      ) as task
    ) as counted
    where sampled.running_total <= 50000
      and (
        sampled.total_pending,
        sampled.total_in_progress,
        sampled.total_done,
        sampled.total_error,
        sampled.total_skipped
      ) is distinct from (
        counted.pending,
        counted.in_progress,
        counted.done,
        counted.error,
        counted.skipped
      )
  );
end
$$;

comment on function silkline.wrong_counters() is
  'Jobs whose counters differ from their URLs, among a sample.';

revoke execute on function silkline.wrong_counters() from public, anon, authenticated;

-- Jobs that wait without a reason: past their time, or for a host that no job occupies or is next
-- on. Looks at up to 1,000 of each.
create function silkline.count_stuck_jobs()
  returns bigint
  language plpgsql
  stable
  security invoker
  set search_path = ''
  set plan_cache_mode = 'force_custom_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
begin
  return (
    with recursive waiting as (
      (
        select job.host, 1 as nth
        from silkline.jobs as job
        where job.status = 'pending'
          and job.waits_for = 'host'
        order by job.host
        limit 1
      )
      union all
      select next.host, waiting.nth + 1
      from waiting
      cross join lateral (
        select job.host
        from silkline.jobs as job
        where job.status = 'pending'
          and job.waits_for = 'host'
          and job.host > waiting.host
        order by job.host
        limit 1
      ) as next
      where waiting.nth < 1000
    ),
    overdue as (
      select
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for = 'time'
        and job.run_after < now() - interval '5 minutes'
      limit 1000
    )
    select (select count(*) from overdue) + count(*)
    from waiting
    where not exists (
      select
      from silkline.jobs as other
      where other.host = waiting.host
        and other.host_slot is not null
    )
    and not exists (
      select
      from silkline.jobs as other
      where other.host = waiting.host
        and other.status = 'pending'
        and other.waits_for is null
    )
  );
end
$$;

comment on function silkline.count_stuck_jobs() is
  'How many jobs wait without a reason.';

revoke execute on function silkline.count_stuck_jobs() from public, anon, authenticated;

-- Whether the queue moves, and its counters are right.
create function silkline.check_queue()
  returns setof silkline.finding
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_finding silkline.finding;
  v_settings public.crawl_settings;
  v_count bigint;
  v_text text;
  v_job_ids uuid[];
begin
  select settings.* into v_settings from public.crawl_settings as settings;

  v_finding.check_name := 'leases';
  v_finding.hint := 'Call reap_crawl_jobs, and find out why neither pg_cron nor a worker does.';
  select count(*)
  into v_count
  from silkline.jobs as job
  where job.lease_check_at < now() - make_interval(secs => v_settings.stale_after_seconds + 60);
  v_finding.status := case when v_count = 0 then 'ok' else 'error' end;
  v_finding.detail := format('%s overdue', v_count);
  return next v_finding;

  v_finding.check_name := 'workers';
  v_finding.hint := 'Start a worker with: silkline worker.';
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
  v_finding.status := case when v_text = '0' and v_count > 0 then 'error' else 'ok' end;
  v_finding.detail := format(
    '%s live; jobs in line: %s%s',
    v_text,
    case when v_count = 1000 then 'at least ' else '' end,
    v_count
  );
  return next v_finding;

  v_finding.check_name := 'stuck_jobs';
  v_finding.hint := 'Call maintain_crawl_queue.';
  v_count := silkline.count_stuck_jobs();
  v_finding.status := case when v_count = 0 then 'ok' else 'error' end;
  v_finding.detail := format('%s waiting without a reason', v_count);
  return next v_finding;

  v_finding.check_name := 'counters';
  v_finding.hint := 'This is a bug of the queue: report it with the history of the job.';
  v_job_ids := silkline.wrong_counters();
  v_finding.status := case when v_job_ids = '{}' then 'ok' else 'error' end;
  v_finding.detail := case
    when v_job_ids = '{}' then 'the counters of the newest jobs equal their URLs'
    else format(
      '%s jobs have counters that differ from their URLs, such as %s',
      cardinality(v_job_ids), v_job_ids[1]
    )
  end;
  return next v_finding;

  v_finding.check_name := 'deleted';
  v_finding.hint := 'See the checks cron and maintenance: the part sweep deletes these rows.';
  select
    (
      select count(*)
      from (
        select
        from silkline.deleted_jobs as deleted
        where deleted.deleted_at < now() - interval '1 hour'
        limit 1000
      ) as job
    ) + (
      select count(*)
      from silkline.deleted_accounts as account
      where account.deleted_at < now() - interval '1 hour'
        and (
          exists (select from silkline.jobs as job where job.owner_id = account.owner_id)
          or exists (select from public.crawl_pages as page where page.owner_id = account.owner_id)
        )
    )
  into v_count;
  v_finding.status := case when v_count = 0 then 'ok' else 'warning' end;
  v_finding.detail := format('%s jobs and accounts were deleted an hour ago and not swept', v_count);
  return next v_finding;

  v_finding.check_name := 'bloat';
  v_finding.hint := 'Find what holds autovacuum back: long transactions, replication slots.';
  select format(
    '%s of %s rows in silkline.jobs are dead',
    stats.n_dead_tup, stats.n_dead_tup + stats.n_live_tup
  )
  into v_text
  from pg_catalog.pg_stat_user_tables as stats
  where stats.relid = 'silkline.jobs'::regclass
    and stats.n_dead_tup > 50000 + stats.n_live_tup;
  v_finding.status := case when v_text is null then 'ok' else 'warning' end;
  v_finding.detail := coalesce(v_text, 'silkline.jobs has few dead rows');
  return next v_finding;
end
$$;

comment on function silkline.check_queue() is
  'Whether jobs move, and their counters are right.';

revoke execute on function silkline.check_queue() from public, anon, authenticated;

-- Whether the rights, triggers and policies are as the migrations left them.
create function silkline.check_rights()
  returns setof silkline.finding
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_finding silkline.finding;
  v_text text;
begin
  v_finding.check_name := 'grants';
  v_finding.hint := 'Someone added a grant: revoke all on … from public, anon.';
  select string_agg(opened.name, ', ' order by opened.name)
  into v_text
  from (
    select function.oid::regprocedure::text as name
    from pg_catalog.pg_proc as function
    where (
        function.pronamespace = 'silkline'::regnamespace
        or (function.pronamespace = 'public'::regnamespace and function.proname ~ '(^|_)crawl_')
      )
      and has_function_privilege('anon', function.oid, 'execute')
    union all
    select relation.oid::regclass::text
    from pg_catalog.pg_class as relation
    where (
        relation.relnamespace = 'silkline'::regnamespace
        or (relation.relnamespace = 'public'::regnamespace and relation.relname like 'crawl\_%')
      )
      and case
        when relation.relkind in ('r', 'p', 'v', 'm')
          then has_any_column_privilege('anon', relation.oid, 'select, insert, update, references')
            or has_table_privilege('anon', relation.oid, 'delete, truncate, trigger')
        when relation.relkind = 'S'
          then has_sequence_privilege('anon', relation.oid, 'usage, select, update')
      end
  ) as opened;
  v_finding.status := case when v_text is null then 'ok' else 'error' end;
  v_finding.detail := coalesce(
    'open to anonymous callers: ' || v_text,
    'nothing is open to anonymous callers'
  );
  return next v_finding;

  v_finding.check_name := 'row_level_security';
  v_finding.hint := 'alter table … enable row level security, '
    || 'alter view … set (security_invoker = true)';
  select string_agg(relation.oid::regclass::text, ', ' order by relation.oid::regclass::text)
  into v_text
  from pg_catalog.pg_class as relation
  where (
      relation.relnamespace = 'silkline'::regnamespace
      or (relation.relnamespace = 'public'::regnamespace and relation.relname like 'crawl\_%')
    )
    and case
      when relation.relkind in ('r', 'p') then not relation.relrowsecurity
      when relation.relkind = 'v'
        then not coalesce('security_invoker=true' = any (relation.reloptions), false)
    end;
  v_finding.status := case when v_text is null then 'ok' else 'error' end;
  v_finding.detail := coalesce('off for ' || v_text, 'on for every table and view');
  return next v_finding;

  v_finding.check_name := 'accounts';
  v_finding.hint := 'Create the trigger again as the migration silkline_jobs does.';
  v_finding.status := case
    when exists (
      select
      from pg_catalog.pg_trigger as trigger
      where trigger.tgrelid = 'auth.users'::regclass
        and trigger.tgname = 'tg_silkline_remember_deleted_account'
        and trigger.tgenabled in ('O', 'A')
    )
      then 'ok'
    else 'error'
  end;
  v_finding.detail := case v_finding.status
    when 'ok' then 'the jobs and pages of deleted accounts are deleted'
    else 'no trigger on auth.users: the jobs and pages of deleted accounts stay'
  end;
  return next v_finding;

  v_finding.check_name := 'realtime';
  v_finding.hint := 'Until this is put right, browsers and workers poll. Create the policies as the '
    || 'migration silkline_realtime does, or connect a client once: that creates the partitions.';
  v_finding.status := 'warning';
  v_finding.detail := case
    when to_regclass('realtime.messages') is null
      then 'realtime.messages does not exist: no live messages are sent'
    when (
      select count(*)
      from pg_catalog.pg_policy as policy
      where policy.polrelid = to_regclass('realtime.messages')
        and policy.polname in (
          'Users receive messages about their own jobs',
          'Workers receive wake-ups and commands'
        )
    ) < 2
      then 'realtime.messages lacks the policies of the queue: no one may listen'
    when to_regclass(
      format('realtime.messages_%s', to_char(now() at time zone 'utc', 'YYYY_MM_DD'))
    ) is null
      then 'realtime.messages has no partition for today: no live messages are sent'
  end;
  if v_finding.detail is null then
    v_finding.status := 'ok';
    v_finding.detail := 'the policies and today''s partition exist';
  end if;
  return next v_finding;
end
$$;

comment on function silkline.check_rights() is
  'Whether rights, triggers and policies are as the migrations left them.';

revoke execute on function silkline.check_rights() from public, anon, authenticated;

-- definer because service_role may not read the tables of pg_cron
create function public.crawl_doctor()
  returns table (check_name text, status text, detail text, hint text)
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
begin
  return query select * from silkline.check_schedule();
  return query select * from silkline.check_queue();
  return query select * from silkline.check_rights();
end
$$;

comment on function public.crawl_doctor() is
  'Check the health of the queue; one row per check.';

revoke execute on function public.crawl_doctor() from public, anon, authenticated;
grant execute on function public.crawl_doctor() to service_role;

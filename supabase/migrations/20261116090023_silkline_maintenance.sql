-- Maintenance: retention, overlooked jobs, and their schedule in pg_cron.

-- Put jobs back in line that wait for a host or owner below its limit. Triggers do this when a
-- lease ends; this finds what they cannot see: raised limits and deleted jobs.
create function silkline.unblock_overlooked_jobs(p_limit integer)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_settings public.crawl_settings;
  v_next record;
  v_unblocked integer := 0;
begin
  select settings.* into v_settings from public.crawl_settings as settings;

  for v_next in
    with recursive waiting as (
      (
        select job.host
        from silkline.jobs as job
        where job.status = 'pending'
          and job.waits_for = 'host'
        order by job.host
        limit 1
      )
      union all
      select (
        select job.host
        from silkline.jobs as job
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
      from silkline.jobs as holder
      where holder.host = waiting.host
        and holder.host_slot is not null
    ) as held
    where waiting.host is not null
      and held.count < v_settings.max_jobs_per_host
    limit p_limit
  loop
    -- The call that holds the lock unblocks the next job itself. Never wait while holding others.
    continue when not silkline.try_lock('host', v_next.host);
    v_unblocked := v_unblocked + silkline.unblock_next_for_host(v_next.host, v_next.room::integer);
  end loop;

  for v_next in
    select
      waiting.owner_id,
      coalesce(v_settings.max_running_jobs_per_user, 100) - silkline.count_leases(waiting.owner_id)
        as room
    from (
      select distinct job.owner_id
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for = 'owner'
      limit p_limit
    ) as waiting
  loop
    continue when not silkline.try_lock('owner', v_next.owner_id::text);
    v_unblocked := v_unblocked
      + silkline.unblock_next_for_owner(v_next.owner_id, greatest(v_next.room, 0)::integer);
  end loop;

  return v_unblocked;
end
$$;

comment on function silkline.unblock_overlooked_jobs(integer) is
  'Put jobs back in line whose host or owner is below its limit.';

revoke execute on function silkline.unblock_overlooked_jobs(integer)
  from public, anon, authenticated;

-- Delete what is older than the settings allow, a bounded number of rows per call. The latest
-- version of each page stays; only outdated versions go.
create function silkline.prune(p_limit integer)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_settings public.crawl_settings;
  v_job_ids uuid[];
  v_tasks integer;
  v_jobs integer := 0;
  v_pages integer;
  v_hosts integer;
  v_workers integer;
begin
  select settings.* into v_settings from public.crawl_settings as settings;

  -- Tasks first, in slices: a job is deleted once its tasks are gone. Arrays, because a subquery
  -- may run once per row and would then find other rows each time.
  v_job_ids := array(
    select job.id
    from silkline.jobs as job
    where job.completed_at < now() - make_interval(days => v_settings.keep_ended_jobs_days)
    order by job.completed_at
    limit p_limit / 10
    for update skip locked
  );

  delete from silkline.tasks as task
  where task.ctid = any (
    array(
      select doomed.ctid
      from unnest(v_job_ids) as job (id)
      cross join lateral (
        select listed.ctid
        from silkline.tasks as listed
        where listed.job_id = job.id
        limit p_limit
      ) as doomed
      limit p_limit
    )
  );
  get diagnostics v_tasks = row_count;

  if v_tasks < p_limit then
    delete from silkline.jobs as job
    where job.id = any (v_job_ids);
    get diagnostics v_jobs = row_count;
  end if;

  delete from public.crawl_pages as page
  where page.id = any (
    array(
      select outdated.id
      from public.crawl_pages as outdated
      where not outdated.is_latest
        and outdated.last_seen_at
          < now() - make_interval(days => v_settings.keep_old_page_versions_days)
      order by outdated.last_seen_at
      limit p_limit
    )
  );
  get diagnostics v_pages = row_count;

  delete from public.crawl_hosts as host
  where host.host = any (
    array(
      select unused.host
      from public.crawl_hosts as unused
      where unused.updated_at < now() - make_interval(days => v_settings.keep_ended_jobs_days)
      order by unused.updated_at
      limit p_limit
    )
  );
  get diagnostics v_hosts = row_count;

  delete from public.crawl_workers as worker
  where worker.last_seen_at < now() - interval '7 days';
  get diagnostics v_workers = row_count;

  return jsonb_build_object(
    'tasks', v_tasks,
    'jobs', v_jobs,
    'page_versions', v_pages,
    'hosts', v_hosts,
    'workers', v_workers
  );
end
$$;

comment on function silkline.prune(integer) is
  'Delete what is past its retention time; a bounded number of rows per call.';

revoke execute on function silkline.prune(integer) from public, anon, authenticated;

-- When maintenance last ran, called by pg_cron, the local stack or an operator.
create table silkline.maintenance (
  id boolean primary key default true,
  ran_at timestamptz not null,
  done jsonb not null,
  constraint maintenance_is_one_row check (id)
);
alter table silkline.maintenance enable row level security;

comment on table silkline.maintenance is 'When maintain_crawl_queue last ran, and what it did.';

create policy "Only the service reads maintenance"
  on silkline.maintenance
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on silkline.maintenance from anon, authenticated, service_role;
grant select on silkline.maintenance to service_role;

-- All maintenance in one call. pg_cron makes it each minute; without pg_cron, anyone with the
-- secret key can.
-- definer because service_role has no rights to write
create function public.maintain_crawl_queue()
  returns jsonb
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_pruned constant jsonb := silkline.prune(10000);
  v_unblocked constant integer := silkline.unblock_overlooked_jobs(1000);
  v_done jsonb;
begin
  -- Reaping comes last: it locks running jobs, and their workers should not wait for the rest.
  v_done := v_pruned || jsonb_build_object(
    'unblocked', v_unblocked,
    'reaped', (select count(*) from public.reap_crawl_jobs(1000))
  );

  insert into silkline.maintenance (ran_at, done)
  values (now(), v_done)
  on conflict (id) do update
  set ran_at = excluded.ran_at,
    done = excluded.done;

  return v_done;
end
$$;

comment on function public.maintain_crawl_queue() is
  'Prune, unblock overlooked jobs, and reap; each a bounded amount per call.';

revoke execute on function public.maintain_crawl_queue() from public, anon, authenticated;
grant execute on function public.maintain_crawl_queue() to service_role;

-- Schedule with pg_cron if it is available, otherwise print a notice. Each minute, because older
-- versions of pg_cron have no seconds, and claims reap anyway.
do $$
begin
  if not exists (
    select from pg_catalog.pg_available_extensions as extension where extension.name = 'pg_cron'
  ) then
    raise notice 'pg_cron is not available: call maintain_crawl_queue each minute instead';
    return;
  end if;

  begin
    create extension if not exists pg_cron with schema pg_catalog;
  exception
    when others then
      raise notice
        'could not install pg_cron (%): call maintain_crawl_queue each minute instead',
        sqlerrm;
      return;
  end;

  perform cron.schedule(
    'silkline-maintain',
    '* * * * *',
    'select public.maintain_crawl_queue()'
  );
  perform cron.schedule(
    'silkline-prune-cron-history',
    '17 3 * * *',
    $sql$
      delete from cron.job_run_details
      where end_time < now() - interval '7 days'
        and jobid in (select jobid from cron.job where jobname like 'silkline-%')
    $sql$
  );
end
$$;

-- Maintenance: overlooked jobs, and the schedule of all that is done each minute.

-- What maintenance did last, by part.
create table silkline.maintenance (
  part text primary key,
  ran_at timestamptz not null,
  done jsonb not null default '{}',
  error text,
  position jsonb not null default '{}'
)
with (fillfactor = 50);
alter table silkline.maintenance enable row level security;

comment on table silkline.maintenance is
  'What each part of maintenance did in its last run.';
comment on column silkline.maintenance.error is
  'Why the last run failed; null if it did not.';
comment on column silkline.maintenance.position is
  'Where the next run of a part continues that does not reach everything in one.';

create policy "Only the service reads maintenance"
  on silkline.maintenance
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on silkline.maintenance from anon, authenticated, service_role;
grant select on silkline.maintenance to service_role;

insert into silkline.maintenance (part, ran_at)
select part, '-infinity'
from unnest(array['reap', 'unblock', 'prune', 'sweep']) as part;

-- Put jobs back in line that wait for a host below its limit, p_hosts hosts per call. Calls that
-- end a lease do this for its host; this finds what they cannot see: raised limits, and jobs that
-- were deleted while another call had locked their host. Returns how many jobs it was.
create function silkline.unblock_overlooked_hosts(p_hosts integer)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  c_most_locks constant integer := 1000;
  v_settings public.crawl_settings;
  v_host text := (
    select maintenance.position ->> 'host'
    from silkline.maintenance as maintenance
    where maintenance.part = 'unblock'
  );
  v_room integer;
  v_locks integer := 0;
  v_unblocked integer := 0;
begin
  select settings.* into v_settings from public.crawl_settings as settings;

  for v_visit in 1..p_hosts loop
    -- The next host that a job waits for.
    v_host := (
      select job.host
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for = 'host'
        and job.host > coalesce(v_host, '')
      order by job.host
      limit 1
    );
    exit when v_host is null or v_locks = c_most_locks;

    v_room := case
      when v_host like 'list of %' then v_settings.max_lists_per_user
      else v_settings.max_jobs_per_host
    end - silkline.count_jobs_on_host(v_host) - (
      select count(*)
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for is null
        and job.host = v_host
    );

    -- A call that holds the lock unblocks the next job itself. Never wait while holding others.
    if v_room > 0 and silkline.try_lock('host', v_host) then
      v_locks := v_locks + 1;
      v_unblocked := v_unblocked + silkline.unblock_next_for_host(v_host, v_room);
    end if;
  end loop;

  update silkline.maintenance as maintenance
  set position = jsonb_set(maintenance.position, '{host}', coalesce(to_jsonb(v_host), 'null'))
  where maintenance.part = 'unblock';

  return v_unblocked;
end
$$;

comment on function silkline.unblock_overlooked_hosts(integer) is
  'Put jobs back in line whose host is below its limit.';

revoke execute on function silkline.unblock_overlooked_hosts(integer)
  from public, anon, authenticated;

-- The same for jobs that wait for their owner's limit, p_owners owners per call.
create function silkline.unblock_overlooked_owners(p_owners integer)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  c_most_jobs constant integer := 1000;
  v_limit constant integer := (
    select least(settings.max_running_jobs_per_user, c_most_jobs)
    from public.crawl_settings as settings
  );
  v_owner_id uuid := (
    select (maintenance.position ->> 'owner')::uuid
    from silkline.maintenance as maintenance
    where maintenance.part = 'unblock'
  );
  v_room integer;
  v_unblocked integer := 0;
begin
  for v_visit in 1..p_owners loop
    v_owner_id := (
      select job.owner_id
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for = 'owner'
        and job.owner_id > coalesce(v_owner_id, '00000000-0000-0000-0000-000000000000')
      order by job.owner_id
      limit 1
    );
    exit when v_owner_id is null or v_unblocked >= c_most_jobs;

    v_room := v_limit - silkline.count_leases(v_owner_id) - (
      select count(*)
      from (
        select
        from silkline.jobs as job
        where job.owner_id = v_owner_id
          and job.status = 'pending'
          and job.waits_for is null
        limit v_limit
      ) as in_line
    );

    if v_room > 0 and silkline.try_lock('owner', v_owner_id::text) then
      v_unblocked := v_unblocked + silkline.unblock_next_for_owner(v_owner_id, v_room);
    end if;
  end loop;

  update silkline.maintenance as maintenance
  set position = jsonb_set(maintenance.position, '{owner}', coalesce(to_jsonb(v_owner_id), 'null'))
  where maintenance.part = 'unblock';

  return v_unblocked;
end
$$;

comment on function silkline.unblock_overlooked_owners(integer) is
  'Put jobs back in line whose owner is below the limit.';

revoke execute on function silkline.unblock_overlooked_owners(integer)
  from public, anon, authenticated;

-- Run one part of maintenance, for about p_seconds if it can be interrupted, and record what it
-- did. A part that fails is rolled back and recorded; the others run.
create function silkline.maintain(p_part text, p_seconds double precision default 10)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_done jsonb := '{}'::jsonb;
  v_error text;
begin
  begin
    case p_part
      when 'reap' then
        v_done := jsonb_build_object('reaped', (select count(*) from public.reap_crawl_jobs(1000)));
      when 'unblock' then
        perform silkline.lower_floors();
        v_done := jsonb_build_object(
          'unblocked',
          silkline.unblock_overlooked_hosts(10000) + silkline.unblock_overlooked_owners(10000)
        );
      when 'prune' then
        v_done := jsonb_build_object('pruned', silkline.prune(p_seconds));
      when 'sweep' then
        v_done := jsonb_build_object('swept', silkline.sweep_deleted(p_seconds));
    end case;
  exception
    -- Also a timeout: what the parts before it have done must stay.
    when query_canceled or others then
      v_error := format('%s (SQLSTATE %s)', sqlerrm, sqlstate);
      raise warning 'maintenance failed to %: %', p_part, v_error;
  end;

  update silkline.maintenance as maintenance
  set
    ran_at = now(),
    done = v_done,
    error = v_error
  where maintenance.part = p_part;

  return v_done || case
    when v_error is null then '{}'
    else jsonb_build_object('failed', jsonb_build_object(p_part, v_error))
  end;
end
$$;

comment on function silkline.maintain(text, double precision) is
  'Run one part of maintenance: reap, unblock, prune or sweep.';

revoke execute on function silkline.maintain(text, double precision)
  from public, anon, authenticated;

-- All maintenance in one call, for a queue without pg_cron: anyone with the secret key can call it
-- each minute. It stays below the 8 seconds after which the API cuts a call.
-- definer because service_role has no rights to write
create function public.maintain_crawl_queue()
  returns jsonb
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_reaped constant jsonb := silkline.maintain('reap');
  v_unblocked constant jsonb := silkline.maintain('unblock');
  v_pruned constant jsonb := silkline.maintain('prune', 1);
  v_swept constant jsonb := silkline.maintain('sweep', 2.5);
  v_failed constant jsonb := jsonb_strip_nulls(
    coalesce(v_reaped -> 'failed', '{}')
      || coalesce(v_unblocked -> 'failed', '{}')
      || coalesce(v_pruned -> 'failed', '{}')
      || coalesce(v_swept -> 'failed', '{}')
  );
begin
  return v_reaped || v_unblocked || v_pruned || v_swept || jsonb_build_object('failed', v_failed);
end
$$;

comment on function public.maintain_crawl_queue() is
  'Reap, unblock overlooked jobs, prune and sweep; each for a bounded time per call.';

revoke execute on function public.maintain_crawl_queue() from public, anon, authenticated;
grant execute on function public.maintain_crawl_queue() to service_role;

-- Schedule each part with pg_cron if it is available, otherwise print a notice. Each minute,
-- because older versions of pg_cron have no seconds, and claims reap anyway.
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

  perform cron.schedule('silkline-reap', '* * * * *', 'select silkline.maintain(''reap'')');
  perform cron.schedule('silkline-unblock', '* * * * *', 'select silkline.maintain(''unblock'')');
  perform cron.schedule('silkline-prune', '* * * * *', 'select silkline.maintain(''prune'')');
  perform cron.schedule('silkline-sweep', '* * * * *', 'select silkline.maintain(''sweep'')');
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

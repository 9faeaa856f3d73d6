-- The heartbeat: renews leases, registers the worker, returns the users' commands.

-- Send the progress of jobs whose last checkpoint came too soon after a message to be sent itself.
-- Its caller has renewed, and so locked, the leases that it sends for.
create function silkline.send_late_progress(p_lease_tokens uuid[])
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_late record;
begin
  for v_late in
    select job, state
    from unnest(p_lease_tokens) as asked (token)
    -- lateral and limit: see silkline.describe_tasks
    cross join lateral (
      select held.id
      from silkline.jobs as held
      where held.lease_token = asked.token
        and held.last_heartbeat = now()
      limit 1
    ) as renewed
    cross join lateral (
      select late.job_id
      from silkline.states as late
      where late.job_id = renewed.id
        and late.checkpoint_at > late.progress_sent_at
        and late.progress_sent_at <= now() - interval '1 second'
      limit 1
    ) as unsent
    join silkline.jobs as job
      on job.id = unsent.job_id
    join silkline.states as state
      on state.job_id = unsent.job_id
  loop
    update silkline.states as state
    set progress_sent_at = now()
    where state.job_id = (v_late.job).id;

    perform silkline.send_progress(v_late.job, silkline.page_counts(v_late.job, v_late.state));
  end loop;
end
$$;

comment on function silkline.send_late_progress(uuid[]) is
  'Send the live progress that the last checkpoints of these leases have not sent.';

revoke execute on function silkline.send_late_progress(uuid[]) from public, anon, authenticated;

-- Renew all leases of one worker, and return the user's command for each job.
--
-- A token that is no longer current comes back as 'lost', and nothing is written for it:
-- the worker kills that crawl. Paused, stopped and cancelled jobs are renewed too, so that
-- a worker that is still saving its last pages is not reaped meanwhile. A row that another
-- call has locked is skipped, because a checkpoint renews the lease itself. A worker that
-- sends has_ended is removed from the list.
-- definer because crawl_worker has no rights on tables
create function public.heartbeat_crawl_jobs(
  p_worker_id uuid,
  p_lease_tokens uuid[],
  p_worker jsonb default '{}'
)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security definer
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
begin
  perform silkline.check_worker_id(p_worker_id);
  perform silkline.check_lease_tokens(p_lease_tokens);

  if pg_column_size(p_worker) > 10000 then
    raise sqlstate 'PT413' using
      message = format('p_worker has %s bytes, more than 10000', pg_column_size(p_worker)),
      hint = 'Shorten its values.';
  end if;

  if jsonb_typeof(p_worker) is distinct from 'object'
    or p_worker - '{hostname,version,slots,busy_slots,kinds,can_render,has_ended}'::text[] <> '{}'
    or coalesce(jsonb_typeof(p_worker -> 'kinds'), 'array') <> 'array'
    or coalesce(p_worker -> 'slots', '0') not between '0' and '999999'
    or coalesce(p_worker -> 'busy_slots', '0') not between '0' and '999999'
    or coalesce(jsonb_typeof(p_worker -> 'can_render'), 'boolean') <> 'boolean'
    or coalesce(jsonb_typeof(p_worker -> 'has_ended'), 'boolean') <> 'boolean'
  then
    raise sqlstate 'PT422' using
      message = 'p_worker must be an object with no keys other than hostname, version, slots, '
        || 'busy_slots, kinds, can_render and has_ended',
      hint = 'slots and busy_slots are whole numbers, kinds is a list, can_render and has_ended '
        || 'are true or false.';
  end if;

  if p_worker -> 'has_ended' = 'true' then
    delete from public.crawl_workers as worker
    where worker.id = p_worker_id;
  end if;

  return query
    with present as (
      insert into public.crawl_workers as worker (
        id,
        hostname,
        version,
        slots,
        busy_slots,
        kinds,
        can_render
      )
      select
        p_worker_id,
        left(coalesce(p_worker ->> 'hostname', 'unknown'), 255),
        left(coalesce(p_worker ->> 'version', 'unknown'), 100),
        coalesce((p_worker -> 'slots')::integer, cardinality(p_lease_tokens)),
        coalesce((p_worker -> 'busy_slots')::integer, cardinality(p_lease_tokens)),
        array(
          select kind
          from jsonb_array_elements_text(coalesce(p_worker -> 'kinds', '[]')) as kind
        ),
        coalesce((p_worker -> 'can_render')::boolean, true)
      where p_worker -> 'has_ended' is distinct from 'true'
      on conflict (id) do update
      set
        hostname = excluded.hostname,
        version = excluded.version,
        slots = excluded.slots,
        busy_slots = excluded.busy_slots,
        kinds = excluded.kinds,
        can_render = excluded.can_render,
        last_seen_at = now()
    ),
    held as materialized (
      select job.id
      from silkline.jobs as job
      where job.lease_token = any (p_lease_tokens)
        and job.worker_id = p_worker_id
      for no key update skip locked
    ),
    renewed as (
      update silkline.jobs as job
      set last_heartbeat = now()
      from held
      where job.id = held.id
    )
    select
      asked.token,
      job.id,
      case when job.id is null then 'lost' else silkline.command_for(job.status) end,
      job.status
    from unnest(p_lease_tokens) as asked (token)
    left join silkline.jobs as job
      on job.lease_token = asked.token
      and job.worker_id = p_worker_id
      and (
        select account.owner_id
        from silkline.deleted_accounts as account
        where account.owner_id = job.owner_id
      ) is null;

  perform silkline.send_late_progress(p_lease_tokens);
end
$$;

comment on function public.heartbeat_crawl_jobs(uuid, uuid[], jsonb) is
  'Renew all leases of a worker, and register or remove it; returns one command per lease.';

revoke execute on function public.heartbeat_crawl_jobs(uuid, uuid[], jsonb)
  from public, anon, authenticated;
grant execute on function public.heartbeat_crawl_jobs(uuid, uuid[], jsonb)
  to service_role, crawl_worker;

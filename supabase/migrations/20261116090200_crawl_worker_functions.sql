-- The functions of a worker. worker/worker.py calls them through worker/rpc.py, in this order:
--
--   claim_crawl_jobs       take jobs; each under a random token that the worker made
--   heartbeat_crawl_jobs   every 10 s: "I am alive"; answers what the users want of each job
--   checkpoint_crawl_job   every second: results in, next URLs out (own migration)
--   complete_crawl_job     the frontier is drained
--   fail_crawl_job         the crawl broke; retried with backoff while retries are left
--   release_crawl_job      handed back: shutdown, or a pause, stop or cancel was obeyed
--   reap_crawl_jobs        leases whose worker fell silent; also at the head of each claim
--
-- The token is the idempotency key of the claim and the fence of every later write: a token
-- that is no longer current gets 'lost' and changes nothing, anywhere. A token without a
-- lease is the receipt that its own holder has ended the lease: repeating that call gets
-- the answer of the first.
--
-- All are security definer, because the role crawl_worker may execute them and touch no
-- table. Neither anon nor authenticated may execute any.

-- What the users want of a job, as an answer to its worker.
create function silkline.command_for(p_status public.crawl_job_status)
  returns text
  language sql
  immutable
  security invoker
  set search_path = ''
as $$
  select
    case p_status
      when 'paused' then 'pause'
      when 'stopped' then 'stop'
      when 'cancelled' then 'cancel'
      else 'continue'
    end;
$$;

comment on function silkline.command_for(public.crawl_job_status) is
  'The command that a job''s status means for its worker.';

revoke execute on function silkline.command_for(public.crawl_job_status)
  from public, anon, authenticated;

-- Free the URLs that a lease holds when the lease ends.
--
-- A process that died with URLs in flight makes each of them a suspect: it is leased alone
-- the next time. A suspect that takes its process down again was alone, so it is the
-- culprit: it ends as poison, and the job goes on without it. Returns how many did.
create function silkline.free_tasks(p_job_id uuid, p_is_crash boolean)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_freed integer;
  v_poison integer;
begin
  with freed as (
    update public.crawl_tasks as task
    set
      status = case when p_is_crash and task.crashes > 0 then 'error' else 'pending' end
        ::public.crawl_task_status,
      last_error = case
        when p_is_crash and task.crashes > 0
          then 'poison: its process died twice with this URL in flight'
        else task.last_error
      end,
      finished_at = case when p_is_crash and task.crashes > 0 then now() end,
      crashes = task.crashes + p_is_crash::integer,
      lease_token = null,
      lease_seq = null
    where task.job_id = p_job_id
      and task.status = 'in_progress'
    returning task.status
  )
  select
    count(*) filter (where freed.status = 'pending'),
    count(*) filter (where freed.status = 'error')
  into v_freed, v_poison
  from freed;

  if v_freed + v_poison > 0 then
    update public.crawl_states as state
    set
      total_in_progress = state.total_in_progress - v_freed - v_poison,
      total_pending = state.total_pending + v_freed,
      total_error = state.total_error + v_poison
    where state.job_id = p_job_id;
  end if;

  return v_poison;
end
$$;

comment on function silkline.free_tasks(uuid, boolean) is
  'Free the URLs in flight of a job whose lease ends; answers how many proved to be poison.';

revoke execute on function silkline.free_tasks(uuid, boolean) from public, anon, authenticated;

-- Reap leases whose worker has fallen silent; up to p_limit leases are looked at.
--
-- lease_check_at is armed at the claim and not moved by heartbeats, which therefore touch
-- no index. A lease that is due for a look but was renewed meanwhile is armed again: one
-- index write per stale_after and job, and a dead worker is still noticed on time.
create function silkline.reap_leases(p_limit integer)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_stale_after interval;
  v_job public.crawl_jobs;
  v_poison integer;
begin
  -- One reaper at a time: a second one would only wait for the rows of the first.
  if not pg_try_advisory_xact_lock(hashtextextended('silkline reaper', 0)) then
    return;
  end if;

  for v_job in
    select job.*
    from public.crawl_jobs as job
    where job.lease_check_at <= now()
    order by job.lease_check_at
    limit p_limit
    for update skip locked
  loop
    v_stale_after := coalesce(
      v_stale_after,
      (
        select make_interval(secs => settings.stale_after_seconds)
        from public.crawl_settings as settings
      )
    );

    if v_job.last_heartbeat > now() - v_stale_after then
      update public.crawl_jobs as job
      set lease_check_at = job.last_heartbeat + v_stale_after
      where job.id = v_job.id;
      continue;
    end if;

    -- A host or owner that another call is deciding about is left for the next sweep: a
    -- reaper that waited while it holds others could be waited for itself.
    continue when not pg_try_advisory_xact_lock(hashtextextended('host ' || v_job.host, 0))
      or not coalesce(
        pg_try_advisory_xact_lock(hashtextextended('owner ' || v_job.user_id, 0)),
        true
      );

    v_poison := silkline.free_tasks(v_job.id, true);
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
      place = silkline.join_place(job.user_id, job.priority, job.place),
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
  'End leases without a heartbeat; a bounded number per call.';

revoke execute on function silkline.reap_leases(integer) from public, anon, authenticated;

-- Let jobs whose time has come into the line; a bounded number per call.
create function silkline.call_due_jobs(p_limit integer)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_called integer;
begin
  update public.crawl_jobs as job
  set
    waits_for = null,
    place = silkline.join_place(job.user_id, job.priority, job.place)
  where job.id = any (
    array(
      select due.id
      from public.crawl_jobs as due
      where due.status = 'pending'
        and due.waits_for = 'time'
        and due.run_after <= now()
      order by due.run_after
      limit p_limit
      for update skip locked
    )
  );
  get diagnostics v_called = row_count;
  return v_called;
end
$$;

comment on function silkline.call_due_jobs(integer) is
  'Put jobs whose run_after has passed into the line.';

revoke execute on function silkline.call_due_jobs(integer) from public, anon, authenticated;

-- Refuse tokens that cannot be leases.
create function silkline.check_lease_tokens(p_worker_id uuid, p_lease_tokens uuid[])
  returns void
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  if p_worker_id is null then
    raise sqlstate 'PT400' using
      message = 'p_worker_id must not be null',
      hint = 'Send the uuid that this worker made at its start.';
  end if;

  if p_lease_tokens is null
    or array_ndims(p_lease_tokens) > 1
    or array_position(p_lease_tokens, null) is not null
  then
    raise sqlstate 'PT400' using
      message = 'p_lease_tokens must be a list of uuids without nulls',
      hint = 'Send one random uuid per job.';
  end if;

  if cardinality(p_lease_tokens) > 1
    and cardinality(p_lease_tokens) <> (
      select count(distinct token)
      from unnest(p_lease_tokens) as token
    )
  then
    raise sqlstate 'PT422' using
      message = 'p_lease_tokens holds a token twice',
      hint = 'Make one random uuid per job.';
  end if;

  if cardinality(p_lease_tokens) > 1000 then
    raise sqlstate 'PT422' using
      message = format('%s lease tokens are more than 1000 in one call', cardinality(p_lease_tokens)),
      hint = 'Split the call.';
  end if;
end
$$;

comment on function silkline.check_lease_tokens(uuid, uuid[]) is
  'Raise unless these are the arguments of a lease call.';

revoke execute on function silkline.check_lease_tokens(uuid, uuid[])
  from public, anon, authenticated;

-- The place that a job gets on its host, or null when the host or the owner is full, or when
-- another claim is deciding about one of them right now: then the job is left to that one.
--
-- SKIP LOCKED alone would let two claims fill one place twice. So each host is decided about
-- under its advisory lock, and with a snapshot taken after it: this function is volatile,
-- and therefore sees what was committed until now, not until its caller began.
create function silkline.take_slot(
  p_host text,
  p_user_id uuid,
  p_max_per_host integer,
  p_max_per_user integer
)
  returns smallint
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  if pg_try_advisory_xact_lock(hashtextextended('host ' || p_host, 0))
    and (
      p_max_per_user is null
      or p_user_id is null
      or (
        pg_try_advisory_xact_lock(hashtextextended('owner ' || p_user_id, 0))
        and silkline.count_leases(p_user_id) < p_max_per_user
      )
    )
  then
    return (
      select case
        when count(*) < p_max_per_host
          then (
            select min(slot)
            from generate_series(1, p_max_per_host) as slot
            where slot <> all (coalesce(array_agg(holder.host_slot), '{}'))
          )
      end
      from public.crawl_jobs as holder
      where holder.host = p_host
        and holder.host_slot is not null
    );
  end if;

  return null;
end
$$;

comment on function silkline.take_slot(text, uuid, integer, integer) is
  'A free place on a host for a job of this owner, or null.';

revoke execute on function silkline.take_slot(text, uuid, integer, integer)
  from public, anon, authenticated;

-- How many jobs of a user run at the moment; paused ones count until their worker has handed
-- in, for they may be resumed. By the index of open jobs: one of leases by owner has the same
-- key over and over, and its upkeep cost each claim 100 microseconds.
create function silkline.count_leases(p_user_id uuid)
  returns bigint
  language plpgsql
  volatile  -- for a snapshot of its own: see take_slot
  security invoker
  set search_path = ''
as $$
begin
  return (
    select count(*)
    from public.crawl_jobs as job
    where job.user_id = p_user_id
      and job.status in ('processing', 'paused')
      and job.lease_check_at is not null
  );
end
$$;

comment on function silkline.count_leases(uuid) is
  'How many jobs of a user are leased.';

revoke execute on function silkline.count_leases(uuid) from public, anon, authenticated;

-- Look at the first jobs in the line and move those aside whose host or owner is full.
-- Answers the jobs that it met, moved, and had to leave to another claim.
create function silkline.clear_line(
  p_kinds text[],
  p_passed uuid[],
  p_max_per_host integer,
  p_max_per_user integer,
  out met integer,
  out moved integer,
  out contested uuid[]
)
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_job record;
  v_wait public.crawl_job_wait;
begin
  met := 0;
  moved := 0;
  contested := '{}';

  for v_job in
    select head.*
    from unnest(p_kinds) as wanted (kind)
    cross join lateral (
      select
        job.id,
        job.host,
        job.user_id,
        job.place
      from public.crawl_jobs as job
      where job.status = 'pending'
        and job.waits_for is null
        and job.kind = wanted.kind
        and job.id <> all (p_passed)
      order by job.place
      limit 100
      for update skip locked
    ) as head
    order by head.place
    limit 100
  loop
    met := met + 1;

    if not pg_try_advisory_xact_lock(hashtextextended('host ' || v_job.host, 0))
      or (
        p_max_per_user is not null
        and not coalesce(
          pg_try_advisory_xact_lock(hashtextextended('owner ' || v_job.user_id, 0)),
          true
        )
      )
    then
      contested := contested || v_job.id;
      continue;
    end if;

    v_wait := case
      when (
        select count(*)
        from public.crawl_jobs as holder
        where holder.host = v_job.host
          and holder.host_slot is not null
      ) >= p_max_per_host
        then 'host'
      when silkline.count_leases(v_job.user_id) >= p_max_per_user
        then 'owner'
    end;

    if v_wait is not null then
      update public.crawl_jobs as job
      set waits_for = v_wait
      where job.id = v_job.id;
      moved := moved + 1;
    end if;
  end loop;
end
$$;

comment on function silkline.clear_line(text[], uuid[], integer, integer) is
  'Move jobs whose host or owner is full out of the head of the line.';

revoke execute on function silkline.clear_line(text[], uuid[], integer, integer)
  from public, anon, authenticated;

-- Take up to one job per token, the first in the line that this worker can run.
--
-- The same token again returns the same job, so a call whose answer was lost is repeated
-- safely. A token whose lease its holder has ended returns nothing and takes nothing.
-- definer because crawl_worker may touch no table
create function public.claim_crawl_jobs(
  p_worker_id uuid,
  p_lease_tokens uuid[],
  p_kinds text[] default null
)
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security definer
  set search_path = ''
  -- Planning anew took 580 of the 1,500 microseconds of a claim. And a plan made while the
  -- table was small must not scan it when it is large.
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
as $$
declare
  v_tokens uuid[] := p_lease_tokens;
  v_kinds text[];
  v_is_repeated boolean;
  v_has_lapsed boolean;
  v_has_due boolean;
  v_stale_after interval;
  v_max_per_host integer;
  v_max_per_user integer;
  v_job record;
  v_slot smallint;
  v_ids uuid[];
  v_slots smallint[];
  v_taken text[];
  v_claimed integer;
  v_line record;
  v_passed uuid[] := '{}';
  v_moved integer := 0;
begin
  if p_worker_id is null
    or array_ndims(p_lease_tokens) is distinct from 1
    or cardinality(p_lease_tokens) > 1
    or p_lease_tokens[1] is null
  then
    perform silkline.check_lease_tokens(p_worker_id, p_lease_tokens);
  end if;

  -- A repeated call waits here for the first one, then finds its jobs.
  perform pg_advisory_xact_lock(hashtextextended('worker ' || p_worker_id, 0));

  select
    exists (
      select
      from public.crawl_jobs as job
      where job.lease_token = any (p_lease_tokens)
    ),
    exists (
      select
      from public.crawl_jobs as job
      where job.lease_check_at <= now()
    ),
    exists (
      select
      from public.crawl_jobs as job
      where job.status = 'pending'
        and job.waits_for = 'time'
        and job.run_after <= now()
    ),
    coalesce(p_kinds, array['crawl', 'audit'] || settings.plugin_kinds),
    make_interval(secs => settings.stale_after_seconds),
    settings.max_jobs_per_host,
    settings.max_running_jobs_per_user,
    set_config('silkline.reason', 'claim', true)
  into
    v_is_repeated,
    v_has_lapsed,
    v_has_due,
    v_kinds,
    v_stale_after,
    v_max_per_host,
    v_max_per_user
  from public.crawl_settings as settings;

  if v_is_repeated then
    return query
      select job.*
      from public.crawl_jobs as job
      where job.lease_token = any (p_lease_tokens)
        and job.worker_id = p_worker_id;

    v_tokens := array(
      select token
      from unnest(p_lease_tokens) as token
      where not exists (
        select
        from public.crawl_jobs as job
        where job.lease_token = token
      )
    );
  end if;

  if v_has_lapsed then
    perform silkline.reap_leases(10);
    perform set_config('silkline.reason', 'claim', true);
  end if;

  if v_has_due then
    perform silkline.call_due_jobs(100);
  end if;

  -- Mostly one round is all. A round takes one job per host (and per limited owner), so that
  -- the next one counts it; what stands in its way is moved aside. After 500 of those the
  -- call answers with what it has: the moves are kept, and the next call goes on.
  while v_tokens <> '{}' and cardinality(v_passed) + v_moved < 500 loop
    v_ids := '{}';
    v_slots := '{}';
    v_taken := '{}';

    for v_job in
      select first.*
      from unnest(v_kinds) as wanted (kind)
      cross join lateral (
        select
          job.id,
          job.host,
          case when v_max_per_user is not null then job.user_id end as limited_user_id,
          job.place
        from public.crawl_jobs as job
        where job.status = 'pending'
          and job.waits_for is null
          and job.kind = wanted.kind
          and job.id <> all (v_passed)
        order by job.place
        limit cardinality(v_tokens)
        for update skip locked
      ) as first
      order by first.place
      limit cardinality(v_tokens)
    loop
      continue when v_job.host = any (v_taken) or v_job.limited_user_id::text = any (v_taken);

      v_slot := silkline.take_slot(
        v_job.host,
        v_job.limited_user_id,
        v_max_per_host,
        v_max_per_user
      );
      continue when v_slot is null;

      v_ids := v_ids || v_job.id;
      v_slots := v_slots || v_slot;
      v_taken := v_taken || v_job.host || v_job.limited_user_id::text;
    end loop;

    return query
      update public.crawl_jobs as job
      set
        status = 'processing',
        worker_id = p_worker_id,
        lease_token = chosen.token,
        lease_check_at = now() + v_stale_after,
        host_slot = chosen.slot,
        last_heartbeat = now(),
        attempt = job.attempt + 1,
        error_code = null,
        error_message = null,
        started_at = coalesce(job.started_at, now())
      from unnest(v_ids, v_slots, v_tokens[: cardinality(v_ids)]) as chosen (id, slot, token)
      where job.id = chosen.id
      returning job.*;

    v_claimed := cardinality(v_ids);
    v_tokens := v_tokens[v_claimed + 1 :];
    exit when v_tokens = '{}';

    select *
    into v_line
    from silkline.clear_line(v_kinds, v_passed, v_max_per_host, v_max_per_user);

    exit when v_line.met = 0
      or (v_claimed = 0 and v_line.moved = 0 and v_line.contested = '{}');
    v_passed := v_passed || v_line.contested;
    v_moved := v_moved + v_line.moved;
  end loop;
end
$$;

comment on function public.claim_crawl_jobs(uuid, uuid[], text[]) is
  'Take up to one job per lease token; the same token again returns the same job.';

revoke execute on function public.claim_crawl_jobs(uuid, uuid[], text[])
  from public, anon, authenticated;
grant execute on function public.claim_crawl_jobs(uuid, uuid[], text[])
  to service_role, crawl_worker;

-- Renew all leases of one worker, and tell it what the users want of each job.
--
-- A token that is no longer current comes back as 'lost', and nothing is written for it:
-- the worker kills that crawl. Paused, stopped and cancelled jobs are renewed too, so that
-- a worker that is still saving its last pages is not reaped meanwhile. A row that another
-- call holds just now is not waited for: a checkpoint renews it by itself.
-- definer because crawl_worker may touch no table
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
as $$
begin
  perform silkline.check_lease_tokens(p_worker_id, p_lease_tokens);

  if jsonb_typeof(p_worker) is distinct from 'object'
    or p_worker - '{hostname,version,slots,busy_slots,kinds}'::text[] <> '{}'
    or coalesce(jsonb_typeof(p_worker -> 'kinds'), 'array') <> 'array'
    or coalesce(p_worker ->> 'slots', '0') !~ '^[0-9]{1,6}$'
    or coalesce(p_worker ->> 'busy_slots', '0') !~ '^[0-9]{1,6}$'
  then
    raise sqlstate 'PT422' using
      message = 'p_worker must be an object of hostname, version, slots, busy_slots and kinds',
      hint = 'slots and busy_slots are whole numbers, kinds is a list.';
  end if;

  if pg_column_size(p_worker) > 10000 then
    raise sqlstate 'PT413' using
      message = format('p_worker has %s bytes, more than 10000', pg_column_size(p_worker)),
      hint = 'Describe the worker in a few words.';
  end if;

  return query
    with present as (
      insert into public.crawl_workers as worker (id, hostname, version, slots, busy_slots, kinds)
      values (
        p_worker_id,
        left(coalesce(p_worker ->> 'hostname', 'unknown'), 255),
        left(coalesce(p_worker ->> 'version', 'unknown'), 100),
        coalesce((p_worker ->> 'slots')::integer, cardinality(p_lease_tokens)),
        coalesce((p_worker ->> 'busy_slots')::integer, cardinality(p_lease_tokens)),
        array(
          select kind
          from jsonb_array_elements_text(coalesce(p_worker -> 'kinds', '[]')) as kind
        )
      )
      on conflict (id) do update
      set
        hostname = excluded.hostname,
        version = excluded.version,
        slots = excluded.slots,
        busy_slots = excluded.busy_slots,
        kinds = excluded.kinds,
        last_seen_at = now()
    ),
    held as materialized (
      select job.id
      from public.crawl_jobs as job
      where job.lease_token = any (p_lease_tokens)
        and job.worker_id = p_worker_id
      for no key update skip locked
    ),
    renewed as (
      update public.crawl_jobs as job
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
    left join public.crawl_jobs as job
      on job.lease_token = asked.token
      and job.worker_id = p_worker_id;
end
$$;

comment on function public.heartbeat_crawl_jobs(uuid, uuid[], jsonb) is
  'Renew all leases of one worker and register it; answers one command per lease.';

revoke execute on function public.heartbeat_crawl_jobs(uuid, uuid[], jsonb)
  from public, anon, authenticated;
grant execute on function public.heartbeat_crawl_jobs(uuid, uuid[], jsonb)
  to service_role, crawl_worker;

-- The answer to a token that holds nothing, and never has or no longer does.
create function silkline.lost(p_lease_token uuid)
  returns public.crawl_command
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  if p_lease_token is null then
    raise sqlstate 'PT400' using
      message = 'p_lease_token must not be null',
      hint = 'Send the token under which the job was claimed.';
  end if;

  return row (p_lease_token, null, 'lost', null)::public.crawl_command;
end
$$;

comment on function silkline.lost(uuid) is
  'The command for a lease token that is not current.';

revoke execute on function silkline.lost(uuid) from public, anon, authenticated;

-- End a job whose frontier has drained.
--
-- Refused while URLs are left: 'completed' means drained. If a user paused, stopped or
-- cancelled meanwhile, that stands: the lease ends, the status does not change, and the
-- answer says so. An audit hands in its findings here.
-- definer because crawl_worker may touch no table
create function public.complete_crawl_job(
  p_lease_token uuid,
  p_result jsonb default '{}',
  p_audit jsonb default null
)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security definer
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
as $$
declare
  v_job public.crawl_jobs;
  v_left integer;
begin
  if jsonb_typeof(p_result) is distinct from 'object' or pg_column_size(p_result) > 65536 then
    raise sqlstate 'PT422' using
      message = 'p_result must be a JSON object of at most 64 KB',
      hint = 'Store large results as pages.';
  end if;

  if p_audit is not null
    and not (
      jsonb_typeof(p_audit) = 'object'
      and p_audit ?& '{score,grade,categories,findings,ruleset_version}'
      and p_audit - '{score,grade,categories,findings,ruleset_version}'::text[] = '{}'
      and coalesce(p_audit ->> 'score', '') ~ '^([0-9]{1,2}|100)$'
    )
  then
    raise sqlstate 'PT422' using
      message = 'p_audit must be an object of score, grade, categories, findings and ruleset_version',
      hint = 'score is a whole number from 0 to 100.';
  end if;

  if pg_column_size(p_audit) > 5000000 then
    raise sqlstate 'PT413' using
      message = format('p_audit has %s bytes, more than 5000000', pg_column_size(p_audit)),
      hint = 'Report each finding once, with examples.';
  end if;

  select job.*
  into v_job
  from public.crawl_jobs as job
  where job.lease_token = p_lease_token
  for no key update;

  if v_job.id is null then
    return next silkline.lost(p_lease_token);
    return;
  end if;

  if v_job.lease_check_at is not null then
    select state.total_pending + state.total_in_progress
    into v_left
    from public.crawl_states as state
    where state.job_id = v_job.id;

    if v_job.status = 'processing' and v_left > 0 then
      raise sqlstate 'PT409' using
        message = format('job %s is not drained: %s URLs are left', v_job.id, v_left),
        hint = 'Checkpoint until it answers drained, or release the job.';
    end if;

    if p_audit is not null and v_job.status <> 'cancelled' then
      insert into public.crawl_audits as audit (
        job_id,
        score,
        grade,
        categories,
        findings,
        ruleset_version
      )
      values (
        v_job.id,
        (p_audit ->> 'score')::smallint,
        p_audit ->> 'grade',
        p_audit -> 'categories',
        p_audit -> 'findings',
        p_audit ->> 'ruleset_version'
      )
      on conflict (job_id) do update
      set
        score = excluded.score,
        grade = excluded.grade,
        categories = excluded.categories,
        findings = excluded.findings,
        ruleset_version = excluded.ruleset_version,
        created_at = now();
    end if;

    if v_left > 0 then
      perform silkline.free_tasks(v_job.id, false);
    end if;
    perform set_config('silkline.reason', 'complete', true);

    update public.crawl_jobs as job
    set
      status = case job.status when 'processing' then 'completed' else job.status end,
      completed_at = case job.status when 'processing' then now() else job.completed_at end,
      progress_percentage = case job.status
        when 'processing' then 100
        else job.progress_percentage
      end,
      result = case job.status when 'cancelled' then job.result else p_result end,
      worker_id = null,
      lease_check_at = null,
      host_slot = null
    where job.id = v_job.id
    returning job.status into v_job.status;
  end if;

  return next
    row (p_lease_token, v_job.id, silkline.command_for(v_job.status), v_job.status)
    ::public.crawl_command;
end
$$;

comment on function public.complete_crawl_job(uuid, jsonb, jsonb) is
  'End a job whose frontier has drained.';

revoke execute on function public.complete_crawl_job(uuid, jsonb, jsonb)
  from public, anon, authenticated;
grant execute on function public.complete_crawl_job(uuid, jsonb, jsonb)
  to service_role, crawl_worker;

-- How long a job waits before its nth retry: doubled each time, capped, and spread over
-- the upper half, so that jobs that broke together do not come back together.
create function silkline.backoff(p_retry_count integer)
  returns interval
  language sql
  volatile
  security invoker
  set search_path = ''
as $$
  select make_interval(
    secs => least(
      settings.backoff_cap_seconds,
      settings.backoff_base_seconds * 2 ^ least(p_retry_count, 30)
    ) * (0.5 + random() / 2)
  )
  from public.crawl_settings as settings;
$$;

comment on function silkline.backoff(integer) is
  'Exponential backoff with jitter.';

revoke execute on function silkline.backoff(integer) from public, anon, authenticated;

-- The crawl broke. Retried with backoff while retries are left, else failed for good.
--
-- URLs in flight become suspects (see silkline.free_tasks). A crash that convicted one of
-- them costs the job no retry: the culprit is out of the way. A user's pause, stop or
-- cancel stands.
-- definer because crawl_worker may touch no table
create function public.fail_crawl_job(
  p_lease_token uuid,
  p_error_code text,
  p_error_message text default null,
  p_is_retryable boolean default true,
  p_retry_after_seconds integer default null
)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security definer
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
as $$
declare
  v_job public.crawl_jobs;
  v_poison integer;
  v_is_retried boolean;
begin
  if p_error_code is null or p_error_code !~ '^[A-Za-z0-9_:.-]{1,100}$' then
    raise sqlstate 'PT422' using
      message = format('p_error_code %L must be a short code', left(p_error_code, 100)),
      hint = 'For example oom, timeout or crashed:SIGSEGV.';
  end if;

  if p_retry_after_seconds not between 0 and 604800 then
    raise sqlstate 'PT422' using
      message = format('p_retry_after_seconds must be from 0 to 604800, not %s', p_retry_after_seconds),
      hint = 'Leave it out for the usual backoff.';
  end if;

  select job.*
  into v_job
  from public.crawl_jobs as job
  where job.lease_token = p_lease_token
  for no key update;

  if v_job.id is null then
    return next silkline.lost(p_lease_token);
    return;
  end if;

  if v_job.lease_check_at is not null then
    v_poison := silkline.free_tasks(v_job.id, true);
    v_is_retried := coalesce(p_is_retryable, true)
      and (v_job.retry_count < v_job.max_retries or v_poison > 0);
    perform set_config('silkline.reason', 'fail', true);

    update public.crawl_jobs as job
    set
      status = case
        when job.status <> 'processing' then job.status
        when v_is_retried then 'pending'
        else 'failed'
      end,
      waits_for = case when job.status = 'processing' and v_is_retried then 'time' end
        ::public.crawl_job_wait,
      run_after = case
        when job.status = 'processing' and v_is_retried
          then now() + coalesce(
            make_interval(secs => p_retry_after_seconds),
            case when v_poison > 0 then interval '0' end,
            silkline.backoff(job.retry_count)
          )
        else job.run_after
      end,
      retry_count = case
        when job.status = 'processing' and v_is_retried and v_poison = 0 then job.retry_count + 1
        else job.retry_count
      end,
      completed_at = case
        when job.status = 'processing' and not v_is_retried then now()
        else job.completed_at
      end,
      error_code = p_error_code,
      error_message = left(p_error_message, 10000),
      worker_id = null,
      lease_check_at = null,
      host_slot = null
    where job.id = v_job.id
    returning job.status into v_job.status;
  end if;

  return next
    row (p_lease_token, v_job.id, silkline.command_for(v_job.status), v_job.status)
    ::public.crawl_command;
end
$$;

comment on function public.fail_crawl_job(uuid, text, text, boolean, integer) is
  'Report a broken crawl; it is retried with backoff while retries are left.';

revoke execute on function public.fail_crawl_job(uuid, text, text, boolean, integer)
  from public, anon, authenticated;
grant execute on function public.fail_crawl_job(uuid, text, text, boolean, integer)
  to service_role, crawl_worker;

-- Hand a job back: 'shutdown' after its URLs were handed in (no retry is spent, it runs
-- again at once), or 'worker_restarted' for the jobs of a predecessor that was killed
-- (like a lost worker, only sooner). Also the acknowledgement of pause, stop and cancel.
-- definer because crawl_worker may touch no table
create function public.release_crawl_job(
  p_lease_token uuid,
  p_reason text default 'shutdown'
)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security definer
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
as $$
declare
  v_job public.crawl_jobs;
  v_is_crash constant boolean := p_reason = 'worker_restarted';
  v_poison integer;
begin
  if p_reason is null or p_reason not in ('shutdown', 'worker_restarted') then
    raise sqlstate 'PT422' using
      message = format('p_reason must be shutdown or worker_restarted, not %L', left(p_reason, 100)),
      hint = 'Use fail_crawl_job to report an error.';
  end if;

  select job.*
  into v_job
  from public.crawl_jobs as job
  where job.lease_token = p_lease_token
  for no key update;

  if v_job.id is null then
    return next silkline.lost(p_lease_token);
    return;
  end if;

  if v_job.lease_check_at is not null then
    v_poison := silkline.free_tasks(v_job.id, v_is_crash);

    if v_is_crash and v_job.status = 'processing' and v_poison = 0
      and v_job.retry_count >= v_job.max_retries
    then
      perform set_config('silkline.reason', 'worker_lost', true);

      update public.crawl_jobs as job
      set
        status = 'failed',
        completed_at = now(),
        error_code = 'worker_lost',
        error_message = format('worker %s was killed and no retries are left', job.worker_id),
        worker_id = null,
        lease_check_at = null,
        host_slot = null
      where job.id = v_job.id
      returning job.status into v_job.status;
    else
      perform set_config('silkline.reason', 'release', true);

      update public.crawl_jobs as job
      set
        status = case job.status when 'processing' then 'pending' else job.status end,
        retry_count = job.retry_count
          + (v_is_crash and job.status = 'processing' and v_poison = 0)::integer,
        run_after = now(),
        place = silkline.join_place(job.user_id, job.priority, job.place),
        worker_id = null,
        lease_check_at = null,
        host_slot = null
      where job.id = v_job.id
      returning job.status into v_job.status;
    end if;
  end if;

  return next
    row (p_lease_token, v_job.id, silkline.command_for(v_job.status), v_job.status)
    ::public.crawl_command;
end
$$;

comment on function public.release_crawl_job(uuid, text) is
  'Hand a job back, or acknowledge that a pause, stop or cancel was obeyed.';

revoke execute on function public.release_crawl_job(uuid, text)
  from public, anon, authenticated;
grant execute on function public.release_crawl_job(uuid, text)
  to service_role, crawl_worker;

-- Look after what no worker does: silent workers and jobs whose time has come. Claims do
-- the same in passing; pg_cron calls this each minute for a queue that nobody claims from.
-- definer because crawl_worker may touch no table
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

  perform silkline.call_due_jobs(p_limit);
  return query select * from silkline.reap_leases(p_limit);
end
$$;

comment on function public.reap_crawl_jobs(integer) is
  'End leases whose worker fell silent; answers one row per ended lease.';

revoke execute on function public.reap_crawl_jobs(integer)
  from public, anon, authenticated;
grant execute on function public.reap_crawl_jobs(integer)
  to service_role, crawl_worker;

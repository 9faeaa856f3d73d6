-- The worker's functions, in the order in which worker/silkline/supervisor/worker.py calls them:
--
--   claim_crawl_jobs       leases jobs, each under a random token that the worker chose
--   heartbeat_crawl_jobs   every 10 s: renews the leases, returns the user's command per job
--   checkpoint_crawl_job   every second: results in, next URLs out
--   complete_crawl_job     the frontier has drained; complete_crawl_jobs ends many at once
--   fail_crawl_job         the crawl broke; retried with backoff while retries are left
--   release_crawl_job      hands a job back: on shutdown, or after a pause, stop or cancel
--   reap_crawl_jobs        ends leases whose worker fell silent; each claim does it, too
--
-- The token is the idempotency key of the claim and the fence of every later write: a token
-- that is no longer current gets 'lost' and changes nothing. A token without a lease is a
-- receipt: its holder ended the lease itself, and repeating that call gets the first answer
-- again.
--
-- All of them are security definer, because the role crawl_worker may execute them but has no
-- rights on any table. Neither anon nor authenticated may execute them.

-- The tokens that have never been used.
create function silkline.unused_tokens(p_lease_tokens uuid[])
  returns uuid[]
  language plpgsql
  volatile  -- to see what its caller has just written
  security invoker
  set search_path = ''
as $$
begin
  return array(
    select token
    from unnest(p_lease_tokens) as token
    where not exists (
      select
      from silkline.jobs as job
      where job.lease_token = token
    )
    and not exists (
      select
      from silkline.spent_tokens as spent
      where spent.lease_token = token
    )
  );
end
$$;

comment on function silkline.unused_tokens(uuid[]) is
  'The lease tokens that have never been used.';

revoke execute on function silkline.unused_tokens(uuid[]) from public, anon, authenticated;

-- How many jobs of a user are running. Paused ones count until their worker has released them,
-- because they may be resumed. Uses the index of open jobs: an index of leases by owner repeats
-- one key many times, and maintaining it cost each claim 100 microseconds.
create function silkline.count_leases(p_owner_id uuid)
  returns bigint
  language plpgsql
  volatile  -- to see what has been committed up to now
  security invoker
  set search_path = ''
as $$
begin
  return (
    select count(*)
    from silkline.jobs as job
    where job.owner_id = p_owner_id
      and job.status in ('processing', 'paused')
      and job.lease_check_at is not null
  );
end
$$;

comment on function silkline.count_leases(uuid) is
  'How many jobs of a user are leased.';

revoke execute on function silkline.count_leases(uuid) from public, anon, authenticated;

-- How many running jobs occupy a host.
create function silkline.count_jobs_on_host(p_host text)
  returns bigint
  language plpgsql
  volatile  -- to see what has been committed up to now
  security invoker
  set search_path = ''
as $$
begin
  return (
    select count(*)
    from silkline.jobs as holder
    where holder.host = p_host
      and holder.host_slot is not null
  );
end
$$;

comment on function silkline.count_jobs_on_host(text) is
  'How many running jobs occupy a host.';

revoke execute on function silkline.count_jobs_on_host(text) from public, anon, authenticated;

-- The limit of running jobs on a host. A list of URLs on several hosts occupies none of them: it
-- counts as a host of its owner, with a limit of its own (see silkline.job_host).
create function silkline.host_limit(p_host text, p_max_jobs integer, p_max_lists integer)
  returns integer
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return case when p_host like 'list:%' then p_max_lists else p_max_jobs end;
end
$$;

comment on function silkline.host_limit(text, integer, integer) is
  'How many jobs may run on a host.';

revoke execute on function silkline.host_limit(text, integer, integer)
  from public, anon, authenticated;

-- What a claim goes by.
create type silkline.claim_limits as (
  per_host integer,
  lists integer,
  per_owner integer,  -- null: no limit
  stale_after interval
);

-- The job that takes the turn of another: the owner's preferred one, if there is a better one in
-- the same line. The two swap places, so that the turn is used once.
create function silkline.take_turn(p_turn uuid, p_taken uuid[])
  returns uuid
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_turn silkline.jobs;
  v_better silkline.jobs;
begin
  select job.*
  into v_turn
  from silkline.jobs as job
  where job.id = p_turn;

  select job.*
  into v_better
  from silkline.jobs as job
  where job.status = 'pending'
    and job.waits_for is null
    and job.priority > 100 - (job.place >> 40)
    and job.owner_id = v_turn.owner_id
    and job.kind = v_turn.kind
    and job.place >> 40 = v_turn.place >> 40
    and job.id <> all (p_taken)
    and (job.priority > v_turn.priority or (job.priority = v_turn.priority and job.id < p_turn))
  order by job.priority desc, job.id
  limit 1
  for update skip locked;

  if v_better.id is null then
    return p_turn;
  end if;

  update silkline.jobs as job
  set place = case job.id when p_turn then v_better.place else v_turn.place end
  where job.id in (p_turn, v_better.id);

  return v_better.id;
end
$$;

comment on function silkline.take_turn(uuid, uuid[]) is
  'The job of the same owner that takes the turn of this one.';

revoke execute on function silkline.take_turn(uuid, uuid[]) from public, anon, authenticated;

-- Pick the first jobs in line, at most one per host and per limited owner, and lock them and their
-- hosts. A host or owner that another call has locked is left to that call.
create function silkline.pick_jobs(
  p_kinds text[],
  p_count integer,
  p_passed uuid[],
  p_limits silkline.claim_limits
)
  returns uuid[]
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_job record;
  v_id uuid;
  v_ids uuid[] := '{}'::uuid[];
  v_hosts text[] := '{}'::text[];
  v_owner_ids uuid[] := '{}'::uuid[];
begin
  for v_job in
    select first.*
    from silkline.lines as line
    cross join lateral (
      select
        job.id,
        job.host,
        job.owner_id,
        job.place,
        exists (
          select
          from silkline.jobs as preferred
          where preferred.status = 'pending'
            and preferred.waits_for is null
            and preferred.priority > 100 - (preferred.place >> 40)
            and preferred.owner_id = job.owner_id
            and preferred.kind = job.kind
        ) as has_preferred,
        exists (
          select
          from silkline.deleted_accounts as account
          where account.owner_id = job.owner_id
        ) as is_deleted
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for is null
        and job.kind = line.kind
        and job.place >= line.floor
        and job.place < line.ceiling
        and job.id <> all (p_passed)
      order by job.place, job.id
      limit p_count
      for update of job skip locked
    ) as first
    where line.kind = any (p_kinds)
    order by first.place, first.id
    limit p_count
  loop
    continue when v_job.is_deleted;

    v_id := v_job.id;
    if v_job.has_preferred then
      v_id := silkline.take_turn(v_job.id, v_ids);
      continue when v_id = any (v_ids);

      select job.host
      into v_job.host
      from silkline.jobs as job
      where job.id = v_id;
    end if;

    continue when v_job.host = any (v_hosts)
      or not silkline.try_lock('host', v_job.host);

    if p_limits.per_owner is not null then
      continue when v_job.owner_id = any (v_owner_ids)
        or not silkline.try_lock('owner', v_job.owner_id::text);
      v_owner_ids := v_owner_ids || v_job.owner_id;
    end if;

    v_ids := v_ids || v_id;
    v_hosts := v_hosts || v_job.host;
  end loop;

  return v_ids;
end
$$;

comment on function silkline.pick_jobs(text[], integer, uuid[], silkline.claim_limits) is
  'Pick and lock the first jobs in line, and their hosts.';

revoke execute
  on function silkline.pick_jobs(text[], integer, uuid[], silkline.claim_limits)
  from public, anon, authenticated;

-- Lease the picked jobs whose host and owner are below their limits.
--
-- SKIP LOCKED alone would let two claims take the same slot of a host. So the update runs under the
-- advisory lock of each host, and starts, and so takes its snapshot, after the locks were acquired.
create function silkline.lease_jobs(
  p_worker_id uuid,
  p_lease_tokens uuid[],
  p_ids uuid[],
  p_limits silkline.claim_limits
)
  returns setof public.crawl_lease
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_leases public.crawl_lease[];
  v_changes silkline.job_change[];
begin
  -- The receipts of earlier leases are overwritten.
  insert into silkline.spent_tokens (lease_token)
  select job.lease_token
  from silkline.jobs as job
  where job.id = any (p_ids)
    and job.attempt > 0
    and job.lease_token is not null
  on conflict do nothing;

  with claimed as (
    update silkline.jobs as job
    set
      status = 'processing',
      event_seq = job.event_seq + 1,
      worker_id = p_worker_id,
      lease_token = p_lease_tokens[picked.nth],
      lease_check_at = now() + p_limits.stale_after,
      host_slot = free.slot,
      last_heartbeat = now(),
      attempt = job.attempt + 1,
      error_code = null,
      error_message = null,
      started_at = coalesce(job.started_at, now())
    from unnest(p_ids) with ordinality as picked (id, nth)
    cross join lateral (
      select listed.host, listed.owner_id
      from silkline.jobs as listed
      where listed.id = picked.id
      limit 1
    ) as known
    cross join lateral (
      select silkline.host_limit(known.host, p_limits.per_host, p_limits.lists) as max_jobs
    ) as allowed
    cross join lateral (
      select min(slot) as slot
      from generate_series(1, allowed.max_jobs) as slot
      where not exists (
        select
        from silkline.jobs as holder
        where holder.host = known.host
          and holder.host_slot = slot
      )
    ) as free
    where job.id = picked.id
      and free.slot is not null
      -- After the limit was lowered, slots above it may still be held.
      and allowed.max_jobs > silkline.count_jobs_on_host(known.host)
      and (
        p_limits.per_owner is null
        or known.owner_id = '00000000-0000-0000-0000-000000000000'
        or silkline.count_leases(known.owner_id) < p_limits.per_owner
      )
    returning job.*
  )
  select
    array_agg(
      row (
        claimed.lease_token,
        claimed.id,
        claimed.user_id,
        claimed.kind,
        claimed.payload,
        claimed.priority,
        claimed.source_id,
        claimed.host,
        claimed.status,
        claimed.attempt,
        claimed.retry_count,
        claimed.max_retries,
        claimed.running_seconds,
        claimed.created_at,
        claimed.started_at
      )::public.crawl_lease
    ),
    array_agg(
      row (
        claimed.id,
        claimed.user_id,
        claimed.kind,
        claimed.event_seq,
        'pending',
        claimed.status,
        'claim',
        claimed.worker_id,
        true,
        false,
        claimed.attempt,
        claimed.retry_count,
        claimed.progress_percentage,
        null,
        null,
        null
      )::silkline.job_change
    )
  into v_leases, v_changes
  from claimed;

  perform silkline.record_changes(v_changes);

  return query select lease.* from unnest(v_leases) as lease;
end
$$;

comment on function silkline.lease_jobs(uuid, uuid[], uuid[], silkline.claim_limits) is
  'Lease picked jobs, as far as their hosts and owners allow.';

revoke execute on function silkline.lease_jobs(uuid, uuid[], uuid[], silkline.claim_limits)
  from public, anon, authenticated;

-- Check the first jobs in line, and set aside those whose host or owner is at its limit; delete
-- those of deleted accounts. Returns how many jobs it checked and moved, and which it left to
-- another claim.
create function silkline.set_blocked_jobs_aside(
  p_kinds text[],
  p_passed uuid[],
  p_limits silkline.claim_limits,
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
    from silkline.lines as line
    cross join lateral (
      select
        job.id,
        job.host,
        job.owner_id,
        job.place,
        exists (
          select
          from silkline.deleted_accounts as account
          where account.owner_id = job.owner_id
        ) as is_deleted
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for is null
        and job.kind = line.kind
        and job.place >= line.floor
        and job.place < line.ceiling
        and job.id <> all (p_passed)
      order by job.place, job.id
      limit 50
      for update of job skip locked
    ) as head
    where line.kind = any (p_kinds)
    order by head.place, head.id
    limit 50
  loop
    met := met + 1;

    if not silkline.try_lock('host', v_job.host)
      or (
        p_limits.per_owner is not null
        and not silkline.try_lock('owner', v_job.owner_id::text)
      )
    then
      contested := contested || v_job.id;
      continue;
    end if;

    if v_job.is_deleted then
      delete from silkline.jobs as job
      where job.id = v_job.id;
      perform silkline.unblock_next_for_host(v_job.host, 1);
      moved := moved + 1;
      continue;
    end if;

    v_wait := case
      when silkline.count_jobs_on_host(v_job.host)
        >= silkline.host_limit(v_job.host, p_limits.per_host, p_limits.lists)
        then 'host'
      when v_job.owner_id <> '00000000-0000-0000-0000-000000000000'
        and silkline.count_leases(v_job.owner_id) >= p_limits.per_owner
        then 'owner'
    end::public.crawl_job_wait;

    if v_wait is not null then
      update silkline.jobs as job
      set waits_for = v_wait
      where job.id = v_job.id;
      moved := moved + 1;
    end if;

    -- A job set aside for its owner frees its host for the next one.
    if v_wait = 'owner' then
      perform silkline.unblock_next_for_host(v_job.host, 1);
    end if;
  end loop;
end
$$;

comment on function silkline.set_blocked_jobs_aside(text[], uuid[], silkline.claim_limits) is
  'Set aside jobs at the head of the line whose host or owner is at its limit.';

revoke execute on function silkline.set_blocked_jobs_aside(text[], uuid[], silkline.claim_limits)
  from public, anon, authenticated;

-- What a claim has to know before it takes jobs.
create function silkline.look_around(
  p_lease_tokens uuid[],
  p_kinds text[],
  out is_repeated boolean,
  out has_lapsed boolean,
  out has_due boolean,
  out has_old_floors boolean,
  out kinds text[],
  out limits silkline.claim_limits
)
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  select
    exists (
      select
      from silkline.jobs as job
      where job.lease_token = any (p_lease_tokens)
    ) or exists (
      select
      from silkline.spent_tokens as spent
      where spent.lease_token = any (p_lease_tokens)
    ),
    exists (
      select
      from silkline.jobs as job
      where job.lease_check_at > floors.leases_until
        and job.lease_check_at <= now()
    ),
    exists (
      select
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for = 'time'
        and job.run_after > floors.waits_until
        and job.run_after <= now()
    ),
    floors.noted_at <= now() - interval '10 seconds',
    coalesce(p_kinds, array['crawl'] || settings.plugin_kinds),
    settings.max_jobs_per_host,
    settings.max_lists_per_user,
    settings.max_running_jobs_per_user,
    make_interval(secs => settings.stale_after_seconds)
  into
    is_repeated,
    has_lapsed,
    has_due,
    has_old_floors,
    kinds,
    limits.per_host,
    limits.lists,
    limits.per_owner,
    limits.stale_after
  from public.crawl_settings as settings
  cross join silkline.time_floors as floors;
end
$$;

comment on function silkline.look_around(uuid[], text[]) is
  'What a claim has to know before it takes jobs.';

revoke execute on function silkline.look_around(uuid[], text[]) from public, anon, authenticated;

-- The jobs that a worker has claimed with these tokens and still leases.
create function silkline.current_leases(p_worker_id uuid, p_lease_tokens uuid[])
  returns setof public.crawl_lease
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return query
    select
      job.lease_token,
      job.id,
      job.user_id,
      job.kind,
      job.payload,
      job.priority,
      job.source_id,
      job.host,
      job.status,
      job.attempt,
      job.retry_count,
      job.max_retries,
      job.running_seconds,
      job.created_at,
      job.started_at
    from silkline.jobs as job
    where job.lease_token = any (p_lease_tokens)
      and job.worker_id = p_worker_id;
end
$$;

comment on function silkline.current_leases(uuid, uuid[]) is
  'The jobs that a worker leases with these tokens.';

revoke execute on function silkline.current_leases(uuid, uuid[]) from public, anon, authenticated;

-- Lease up to one job per token: the first in line that this worker can run.
--
-- The same token returns the same job again, so a call whose answer was lost can be repeated
-- safely. A token whose lease has ended returns nothing and takes nothing.
-- definer because crawl_worker has no rights on tables
create function public.claim_crawl_jobs(
  p_worker_id uuid,
  p_lease_tokens uuid[],
  p_kinds text[] default null
)
  returns setof public.crawl_lease
  language plpgsql
  volatile
  security definer
  set search_path = ''
  -- Planning each time took 580 of the 1,500 microseconds of a claim. A plan made while the
  -- table was small must not scan it once it is large. JIT compiles longer than the query runs.
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  v_tokens uuid[] := p_lease_tokens;
  v_now record;
  v_ids uuid[];
  v_claimed integer;
  v_line record;
  v_passed uuid[] := '{}'::uuid[];
  v_moved integer := 0;
begin
  perform silkline.check_worker_id(p_worker_id);
  perform silkline.check_lease_tokens(p_lease_tokens);

  -- A repeated call waits here until the first one has committed, then finds its jobs.
  perform silkline.lock('worker', p_worker_id::text);
  v_now := silkline.look_around(p_lease_tokens, p_kinds);

  if v_now.is_repeated then
    return query select lease.* from silkline.current_leases(p_worker_id, p_lease_tokens) as lease;
    v_tokens := silkline.unused_tokens(p_lease_tokens);
  end if;

  if v_now.has_lapsed then
    perform silkline.reap_leases(10);
  end if;

  if v_now.has_due then
    perform silkline.unblock_due_jobs(100);
  end if;

  if v_now.has_old_floors then
    perform silkline.raise_floors();
  end if;

  -- One round is usually enough. A round takes one job per host (and per limited owner), so
  -- that the next round counts it, and sets blocked jobs aside. After 400 of those the call
  -- returns what it has: they stay set aside, and the next call continues from there.
  while v_tokens <> '{}' and cardinality(v_passed) + v_moved < 400 loop
    v_ids := silkline.pick_jobs(v_now.kinds, cardinality(v_tokens), v_passed, v_now.limits);

    return query
      select lease.*
      from silkline.lease_jobs(p_worker_id, v_tokens, v_ids, v_now.limits) as lease;
    get diagnostics v_claimed = row_count;

    if v_claimed = cardinality(v_ids) then
      v_tokens := v_tokens[v_claimed + 1 :];
    else
      v_tokens := silkline.unused_tokens(v_tokens);
    end if;
    exit when v_tokens = '{}';

    v_line := silkline.set_blocked_jobs_aside(v_now.kinds, v_passed, v_now.limits);
    exit when v_line.met = 0
      or (v_claimed = 0 and v_line.moved = 0 and v_line.contested = '{}');
    v_passed := v_passed || v_line.contested;
    v_moved := v_moved + v_line.moved;
  end loop;
end
$$;

comment on function public.claim_crawl_jobs(uuid, uuid[], text[]) is
  'Lease up to one job per token; the same token returns the same job again.';

revoke execute on function public.claim_crawl_jobs(uuid, uuid[], text[])
  from public, anon, authenticated;
grant execute on function public.claim_crawl_jobs(uuid, uuid[], text[])
  to service_role, crawl_worker;

-- The worker's functions, in the order in which worker/silkline/supervisor/worker.py calls them:
--
--   claim_crawl_jobs       leases jobs, each under a random token that the worker chose
--   heartbeat_crawl_jobs   every 10 s: renews the leases, returns the user's command per job
--   checkpoint_crawl_job   every second: results in, next URLs out
--   complete_crawl_job     the frontier has drained
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

-- Refuse arguments that cannot name leases.
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
      hint = 'Send the uuid that the worker chose when it started.';
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
      message = 'p_lease_tokens contains the same token twice',
      hint = 'Send one random uuid per job.';
  end if;

  if cardinality(p_lease_tokens) > 1000 then
    raise sqlstate 'PT422' using
      message = format(
        'p_lease_tokens has %s tokens, more than 1000',
        cardinality(p_lease_tokens)
      ),
      hint = 'Split the call.';
  end if;
end
$$;

comment on function silkline.check_lease_tokens(uuid, uuid[]) is
  'Raise unless these are valid arguments of a call about leases.';

revoke execute on function silkline.check_lease_tokens(uuid, uuid[])
  from public, anon, authenticated;

-- The tokens that no job has, neither as a lease nor as a receipt.
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
      from public.crawl_jobs as job
      where job.lease_token = token
    )
  );
end
$$;

comment on function silkline.unused_tokens(uuid[]) is
  'The lease tokens that no job has.';

revoke execute on function silkline.unused_tokens(uuid[]) from public, anon, authenticated;

-- How many jobs of a user are running. Paused ones count until their worker has released them,
-- because they may be resumed. Uses the index of open jobs: an index of leases by owner repeats
-- one key many times, and maintaining it cost each claim 100 microseconds.
create function silkline.count_leases(p_user_id uuid)
  returns bigint
  language plpgsql
  volatile  -- to see what has been committed up to now
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
    from public.crawl_jobs as holder
    where holder.host = p_host
      and holder.host_slot is not null
  );
end
$$;

comment on function silkline.count_jobs_on_host(text) is
  'How many running jobs occupy a host.';

revoke execute on function silkline.count_jobs_on_host(text) from public, anon, authenticated;

-- Check the first jobs in line, and set aside those whose host or owner is at its limit.
-- Returns how many jobs it checked and moved, and which it left to another claim.
create function silkline.set_blocked_jobs_aside(
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
      limit 50
      for update skip locked
    ) as head
    order by head.place
    limit 50
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
      when silkline.count_jobs_on_host(v_job.host) >= p_max_per_host
        then 'host'
      when silkline.count_leases(v_job.user_id) >= p_max_per_user
        then 'owner'
    end::public.crawl_job_wait;

    if v_wait is not null then
      update public.crawl_jobs as job
      set waits_for = v_wait
      where job.id = v_job.id;
      moved := moved + 1;
    end if;
  end loop;
end
$$;

comment on function silkline.set_blocked_jobs_aside(text[], uuid[], integer, integer) is
  'Set aside jobs at the head of the line whose host or owner is at its limit.';

revoke execute on function silkline.set_blocked_jobs_aside(text[], uuid[], integer, integer)
  from public, anon, authenticated;

-- Lease up to one job per token: the first in line that this worker can run.
--
-- The same token returns the same job again, so a call whose answer was lost can be repeated
-- safely. A token whose holder has ended its lease returns nothing and takes nothing.
-- definer because crawl_worker has no rights on tables
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
  -- Planning each time took 580 of the 1,500 microseconds of a claim. A plan made while the
  -- table was small must not scan it once it is large. JIT compiles longer than the query runs.
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
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
  v_ids uuid[];
  v_hosts text[];
  v_owners uuid[];
  v_claimed integer;
  v_line record;
  v_passed uuid[] := '{}'::uuid[];
  v_moved integer := 0;
begin
  if p_worker_id is null
    or array_ndims(p_lease_tokens) is distinct from 1
    or cardinality(p_lease_tokens) > 1
    or p_lease_tokens[1] is null
  then
    perform silkline.check_lease_tokens(p_worker_id, p_lease_tokens);
  end if;

  -- A repeated call waits here until the first one has committed, then finds its jobs.
  if not pg_try_advisory_xact_lock(hashtextextended('worker ' || p_worker_id, 0)) then
    perform pg_advisory_xact_lock(hashtextextended('worker ' || p_worker_id, 0));
  end if;

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
    coalesce(p_kinds, array['crawl'] || settings.plugin_kinds),
    make_interval(secs => settings.stale_after_seconds),
    settings.max_jobs_per_host,
    settings.max_running_jobs_per_user
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

    v_tokens := silkline.unused_tokens(p_lease_tokens);
  end if;

  if v_has_lapsed then
    perform silkline.reap_leases(10);
  end if;

  if v_has_due then
    perform silkline.unblock_due_jobs(100);
  end if;

  -- One round is usually enough. A round takes one job per host (and per limited owner), so
  -- that the next round counts it, and sets blocked jobs aside. After 400 of those the call
  -- returns what it has: they stay set aside, and the next call continues from there.
  while v_tokens <> '{}' and cardinality(v_passed) + v_moved < 400 loop
    v_ids := '{}';
    v_hosts := '{}';
    v_owners := '{}';

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
      -- Leave a host or owner to the claim that holds its lock.
      continue when v_job.host = any (v_hosts)
        or v_job.limited_user_id = any (v_owners)
        or not pg_try_advisory_xact_lock(hashtextextended('host ' || v_job.host, 0))
        or not coalesce(
          pg_try_advisory_xact_lock(hashtextextended('owner ' || v_job.limited_user_id, 0)),
          true
        );

      v_ids := v_ids || v_job.id;
      v_hosts := v_hosts || v_job.host;
      v_owners := v_owners || v_job.limited_user_id;
    end loop;

    -- SKIP LOCKED alone would let two claims take the same slot of a host. So this statement
    -- runs under the advisory lock of each host, and starts, and so takes its snapshot, after
    -- the locks were acquired.
    return query
      update public.crawl_jobs as job
      set
        status = 'processing',
        worker_id = p_worker_id,
        lease_token = v_tokens[chosen.nth],
        lease_check_at = now() + v_stale_after,
        host_slot = host.slot,
        last_heartbeat = now(),
        attempt = job.attempt + 1,
        error_code = null,
        error_message = null,
        started_at = coalesce(job.started_at, now())
      from unnest(v_ids, v_hosts, v_owners) with ordinality as chosen (id, host, owner_id, nth)
      cross join lateral (
        select min(slot) as slot
        from generate_series(1, v_max_per_host) as slot
        where not exists (
          select
          from public.crawl_jobs as holder
          where holder.host = chosen.host
            and holder.host_slot = slot
        )
      ) as host
      where job.id = chosen.id
        and host.slot is not null
        -- After the limit was lowered, slots above it may still be held.
        and v_max_per_host > (
          select count(*)
          from public.crawl_jobs as holder
          where holder.host = chosen.host
            and holder.host_slot is not null
        )
        and (chosen.owner_id is null or silkline.count_leases(chosen.owner_id) < v_max_per_user)
      returning job.*;
    get diagnostics v_claimed = row_count;

    if v_claimed = cardinality(v_ids) then
      v_tokens := v_tokens[v_claimed + 1 :];
    else
      v_tokens := silkline.unused_tokens(v_tokens);
    end if;
    exit when v_tokens = '{}';

    select *
    into v_line
    from silkline.set_blocked_jobs_aside(v_kinds, v_passed, v_max_per_host, v_max_per_user);

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

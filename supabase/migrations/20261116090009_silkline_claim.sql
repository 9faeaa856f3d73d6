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

-- How many jobs of a user are running. Paused and stopped ones count until their worker has
-- released them, because they may be resumed. Uses the index of open jobs: an index of leases by
-- owner repeats one key many times, and maintaining it cost each claim 100 microseconds.
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
    from unnest('{processing,paused,stopped}'::public.crawl_job_status[]) as running
    cross join lateral (
      select
      from silkline.jobs as job
      where job.owner_id = p_owner_id
        and job.status = running
        and job.worker_id is not null
      offset 0
    ) as leased
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

-- What a claim has to know before it takes jobs.
create type silkline.claim_scene as (
  is_repeated boolean,     -- some of the tokens have been used
  has_lapsed boolean,      -- leases are due for the reaper
  has_due boolean,         -- the time of waiting jobs has come
  has_old_floors boolean,
  lanes text[],
  per_host integer,
  lists integer,
  per_owner integer,       -- null: no limit
  stale_after interval
);

-- The job that takes the turn of another: the one that its owner prefers, if there is one in the
-- same line. The two swap places, so that the turn is used once. The job that has lost its turn
-- takes the owner's next one, because it is older than the others of its priority.
create function silkline.take_turn(p_turn uuid, p_taken uuid[], out id uuid, out host text)
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
    and (job.priority > 100 - (job.place >> 40) or job.has_lost_turn)
    and job.owner_id = v_turn.owner_id
    and job.lane = v_turn.lane
    and job.place >> 40 = v_turn.place >> 40
    and job.id <> all (p_taken)
    and (job.priority > v_turn.priority or (job.priority = v_turn.priority and job.id < p_turn))
  order by job.priority desc, job.id
  limit 1
  for update skip locked;

  if v_better.id is null then
    id := v_turn.id;
    host := v_turn.host;
    return;
  end if;

  update silkline.jobs as job
  set
    place = case job.id when p_turn then v_better.place else v_turn.place end,
    has_lost_turn = job.id = p_turn
  where job.id in (p_turn, v_better.id);

  id := v_better.id;
  host := v_better.host;
end
$$;

comment on function silkline.take_turn(uuid, uuid[]) is
  'The job of the same owner that takes the turn of this one.';

revoke execute on function silkline.take_turn(uuid, uuid[]) from public, anon, authenticated;

-- The lowest free slot of a host, or null if it is at its limit. Its caller holds the lock of the
-- host: SKIP LOCKED alone would let two claims take the same slot.
create function silkline.free_slot(p_host text, p_max_jobs integer)
  returns integer
  language plpgsql
  volatile  -- to see what has been committed up to now
  security invoker
  set search_path = ''
as $$
begin
  if not exists (
    select
    from silkline.jobs as holder
    where holder.host = p_host
      and holder.host_slot is not null
  ) then
    return 1;
  end if;

  -- After the limit was lowered, slots above it may still be held.
  return (
    select min(slot)
    from generate_series(1, p_max_jobs) as slot
    where silkline.count_jobs_on_host(p_host) < p_max_jobs
      and not exists (
        select
        from silkline.jobs as holder
        where holder.host = p_host
          and holder.host_slot = slot
      )
  );
end
$$;

comment on function silkline.free_slot(text, integer) is
  'The lowest free slot of a host, or null.';

revoke execute on function silkline.free_slot(text, integer) from public, anon, authenticated;

-- Pick the first jobs in line as they are, one per host, and lock them and their hosts. Jobs that
-- need a second look are left to pick_jobs: those whose host another call has locked, those that
-- have run before, those of an owner with a preferred job, and those of deleted accounts.
create function silkline.pick_at_once(p_lanes text[], p_count integer)
  returns uuid[]
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return (
    select coalesce(
      -- Of the first job of each host, so that none overtakes one that needs a second look.
      array_agg(next.id) filter (
        where next.is_new
          and next.is_next_of_owner
          and next.has_owner
          and silkline.try_lock('host', next.host)
      ),
      case when count(*) > 0 then '{}' end::uuid[]
    )
    from (
      select distinct on (first.host) first.*
      from (
        select ahead.*
        from silkline.lines as line
        cross join lateral (
          select
            job.id,
            job.host,
            job.place,
            job.attempt = 0 as is_new,
            (
              select preferred.id
              from silkline.jobs as preferred
              where preferred.status = 'pending'
                and preferred.waits_for is null
                and (preferred.priority > 100 - (preferred.place >> 40) or preferred.has_lost_turn)
                and preferred.owner_id = job.owner_id
                and preferred.lane = job.lane
              limit 1
            ) is null as is_next_of_owner,
            (
              select account.owner_id
              from silkline.deleted_accounts as account
              where account.owner_id = job.owner_id
            ) is null as has_owner
          from silkline.jobs as job
          where job.status = 'pending'
            and job.waits_for is null
            and job.lane = line.lane
            and job.place >= line.floor
            and job.place < line.ceiling
          order by job.place, job.id
          limit p_count
          for update of job skip locked
        ) as ahead
        where line.lane = any (p_lanes)
        order by ahead.place, ahead.id
        limit p_count
      ) as first
      order by first.host, first.place, first.id
    ) as next
  );
end
$$;

comment on function silkline.pick_at_once(text[], integer) is
  'Pick and lock the first jobs in line that need no second look; null if none is in line.';

revoke execute on function silkline.pick_at_once(text[], integer)
  from public, anon, authenticated;

-- Check the first jobs in line. Those that can run are picked, with a slot of their host; those
-- whose host or owner is at its limit are set aside; those of deleted accounts are deleted. A job
-- whose host or owner another call has locked is left to that call. A round picks one job per host
-- and per limited owner, so that the next round counts it.
create function silkline.pick_jobs(
  p_wanted integer,
  p_checked integer,
  p_passed uuid[],
  p_scene silkline.claim_scene,
  out ids uuid[],
  out slots integer[],
  out contested uuid[],
  out met integer
)
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_job record;
  v_slot integer;
  v_hosts text[] := '{}'::text[];
  v_owner_ids uuid[] := '{}'::uuid[];
begin
  ids := '{}';
  slots := '{}';
  contested := '{}';
  met := 0;

  for v_job in
    select first.*
    from silkline.lines as line
    cross join lateral (
      select
        job.id,
        job.host,
        job.owner_id,
        job.place,
        job.attempt,
        exists (
          select
          from silkline.jobs as preferred
          where preferred.status = 'pending'
            and preferred.waits_for is null
            and (preferred.priority > 100 - (preferred.place >> 40) or preferred.has_lost_turn)
            and preferred.owner_id = job.owner_id
            and preferred.lane = job.lane
        ) as has_preferred,
        exists (
          select
          from silkline.deleted_accounts as account
          where account.owner_id = job.owner_id
        ) as is_deleted
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for is null
        and job.lane = line.lane
        and job.place >= line.floor
        and job.place < line.ceiling
        and job.id <> all (p_passed)
      order by job.place, job.id
      limit p_checked
      for update of job skip locked
    ) as first
    where line.lane = any (p_scene.lanes)
    order by first.place, first.id
    limit p_checked
  loop
    exit when cardinality(ids) = p_wanted;
    met := met + 1;

    if v_job.has_preferred then
      select better.id, better.host
      into v_job.id, v_job.host
      from silkline.take_turn(v_job.id, ids || contested || p_passed) as better;
    end if;

    continue when v_job.host = any (v_hosts)
      or (p_scene.per_owner is not null and v_job.owner_id = any (v_owner_ids));

    if not silkline.try_lock('host', v_job.host)
      or (
        p_scene.per_owner is not null
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
      continue;
    end if;

    v_slot := silkline.free_slot(
      v_job.host,
      case when v_job.host like 'list of %' then p_scene.lists else p_scene.per_host end
    );

    if v_slot is null then
      update silkline.jobs as job
      set waits_for = 'host'
      where job.id = v_job.id;

      if p_scene.per_owner is not null then
        -- Its owner may run the next one.
        perform silkline.unblock_next_for_owner(v_job.owner_id, 1);
      end if;
      continue;
    end if;

    if p_scene.per_owner is not null
      and v_job.owner_id <> '00000000-0000-0000-0000-000000000000'
      and silkline.count_leases(v_job.owner_id) >= p_scene.per_owner
    then
      update silkline.jobs as job
      set waits_for = 'owner'
      where job.id = v_job.id;
      -- Its host is free for the next one.
      perform silkline.unblock_next_for_host(v_job.host, 1);
      continue;
    end if;

    -- The receipt of an earlier lease is about to be overwritten.
    if v_job.attempt > 0 or v_job.has_preferred then
      insert into silkline.spent_tokens (lease_token)
      select job.lease_token
      from silkline.jobs as job
      where job.id = v_job.id
        and job.lease_token is not null
      on conflict do nothing;
    end if;

    ids := ids || v_job.id;
    slots := slots || v_slot;
    v_hosts := v_hosts || v_job.host;
    v_owner_ids := v_owner_ids || v_job.owner_id;
  end loop;
end
$$;

comment on function silkline.pick_jobs(integer, integer, uuid[], silkline.claim_scene) is
  'Pick and lock the first jobs in line that can run, and set the others aside.';

revoke execute on function silkline.pick_jobs(integer, integer, uuid[], silkline.claim_scene)
  from public, anon, authenticated;

-- A leased job as its worker sees it.
create function silkline.lease_of(p_job silkline.jobs)
  returns public.crawl_lease
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return row (
    p_job.lease_token,
    p_job.id,
    p_job.user_id,
    p_job.kind,
    p_job.payload,
    p_job.priority,
    p_job.source_id,
    p_job.host,
    p_job.status,
    p_job.attempt,
    p_job.retry_count,
    p_job.max_retries,
    p_job.running_seconds,
    p_job.created_at,
    p_job.started_at
  )::public.crawl_lease;
end
$$;

comment on function silkline.lease_of(silkline.jobs) is
  'A leased job as its worker sees it.';

revoke execute on function silkline.lease_of(silkline.jobs) from public, anon, authenticated;

-- Lease one picked job. Without a slot, it is leased only if its host is free: this statement
-- starts, and so takes its snapshot, after the lock of the host was acquired.
create function silkline.lease_job(
  p_worker_id uuid,
  p_lease_token uuid,
  p_job_id uuid,
  p_slot integer,
  p_stale_after interval
)
  returns public.crawl_lease
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_job silkline.jobs;
begin
  update silkline.jobs as job
  set
    status = 'processing',
    event_seq = job.event_seq + 1,
    worker_id = p_worker_id,
    lease_token = p_lease_token,
    lease_check_at = now() + p_stale_after,
    host_slot = coalesce(p_slot, 1),
    last_heartbeat = now(),
    attempt = job.attempt + 1,
    error_code = null,
    error_message = null,
    started_at = coalesce(job.started_at, now())
  where job.id = p_job_id
    and (
      p_slot is not null
      or (
        select holder.id
        from silkline.jobs as holder
        where holder.host = job.host
          and holder.host_slot is not null
        limit 1
      ) is null
    )
  returning job.* into v_job;

  if v_job.id is null then
    return null;
  end if;

  perform silkline.record_change(v_job, 'pending', 'claim', 'worker', p_worker_id);

  return silkline.lease_of(v_job);
end
$$;

comment on function silkline.lease_job(uuid, uuid, uuid, integer, interval) is
  'Lease one picked job to a worker.';

revoke execute on function silkline.lease_job(uuid, uuid, uuid, integer, interval)
  from public, anon, authenticated;

-- Lease many picked jobs whose hosts are free, in one statement: it costs a fourth of what
-- lease_job does. A message that cannot be sent must not fail the claim: then the whole is done
-- again without messages.
create function silkline.lease_jobs(
  p_worker_id uuid,
  p_lease_tokens uuid[],
  p_job_ids uuid[],
  p_stale_after interval,
  p_is_announced boolean default true
)
  returns public.crawl_lease[]
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_leases public.crawl_lease[];
begin
  with claimed as (
    update silkline.jobs as job
    set
      status = 'processing',
      event_seq = job.event_seq + 1,
      worker_id = p_worker_id,
      lease_token = picked.lease_token,
      lease_check_at = now() + p_stale_after,
      host_slot = 1,
      last_heartbeat = now(),
      attempt = job.attempt + 1,
      error_code = null,
      error_message = null,
      started_at = coalesce(job.started_at, now())
    from unnest(p_job_ids, p_lease_tokens) as picked (id, lease_token)
    where job.id = picked.id
      and (
        select holder.id
        from silkline.jobs as holder
        where holder.host = job.host
          and holder.host_slot is not null
        limit 1
      ) is null
    returning job.*, silkline.status_message(job, 'pending', 'claim') as message
  ),
  recorded as (
    insert into silkline.events (
      job_id,
      seq,
      from_status,
      to_status,
      actor,
      actor_id,
      reason,
      attempt
    )
    select
      claimed.id,
      claimed.event_seq,
      'pending',
      claimed.status,
      'worker',
      p_worker_id,
      'claim',
      claimed.attempt
    from claimed
  ),
  announced as (
    insert into realtime.messages (id, topic, extension, event, private, payload)
    select
      -- Its default, gen_random_uuid, reads /dev/urandom in some builds: 8 microseconds each.
      md5(topic || claimed.id || claimed.event_seq)::uuid,
      topic,
      'broadcast',
      'status',
      true,
      claimed.message
    from claimed
    cross join lateral unnest(
      array['crawl_job:' || claimed.id, 'crawl_user:' || claimed.user_id]
    ) as topic
    where p_is_announced
      and topic is not null
  )
  select array_agg(
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
  )
  into v_leases
  from claimed;

  return v_leases;
exception
  when others then
    if not p_is_announced then
      raise;
    end if;

    raise warning 'live messages were not sent: %', sqlerrm;
    return silkline.lease_jobs(p_worker_id, p_lease_tokens, p_job_ids, p_stale_after, false);
end
$$;

comment on function silkline.lease_jobs(uuid, uuid[], uuid[], interval, boolean) is
  'Lease many picked jobs to a worker, in one statement.';

revoke execute on function silkline.lease_jobs(uuid, uuid[], uuid[], interval, boolean)
  from public, anon, authenticated;

create function silkline.look_around(
  p_lease_tokens uuid[],
  p_kinds text[],
  p_can_render boolean
)
  returns silkline.claim_scene
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_scene silkline.claim_scene;
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
    coalesce(p_kinds, array['crawl'] || settings.plugin_kinds)
      || case
        when p_can_render and coalesce('crawl' = any (p_kinds), p_kinds is null)
          then array['crawl:browser']
      end,
    settings.max_jobs_per_host,
    settings.max_lists_per_user,
    settings.max_running_jobs_per_user,
    make_interval(secs => settings.stale_after_seconds)
  into v_scene
  from public.crawl_settings as settings
  cross join silkline.time_floors as floors;

  return v_scene;
end
$$;

comment on function silkline.look_around(uuid[], text[], boolean) is
  'What a claim has to know before it takes jobs.';

revoke execute on function silkline.look_around(uuid[], text[], boolean) from public, anon, authenticated;

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
    select (silkline.lease_of(job)).*
    from silkline.jobs as job
    where job.lease_token = any (p_lease_tokens)
      and job.worker_id = p_worker_id
      and not exists (
        select
        from silkline.deleted_accounts as account
        where account.owner_id = job.owner_id
      );
end
$$;

comment on function silkline.current_leases(uuid, uuid[]) is
  'The jobs that a worker leases with these tokens.';

revoke execute on function silkline.current_leases(uuid, uuid[]) from public, anon, authenticated;

-- Lease jobs in rounds, each of which sets blocked jobs aside. After 400 jobs the call returns what
-- it has: what was set aside stays so, and the next call continues from there.
create function silkline.claim_carefully(
  p_worker_id uuid,
  p_lease_tokens uuid[],
  p_scene silkline.claim_scene
)
  returns setof public.crawl_lease
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_tokens uuid[] := p_lease_tokens;
  v_picked record;
  v_passed uuid[] := '{}'::uuid[];
  v_met integer := 0;
begin
  while v_tokens <> '{}' and v_met < 400 loop
    v_picked := silkline.pick_jobs(cardinality(v_tokens), 50, v_passed, p_scene);
    exit when v_picked.met = 0;

    for v_nth in 1..cardinality(v_picked.ids) loop
      return next silkline.lease_job(
        p_worker_id,
        v_tokens[v_nth],
        v_picked.ids[v_nth],
        v_picked.slots[v_nth],
        p_scene.stale_after
      );
    end loop;

    v_tokens := v_tokens[cardinality(v_picked.ids) + 1 :];
    v_passed := v_passed || v_picked.contested;
    v_met := v_met + v_picked.met;
  end loop;
end
$$;

comment on function silkline.claim_carefully(uuid, uuid[], silkline.claim_scene) is
  'Lease jobs in rounds, and set blocked ones aside.';

revoke execute on function silkline.claim_carefully(uuid, uuid[], silkline.claim_scene)
  from public, anon, authenticated;

-- Lease up to one job per token: the first in line that this worker can run.
--
-- The same token returns the same job again, so a call whose answer was lost can be repeated
-- safely. A token whose lease has ended returns nothing and takes nothing. A worker without a
-- browser passes p_can_render false, and is given no job that renders every page.
-- definer because crawl_worker has no rights on tables
create function public.claim_crawl_jobs(
  p_worker_id uuid,
  p_lease_tokens uuid[],
  p_kinds text[] default null,
  p_can_render boolean default true
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
  v_scene silkline.claim_scene;
  v_ids uuid[];
  v_lease public.crawl_lease;
begin
  perform silkline.check_worker_id(p_worker_id);
  perform silkline.check_lease_tokens(p_lease_tokens);

  -- A repeated call waits here until the first one has committed, then finds its jobs.
  perform silkline.lock('worker', p_worker_id::text);
  v_scene := silkline.look_around(p_lease_tokens, p_kinds, p_can_render);

  if v_scene.is_repeated then
    return query select lease.* from silkline.current_leases(p_worker_id, p_lease_tokens) as lease;
    v_tokens := silkline.unused_tokens(p_lease_tokens);
  end if;

  if v_scene.has_lapsed then
    perform silkline.reap_leases(10);
  end if;

  if v_scene.has_due then
    perform silkline.unblock_due_jobs(100);
  end if;

  if v_scene.has_old_floors then
    perform silkline.raise_floors();
  end if;

  -- Usually this is all.
  if v_tokens <> '{}' and v_scene.per_owner is null then
    v_ids := silkline.pick_at_once(v_scene.lanes, cardinality(v_tokens));

    if v_ids is null then
      return;
    elsif cardinality(v_ids) = 1 then
      v_lease := silkline.lease_job(
        p_worker_id, v_tokens[1], v_ids[1], null, v_scene.stale_after
      );

      if v_lease.id is not null then
        return next v_lease;
        v_tokens := v_tokens[2 :];
      end if;
    elsif v_ids <> '{}' then
      return query
        select lease.*
        from unnest(
          silkline.lease_jobs(p_worker_id, v_tokens, v_ids, v_scene.stale_after)
        ) as lease;
      v_tokens := silkline.unused_tokens(v_tokens);
    end if;
  end if;

  if v_tokens <> '{}' then
    return query
      select lease.*
      from silkline.claim_carefully(p_worker_id, v_tokens, v_scene) as lease;
  end if;
end
$$;

comment on function public.claim_crawl_jobs(uuid, uuid[], text[], boolean) is
  'Lease up to one job per token; the same token returns the same job again.';

revoke execute on function public.claim_crawl_jobs(uuid, uuid[], text[], boolean)
  from public, anon, authenticated;
grant execute on function public.claim_crawl_jobs(uuid, uuid[], text[], boolean)
  to service_role, crawl_worker;

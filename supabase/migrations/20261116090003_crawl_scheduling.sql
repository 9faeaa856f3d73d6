-- The line: which pending job runs next.
--
-- Every job in the line has a place: one bigint, the band of its priority plus a turn.
-- A job that joins gets the turn after its owner's last job in the line, but never one
-- before the head of the line. So 100,000 jobs of one user stretch far back, while the
-- single job of another lands at the head: turns between users, and the claim stays the
-- first row of one index.
--
-- Only jobs that could run stand in the line. A job that waits for its time, for its host
-- or for its owner's limit stands aside (waits_for) and costs a claim nothing. Claims move
-- a job aside when they meet it blocked; whatever frees a host or an owner calls the next
-- one back. Calling one too many is harmless, the next claim moves it aside again;
-- calling one too few would leave a job waiting for nothing. Both sides hold the advisory
-- lock of the host (or owner) that they decide about, so that no call is missed; a hash
-- that collides costs a moment's wait, nothing else.

-- Kinds of job that this queue knows.
create function silkline.known_kinds()
  returns text[]
  language sql
  stable
  security invoker
  set search_path = ''
as $$
  select array['crawl', 'audit'] || settings.plugin_kinds
  from public.crawl_settings as settings;
$$;

comment on function silkline.known_kinds() is
  'The kinds of job that may be enqueued.';

revoke execute on function silkline.known_kinds() from public, anon, authenticated;

-- The first place of a priority's band: 2^40 turns lie between two priorities.
create function silkline.band_start(p_priority integer)
  returns bigint
  language sql
  immutable
  security invoker
  set search_path = ''
as $$
  select (100 - p_priority)::bigint << 40;
$$;

comment on function silkline.band_start(integer) is
  'The first place in the line for a priority.';

revoke execute on function silkline.band_start(integer) from public, anon, authenticated;

-- The place of the first job in the line with this priority, over all kinds.
create function silkline.head_place(p_priority integer)
  returns bigint
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_start constant bigint := silkline.band_start(p_priority);
  v_end constant bigint := silkline.band_start(p_priority - 1);
begin
  return (
    -- An empty line begins a little behind, so that there is room at the front.
    select coalesce(min(head.place), v_start + 1048576)
    from unnest(silkline.known_kinds()) as known (kind)
    cross join lateral (
      select job.place
      from public.crawl_jobs as job
      where job.status = 'pending'
        and job.waits_for is null
        and job.kind = known.kind
        and job.place >= v_start
        and job.place < v_end
      order by job.place
      limit 1
    ) as head
  );
end
$$;

comment on function silkline.head_place(integer) is
  'Where the line of one priority begins at the moment.';

revoke execute on function silkline.head_place(integer) from public, anon, authenticated;

-- Where a job goes that had begun and was interrupted through no fault of its own: it has had
-- its turn, and does not wait for another one.
create function silkline.front_place(p_priority integer)
  returns bigint
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return greatest(silkline.head_place(p_priority) - 1, silkline.band_start(p_priority));
end
$$;

comment on function silkline.front_place(integer) is
  'The place before the head of the line of one priority.';

revoke execute on function silkline.front_place(integer) from public, anon, authenticated;

-- Where a job of this owner joins the line. A job that stood in it before keeps its place
-- where that is the better one for it, yet never overtakes the head.
create function silkline.join_place(
  p_user_id uuid,
  p_priority integer,
  p_old_place bigint default null
)
  returns bigint
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_head constant bigint := silkline.head_place(p_priority);
  v_last bigint;
begin
  select job.place
  into v_last
  from public.crawl_jobs as job
  where job.status = 'pending'
    and job.waits_for is null
    and coalesce(job.user_id, '00000000-0000-0000-0000-000000000000'::uuid)
      = coalesce(p_user_id, '00000000-0000-0000-0000-000000000000'::uuid)
    and job.place >= silkline.band_start(p_priority)
    and job.place < silkline.band_start(p_priority - 1)
  order by job.place desc
  limit 1;

  return greatest(v_head, least(p_old_place, coalesce(v_last + 1, v_head)));
end
$$;

comment on function silkline.join_place(uuid, integer, bigint) is
  'The place at which a job of this owner and priority joins the line.';

revoke execute on function silkline.join_place(uuid, integer, bigint)
  from public, anon, authenticated;

-- Call back the first job that waits for this host.
create function silkline.unblock_next_for_host(p_host text)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_id uuid;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('host ' || p_host, 0)) then
    perform pg_advisory_xact_lock(hashtextextended('host ' || p_host, 0));
  end if;

  select job.id
  into v_id
  from public.crawl_jobs as job
  where job.status = 'pending'
    and job.waits_for = 'host'
    and job.host = p_host
  order by job.place
  limit 1
  for update;

  if v_id is null then
    return 0;
  end if;

  update public.crawl_jobs as job
  set
    waits_for = null,
    place = silkline.join_place(job.user_id, job.priority, job.place)
  where job.id = v_id;

  return 1;
end
$$;

comment on function silkline.unblock_next_for_host(text) is
  'Put the first job that waits for a host back into the line.';

revoke execute on function silkline.unblock_next_for_host(text) from public, anon, authenticated;

-- Call back the first job that waits for its owner's limit.
create function silkline.unblock_next_for_owner(p_user_id uuid)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_id uuid;
begin
  perform pg_advisory_xact_lock(hashtextextended('owner ' || p_user_id, 0));

  select job.id
  into v_id
  from public.crawl_jobs as job
  where job.status = 'pending'
    and job.waits_for = 'owner'
    and job.user_id = p_user_id
  order by job.place
  limit 1
  for update;

  if v_id is null then
    return 0;
  end if;

  update public.crawl_jobs as job
  set
    waits_for = null,
    place = silkline.join_place(job.user_id, job.priority, job.place)
  where job.id = v_id;

  return 1;
end
$$;

comment on function silkline.unblock_next_for_owner(uuid) is
  'Put the first job that waits for its owner''s limit back into the line.';

revoke execute on function silkline.unblock_next_for_owner(uuid) from public, anon, authenticated;

-- Let jobs whose time has come into the line; a bounded number per call.
create function silkline.unblock_due_jobs(p_limit integer)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_ids constant uuid[] := array(
    select due.id
    from public.crawl_jobs as due
    where due.status = 'pending'
      and due.waits_for = 'time'
      and due.run_after <= now()
    order by due.run_after
    limit p_limit
    for update skip locked
  );
begin
  -- One behind the other: jobs of one owner that come due together still take turns with
  -- those of others.
  update public.crawl_jobs as job
  set
    waits_for = null,
    place = called.place
  from (
    select
      due.id,
      silkline.join_place(
        due.user_id,
        due.priority,
        case when due.attempt > 0 then due.place end
      ) + row_number() over (
        partition by due.user_id, due.priority, due.attempt > 0
        order by due.run_after, due.place
      ) - 1 as place
    from public.crawl_jobs as due
    where due.id = any (v_ids)
  ) as called
  where job.id = called.id;

  return cardinality(v_ids);
end
$$;

comment on function silkline.unblock_due_jobs(integer) is
  'Put jobs whose run_after has passed into the line.';

revoke execute on function silkline.unblock_due_jobs(integer) from public, anon, authenticated;

-- A job has left the line or ended its lease: whoever waited behind it gets its turn.
-- Moved aside for its host, it frees no host; moved aside for its owner, no owner. Mostly
-- nobody waits, and the one statement that tells is all it costs.
create function silkline.unblock_next_jobs()
  returns trigger
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_is_host_awaited boolean;
  v_is_owner_limited boolean;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('host ' || old.host, 0)) then
    perform pg_advisory_xact_lock(hashtextextended('host ' || old.host, 0));
  end if;

  select
    exists (
      select
      from public.crawl_jobs as job
      where job.status = 'pending'
        and job.waits_for = 'host'
        and job.host = old.host
    ),
    settings.max_running_jobs_per_user is not null
  into v_is_host_awaited, v_is_owner_limited
  from public.crawl_settings as settings;

  if v_is_host_awaited and new.waits_for is distinct from 'host' then
    perform silkline.unblock_next_for_host(old.host);
  end if;

  if v_is_owner_limited and new.waits_for is distinct from 'owner' and old.user_id is not null then
    perform silkline.unblock_next_for_owner(old.user_id);
  end if;

  return null;
end
$$;

comment on function silkline.unblock_next_jobs() is
  'Trigger: let the next job of the host and of the owner into the line.';

revoke execute on function silkline.unblock_next_jobs() from public, anon, authenticated;

-- Not for a job that goes back into the line: it is itself the next one.
create trigger tg_crawl_jobs_unblock_next
  after update of status, waits_for, lease_check_at on public.crawl_jobs
  for each row
  when (
    (old.lease_check_at is not null or (old.status = 'pending' and old.waits_for is null))
    and new.lease_check_at is null
    and not (new.status = 'pending' and new.waits_for is null)
  )
  execute function silkline.unblock_next_jobs();

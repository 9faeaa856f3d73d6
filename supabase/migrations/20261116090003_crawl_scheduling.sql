-- The order in which pending jobs are claimed.
--
-- Jobs that could run now are in line, ordered by place: one bigint, the band of the job's
-- priority plus a turn. A new job gets the turn after its owner's last job in line, but never
-- one before the head of the line. So 100,000 jobs of one user reach far back, while the only
-- job of another user starts at the head: users take turns, and a claim still reads the first
-- row of one index.
--
-- A job that is blocked by its time, its host or its owner's limit is set aside (waits_for)
-- and costs a claim nothing. A claim sets aside the blocked jobs that it finds; whatever frees
-- a host or an owner unblocks the next job. Unblocking one job too many is harmless, because
-- the next claim sets it aside again; one too few would leave a job waiting for nothing. Both
-- sides hold the advisory lock of the host or owner in question, so none is missed. A hash
-- collision costs a short wait and nothing else.

create function silkline.known_kinds()
  returns text[]
  language sql
  stable
  security invoker
  set search_path = ''
as $$
  select array['crawl'] || settings.plugin_kinds
  from public.crawl_settings as settings;
$$;

comment on function silkline.known_kinds() is
  'The kinds of job that may be enqueued.';

revoke execute on function silkline.known_kinds() from public, anon, authenticated;

-- The first place of a priority's band. Each band holds 2^40 turns.
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
  'The first place of a priority.';

revoke execute on function silkline.band_start(integer) from public, anon, authenticated;

-- The place of the first job in line with this priority, over all kinds.
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
    -- An empty line starts a little way into its band, which leaves room at the front.
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
  'The place where the line of one priority starts now.';

revoke execute on function silkline.head_place(integer) from public, anon, authenticated;

-- The place for a job that was interrupted through no fault of its own: it already had its
-- turn, so it does not wait for another.
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
  'The place just before the head of the line of one priority.';

revoke execute on function silkline.front_place(integer) from public, anon, authenticated;

-- The place for a job of this owner. A job that was in line before keeps its old place if that
-- is better, but never overtakes the head.
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
  'The place where a job of this owner and priority joins the line.';

revoke execute on function silkline.join_place(uuid, integer, bigint)
  from public, anon, authenticated;

-- Put the first job that waits for this host back in line.
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
  'Put the first job that waits for a host back in line; returns how many it was.';

revoke execute on function silkline.unblock_next_for_host(text) from public, anon, authenticated;

-- Put the first job that waits for its owner's limit back in line.
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
  'Put the first job that waits for its owner''s limit back in line; returns how many it was.';

revoke execute on function silkline.unblock_next_for_owner(uuid) from public, anon, authenticated;

-- Put jobs whose time has come in line; a bounded number per call.
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
  -- One place each: jobs of one owner that come due together still take turns with the jobs
  -- of others.
  update public.crawl_jobs as job
  set
    waits_for = null,
    place = unblocked.place
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
  ) as unblocked
  where job.id = unblocked.id;

  return cardinality(v_ids);
end
$$;

comment on function silkline.unblock_due_jobs(integer) is
  'Put jobs whose run_after has passed in line.';

revoke execute on function silkline.unblock_due_jobs(integer) from public, anon, authenticated;

-- A job has left the line or its lease has ended: put the next job of its host and of its owner
-- in line. A job set aside for its host frees no host; one set aside for its owner frees no
-- owner. Usually no job waits, and the query that shows it is the whole cost.
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
  'Trigger: put the next job of the host and of the owner in line.';

revoke execute on function silkline.unblock_next_jobs() from public, anon, authenticated;

-- Not for a job that goes back in line: it is the next one itself.
create trigger tg_crawl_jobs_unblock_next
  after update of status, waits_for, lease_check_at on public.crawl_jobs
  for each row
  when (
    (old.lease_check_at is not null or (old.status = 'pending' and old.waits_for is null))
    and new.lease_check_at is null
    and not (new.status = 'pending' and new.waits_for is null)
  )
  execute function silkline.unblock_next_jobs();

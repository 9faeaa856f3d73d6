-- The order in which pending jobs are claimed.
--
-- Jobs that could run now are in line, ordered by place, then by age. A place is one bigint: the
-- band of a priority plus a turn. A new job gets the turn after its owner's last job in line, but
-- never one before the head of the line. So 100,000 jobs of one user reach far back, while the only
-- job of another user starts at the head: users take turns, and a claim still reads the first
-- row of one index.
--
-- The band is the priority as far as it counts among all users. A user's priority above
-- crawl_settings.max_user_priority changes nothing for others: it only decides which of the owner's
-- jobs takes the owner's next turn (silkline.pick_jobs).
--
-- A job that is blocked by its time, its host or its owner's limit is set aside (waits_for)
-- and costs a claim nothing. A claim sets aside the blocked jobs that it finds; whatever frees
-- a host or an owner unblocks the next job. Unblocking one job too many is harmless, because
-- the next claim sets it aside again; one too few would leave a job waiting for nothing. Both
-- sides hold the advisory lock of the host or owner in question, so none is missed. Only a deletion
-- does not wait for the lock; what it misses, maintenance finds within a minute.

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
create function silkline.band_start(p_band integer)
  returns bigint
  language sql
  immutable
  security invoker
  set search_path = ''
as $$
  select (100 - p_band)::bigint << 40;
$$;

comment on function silkline.band_start(integer) is
  'The first place of a band.';

revoke execute on function silkline.band_start(integer) from public, anon, authenticated;

-- The lines: one per lane of jobs and band. Under a snapshot that is held open, no index entry of a
-- claimed job can be removed, and a claim that began at the first entry would read all of them.
-- So each line has a floor, below which it has no job: the head of the line as it was at least ten
-- seconds ago. A job may get a place that is below the floor only if its transaction took longer
-- than that, and API calls are cut at 8 seconds; maintenance finds it then (lower_floors).
create table silkline.lines (
  lane text,
  band smallint,
  floor bigint not null,
  next_floor bigint not null,
  ceiling bigint generated always as ((101 - band)::bigint << 40) stored,
  primary key (lane, band),
  constraint lines_band_is_in_range check (band between -100 and 100),
  constraint lines_floor_is_in_band
    check (floor >= (100 - band)::bigint << 40 and floor <= next_floor)
)
with (fillfactor = 50);
alter table silkline.lines enable row level security;

comment on table silkline.lines is
  'The lines of pending jobs, each with a lower bound of the places in it.';

create policy "Only the service reads lines"
  on silkline.lines
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on silkline.lines from anon, authenticated, service_role;
grant select on silkline.lines to service_role;

-- The same for the two indexes of times that claims read.
create table silkline.time_floors (
  id boolean primary key default true,
  leases_until timestamptz not null default '-infinity',
  waits_until timestamptz not null default '-infinity',
  noted_at timestamptz not null default now(),
  constraint time_floors_is_one_row check (id)
)
with (fillfactor = 50);
alter table silkline.time_floors enable row level security;

comment on table silkline.time_floors is
  'No lease is due for a check, and no job for its start, before these times.';

create policy "Only the service reads floors"
  on silkline.time_floors
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on silkline.time_floors from anon, authenticated, service_role;
grant select on silkline.time_floors to service_role;

insert into silkline.time_floors default values;

-- Make sure that a line exists. It starts a little way into its band.
create function silkline.open_line(p_lane text, p_band integer)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  if not exists (
    select
    from silkline.lines as line
    where line.lane = p_lane
      and line.band = p_band
  ) then
    insert into silkline.lines (lane, band, floor, next_floor)
    values (
      p_lane,
      p_band,
      silkline.band_start(p_band),
      silkline.band_start(p_band) + 1048576
    )
    on conflict do nothing;
  end if;
end
$$;

comment on function silkline.open_line(text, integer) is
  'Make sure that the line of a lane and band exists.';

revoke execute on function silkline.open_line(text, integer) from public, anon, authenticated;

-- The place of the first job in a line. In an empty line, where the last one was seen.
create function silkline.head_place(p_lane text, p_band integer)
  returns bigint
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select coalesce(
      (
        select job.place
        from silkline.jobs as job
        where job.status = 'pending'
          and job.waits_for is null
          and job.lane = line.lane
          and job.place >= line.floor
          and job.place < line.ceiling
        order by job.place, job.id
        limit 1
      ),
      line.next_floor
    )
    from silkline.lines as line
    where line.lane = p_lane
      and line.band = p_band
  );
end
$$;

comment on function silkline.head_place(text, integer) is
  'The place of the head of a line.';

revoke execute on function silkline.head_place(text, integer) from public, anon, authenticated;

-- The place where a job joins the line of its lane, in the band of its place. A job that was in
-- line before keeps its old place if that is better, but never overtakes the head.
create function silkline.join_place(
  p_owner_id uuid,
  p_lane text,
  p_band integer,
  p_old_place bigint default null
)
  returns bigint
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_head constant bigint := silkline.head_place(p_lane, p_band);
  v_last bigint;
begin
  select job.place
  into v_last
  from silkline.jobs as job
  where job.owner_id = p_owner_id
    and job.status = 'pending'
    and job.waits_for is null
    and job.lane = p_lane
    and job.place >= v_head
    and job.place < silkline.band_start(p_band - 1)
  -- In the order of the owner's index. By place alone, the planner may read the whole line backward
  -- for an owner who has no job in it.
  order by job.waits_for desc, job.place desc
  limit 1;

  return greatest(v_head, least(p_old_place, coalesce(v_last + 1, v_head)));
end
$$;

comment on function silkline.join_place(uuid, text, integer, bigint) is
  'The place where a job of this owner joins a line.';

revoke execute on function silkline.join_place(uuid, text, integer, bigint)
  from public, anon, authenticated;

-- Raise the floors to what was seen at least ten seconds ago. One caller does it; the others need
-- not wait for that.
create function silkline.raise_floors()
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  if not silkline.try_lock('floors', '') then
    return;
  end if;

  update silkline.time_floors as floors
  set
    -- A claim sets the check of a lease far enough into the future.
    leases_until = greatest(
      floors.leases_until,
      least(
        now(),
        (
          select min(job.lease_check_at) - interval '1 second'
          from silkline.jobs as job
          where job.lease_check_at > floors.leases_until
        )
      )
    ),
    waits_until = greatest(
      floors.waits_until,
      least(
        now() - interval '10 seconds',
        (
          select min(job.run_after) - interval '1 second'
          from silkline.jobs as job
          where job.status = 'pending'
            and job.waits_for = 'time'
            and job.run_after > floors.waits_until
        )
      )
    ),
    noted_at = now()
  where floors.noted_at <= now() - interval '10 seconds';

  if not found then
    return;
  end if;

  update silkline.lines as line
  set
    floor = least(line.next_floor, head.place),
    next_floor = head.place
  from (
    select
      known.lane,
      known.band,
      silkline.head_place(known.lane, known.band) as place
    from silkline.lines as known
  ) as head
  where head.lane = line.lane
    and head.band = line.band
    and (line.next_floor <> head.place or line.floor <> line.next_floor);
end
$$;

comment on function silkline.raise_floors() is
  'Raise the lower bounds of the places and times that claims read.';

revoke execute on function silkline.raise_floors() from public, anon, authenticated;

-- Lower every floor that a job lies below, and open the lines that are missing. Finds the first job
-- of each lane and band by skipping through the index of the line.
create function silkline.lower_floors()
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  perform silkline.lock('floors', '');

  with recursive head as (
    (
      select job.lane, job.place
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for is null
      order by job.lane, job.place, job.id
      limit 1
    )
    union all
    select next.lane, next.place
    from head
    cross join lateral (
      select job.lane, job.place
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for is null
        and (job.lane, job.place) >= (head.lane, ((head.place >> 40) + 1) << 40)
      order by job.lane, job.place, job.id
      limit 1
    ) as next
  )
  insert into silkline.lines as line (lane, band, floor, next_floor)
  select
    head.lane,
    100 - (head.place >> 40),
    head.place,
    head.place
  from head
  on conflict (lane, band) do update
  set floor = excluded.floor
  where line.floor > excluded.floor;

  update silkline.time_floors as floors
  set
    leases_until = least(
      floors.leases_until,
      (
        select min(job.lease_check_at) - interval '1 second'
        from silkline.jobs as job
        where job.lease_check_at is not null
      )
    ),
    waits_until = least(
      floors.waits_until,
      (
        select min(job.run_after) - interval '1 second'
        from silkline.jobs as job
        where job.status = 'pending'
          and job.waits_for = 'time'
      )
    )
  where floors.id;
end
$$;

comment on function silkline.lower_floors() is
  'Lower every floor that a job lies below.';

revoke execute on function silkline.lower_floors() from public, anon, authenticated;

-- Put the first jobs that wait for this host back in line. Its caller holds the lock of the host.
create function silkline.unblock_next_for_host(p_host text, p_count integer)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_ids constant uuid[] := array(
    select job.id
    from silkline.jobs as job
    where job.status = 'pending'
      and job.waits_for = 'host'
      and job.host = p_host
    order by job.place, job.id
    limit p_count
    for update skip locked
  );
begin
  update silkline.jobs as job
  set
    waits_for = null,
    place = silkline.join_place(
      job.owner_id,
      job.lane,
      (100 - (job.place >> 40))::integer,
      job.place
    )
  where job.id = any (v_ids);

  return cardinality(v_ids);
end
$$;

comment on function silkline.unblock_next_for_host(text, integer) is
  'Put the first jobs that wait for a host back in line; returns how many it was.';

revoke execute on function silkline.unblock_next_for_host(text, integer)
  from public, anon, authenticated;

-- Put the first jobs that wait for their owner's limit back in line. Its caller holds the lock of
-- the owner.
create function silkline.unblock_next_for_owner(p_owner_id uuid, p_count integer)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_ids constant uuid[] := array(
    select job.id
    from silkline.jobs as job
    where job.status = 'pending'
      and job.waits_for = 'owner'
      and job.owner_id = p_owner_id
    order by job.place, job.id
    limit p_count
    for update skip locked
  );
begin
  update silkline.jobs as job
  set
    waits_for = null,
    place = silkline.join_place(
      job.owner_id,
      job.lane,
      (100 - (job.place >> 40))::integer,
      job.place
    )
  where job.id = any (v_ids);

  return cardinality(v_ids);
end
$$;

comment on function silkline.unblock_next_for_owner(uuid, integer) is
  'Put the first jobs that wait for their owner''s limit back in line; returns how many it was.';

revoke execute on function silkline.unblock_next_for_owner(uuid, integer)
  from public, anon, authenticated;

-- Jobs have left the line or their leases have ended: put the next jobs of their hosts and owners
-- in line, one for each entry of the lists. Usually no job waits, and the query that shows it is
-- the whole cost.
create function silkline.unblock_next_jobs(p_hosts text[], p_owner_ids uuid[])
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_host text;
  v_next record;
begin
  if cardinality(p_hosts) > 1 then
    foreach v_host in array array(select distinct host from unnest(p_hosts) as host order by host)
    loop
      perform silkline.lock('host', v_host);
    end loop;
  else
    perform silkline.lock('host', p_hosts[1]);
  end if;

  if exists (
    select
    from silkline.jobs as job
    where job.status = 'pending'
      and job.waits_for = 'host'
      and job.host = any (p_hosts)
  ) then
    foreach v_host in array p_hosts loop
      perform silkline.unblock_next_for_host(v_host, 1);
    end loop;
  end if;

  if exists (
    select
    from public.crawl_settings as settings
    where settings.max_running_jobs_per_user is not null
  ) then
    for v_next in
      select owner_id, count(*)::integer as count
      from unnest(p_owner_ids) as owner_id
      group by owner_id
      order by owner_id
    loop
      perform silkline.lock('owner', v_next.owner_id::text);
      perform silkline.unblock_next_for_owner(v_next.owner_id, v_next.count);
    end loop;
  end if;
end
$$;

comment on function silkline.unblock_next_jobs(text[], uuid[]) is
  'Put the next jobs of hosts and owners in line.';

revoke execute on function silkline.unblock_next_jobs(text[], uuid[])
  from public, anon, authenticated;

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
    from silkline.jobs as due
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
  update silkline.jobs as job
  set
    waits_for = null,
    place = unblocked.place
  from (
    select
      due.id,
      silkline.join_place(
        due.owner_id,
        due.lane,
        (100 - (due.place >> 40))::integer,
        case when due.attempt > 0 then due.place end
      ) + row_number() over (
        partition by due.owner_id, due.lane, due.place >> 40, due.attempt > 0
        order by due.run_after, due.place
      ) - 1 as place
    from silkline.jobs as due
    where due.id = any (v_ids)
  ) as unblocked
  where job.id = unblocked.id;

  return cardinality(v_ids);
end
$$;

comment on function silkline.unblock_due_jobs(integer) is
  'Put jobs whose run_after has passed in line.';

revoke execute on function silkline.unblock_due_jobs(integer) from public, anon, authenticated;

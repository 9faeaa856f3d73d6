-- Who is calling, which jobs are theirs, and their quotas.

-- Whether the caller has the rights of the service (the secret key, or a direct connection
-- of an administrator). The role setting survives security definer; JWT claims cannot be
-- trusted for this.
create function silkline.is_service()
  returns boolean
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return pg_has_role(
    case current_setting('role') when 'none' then session_user else current_setting('role') end,
    'service_role',
    'usage'
  );
end
$$;

comment on function silkline.is_service() is
  'Whether the caller acts with the rights of service_role.';

revoke execute on function silkline.is_service() from public, anon, authenticated;
grant execute on function silkline.is_service() to authenticated, service_role;

-- The owner of the jobs that the caller enqueues. The service may name any user, or none.
create function silkline.owner_for(p_user_id uuid)
  returns uuid
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_caller_id constant uuid := silkline.caller_id();
begin
  if silkline.is_service() then
    return p_user_id;
  end if;

  if v_caller_id is null then
    raise sqlstate 'PT401' using
      message = case
        when auth.uid() is null then 'the caller is not signed in'
        else 'the account of the caller has been deleted'
      end,
      hint = 'Sign in, or call with the secret key from a server.';
  end if;

  if p_user_id <> v_caller_id then
    raise sqlstate 'PT403' using
      message = 'only the service may act for another user',
      hint = 'Leave p_user_id out.';
  end if;

  return v_caller_id;
end
$$;

comment on function silkline.owner_for(uuid) is
  'The owner of new jobs, depending on the caller.';

revoke execute on function silkline.owner_for(uuid) from public, anon, authenticated;

-- Refuse new open jobs of an owner beyond the limit, before anything is written. Calls of one owner
-- run one at a time, so that two of them cannot both use the last free place. Counting stops past
-- the limit, so the cost does not grow with the table. Jobs of the service itself have no quota.
create function silkline.check_open_jobs_quota(p_owner_id uuid, p_new integer)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_max constant integer := (
    select settings.max_open_jobs_per_user
    from public.crawl_settings as settings
  );
begin
  if v_max is null or p_owner_id = '00000000-0000-0000-0000-000000000000' then
    return;
  end if;

  perform silkline.lock('enqueue', p_owner_id::text);

  if v_max < p_new + (
    select count(*)
    from (
      select
      from silkline.jobs as job
      where job.owner_id = p_owner_id
        and job.status in ('pending', 'processing', 'paused')
      limit v_max + 1
    ) as open
  ) then
    raise sqlstate 'PT429' using
      message = format('this would exceed the limit of %s open jobs per user', v_max),
      hint = 'Wait until some have ended, or cancel some.';
  end if;
end
$$;

comment on function silkline.check_open_jobs_quota(uuid, integer) is
  'Raise PT429 if new jobs would exceed an owner''s limit of open jobs.';

revoke execute on function silkline.check_open_jobs_quota(uuid, integer)
  from public, anon, authenticated;

-- What owners have enqueued and retried, by the hour, for the quota of a day.
create table silkline.quota_uses (
  owner_id uuid,
  hour timestamptz,
  jobs integer not null,
  primary key (owner_id, hour)
);
alter table silkline.quota_uses enable row level security;

comment on table silkline.quota_uses is
  'How many jobs each owner has enqueued or retried in each hour; kept for two days.';

create policy "Only the service reads uses of quotas"
  on silkline.quota_uses
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on silkline.quota_uses from anon, authenticated, service_role;
grant select on silkline.quota_uses to service_role;

-- Refuse new or retried jobs of an owner beyond the limit of a day, or count them.
create function silkline.spend_daily_quota(p_owner_id uuid, p_new integer)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_max constant integer := (
    select settings.max_jobs_per_user_per_day
    from public.crawl_settings as settings
  );
begin
  if v_max is null or p_owner_id = '00000000-0000-0000-0000-000000000000' then
    return;
  end if;

  perform silkline.lock('enqueue', p_owner_id::text);

  if v_max < p_new + (
    select coalesce(sum(spent.jobs), 0)
    from silkline.quota_uses as spent
    where spent.owner_id = p_owner_id
      and spent.hour > now() - interval '1 day'
  ) then
    raise sqlstate 'PT429' using
      message = format(
        'this would exceed the limit of %s new or retried jobs per user in 24 hours',
        v_max
      ),
      hint = 'Try again later, or ask the operator for a higher limit.';
  end if;

  insert into silkline.quota_uses as spent (owner_id, hour, jobs)
  values (p_owner_id, date_trunc('hour', now()), p_new)
  on conflict (owner_id, hour) do update
  set jobs = spent.jobs + excluded.jobs;
end
$$;

comment on function silkline.spend_daily_quota(uuid, integer) is
  'Count new or retried jobs; raise PT429 if they exceed an owner''s limit of a day.';

revoke execute on function silkline.spend_daily_quota(uuid, integer)
  from public, anon, authenticated;

-- The caller's job. Another user's job gets the same answer as a job that does not exist.
create function silkline.own_job(p_job_id uuid)
  returns silkline.jobs
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_owner_id constant uuid := silkline.owner_for(null);
  v_is_service constant boolean := silkline.is_service();
  v_job silkline.jobs;
begin
  if p_job_id is null then
    raise sqlstate 'PT400' using
      message = 'p_job_id must not be null',
      hint = 'Send the id that enqueue_crawl_job returned.';
  end if;

  select job.*
  into v_job
  from silkline.jobs as job
  where job.id = p_job_id
    and (v_is_service or job.user_id = v_owner_id);

  if v_job.id is null then
    raise sqlstate 'PT404' using
      message = format('there is no job %s', p_job_id),
      hint = 'It may have been deleted, or it may belong to another user.';
  end if;

  return v_job;
end
$$;

comment on function silkline.own_job(uuid) is
  'A job of the caller, or PT404.';

revoke execute on function silkline.own_job(uuid) from public, anon, authenticated;

-- The caller's job, locked, as it is once the lock is acquired.
create function silkline.lock_own_job(p_job_id uuid)
  returns silkline.jobs
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  perform
  from silkline.jobs as job
  where job.id = (silkline.own_job(p_job_id)).id
  for no key update;

  return silkline.own_job(p_job_id);
end
$$;

comment on function silkline.lock_own_job(uuid) is
  'A job of the caller, locked, or PT404.';

revoke execute on function silkline.lock_own_job(uuid) from public, anon, authenticated;

-- Who is calling, which jobs are theirs, and their quotas.

-- Whether the caller has the rights of the service (the secret key, or a direct connection
-- of an administrator). The role setting survives security definer; JWT claims cannot be
-- trusted for this.
create function silkline.is_service()
  returns boolean
  language sql
  stable
  security invoker
  set search_path = ''
as $$
  select pg_has_role(
    case current_setting('role') when 'none' then session_user else current_setting('role') end,
    'service_role',
    'usage'
  );
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
begin
  if silkline.is_service() then
    return p_user_id;
  end if;

  if auth.uid() is null then
    raise sqlstate 'PT401' using
      message = 'the caller is not signed in',
      hint = 'Sign in, or call with the secret key from a server.';
  end if;

  if p_user_id <> auth.uid() then
    raise sqlstate 'PT403' using
      message = 'only the service may enqueue for another user',
      hint = 'Leave p_user_id out.';
  end if;

  return auth.uid();
end
$$;

comment on function silkline.owner_for(uuid) is
  'The owner of new jobs, depending on the caller.';

revoke execute on function silkline.owner_for(uuid) from public, anon, authenticated;

-- Raise if the owner has more open jobs than allowed. It is called after the write, which
-- raising rolls back. Calls of one owner run one at a time, so that two of them cannot both
-- use the last free place. Counting stops past the limit, so the cost does not grow with the
-- table. Jobs of the service itself have no quota.
create function silkline.check_open_jobs_quota(p_user_id uuid)
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
  if v_max is null or p_user_id is null then
    return;
  end if;

  perform pg_advisory_xact_lock(hashtextextended('enqueue ' || p_user_id, 0));

  if v_max < (
    select count(*)
    from (
      select
      from public.crawl_jobs as job
      where job.user_id = p_user_id
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

comment on function silkline.check_open_jobs_quota(uuid) is
  'Raise PT429 if an owner has more open jobs than allowed.';

revoke execute on function silkline.check_open_jobs_quota(uuid) from public, anon, authenticated;

-- Raise if the owner has enqueued more jobs in a day than allowed; like check_open_jobs_quota.
create function silkline.check_daily_quota(p_user_id uuid)
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
  if v_max is null or p_user_id is null then
    return;
  end if;

  if v_max < (
    select count(*)
    from (
      select
      from public.crawl_jobs as job
      where job.user_id = p_user_id
        and job.created_at > now() - interval '1 day'
      limit v_max + 1
    ) as recent
  ) then
    raise sqlstate 'PT429' using
      message = format('this would exceed the limit of %s new jobs per user in 24 hours', v_max),
      hint = 'Try again later, or ask the operator for a higher limit.';
  end if;
end
$$;

comment on function silkline.check_daily_quota(uuid) is
  'Raise PT429 if an owner has enqueued more jobs in a day than allowed.';

revoke execute on function silkline.check_daily_quota(uuid) from public, anon, authenticated;

-- The caller's job. Another user's job gets the same answer as a job that does not exist.
create function silkline.own_job(p_job_id uuid)
  returns public.crawl_jobs
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_owner_id constant uuid := silkline.owner_for(null);
  v_is_service constant boolean := silkline.is_service();
  v_job public.crawl_jobs;
begin
  if p_job_id is null then
    raise sqlstate 'PT400' using
      message = 'p_job_id must not be null',
      hint = 'Send the id that enqueue_crawl_job returned.';
  end if;

  select job.*
  into v_job
  from public.crawl_jobs as job
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
  returns public.crawl_jobs
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  perform
  from public.crawl_jobs as job
  where job.id = (silkline.own_job(p_job_id)).id
  for no key update;

  return silkline.own_job(p_job_id);
end
$$;

comment on function silkline.lock_own_job(uuid) is
  'A job of the caller, locked, or PT404.';

revoke execute on function silkline.lock_own_job(uuid) from public, anon, authenticated;

-- What a user does to jobs: pause, resume, stop, cancel, retry. No restart and no worker
-- overrides a user's decision; only these functions change it. The migration bulk does the
-- same to all jobs that match a filter.

-- What an action makes of a job, or null if it cannot be done. Repeating an action is fine.
--
-- A lease continues: its worker gets the command, saves, and releases the job. A job that is
-- resumed before that stays with its worker, so that its host is never crawled twice at a time.
create function silkline.status_after(
  p_action text,
  p_status public.crawl_job_status,
  p_is_leased boolean
)
  returns public.crawl_job_status
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return case
    when p_action = 'pause' and p_status in ('pending', 'processing', 'paused') then 'paused'
    when p_action = 'stop' and p_status in ('pending', 'processing', 'paused', 'stopped')
      then 'stopped'
    when p_action = 'cancel' and p_status in ('pending', 'processing', 'paused', 'cancelled')
      then 'cancelled'
    when p_action = 'resume' and p_status in ('pending', 'processing') then p_status
    when p_action = 'resume' and p_status in ('paused', 'stopped') and p_is_leased
      then 'processing'
    when p_action = 'resume' and p_status in ('paused', 'stopped') then 'pending'
  end;
end
$$;

comment on function silkline.status_after(text, public.crawl_job_status, boolean) is
  'What pause, resume, stop or cancel makes of a job, or null.';

revoke execute on function silkline.status_after(text, public.crawl_job_status, boolean)
  from public, anon, authenticated;

-- Pause, resume, stop or cancel jobs that the caller has locked and that this action changes.
create function silkline.change_jobs(p_job_ids uuid[], p_action text)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_changes silkline.job_change[];
  v_hosts text[];
  v_owner_ids uuid[];
begin
  with changed as (
    update silkline.jobs as job
    set
      status = target.status,
      event_seq = job.event_seq + 1,
      -- A job that was scheduled and has not started stays scheduled.
      waits_for = case
        when target.status = 'pending' and job.attempt = 0 and job.run_after > now() then 'time'
      end::public.crawl_job_wait,
      completed_at = case when target.status in ('stopped', 'cancelled') then now() end,
      run_after = case
        when target.status = 'pending' and job.attempt > 0 then now()
        else job.run_after
      end,
      place = case target.status
        when 'pending' then silkline.join_place(
          job.owner_id,
          job.lane,
          (100 - (job.place >> 40))::integer,
          case when job.attempt > 0 then job.place end
        ) + target.nth - 1
        else job.place
      end
    from (
      select
        before.id,
        before.status as old_status,
        before.status = 'pending' and before.waits_for is null as was_in_line,
        silkline.status_after(p_action, before.status, before.lease_check_at is not null)
          as status,
        -- Jobs of one owner that are resumed together still take turns with the jobs of others.
        row_number() over (
          partition by before.owner_id, before.lane, before.place >> 40
          order by before.place, before.id
        ) as nth
      from silkline.jobs as before
      where before.id = any (p_job_ids)
    ) as target
    where job.id = target.id
    returning job.id, job.host, job.owner_id, target.old_status, target.was_in_line
  )
  select
    array_agg(row (changed.id, changed.old_status, p_action)::silkline.job_change),
    array_agg(changed.host) filter (where changed.was_in_line),
    array_agg(changed.owner_id) filter (where changed.was_in_line)
  into v_changes, v_hosts, v_owner_ids
  from changed;

  perform silkline.record_changes(v_changes);

  if v_hosts is not null then
    -- Only hosts that jobs wait for have to be locked, of up to 1,000. A job that is being set aside
    -- meanwhile waits for a lease of its host, whose end puts it in line.
    perform silkline.unblock_next_jobs(
      array(
        select freed.host
        from unnest(v_hosts) as freed (host)
        where exists (
          select
          from silkline.jobs as waiting
          where waiting.status = 'pending'
            and waiting.waits_for = 'host'
            and waiting.host = freed.host
        )
      ),
      v_owner_ids
    );
  end if;
end
$$;

comment on function silkline.change_jobs(uuid[], text) is
  'Pause, resume, stop or cancel locked jobs.';

revoke execute on function silkline.change_jobs(uuid[], text) from public, anon, authenticated;

-- Pause, resume, stop or cancel one job of the caller.
-- definer because users have no rights to write
create function silkline.change_job(p_job_id uuid, p_action text)
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_job constant silkline.jobs := silkline.lock_own_job(p_job_id);
  v_next constant public.crawl_job_status := silkline.status_after(
    p_action, v_job.status, v_job.lease_check_at is not null
  );
begin
  if v_next is null then
    raise sqlstate 'PT409' using
      message = format('cannot %s job %s: it is %s', p_action, v_job.id, v_job.status),
      hint = case
        when p_action = 'resume' and v_job.status in ('failed', 'completed')
          then 'Use retry_crawl_job.'
        else 'Enqueue a new job.'
      end;
  end if;

  if v_job.status = 'stopped' and v_next <> 'stopped' and not silkline.is_service() then
    perform silkline.check_open_jobs_quota(v_job.owner_id, 1);
  end if;

  if v_next <> v_job.status then
    perform silkline.change_jobs(array[v_job.id], p_action);
  end if;

  return query
    select job.*
    from public.crawl_jobs as job
    where job.id = v_job.id;
end
$$;

comment on function silkline.change_job(uuid, text) is
  'Pause, resume, stop or cancel a job of the caller.';

revoke execute on function silkline.change_job(uuid, text) from public, anon, authenticated;
grant execute on function silkline.change_job(uuid, text) to authenticated, service_role;

create function public.pause_crawl_job(p_job_id uuid)
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return query select * from silkline.change_job(p_job_id, 'pause');
end
$$;

comment on function public.pause_crawl_job(uuid) is
  'Pause a job until it is resumed; restarts do not change that.';

revoke execute on function public.pause_crawl_job(uuid) from public, anon, authenticated;
grant execute on function public.pause_crawl_job(uuid) to authenticated, service_role;

create function public.resume_crawl_job(p_job_id uuid)
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return query select * from silkline.change_job(p_job_id, 'resume');
end
$$;

comment on function public.resume_crawl_job(uuid) is
  'Resume a paused or stopped job where it was.';

revoke execute on function public.resume_crawl_job(uuid) from public, anon, authenticated;
grant execute on function public.resume_crawl_job(uuid) to authenticated, service_role;

create function public.stop_crawl_job(p_job_id uuid)
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return query select * from silkline.change_job(p_job_id, 'stop');
end
$$;

comment on function public.stop_crawl_job(uuid) is
  'End a job early and keep its results.';

revoke execute on function public.stop_crawl_job(uuid) from public, anon, authenticated;
grant execute on function public.stop_crawl_job(uuid) to authenticated, service_role;

create function public.cancel_crawl_job(p_job_id uuid)
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return query select * from silkline.change_job(p_job_id, 'cancel');
end
$$;

comment on function public.cancel_crawl_job(uuid) is
  'End a job permanently and kill its process.';

revoke execute on function public.cancel_crawl_job(uuid) from public, anon, authenticated;
grant execute on function public.cancel_crawl_job(uuid) to authenticated, service_role;

-- Refuse an unknown choice of URLs.
create function silkline.check_retried_urls(p_urls text)
  returns void
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  if p_urls is null or p_urls not in ('failed', 'all') then
    raise sqlstate 'PT422' using
      message = format('p_urls must be failed or all, not %L', left(p_urls, 60)),
      hint = '"failed" retries only the URLs that failed, "all" starts over.';
  end if;
end
$$;

comment on function silkline.check_retried_urls(text) is
  'Raise unless this names URLs to retry.';

revoke execute on function silkline.check_retried_urls(text) from public, anon, authenticated;

-- How many ended URLs of a job a retry would make pending again, at most.
create function silkline.count_retried_urls(p_state silkline.states, p_urls text)
  returns integer
  language sql
  immutable
  security invoker
  set search_path = ''
as $$
  select case p_urls
    when 'failed' then p_state.total_error
    else p_state.total_error + p_state.total_done + p_state.total_skipped
  end;
$$;

comment on function silkline.count_retried_urls(silkline.states, text) is
  'How many URLs of a job a retry would make pending again, at most.';

revoke execute on function silkline.count_retried_urls(silkline.states, text)
  from public, anon, authenticated;

-- Run an ended job again: the URLs that failed and those it had not reached ('failed'), or
-- every URL it knows ('all'). Its caller has locked the job.
create function silkline.restart_job(p_job silkline.jobs, p_urls text)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_state silkline.states;
  v_again integer;
begin
  select state.*
  into v_state
  from silkline.states as state
  where state.job_id = p_job.id
  for no key update;

  if p_job.lease_check_at is not null and p_job.status = 'stopped' then
    raise sqlstate 'PT409' using
      message = format('job %s is stopped, but its worker is still saving', p_job.id),
      hint = 'Try again in a few seconds.';
  end if;

  if p_job.status not in ('failed', 'stopped', 'completed')
    or (
      p_job.status = 'completed'
      and p_urls = 'failed'
      and v_state.total_error + v_state.total_pending = 0
    )
  then
    raise sqlstate 'PT409' using
      message = case p_job.status
        when 'completed' then format('job %s has no failed URLs', p_job.id)
        else format('job %s is %s and cannot be retried', p_job.id, p_job.status)
      end,
      hint = case p_job.status
        when 'completed' then 'Use p_urls all to start over.'
        when 'paused' then 'Use resume_crawl_job.'
        else 'Only failed, stopped and completed jobs can be retried.'
      end;
  end if;

  v_again := silkline.count_retried_urls(v_state, p_urls);

  if v_again > 100000 then
    raise sqlstate 'PT422' using
      message = format('job %s has %s URLs to retry, more than 100000', p_job.id, v_again),
      hint = 'Enqueue a new job with the same payload: unchanged pages cost little.';
  end if;

  if not silkline.is_service() then
    perform silkline.check_open_jobs_quota(p_job.owner_id, 1);
    perform silkline.spend_daily_quota(p_job.owner_id, 1);
  end if;

  with again as materialized (
    select
      task.ctid,
      task.status,
      task.attempts
    from silkline.tasks as task
    where task.job_id = p_job.id
      and (
        task.status = 'error'
        or (p_urls = 'all' and task.status = 'done')
        -- Tried but not finished: it starts over too, and is charged again.
        or (p_urls = 'all' and task.status = 'pending' and task.attempts > 0)
        -- A URL that was too deep when it was found still is.
        or (
          p_urls = 'all'
          and task.status = 'skipped'
          and (task.attempts > 0 or task.skip_reason = 'budget')
        )
      )
  ),
  revived as (
    update silkline.tasks as task
    set
      status = 'pending',
      skip_reason = null,
      attempts = 0,
      crashes = 0,
      losses = 0,
      -- When all start over, pages kept because their original was no substitute are checked
      -- again.
      copy_of = case p_urls when 'failed' then task.copy_of end,
      copy_title = null,
      next_run_at = now(),
      last_error = null,
      finished_at = null
    where task.ctid = any (array(select again.ctid from again))
  ),
  counted as (
    select
      count(*) filter (where again.status <> 'pending') as total,
      count(*) filter (where again.status = 'done') as done,
      count(*) filter (where again.status = 'skipped') as skipped,
      count(*) filter (where again.status = 'error' and again.attempts > 0) as paid_errors
    from again
  )
  update silkline.states as state
  set
    total_pending = state.total_pending + counted.total,
    total_error = 0,
    total_done = state.total_done - counted.done,
    total_skipped = state.total_skipped - counted.skipped,
    pages_spent = case p_urls
      when 'all' then 0
      else greatest(state.pages_spent - counted.paid_errors, 0)
    end,
    pages_free = case p_urls when 'all' then 0 else state.pages_free end,
    redirected_starts = case p_urls when 'all' then '[]' else state.redirected_starts end,
    -- The pages are fetched again, and their links and warnings counted again.
    links_refused = case p_urls when 'all' then '{}' else state.links_refused end,
    pages_with_warnings = case p_urls when 'all' then 0 else state.pages_with_warnings end,
    page_warnings = case p_urls when 'all' then '{}' else state.page_warnings end
  from counted
  where state.job_id = p_job.id;

  update silkline.jobs as job
  set
    status = 'pending',
    event_seq = job.event_seq + 1,
    retry_count = 0,
    running_seconds = 0,
    run_after = now(),
    place = silkline.join_place(
      job.owner_id,
      job.lane,
      (100 - (job.place >> 40))::integer,
      job.place
    ),
    progress_percentage = 0,
    error_code = null,
    error_message = null,
    started_at = null,
    completed_at = null
  where job.id = p_job.id;

  perform silkline.record_changes(
    array[row (p_job.id, p_job.status, 'retry')::silkline.job_change]
  );
end
$$;

comment on function silkline.restart_job(silkline.jobs, text) is
  'Run an ended job again.';

revoke execute on function silkline.restart_job(silkline.jobs, text)
  from public, anon, authenticated;

-- Run an ended job of the caller again.
-- definer because users have no rights to write
create function silkline.retry_job(p_job_id uuid, p_urls text)
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_job constant silkline.jobs := silkline.lock_own_job(p_job_id);
begin
  perform silkline.check_retried_urls(p_urls);
  perform silkline.restart_job(v_job, p_urls);

  return query
    select job.*
    from public.crawl_jobs as job
    where job.id = v_job.id;
end
$$;

comment on function silkline.retry_job(uuid, text) is
  'Run an ended job of the caller again.';

revoke execute on function silkline.retry_job(uuid, text) from public, anon, authenticated;
grant execute on function silkline.retry_job(uuid, text) to authenticated, service_role;

create function public.retry_crawl_job(p_job_id uuid, p_urls text default 'failed')
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return query select * from silkline.retry_job(p_job_id, p_urls);
end
$$;

comment on function public.retry_crawl_job(uuid, text) is
  'Run an ended job again: only the URLs that failed, or all of them.';

revoke execute on function public.retry_crawl_job(uuid, text) from public, anon, authenticated;
grant execute on function public.retry_crawl_job(uuid, text) to authenticated, service_role;

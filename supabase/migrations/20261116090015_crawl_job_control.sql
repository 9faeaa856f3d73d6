-- What a user does to a job: pause, resume, stop, cancel, retry. No restart and no worker
-- overrides a user's decision; only these functions change it.

-- Pause, resume, stop or cancel a job. Repeating a call is fine.
--
-- A lease continues: its worker gets the command, saves, and releases the job. A paused job that
-- is resumed before that stays with its worker; a stopped one is taken from it.
-- definer because users have no rights to write
create function silkline.change_job(p_job_id uuid, p_action text)
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_job public.crawl_jobs := silkline.lock_own_job(p_job_id);
  v_next public.crawl_job_status;
begin
  v_next := case
    when p_action = 'pause' and v_job.status in ('pending', 'processing', 'paused') then 'paused'
    when p_action = 'stop' and v_job.status in ('pending', 'processing', 'paused', 'stopped')
      then 'stopped'
    when p_action = 'cancel' and v_job.status in ('pending', 'processing', 'paused', 'cancelled')
      then 'cancelled'
    when p_action = 'resume' and v_job.status in ('pending', 'processing') then v_job.status
    when p_action = 'resume' and v_job.status = 'paused' and v_job.lease_check_at is not null
      then 'processing'
    when p_action = 'resume' and v_job.status in ('paused', 'stopped') then 'pending'
  end;

  if v_next is null then
    raise sqlstate 'PT409' using
      message = format('cannot %s job %s: it is %s', p_action, v_job.id, v_job.status),
      hint = case
        when p_action = 'resume' and v_job.status in ('failed', 'completed')
          then 'Use retry_crawl_job.'
        else 'Enqueue a new job.'
      end;
  end if;

  if v_next <> v_job.status then
    perform set_config('silkline.reason', p_action, true);

    if v_next = 'pending' and v_job.lease_check_at is not null then
      perform silkline.free_tasks(v_job.id, 'release');
    end if;

    return query
      update public.crawl_jobs as job
      set
        status = v_next,
        worker_id = case when v_next <> 'pending' then job.worker_id end,
        lease_token = case when v_next <> 'pending' then job.lease_token end,
        lease_check_at = case when v_next <> 'pending' then job.lease_check_at end,
        host_slot = case when v_next <> 'pending' then job.host_slot end,
        -- A job that was scheduled and has not started stays scheduled.
        waits_for = case
          when v_next = 'pending' and job.attempt = 0 and job.run_after > now() then 'time'
        end::public.crawl_job_wait,
        completed_at = case when v_next in ('stopped', 'cancelled') then now() end,
        run_after = case
          when v_next = 'pending' and job.attempt > 0 then now()
          else job.run_after
        end,
        place = case
          when v_next = 'pending' then silkline.join_place(
            job.user_id,
            job.priority,
            case when job.attempt > 0 then job.place end
          )
          else job.place
        end
      where job.id = v_job.id
      returning job.*;

    if v_job.status = 'stopped' and not silkline.is_service() then
      perform silkline.check_open_jobs_quota(v_job.user_id);
    end if;
  else
    return next v_job;
  end if;
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

-- Run an ended job again: the URLs that failed and those it had not reached ('failed'), or
-- every URL it knows ('all').
-- definer because users have no rights to write
create function silkline.retry_job(p_job_id uuid, p_urls text)
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_job public.crawl_jobs := silkline.lock_own_job(p_job_id);
  v_state public.crawl_states;
  v_again integer;
begin
  if p_urls is null or p_urls not in ('failed', 'all') then
    raise sqlstate 'PT422' using
      message = format('p_urls must be failed or all, not %L', left(p_urls, 60)),
      hint = '"failed" retries only the URLs that failed, "all" starts over.';
  end if;

  select state.*
  into v_state
  from public.crawl_states as state
  where state.job_id = v_job.id
  for no key update;

  if v_job.status not in ('failed', 'stopped', 'completed')
    or (
      v_job.status = 'completed'
      and p_urls = 'failed'
      and v_state.total_error + v_state.total_pending = 0
    )
  then
    raise sqlstate 'PT409' using
      message = case v_job.status
        when 'completed' then format('job %s has no failed URLs', v_job.id)
        else format('job %s is %s and cannot be retried', v_job.id, v_job.status)
      end,
      hint = case v_job.status
        when 'completed' then 'Use p_urls all to start over.'
        when 'paused' then 'Use resume_crawl_job.'
        else 'Only failed, stopped and completed jobs can be retried.'
      end;
  end if;

  v_again := case p_urls
    when 'failed' then v_state.total_error
    else v_state.total_error + v_state.total_done + v_state.total_skipped
  end;

  if v_again > 100000 then
    raise sqlstate 'PT422' using
      message = format('job %s has %s URLs to retry, more than 100000', v_job.id, v_again),
      hint = 'Enqueue a new job with the same payload: unchanged pages cost little.';
  end if;

  -- A worker that is still saving the stopped run loses its lease here.
  perform silkline.free_tasks(v_job.id, 'release');

  with again as materialized (
    select
      task.ctid,
      task.status,
      task.attempts
    from public.crawl_tasks as task
    where task.job_id = v_job.id
      and (
        task.status = 'error'
        or (p_urls = 'all' and task.status = 'done')
        -- Tried but not finished: it starts over too, and is charged again.
        or (p_urls = 'all' and task.status = 'pending' and task.attempts > 0)
        -- A URL that was out of scope when it was found still is.
        or (
          p_urls = 'all'
          and task.status = 'skipped'
          and (task.attempts > 0 or task.skip_reason = 'budget')
        )
      )
  ),
  revived as (
    update public.crawl_tasks as task
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
  update public.crawl_states as state
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
    redirected_starts = case p_urls when 'all' then '[]' else state.redirected_starts end
  from counted
  where state.job_id = v_job.id;

  perform set_config('silkline.reason', 'retry', true);

  return query
    update public.crawl_jobs as job
    set
      status = 'pending',
      retry_count = 0,
      running_seconds = 0,
      run_after = now(),
      place = silkline.join_place(job.user_id, job.priority, job.place),
      progress_percentage = 0,
      error_code = null,
      error_message = null,
      started_at = null,
      completed_at = null,
      worker_id = null,
      lease_token = null,
      lease_check_at = null,
      host_slot = null
    where job.id = v_job.id
    returning job.*;

  if not silkline.is_service() then
    perform silkline.check_open_jobs_quota(v_job.user_id);
  end if;
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

-- How a worker ends a lease: complete, fail or release. The map of all worker functions is at
-- the head of crawl_claim.

-- Free the URLs that a lease holds when the lease ends.
--
-- A process that died with URLs in flight makes each of them a suspect: it is leased alone
-- the next time. A suspect that takes its process down again was alone, so it is the
-- culprit: it ends as poison, and the job goes on without it. Returns how many did.
create function silkline.free_tasks(p_job_id uuid, p_is_crash boolean)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_freed integer;
  v_poison integer;
begin
  with freed as (
    update public.crawl_tasks as task
    set
      status = case when p_is_crash and task.crashes > 0 then 'error' else 'pending' end
        ::public.crawl_task_status,
      last_error = case
        when p_is_crash and task.crashes > 0
          then 'poison: its process died twice with this URL in flight'
        else task.last_error
      end,
      finished_at = case when p_is_crash and task.crashes > 0 then now() end,
      crashes = task.crashes + p_is_crash::integer,
      lease_token = null,
      lease_seq = null
    where task.job_id = p_job_id
      and task.status = 'in_progress'
    returning task.status
  )
  select
    count(*) filter (where freed.status = 'pending'),
    count(*) filter (where freed.status = 'error')
  into v_freed, v_poison
  from freed;

  if v_freed + v_poison > 0 then
    update public.crawl_states as state
    set
      total_in_progress = state.total_in_progress - v_freed - v_poison,
      total_pending = state.total_pending + v_freed,
      total_error = state.total_error + v_poison
    where state.job_id = p_job_id;
  end if;

  return v_poison;
end
$$;

comment on function silkline.free_tasks(uuid, boolean) is
  'Free the URLs in flight of a job whose lease ends; answers how many proved to be poison.';

revoke execute on function silkline.free_tasks(uuid, boolean) from public, anon, authenticated;

-- The answer to a token that holds no lease: the same as the first time, if its holder has
-- ended the lease itself and repeats the call; else 'lost'.
create function silkline.answer_again(p_lease_token uuid)
  returns public.crawl_command
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_job public.crawl_jobs;
begin
  if p_lease_token is null then
    raise sqlstate 'PT400' using
      message = 'p_lease_token must not be null',
      hint = 'Send the token under which the job was claimed.';
  end if;

  select job.*
  into v_job
  from public.crawl_jobs as job
  where job.lease_token = p_lease_token;

  return row (
    p_lease_token,
    v_job.id,
    case when v_job.id is null then 'lost' else silkline.command_for(v_job.status) end,
    v_job.status
  )::public.crawl_command;
end
$$;

comment on function silkline.answer_again(uuid) is
  'The command for a lease token that holds no lease.';

revoke execute on function silkline.answer_again(uuid) from public, anon, authenticated;

-- End a job whose frontier has drained.
--
-- Refused while URLs are left: 'completed' means drained. If a user paused, stopped or
-- cancelled meanwhile, that stands: the lease ends, the status does not change, and the
-- answer says so. An audit hands in its findings here.
-- definer because crawl_worker may touch no table
create function public.complete_crawl_job(
  p_lease_token uuid,
  p_result jsonb default '{}',
  p_audit jsonb default null
)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security definer
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  v_job_id uuid;
  v_status public.crawl_job_status;
  v_left integer;
begin
  if jsonb_typeof(p_result) is distinct from 'object' or pg_column_size(p_result) > 65536 then
    raise sqlstate 'PT422' using
      message = 'p_result must be a JSON object of at most 64 KB',
      hint = 'Store large results as pages.';
  end if;

  if p_audit is not null
    and not (
      jsonb_typeof(p_audit) = 'object'
      and p_audit ?& '{score,grade,categories,findings,ruleset_version}'
      and p_audit - '{score,grade,categories,findings,ruleset_version}'::text[] = '{}'
      and coalesce(p_audit ->> 'score', '') ~ '^([0-9]{1,2}|100)$'
    )
  then
    raise sqlstate 'PT422' using
      message = 'p_audit must be an object of score, grade, categories, findings, ruleset_version',
      hint = 'score is a whole number from 0 to 100.';
  end if;

  if pg_column_size(p_audit) > 5000000 then
    raise sqlstate 'PT413' using
      message = format('p_audit has %s bytes, more than 5000000', pg_column_size(p_audit)),
      hint = 'Report each finding once, with examples.';
  end if;

  update public.crawl_jobs as job
  set
    status = case job.status when 'processing' then 'completed' else job.status end,
    completed_at = case job.status when 'processing' then now() else job.completed_at end,
    progress_percentage = case job.status
      when 'processing' then 100
      else job.progress_percentage
    end,
    result = case job.status when 'cancelled' then job.result else p_result end,
    worker_id = null,
    lease_check_at = null,
    host_slot = null
  where job.lease_token = p_lease_token
    and job.lease_check_at is not null
  returning job.id, job.status into v_job_id, v_status;

  if v_job_id is null then
    return next silkline.answer_again(p_lease_token);
    return;
  end if;

  -- Looked at only now, under the lock of the job: a refusal takes the update back.
  v_left := (
    select state.total_pending + state.total_in_progress
    from public.crawl_states as state
    where state.job_id = v_job_id
  );

  if v_left > 0 then
    if v_status = 'completed' then
      raise sqlstate 'PT409' using
        message = format('job %s is not drained: %s URLs are left', v_job_id, v_left),
        hint = 'Checkpoint until it answers drained, or release the job.';
    end if;

    perform silkline.free_tasks(v_job_id, false);
  end if;

  if p_audit is not null and v_status <> 'cancelled' then
    insert into public.crawl_audits as audit (
      job_id,
      score,
      grade,
      categories,
      findings,
      ruleset_version
    )
    values (
      v_job_id,
      (p_audit ->> 'score')::smallint,
      p_audit ->> 'grade',
      p_audit -> 'categories',
      p_audit -> 'findings',
      p_audit ->> 'ruleset_version'
    )
    on conflict (job_id) do update
    set
      score = excluded.score,
      grade = excluded.grade,
      categories = excluded.categories,
      findings = excluded.findings,
      ruleset_version = excluded.ruleset_version,
      created_at = now();
  end if;

  return next
    row (p_lease_token, v_job_id, silkline.command_for(v_status), v_status)::public.crawl_command;
end
$$;

comment on function public.complete_crawl_job(uuid, jsonb, jsonb) is
  'End a job whose frontier has drained.';

revoke execute on function public.complete_crawl_job(uuid, jsonb, jsonb)
  from public, anon, authenticated;
grant execute on function public.complete_crawl_job(uuid, jsonb, jsonb)
  to service_role, crawl_worker;

-- How long a job waits before its nth retry: doubled each time, capped, and spread over
-- the upper half, so that jobs that broke together do not come back together.
create function silkline.backoff(p_retry_count integer)
  returns interval
  language sql
  volatile
  security invoker
  set search_path = ''
as $$
  select make_interval(
    secs => least(
      settings.backoff_cap_seconds,
      settings.backoff_base_seconds * 2 ^ least(p_retry_count, 30)
    ) * (0.5 + random() / 2)
  )
  from public.crawl_settings as settings;
$$;

comment on function silkline.backoff(integer) is
  'Exponential backoff with jitter.';

revoke execute on function silkline.backoff(integer) from public, anon, authenticated;

-- The crawl broke. Retried with backoff while retries are left, else failed for good.
--
-- URLs in flight become suspects (see silkline.free_tasks). A crash that convicted one of
-- them costs the job no retry: the culprit is out of the way. A user's pause, stop or
-- cancel stands.
-- definer because crawl_worker may touch no table
create function public.fail_crawl_job(
  p_lease_token uuid,
  p_error_code text,
  p_error_message text default null,
  p_is_retryable boolean default true,
  p_retry_after_seconds integer default null
)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security definer
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  v_job public.crawl_jobs;
  v_poison integer;
  v_is_retried boolean;
begin
  if p_error_code is null or p_error_code !~ '^[A-Za-z0-9_:.-]{1,100}$' then
    raise sqlstate 'PT422' using
      message = format('p_error_code %L must be a short code', left(p_error_code, 100)),
      hint = 'For example oom, timeout or crashed:SIGSEGV.';
  end if;

  if p_retry_after_seconds not between 0 and 604800 then
    raise sqlstate 'PT422' using
      message = format(
        'p_retry_after_seconds must be from 0 to 604800, not %s',
        p_retry_after_seconds
      ),
      hint = 'Leave it out for the usual backoff.';
  end if;

  select job.*
  into v_job
  from public.crawl_jobs as job
  where job.lease_token = p_lease_token
  for no key update;

  if v_job.lease_check_at is null then
    return next silkline.answer_again(p_lease_token);
    return;
  end if;

  v_poison := silkline.free_tasks(v_job.id, true);
  v_is_retried := coalesce(p_is_retryable, true)
    and (v_job.retry_count < v_job.max_retries or v_poison > 0);
  perform set_config('silkline.reason', 'fail', true);

  update public.crawl_jobs as job
  set
    status = case
      when job.status <> 'processing' then job.status
      when v_is_retried then 'pending'
      else 'failed'
    end,
    waits_for = case when job.status = 'processing' and v_is_retried then 'time' end
      ::public.crawl_job_wait,
    run_after = case
      when job.status = 'processing' and v_is_retried
        then now() + coalesce(
          make_interval(secs => p_retry_after_seconds),
          case when v_poison > 0 then interval '0' end,
          silkline.backoff(job.retry_count)
        )
      else job.run_after
    end,
    retry_count = case
      when job.status = 'processing' and v_is_retried and v_poison = 0 then job.retry_count + 1
      else job.retry_count
    end,
    completed_at = case
      when job.status = 'processing' and not v_is_retried then now()
      else job.completed_at
    end,
    error_code = p_error_code,
    error_message = left(p_error_message, 10000),
    worker_id = null,
    lease_check_at = null,
    host_slot = null
  where job.id = v_job.id
  returning job.status into v_job.status;

  return next
    row (p_lease_token, v_job.id, silkline.command_for(v_job.status), v_job.status)
    ::public.crawl_command;
end
$$;

comment on function public.fail_crawl_job(uuid, text, text, boolean, integer) is
  'Report a broken crawl; it is retried with backoff while retries are left.';

revoke execute on function public.fail_crawl_job(uuid, text, text, boolean, integer)
  from public, anon, authenticated;
grant execute on function public.fail_crawl_job(uuid, text, text, boolean, integer)
  to service_role, crawl_worker;

-- Hand a job back: 'shutdown' after its URLs were handed in (no retry is spent, it runs
-- again at once), or 'worker_restarted' for the jobs of a predecessor that was killed
-- (like a lost worker, only sooner). Also the acknowledgement of pause, stop and cancel.
-- definer because crawl_worker may touch no table
create function public.release_crawl_job(
  p_lease_token uuid,
  p_reason text default 'shutdown'
)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security definer
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  v_job public.crawl_jobs;
  v_is_crash constant boolean := p_reason = 'worker_restarted';
  v_poison integer;
begin
  if p_reason is null or p_reason not in ('shutdown', 'worker_restarted') then
    raise sqlstate 'PT422' using
      message = format(
        'p_reason must be shutdown or worker_restarted, not %L',
        left(p_reason, 100)
      ),
      hint = 'Use fail_crawl_job to report an error.';
  end if;

  select job.*
  into v_job
  from public.crawl_jobs as job
  where job.lease_token = p_lease_token
  for no key update;

  if v_job.lease_check_at is null then
    return next silkline.answer_again(p_lease_token);
    return;
  end if;

  v_poison := silkline.free_tasks(v_job.id, v_is_crash);

  if v_is_crash and v_job.status = 'processing' and v_poison = 0
    and v_job.retry_count >= v_job.max_retries
  then
    perform set_config('silkline.reason', 'worker_lost', true);

    update public.crawl_jobs as job
    set
      status = 'failed',
      completed_at = now(),
      error_code = 'worker_lost',
      error_message = format('worker %s was killed and no retries are left', job.worker_id),
      worker_id = null,
      lease_check_at = null,
      host_slot = null
    where job.id = v_job.id
    returning job.status into v_job.status;
  else
    perform set_config('silkline.reason', 'release', true);

    update public.crawl_jobs as job
    set
      status = case job.status when 'processing' then 'pending' else job.status end,
      retry_count = job.retry_count
        + (v_is_crash and job.status = 'processing' and v_poison = 0)::integer,
      run_after = now(),
      place = silkline.front_place(job.priority),
      worker_id = null,
      lease_check_at = null,
      host_slot = null
    where job.id = v_job.id
    returning job.status into v_job.status;
  end if;

  return next
    row (p_lease_token, v_job.id, silkline.command_for(v_job.status), v_job.status)
    ::public.crawl_command;
end
$$;

comment on function public.release_crawl_job(uuid, text) is
  'Hand a job back, or acknowledge that a pause, stop or cancel was obeyed.';

revoke execute on function public.release_crawl_job(uuid, text)
  from public, anon, authenticated;
grant execute on function public.release_crawl_job(uuid, text)
  to service_role, crawl_worker;

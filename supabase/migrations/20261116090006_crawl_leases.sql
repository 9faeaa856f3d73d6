-- How a worker ends a lease: complete, fail or release. The head of crawl_claim describes all
-- worker functions.

-- Free the URLs of a lease that ends, depending on what ended it:
--
--   release      the worker handed the job back
--   crash        its process died. p_suspects are the URLs that it was fetching; without a
--                list, all URLs of the lease are suspects. Each suspect is next leased alone.
--                If the process dies again, that URL is the cause: it ends as poison, and the
--                job continues without it.
--   worker_lost  no more heartbeats, which rarely is the fault of a page. A URL that was in
--                flight is only marked the first time; the second time counts as a crash. So a
--                page that kills machines is out after three, and a machine that died for
--                another reason costs its URLs nothing.
--
-- URLs that are not suspects get their attempt back, and with the first attempt their page of
-- the budget: they may never have been fetched. Returns how many URLs turned out to be poison.
create function silkline.free_tasks(
  p_job_id uuid,
  p_cause text,
  p_suspects uuid[] default null
)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_suspects integer := 0;
  v_poison uuid[] := '{}'::uuid[];
  v_restored integer := 0;
  v_refunded integer := 0;
  v_others integer;
  v_unpaid integer;
begin
  if p_cause <> 'release' then
    with suspect as (
      update public.crawl_tasks as task
      set
        status = case when task.crashes > 0 then 'error' else 'pending' end
          ::public.crawl_task_status,
        last_error = case
          when task.crashes > 0 then 'poison: the process died twice while fetching this URL'
          else task.last_error
        end,
        finished_at = case when task.crashes > 0 then now() end,
        crashes = task.crashes + 1,
        lease_token = null,
        lease_seq = null
      where task.job_id = p_job_id
        and task.status = 'in_progress'
        and case p_cause
          when 'crash' then p_suspects is null or coalesce(task.url_key = any (p_suspects), false)
          else task.losses > 0 or task.crashes > 0
        end
      returning task.url_key, task.status
    )
    select
      count(*) filter (where suspect.status = 'pending'),
      coalesce(array_agg(suspect.url_key) filter (where suspect.status = 'error'), '{}')
    into v_suspects, v_poison
    from suspect;

    if v_poison <> '{}' then
      select copies.restored, copies.refunded
      into v_restored, v_refunded
      from silkline.restore_copies(p_job_id, v_poison) as copies;
    end if;
  end if;

  with other as (
    update public.crawl_tasks as task
    set
      status = 'pending',
      attempts = task.attempts - 1,
      losses = task.losses + (p_cause = 'worker_lost')::integer,
      lease_token = null,
      lease_seq = null
    where task.job_id = p_job_id
      and task.status = 'in_progress'
    returning task.attempts
  )
  select count(*), count(*) filter (where other.attempts = 0)
  into v_others, v_unpaid
  from other;

  if v_suspects + cardinality(v_poison) + v_others > 0 then
    update public.crawl_states as state
    set
      total_in_progress = state.total_in_progress
        - v_suspects - cardinality(v_poison) - v_others,
      total_pending = state.total_pending + v_suspects + v_others + v_restored,
      total_error = state.total_error + cardinality(v_poison),
      total_skipped = state.total_skipped - v_restored,
      pages_spent = state.pages_spent - v_unpaid - v_refunded,
      pages_free = state.pages_free + v_refunded
    where state.job_id = p_job_id;
  end if;

  return cardinality(v_poison);
end
$$;

comment on function silkline.free_tasks(uuid, text, uuid[]) is
  'Free the URLs of a lease that ends (release, crash, worker_lost); returns the poison count.';

revoke execute on function silkline.free_tasks(uuid, text, uuid[])
  from public, anon, authenticated;

-- The answer to a token that holds no lease: the same as the first time if its holder ended
-- the lease itself and repeats the call, otherwise 'lost'.
create function silkline.answer_ended_lease(p_lease_token uuid)
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
      hint = 'Send the token that the job was claimed with.';
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

comment on function silkline.answer_ended_lease(uuid) is
  'The command for a lease token that holds no lease.';

revoke execute on function silkline.answer_ended_lease(uuid) from public, anon, authenticated;

-- Refuse an impossible running time.
create function silkline.check_running_seconds(p_running_seconds real)
  returns void
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  if p_running_seconds between 0 and 604800 is not true then
    raise sqlstate 'PT422' using
      message = format(
        'p_running_seconds must be from 0 to 604800, not %s',
        coalesce(p_running_seconds::text, 'null')
      ),
      hint = 'Send how long the crawl ran under this lease.';
  end if;
end
$$;

comment on function silkline.check_running_seconds(real) is
  'Raise unless this is a possible running time of a lease.';

revoke execute on function silkline.check_running_seconds(real) from public, anon, authenticated;

-- End a job whose frontier has drained.
--
-- Refused while URLs are left: 'completed' means drained. If a user has paused, stopped or
-- cancelled the job meanwhile, its status does not change: the lease ends, and the answer says
-- so. The result starts with how many URLs of the job ended which way, over all its attempts.
-- definer because crawl_worker has no rights on tables
create function public.complete_crawl_job(
  p_lease_token uuid,
  p_result jsonb default '{}',
  p_audit jsonb default null,
  p_running_seconds real default 0
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
  perform silkline.check_running_seconds(p_running_seconds);

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
      message = 'p_audit must be an object with exactly the keys score, grade, categories, '
        || 'findings and ruleset_version',
      hint = 'score is a whole number from 0 to 100.';
  end if;

  if pg_column_size(p_audit) > 5000000 then
    raise sqlstate 'PT413' using
      message = format('p_audit has %s bytes, more than 5000000', pg_column_size(p_audit)),
      hint = 'Send each finding once, with examples.';
  end if;

  update public.crawl_jobs as job
  set
    status = case job.status when 'processing' then 'completed' else job.status end,
    completed_at = case job.status when 'processing' then now() else job.completed_at end,
    progress_percentage = case job.status
      when 'processing' then 100
      else job.progress_percentage
    end,
    result = case job.status
      when 'cancelled' then job.result
      else (
        select
          jsonb_build_object(
            'done', state.total_done,
            'error', state.total_error,
            'skipped', state.total_skipped
          ) || p_result
        from public.crawl_states as state
        where state.job_id = job.id
      )
    end,
    running_seconds = job.running_seconds + p_running_seconds,
    worker_id = null,
    lease_check_at = null,
    host_slot = null
  where job.lease_token = p_lease_token
    and job.lease_check_at is not null
  returning job.id, job.status into v_job_id, v_status;

  if v_job_id is null then
    return next silkline.answer_ended_lease(p_lease_token);
    return;
  end if;

  -- Checked after the update, under the lock of the job: raising rolls the update back.
  v_left := (
    select state.total_pending + state.total_in_progress
    from public.crawl_states as state
    where state.job_id = v_job_id
  );

  if v_left > 0 then
    if v_status = 'completed' then
      raise sqlstate 'PT409' using
        message = format('job %s is not drained: %s URLs are left', v_job_id, v_left),
        hint = 'Call checkpoint_crawl_job until it returns drained, or release the job.';
    end if;

    perform silkline.free_tasks(v_job_id, 'release');
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

comment on function public.complete_crawl_job(uuid, jsonb, jsonb, real) is
  'End a job whose frontier has drained.';

revoke execute on function public.complete_crawl_job(uuid, jsonb, jsonb, real)
  from public, anon, authenticated;
grant execute on function public.complete_crawl_job(uuid, jsonb, jsonb, real)
  to service_role, crawl_worker;

-- How long a job waits before a retry: doubled each time, capped, and with jitter over the
-- upper half, so that jobs that failed together do not retry together.
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

-- The crawl broke. The job is retried with backoff while retries are left; then it has failed.
--
-- p_suspects are the URLs that were being fetched when the process died; the lease may hold
-- others that were not. Only these become suspects (see silkline.free_tasks); without a list,
-- all URLs of the lease do. A crash that exposed a poison URL costs the job no retry, because
-- its cause is gone. A user's pause, stop or cancel is kept.
-- definer because crawl_worker has no rights on tables
create function public.fail_crawl_job(
  p_lease_token uuid,
  p_error_code text,
  p_error_message text default null,
  p_is_retryable boolean default true,
  p_retry_after_seconds integer default null,
  p_suspects uuid[] default null,
  p_running_seconds real default 0
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
  perform silkline.check_running_seconds(p_running_seconds);

  if p_error_code is null or p_error_code !~ '^[A-Za-z0-9_:.-]{1,100}$' then
    raise sqlstate 'PT422' using
      message = format('p_error_code must be a short code, not %L', left(p_error_code, 100)),
      hint = 'For example oom, timeout or crashed:SIGSEGV.';
  end if;

  if p_retry_after_seconds not between 0 and 604800 then
    raise sqlstate 'PT422' using
      message = format(
        'p_retry_after_seconds must be from 0 to 604800, not %s',
        p_retry_after_seconds
      ),
      hint = 'Omit it for the usual backoff.';
  end if;

  if array_ndims(p_suspects) > 1
    or cardinality(p_suspects) > 10000
    or array_position(p_suspects, null) is not null
  then
    raise sqlstate 'PT422' using
      message = 'p_suspects must be a list of at most 10000 uuids without nulls',
      hint = 'Send the URLs that were being fetched, or omit it for all URLs of the lease.';
  end if;

  select job.*
  into v_job
  from public.crawl_jobs as job
  where job.lease_token = p_lease_token
  for no key update;

  if v_job.lease_check_at is null then
    return next silkline.answer_ended_lease(p_lease_token);
    return;
  end if;

  v_poison := silkline.free_tasks(v_job.id, 'crash', p_suspects);
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
    running_seconds = job.running_seconds + p_running_seconds,
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

comment on function public.fail_crawl_job(uuid, text, text, boolean, integer, uuid[], real) is
  'Report that a crawl broke; the job is retried with backoff while retries are left.';

revoke execute on function public.fail_crawl_job(uuid, text, text, boolean, integer, uuid[], real)
  from public, anon, authenticated;
grant execute on function public.fail_crawl_job(uuid, text, text, boolean, integer, uuid[], real)
  to service_role, crawl_worker;

-- Hand a job back. A worker also does this after a pause, stop or cancel. Only the reason
-- worker_restarted costs a retry:
--
--   shutdown          its results are saved; it runs again at once
--   later             the site asked to wait; it runs again in p_after_seconds
--   worker_restarted  the worker that ran it was killed, and its successor reports that before
--                     the reaper notices; its running time is unknown
-- definer because crawl_worker has no rights on tables
create function public.release_crawl_job(
  p_lease_token uuid,
  p_reason text default 'shutdown',
  p_after_seconds integer default null,
  p_running_seconds real default 0
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
  v_is_lost constant boolean := p_reason = 'worker_restarted';
  v_is_later constant boolean := p_reason = 'later';
  v_poison integer;
begin
  perform silkline.check_running_seconds(p_running_seconds);

  if p_reason is null or p_reason not in ('shutdown', 'later', 'worker_restarted') then
    raise sqlstate 'PT422' using
      message = format(
        'p_reason must be shutdown, later or worker_restarted, not %L',
        left(p_reason, 100)
      ),
      hint = 'Use fail_crawl_job to report an error.';
  end if;

  if v_is_later and coalesce(p_after_seconds not between 1 and 86400, true) then
    raise sqlstate 'PT422' using
      message = format(
        'p_after_seconds must be from 1 to 86400, not %s',
        coalesce(p_after_seconds::text, 'null')
      ),
      hint = 'Send how long the job should wait.';
  end if;

  if p_after_seconds is not null and not v_is_later then
    raise sqlstate 'PT422' using
      message = format('p_after_seconds cannot be used with the reason %s', p_reason),
      hint = 'Use the reason later.';
  end if;

  if p_running_seconds > 0 and v_is_lost then
    raise sqlstate 'PT422' using
      message = format('p_running_seconds cannot be used with the reason %s', p_reason),
      hint = 'The running time of a killed worker is unknown: omit it.';
  end if;

  select job.*
  into v_job
  from public.crawl_jobs as job
  where job.lease_token = p_lease_token
  for no key update;

  if v_job.lease_check_at is null then
    return next silkline.answer_ended_lease(p_lease_token);
    return;
  end if;

  v_poison := silkline.free_tasks(
    v_job.id,
    case when v_is_lost then 'worker_lost' else 'release' end
  );

  if v_is_lost and v_job.status = 'processing' and v_poison = 0
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
    perform set_config(
      'silkline.reason',
      case when v_is_later then 'later' else 'release' end,
      true
    );

    update public.crawl_jobs as job
    set
      status = case job.status when 'processing' then 'pending' else job.status end,
      retry_count = job.retry_count
        + (v_is_lost and job.status = 'processing' and v_poison = 0)::integer,
      waits_for = case when v_is_later and job.status = 'processing' then 'time' end
        ::public.crawl_job_wait,
      run_after = case
        when v_is_later and job.status = 'processing'
          then now() + make_interval(secs => p_after_seconds)
        else now()
      end,
      running_seconds = job.running_seconds + p_running_seconds,
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

comment on function public.release_crawl_job(uuid, text, integer, real) is
  'Hand a job back, to run at once or later; also confirms a pause, stop or cancel.';

revoke execute on function public.release_crawl_job(uuid, text, integer, real)
  from public, anon, authenticated;
grant execute on function public.release_crawl_job(uuid, text, integer, real)
  to service_role, crawl_worker;

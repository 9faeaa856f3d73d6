-- The home of the lease: who holds it (lock_leases), how it ends (end_leases), and the four calls
-- that end one: complete, fail, release, reap. The head of the migration claim describes all worker
-- functions.
--
-- A lease is a token on a job, with lease_check_at set. It ends in one statement, in end_leases, and
-- only for rows that lock_leases has locked and found current (or the reaper found silent). The token
-- then stays on the job as a receipt: its holder ended the lease itself, and repeating that call gets
-- the first answer again. If someone else ended it, the token goes to spent_tokens and gets 'lost'.

-- The jobs of the tokens that hold a lease, locked in the order of their ids. No row for a token
-- whose lease has ended, or whose job belongs to a deleted account.
create function silkline.lock_leases(p_lease_tokens uuid[])
  returns setof silkline.jobs
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return query
    select job.*
    from silkline.jobs as job
    where job.lease_token = any (p_lease_tokens)
      and job.lease_check_at is not null
      and not exists (
        select
        from silkline.deleted_accounts as account
        where account.owner_id = job.owner_id
      )
    order by job.id
    for no key update of job;
end
$$;

comment on function silkline.lock_leases(uuid[]) is
  'Lock and return the jobs that are leased with these tokens.';

revoke execute on function silkline.lock_leases(uuid[]) from public, anon, authenticated;

-- How one lease ends.
create type silkline.lease_end as (
  job_id uuid,
  lease_token uuid,
  from_status public.crawl_job_status,
  worker_id uuid,
  status public.crawl_job_status,  -- what a running job becomes; a user's decision stays
  reason text,
  waits_until timestamptz,         -- of a job that becomes pending; null: it is next in line
  is_retry boolean,
  error_code text,
  error_message text,
  result jsonb,
  running_seconds real,
  leaves_receipt boolean
);

-- End leases. Their callers have locked the jobs.
create function silkline.end_leases(p_ends silkline.lease_end[])
  returns setof public.crawl_command
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_answers public.crawl_command[];
  v_changes silkline.job_change[];
  v_hosts text[];
  v_owner_ids uuid[];
  v_spent_tokens uuid[];
begin
  with ended as (
    update silkline.jobs as job
    set
      status = outcome.status,
      event_seq = job.event_seq + (outcome.status <> job.status)::integer,
      waits_for = case
        when outcome.status = 'pending' and lease.waits_until is not null then 'time'
      end::public.crawl_job_wait,
      run_after = case outcome.status
        when 'pending' then coalesce(lease.waits_until, now())
        else job.run_after
      end,
      place = case
        when outcome.status = 'pending' and lease.waits_until is null
          then silkline.head_place(job.kind, (100 - (job.place >> 40))::integer)
        else job.place
      end,
      retry_count = job.retry_count + (lease.is_retry and outcome.status = 'pending')::integer,
      completed_at = case
        when outcome.status in ('completed', 'failed') then now()
        else job.completed_at
      end,
      progress_percentage = case outcome.status
        when 'completed' then 100
        else job.progress_percentage
      end,
      error_code = coalesce(lease.error_code, job.error_code),
      error_message = case
        when lease.error_code is null then job.error_message
        else lease.error_message
      end,
      result = coalesce(lease.result, job.result),
      running_seconds = job.running_seconds + lease.running_seconds,
      lease_token = case when lease.leaves_receipt then job.lease_token end,
      worker_id = null,
      lease_check_at = null,
      host_slot = null
    from unnest(p_ends) as lease
    cross join lateral (
      select case lease.from_status
        when 'processing' then lease.status
        else lease.from_status
      end as status
    ) as outcome
    where job.id = lease.job_id
    returning
      job.id,
      job.user_id,
      job.owner_id,
      job.kind,
      job.host,
      job.status,
      job.event_seq,
      job.waits_for,
      job.attempt,
      job.retry_count,
      job.progress_percentage,
      job.run_after,
      job.error_code,
      job.error_message,
      lease.lease_token,
      lease.from_status,
      lease.worker_id,
      lease.reason,
      lease.leaves_receipt
  )
  select
    array_agg(
      row (
        ended.lease_token,
        ended.id,
        case when ended.leaves_receipt then silkline.command_for(ended.status) else 'lost' end,
        ended.status
      )::public.crawl_command
    ),
    array_agg(
      row (
        ended.id,
        ended.user_id,
        ended.kind,
        ended.event_seq,
        ended.from_status,
        ended.status,
        ended.reason,
        ended.worker_id,
        false,
        ended.status = 'pending' and ended.waits_for is null,
        ended.attempt,
        ended.retry_count,
        ended.progress_percentage,
        ended.run_after,
        ended.error_code,
        ended.error_message
      )::silkline.job_change
    ) filter (where ended.status <> ended.from_status),
    -- A job that goes back in line is the next one itself.
    array_agg(ended.host) filter (where ended.status <> 'pending' or ended.waits_for is not null),
    array_agg(ended.owner_id)
      filter (where ended.status <> 'pending' or ended.waits_for is not null),
    array_agg(ended.lease_token) filter (where not ended.leaves_receipt)
  into v_answers, v_changes, v_hosts, v_owner_ids, v_spent_tokens
  from ended;

  if v_spent_tokens is not null then
    insert into silkline.spent_tokens (lease_token)
    select token
    from unnest(v_spent_tokens) as token
    on conflict do nothing;
  end if;

  perform silkline.record_changes(v_changes);

  if v_hosts is not null then
    perform silkline.unblock_next_jobs(v_hosts, v_owner_ids);
  end if;

  return query select answer.* from unnest(v_answers) as answer;
end
$$;

comment on function silkline.end_leases(silkline.lease_end[]) is
  'End leases that the caller has locked; returns one command per lease.';

revoke execute on function silkline.end_leases(silkline.lease_end[])
  from public, anon, authenticated;

-- The answers to tokens that hold no lease: the same as the first time if the holder ended the
-- lease itself and repeats the call, otherwise 'lost'.
create function silkline.answer_ended_leases(p_lease_tokens uuid[])
  returns setof public.crawl_command
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return query
    select
      asked.token,
      job.id,
      case when job.id is null then 'lost' else silkline.command_for(job.status) end,
      job.status
    from unnest(p_lease_tokens) as asked (token)
    left join silkline.jobs as job
      on job.lease_token = asked.token
      and job.lease_check_at is null;
end
$$;

comment on function silkline.answer_ended_leases(uuid[]) is
  'The commands for lease tokens that hold no lease.';

revoke execute on function silkline.answer_ended_leases(uuid[]) from public, anon, authenticated;

-- End jobs whose frontier has drained; returns one command per token. 'completed' means drained:
-- a running job with URLs left stays as it is. If a user has paused, stopped or cancelled a job
-- meanwhile, its status does not change: the lease ends, and the answer says so. A result starts
-- with how many URLs of the job ended which way, over all its attempts.
create function silkline.complete_jobs(
  p_lease_tokens uuid[],
  p_results jsonb[],
  p_running_seconds real[]
)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_ends silkline.lease_end[];
  v_held uuid[];
  v_undrained public.crawl_command[];
  v_to_free uuid[];
begin
  -- A statement of its own: it sees the counters as they are under the locks.
  with held as materialized (
    select job.id, job.lease_token, job.status, job.worker_id
    from silkline.lock_leases(p_lease_tokens) as job
  ),
  counted as (
    select
      held.*,
      sent.result,
      sent.running_seconds,
      state.total_pending + state.total_in_progress as urls_left,
      jsonb_build_object(
        'done', state.total_done,
        'error', state.total_error,
        'skipped', state.total_skipped
      ) as counts
    from held
    join unnest(p_lease_tokens, p_results, p_running_seconds)
      as sent (lease_token, result, running_seconds)
      on sent.lease_token = held.lease_token
    cross join lateral (
      select counters.*
      from silkline.states as counters
      where counters.job_id = held.id
      limit 1
    ) as state
  )
  select
    array_agg(
      row (
        counted.id,
        counted.lease_token,
        counted.status,
        counted.worker_id,
        'completed',
        'complete',
        null,
        false,
        null,
        null,
        case when counted.status <> 'cancelled' then counted.counts || counted.result end,
        counted.running_seconds,
        true
      )::silkline.lease_end
    ) filter (where counted.urls_left = 0 or counted.status <> 'processing'),
    array_agg(
      row (counted.lease_token, counted.id, 'continue', counted.status)::public.crawl_command
    ) filter (where counted.urls_left > 0 and counted.status = 'processing'),
    array_agg(counted.id) filter (where counted.urls_left > 0 and counted.status <> 'processing'),
    array_agg(counted.lease_token)
  into v_ends, v_undrained, v_to_free, v_held
  from counted;

  if v_to_free is not null then
    perform silkline.free_tasks(freed.job_id, 'release')
    from unnest(v_to_free) as freed (job_id);
  end if;

  if v_ends is not null then
    return query select ended.* from silkline.end_leases(v_ends) as ended;
  end if;

  if v_undrained is not null then
    return query select undrained.* from unnest(v_undrained) as undrained;
  end if;

  if cardinality(p_lease_tokens) > coalesce(cardinality(v_held), 0) then
    return query
      select ended.*
      from silkline.answer_ended_leases(
        array(
          select token
          from unnest(p_lease_tokens) as token
          where token <> all (coalesce(v_held, '{}'))
        )
      ) as ended;
  end if;
end
$$;

comment on function silkline.complete_jobs(uuid[], jsonb[], real[]) is
  'End jobs whose frontier has drained.';

revoke execute on function silkline.complete_jobs(uuid[], jsonb[], real[])
  from public, anon, authenticated;

-- End a job whose frontier has drained; refused while URLs are left.
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
  v_answer public.crawl_command;
begin
  perform silkline.check_lease_token(p_lease_token);
  perform silkline.check_running_seconds(p_running_seconds);
  perform silkline.check_result(p_result);

  if p_audit is not null then
    perform silkline.check_audit(p_audit);
  end if;

  select answer.*
  into v_answer
  from silkline.complete_jobs(
    array[p_lease_token],
    array[p_result],
    array[p_running_seconds]
  ) as answer;

  if v_answer.status = 'processing' then
    raise sqlstate 'PT409' using
      message = (
        select format(
          'job %s is not drained: %s URLs are left',
          state.job_id, state.total_pending + state.total_in_progress
        )
        from silkline.states as state
        where state.job_id = v_answer.job_id
      ),
      hint = 'Call checkpoint_crawl_job until it returns drained, or release the job.';
  end if;

  if p_audit is not null and v_answer.status in ('completed', 'paused', 'stopped') then
    perform silkline.save_audit(v_answer.job_id, p_audit);
  end if;

  return next v_answer;
end
$$;

comment on function public.complete_crawl_job(uuid, jsonb, jsonb, real) is
  'End a job whose frontier has drained.';

revoke execute on function public.complete_crawl_job(uuid, jsonb, jsonb, real)
  from public, anon, authenticated;
grant execute on function public.complete_crawl_job(uuid, jsonb, jsonb, real)
  to service_role, crawl_worker;

-- End jobs whose frontiers have drained, many in one call. p_results is a JSON list, parallel to
-- the tokens. A job with URLs left stays as it is, and its answer has the status processing.
-- definer because crawl_worker has no rights on tables
create function public.complete_crawl_jobs(
  p_lease_tokens uuid[],
  p_results jsonb default null,
  p_running_seconds real[] default null
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
  v_count constant integer := cardinality(p_lease_tokens);
  v_results jsonb[];
  v_seconds constant real[] := coalesce(p_running_seconds, array_fill(0::real, array[v_count]));
begin
  perform silkline.check_lease_tokens(p_lease_tokens);

  if coalesce(jsonb_typeof(p_results), 'array') <> 'array'
    or coalesce(jsonb_array_length(p_results), v_count) <> v_count
    or cardinality(v_seconds) <> v_count
  then
    raise sqlstate 'PT422' using
      message = 'p_results and p_running_seconds must have one entry per lease token',
      hint = 'Omit them, or send lists that are parallel to p_lease_tokens.';
  end if;

  v_results := case
    when p_results is null then array_fill('{}'::jsonb, array[v_count])
    else array(select result from jsonb_array_elements(p_results) as result)
  end;

  perform silkline.check_result(result)
  from unnest(v_results) as result;
  perform silkline.check_running_seconds(seconds)
  from unnest(v_seconds) as seconds;

  return query
    select answer.*
    from silkline.complete_jobs(p_lease_tokens, v_results, v_seconds) as answer;
end
$$;

comment on function public.complete_crawl_jobs(uuid[], jsonb, real[]) is
  'End jobs whose frontiers have drained; returns one command per lease.';

revoke execute on function public.complete_crawl_jobs(uuid[], jsonb, real[])
  from public, anon, authenticated;
grant execute on function public.complete_crawl_jobs(uuid[], jsonb, real[])
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

-- How the lease of a job ends whose crawl broke, or whose worker is gone. A crash that exposed a
-- poison URL costs the job no retry, because its cause is gone.
create function silkline.broken_lease(
  p_job silkline.jobs,
  p_reason text,
  p_poison integer,
  p_is_retryable boolean,
  p_waits_until timestamptz,
  p_error_code text,
  p_error_message text,
  p_running_seconds real,
  p_leaves_receipt boolean
)
  returns silkline.lease_end
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return row (
    p_job.id,
    p_job.lease_token,
    p_job.status,
    p_job.worker_id,
    case
      when p_is_retryable and (p_job.retry_count < p_job.max_retries or p_poison > 0)
        then 'pending'
      else 'failed'
    end,
    p_reason,
    p_waits_until,
    p_poison = 0,
    p_error_code,
    p_error_message,
    null,
    p_running_seconds,
    p_leaves_receipt
  )::silkline.lease_end;
end
$$;

comment on function silkline.broken_lease(
  silkline.jobs, text, integer, boolean, timestamptz, text, text, real, boolean
) is
  'How a lease ends that broke: retried while retries are left, then failed.';

revoke execute on function silkline.broken_lease(
  silkline.jobs, text, integer, boolean, timestamptz, text, text, real, boolean
) from public, anon, authenticated;

-- How the lease of a lost worker ends: the reaper found it silent, or its successor on the same
-- machine reports that it was killed.
create function silkline.lost_lease(
  p_job silkline.jobs,
  p_message text,
  p_leaves_receipt boolean
)
  returns silkline.lease_end
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return silkline.broken_lease(
    p_job,
    'worker_lost',
    silkline.free_tasks(p_job.id, 'worker_lost'),
    true,
    null,
    case p_job.status when 'processing' then 'worker_lost' end,
    p_message,
    0,
    p_leaves_receipt
  );
end
$$;

comment on function silkline.lost_lease(silkline.jobs, text, boolean) is
  'Free the URLs of a lost worker''s lease; returns how the lease ends.';

revoke execute on function silkline.lost_lease(silkline.jobs, text, boolean)
  from public, anon, authenticated;

-- The crawl broke. The job is retried with backoff while retries are left; then it has failed.
--
-- p_suspects are the URLs that were being fetched when the process died; the lease may hold
-- others that were not. Only these become suspects (see silkline.free_tasks); without a list,
-- all URLs of the lease do. A user's pause, stop or cancel is kept.
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
  v_job silkline.jobs;
  v_poison integer;
begin
  perform silkline.check_lease_token(p_lease_token);
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
  from silkline.lock_leases(array[p_lease_token]) as job;

  if v_job.id is null then
    return query
      select answer.* from silkline.answer_ended_leases(array[p_lease_token]) as answer;
    return;
  end if;

  v_poison := silkline.free_tasks(v_job.id, 'crash', p_suspects);

  return query
    select answer.*
    from silkline.end_leases(
      array[
        silkline.broken_lease(
          v_job,
          'fail',
          v_poison,
          coalesce(p_is_retryable, true),
          now() + coalesce(
            make_interval(secs => p_retry_after_seconds),
            case when v_poison > 0 then interval '0' end,
            silkline.backoff(v_job.retry_count)
          ),
          p_error_code,
          left(p_error_message, 10000),
          p_running_seconds,
          true
        )
      ]
    ) as answer;
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
  v_job silkline.jobs;
  v_is_lost constant boolean := p_reason = 'worker_restarted';
  v_is_later constant boolean := p_reason = 'later';
begin
  perform silkline.check_lease_token(p_lease_token);
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
  from silkline.lock_leases(array[p_lease_token]) as job;

  if v_job.id is null then
    return query
      select answer.* from silkline.answer_ended_leases(array[p_lease_token]) as answer;
    return;
  end if;

  if v_is_lost then
    return query
      select answer.*
      from silkline.end_leases(
        array[
          silkline.lost_lease(v_job, format('worker %s was killed', v_job.worker_id), true)
        ]
      ) as answer;
    return;
  end if;

  perform silkline.free_tasks(v_job.id, 'release');

  return query
    select answer.*
    from silkline.end_leases(
      array[
        row (
          v_job.id,
          v_job.lease_token,
          v_job.status,
          v_job.worker_id,
          'pending',
          case when v_is_later then 'later' else 'release' end,
          case when v_is_later then now() + make_interval(secs => p_after_seconds) end,
          false,
          null,
          null,
          null,
          p_running_seconds,
          true
        )::silkline.lease_end
      ]
    ) as answer;
end
$$;

comment on function public.release_crawl_job(uuid, text, integer, real) is
  'Hand a job back, to run at once or later; also confirms a pause, stop or cancel.';

revoke execute on function public.release_crawl_job(uuid, text, integer, real)
  from public, anon, authenticated;
grant execute on function public.release_crawl_job(uuid, text, integer, real)
  to service_role, crawl_worker;

-- Reap up to p_limit leases whose worker has fallen silent.
--
-- A claim sets lease_check_at and heartbeats leave it alone, so they touch no index. When the
-- check is due and the lease was renewed meanwhile, it is postponed: one index write per job
-- and stale_after, and a dead worker is still noticed in time.
create function silkline.reap_leases(p_limit integer)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_stale_after constant interval := (
    select make_interval(secs => settings.stale_after_seconds)
    from public.crawl_settings as settings
  );
  v_job silkline.jobs;
  v_ends silkline.lease_end[] := '{}'::silkline.lease_end[];
begin
  -- One reaper at a time: a second one would only find the rows of the first locked.
  if not silkline.try_lock('reaper', '') then
    return;
  end if;

  -- Postpone the checks of renewed leases first: they are many and cheap, and would otherwise
  -- fill the limit below.
  update silkline.jobs as job
  set lease_check_at = job.last_heartbeat + v_stale_after
  where job.id = any (
    array(
      select alive.id
      from silkline.jobs as alive
      where alive.lease_check_at <= now()
        and alive.last_heartbeat > now() - v_stale_after
      order by alive.lease_check_at
      limit 20 * p_limit
      for update skip locked
    )
  );

  for v_job in
    select job.*
    from silkline.jobs as job
    where job.lease_check_at <= now()
      and job.last_heartbeat <= now() - v_stale_after
    order by job.lease_check_at
    limit p_limit
    for update skip locked
  loop
    -- A host or owner that another call has locked is left for the next sweep: waiting while
    -- holding other locks could deadlock.
    continue when not silkline.try_lock('host', v_job.host)
      or not silkline.try_lock('owner', v_job.owner_id::text);

    v_ends := v_ends || silkline.lost_lease(
      v_job,
      format('no heartbeat from worker %s since %s', v_job.worker_id, v_job.last_heartbeat),
      false
    );
  end loop;

  return query select answer.* from silkline.end_leases(v_ends) as answer;
end
$$;

comment on function silkline.reap_leases(integer) is
  'End leases whose heartbeats have stopped; a bounded number per call.';

revoke execute on function silkline.reap_leases(integer) from public, anon, authenticated;

-- End the leases of silent workers, and put due jobs in line. Claims do the same; pg_cron calls
-- this each minute for a queue that no worker claims from.
-- definer because crawl_worker has no rights on tables
create function public.reap_crawl_jobs(p_limit integer default 100)
  returns setof public.crawl_command
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
begin
  if p_limit is null or p_limit not between 1 and 1000 then
    raise sqlstate 'PT422' using
      message = format('p_limit must be from 1 to 1000, not %s', coalesce(p_limit::text, 'null')),
      hint = 'Call it again for more.';
  end if;

  perform silkline.unblock_due_jobs(p_limit);
  return query select * from silkline.reap_leases(p_limit);
end
$$;

comment on function public.reap_crawl_jobs(integer) is
  'End leases whose worker fell silent; returns one row per ended lease.';

revoke execute on function public.reap_crawl_jobs(integer)
  from public, anon, authenticated;
grant execute on function public.reap_crawl_jobs(integer)
  to service_role, crawl_worker;

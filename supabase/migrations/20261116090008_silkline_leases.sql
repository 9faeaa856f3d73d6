-- The home of the lease: who holds it (lock_lease), how it ends (end_lease), and the four calls
-- that end one: complete, fail, release, reap. The head of the migration claim describes all
-- worker functions.
--
-- A lease is a token on a job, with lease_check_at set. It ends in end_lease, or for many completed
-- jobs in complete_at_once, and only for rows that lock_lease has locked and found current, or that
-- the reaper found silent. The token then stays on the job as a receipt: its holder ended the lease
-- itself, and repeating that call gets the first answer again. If someone else ended it, the token
-- goes to spent_tokens and gets 'lost'.

-- The job that is leased with this token, locked; nulls if the token holds no lease, or if the job
-- belongs to a deleted account.
create function silkline.lock_lease(p_lease_token uuid)
  returns silkline.jobs
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_job silkline.jobs;
begin
  select job.*
  into v_job
  from silkline.jobs as job
  where job.lease_token = p_lease_token
    -- A lease has both. By lease_check_at, a plan may read the index of all leases, which is long
    -- under a held snapshot.
    and job.worker_id is not null
    -- A subquery that is no join, whatever the statistics say.
    and (
      select account.owner_id
      from silkline.deleted_accounts as account
      where account.owner_id = job.owner_id
    ) is null
  for no key update of job;

  return v_job;
end
$$;

comment on function silkline.lock_lease(uuid) is
  'Lock and return the job that is leased with this token.';

revoke execute on function silkline.lock_lease(uuid) from public, anon, authenticated;

-- The same for many tokens, locked in the order of the jobs' ids.
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
      and job.worker_id is not null
      and (
        select account.owner_id
        from silkline.deleted_accounts as account
        where account.owner_id = job.owner_id
      ) is null
    order by job.id
    for no key update of job;
end
$$;

comment on function silkline.lock_leases(uuid[]) is
  'Lock and return the jobs that are leased with these tokens.';

revoke execute on function silkline.lock_leases(uuid[]) from public, anon, authenticated;

-- End the lease of a job that the caller has locked.
--
--   p_status          what a running job becomes; a user's decision stays
--   p_waits_until     when a job that becomes pending runs again; null: it is next in line
--   p_leaves_receipt  whether the holder ends it; otherwise the token is spent
create function silkline.end_lease(
  p_job silkline.jobs,
  p_status public.crawl_job_status,
  p_reason text,
  p_waits_until timestamptz default null,
  p_is_retry boolean default false,
  p_error_code text default null,
  p_error_message text default null,
  p_result jsonb default null,
  p_running_seconds real default 0,
  p_leaves_receipt boolean default true
)
  returns public.crawl_command
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_status constant public.crawl_job_status := case p_job.status
    when 'processing' then p_status
    else p_job.status
  end;
  v_job silkline.jobs;
begin
  update silkline.jobs as job
  set
    status = v_status,
    event_seq = job.event_seq + (v_status <> job.status)::integer,
    waits_for = case
      when v_status = 'pending' and p_waits_until is not null then 'time'
    end::public.crawl_job_wait,
    run_after = case v_status
      when 'pending' then coalesce(p_waits_until, now())
      else job.run_after
    end,
    place = case
      when v_status = 'pending' and p_waits_until is null
        then silkline.head_place(job.lane, (100 - (job.place >> 40))::integer)
      else job.place
    end,
    retry_count = job.retry_count + (p_is_retry and v_status = 'pending')::integer,
    completed_at = case
      when v_status in ('completed', 'failed') then now()
      else job.completed_at
    end,
    progress_percentage = case v_status
      when 'completed' then 100
      else job.progress_percentage
    end,
    error_code = coalesce(p_error_code, job.error_code),
    error_message = case
      when p_error_code is null then job.error_message
      else p_error_message
    end,
    result = coalesce(p_result, job.result),
    running_seconds = job.running_seconds + p_running_seconds,
    lease_token = case when p_leaves_receipt then job.lease_token end,
    worker_id = null,
    lease_check_at = null,
    host_slot = null
  where job.id = p_job.id
  returning job.* into v_job;

  if v_status <> p_job.status then
    perform silkline.record_change(
      v_job,
      p_job.status,
      p_reason,
      case p_reason when 'worker_lost' then 'system' else 'worker' end::public.crawl_actor,
      case when p_reason <> 'worker_lost' then p_job.worker_id end
    );
  end if;

  if not p_leaves_receipt then
    insert into silkline.spent_tokens (lease_token)
    values (p_job.lease_token)
    on conflict do nothing;
  end if;

  if v_status = 'pending' and p_waits_until is null then
    -- It is the next job of its host and owner itself.
    perform silkline.wake_workers(array[v_job.kind]);
  else
    perform silkline.unblock_next_jobs(array[v_job.host], array[v_job.owner_id]);
  end if;

  return row (
    p_job.lease_token,
    v_job.id,
    case when p_leaves_receipt then silkline.command_for(v_status) else 'lost' end,
    v_status
  )::public.crawl_command;
end
$$;

comment on function silkline.end_lease(
  silkline.jobs,
  public.crawl_job_status,
  text,
  timestamptz,
  boolean,
  text,
  text,
  jsonb,
  real,
  boolean
) is
  'End a lease that the caller has locked.';

revoke execute on function silkline.end_lease(
  silkline.jobs,
  public.crawl_job_status,
  text,
  timestamptz,
  boolean,
  text,
  text,
  jsonb,
  real,
  boolean
) from public, anon, authenticated;

-- The answer to a token that holds no lease: the same as the first time if its holder ended the
-- lease itself and repeats the call, otherwise 'lost'.
create function silkline.answer_ended_lease(p_lease_token uuid)
  returns public.crawl_command
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_job silkline.jobs;
begin
  select job.*
  into v_job
  from silkline.jobs as job
  where job.lease_token = p_lease_token
    and job.lease_check_at is null
    and not exists (
      select
      from silkline.deleted_accounts as account
      where account.owner_id = job.owner_id
    );

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

-- End a job whose frontier has drained. 'completed' means drained: a running job with URLs left
-- stays as it is, and the answer has the status processing. If a user has paused, stopped or
-- cancelled the job meanwhile, its status does not change: the lease ends, and the answer says
-- so. The result starts with how many URLs of the job ended which way, over all its attempts.
create function silkline.complete_job(
  p_lease_token uuid,
  p_result jsonb,
  p_running_seconds real
)
  returns public.crawl_command
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_job constant silkline.jobs := silkline.lock_lease(p_lease_token);
  v_left integer;
  v_counts jsonb;
begin
  if v_job.id is null then
    return silkline.answer_ended_lease(p_lease_token);
  end if;

  -- A statement of its own: it sees the counters as they are under the lock.
  select
    state.total_pending + state.total_in_progress,
    jsonb_build_object(
      'done', state.total_done,
      'error', state.total_error,
      'skipped', state.total_skipped
    )
  into v_left, v_counts
  from silkline.states as state
  where state.job_id = v_job.id;

  if v_left > 0 then
    if v_job.status = 'processing' then
      return row (p_lease_token, v_job.id, 'continue', v_job.status)::public.crawl_command;
    end if;

    perform silkline.free_tasks(v_job.id, 'release');
  end if;

  return silkline.end_lease(
    v_job,
    'completed',
    'complete',
    p_result => case when v_job.status <> 'cancelled' then v_counts || p_result end,
    p_running_seconds => p_running_seconds
  );
end
$$;

comment on function silkline.complete_job(uuid, jsonb, real) is
  'End a job whose frontier has drained.';

revoke execute on function silkline.complete_job(uuid, jsonb, real)
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
  v_job silkline.jobs;
begin
  perform silkline.check_lease_token(p_lease_token);
  perform silkline.check_running_seconds(p_running_seconds);
  perform silkline.check_result(p_result);

  if p_audit is not null then
    perform silkline.check_audit(p_audit);
    v_job := silkline.lock_lease(p_lease_token);

    if v_job.id is not null and v_job.status <> 'cancelled' then
      perform silkline.save_audit(v_job.id, p_audit);
    end if;
  end if;

  v_answer := silkline.complete_job(p_lease_token, p_result, p_running_seconds);

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

  return next v_answer;
end
$$;

comment on function public.complete_crawl_job(uuid, jsonb, jsonb, real) is
  'End a job whose frontier has drained.';

revoke execute on function public.complete_crawl_job(uuid, jsonb, jsonb, real)
  from public, anon, authenticated;
grant execute on function public.complete_crawl_job(uuid, jsonb, jsonb, real)
  to service_role, crawl_worker;

-- End the running jobs whose frontiers have drained, in one statement: for many jobs, it costs a
-- fourth of what end_lease does. A message that cannot be sent must not fail the write: then the
-- whole is done again without messages.
create function silkline.complete_at_once(
  p_lease_tokens uuid[],
  p_results jsonb[],
  p_running_seconds real[],
  p_is_announced boolean default true
)
  returns public.crawl_command[]
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_held uuid[];
  v_leased_hosts text[];
  v_leased_owner_ids uuid[];
  v_answers public.crawl_command[];
  v_hosts text[];
  v_owner_ids uuid[];
begin
  -- A statement of its own: the next one sees the counters as they are under these locks.
  select
    array_agg(job.lease_token) filter (where job.status = 'processing'),
    array_agg(job.host),
    array_agg(job.owner_id)
  into v_held, v_leased_hosts, v_leased_owner_ids
  from silkline.lock_leases(p_lease_tokens) as job;

  with ended as (
    update silkline.jobs as job
    set
      status = 'completed',
      event_seq = job.event_seq + 1,
      completed_at = now(),
      progress_percentage = 100,
      result = jsonb_build_object(
        'done', drained.total_done,
        'error', drained.total_error,
        'skipped', drained.total_skipped
      ) || sent.result,
      running_seconds = job.running_seconds + sent.running_seconds,
      worker_id = null,
      lease_check_at = null,
      host_slot = null
    from unnest(p_lease_tokens, p_results, p_running_seconds)
      as sent (lease_token, result, running_seconds)
    cross join lateral (
      select
        held.id,
        held.worker_id,
        state.total_done,
        state.total_error,
        state.total_skipped
      from silkline.jobs as held
      join silkline.states as state
        on state.job_id = held.id
      where held.lease_token = sent.lease_token
        and state.total_pending + state.total_in_progress = 0
      limit 1
    ) as drained
    where job.id = drained.id
      and sent.lease_token = any (v_held)
    returning
      job.id,
      job.user_id,
      job.owner_id,
      job.host,
      job.lease_token,
      job.status,
      job.event_seq,
      job.attempt,
      drained.worker_id,
      silkline.status_message(job, 'processing', 'complete') as message
  ),
  recorded as (
    insert into silkline.events (
      job_id,
      seq,
      from_status,
      to_status,
      actor,
      actor_id,
      reason,
      attempt
    )
    select
      ended.id,
      ended.event_seq,
      'processing',
      ended.status,
      'worker',
      ended.worker_id,
      'complete',
      ended.attempt
    from ended
  ),
  announced as (
    insert into realtime.messages (id, topic, extension, event, private, payload)
    select
      md5(topic || ended.id || ended.event_seq)::uuid,
      topic,
      'broadcast',
      'status',
      true,
      ended.message
    from ended
    cross join lateral unnest(
      array['crawl_job:' || ended.id, 'crawl_user:' || ended.user_id]
    ) as topic
    where p_is_announced
      and topic is not null
  )
  select
    array_agg(
      row (ended.lease_token, ended.id, 'continue', ended.status)::public.crawl_command
    ),
    array_agg(ended.host),
    array_agg(ended.owner_id)
  into v_answers, v_hosts, v_owner_ids
  from ended;

  -- The caller ends the other leases one by one, and locks are taken in order.
  if cardinality(v_leased_hosts) > coalesce(cardinality(v_hosts), 0) then
    perform silkline.lock('host', leased.host)
    from (select distinct host from unnest(v_leased_hosts) as host order by host) as leased;
    perform silkline.lock('owner', leased.owner_id::text)
    from (
      select distinct owner_id from unnest(v_leased_owner_ids) as owner_id order by owner_id
    ) as leased;
  end if;

  if v_hosts is not null then
    perform silkline.unblock_next_jobs(v_hosts, v_owner_ids);
  end if;

  return v_answers;
exception
  when others then
    if not p_is_announced then
      raise;
    end if;

    raise warning 'live messages were not sent: %', sqlerrm;
    return silkline.complete_at_once(p_lease_tokens, p_results, p_running_seconds, false);
end
$$;

comment on function silkline.complete_at_once(uuid[], jsonb[], real[], boolean) is
  'End the running jobs whose frontiers have drained, in one statement.';

revoke execute on function silkline.complete_at_once(uuid[], jsonb[], real[], boolean)
  from public, anon, authenticated;

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
  v_count constant integer := coalesce(cardinality(p_lease_tokens), 0);
  v_results jsonb[];
  v_answers public.crawl_command[];
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

  v_answers := silkline.complete_at_once(p_lease_tokens, v_results, v_seconds);

  -- The others are not running, not drained, or not leased any more.
  if coalesce(cardinality(v_answers), 0) < v_count then
    for v_nth in 1..v_count loop
      if p_lease_tokens[v_nth] <> all (
        array(select answer.lease_token from unnest(v_answers) as answer)
      ) then
        v_answers := v_answers || silkline.complete_job(
          p_lease_tokens[v_nth], v_results[v_nth], v_seconds[v_nth]
        );
      end if;
    end loop;
  end if;

  return query select answer.* from unnest(v_answers) as answer;
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

-- End the lease of a job whose crawl broke, or whose worker is gone: it is retried while retries
-- are left. A crash that exposed a poison URL costs the job no retry, because its cause is gone.
create function silkline.break_lease(
  p_job silkline.jobs,
  p_reason text,
  p_poison integer,
  p_waits_until timestamptz,
  p_is_retryable boolean,
  p_error_code text,
  p_error_message text,
  p_running_seconds real,
  p_leaves_receipt boolean
)
  returns public.crawl_command
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return silkline.end_lease(
    p_job,
    case
      when p_is_retryable and (p_job.retry_count < p_job.max_retries or p_poison > 0)
        then 'pending'
      else 'failed'
    end::public.crawl_job_status,
    p_reason,
    p_waits_until => p_waits_until,
    p_is_retry => p_poison = 0,
    p_error_code => p_error_code,
    p_error_message => p_error_message,
    p_running_seconds => p_running_seconds,
    p_leaves_receipt => p_leaves_receipt
  );
end
$$;

comment on function silkline.break_lease(
  silkline.jobs, text, integer, timestamptz, boolean, text, text, real, boolean
) is
  'End a lease that broke: the job is retried while retries are left, then it has failed.';

revoke execute on function silkline.break_lease(
  silkline.jobs, text, integer, timestamptz, boolean, text, text, real, boolean
) from public, anon, authenticated;

-- End the lease of a lost worker: the reaper found it silent, or its successor on the same machine
-- reports that it was killed.
create function silkline.lose_lease(
  p_job silkline.jobs,
  p_message text,
  p_leaves_receipt boolean
)
  returns public.crawl_command
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return silkline.break_lease(
    p_job,
    'worker_lost',
    silkline.free_tasks(p_job.id, 'worker_lost'),
    null,
    true,
    case p_job.status when 'processing' then 'worker_lost' end,
    p_message,
    0,
    p_leaves_receipt
  );
end
$$;

comment on function silkline.lose_lease(silkline.jobs, text, boolean) is
  'End the lease of a lost worker.';

revoke execute on function silkline.lose_lease(silkline.jobs, text, boolean)
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

  v_job := silkline.lock_lease(p_lease_token);

  if v_job.id is null then
    return next silkline.answer_ended_lease(p_lease_token);
    return;
  end if;

  v_poison := silkline.free_tasks(v_job.id, 'crash', p_suspects);

  return next silkline.break_lease(
    v_job,
    'fail',
    v_poison,
    now() + coalesce(
      make_interval(secs => p_retry_after_seconds),
      case when v_poison > 0 then interval '0' end,
      silkline.backoff(v_job.retry_count)
    ),
    coalesce(p_is_retryable, true),
    p_error_code,
    left(p_error_message, 10000),
    p_running_seconds,
    true
  );
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

  v_job := silkline.lock_lease(p_lease_token);

  if v_job.id is null then
    return next silkline.answer_ended_lease(p_lease_token);
    return;
  end if;

  if v_is_lost then
    return next silkline.lose_lease(v_job, format('worker %s was killed', v_job.worker_id), true);
    return;
  end if;

  perform silkline.free_tasks(v_job.id, 'release');

  return next silkline.end_lease(
    v_job,
    'pending',
    case when v_is_later then 'later' else 'release' end,
    p_waits_until => case when v_is_later then now() + make_interval(secs => p_after_seconds) end,
    p_running_seconds => p_running_seconds
  );
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

    return next silkline.lose_lease(
      v_job,
      format('no heartbeat from worker %s since %s', v_job.worker_id, v_job.last_heartbeat),
      false
    );
  end loop;
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

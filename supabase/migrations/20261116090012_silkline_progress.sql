-- The progress of one job. crawl_progress runs with the caller's rights, so that row level
-- security decides who sees it: the owner and the service.

-- Counters for a screen, in a snapshot and in the live messages of the worker. URLs beyond the
-- budget take no time, because they end as skipped. The time left is unknown while a job waits
-- (`current_wait`); a delay between requests is a lower bound for it.
create function silkline.page_counts(
  p_state silkline.states,
  p_job silkline.jobs,
  p_wait jsonb
)
  returns jsonb
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
declare
  v_left constant bigint := p_state.total_in_progress + least(
    p_state.total_pending,
    silkline.page_budget(p_job.payload) - p_state.pages_spent
  );
begin
  return jsonb_build_object(
    'seq', p_state.seq,
    'pages_done', p_state.total_done,
    'pages_failed', p_state.total_error,
    'pages_skipped', p_state.total_skipped,
    'pages_pending', p_state.total_pending,
    'pages_in_progress', p_state.total_in_progress,
    'pages_new', p_state.pages_new,
    'pages_changed', p_state.pages_changed,
    'pages_unchanged', p_state.pages_unchanged,
    'bytes', p_state.total_bytes,
    'pages_per_second', round(p_state.pages_per_second::numeric, 2),
    'eta_seconds', case
      when p_job.status = 'processing'
        and p_state.pages_per_second > 0.01
        and coalesce(p_wait ->> 'reason', 'delay') = 'delay'
        then ceil(
          greatest(
            v_left / p_state.pages_per_second,
            v_left * (p_wait ->> 'seconds')::real
          )
        )
    end,
    'wait', p_wait,
    'current_url', case when p_job.status = 'processing' then p_state.current_url end
  );
end
$$;

comment on function silkline.page_counts(silkline.states, silkline.jobs, jsonb) is
  'The counters of a crawl, its speed, what it waits for, and the time left.';

revoke execute on function silkline.page_counts(silkline.states, silkline.jobs, jsonb)
  from public, anon, authenticated;
grant execute on function silkline.page_counts(silkline.states, silkline.jobs, jsonb)
  to authenticated, service_role;

-- What a job waits for, so that it does not look stuck: its start time, the backoff of its host,
-- the next retry of a URL, or the delay between two requests. Null if it does not wait, or too
-- briefly to be noticed.
create function silkline.current_wait(p_job silkline.jobs, p_state silkline.states)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  c_noticed_seconds constant real := 2;
  -- Workers cap the Crawl-delay of robots.txt at this.
  c_longest_delay_seconds constant real := 300;
  v_backoff_until timestamptz;
  v_delay_seconds real;
begin
  if p_job.status = 'pending' and p_job.run_after > now() then
    return jsonb_build_object('reason', 'time', 'until', p_job.run_after);
  end if;

  if p_job.status <> 'processing' then
    return null;
  end if;

  select
    host.backoff_until,
    -- Not least(), which would ignore a null delay.
    case
      when host.crawl_delay_seconds > c_longest_delay_seconds then c_longest_delay_seconds
      else host.crawl_delay_seconds
    end
  into v_backoff_until, v_delay_seconds
  from public.crawl_hosts as host
  where host.host = p_job.host;

  if v_backoff_until > now() then
    return jsonb_build_object('reason', 'host', 'until', v_backoff_until);
  end if;

  if p_state.total_pending > 0
    and p_state.total_in_progress = 0
    and silkline.next_task_in_seconds(p_job.id, true) > 0
  then
    return (
      select jsonb_build_object(
        'reason', 'retry', 'until', task.next_run_at, 'url', task.url, 'error', task.last_error
      )
      from silkline.tasks as task
      where task.job_id = p_job.id
        and task.status = 'pending'
        and task.crashes = 0
        and task.attempts > 0
      order by task.next_run_at
      limit 1
    );
  end if;

  v_delay_seconds := greatest(
    -- In the payload of a plugin it may be anything.
    case
      when jsonb_typeof(p_job.payload -> 'delay_seconds') = 'number'
        then (p_job.payload ->> 'delay_seconds')::real
    end,
    case when p_job.payload @> '{"obey_robots": true}' then v_delay_seconds end
  );

  return case
    when v_delay_seconds >= c_noticed_seconds
      then jsonb_build_object('reason', 'delay', 'seconds', v_delay_seconds)
  end;
end
$$;

comment on function silkline.current_wait(silkline.jobs, silkline.states) is
  'What a job waits for, and until when; or null.';

revoke execute on function silkline.current_wait(silkline.jobs, silkline.states)
  from public, anon, authenticated;

-- definer because users may not read crawl_hosts
create function silkline.own_job_wait(p_job_id uuid)
  returns jsonb
  language plpgsql
  stable
  security definer
  set search_path = ''
as $$
declare
  v_job constant silkline.jobs := silkline.own_job(p_job_id);
begin
  return (
    select silkline.current_wait(v_job, state)
    from silkline.states as state
    where state.job_id = v_job.id
  );
end
$$;

comment on function silkline.own_job_wait(uuid) is
  'What a job of the caller waits for, and until when; or null.';

revoke execute on function silkline.own_job_wait(uuid) from public, anon, authenticated;
grant execute on function silkline.own_job_wait(uuid) to authenticated, service_role;

-- One job, for a screen. seq and event_seq order it relative to live messages.
create function public.crawl_progress(p_job_id uuid)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_progress jsonb;
begin
  select
    jsonb_build_object(
      'job_id', job.id,
      'kind', job.kind,
      'status', job.status,
      'is_saving', job.lease_check_at is not null and job.status <> 'processing',
      'host', job.host,
      'url', coalesce(job.payload ->> 'url', job.payload #>> '{urls,0}'),
      'source_id', job.source_id,
      'priority', job.priority,
      'progress_percentage', job.progress_percentage,
      'attempt', job.attempt,
      'retry_count', job.retry_count,
      'max_retries', job.max_retries,
      'running_seconds', round(job.running_seconds::numeric, 1),
      'run_after', job.run_after,
      'error_code', job.error_code,
      'error_message', job.error_message,
      'result', job.result,
      'created_at', job.created_at,
      'started_at', job.started_at,
      'completed_at', job.completed_at,
      'last_heartbeat', job.last_heartbeat,
      'checkpoint_at', state.checkpoint_at,
      'event_seq', job.event_seq,
      'now', now()
    ) || silkline.page_counts(state, job, silkline.own_job_wait(job.id))
  into v_progress
  from silkline.jobs as job
  join silkline.states as state
    on state.job_id = job.id
  where job.id = p_job_id;

  if v_progress is null then
    raise sqlstate 'PT404' using
      message = format('there is no job %s', coalesce(p_job_id::text, 'null')),
      hint = 'It may have been deleted, or it may belong to another user.';
  end if;

  return v_progress;
end
$$;

comment on function public.crawl_progress(uuid) is
  'A snapshot of one job, for a screen.';

revoke execute on function public.crawl_progress(uuid) from public, anon, authenticated;
grant execute on function public.crawl_progress(uuid) to authenticated, service_role;

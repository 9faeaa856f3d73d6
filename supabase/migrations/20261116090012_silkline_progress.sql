-- The progress of one job, for a screen: in a snapshot (crawl_progress), in the answer of each
-- checkpoint, and in live messages.

-- How many pages a job may fetch. The payload of a plugin need not say.
create function silkline.page_budget(p_payload jsonb)
  returns integer
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return case
    when (p_payload -> 'max_pages') between '1' and '2147483647'
      then floor((p_payload -> 'max_pages')::numeric)
    when (p_payload -> 'max_pages') < '1' and jsonb_typeof(p_payload -> 'max_pages') = 'number'
      then 1
    else 2147483647
  end;
end
$$;

comment on function silkline.page_budget(jsonb) is
  'The page budget of a payload.';

revoke execute on function silkline.page_budget(jsonb) from public, anon, authenticated;

-- How much of a running job is done. Only a completed job is at 100.
create function silkline.percent_done(p_state silkline.states, p_max_pages integer)
  returns smallint
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
declare
  v_ended constant bigint := p_state.total_done::bigint + p_state.total_error;
  v_known constant bigint := v_ended + p_state.total_pending + p_state.total_in_progress;
begin
  return least(99, 100 * v_ended / greatest(least(v_known, p_max_pages), 1));
end
$$;

comment on function silkline.percent_done(silkline.states, integer) is
  'How much of a running job is done, in percent.';

revoke execute on function silkline.percent_done(silkline.states, integer)
  from public, anon, authenticated;

-- How long until the next pending URL of a job is due; 0 if one is due already. Null if all of
-- them are new and none may begin, because the budget is spent but may still get refunds.
create function silkline.next_task_in_seconds(p_job_id uuid, p_may_begin boolean)
  returns double precision
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_next_at constant timestamptz := least(
    (
      select min(next.next_run_at)
      from silkline.tasks as next
      where p_may_begin
        and next.job_id = p_job_id
        and next.status = 'pending'
        and next.crashes = 0
        and next.attempts = 0
    ),
    (
      select min(again.next_run_at)
      from silkline.tasks as again
      where again.job_id = p_job_id
        and again.status = 'pending'
        and again.crashes = 0
        and again.attempts > 0
    ),
    (
      select min(suspect.next_run_at)
      from silkline.tasks as suspect
      where suspect.job_id = p_job_id
        and suspect.status = 'pending'
        and suspect.crashes > 0
    )
  );
begin
  return case
    when v_next_at is not null then greatest(0, extract(epoch from v_next_at - now()))
  end;
end
$$;

comment on function silkline.next_task_in_seconds(uuid, boolean) is
  'Seconds until the next pending URL of a job is due.';

revoke execute on function silkline.next_task_in_seconds(uuid, boolean)
  from public, anon, authenticated;

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
      when (p_job.payload -> 'delay_seconds') between '0' and '86400'
        then (p_job.payload -> 'delay_seconds')::real
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

create function silkline.own_job_wait(p_job_id uuid)
  returns jsonb
  language plpgsql
  stable
  security invoker
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

-- Counters for a screen. URLs beyond the budget take no time, because they end as skipped. The
-- time left is unknown while a job waits; a delay between requests is a lower bound for it.
create function silkline.page_counts(p_job silkline.jobs, p_state silkline.states)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_wait constant jsonb := silkline.current_wait(p_job, p_state);
  v_left constant bigint := p_state.total_in_progress::bigint + least(
    p_state.total_pending,
    silkline.page_budget(p_job.payload)::bigint - p_state.pages_spent
  );
begin
  return jsonb_build_object(
    'seq', p_state.seq,
    'progress_percentage', p_job.progress_percentage,
    'pages_done', p_state.total_done,
    'pages_failed', p_state.total_error,
    'pages_skipped', p_state.total_skipped,
    'pages_pending', p_state.total_pending,
    'pages_in_progress', p_state.total_in_progress,
    'pages_new', p_state.pages_new,
    'pages_changed', p_state.pages_changed,
    'pages_unchanged', p_state.pages_unchanged,
    'links_refused', p_state.links_refused,
    'pages_with_warnings', p_state.pages_with_warnings,
    'page_warnings', p_state.page_warnings,
    'bytes', p_state.total_bytes,
    'pages_per_second', round(p_state.pages_per_second::numeric, 2),
    'eta_seconds', case
      when p_job.status = 'processing'
        and p_state.pages_per_second > 0.01
        and coalesce(v_wait ->> 'reason', 'delay') = 'delay'
        then ceil(
          greatest(
            v_left / p_state.pages_per_second,
            v_left * (v_wait -> 'seconds')::real
          )
        )
    end,
    'wait', v_wait,
    'current_url', case when p_job.status = 'processing' then p_state.current_url end
  );
end
$$;

comment on function silkline.page_counts(silkline.jobs, silkline.states) is
  'The counters of a crawl, its speed, what it waits for, and the time left.';

revoke execute on function silkline.page_counts(silkline.jobs, silkline.states)
  from public, anon, authenticated;

-- One job of the caller, for a screen. seq and event_seq order it relative to live messages.
-- definer because users may not read crawl_hosts, nor every column of jobs and states
create function silkline.job_progress(p_job_id uuid)
  returns jsonb
  language plpgsql
  stable
  security definer
  set search_path = ''
as $$
declare
  v_job constant silkline.jobs := silkline.own_job(p_job_id);
  v_state silkline.states;
begin
  select state.*
  into v_state
  from silkline.states as state
  where state.job_id = v_job.id;

  return jsonb_build_object(
    'job_id', v_job.id,
    'kind', v_job.kind,
    'status', v_job.status,
    'is_saving', v_job.lease_check_at is not null and v_job.status <> 'processing',
    'host', v_job.host,
    'url', coalesce(v_job.payload ->> 'url', v_job.payload #>> '{urls,0}'),
    'source_id', v_job.source_id,
    'priority', v_job.priority,
    'attempt', v_job.attempt,
    'retry_count', v_job.retry_count,
    'max_retries', v_job.max_retries,
    'running_seconds', round(v_job.running_seconds::numeric, 1),
    'run_after', v_job.run_after,
    'error_code', v_job.error_code,
    'error_message', v_job.error_message,
    'result', v_job.result,
    'created_at', v_job.created_at,
    'started_at', v_job.started_at,
    'completed_at', v_job.completed_at,
    'last_heartbeat', v_job.last_heartbeat,
    'checkpoint_at', v_state.checkpoint_at,
    'event_seq', v_job.event_seq,
    'now', now()
  ) || silkline.page_counts(v_job, v_state);
end
$$;

comment on function silkline.job_progress(uuid) is
  'A snapshot of a job of the caller, for a screen.';

revoke execute on function silkline.job_progress(uuid) from public, anon, authenticated;
grant execute on function silkline.job_progress(uuid) to authenticated, service_role;

create function public.crawl_progress(p_job_id uuid)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return silkline.job_progress(p_job_id);
end
$$;

comment on function public.crawl_progress(uuid) is
  'A snapshot of one job, for a screen.';

revoke execute on function public.crawl_progress(uuid) from public, anon, authenticated;
grant execute on function public.crawl_progress(uuid) to authenticated, service_role;

-- The rules for a row of silkline.jobs, and its state machine.

-- What holds for every job at rest, and which changes of status are allowed, for every writer.
--
-- One long expression instead of variables: plpgsql prepares each expression again in each
-- transaction, which costs more than evaluating it.
create function silkline.check_job()
  returns trigger
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_broken constant text := case
    -- A token without a lease is the receipt of a lease that its holder ended itself: it
    -- identifies a repeated call of that holder. A reaped lease leaves no receipt.
    when num_nonnulls(new.worker_id, new.lease_check_at, new.host_slot) not in (0, 3)
      or (
        new.lease_check_at is not null
        and num_nonnulls(new.lease_token, new.last_heartbeat) < 2
      )
      then 'jobs_lease_is_whole'
    -- Paused, stopped and cancelled jobs keep their lease until the worker has released it.
    when case
      when new.status = 'processing' then new.lease_check_at is null
      when new.status in ('pending', 'completed', 'failed') then new.lease_check_at is not null
    end
      then 'jobs_lease_fits_status'
    when new.waits_for is not null and new.status <> 'pending'
      then 'jobs_only_pending_waits'
    when (new.status in ('pending', 'processing', 'paused')) <> (new.completed_at is null)
      then 'jobs_ended_means_completed_at'
    when new.status = 'failed' and new.error_code is null
      then 'jobs_failed_means_error_code'
    when new.retry_count not between 0 and new.max_retries
      then 'jobs_retries_are_in_range'
    when new.progress_percentage not between 0 and 100
      then 'jobs_progress_is_a_percentage'
    when new.running_seconds < 0
      then 'jobs_running_seconds_are_not_negative'
    when case old.status
      when new.status then true
      when 'pending' then new.status in ('processing', 'paused', 'stopped', 'cancelled')
      when 'processing' then true
      -- To processing: resumed while its worker was still saving.
      when 'paused' then new.status in ('pending', 'processing', 'stopped', 'cancelled')
      when 'stopped' then new.status in ('pending', 'processing')
      when 'failed' then new.status = 'pending'
      -- By retry_crawl_job.
      when 'completed' then new.status = 'pending'
      else false
    end
      then null
    else 'transition'
  end;
begin
  if v_broken is null then
    return new;
  end if;

  if v_broken = 'transition' then
    raise sqlstate 'PT409' using
      message = format('job %s is %s and cannot become %s', old.id, old.status, new.status),
      hint = 'See the job states in docs/reference/functions.md.';
  end if;

  raise check_violation using
    message = format('job %s (%s) breaks the rule %s', new.id, new.status, v_broken),
    constraint = v_broken,
    table = 'jobs',
    schema = 'silkline';
end
$$;

comment on function silkline.check_job() is
  'Trigger: enforce the rules for a row of silkline.jobs, and its state machine.';

revoke execute on function silkline.check_job() from public, anon, authenticated;

-- Not on heartbeats: they touch none of these columns.
create trigger tg_jobs_check
  before update of
    status,
    waits_for,
    worker_id,
    lease_token,
    lease_check_at,
    host_slot,
    completed_at,
    error_code,
    retry_count,
    max_retries,
    progress_percentage,
    running_seconds
  on silkline.jobs
  for each row
  execute function silkline.check_job();

-- Which workers a job needs. A crawl that renders every page is not given to a worker that has no
-- browser; a colon is not part of any kind.
create function silkline.lane_of(p_kind text, p_payload jsonb)
  returns text
  language sql
  immutable
  security invoker
  set search_path = ''
as $$
  select case
    when p_kind = 'crawl' and p_payload -> 'fetcher' = '"browser"' then 'crawl:browser'
    else p_kind
  end;
$$;

comment on function silkline.lane_of(text, jsonb) is
  'The lane of a job: its kind, and whether it needs a browser.';

revoke execute on function silkline.lane_of(text, jsonb) from public, anon, authenticated;

-- What holds for every new job.
create function silkline.check_new_job()
  returns trigger
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_broken constant text := case
    when new.status <> 'pending'
      or num_nonnulls(new.lease_token, new.lease_check_at, new.completed_at) > 0
      or new.event_seq <> 1
      then 'jobs_begin_pending'
    -- A regular expression takes half of the time of this trigger.
    when new.kind <> 'crawl' and new.kind !~ '^[a-z][a-z0-9_]{0,39}$' then 'jobs_kind_is_a_name'
    when jsonb_typeof(new.payload) <> 'object' then 'jobs_payload_is_an_object'
    when new.priority not between -100 and 100 then 'jobs_priority_is_in_range'
    when length(new.source_id) not between 1 and 500 then 'jobs_source_is_short'
    when length(new.host) not between 1 and 300 then 'jobs_host_is_short'
    when length(new.idempotency_key) not between 1 and 200
      then 'jobs_idempotency_key_is_short'
    when new.max_retries not between 0 and 100 or new.retry_count <> 0
      then 'jobs_retries_are_in_range'
  end;
begin
  if v_broken is null then
    new.owner_id := coalesce(new.user_id, '00000000-0000-0000-0000-000000000000');
    new.lane := silkline.lane_of(new.kind, new.payload);
    return new;
  end if;

  raise check_violation using
    message = format('new job %s breaks the rule %s', new.id, v_broken),
    constraint = v_broken,
    table = 'jobs',
    schema = 'silkline';
end
$$;

comment on function silkline.check_new_job() is
  'Trigger: enforce the rules for a new row of silkline.jobs, and set its owner_id.';

revoke execute on function silkline.check_new_job() from public, anon, authenticated;

create trigger tg_jobs_check_new
  before insert on silkline.jobs
  for each row
  execute function silkline.check_new_job();

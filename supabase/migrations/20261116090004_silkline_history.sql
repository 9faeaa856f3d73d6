-- History and live messages: what happened to each job, for the record and for browsers.
--
-- Every change of status becomes a row of events, numbered per job, and a private Realtime
-- broadcast with the same number. Broadcasts may be lost: a client takes a snapshot
-- (crawl_progress), applies newer messages, and takes a new snapshot when it sees a gap.
--
--   crawl_job:<id>     owner     status, progress
--   crawl_user:<uid>   owner     status, enqueued   (list views)
--   crawl_workers      workers   wake, command
--
-- The functions that change jobs call record_changes with all changes of a call, because one
-- statement for all of them costs a fraction of a trigger per row. They increment event_seq
-- themselves; a change of status that does not was made by SQL, and a trigger records it.

create table silkline.events (
  job_id uuid not null,
  seq integer not null,
  at timestamptz not null default now(),
  from_status public.crawl_job_status,
  to_status public.crawl_job_status not null,
  actor public.crawl_actor not null,
  actor_id uuid,
  reason text not null,
  attempt integer not null,
  error_code text,
  primary key (job_id, seq)
);
alter table silkline.events enable row level security;

comment on table silkline.events is
  'Append-only history of every job: from, to, who, why.';

create policy "Users read the history of their own jobs"
  on silkline.events
  for select
  to authenticated
  using (
    exists (
      select
      from silkline.jobs as job
      where job.id = job_id
        and job.owner_id = (select silkline.caller_id())
    )
  );

-- Joins jobs: see crawl_states.
create view public.crawl_events
  with (security_invoker = true)
as
select event.*
from silkline.jobs as job
join silkline.events as event
  on event.job_id = job.id;

comment on view public.crawl_events is
  'Append-only history of every job: from, to, who, why.';

revoke all on public.crawl_events from anon, authenticated, service_role;
grant select on public.crawl_events to authenticated, service_role;
revoke all on silkline.events from anon, authenticated, service_role;
grant select on silkline.events to authenticated, service_role;

-- Send private broadcasts. An error here must never fail the write that is being announced.
--
-- The rows are those that realtime.send() would insert (except for an id in the payload), at a
-- fifth of its cost. If Realtime changes its table or grants, this falls back to send().
create function silkline.publish(p_topics text[], p_events text[], p_payloads jsonb[])
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  insert into realtime.messages (topic, extension, event, private, payload)
  select
    message.topic,
    'broadcast',
    message.event,
    true,
    message.payload
  from unnest(p_topics, p_events, p_payloads) as message (topic, event, payload)
  where message.topic is not null;
exception
  when others then
    begin
      perform realtime.send(message.payload, message.event, message.topic, true)
      from unnest(p_topics, p_events, p_payloads) as message (topic, event, payload)
      where message.topic is not null;
    exception
      when others then
        raise warning 'live messages were not sent: %', sqlerrm;
    end;
end
$$;

comment on function silkline.publish(text[], text[], jsonb[]) is
  'Send private Realtime broadcasts; never raises.';

revoke execute on function silkline.publish(text[], text[], jsonb[])
  from public, anon, authenticated;

-- The command for the worker that holds a job of this status.
create function silkline.command_for(p_status public.crawl_job_status)
  returns text
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return case p_status
    when 'paused' then 'pause'
    when 'stopped' then 'stop'
    when 'cancelled' then 'cancel'
    else 'continue'
  end;
end
$$;

comment on function silkline.command_for(public.crawl_job_status) is
  'The command for the worker that holds a job of this status.';

revoke execute on function silkline.command_for(public.crawl_job_status)
  from public, anon, authenticated;

-- A change of the status of a job.
create type silkline.job_change as (
  job_id uuid,
  user_id uuid,
  kind text,
  seq integer,
  from_status public.crawl_job_status,
  to_status public.crawl_job_status,
  reason text,
  worker_id uuid,     -- who holds or held the lease
  has_lease boolean,  -- after the change
  is_in_line boolean,
  attempt integer,
  retry_count integer,
  progress_percentage smallint,
  run_after timestamptz,
  error_code text,
  error_message text
);

-- Write the events and live messages of changes of status: of all jobs that one call has changed.
create function silkline.record_changes(p_changes silkline.job_change[])
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_caller_id constant uuid := auth.uid();
  v_topics text[];
  v_events text[];
  v_payloads jsonb[];
begin
  if p_changes is null then
    return;
  end if;

  with change as materialized (
    select listed.*
    from unnest(p_changes) as listed
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
      attempt,
      error_code
    )
    select
      change.job_id,
      change.seq,
      change.from_status,
      change.to_status,
      case
        when change.reason in ('claim', 'complete', 'fail', 'release', 'later') then 'worker'
        when change.reason = 'worker_lost' then 'system'
        when v_caller_id is not null then 'user'
        else 'operator'
      end::public.crawl_actor,
      case
        when change.reason in ('claim', 'complete', 'fail', 'release', 'later')
          then change.worker_id
        when change.reason <> 'worker_lost' then v_caller_id
      end,
      change.reason,
      change.attempt,
      change.error_code
    from change
  ),
  message as (
    select
      topic.name as topic,
      'status' as event,
      jsonb_strip_nulls(
        jsonb_build_object(
          'job_id', change.job_id,
          'seq', change.seq,
          'from', change.from_status,
          'to', change.to_status,
          'reason', change.reason,
          'at', now(),
          'attempt', change.attempt,
          'retry_count', nullif(change.retry_count, 0),
          'progress_percentage', change.progress_percentage,
          'run_after', case change.to_status when 'pending' then change.run_after end,
          'error_code', change.error_code,
          'error_message', left(change.error_message, 1000)
        )
      ) as payload
    from change
    cross join lateral unnest(
      array['crawl_job:' || change.job_id, 'crawl_user:' || change.user_id]
    ) as topic (name)
    union all
    select
      'crawl_workers',
      'command',
      jsonb_build_object(
        'worker_id', change.worker_id,
        'job_id', change.job_id,
        'command', silkline.command_for(change.to_status)
      )
    from change
    where change.has_lease
      and change.to_status in ('paused', 'stopped', 'cancelled')
    union all
    select
      'crawl_workers',
      'wake',
      jsonb_build_object('kinds', array_agg(distinct change.kind))
    from change
    where change.is_in_line
    having count(*) > 0
  )
  select
    array_agg(message.topic),
    array_agg(message.event),
    array_agg(message.payload)
  into v_topics, v_events, v_payloads
  from message;

  perform silkline.publish(v_topics, v_events, v_payloads);
end
$$;

comment on function silkline.record_changes(silkline.job_change[]) is
  'Write the events and live messages of changes of status.';

revoke execute on function silkline.record_changes(silkline.job_change[])
  from public, anon, authenticated;

-- For new jobs: their states and first events, one message per owner, one wake-up.
-- definer because no caller may write history and live messages
create function silkline.record_new_jobs()
  returns trigger
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_caller_id constant uuid := auth.uid();
  v_topics text[];
  v_events text[];
  v_payloads jsonb[];
begin
  insert into silkline.states (job_id)
  select job.id
  from new_jobs as job;

  insert into silkline.events (job_id, seq, to_status, actor, actor_id, reason, attempt)
  select
    job.id,
    job.event_seq,
    job.status,
    case when v_caller_id is null then 'operator' else 'user' end::public.crawl_actor,
    v_caller_id,
    'enqueue',
    0
  from new_jobs as job;

  select
    array_agg(message.topic),
    array_agg(message.event),
    array_agg(message.payload)
  into v_topics, v_events, v_payloads
  from (
    select
      'crawl_user:' || job.user_id as topic,
      'enqueued' as event,
      jsonb_build_object('count', count(*), 'job_ids', (array_agg(job.id))[:100]) as payload
    from new_jobs as job
    where job.user_id is not null
    group by job.user_id
    union all
    select
      'crawl_workers',
      'wake',
      jsonb_build_object('kinds', array_agg(distinct job.kind))
    from new_jobs as job
    where job.waits_for is null
    having count(*) > 0
  ) as message;

  perform silkline.publish(v_topics, v_events, v_payloads);

  return null;
end
$$;

comment on function silkline.record_new_jobs() is
  'Trigger: write the states, first events and live messages of new jobs.';

revoke execute on function silkline.record_new_jobs() from public, anon, authenticated;

create trigger tg_jobs_record_new
  after insert on silkline.jobs
  referencing new table as new_jobs
  for each statement
  execute function silkline.record_new_jobs();

-- Number and record a change of status that was made by SQL.
-- definer because no caller may write history and live messages
create function silkline.record_change_by_sql()
  returns trigger
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
begin
  update silkline.jobs as job
  set event_seq = job.event_seq + 1
  where job.id = new.id;

  perform silkline.record_changes(
    array[
      row (
        new.id,
        new.user_id,
        new.kind,
        new.event_seq + 1,
        old.status,
        new.status,
        'sql',
        new.worker_id,
        new.lease_check_at is not null,
        new.status = 'pending' and new.waits_for is null,
        new.attempt,
        new.retry_count,
        new.progress_percentage,
        new.run_after,
        new.error_code,
        new.error_message
      )::silkline.job_change
    ]
  );

  return null;
end
$$;

comment on function silkline.record_change_by_sql() is
  'Trigger: record a change of status that no function has recorded.';

revoke execute on function silkline.record_change_by_sql() from public, anon, authenticated;

create trigger tg_jobs_record_change_by_sql
  after update of status on silkline.jobs
  for each row
  when (old.status is distinct from new.status and old.event_seq = new.event_seq)
  execute function silkline.record_change_by_sql();

-- Remember deleted jobs, and the tokens of their leases.
-- definer because Auth and operators delete with roles of their own
create function silkline.remember_deleted_jobs()
  returns trigger
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
begin
  insert into silkline.deleted_jobs (job_id)
  select job.id
  from old_jobs as job
  on conflict do nothing;

  insert into silkline.spent_tokens (lease_token)
  select job.lease_token
  from old_jobs as job
  where job.lease_check_at is not null
  on conflict do nothing;

  return null;
end
$$;

comment on function silkline.remember_deleted_jobs() is
  'Trigger: have the rows of deleted jobs swept.';

revoke execute on function silkline.remember_deleted_jobs() from public, anon, authenticated;

create trigger tg_jobs_remember_deleted
  after delete on silkline.jobs
  referencing old table as old_jobs
  for each statement
  execute function silkline.remember_deleted_jobs();

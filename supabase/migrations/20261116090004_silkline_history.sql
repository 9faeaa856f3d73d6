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
-- The functions that change jobs record the changes themselves, and increment event_seq. A change
-- of status that does not increment it was made by SQL, and a trigger records it.

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

-- Not exists: see states.
create policy "Users read the history of their own jobs"
  on silkline.events
  for select
  to authenticated
  using (
    (
      select job.owner_id = (select silkline.caller_id())
      from silkline.jobs as job
      where job.id = job_id
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

-- The live message about a change of status.
create function silkline.status_message(
  p_job silkline.jobs,
  p_from public.crawl_job_status,
  p_reason text
)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return jsonb_strip_nulls(
    jsonb_build_object(
      'job_id', p_job.id,
      'seq', p_job.event_seq,
      'from', p_from,
      'to', p_job.status,
      'reason', p_reason,
      'at', now(),
      'attempt', p_job.attempt,
      'retry_count', nullif(p_job.retry_count, 0),
      'progress_percentage', p_job.progress_percentage,
      'run_after', case p_job.status when 'pending' then p_job.run_after end,
      'error_code', p_job.error_code,
      'error_message', left(p_job.error_message, 1000)
    )
  );
end
$$;

comment on function silkline.status_message(
  silkline.jobs, public.crawl_job_status, text
) is
  'The live message about a change of status.';

revoke execute on function silkline.status_message(
  silkline.jobs, public.crawl_job_status, text
) from public, anon, authenticated;

-- Write the event and the live messages of one change of status.
create function silkline.record_change(
  p_job silkline.jobs,
  p_from public.crawl_job_status,
  p_reason text,
  p_actor public.crawl_actor,
  p_actor_id uuid
)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_message jsonb;
begin
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
  values (
    p_job.id,
    p_job.event_seq,
    p_from,
    p_job.status,
    p_actor,
    p_actor_id,
    p_reason,
    p_job.attempt,
    p_job.error_code
  );

  v_message := silkline.status_message(p_job, p_from, p_reason);

  begin
    if p_job.user_id is null then
      insert into realtime.messages (id, topic, extension, event, private, payload)
      values (
        md5('job' || p_job.id || p_job.event_seq)::uuid,
        'crawl_job:' || p_job.id,
        'broadcast',
        'status',
        true,
        v_message
      );
    else
      insert into realtime.messages (id, topic, extension, event, private, payload)
      values
        (
          -- Its default, gen_random_uuid, takes 8 microseconds where it reads /dev/urandom.
          md5('job' || p_job.id || p_job.event_seq)::uuid,
          'crawl_job:' || p_job.id,
          'broadcast',
          'status',
          true,
          v_message
        ),
        (
          md5('user' || p_job.id || p_job.event_seq)::uuid,
          'crawl_user:' || p_job.user_id,
          'broadcast',
          'status',
          true,
          v_message
        );
    end if;
  exception
    when others then
      perform silkline.publish(
        array['crawl_job:' || p_job.id, 'crawl_user:' || p_job.user_id],
        '{status,status}',
        array[v_message, v_message]
      );
  end;
end
$$;

comment on function silkline.record_change(
  silkline.jobs, public.crawl_job_status, text, public.crawl_actor, uuid
) is
  'Write the event and the live messages of one change of status.';

revoke execute on function silkline.record_change(
  silkline.jobs, public.crawl_job_status, text, public.crawl_actor, uuid
) from public, anon, authenticated;

-- Tell the workers that jobs of these kinds are in line.
create function silkline.wake_workers(p_kinds text[])
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  perform silkline.publish(
    '{crawl_workers}',
    '{wake}',
    array[
      jsonb_build_object('kinds', array(select distinct kind from unnest(p_kinds) as kind))
    ]
  );
end
$$;

comment on function silkline.wake_workers(text[]) is
  'Tell the workers that jobs of these kinds are in line.';

revoke execute on function silkline.wake_workers(text[]) from public, anon, authenticated;

-- A change of status by a user or an operator.
create type silkline.job_change as (
  job_id uuid,
  from_status public.crawl_job_status,
  reason text
);

-- Write the events and live messages of changes by users and operators. The claim and the end of a
-- lease, which every job goes through, do this in the statement that makes the change.
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
  v_kinds text[];
begin
  with change as materialized (
    select
      (job.whole).*,
      listed.from_status,
      listed.reason,
      silkline.status_message(job.whole, listed.from_status, listed.reason) as message
    from unnest(p_changes) as listed
    cross join lateral (
      select changed as whole
      from silkline.jobs as changed
      where changed.id = listed.job_id
      limit 1
    ) as job
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
      change.id,
      change.event_seq,
      change.from_status,
      change.status,
      case when v_caller_id is null then 'operator' else 'user' end::public.crawl_actor,
      v_caller_id,
      change.reason,
      change.attempt,
      change.error_code
    from change
  )
  select
    array_agg(live.topic),
    array_agg(live.event),
    array_agg(live.payload),
    (
      select array_agg(change.kind)
      from change
      where change.status = 'pending'
        and change.waits_for is null
    )
  into v_topics, v_events, v_payloads, v_kinds
  from (
    select 'crawl_job:' || change.id as topic, 'status' as event, change.message as payload
    from change
    union all
    select 'crawl_user:' || change.user_id, 'status', change.message
    from change
    where change.user_id is not null
    union all
    select
      'crawl_workers',
      'command',
      jsonb_build_object(
        'worker_id', change.worker_id,
        'job_id', change.id,
        'command', silkline.command_for(change.status)
      )
    from change
    where change.lease_check_at is not null
  ) as live;

  perform silkline.publish(v_topics, v_events, v_payloads);

  if v_kinds is not null then
    perform silkline.wake_workers(v_kinds);
  end if;
end
$$;

comment on function silkline.record_changes(silkline.job_change[]) is
  'Write the events and live messages of changes by users and operators.';

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
    array[row (new.id, old.status, 'sql')::silkline.job_change]
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

  -- Not for a job that ended long ago: nobody repeats the claim of its lease.
  insert into silkline.spent_tokens (lease_token)
  select job.lease_token
  from old_jobs as job
  where job.lease_token is not null
    and coalesce(job.completed_at, now()) > now() - interval '1 day'
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

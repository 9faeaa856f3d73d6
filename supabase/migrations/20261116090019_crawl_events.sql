-- History and live messages: what happened to each job, for the record and for browsers. Also
-- deletes the rows of deleted jobs.
--
-- Every change of status becomes a row of crawl_events, numbered per job, and a private
-- Realtime broadcast with the same number. Broadcasts may be lost: a client takes a snapshot
-- (crawl_progress), applies newer messages, and takes a new snapshot when it sees a gap.
--
--   crawl_job:<id>     owner     status
--   crawl_user:<uid>   owner     status, enqueued   (list views)
--   crawl_workers      workers   wake, command
--
-- The worker itself sends `progress` to crawl_job:<id>.

-- Send one private broadcast to each topic that is not null. An error here must never fail the
-- write that is being announced.
create function silkline.publish(p_topics text[], p_event text, p_payload jsonb)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  perform realtime.send(p_payload, p_event, topic, true)
  from unnest(p_topics) as topic
  where topic is not null;
exception
  when others then
    raise warning 'live message to % was not sent: %', p_topics, sqlerrm;
end
$$;

comment on function silkline.publish(text[], text, jsonb) is
  'Send a private Realtime broadcast to topics; never raises.';

revoke execute on function silkline.publish(text[], text, jsonb) from public, anon, authenticated;

-- For new jobs: their states and first events, one message per owner, one wake-up.
-- definer because no caller may write history and live messages
create function silkline.record_new_jobs()
  returns trigger
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
begin
  insert into public.crawl_states (job_id)
  select job.id
  from new_jobs as job;

  insert into public.crawl_events (job_id, seq, to_status, actor, actor_id, reason, attempt)
  select
    job.id,
    job.event_seq,
    job.status,
    case when auth.uid() is null then 'operator' else 'user' end::public.crawl_actor,
    auth.uid(),
    'enqueue',
    0
  from new_jobs as job;

  perform silkline.publish(
    array['crawl_user:' || owned.user_id],
    'enqueued',
    jsonb_build_object('count', owned.count, 'job_ids', owned.job_ids[:100])
  )
  from (
    select
      job.user_id,
      count(*) as count,
      array_agg(job.id) as job_ids
    from new_jobs as job
    where job.user_id is not null
    group by job.user_id
  ) as owned;

  perform silkline.publish(
    '{crawl_workers}',
    'wake',
    jsonb_build_object('kinds', array_agg(distinct job.kind))
  )
  from new_jobs as job
  where job.waits_for is null
  having count(*) > 0;

  return null;
end
$$;

comment on function silkline.record_new_jobs() is
  'Trigger: write the states, first events and live messages of new jobs.';

revoke execute on function silkline.record_new_jobs() from public, anon, authenticated;

create trigger tg_crawl_jobs_record_new
  after insert on public.crawl_jobs
  referencing new table as new_jobs
  for each statement
  execute function silkline.record_new_jobs();

-- For a change of status: one event, and the same as a message.
-- definer because no caller may write history and live messages
create function silkline.record_status_change()
  returns trigger
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  -- The two changes that every job goes through are recognised here; for the others, the function
  -- that makes them sets the reason.
  v_reason constant text := case
    when new.status = 'completed' then 'complete'
    when old.status = 'pending' and new.status = 'processing' then 'claim'
    else coalesce(nullif(current_setting('silkline.reason', true), ''), 'sql')
  end;
  v_actor constant public.crawl_actor := case
    when v_reason in ('claim', 'complete', 'fail', 'release', 'later') then 'worker'
    when v_reason = 'worker_lost' then 'system'
    when auth.uid() is not null then 'user'
    else 'operator'
  end::public.crawl_actor;
  v_message jsonb;
begin
  insert into public.crawl_events (
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
    new.id,
    new.event_seq,
    old.status,
    new.status,
    v_actor,
    case v_actor
      when 'worker' then coalesce(new.worker_id, old.worker_id)
      when 'user' then auth.uid()
    end,
    v_reason,
    new.attempt,
    new.error_code
  );

  v_message := jsonb_strip_nulls(
    jsonb_build_object(
      'job_id', new.id,
      'seq', new.event_seq,
      'from', old.status,
      'to', new.status,
      'reason', v_reason,
      'at', now(),
      'attempt', new.attempt,
      'retry_count', nullif(new.retry_count, 0),
      'progress_percentage', new.progress_percentage,
      'run_after', case new.status when 'pending' then new.run_after end,
      'error_code', new.error_code,
      'error_message', left(new.error_message, 1000)
    )
  );

  -- The rows that realtime.send() would insert (except for an id in the payload), at less cost:
  -- it took 4 x 46 of the 900 microseconds of a claim and a completion, with two subtransactions
  -- each. If Realtime changes its table or grants, this falls back to send().
  begin
    insert into realtime.messages (topic, extension, event, private, payload)
    select
      topic,
      'broadcast',
      'status',
      true,
      v_message
    from unnest(array['crawl_job:' || new.id, 'crawl_user:' || new.user_id]) as topic
    where topic is not null;
  exception
    when others then
      perform silkline.publish(
        array['crawl_job:' || new.id, 'crawl_user:' || new.user_id],
        'status',
        v_message
      );
  end;

  if new.status = 'pending' and new.waits_for is null then
    perform silkline.publish(
      '{crawl_workers}',
      'wake',
      jsonb_build_object('kinds', array[new.kind])
    );
  elsif new.status in ('paused', 'stopped', 'cancelled') and new.lease_check_at is not null then
    perform silkline.publish(
      '{crawl_workers}',
      'command',
      jsonb_build_object(
        'worker_id', new.worker_id,
        'job_id', new.id,
        'command', silkline.command_for(new.status)
      )
    );
  end if;

  return null;
end
$$;

comment on function silkline.record_status_change() is
  'Trigger: write the event and live messages of a change of status.';

revoke execute on function silkline.record_status_change() from public, anon, authenticated;

create trigger tg_crawl_jobs_record_change
  after update of status on public.crawl_jobs
  for each row
  when (old.status is distinct from new.status)
  execute function silkline.record_status_change();

-- Delete the states, tasks and events of deleted jobs. (They have no foreign keys: see
-- crawl_states and crawl_tasks.)
-- definer because Auth deletes users, and so their jobs, with its own role
create function silkline.delete_job_rows()
  returns trigger
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
begin
  delete from public.crawl_states as state
  using old_jobs as job
  where state.job_id = job.id;

  delete from public.crawl_tasks as task
  using old_jobs as job
  where task.job_id = job.id;

  delete from public.crawl_events as event
  using old_jobs as job
  where event.job_id = job.id;

  return null;
end
$$;

comment on function silkline.delete_job_rows() is
  'Trigger: delete the states, tasks and events of deleted jobs.';

revoke execute on function silkline.delete_job_rows() from public, anon, authenticated;

create trigger tg_crawl_jobs_delete_rows
  after delete on public.crawl_jobs
  referencing old table as old_jobs
  for each statement
  execute function silkline.delete_job_rows();

-- The job of the Realtime topic that a policy is checking, or null.
create function silkline.topic_job_id()
  returns uuid
  language sql
  stable
  security invoker
  set search_path = ''
as $$
  select substring(
    realtime.topic()
    from '^crawl_job:([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$'
  )::uuid;
$$;

comment on function silkline.topic_job_id() is
  'The job id in the Realtime topic that a policy is checking.';

revoke execute on function silkline.topic_job_id() from public, anon, authenticated;
grant execute on function silkline.topic_job_id() to authenticated;

create policy "Users receive messages about their own jobs"
  on realtime.messages
  for select
  to authenticated
  using (
    extension = 'broadcast'
    and (
      (select realtime.topic()) = 'crawl_user:' || (select auth.uid())
      or exists (
        select
        from public.crawl_jobs as job
        where job.id = (select silkline.topic_job_id())
          and job.user_id = (select auth.uid())
      )
    )
  );

create policy "Workers receive wake-ups and commands"
  on realtime.messages
  for select
  to crawl_worker
  using (
    extension = 'broadcast'
    and (select realtime.topic()) = 'crawl_workers'
  );

create policy "Workers publish progress"
  on realtime.messages
  for insert
  to crawl_worker
  with check (
    extension = 'broadcast'
    and (select realtime.topic()) ~ '^crawl_job:'
  );

-- If the owner of realtime.messages allows it. Otherwise a worker with the limited key polls, and
-- progress is visible at checkpoints only.
do $$
begin
  grant usage on schema realtime to crawl_worker;
  grant select, insert on realtime.messages to crawl_worker;
  grant execute on function realtime.topic() to crawl_worker;
exception
  when insufficient_privilege then
    null;
end
$$;

-- Without the grant option, GRANT only warns, so check its effect.
do $$
begin
  if not has_schema_privilege('crawl_worker', 'realtime', 'usage')
    or not has_table_privilege('crawl_worker', 'realtime.messages', 'insert')
  then
    raise notice 'crawl_worker may not use Realtime here; a worker with the secret key may';
  end if;
end
$$;

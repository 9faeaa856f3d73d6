-- Who may receive live messages. Only the database sends them (see history), so there is no policy
-- for sending: no one can forge the status of a job, or a command to a worker.
--
-- Not every project lets a migration create policies on realtime.messages (supabase/cli#6116), or
-- grant rights on it. Then no one may listen: browsers and workers poll, and crawl_doctor says so.

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

do $$
begin
  create policy "Users receive messages about their own jobs"
    on realtime.messages
    for select
    to authenticated
    using (
      extension = 'broadcast'
      and (
        (select realtime.topic()) = 'crawl_user:' || (select silkline.caller_id())
        or exists (
          select
          from silkline.jobs as job
          where job.id = (select silkline.topic_job_id())
            and job.owner_id = (select silkline.caller_id())
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
exception
  when insufficient_privilege then
    raise notice
      'could not create policies on realtime.messages (%): browsers and workers poll instead',
      sqlerrm;
end
$$;

do $$
begin
  grant usage on schema realtime to crawl_worker;
  grant select on realtime.messages to crawl_worker;
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
    or not has_table_privilege('crawl_worker', 'realtime.messages', 'select')
  then
    raise notice 'crawl_worker may not use Realtime here; a worker with the secret key may';
  end if;
end
$$;

-- Where Realtime connects with this role, it has to switch to the role of a client.
do $$
begin
  if exists (
    select from pg_catalog.pg_roles as role where role.rolname = 'supabase_realtime_admin'
  ) then
    grant crawl_worker to supabase_realtime_admin;
  end if;
exception
  when insufficient_privilege then
    raise notice 'could not let Realtime use the role crawl_worker (%)', sqlerrm;
end
$$;

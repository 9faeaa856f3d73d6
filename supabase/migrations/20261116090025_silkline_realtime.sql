-- Who may receive live messages.

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
        from silkline.jobs as job
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

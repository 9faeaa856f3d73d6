-- History and live messages: what is written and sent when a job changes, and who may listen,
-- checked the way Realtime checks it.

begin;
select plan(66);

select tests.make_users('ann', 'bob');

create function pg_temp.history(p_name text)
  returns table (seq integer, change text, actor text, actor_id uuid, reason text, attempt integer, error_code text)
  language sql
as $$
  select
    event.seq,
    coalesce(event.from_status::text, '-') || ' > ' || event.to_status,
    event.actor::text,
    event.actor_id,
    event.reason,
    event.attempt,
    event.error_code
  from silkline.events as event
  where event.job_id = tests.job(p_name)
  order by event.seq;
$$;

-- Messages on a topic, in the order of seq.
create function pg_temp.sent(p_topic text)
  returns table (event text, payload jsonb)
  language sql
as $$
  select message.event, message.payload - 'id'
  from realtime.messages as message
  where message.topic = p_topic
    and message.extension = 'broadcast'
    and message.private
  order by (message.payload ->> 'seq')::integer nulls first, message.event;
$$;

-- History

select tests.enqueue('job', 'ann');
select tests.claim('job');
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''job''))');
select public.release_crawl_job(tests.token('job'));
select tests.as_user('ann', 'select id from public.resume_crawl_job(tests.job(''job''))');
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('job-2')]);
select public.fail_crawl_job(tests.token('job-2'), 'oom', 'out of memory');
select tests.age('job', '1 hour');
select public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('job-3')]);
select tests.age('job', '3 minutes');
select public.reap_crawl_jobs();
select public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('job-4')]);
select public.release_crawl_job(tests.token('job-4'));
select public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('job-5')]);
select public.complete_crawl_job(tests.token('job-5'));
select tests.as_service('select id from public.retry_crawl_job(tests.job(''job''), ''all'')');
select tests.as_service('select id from public.cancel_crawl_job(tests.job(''job''))');

select results_eq(
  $$ select * from pg_temp.history('job') $$,
  $$
    values
      (1, '- > pending', 'user', tests.user_id('ann'), 'enqueue', 0, null::text),
      (2, 'pending > processing', 'worker', tests.worker_id(), 'claim', 1, null),
      (3, 'processing > paused', 'user', tests.user_id('ann'), 'pause', 1, null),
      (4, 'paused > pending', 'user', tests.user_id('ann'), 'resume', 1, null),
      (5, 'pending > processing', 'worker', tests.worker_id(), 'claim', 2, null),
      (6, 'processing > pending', 'worker', tests.worker_id(), 'fail', 2, 'oom'),
      (7, 'pending > processing', 'worker', tests.worker_id('other'), 'claim', 3, null),
      (8, 'processing > pending', 'system', null, 'worker_lost', 3, 'worker_lost'),
      (9, 'pending > processing', 'worker', tests.worker_id('other'), 'claim', 4, null),
      (10, 'processing > pending', 'worker', tests.worker_id('other'), 'release', 4, null),
      (11, 'pending > processing', 'worker', tests.worker_id('other'), 'claim', 5, null),
      (12, 'processing > completed', 'worker', tests.worker_id('other'), 'complete', 5, null),
      (13, 'completed > pending', 'operator', null, 'retry', 5, null),
      (14, 'pending > cancelled', 'operator', null, 'cancel', 5, null)
  $$,
  'history has every change, numbered without gaps: from, to, who, why'
);
select is(
  (select event_seq from silkline.jobs where id = tests.job('job')),
  14,
  'the job has the number of its last event'
);
select throws_ok(
  $$ update silkline.events set actor = 'nobody' where job_id = tests.job('job') $$,
  '22P02',
  'invalid input value for enum crawl_actor: "nobody"',
  'an actor is a user, a worker, the system or an operator'
);

-- Messages to the owner

select is(
  (select count(*) from pg_temp.sent('crawl_job:' || tests.job('job'))),
  13::bigint,
  'each change is sent to the topic of the job'
);
select bag_eq(
  $$ select (payload ->> 'seq')::integer as seq, payload ->> 'from' as old, payload ->> 'to' as new, payload ->> 'reason' as why from pg_temp.sent('crawl_job:' || tests.job('job')) $$,
  $$ select seq, from_status::text, to_status::text, reason from silkline.events where job_id = tests.job('job') and seq > 1 $$,
  'messages have the numbers of the events, so that a client notices a gap'
);
select is(
  (select payload from pg_temp.sent('crawl_job:' || tests.job('job')) where payload ->> 'seq' = '6') - '{at,run_after}'::text[],
  jsonb_build_object(
    'job_id', tests.job('job'),
    'seq', 6,
    'from', 'processing',
    'to', 'pending',
    'reason', 'fail',
    'attempt', 2,
    'retry_count', 1,
    'progress_percentage', 0,
    'error_code', 'oom',
    'error_message', 'out of memory'
  ),
  'a message contains everything that a screen shows'
);
select is(
  (select count(*) from pg_temp.sent('crawl_user:' || tests.user_id('ann')) where event = 'status'),
  13::bigint,
  'each change is sent to the owner''s list, too'
);
select results_eq(
  $$ select payload from pg_temp.sent('crawl_user:' || tests.user_id('ann')) where event = 'enqueued' $$,
  $$ select jsonb_build_object('count', 1, 'job_ids', jsonb_build_array(tests.job('job'))) $$,
  'the owner gets a message about a new job'
);
select is_empty(
  $$ select topic from realtime.messages where not private and topic like 'crawl%' $$,
  'no message is public'
);
select tests.as_user('bob', $$select public.enqueue_crawl_jobs((select jsonb_agg(jsonb_build_object('payload', jsonb_build_object('url', 'https://b' || nth || '.example/'))) from generate_series(1, 150) as nth))$$);
select results_eq(
  $$ select (payload ->> 'count')::integer, jsonb_array_length(payload -> 'job_ids') from pg_temp.sent('crawl_user:' || tests.user_id('bob')) $$,
  $$ values (150, 100) $$,
  'many jobs in one call make one message, which stays small'
);
select tests.enqueue('nobodys');
select tests.as_service('select id from public.pause_crawl_job(tests.job(''nobodys''))');
select is(
  (select count(*) from pg_temp.sent('crawl_job:' || tests.job('nobodys'))),
  1::bigint,
  'a change of a job of the service is sent, to the topic of the job only'
);
select is_empty(
  $$ select topic from realtime.messages where topic like 'crawl\_user:%' and topic not in ('crawl_user:' || tests.user_id('ann'), 'crawl_user:' || tests.user_id('bob')) $$,
  'jobs without an owner send no message to a user'
);

-- Messages to the workers

delete from silkline.jobs where true;
create temporary table before on commit drop as select id from realtime.messages;
create function pg_temp.told_workers()
  returns table (event text, payload jsonb)
  language sql
as $$
  select message.event, message.payload - 'id'
  from realtime.messages as message
  where message.topic = 'crawl_workers'
    and not exists (select from before where before.id = message.id);
$$;
create function pg_temp.turn_page()
  returns void
  language sql
as $$
  insert into before
  select message.id
  from realtime.messages as message
  where not exists (select from before where before.id = message.id);
$$;

select tests.enqueue('work', 'ann');
select results_eq($$ select * from pg_temp.told_workers() $$, $$ values ('wake', '{"kinds": ["crawl"]}'::jsonb) $$, 'a new job wakes the workers of its kind');
select pg_temp.turn_page();
select tests.enqueue('later', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select is_empty($$ select * from pg_temp.told_workers() $$, 'a scheduled job wakes no worker');
select tests.claim('work');
select is_empty($$ select * from pg_temp.told_workers() $$, 'a claim sends no message to workers');
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''work''))');
select results_eq(
  $$ select * from pg_temp.told_workers() $$,
  $$ select 'command', jsonb_build_object('worker_id', tests.worker_id(), 'job_id', tests.job('work'), 'command', 'pause') $$,
  'the worker of a running job gets its pause'
);
select pg_temp.turn_page();
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''work''))');
select results_eq(
  $$ select event, payload ->> 'command' from pg_temp.told_workers() $$,
  $$ values ('command', 'cancel') $$,
  'the worker of a running job gets its cancel'
);
select pg_temp.turn_page();
select public.release_crawl_job(tests.token('work'));
select is_empty($$ select * from pg_temp.told_workers() $$, 'the end of a lease alone sends no message to workers');
select tests.claimed_job('again', 'ann');
select pg_temp.turn_page();
select public.release_crawl_job(tests.token('again'));
select results_eq($$ select event from pg_temp.told_workers() $$, $$ values ('wake') $$, 'a released job wakes the workers');
select pg_temp.turn_page();
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''again''))');
select is_empty($$ select * from pg_temp.told_workers() $$, 'pausing a job that is not running sends no message to workers');

-- A message that cannot be sent fails no write

do $$
begin
  alter table realtime.messages add constraint nothing_goes check (false) not valid;
exception
  when insufficient_privilege then
    raise notice 'cannot break Realtime here: not its owner';
end
$$;
select lives_ok(
  $$ select tests.as_user('ann', 'select id from public.resume_crawl_job(tests.job(''again''))') $$,
  'with Realtime broken, a job can still be changed'
);
select is(tests.status('again'), 'pending', 'the change is stored');
select lives_ok($$ select tests.enqueue('unheard', 'ann') $$, 'with Realtime broken, a job can still be enqueued');
select is(
  (select count(*) from silkline.events where job_id = tests.job('unheard')),
  1::bigint,
  'history is still written'
);
do $$
begin
  alter table realtime.messages drop constraint if exists nothing_goes;
exception
  when insufficient_privilege then
    null;
end
$$;

-- Who may listen. As Realtime does it: the owner stores a probe, which is then read with the
-- role, the claims and the topic of the client that joins the channel.

select tests.make_users('leaver');
select tests.enqueue('anns', 'ann');
select tests.enqueue('bobs', 'bob');
select tests.enqueue('leavers', 'leaver');
delete from auth.users where id = tests.user_id('leaver');

create function pg_temp.may_hear(p_role text, p_user_id uuid, p_topic text, p_extension text default 'broadcast')
  returns boolean
  language plpgsql
as $$
declare
  v_probe constant uuid := gen_random_uuid();
  v_answer jsonb;
begin
  insert into realtime.messages (id, topic, extension, event, private)
  values (v_probe, p_topic, p_extension, 'probe', true);
  perform set_config('realtime.topic', p_topic, true);
  select tests.run_as(p_role, p_user_id, format('select count(*) from realtime.messages where id = %L', v_probe))
  into v_answer;
  perform set_config('realtime.topic', '', true);
  return v_answer = '1'::jsonb;
exception
  when insufficient_privilege then
    perform set_config('realtime.topic', '', true);
    return false;
end
$$;

create function pg_temp.may_speak(p_role text, p_user_id uuid, p_topic text, p_extension text default 'broadcast')
  returns boolean
  language plpgsql
as $$
begin
  perform set_config('realtime.topic', p_topic, true);
  perform tests.write_as(
    p_role,
    p_user_id,
    format('insert into realtime.messages (topic, extension, event, private) values (%L, %L, %L, true)', p_topic, p_extension, 'probe')
  );
  perform set_config('realtime.topic', '', true);
  return true;
exception
  when insufficient_privilege then
    perform set_config('realtime.topic', '', true);
    return false;
end
$$;

select is(
  pg_temp.may_hear(listener.role, listener.user_id, listener.topic, listener.extension),
  listener.may,
  listener.claim
)
from (
  values
    ('authenticated', tests.user_id('ann'), 'crawl_job:' || tests.job('anns'), 'broadcast', true, 'a user receives messages about her own job'),
    ('authenticated', tests.user_id('ann'), 'crawl_job:' || tests.job('bobs'), 'broadcast', false, 'a user does not receive messages about another user''s job'),
    ('authenticated', tests.user_id('ann'), 'crawl_user:' || tests.user_id('ann'), 'broadcast', true, 'a user receives messages of her own list'),
    ('authenticated', tests.user_id('ann'), 'crawl_user:' || tests.user_id('bob'), 'broadcast', false, 'a user does not receive messages of another user''s list'),
    ('authenticated', tests.user_id('ann'), 'crawl_workers', 'broadcast', false, 'a user does not receive messages to workers'),
    ('authenticated', tests.user_id('ann'), 'crawl_job:' || tests.token('nowhere'), 'broadcast', false, 'a user does not receive messages about a job that does not exist'),
    ('authenticated', tests.user_id('ann'), 'crawl_job:nonsense', 'broadcast', false, 'a topic without a job id is refused without an error'),
    ('authenticated', tests.user_id('ann'), 'crawl_job:' || upper(tests.job('anns')::text), 'broadcast', false, 'a topic in another spelling is refused'),
    ('authenticated', tests.user_id('ann'), 'crawl_job:' || tests.job('anns') || ':x', 'broadcast', false, 'a topic that only begins with an own topic is refused'),
    ('authenticated', tests.user_id('ann'), 'crawl_user:', 'broadcast', false, 'a list topic without a user is refused'),
    ('authenticated', tests.user_id('ann'), 'elsewhere', 'broadcast', false, 'other topics are not opened by these policies'),
    ('authenticated', tests.user_id('ann'), 'crawl_job:' || tests.job('anns'), 'presence', false, 'presence is not opened by these policies'),
    ('authenticated', tests.user_id('leaver'), 'crawl_job:' || tests.job('leavers'), 'broadcast', false, 'a deleted account receives no messages about its jobs'),
    ('authenticated', tests.user_id('leaver'), 'crawl_user:' || tests.user_id('leaver'), 'broadcast', false, 'a deleted account receives no messages of its list'),
    ('authenticated', null::uuid, 'crawl_user:', 'broadcast', false, 'a token without a user receives no list'),
    ('authenticated', null, 'crawl_job:' || tests.job('anns'), 'broadcast', false, 'a token without a user receives no job'),
    ('anon', null, 'crawl_job:' || tests.job('anns'), 'broadcast', false, 'an anonymous caller receives no job'),
    ('anon', tests.user_id('ann'), 'crawl_user:' || tests.user_id('ann'), 'broadcast', false, 'an anonymous caller receives no list'),
    ('anon', null, 'crawl_workers', 'broadcast', false, 'an anonymous caller receives no messages to workers'),
    ('service_role', null, 'crawl_workers', 'broadcast', true, 'the service receives everything')
) as listener (role, user_id, topic, extension, may, claim);

select is(
  pg_temp.may_speak(speaker.role, speaker.user_id, speaker.topic, speaker.extension),
  speaker.may,
  speaker.claim
)
from (
  values
    ('authenticated', tests.user_id('ann'), 'crawl_job:' || tests.job('anns'), 'broadcast', false, 'a user cannot forge progress, not even of her own job'),
    ('authenticated', tests.user_id('ann'), 'crawl_user:' || tests.user_id('bob'), 'broadcast', false, 'a user cannot write to the list of another'),
    ('authenticated', tests.user_id('ann'), 'crawl_workers', 'broadcast', false, 'a user cannot send commands to workers'),
    ('anon', null::uuid, 'crawl_job:' || tests.job('anns'), 'broadcast', false, 'an anonymous caller cannot forge progress'),
    ('anon', null, 'crawl_workers', 'broadcast', false, 'an anonymous caller cannot send commands to workers'),
    ('service_role', null, 'crawl_job:' || tests.job('anns'), 'broadcast', true, 'the service publishes progress')
) as speaker (role, user_id, topic, extension, may, claim);

-- Workers with the limited key. Their role may read Realtime only if its owner lets the migration
-- grant it, so the policies are checked through a role that has all rights, and to which no other
-- policy applies.

grant crawl_worker to anon;

select is(pg_temp.may_hear('anon', null, listener.topic), listener.may, listener.claim)
from (
  values
    ('crawl_workers', true, 'a worker with the limited key receives wake-ups and commands'),
    ('crawl_job:' || tests.job('anns'), false, 'a worker with the limited key receives no messages about jobs'),
    ('crawl_user:' || tests.user_id('ann'), false, 'a worker with the limited key receives no messages of users')
) as listener (topic, may, claim);
select is(pg_temp.may_speak('anon', null, speaker.topic), false, speaker.claim)
from (
  values
    ('crawl_job:' || tests.job('anns'), 'a worker with the limited key cannot forge the status of a job'),
    ('crawl_user:' || tests.user_id('ann'), 'a worker with the limited key cannot write to the list of a user'),
    ('crawl_workers', 'a worker with the limited key cannot send commands to workers'),
    ('elsewhere', 'a worker with the limited key cannot send to other topics')
) as speaker (topic, claim);

revoke crawl_worker from anon;

select is(
  array(
    select privilege
    from unnest(array['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) as privilege
    where has_table_privilege('crawl_worker', 'realtime.messages', privilege)
  ),
  '{}'::text[],
  'a worker with the limited key has no right to write messages'
);
select throws_ok(
  $$ select tests.write_as('crawl_worker', null, 'insert into realtime.messages (topic, extension) values (''crawl_workers'', ''broadcast'')') $$,
  '42501',
  'permission denied for table messages',
  'a worker with the limited key that tries to write a message is refused'
);

select set_eq(
  $$
    select policyname::text, cmd, roles::text
    from pg_catalog.pg_policies
    where schemaname = 'realtime'
      and tablename = 'messages'
      and concat(qual, with_check) like '%crawl%'
  $$,
  $$
    values
      ('Users receive messages about their own jobs', 'SELECT', '{authenticated}'),
      ('Workers receive wake-ups and commands', 'SELECT', '{crawl_worker}')
  $$,
  'these are all policies of the queue on Realtime'
);

-- Who may not write history or send messages by hand

select throws_ok(
  $$ select tests.as_user('ann', 'select silkline.publish(null, null, null)') $$,
  '42501',
  'permission denied for function publish',
  'a user who tries to publish is refused'
);
select throws_ok(
  $$ select tests.as_worker('select silkline.publish(null, null, null)') $$,
  '42501',
  'permission denied for schema silkline',
  'a worker with the limited key that tries to publish by function is refused'
);
select throws_ok(
  format('select tests.write_as(%L, tests.user_id(%L), %L)', writer.role, 'ann', 'insert into silkline.events (job_id, seq, to_status, actor, reason, attempt) select tests.job(''anns''), 99, ''completed'', ''user'', ''forged'', 1'),
  '42501',
  'permission denied for ' || writer.refused,
  format('%s does not write history', writer.role)
)
from (
  values
    ('anon', 'schema silkline'),
    ('authenticated', 'table events'),
    ('crawl_worker', 'schema silkline'),
    ('service_role', 'table events')
) as writer (role, refused);

select * from finish();
rollback;

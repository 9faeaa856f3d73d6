-- complete_crawl_jobs: drained jobs end, many in one call, each as complete_crawl_job would end it.

begin;
select plan(43);

select tests.make_users('ann', 'bob');

create function pg_temp.complete(p_names text[], p_results jsonb default null, p_seconds real[] default null)
  returns table (job_id uuid, command text, status text)
  language sql
as $$
  select answer.job_id, answer.command, answer.status::text
  from public.complete_crawl_jobs(
    array(select tests.token(name) from unnest(p_names) with ordinality as listed (name, nth) order by nth),
    p_results,
    p_seconds
  ) as answer;
$$;

-- The usual end

select is_empty($$ select * from pg_temp.complete('{}') $$, 'no tokens get no rows');
select tests.claimed_job(name, 'ann') from unnest(array['one', 'two']) as name;
select tests.claimed_job('three');
select tests.checkpoint('two', jsonb_build_object('seq', 1, 'discovered', tests.links('https://t.example/')), 1);
select tests.checkpoint('two', jsonb_build_object('seq', 2, 'finished', jsonb_build_array(tests.fetched('https://t.example/'))));
select tests.age(name, '1 minute') from unnest(array['one', 'two', 'three']) as name;
select set_eq(
  $$
    select tests.as_worker($sql$
      select lease_token, job_id, command, status
      from public.complete_crawl_jobs(
        array[tests.token('one'), tests.token('two'), tests.token('three')],
        '[{"pages": 1}, {"pages": 2}, {}]',
        array[1.5, 2.5, 0]::real[]
      )
    $sql$)
  $$,
  $$
    select jsonb_build_object('lease_token', tests.token(name), 'job_id', tests.job(name), 'command', 'continue', 'status', 'completed')
    from unnest(array['one', 'two', 'three']) as name
  $$,
  'a worker with the limited key completes several drained jobs'
);
select results_eq(
  $$ select idempotency_key, status::text, completed_at, progress_percentage::integer, result, running_seconds from silkline.jobs order by 1 $$,
  $$
    values
      ('one', 'completed', now(), 100, '{"done": 0, "error": 0, "skipped": 0, "pages": 1}'::jsonb, 1.5::real),
      ('three', 'completed', now(), 100, '{"done": 0, "error": 0, "skipped": 0}', 0),
      ('two', 'completed', now(), 100, '{"done": 1, "error": 0, "skipped": 0, "pages": 2}', 2.5)
  $$,
  'each job has its own result, running time and end time'
);
select is_empty(
  $$ select idempotency_key from silkline.jobs where num_nonnulls(worker_id, lease_check_at, host_slot) > 0 $$,
  'none of them has a lease any more'
);
select results_eq(
  $$ select from_status::text, to_status::text, actor::text, actor_id, reason, attempt from silkline.events where to_status = 'completed' $$,
  $$ select 'processing', 'completed', 'worker', tests.worker_id(), 'complete', 1 from generate_series(1, 3) $$,
  'history says which worker completed each job'
);
select tests.remember();
select set_eq(
  $$ select * from pg_temp.complete('{three,two,one}', '[{"pages": 9}, {"pages": 9}, {"pages": 9}]', '{9,9,9}') $$,
  $$
    values
      (tests.job('one'), 'continue', 'completed'),
      (tests.job('two'), 'continue', 'completed'),
      (tests.job('three'), 'continue', 'completed')
  $$,
  'a repeated call gets the same answer'
);
select is(tests.fingerprint(), tests.remembered(), 'a repeated call changes nothing');
delete from silkline.jobs where true;

-- The same as one by one

select tests.claimed_job('single', 'ann');
select tests.claimed_job('plural', 'ann');
select public.complete_crawl_job(tests.token('single'), '{"pages": 1}', null, 2);
select public.complete_crawl_jobs(array[tests.token('plural')], '[{"pages": 1}]', '{2}');
select results_eq(
  $$
    select to_jsonb(job) - '{id,payload,source_id,host,idempotency_key,idempotency_request,lease_token,place}'::text[]
    from silkline.jobs as job
    where job.id = tests.job('plural')
  $$,
  $$
    select to_jsonb(job) - '{id,payload,source_id,host,idempotency_key,idempotency_request,lease_token,place}'::text[]
    from silkline.jobs as job
    where job.id = tests.job('single')
  $$,
  'a job that was completed with others is as one that was completed alone'
);
select results_eq(
  $$ select to_jsonb(event) - 'job_id' from silkline.events as event where event.job_id = tests.job('plural') order by event.seq $$,
  $$ select to_jsonb(event) - 'job_id' from silkline.events as event where event.job_id = tests.job('single') order by event.seq $$,
  'so is its history'
);
select results_eq(
  $$
    select event, private, payload - 'job_id', case when topic like 'crawl_job:%' then 'job' else topic end
    from realtime.messages
    where payload ->> 'job_id' = tests.job('plural')::text
    order by payload ->> 'seq', topic
  $$,
  $$
    select event, private, payload - 'job_id', case when topic like 'crawl_job:%' then 'job' else topic end
    from realtime.messages
    where payload ->> 'job_id' = tests.job('single')::text
    order by payload ->> 'seq', topic
  $$,
  'and so are its live messages'
);
delete from silkline.jobs where true;

-- Jobs that are not to be completed, among others that are

select tests.claimed_job(name, 'ann')
from unnest(array['drained', 'open', 'paused', 'stopped', 'cancelled', 'lost', 'ended']) as name;
select tests.checkpoint(name, jsonb_build_object('seq', 1, 'discovered', tests.links('https://o.example/1', 'https://o.example/2')), 1)
from unnest(array['open', 'paused', 'stopped', 'cancelled']) as name;
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''paused''))');
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''stopped''))');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''cancelled''))');
select public.complete_crawl_job(tests.token('ended'));
select tests.age('lost', '3 minutes');
select public.reap_crawl_jobs();
select results_eq(
  $$
    select coalesce(job.idempotency_key, 'no job'), answer.command, answer.status
    from pg_temp.complete(
      '{open,cancelled,drained,lost,ended,paused,never-claimed,stopped}',
      (select jsonb_agg('{"pages": 1}'::jsonb) from generate_series(1, 8)),
      '{1,1,1,1,1,1,1,1}'
    ) as answer
    left join silkline.jobs as job
      on job.id = answer.job_id
    order by 1
  $$,
  $$
    values
      ('cancelled', 'cancel', 'cancelled'),
      ('drained', 'continue', 'completed'),
      ('ended', 'continue', 'completed'),
      ('no job', 'lost', null),
      ('no job', 'lost', null),
      ('open', 'continue', 'processing'),
      ('paused', 'pause', 'paused'),
      ('stopped', 'stop', 'stopped')
  $$,
  'each token gets its own answer'
);
select results_eq(
  $$ select idempotency_key, result, running_seconds, lease_check_at is not null from silkline.jobs order by 1 $$,
  $$
    values
      ('cancelled', null::jsonb, 1::real, false),
      ('drained', '{"done": 0, "error": 0, "skipped": 0, "pages": 1}', 1, false),
      ('ended', '{"done": 0, "error": 0, "skipped": 0}', 0, false),
      ('lost', null, 0, false),
      ('open', null, 0, true),
      ('paused', '{"done": 0, "error": 0, "skipped": 0, "pages": 1}', 1, false),
      ('stopped', '{"done": 0, "error": 0, "skipped": 0, "pages": 1}', 1, false)
  $$,
  'a job with URLs left keeps its lease and is unchanged; the leases of the others have ended'
);
select is_empty(
  $$ select url from silkline.tasks where status = 'in_progress' and job_id <> tests.job('open') $$,
  'no URL stays in flight without a lease'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after completing');
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('open')]) $$,
  $$ values ('continue') $$,
  'the job with URLs left continues'
);
delete from silkline.jobs where true;

-- The next jobs of hosts and owners

select tests.claimed_job('host-1', 'ann', '{"url": "https://one.example/"}');
select tests.claimed_job('host-2', 'ann', '{"url": "https://two.example/"}');
select tests.enqueue('waits-1', 'bob', '{"url": "https://one.example/"}');
select tests.enqueue('waits-2', 'bob', '{"url": "https://two.example/"}');
select is_empty(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('w-1'), tests.token('w-2')]) $$,
  'two jobs wait for their hosts'
);
select pg_temp.complete('{host-1,host-2}');
select set_eq(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('w-3'), tests.token('w-4')]) $$,
  $$ values (tests.job('waits-1')), (tests.job('waits-2')) $$,
  'the end of the others puts both in line'
);
delete from silkline.jobs where true;

update public.crawl_settings set max_running_jobs_per_user = 2 where id;
select tests.enqueue('owned-' || nth, 'ann') from generate_series(1, 5) as nth;
select is(
  (select count(*) from public.claim_crawl_jobs(tests.worker_id(), array(select tests.token('o-' || nth) from generate_series(1, 5) as nth))),
  2::bigint,
  'an owner runs two jobs'
);
select public.complete_crawl_jobs(array(select lease_token from silkline.jobs where lease_check_at is not null));
select is(
  (select count(*) from public.claim_crawl_jobs(tests.worker_id(), array(select tests.token('p-' || nth) from generate_series(1, 5) as nth))),
  2::bigint,
  'when both end together, the next two run'
);
update public.crawl_settings set max_running_jobs_per_user = null where id;
delete from silkline.jobs where true;

-- A deleted account

select tests.claimed_job('abandoned', 'bob');
delete from auth.users where id = tests.user_id('bob');
select results_eq($$ select command from pg_temp.complete('{abandoned}') $$, $$ values ('lost') $$, 'the lease of a deleted account is lost');

-- Bad input

select tests.claimed_job('kept', 'ann');
select tests.claimed_job('kept-2', 'ann');
select tests.age('kept', '10 seconds');
select tests.remember();
select throws_ok(
  format('select * from public.complete_crawl_jobs(%s)', bad.arguments),
  bad.code,
  bad.message,
  bad.claim
)
from (
  values
    ('null', 'PT400', 'p_lease_tokens must be a list of uuids without nulls', 'null for the tokens is refused'),
    ('array[tests.token(''kept''), null]', 'PT400', 'p_lease_tokens must be a list of uuids without nulls', 'null among the tokens is refused'),
    ('''{null}''', 'PT400', 'p_lease_tokens must be a list of uuids without nulls', 'null as the only token is refused'),
    ('array[tests.token(''kept''), tests.token(''kept'')]', 'PT422', 'p_lease_tokens contains the same token twice', 'the same token twice is refused'),
    ('array[array[tests.token(''kept'')], array[tests.token(''kept-2'')]]', 'PT400', 'p_lease_tokens must be a list of uuids without nulls', 'a list of lists of tokens is refused'),
    ('''{nonsense}''', '22P02', 'invalid input syntax for type uuid: "nonsense"', 'a token that is not a uuid is refused'),
    ('array(select gen_random_uuid() from generate_series(1, 1001))', 'PT422', 'p_lease_tokens has 1001 tokens, more than 1000', 'more than 1000 tokens are refused'),
    ('array[tests.token(''kept'')], ''{}''', 'PT422', 'p_results and p_running_seconds must have one entry per lease token', 'results that are not a list are refused'),
    ('array[tests.token(''kept'')], ''[]''', 'PT422', 'p_results and p_running_seconds must have one entry per lease token', 'too few results are refused'),
    ('array[tests.token(''kept'')], ''[{}, {}]''', 'PT422', 'p_results and p_running_seconds must have one entry per lease token', 'too many results are refused'),
    ('array[tests.token(''kept'')], null, ''{}''', 'PT422', 'p_results and p_running_seconds must have one entry per lease token', 'too few running times are refused'),
    ('array[tests.token(''kept''), tests.token(''kept-2'')], ''[{}, 5]''', 'PT422', 'p_result must be a JSON object of at most 64 KB', 'a result that is not an object is refused'),
    ('array[tests.token(''kept''), tests.token(''kept-2'')], ''[{}, null]''', 'PT422', 'p_result must be a JSON object of at most 64 KB', 'null among the results is refused'),
    ('array[tests.token(''kept''), tests.token(''kept-2'')], null, ''{1,-1}''', 'PT422', 'p_running_seconds must be from 0 to 604800, not -1', 'a negative running time is refused'),
    ('array[tests.token(''kept''), tests.token(''kept-2'')], null, ''{1,null}''', 'PT422', 'p_running_seconds must be from 0 to 604800, not null', 'null among the running times is refused')
) as bad (arguments, code, message, claim);
select throws_ok(
  $$ select * from pg_temp.complete('{kept}', jsonb_build_array(jsonb_build_object('text', repeat('t', 10000000)))) $$,
  'PT422',
  'p_result must be a JSON object of at most 64 KB',
  'a result of ten megabytes is refused'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'complete_crawl_jobs', array['uuid[]', 'jsonb', 'real[]'], 'service_role', array['EXECUTE'], 'the service may complete');
select function_privs_are('public', 'complete_crawl_jobs', array['uuid[]', 'jsonb', 'real[]'], 'crawl_worker', array['EXECUTE'], 'workers may complete');
select function_privs_are('public', 'complete_crawl_jobs', array['uuid[]', 'jsonb', 'real[]'], 'authenticated', '{}'::text[], 'users may not complete');
select function_privs_are('public', 'complete_crawl_jobs', array['uuid[]', 'jsonb', 'real[]'], 'anon', '{}'::text[], 'anonymous callers may not complete');
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.complete_crawl_jobs(array[tests.token(''kept'')])') $$,
  '42501',
  'permission denied for function complete_crawl_jobs',
  'a user who tries to complete her own jobs is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.complete_crawl_jobs(array[tests.token(''kept'')])') $$,
  '42501',
  'permission denied for function complete_crawl_jobs',
  'an anonymous caller who tries to complete is refused'
);

select * from finish();
rollback;

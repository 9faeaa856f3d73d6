-- pause_crawl_job: a job stays paused until a user resumes it.

begin;
select plan(29);

select tests.make_users('ann', 'bob');

-- A job in each state.
select tests.claimed_job(name, 'ann')
from unnest(array['processing', 'completed', 'failed', 'stopped-saving', 'paused-saving', 'cancelled-saving']) as name;
select public.complete_crawl_job(tests.token('completed'));
select public.fail_crawl_job(tests.token('failed'), 'broken', null, false);
select tests.enqueue(name, 'ann') from unnest(array['pending', 'paused', 'stopped', 'cancelled']) as name;
select tests.enqueue('nobodys');
select tests.as_user('ann', format('select id from public.%s_crawl_job(tests.job(%L))', button.verb, button.name))
from (
  values
    ('pause', 'paused'),
    ('pause', 'paused-saving'),
    ('stop', 'stopped'),
    ('stop', 'stopped-saving'),
    ('cancel', 'cancelled'),
    ('cancel', 'cancelled-saving')
) as button (verb, name);
select tests.age(job.idempotency_key, '1 minute') from silkline.jobs as job;

create function pg_temp.pause(p_name text)
  returns table (id uuid, status text)
  language sql
as $$
  select (answer ->> 'id')::uuid, answer ->> 'status'
  from tests.as_user('ann', format('select * from public.pause_crawl_job(tests.job(%L))', p_name)) as answer;
$$;

-- What it does in each state

select results_eq(
  $$ select * from pg_temp.pause('pending') $$,
  $$ values (tests.job('pending'), 'paused') $$,
  'a pending job is paused'
);
select results_eq(
  $$ select * from pg_temp.pause('processing') $$,
  $$ values (tests.job('processing'), 'paused') $$,
  'a running job is paused'
);
select results_eq(
  $$ select worker_id, lease_token, last_heartbeat, host_slot::integer from silkline.jobs where id = tests.job('processing') $$,
  $$ values (tests.worker_id(), tests.token('processing'), now() - interval '1 minute', 1) $$,
  'its lease continues until the worker releases it'
);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('processing')]) $$,
  $$ values ('pause') $$,
  'its worker gets the command with the next heartbeat'
);
select is(
  (select completed_at from silkline.jobs where id = tests.job('processing')),
  null,
  'a paused job has not ended'
);
select tests.remember();
select results_eq(
  $$ select * from pg_temp.pause('paused') $$,
  $$ values (tests.job('paused'), 'paused') $$,
  'pausing twice is fine'
);
select is(tests.fingerprint(), tests.remembered(), 'pausing twice changes nothing');
select throws_ok(
  $$ select pg_temp.pause('completed') $$,
  'PT409',
  format('cannot pause job %s: it is completed', tests.job('completed')),
  'a completed job is not paused'
);
select throws_ok(
  $$ select pg_temp.pause('failed') $$,
  'PT409',
  format('cannot pause job %s: it is failed', tests.job('failed')),
  'a failed job is not paused'
);
select throws_ok(
  $$ select pg_temp.pause('stopped') $$,
  'PT409',
  format('cannot pause job %s: it is stopped', tests.job('stopped')),
  'a stopped job is not paused'
);
select throws_ok(
  $$ select pg_temp.pause('cancelled') $$,
  'PT409',
  format('cannot pause job %s: it is cancelled', tests.job('cancelled')),
  'a cancelled job is not paused'
);

-- It stays paused across restarts

select public.release_crawl_job(tests.token('processing'), 'worker_restarted');
select is(tests.status('processing'), 'paused', 'a restart of the worker leaves a paused job paused');
select is_empty(
  $$
    select lease.id
    from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('a'), tests.token('b'), tests.token('c'), tests.token('d')]) as lease
    where lease.id in (tests.job('pending'), tests.job('paused'), tests.job('processing'))
  $$,
  'a paused job is not claimed'
);
select tests.enqueue('later', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select results_eq(
  $$ select * from pg_temp.pause('later') $$,
  $$ values (tests.job('later'), 'paused') $$,
  'a job that waits for its time is paused'
);
select tests.age('later', '2 hours');
select public.reap_crawl_jobs();
select is(tests.status('later'), 'paused', 'it stays paused when its time comes');
select results_eq(
  $$ select tests.as_service('select status from public.pause_crawl_job(tests.job(''nobodys''))') $$,
  $$ values ('"paused"'::jsonb) $$,
  'the service pauses any job'
);

-- Bad input

select tests.remember();
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.pause_crawl_job(null)') $$,
  'PT400',
  'p_job_id must not be null',
  'null for the job is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.pause_crawl_job(''nonsense'')') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'an id that is not a uuid is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.pause_crawl_job(tests.token(''nowhere''))') $$,
  'PT404',
  format('there is no job %s', tests.token('nowhere')),
  'a job that does not exist is not found'
);
select throws_ok(
  $$ select tests.as_user('bob', 'select * from public.pause_crawl_job(tests.job(''pending''))') $$,
  'PT404',
  format('there is no job %s', tests.job('pending')),
  'another user''s job looks like one that does not exist'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.pause_crawl_job(tests.job(''nobodys''))') $$,
  'PT404',
  format('there is no job %s', tests.job('nobodys')),
  'users may not pause a job of the service'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select * from public.pause_crawl_job(tests.job(''pending''))') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not pause'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'pause_crawl_job', array['uuid'], 'authenticated', array['EXECUTE'], 'users may pause');
select function_privs_are('public', 'pause_crawl_job', array['uuid'], 'service_role', array['EXECUTE'], 'the service may pause');
select function_privs_are('public', 'pause_crawl_job', array['uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not pause');
select function_privs_are('public', 'pause_crawl_job', array['uuid'], 'anon', '{}'::text[], 'anonymous callers may not pause');
select throws_ok(
  $$ select tests.as_worker('select * from public.pause_crawl_job(tests.job(''pending''))') $$,
  '42501',
  'permission denied for function pause_crawl_job',
  'a worker with the limited key that tries to pause is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.pause_crawl_job(tests.job(''pending''))') $$,
  '42501',
  'permission denied for function pause_crawl_job',
  'an anonymous caller who tries to pause is refused'
);

select * from finish();
rollback;

-- cancel_crawl_job: a job ends permanently, and so does its process.

begin;
select plan(32);

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

create function pg_temp.cancel(p_name text)
  returns table (id uuid, status text)
  language sql
as $$
  select (answer ->> 'id')::uuid, answer ->> 'status'
  from tests.as_user('ann', format('select * from public.cancel_crawl_job(tests.job(%L))', p_name)) as answer;
$$;

-- What it does in each state

select results_eq(
  $$ select * from pg_temp.cancel('pending') $$,
  $$ values (tests.job('pending'), 'cancelled') $$,
  'a pending job is cancelled'
);
select results_eq(
  $$ select * from pg_temp.cancel('paused') $$,
  $$ values (tests.job('paused'), 'cancelled') $$,
  'a paused job is cancelled'
);
select results_eq(
  $$ select * from pg_temp.cancel('processing') $$,
  $$ values (tests.job('processing'), 'cancelled') $$,
  'a running job is cancelled'
);
select is_empty(
  $$ select idempotency_key from silkline.jobs where idempotency_key in ('pending', 'paused', 'processing') and completed_at is distinct from now() $$,
  'a cancelled job has ended now'
);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('processing')]) $$,
  $$ values ('cancel') $$,
  'its worker gets the command with the next heartbeat'
);
select is(
  tests.checkpoint('processing', jsonb_build_object('seq', 1, 'discovered', tests.links('https://c.example/')), 1) ->> 'command',
  'cancel',
  'its worker gets the command with the next checkpoint'
);
select is_empty(
  $$ select url from silkline.tasks where job_id = tests.job('processing') $$,
  'nothing more is stored for a cancelled job'
);
select public.complete_crawl_job(tests.token('processing'), '{"pages": 1}');
select results_eq(
  $$ select status::text, result, lease_check_at from silkline.jobs where id = tests.job('processing') $$,
  $$ values ('cancelled', null::jsonb, null::timestamptz) $$,
  'a worker that completes it anyway only ends its lease'
);
select results_eq(
  $$ select * from pg_temp.cancel('paused-saving') $$,
  $$ values (tests.job('paused-saving'), 'cancelled') $$,
  'a paused job whose worker is still saving is cancelled'
);
select tests.remember();
select results_eq(
  $$ select * from pg_temp.cancel('cancelled') $$,
  $$ values (tests.job('cancelled'), 'cancelled') $$,
  'cancelling twice is fine'
);
select is(tests.fingerprint(), tests.remembered(), 'cancelling twice changes nothing');
select throws_ok(
  $$ select pg_temp.cancel('completed') $$,
  'PT409',
  format('cannot cancel job %s: it is completed', tests.job('completed')),
  'a completed job is not cancelled'
);
select throws_ok(
  $$ select pg_temp.cancel('failed') $$,
  'PT409',
  format('cannot cancel job %s: it is failed', tests.job('failed')),
  'a failed job is not cancelled'
);
select throws_ok(
  $$ select pg_temp.cancel('stopped') $$,
  'PT409',
  format('cannot cancel job %s: it is stopped', tests.job('stopped')),
  'a stopped job is not cancelled'
);

-- The next job of the host

select tests.enqueue('first', 'ann', '{"url": "https://one.example/"}');
select tests.enqueue('second', 'ann', '{"url": "https://one.example/"}');
select public.claim_crawl_jobs(tests.worker_id(), array(select gen_random_uuid() from generate_series(1, 5)));
select is(
  (select waits_for::text from silkline.jobs where id = tests.job('second')),
  'host',
  'a job waits for the host of another'
);
select pg_temp.cancel('first');
select is(
  (select waits_for::text from silkline.jobs where id = tests.job('second')),
  'host',
  'the host is not free until the worker of the cancelled job has released it'
);
select public.release_crawl_job((select lease_token from silkline.jobs where id = tests.job('first')));
select is(
  (select waits_for::text from silkline.jobs where id = tests.job('second')),
  null,
  'then the next job of the host is in line'
);
select is_empty(
  $$
    select lease.id
    from public.claim_crawl_jobs(tests.worker_id(), array(select gen_random_uuid() from generate_series(1, 5))) as lease
    where lease.id in (tests.job('pending'), tests.job('paused'), tests.job('cancelled'), tests.job('first'))
  $$,
  'a cancelled job is not claimed'
);
select results_eq(
  $$ select tests.as_service('select status from public.cancel_crawl_job(tests.job(''nobodys''))') $$,
  $$ values ('"cancelled"'::jsonb) $$,
  'the service cancels any job'
);
delete from silkline.jobs where id = tests.job('nobodys');
select tests.enqueue('nobodys');
select tests.enqueue('open', 'ann');

-- Bad input

select tests.remember();
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.cancel_crawl_job(null)') $$,
  'PT400',
  'p_job_id must not be null',
  'null for the job is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.cancel_crawl_job(''nonsense'')') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'an id that is not a uuid is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.cancel_crawl_job(tests.token(''nowhere''))') $$,
  'PT404',
  format('there is no job %s', tests.token('nowhere')),
  'a job that does not exist is not found'
);
select throws_ok(
  $$ select tests.as_user('bob', 'select * from public.cancel_crawl_job(tests.job(''open''))') $$,
  'PT404',
  format('there is no job %s', tests.job('open')),
  'another user''s job looks like one that does not exist'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.cancel_crawl_job(tests.job(''nobodys''))') $$,
  'PT404',
  format('there is no job %s', tests.job('nobodys')),
  'users may not cancel a job of the service'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select * from public.cancel_crawl_job(tests.job(''open''))') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not cancel'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'cancel_crawl_job', array['uuid'], 'authenticated', array['EXECUTE'], 'users may cancel');
select function_privs_are('public', 'cancel_crawl_job', array['uuid'], 'service_role', array['EXECUTE'], 'the service may cancel');
select function_privs_are('public', 'cancel_crawl_job', array['uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not cancel');
select function_privs_are('public', 'cancel_crawl_job', array['uuid'], 'anon', '{}'::text[], 'anonymous callers may not cancel');
select throws_ok(
  $$ select tests.as_worker('select * from public.cancel_crawl_job(tests.job(''pending''))') $$,
  '42501',
  'permission denied for function cancel_crawl_job',
  'a worker with the limited key that tries to cancel is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.cancel_crawl_job(tests.job(''pending''))') $$,
  '42501',
  'permission denied for function cancel_crawl_job',
  'an anonymous caller who tries to cancel is refused'
);

select * from finish();
rollback;

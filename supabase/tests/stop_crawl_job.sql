-- stop_crawl_job: a job ends early, and its results are kept.

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

create function pg_temp.stop(p_name text)
  returns table (id uuid, status text)
  language sql
as $$
  select (answer ->> 'id')::uuid, answer ->> 'status'
  from tests.as_user('ann', format('select * from public.stop_crawl_job(tests.job(%L))', p_name)) as answer;
$$;

-- What it does in each state

select tests.checkpoint('processing', jsonb_build_object('seq', 1, 'discovered', tests.links('https://s.example/')), 1);
select tests.checkpoint('processing', jsonb_build_object('seq', 2, 'finished', jsonb_build_array(tests.fetched('https://s.example/'))));
select results_eq(
  $$ select * from pg_temp.stop('pending') $$,
  $$ values (tests.job('pending'), 'stopped') $$,
  'a pending job is stopped'
);
select results_eq(
  $$ select * from pg_temp.stop('paused') $$,
  $$ values (tests.job('paused'), 'stopped') $$,
  'a paused job is stopped'
);
select results_eq(
  $$ select * from pg_temp.stop('processing') $$,
  $$ values (tests.job('processing'), 'stopped') $$,
  'a running job is stopped'
);
select is_empty(
  $$ select idempotency_key from silkline.jobs where idempotency_key in ('pending', 'paused', 'processing') and completed_at is distinct from now() $$,
  'a stopped job has ended now'
);
select is(
  (select lease_token from silkline.jobs where id = tests.job('processing') and lease_check_at is not null),
  tests.token('processing'),
  'its lease continues until the worker releases it'
);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('processing')]) $$,
  $$ values ('stop') $$,
  'its worker gets the command with the next heartbeat'
);
select public.release_crawl_job(tests.token('processing'));
select is(
  (select count(*) from public.crawl_pages where job_id = tests.job('processing')),
  1::bigint,
  'the results of a stopped job are kept'
);
select is(tests.status('processing'), 'stopped', 'a stopped job that was released is stopped, not completed');
select results_eq(
  $$ select * from pg_temp.stop('paused-saving') $$,
  $$ values (tests.job('paused-saving'), 'stopped') $$,
  'a paused job whose worker is still saving is stopped'
);
select tests.remember();
select results_eq(
  $$ select * from pg_temp.stop('stopped') $$,
  $$ values (tests.job('stopped'), 'stopped') $$,
  'stopping twice is fine'
);
select is(tests.fingerprint(), tests.remembered(), 'stopping twice changes nothing');
select throws_ok(
  $$ select pg_temp.stop('completed') $$,
  'PT409',
  format('cannot stop job %s: it is completed', tests.job('completed')),
  'a completed job is not stopped'
);
select throws_ok(
  $$ select pg_temp.stop('failed') $$,
  'PT409',
  format('cannot stop job %s: it is failed', tests.job('failed')),
  'a failed job is not stopped'
);
select throws_ok(
  $$ select pg_temp.stop('cancelled') $$,
  'PT409',
  format('cannot stop job %s: it is cancelled', tests.job('cancelled')),
  'a cancelled job is not stopped'
);
select is_empty(
  $$
    select lease.id
    from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('a'), tests.token('b'), tests.token('c')]) as lease
    where lease.id <> tests.job('nobodys')
  $$,
  'a stopped job is not claimed'
);
select results_eq(
  $$ select tests.as_service('select status from public.stop_crawl_job(tests.job(''nobodys''))') $$,
  $$ values ('"stopped"'::jsonb) $$,
  'the service stops any job'
);
delete from silkline.jobs where id = tests.job('nobodys');
select tests.enqueue('nobodys');
select tests.enqueue('open', 'ann');

-- Bad input

select tests.remember();
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.stop_crawl_job(null)') $$,
  'PT400',
  'p_job_id must not be null',
  'null for the job is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.stop_crawl_job(''nonsense'')') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'an id that is not a uuid is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.stop_crawl_job(tests.token(''nowhere''))') $$,
  'PT404',
  format('there is no job %s', tests.token('nowhere')),
  'a job that does not exist is not found'
);
select throws_ok(
  $$ select tests.as_user('bob', 'select * from public.stop_crawl_job(tests.job(''open''))') $$,
  'PT404',
  format('there is no job %s', tests.job('open')),
  'another user''s job looks like one that does not exist'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.stop_crawl_job(tests.job(''nobodys''))') $$,
  'PT404',
  format('there is no job %s', tests.job('nobodys')),
  'users may not stop a job of the service'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select * from public.stop_crawl_job(tests.job(''open''))') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not stop'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'stop_crawl_job', array['uuid'], 'authenticated', array['EXECUTE'], 'users may stop');
select function_privs_are('public', 'stop_crawl_job', array['uuid'], 'service_role', array['EXECUTE'], 'the service may stop');
select function_privs_are('public', 'stop_crawl_job', array['uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not stop');
select function_privs_are('public', 'stop_crawl_job', array['uuid'], 'anon', '{}'::text[], 'anonymous callers may not stop');
select throws_ok(
  $$ select tests.as_worker('select * from public.stop_crawl_job(tests.job(''pending''))') $$,
  '42501',
  'permission denied for function stop_crawl_job',
  'a worker with the limited key that tries to stop is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.stop_crawl_job(tests.job(''pending''))') $$,
  '42501',
  'permission denied for function stop_crawl_job',
  'an anonymous caller who tries to stop is refused'
);

select * from finish();
rollback;

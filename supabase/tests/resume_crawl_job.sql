-- resume_crawl_job: a paused or stopped job continues where it was.

begin;
select plan(44);

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

create function pg_temp.resume(p_name text)
  returns table (id uuid, status text)
  language sql
as $$
  select (answer ->> 'id')::uuid, answer ->> 'status'
  from tests.as_user('ann', format('select * from public.resume_crawl_job(tests.job(%L))', p_name)) as answer;
$$;

-- What it does in each state

select results_eq(
  $$ select * from pg_temp.resume('paused') $$,
  $$ values (tests.job('paused'), 'pending') $$,
  'a paused job is pending again'
);
select results_eq(
  $$ select waits_for::text, lease_check_at from silkline.jobs where id = tests.job('paused') $$,
  $$ values (null::text, null::timestamptz) $$,
  'a resumed job is in line'
);
select results_eq(
  $$ select * from pg_temp.resume('paused-saving') $$,
  $$ values (tests.job('paused-saving'), 'processing') $$,
  'a paused job whose worker is still saving stays with that worker'
);
select results_eq(
  $$ select lease_token, attempt from silkline.jobs where id = tests.job('paused-saving') $$,
  $$ values (tests.token('paused-saving'), 1) $$,
  'it continues under the same lease, in the same attempt'
);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('paused-saving')]) $$,
  $$ values ('continue') $$,
  'its worker is told to continue'
);
select results_eq(
  $$ select * from pg_temp.resume('stopped') $$,
  $$ values (tests.job('stopped'), 'pending') $$,
  'a stopped job is pending again'
);
select is(
  (select completed_at from silkline.jobs where id = tests.job('stopped')),
  null,
  'a resumed job has not ended'
);
select results_eq(
  $$ select * from pg_temp.resume('stopped-saving') $$,
  $$ values (tests.job('stopped-saving'), 'processing') $$,
  'a stopped job whose worker is still saving stays with that worker'
);
select results_eq(
  $$ select lease_token, attempt, completed_at from silkline.jobs where id = tests.job('stopped-saving') $$,
  $$ values (tests.token('stopped-saving'), 1, null::timestamptz) $$,
  'it has not ended, and continues under the same lease'
);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('stopped-saving')]) $$,
  $$ values ('continue') $$,
  'the worker of a resumed job is told to continue'
);
select tests.remember();
select results_eq(
  $$ select * from pg_temp.resume('pending') $$,
  $$ values (tests.job('pending'), 'pending') $$,
  'resuming a pending job is fine'
);
select results_eq(
  $$ select * from pg_temp.resume('processing') $$,
  $$ values (tests.job('processing'), 'processing') $$,
  'resuming a running job is fine'
);
select is(tests.fingerprint(), tests.remembered(), 'resuming a pending or running job changes nothing');
select throws_ok(
  $$ select pg_temp.resume('completed') $$,
  'PT409',
  format('cannot resume job %s: it is completed', tests.job('completed')),
  'a completed job is not resumed'
);
select throws_ok(
  $$ select pg_temp.resume('failed') $$,
  'PT409',
  format('cannot resume job %s: it is failed', tests.job('failed')),
  'a failed job is retried, not resumed'
);
select throws_ok(
  $$ select pg_temp.resume('cancelled') $$,
  'PT409',
  format('cannot resume job %s: it is cancelled', tests.job('cancelled')),
  'a cancelled job is not resumed'
);
select throws_ok(
  $$ select pg_temp.resume('cancelled-saving') $$,
  'PT409',
  format('cannot resume job %s: it is cancelled', tests.job('cancelled-saving')),
  'not even while its worker is still saving'
);

-- Where it was

select tests.enqueue('later', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''later''))');
select results_eq(
  $$ select * from pg_temp.resume('later') $$,
  $$ values (tests.job('later'), 'pending') $$,
  'a job that was scheduled is resumed'
);
select results_eq(
  $$ select waits_for::text, run_after from silkline.jobs where id = tests.job('later') $$,
  $$ values ('time', now() + interval '1 hour') $$,
  'a scheduled job that has not started stays scheduled'
);
select public.fail_crawl_job(tests.token('processing'), 'oom');
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''processing''))');
select results_eq(
  $$ select * from pg_temp.resume('processing') $$,
  $$ values (tests.job('processing'), 'pending') $$,
  'a job in backoff that was paused is resumed'
);
select results_eq(
  $$ select waits_for::text, run_after, retry_count from silkline.jobs where id = tests.job('processing') $$,
  $$ values (null::text, now(), 1) $$,
  'it runs now, not after the backoff, and keeps its count of retries'
);
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''pending''))');
select results_eq(
  $$ select tests.as_service('select status from public.resume_crawl_job(tests.job(''pending''))') $$,
  $$ values ('"pending"'::jsonb) $$,
  'the service resumes any job'
);
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''pending''))');
select tests.as_service('select id from public.pause_crawl_job(tests.job(''nobodys''))');

-- One crawl per host

select tests.enqueue('runs', 'bob', '{"url": "https://one.example/"}');
select tests.enqueue('waits', 'bob', '{"url": "https://one.example/"}');
select set_eq(
  $$ select id from public.claim_crawl_jobs(tests.worker_id('bob'), array(select tests.token('bob-' || nth) from generate_series(1, 9) as nth)) where user_id = tests.user_id('bob') $$,
  $$ values (tests.job('runs')) $$,
  'one of two jobs for a host runs'
);
select tests.as_user('bob', 'select id from public.stop_crawl_job(tests.job(''runs''))');
select tests.as_user('bob', 'select id from public.resume_crawl_job(tests.job(''runs''))');
select is_empty(
  $$ select id from public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('o-1'), tests.token('o-2')]) $$,
  'a job that is stopped and resumed while its worker saves does not run twice, and its host has one crawl'
);
select is_empty(
  $$ select host from silkline.jobs where lease_check_at is not null group by host having count(*) > 1 $$,
  'no host has two leases'
);

-- The receipt of an ended lease

select tests.as_user('bob', 'select id from public.stop_crawl_job(tests.job(''runs''))');
select public.release_crawl_job(lease_token) from silkline.jobs where id = tests.job('runs');
select tests.as_user('bob', 'select id from public.resume_crawl_job(tests.job(''runs''))');
select tests.remember();
select results_eq(
  $$
    select answer.command, answer.status::text
    from silkline.jobs as job
    cross join lateral public.release_crawl_job(job.lease_token) as answer
    where job.id = tests.job('runs')
  $$,
  $$ values ('continue', 'pending') $$,
  'the worker that released a job, and repeats that after it was resumed, hears that it is pending'
);
select is(tests.fingerprint(), tests.remembered(), 'the repeated release changes nothing');
select results_eq(
  $$
    select answer.command
    from silkline.jobs as job
    cross join lateral public.heartbeat_crawl_jobs(tests.worker_id('bob'), array[job.lease_token]) as answer
    where job.id = tests.job('runs')
  $$,
  $$ values ('lost') $$,
  'a heartbeat under the ended lease of a resumed job is lost'
);

-- The quota of open jobs

update public.crawl_settings
set max_open_jobs_per_user = (
  select count(*)
  from silkline.jobs
  where user_id = tests.user_id('bob')
    and status in ('pending', 'processing', 'paused')
)
where id;
select tests.as_user('bob', 'select id from public.pause_crawl_job(tests.job(''runs''))');
select results_eq(
  $$ select tests.as_user('bob', 'select status from public.resume_crawl_job(tests.job(''runs''))') $$,
  $$ values ('"pending"'::jsonb) $$,
  'a paused job is open, so resuming it needs no free quota'
);
select tests.as_user('bob', 'select id from public.stop_crawl_job(tests.job(''runs''))');
select tests.enqueue('fills', 'bob');
select throws_ok(
  $$ select tests.as_user('bob', 'select * from public.resume_crawl_job(tests.job(''runs''))') $$,
  'PT429',
  'this would exceed the limit of 2 open jobs per user',
  'a stopped job is not resumed beyond the quota of open jobs'
);
select results_eq(
  $$ select tests.as_service('select status from public.resume_crawl_job(tests.job(''runs''))') $$,
  $$ values ('"pending"'::jsonb) $$,
  'the quota does not bind the service'
);
update public.crawl_settings set max_open_jobs_per_user = 1000 where id;

-- Bad input

select tests.remember();
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.resume_crawl_job(null)') $$,
  'PT400',
  'p_job_id must not be null',
  'null for the job is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.resume_crawl_job(''nonsense'')') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'an id that is not a uuid is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.resume_crawl_job(tests.token(''nowhere''))') $$,
  'PT404',
  format('there is no job %s', tests.token('nowhere')),
  'a job that does not exist is not found'
);
select throws_ok(
  $$ select tests.as_user('bob', 'select * from public.resume_crawl_job(tests.job(''pending''))') $$,
  'PT404',
  format('there is no job %s', tests.job('pending')),
  'another user''s job looks like one that does not exist'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.resume_crawl_job(tests.job(''nobodys''))') $$,
  'PT404',
  format('there is no job %s', tests.job('nobodys')),
  'users may not resume a job of the service'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select * from public.resume_crawl_job(tests.job(''pending''))') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not resume'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'resume_crawl_job', array['uuid'], 'authenticated', array['EXECUTE'], 'users may resume');
select function_privs_are('public', 'resume_crawl_job', array['uuid'], 'service_role', array['EXECUTE'], 'the service may resume');
select function_privs_are('public', 'resume_crawl_job', array['uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not resume');
select function_privs_are('public', 'resume_crawl_job', array['uuid'], 'anon', '{}'::text[], 'anonymous callers may not resume');
select throws_ok(
  $$ select tests.as_worker('select * from public.resume_crawl_job(tests.job(''paused''))') $$,
  '42501',
  'permission denied for function resume_crawl_job',
  'a worker with the limited key that tries to resume is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.resume_crawl_job(tests.job(''paused''))') $$,
  '42501',
  'permission denied for function resume_crawl_job',
  'an anonymous caller who tries to resume is refused'
);

select * from finish();
rollback;

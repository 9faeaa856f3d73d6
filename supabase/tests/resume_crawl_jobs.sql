-- resume_crawl_jobs: all paused or stopped jobs that match a filter continue where they were. What
-- a filter may contain is tested with cancel_crawl_jobs.

begin;
select plan(30);

select tests.make_users('ann', 'bob');

-- A job in each state.
select tests.claimed_job(name, 'ann')
from unnest(array['processing', 'completed', 'failed', 'stopped-saving', 'paused-saving', 'cancelled-saving']) as name;
select public.complete_crawl_job(tests.token('completed'));
select public.fail_crawl_job(tests.token('failed'), 'broken', null, false);
select tests.enqueue(name, 'ann') from unnest(array['pending', 'paused', 'stopped', 'cancelled']) as name;
select tests.enqueue('later', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
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
select tests.enqueue('others', 'bob');
select tests.enqueue('nobodys');

create function pg_temp.resume(p_filter jsonb, p_limit integer default 1000)
  returns jsonb
  language sql
as $$
  select tests.as_user('ann', format('select public.resume_crawl_jobs(%L, p_limit => %L)', p_filter, p_limit));
$$;

-- What it does in each state

select tests.remember();
select is(
  pg_temp.resume('{"all": true}', 0),
  '{"matched": 4, "changed": 0, "left": 4, "count_limit": 100000}',
  'with a limit of 0 it only counts the jobs that it could resume'
);
select is(tests.fingerprint(), tests.remembered(), 'counting changes nothing');
select is(
  pg_temp.resume('{"status": "paused"}', 1) - 'count_limit',
  '{"matched": 2, "changed": 1, "left": 1}',
  'a call resumes up to p_limit jobs'
);
select is(
  pg_temp.resume('{"all": true}') - 'count_limit',
  '{"matched": 3, "changed": 3, "left": 0}',
  'and the next one the rest'
);
select results_eq(
  $$ select idempotency_key, status::text from silkline.jobs order by 1 $$,
  $$
    values
      ('cancelled', 'cancelled'),
      ('cancelled-saving', 'cancelled'),
      ('completed', 'completed'),
      ('failed', 'failed'),
      ('later', 'pending'),
      ('nobodys', 'pending'),
      ('others', 'pending'),
      ('paused', 'pending'),
      ('paused-saving', 'processing'),
      ('pending', 'pending'),
      ('processing', 'processing'),
      ('stopped', 'pending'),
      ('stopped-saving', 'processing')
  $$,
  'paused and stopped jobs are pending, or continue with the worker that still holds them'
);
select set_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('paused-saving'), tests.token('stopped-saving')]) $$,
  array['continue'],
  'a worker that was still saving is told to continue'
);
select is_empty(
  $$ select idempotency_key from silkline.jobs where status in ('pending', 'processing') and completed_at is not null $$,
  'a resumed job has not ended'
);
select tests.remember();
select is(
  pg_temp.resume('{"all": true}') - 'count_limit',
  '{"matched": 0, "changed": 0, "left": 0}',
  'resuming twice is fine'
);
select is(tests.fingerprint(), tests.remembered(), 'resuming twice changes nothing');
delete from silkline.jobs where true;

-- Turns

select tests.enqueue('ann-' || nth, 'ann') from generate_series(1, 4) as nth;
select tests.as_user('ann', 'select public.pause_crawl_jobs(''{"all": true}'')');
select tests.enqueue('bob-' || nth, 'bob') from generate_series(1, 2) as nth;
select pg_temp.resume('{"all": true}');
select set_eq(
  $$
    select job.idempotency_key
    from public.claim_crawl_jobs(tests.worker_id(), array(select tests.token('t-' || nth) from generate_series(1, 4) as nth)) as lease
    join silkline.jobs as job
      on job.id = lease.id
  $$,
  array['ann-1', 'ann-2', 'bob-1', 'bob-2'],
  'jobs that are resumed together keep their order, and take turns with those of others'
);
delete from silkline.jobs where true;

-- Schedules and quotas

select tests.enqueue('later', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select tests.as_user('ann', 'select public.pause_crawl_jobs(''{"all": true}'')');
select pg_temp.resume('{"all": true}');
select results_eq(
  $$ select waits_for::text, run_after from silkline.jobs where id = tests.job('later') $$,
  $$ values ('time', now() + interval '1 hour') $$,
  'a scheduled job that has not started stays scheduled'
);
select tests.enqueue('ended-' || nth, 'ann') from generate_series(1, 3) as nth;
select tests.as_user('ann', 'select public.stop_crawl_jobs(''{"all": true}'')');
update public.crawl_settings set max_open_jobs_per_user = 2 where id;
select tests.remember();
select throws_ok(
  $$ select pg_temp.resume('{"all": true}') $$,
  'PT429',
  'this would exceed the limit of 2 open jobs per user',
  'stopped jobs are not resumed beyond the quota of open jobs'
);
select is(tests.fingerprint(), tests.remembered(), 'then none of them is');
select is(
  pg_temp.resume('{"all": true}', 2) - 'count_limit',
  '{"matched": 4, "changed": 2, "left": 2}',
  'as many as fit are resumed with a lower limit'
);
select tests.as_user('ann', 'select public.pause_crawl_jobs(''{"all": true}'')');
select is(
  pg_temp.resume('{"status": "paused"}') - 'count_limit',
  '{"matched": 2, "changed": 2, "left": 0}',
  'paused jobs are open, so resuming them needs no free quota'
);
select tests.enqueue('nobodys');
select tests.as_service('select public.stop_crawl_jobs(''{"all": true}'')');
select is(
  (select tests.as_service('select public.resume_crawl_jobs(''{"all": true}'') -> ''changed''')),
  '5',
  'the quota does not bind the service'
);
update public.crawl_settings set max_open_jobs_per_user = 1000 where id;
select tests.enqueue('others', 'bob');
select tests.as_service('select public.stop_crawl_jobs(''{"all": true}'')');

-- Whose jobs

select is(
  (select tests.as_service('select public.resume_crawl_jobs(''{"all": true}'', p_limit => 0) -> ''matched''')),
  '6',
  'the service matches the jobs of all'
);
select is(
  (select tests.as_service(format('select public.resume_crawl_jobs(%L, p_limit => 0, p_user_id => %L) -> %L', '{"all": true}', tests.user_id('bob'), 'matched'))),
  '1',
  'the service may name a user'
);

-- Bad input

select tests.remember();
select throws_ok(
  $$ select pg_temp.resume('{}') $$,
  'PT400',
  'p_filter must be an object that names jobs',
  'an empty filter is refused'
);
select throws_ok(
  $$ select pg_temp.resume('{"colour": "red"}') $$,
  'PT422',
  'unknown key "colour" in p_filter',
  'an unknown key is refused'
);
select throws_ok(
  $$ select pg_temp.resume('{"all": true}', 1001) $$,
  'PT422',
  'p_limit must be from 0 to 1000, not 1001',
  'a limit of 1001 is refused'
);
select throws_ok(
  format(
    'select tests.as_user(%L, %L)',
    'ann',
    format('select public.resume_crawl_jobs(%L, p_user_id => %L)', '{"all": true}', tests.user_id('bob'))
  ),
  'PT403',
  'only the service may act for another user',
  'users may not name another user'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select public.resume_crawl_jobs(''{"all": true}'')') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not resume'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'resume_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'authenticated', array['EXECUTE'], 'users may resume');
select function_privs_are('public', 'resume_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'service_role', array['EXECUTE'], 'the service may resume');
select function_privs_are('public', 'resume_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not resume');
select function_privs_are('public', 'resume_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'anon', '{}'::text[], 'anonymous callers may not resume');
select throws_ok(
  $$ select tests.as_worker('select public.resume_crawl_jobs(''{"all": true}'')') $$,
  '42501',
  'permission denied for function resume_crawl_jobs',
  'a worker with the limited key that tries to resume is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.resume_crawl_jobs(''{"all": true}'')') $$,
  '42501',
  'permission denied for function resume_crawl_jobs',
  'an anonymous caller who tries to resume is refused'
);

select * from finish();
rollback;

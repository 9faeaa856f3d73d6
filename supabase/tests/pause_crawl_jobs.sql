-- pause_crawl_jobs: all jobs that match a filter stay paused until they are resumed. What a filter
-- may contain is tested with cancel_crawl_jobs.

begin;
select plan(26);

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

create function pg_temp.pause(p_filter jsonb, p_limit integer default 1000)
  returns jsonb
  language sql
as $$
  select tests.as_user('ann', format('select public.pause_crawl_jobs(%L, p_limit => %L)', p_filter, p_limit));
$$;

-- What it does in each state

select tests.remember();
select is(
  pg_temp.pause('{"all": true}', 0),
  '{"matched": 3, "changed": 0, "left": 3, "count_limit": 100000}',
  'with a limit of 0 it only counts the jobs that it could pause'
);
select is(tests.fingerprint(), tests.remembered(), 'counting changes nothing');
select is(
  pg_temp.pause('{"status": "processing"}') - 'count_limit',
  '{"matched": 1, "changed": 1, "left": 0}',
  'running jobs are paused'
);
select results_eq(
  $$ select lease_token, lease_check_at is not null, completed_at from silkline.jobs where id = tests.job('processing') $$,
  $$ values (tests.token('processing'), true, null::timestamptz) $$,
  'their lease continues until the worker releases it'
);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('processing')]) $$,
  $$ values ('pause') $$,
  'their worker gets the command with the next heartbeat'
);
select is(
  pg_temp.pause('{"all": true}', 1) - 'count_limit',
  '{"matched": 2, "changed": 1, "left": 1}',
  'a call pauses up to p_limit jobs'
);
select is(
  pg_temp.pause('{"all": true}') - 'count_limit',
  '{"matched": 1, "changed": 1, "left": 0}',
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
      ('later', 'paused'),
      ('nobodys', 'pending'),
      ('others', 'pending'),
      ('paused', 'paused'),
      ('paused-saving', 'paused'),
      ('pending', 'paused'),
      ('processing', 'paused'),
      ('stopped', 'stopped'),
      ('stopped-saving', 'stopped')
  $$,
  'all other jobs stay as they are'
);
select is_empty(
  $$
    select lease.id
    from public.claim_crawl_jobs(tests.worker_id(), array(select tests.token('c-' || nth) from generate_series(1, 9) as nth)) as lease
    where lease.user_id = tests.user_id('ann')
  $$,
  'no paused job is claimed'
);
select tests.remember();
select is(
  pg_temp.pause('{"all": true}') - 'count_limit',
  '{"matched": 0, "changed": 0, "left": 0}',
  'pausing twice is fine'
);
select is(tests.fingerprint(), tests.remembered(), 'pausing twice changes nothing');
select results_eq(
  $$ select reason, actor::text, actor_id from silkline.events where to_status = 'paused' and job_id in (tests.job('later'), tests.job('pending'), tests.job('processing')) $$,
  $$ select 'pause', 'user', tests.user_id('ann') from generate_series(1, 3) $$,
  'history says who paused each job'
);

-- Whose jobs

select is(
  (select tests.as_service('select public.pause_crawl_jobs(''{"all": true}'', p_limit => 0) -> ''matched''')),
  '2',
  'the service matches the jobs of all'
);
select is(
  (select tests.as_service(format('select public.pause_crawl_jobs(%L, p_limit => 0, p_user_id => %L) -> %L', '{"all": true}', tests.user_id('bob'), 'matched'))),
  '1',
  'the service may name a user'
);

-- Bad input

select tests.remember();
select throws_ok(
  $$ select pg_temp.pause('{}') $$,
  'PT400',
  'p_filter must be an object that names jobs',
  'an empty filter is refused'
);
select throws_ok(
  $$ select pg_temp.pause('{"colour": "red"}') $$,
  'PT422',
  'unknown key "colour" in p_filter',
  'an unknown key is refused'
);
select throws_ok(
  $$ select pg_temp.pause('{"all": true}', 1001) $$,
  'PT422',
  'p_limit must be from 0 to 1000, not 1001',
  'a limit of 1001 is refused'
);
select throws_ok(
  format(
    'select tests.as_user(%L, %L)',
    'ann',
    format('select public.pause_crawl_jobs(%L, p_user_id => %L)', '{"all": true}', tests.user_id('bob'))
  ),
  'PT403',
  'only the service may act for another user',
  'users may not name another user'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select public.pause_crawl_jobs(''{"all": true}'')') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not pause'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'pause_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'authenticated', array['EXECUTE'], 'users may pause');
select function_privs_are('public', 'pause_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'service_role', array['EXECUTE'], 'the service may pause');
select function_privs_are('public', 'pause_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not pause');
select function_privs_are('public', 'pause_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'anon', '{}'::text[], 'anonymous callers may not pause');
select throws_ok(
  $$ select tests.as_worker('select public.pause_crawl_jobs(''{"all": true}'')') $$,
  '42501',
  'permission denied for function pause_crawl_jobs',
  'a worker with the limited key that tries to pause is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.pause_crawl_jobs(''{"all": true}'')') $$,
  '42501',
  'permission denied for function pause_crawl_jobs',
  'an anonymous caller who tries to pause is refused'
);

select * from finish();
rollback;

-- stop_crawl_jobs: all jobs that match a filter end early, and their results are kept. What a
-- filter may contain is tested with cancel_crawl_jobs.

begin;
select plan(24);

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

create function pg_temp.stop(p_filter jsonb, p_limit integer default 1000)
  returns jsonb
  language sql
as $$
  select tests.as_user('ann', format('select public.stop_crawl_jobs(%L, p_limit => %L)', p_filter, p_limit));
$$;

-- What it does in each state

select tests.checkpoint('processing', jsonb_build_object('seq', 1, 'discovered', tests.links('https://s.example/')), 1);
select tests.checkpoint('processing', jsonb_build_object('seq', 2, 'finished', jsonb_build_array(tests.fetched('https://s.example/'))));
select tests.remember();
select is(
  pg_temp.stop('{"all": true}', 0),
  '{"matched": 5, "changed": 0, "left": 5, "count_limit": 100000}',
  'with a limit of 0 it only counts the jobs that it could stop'
);
select is(tests.fingerprint(), tests.remembered(), 'counting changes nothing');
select is(
  pg_temp.stop('{"all": true}', 2) - 'count_limit',
  '{"matched": 5, "changed": 2, "left": 3}',
  'a call stops up to p_limit jobs'
);
select is(
  pg_temp.stop('{"all": true}') - 'count_limit',
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
      ('later', 'stopped'),
      ('nobodys', 'pending'),
      ('others', 'pending'),
      ('paused', 'stopped'),
      ('paused-saving', 'stopped'),
      ('pending', 'stopped'),
      ('processing', 'stopped'),
      ('stopped', 'stopped'),
      ('stopped-saving', 'stopped')
  $$,
  'pending, running and paused jobs are stopped; all others stay as they are'
);
select is_empty(
  $$ select idempotency_key from silkline.jobs where status = 'stopped' and completed_at is distinct from now() $$,
  'a stopped job has ended'
);
select set_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('processing'), tests.token('paused-saving')]) $$,
  array['stop'],
  'the workers get the command with the next heartbeat'
);
select public.release_crawl_job(tests.token('processing'));
select is(
  (select count(*) from public.crawl_pages where job_id = tests.job('processing')),
  1::bigint,
  'the results of a stopped job are kept'
);
select tests.remember();
select is(
  pg_temp.stop('{"all": true}') - 'count_limit',
  '{"matched": 0, "changed": 0, "left": 0}',
  'stopping twice is fine'
);
select is(tests.fingerprint(), tests.remembered(), 'stopping twice changes nothing');

-- Whose jobs

select is(
  (select tests.as_service('select public.stop_crawl_jobs(''{"all": true}'', p_limit => 0) -> ''matched''')),
  '2',
  'the service matches the jobs of all'
);
select is(
  (select tests.as_service(format('select public.stop_crawl_jobs(%L, p_limit => 0, p_user_id => %L) -> %L', '{"all": true}', tests.user_id('bob'), 'matched'))),
  '1',
  'the service may name a user'
);

-- Bad input

select tests.remember();
select throws_ok(
  $$ select pg_temp.stop('{}') $$,
  'PT400',
  'p_filter must be an object that names jobs',
  'an empty filter is refused'
);
select throws_ok(
  $$ select pg_temp.stop('{"colour": "red"}') $$,
  'PT422',
  'unknown key "colour" in p_filter',
  'an unknown key is refused'
);
select throws_ok(
  $$ select pg_temp.stop('{"all": true}', 1001) $$,
  'PT422',
  'p_limit must be from 0 to 1000, not 1001',
  'a limit of 1001 is refused'
);
select throws_ok(
  format(
    'select tests.as_user(%L, %L)',
    'ann',
    format('select public.stop_crawl_jobs(%L, p_user_id => %L)', '{"all": true}', tests.user_id('bob'))
  ),
  'PT403',
  'only the service may act for another user',
  'users may not name another user'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select public.stop_crawl_jobs(''{"all": true}'')') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not stop'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'stop_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'authenticated', array['EXECUTE'], 'users may stop');
select function_privs_are('public', 'stop_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'service_role', array['EXECUTE'], 'the service may stop');
select function_privs_are('public', 'stop_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not stop');
select function_privs_are('public', 'stop_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'anon', '{}'::text[], 'anonymous callers may not stop');
select throws_ok(
  $$ select tests.as_worker('select public.stop_crawl_jobs(''{"all": true}'')') $$,
  '42501',
  'permission denied for function stop_crawl_jobs',
  'a worker with the limited key that tries to stop is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.stop_crawl_jobs(''{"all": true}'')') $$,
  '42501',
  'permission denied for function stop_crawl_jobs',
  'an anonymous caller who tries to stop is refused'
);

select * from finish();
rollback;

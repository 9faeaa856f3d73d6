-- retry_crawl_jobs: all ended jobs that match a filter run again. What a filter may contain is tested
-- with cancel_crawl_jobs.

begin;
select plan(37);

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

create function pg_temp.retry(p_filter jsonb, p_limit integer default 1000, p_urls text default 'failed')
  returns jsonb
  language sql
as $$
  select tests.as_user('ann', format('select public.retry_crawl_jobs(%L, %L, %L)', p_filter, p_urls, p_limit));
$$;

-- What it does in each state

select tests.remember();
select is(
  pg_temp.retry('{"all": true}', 0),
  '{"matched": 2, "changed": 0, "left": 2, "count_limit": 100000}',
  'with a limit of 0 it only counts the jobs that it could retry'
);
select is(tests.fingerprint(), tests.remembered(), 'counting changes nothing');
select is(
  pg_temp.retry('{"all": true}', 1) - 'count_limit',
  '{"matched": 2, "changed": 1, "left": 1}',
  'a call retries up to p_limit jobs'
);
select is(
  pg_temp.retry('{"all": true}') - 'count_limit',
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
      ('failed', 'pending'),
      ('later', 'pending'),
      ('nobodys', 'pending'),
      ('others', 'pending'),
      ('paused', 'paused'),
      ('paused-saving', 'paused'),
      ('pending', 'pending'),
      ('processing', 'processing'),
      ('stopped', 'pending'),
      ('stopped-saving', 'stopped')
  $$,
  'failed and stopped jobs are pending again; one whose worker is still saving stays stopped'
);
select results_eq(
  $$ select retry_count, error_code, error_message, started_at, completed_at, run_after from silkline.jobs where id = tests.job('failed') $$,
  $$ values (0, null::text, null::text, null::timestamptz, null::timestamptz, now()) $$,
  'a retried job has no error, no end time and all its retries'
);
select is(
  pg_temp.retry('{"status": "completed"}', p_urls => 'all') - 'count_limit',
  '{"matched": 1, "changed": 1, "left": 0}',
  'a completed job without failed URLs starts over only with all its URLs'
);
select results_eq(
  $$ select reason, actor::text, actor_id from silkline.events where to_status = 'pending' and from_status is not null $$,
  $$ select 'retry', 'user', tests.user_id('ann') from generate_series(1, 3) $$,
  'history says who retried each job'
);
delete from silkline.jobs where true;

-- The URLs of each job

create function pg_temp.run(p_name text)
  returns void
  language plpgsql
as $$
begin
  perform tests.claimed_job(p_name, 'ann');
  perform tests.checkpoint(
    p_name,
    jsonb_build_object('seq', 1, 'discovered', tests.links('https://r.example/good', 'https://r.example/bad')),
    10
  );
  perform tests.checkpoint(
    p_name,
    jsonb_build_object(
      'seq', 2,
      'finished', jsonb_build_array(
        tests.fetched('https://r.example/good'),
        jsonb_build_object('url_key', tests.url_key('https://r.example/bad'), 'status', 'error', 'error', 'http 500')
      )
    )
  );
  perform public.complete_crawl_job(tests.token(p_name));
end
$$;

select pg_temp.run(name) from unnest(array['run-1', 'run-2']) as name;
select is(
  pg_temp.retry('{"all": true}') - 'count_limit',
  '{"matched": 2, "changed": 2, "left": 0}',
  'completed jobs with failed URLs are retried'
);
select results_eq(
  $$ select url, status::text from silkline.tasks order by url, job_id $$,
  $$
    values
      ('https://r.example/bad', 'pending'),
      ('https://r.example/bad', 'pending'),
      ('https://r.example/good', 'done'),
      ('https://r.example/good', 'done')
  $$,
  'only the URLs that failed are pending again'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after a retry of failed URLs');
select tests.as_user('ann', 'select public.stop_crawl_jobs(''{"all": true}'')');
select is(
  pg_temp.retry('{"all": true}', p_urls => 'all') - 'count_limit',
  '{"matched": 2, "changed": 2, "left": 0}',
  'stopped jobs start over with all their URLs'
);
select is_empty($$ select url from silkline.tasks where status <> 'pending' $$, 'all URLs are pending again');
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after starting over');
select tests.as_user('ann', 'select public.stop_crawl_jobs(''{"all": true}'')');
update silkline.states set total_error = 100001 where job_id = tests.job('run-1');
select is(
  pg_temp.retry('{"all": true}') - 'count_limit',
  '{"matched": 1, "changed": 1, "left": 0}',
  'a job with too many URLs to retry does not keep the others from it'
);
select is(tests.status('run-1'), 'stopped', 'and stays as it is');
update silkline.states set total_error = 0 where job_id = tests.job('run-1');
select tests.as_user('ann', 'select public.stop_crawl_jobs(''{"all": true}'')');

-- Quotas

update public.crawl_settings set max_open_jobs_per_user = 1 where id;
select tests.remember();
select throws_ok(
  $$ select pg_temp.retry('{"all": true}') $$,
  'PT429',
  'this would exceed the limit of 1 open jobs per user',
  'jobs are not retried beyond the quota of open jobs'
);
select is(tests.fingerprint(), tests.remembered(), 'then none of them is');
select is(
  pg_temp.retry('{"all": true}', 1) - 'count_limit',
  '{"matched": 2, "changed": 1, "left": 1}',
  'as many as fit are retried with a lower limit'
);
select tests.as_user('ann', 'select public.stop_crawl_jobs(''{"all": true}'')');
update public.crawl_settings
set
  max_open_jobs_per_user = 1000,
  max_jobs_per_user_per_day = (select sum(jobs) from silkline.quota_uses where owner_id = tests.user_id('ann')) + 1
where id;
select throws_like(
  $$ select pg_temp.retry('{"all": true}') $$,
  'this would exceed the limit of % new or retried jobs per user in 24 hours',
  'each retry counts against the quota of a day'
);
select is(
  (select tests.as_service('select public.retry_crawl_jobs(''{"all": true}'') -> ''changed''')),
  '2',
  'the quotas do not bind the service'
);
update public.crawl_settings set max_jobs_per_user_per_day = 10000 where id;
select throws_ok(
  $$ select pg_temp.retry('{"all": true}', p_urls => 'some') $$,
  'PT422',
  'p_urls must be failed or all, not ''some''',
  'an unknown choice of URLs is refused'
);
select throws_ok(
  $$ select pg_temp.retry('{"all": true}', p_urls => null) $$,
  'PT422',
  'p_urls must be failed or all, not NULL',
  'null for the choice of URLs is refused'
);
select tests.enqueue('others', 'bob');
select tests.enqueue('nobodys');
select tests.as_service('select public.stop_crawl_jobs(''{"all": true}'')');

-- Whose jobs

select is(
  (select tests.as_service('select public.retry_crawl_jobs(''{"all": true}'', p_limit => 0) -> ''matched''')),
  '4',
  'the service matches the jobs of all'
);
select is(
  (select tests.as_service(format('select public.retry_crawl_jobs(%L, p_limit => 0, p_user_id => %L) -> %L', '{"all": true}', tests.user_id('bob'), 'matched'))),
  '1',
  'the service may name a user'
);

-- Bad input

select tests.remember();
select throws_ok(
  $$ select pg_temp.retry('{}') $$,
  'PT400',
  'p_filter must be an object that names jobs',
  'an empty filter is refused'
);
select throws_ok(
  $$ select pg_temp.retry('{"colour": "red"}') $$,
  'PT422',
  'unknown key "colour" in p_filter',
  'an unknown key is refused'
);
select throws_ok(
  $$ select pg_temp.retry('{"all": true}', 1001) $$,
  'PT422',
  'p_limit must be from 0 to 1000, not 1001',
  'a limit of 1001 is refused'
);
select throws_ok(
  format(
    'select tests.as_user(%L, %L)',
    'ann',
    format('select public.retry_crawl_jobs(%L, p_user_id => %L)', '{"all": true}', tests.user_id('bob'))
  ),
  'PT403',
  'only the service may act for another user',
  'users may not name another user'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select public.retry_crawl_jobs(''{"all": true}'')') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not retry'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'retry_crawl_jobs', array['jsonb', 'text', 'integer', 'uuid'], 'authenticated', array['EXECUTE'], 'users may retry');
select function_privs_are('public', 'retry_crawl_jobs', array['jsonb', 'text', 'integer', 'uuid'], 'service_role', array['EXECUTE'], 'the service may retry');
select function_privs_are('public', 'retry_crawl_jobs', array['jsonb', 'text', 'integer', 'uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not retry');
select function_privs_are('public', 'retry_crawl_jobs', array['jsonb', 'text', 'integer', 'uuid'], 'anon', '{}'::text[], 'anonymous callers may not retry');
select throws_ok(
  $$ select tests.as_worker('select public.retry_crawl_jobs(''{"all": true}'')') $$,
  '42501',
  'permission denied for function retry_crawl_jobs',
  'a worker with the limited key that tries to retry is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.retry_crawl_jobs(''{"all": true}'')') $$,
  '42501',
  'permission denied for function retry_crawl_jobs',
  'an anonymous caller who tries to retry is refused'
);

select * from finish();
rollback;

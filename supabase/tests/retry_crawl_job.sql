-- retry_crawl_job: an ended job runs again, with its failed URLs or all of them.

begin;
select plan(51);

select tests.make_users('ann', 'bob');

-- A job in each state.
select tests.claimed_job(name, 'ann')
from unnest(array['processing', 'completed', 'failed', 'stopped-saving', 'paused-saving', 'cancelled-saving']) as name;
select public.complete_crawl_job(tests.token('completed'), p_running_seconds => 9);
select public.fail_crawl_job(tests.token('failed'), 'broken', null, false, p_running_seconds => 9);
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

create function pg_temp.retry(p_name text, p_urls text default 'failed')
  returns table (id uuid, status text)
  language sql
as $$
  select (answer ->> 'id')::uuid, answer ->> 'status'
  from tests.as_user('ann', format('select * from public.retry_crawl_job(tests.job(%L), %L)', p_name, p_urls)) as answer;
$$;

-- A job that ends with one URL of each kind.
create function pg_temp.run(p_name text)
  returns void
  language plpgsql
as $$
begin
  perform tests.claimed_job(p_name, 'ann');
  perform tests.checkpoint(
    p_name,
    jsonb_build_object(
      'seq', 1,
      'discovered', tests.links('https://r.example/good', 'https://r.example/bad', 'https://r.example/skipped')
        || (tests.links('https://r.example/deep') -> 0 || '{"skip_reason": "too_deep"}')
        || (tests.links('https://r.example/poor') -> 0 || '{"skip_reason": "budget"}')
    ),
    10
  );
  perform tests.checkpoint(
    p_name,
    jsonb_build_object(
      'seq', 2,
      'finished', jsonb_build_array(
        tests.fetched('https://r.example/good'),
        jsonb_build_object('url_key', tests.url_key('https://r.example/bad'), 'status', 'error', 'error', 'http 500'),
        jsonb_build_object('url_key', tests.url_key('https://r.example/skipped'), 'status', 'skipped', 'skip_reason', 'noindex', 'http_status', 200)
      )
    )
  );
  perform public.complete_crawl_job(tests.token(p_name));
end
$$;

-- What it does in each state

select results_eq(
  $$ select * from pg_temp.retry('failed') $$,
  $$ values (tests.job('failed'), 'pending') $$,
  'a failed job is pending again'
);
select results_eq(
  $$
    select retry_count, running_seconds, progress_percentage::integer, error_code, error_message, started_at, completed_at, lease_check_at, run_after
    from silkline.jobs
    where id = tests.job('failed')
  $$,
  $$ values (0, 0::real, 0, null::text, null::text, null::timestamptz, null::timestamptz, null::timestamptz, now()) $$,
  'a retried job has no error, no end time, no lease, all its retries and all its running time'
);
select tests.remember();
select results_eq(
  $$ select command, status::text from public.fail_crawl_job(tests.token('failed'), 'broken', null, false) $$,
  $$ values ('continue', 'pending') $$,
  'the worker that ended it, and repeats that after the retry, hears that it is pending'
);
select is(tests.checkpoint('failed', '{"seq": 1}', 1) ->> 'command', 'lost', 'its checkpoints are lost');
select is_empty(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('failed')]) $$,
  'its token claims nothing'
);
select is(tests.fingerprint(), tests.remembered(), 'so the old lease changes nothing of the new run');
select results_eq(
  $$ select * from pg_temp.retry('stopped') $$,
  $$ values (tests.job('stopped'), 'pending') $$,
  'a stopped job is pending again'
);
select throws_ok(
  $$ select pg_temp.retry('stopped-saving') $$,
  'PT409',
  format('job %s is stopped, but its worker is still saving', tests.job('stopped-saving')),
  'a stopped job is not retried while its worker is still saving'
);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('stopped-saving')]) $$,
  $$ values ('stop') $$,
  'that worker keeps its lease until it has saved'
);
select public.release_crawl_job(tests.token('stopped-saving'));
select results_eq(
  $$ select * from pg_temp.retry('stopped-saving') $$,
  $$ values (tests.job('stopped-saving'), 'pending') $$,
  'then the job can be retried'
);
select throws_ok(
  $$ select pg_temp.retry('completed') $$,
  'PT409',
  format('job %s has no failed URLs', tests.job('completed')),
  'a completed job without failed URLs has nothing to retry'
);
select throws_ok(
  $$ select pg_temp.retry('pending') $$,
  'PT409',
  format('job %s is pending and cannot be retried', tests.job('pending')),
  'a job that is pending is not retried'
);
select throws_ok(
  $$ select pg_temp.retry('processing') $$,
  'PT409',
  format('job %s is processing and cannot be retried', tests.job('processing')),
  'a job that is processing is not retried'
);
select throws_ok(
  $$ select pg_temp.retry('paused') $$,
  'PT409',
  format('job %s is paused and cannot be retried', tests.job('paused')),
  'a job that is paused is not retried'
);
select throws_ok(
  $$ select pg_temp.retry('cancelled') $$,
  'PT409',
  format('job %s is cancelled and cannot be retried', tests.job('cancelled')),
  'a job that is cancelled is not retried'
);

select pg_temp.retry('completed', 'all');
select is(
  (select running_seconds from silkline.jobs where id = tests.job('completed')),
  0::real,
  'a job that starts over has all its running time'
);

-- A failed URL that was never requested has been refunded already

delete from silkline.jobs where idempotency_key not in ('cancelled', 'nobodys') or idempotency_key is null;
update silkline.jobs set run_after = now() + interval '1 day', waits_for = 'time' where id = tests.job('nobodys');
select tests.claimed_job('given-up', 'ann', '{"max_pages": 4}');
select tests.checkpoint(
  'given-up',
  jsonb_build_object('seq', 1, 'discovered', tests.links('https://g.example/1', 'https://g.example/2', 'https://g.example/3')),
  3
);
select tests.checkpoint(
  'given-up',
  jsonb_build_object('seq', 2, 'finished', jsonb_build_array(
    tests.fetched('https://g.example/1'),
    jsonb_build_object('url_key', tests.url_key('https://g.example/2'), 'status', 'error', 'error', 'http 500', 'http_status', 500),
    jsonb_build_object('url_key', tests.url_key('https://g.example/3'), 'status', 'error', 'error', 'host given up', 'unfetched', true)
  ))
);
select public.complete_crawl_job(tests.token('given-up'));
select pg_temp.retry('given-up');
select is(
  (select pages_spent from silkline.states where job_id = tests.job('given-up')),
  1,
  'a retry refunds what the failed URLs cost, and no more'
);
delete from silkline.jobs where id = tests.job('given-up');

-- Only the URLs that failed

select pg_temp.run('mixed');
update silkline.states set links_refused = '{"excluded": 5}' where job_id = tests.job('mixed');
select results_eq(
  $$ select * from pg_temp.retry('mixed') $$,
  $$ values (tests.job('mixed'), 'pending') $$,
  'a completed job with failed URLs can be retried'
);
select results_eq(
  $$ select url, status::text, attempts::integer, last_error from silkline.tasks where job_id = tests.job('mixed') order by url $$,
  $$
    values
      ('https://r.example/bad', 'pending', 0, null::text),
      ('https://r.example/deep', 'skipped', 0, null),
      ('https://r.example/good', 'done', 1, null),
      ('https://r.example/poor', 'skipped', 0, null),
      ('https://r.example/skipped', 'skipped', 1, null)
  $$,
  'only the URLs that failed are pending again'
);
select results_eq(
  $$ select total_pending, total_done, total_error, total_skipped, pages_spent from silkline.states where job_id = tests.job('mixed') $$,
  $$ values (1, 1, 0, 3, 2) $$,
  'the failed URLs are refunded to the budget'
);
select is(
  (select links_refused from silkline.states where job_id = tests.job('mixed')),
  '{"excluded": 5}',
  'the refused links of the other pages stay counted'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after a retry of failed URLs');
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('mixed-2')]);
select is(
  tests.checkpoint('mixed-2', '{"seq": 1}', 10) -> 'tasks' -> 0 ->> 'url',
  'https://r.example/bad',
  'a failed URL is leased again'
);
select public.release_crawl_job(tests.token('mixed-2'));
delete from silkline.jobs where id = tests.job('mixed');

-- All URLs

select pg_temp.run('over');
update silkline.states
set
  links_refused = '{"excluded": 5}',
  pages_with_warnings = 1,
  page_warnings = '{"cut": 1}'
where job_id = tests.job('over');
select results_eq($$ select status from pg_temp.retry('over', 'all') $$, $$ values ('pending') $$, 'a completed job starts over with all its URLs');
select results_eq(
  $$ select url, skip_reason from silkline.tasks where job_id = tests.job('over') and status <> 'pending' $$,
  $$ values ('https://r.example/deep', 'too_deep') $$,
  'every URL is pending again except those that were too deep'
);
select results_eq(
  $$ select total_pending, total_done, total_error, total_skipped, pages_spent from silkline.states where job_id = tests.job('over') $$,
  $$ values (4, 0, 0, 1, 0) $$,
  'the whole budget is available again'
);
select results_eq(
  $$ select links_refused, pages_with_warnings, page_warnings from silkline.states where job_id = tests.job('over') $$,
  $$ values ('{}'::jsonb, 0, '{}'::jsonb) $$,
  'and refused links and warnings are counted from the start'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after starting over');
select is(
  (select count(*) from public.crawl_pages where job_id = tests.job('over')),
  1::bigint,
  'the pages of the previous run are kept'
);
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('over-2')]);
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''over''))');
select public.release_crawl_job(tests.token('over-2'));
select results_eq(
  $$ select tests.as_service('select status from public.retry_crawl_job(tests.job(''over''))') $$,
  $$ values ('"pending"'::jsonb) $$,
  'the service retries any job'
);
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''over''))');
select tests.claimed_job('big', 'ann');
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''big''))');
select public.release_crawl_job(tests.token('big'));
update silkline.states set total_error = 100001 where job_id = tests.job('big');
select throws_ok(
  $$ select pg_temp.retry('big') $$,
  'PT422',
  format('job %s has 100001 URLs to retry, more than 100000', tests.job('big')),
  'a retry of too many URLs is refused'
);
update silkline.states set total_error = 0 where job_id = tests.job('big');
select throws_ok(
  $$ select pg_temp.retry('big', 'some') $$,
  'PT422',
  'p_urls must be failed or all, not ''some''',
  'an unknown choice of URLs is refused'
);
select throws_ok(
  $$ select pg_temp.retry('big', null) $$,
  'PT422',
  'p_urls must be failed or all, not NULL',
  'null for the choice of URLs is refused'
);
select throws_ok(
  $$ select pg_temp.retry('big', repeat('x', 10000000)) $$,
  'PT422',
  format('p_urls must be failed or all, not %L', repeat('x', 60)),
  'a choice of ten megabytes is refused, and the message is short'
);

-- Quotas

update public.crawl_settings set max_open_jobs_per_user = 1 where id;
select tests.enqueue('open', 'bob');
select tests.as_user('bob', 'select id from public.stop_crawl_job(tests.job(''open''))');
select tests.enqueue('fills', 'bob');
select throws_ok(
  $$ select tests.as_user('bob', 'select * from public.retry_crawl_job(tests.job(''open''))') $$,
  'PT429',
  'this would exceed the limit of 1 open jobs per user',
  'a job is not retried beyond the quota of open jobs'
);
update public.crawl_settings set max_open_jobs_per_user = 1000, max_jobs_per_user_per_day = 3 where id;
select results_eq(
  $$ select tests.as_user('bob', 'select status from public.retry_crawl_job(tests.job(''open''))') $$,
  $$ values ('"pending"'::jsonb) $$,
  'a retry within the quota of a day is fine'
);
select tests.as_user('bob', 'select id from public.stop_crawl_job(tests.job(''open''))');
select throws_ok(
  $$ select tests.as_user('bob', 'select * from public.retry_crawl_job(tests.job(''open''))') $$,
  'PT429',
  'this would exceed the limit of 3 new or retried jobs per user in 24 hours',
  'retries count against the quota of a day'
);
select results_eq(
  $$ select tests.as_service('select status from public.retry_crawl_job(tests.job(''open''))') $$,
  $$ values ('"pending"'::jsonb) $$,
  'the quotas do not bind the service'
);
update public.crawl_settings set max_jobs_per_user_per_day = 10000 where id;

-- Bad input

select tests.remember();
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.retry_crawl_job(null)') $$,
  'PT400',
  'p_job_id must not be null',
  'null for the job is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.retry_crawl_job(''nonsense'')') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'an id that is not a uuid is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.retry_crawl_job(tests.token(''nowhere''))') $$,
  'PT404',
  format('there is no job %s', tests.token('nowhere')),
  'a job that does not exist is not found'
);
select throws_ok(
  $$ select tests.as_user('bob', 'select * from public.retry_crawl_job(tests.job(''big''))') $$,
  'PT404',
  format('there is no job %s', tests.job('big')),
  'another user''s job looks like one that does not exist'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.retry_crawl_job(tests.job(''nobodys''))') $$,
  'PT404',
  format('there is no job %s', tests.job('nobodys')),
  'users may not retry a job of the service'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select * from public.retry_crawl_job(tests.job(''big''))') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not retry'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'retry_crawl_job', array['uuid', 'text'], 'authenticated', array['EXECUTE'], 'users may retry');
select function_privs_are('public', 'retry_crawl_job', array['uuid', 'text'], 'service_role', array['EXECUTE'], 'the service may retry');
select function_privs_are('public', 'retry_crawl_job', array['uuid', 'text'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not retry');
select function_privs_are('public', 'retry_crawl_job', array['uuid', 'text'], 'anon', '{}'::text[], 'anonymous callers may not retry');
select throws_ok(
  $$ select tests.as_worker('select * from public.retry_crawl_job(tests.job(''failed''))') $$,
  '42501',
  'permission denied for function retry_crawl_job',
  'a worker with the limited key that tries to retry is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.retry_crawl_job(tests.job(''failed''))') $$,
  '42501',
  'permission denied for function retry_crawl_job',
  'an anonymous caller who tries to retry is refused'
);

select * from finish();
rollback;

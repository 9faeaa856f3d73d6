-- crawl_progress: one job for a screen, and only for callers who may see it.

begin;
select plan(46);

select tests.make_users('ann', 'bob');

create function pg_temp.progress(p_name text)
  returns jsonb
  language sql
as $$
  select tests.as_user('ann', format('select public.crawl_progress(tests.job(%L))', p_name));
$$;

-- Every key, before it runs and while it runs

select tests.claimed_job('job', 'ann');
select is(
  array(select key from jsonb_object_keys(pg_temp.progress('job')) as key order by key collate "C"),
  array[
    'attempt', 'bytes', 'checkpoint_at', 'completed_at', 'created_at', 'current_url', 'error_code', 'error_message',
    'eta_seconds', 'event_seq', 'host', 'is_saving', 'job_id', 'kind', 'last_heartbeat', 'links_refused', 'max_retries', 'now',
    'page_warnings', 'pages_changed', 'pages_done', 'pages_failed', 'pages_in_progress', 'pages_new', 'pages_pending', 'pages_per_second',
    'pages_skipped', 'pages_unchanged', 'pages_with_warnings', 'priority', 'progress_percentage', 'result', 'retry_count', 'run_after',
    'running_seconds', 'seq',
    'source_id', 'started_at', 'status', 'url', 'wait'
  ],
  'the snapshot has these keys: clients rely on them'
);
select tests.checkpoint(
  'job',
  jsonb_build_object(
    'seq', 1,
    'current_url', 'https://p.example/1',
    'discovered', tests.links('https://p.example/1', 'https://p.example/2', 'https://p.example/3', 'https://p.example/4')
  ),
  3
);
select tests.age('job', '10 seconds');
select tests.checkpoint(
  'job',
  jsonb_build_object(
    'seq', 2,
    'finished', (
      select jsonb_agg(
        case row_number
          when 1 then tests.fetched(url)
          when 2 then jsonb_build_object('url_key', url_key, 'status', 'error', 'error', 'http 500')
        end
      )
      from (
        select url, url_key, row_number() over (order by url)
        from silkline.tasks
        where job_id = tests.job('job')
          and status = 'in_progress'
      ) as held
      where row_number <= 2
    )
  )
);
select is(
  pg_temp.progress('job') @> jsonb_build_object(
    'job_id', tests.job('job'),
    'status', 'processing',
    'is_saving', false,
    'pages_done', 1,
    'pages_failed', 1,
    'pages_skipped', 0,
    'pages_pending', 1,
    'pages_in_progress', 1,
    'pages_new', 1,
    'bytes', 100,
    'progress_percentage', 50,
    'current_url', 'https://p.example/1',
    'attempt', 1,
    'seq', 2,
    'event_seq', 2
  ),
  true,
  'the snapshot counts the results of checkpoints, and has seq and event_seq'
);
select ok(
  (pg_temp.progress('job') ->> 'pages_per_second')::numeric > 0,
  'the snapshot has the rate'
);
select is(
  (pg_temp.progress('job') ->> 'eta_seconds')::numeric,
  (
    select ceil((total_pending + total_in_progress) / pages_per_second)::numeric
    from silkline.states
    where job_id = tests.job('job')
  ),
  'the time left is the work left divided by the rate'
);
update silkline.jobs set payload = payload || '{"max_pages": 3}' where id = tests.job('job');
select is(
  (pg_temp.progress('job') ->> 'eta_seconds')::numeric,
  (select ceil(1 / pages_per_second)::numeric from silkline.states where job_id = tests.job('job')),
  'URLs beyond the budget take no time'
);
select is((pg_temp.progress('job') ->> 'now')::timestamptz, now(), 'the snapshot has the time of the database');

-- Saving, and ended

select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''job''))');
select is(
  pg_temp.progress('job') @> '{"status": "stopped", "is_saving": true, "current_url": null, "eta_seconds": null, "event_seq": 3}',
  true,
  'a stopped job whose worker is still saving has is_saving, and one more event'
);
select public.release_crawl_job(tests.token('job'));
select is(pg_temp.progress('job') -> 'is_saving', 'false'::jsonb, 'once released, nothing is being saved');
select is((pg_temp.progress('job') ->> 'completed_at')::timestamptz, now(), 'an ended job has its end time');
select tests.claimed_job('broken', 'ann');
select public.fail_crawl_job(tests.token('broken'), 'oom', 'out of memory', false);
select is(
  pg_temp.progress('broken') @> '{"status": "failed", "error_code": "oom", "error_message": "out of memory"}',
  true,
  'a failed job has its error'
);

-- What it waits for

select is(pg_temp.progress('broken') -> 'wait', 'null'::jsonb, 'a job that has ended waits for nothing');
select tests.enqueue('later', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select is(
  pg_temp.progress('later') -> 'wait',
  jsonb_build_object('reason', 'time', 'until', now() + interval '1 hour'),
  'a scheduled job waits for its time'
);
select tests.claimed_job('site', 'ann', '{"delay_seconds": 1}');
select tests.checkpoint('site', jsonb_build_object('seq', 1, 'discovered', tests.links('https://site.example/')), 1);
select is(pg_temp.progress('site') -> 'wait', 'null'::jsonb, 'a running job without long pauses waits for nothing');
select is(
  tests.checkpoint('site', '{"seq": 2, "hosts": [{"host": "site.example", "backoff_seconds": 60}]}')
    #> '{progress,wait}',
  pg_temp.progress('site') -> 'wait',
  'the checkpoint returns the same wait as the snapshot'
);
select is(
  pg_temp.progress('site') -> 'wait',
  jsonb_build_object('reason', 'host', 'until', now() + interval '60 seconds'),
  'a job waits for a host in backoff'
);
update silkline.states set pages_per_second = 2 where job_id = tests.job('site');
select is(pg_temp.progress('site') -> 'eta_seconds', 'null'::jsonb, 'and then the time left is unknown');
update public.crawl_hosts set backoff_until = now() where host = 'site.example';
select is(pg_temp.progress('site') -> 'wait', 'null'::jsonb, 'until the backoff is over');
update public.crawl_hosts set crawl_delay_seconds = 30 where host = 'site.example';
select is(
  pg_temp.progress('site') -> 'wait',
  '{"reason": "delay", "seconds": 30}',
  'a long delay between two requests is a wait'
);
select is(
  pg_temp.progress('site') -> 'eta_seconds',
  '30'::jsonb,
  'and counts in the time left'
);
update public.crawl_hosts set crawl_delay_seconds = 900 where host = 'site.example';
select is(
  pg_temp.progress('site') #> '{wait,seconds}',
  '300'::jsonb,
  'up to the longest delay that workers obey'
);
update silkline.jobs set payload = payload || '{"obey_robots": false}' where id = tests.job('site');
select is(
  pg_temp.progress('site') -> 'wait',
  'null'::jsonb,
  'but not the delay of a robots.txt that is not obeyed'
);
select tests.checkpoint(
  'site',
  jsonb_build_object(
    'seq', 3,
    'retried', jsonb_build_array(
      jsonb_build_object('url_key', tests.url_key('https://site.example/'), 'after_seconds', 50, 'error', 'HTTP 500')
    )
  )
);
select is(
  pg_temp.progress('site') -> 'wait',
  jsonb_build_object(
    'reason', 'retry',
    'until', now() + interval '50 seconds',
    'url', 'https://site.example/',
    'error', 'HTTP 500'
  ),
  'if no URL is due, the job waits for the next retry'
);
select tests.checkpoint(
  'site', jsonb_build_object('seq', 4, 'discovered', tests.links('https://site.example/new'))
);
select is(pg_temp.progress('site') -> 'wait', 'null'::jsonb, 'if a URL is due, it does not');

update silkline.jobs set payload = payload || '{"delay_seconds": "slow"}' where id = tests.job('site');
select is(pg_temp.progress('site') -> 'wait', 'null'::jsonb, 'a delay_seconds of a plugin that is not a number is ignored');

-- Counters at their limits

select tests.claimed_job('huge', 'ann');
update silkline.jobs set payload = payload || '{"max_pages": 100000000}' where id = tests.job('huge');
update silkline.states
set total_done = 2147483647, total_pending = 2147483647, total_in_progress = 1, pages_spent = 1, pages_per_second = 1
where job_id = tests.job('huge');
select is(
  tests.checkpoint('huge', '{"seq": 1}') -> 'progress' @> '{"pages_done": 2147483647, "progress_percentage": 99}',
  true,
  'counters at the limit of an integer do not overflow'
);
select is(pg_temp.progress('huge') -> 'eta_seconds', '100000000', 'nor does the time left, which is that of the budget');
update silkline.states set total_done = 30000000, total_pending = 10000000, total_in_progress = 0 where job_id = tests.job('huge');
select is(
  tests.checkpoint('huge', '{"seq": 2}') #> '{progress,progress_percentage}',
  '75',
  '30 of 40 million pages are 75 percent'
);
select is(silkline.page_budget(bad.payload::jsonb), bad.budget, bad.claim)
from (
  values
    ('{}', 2147483647, 'without max_pages the budget is the largest integer'),
    ('{"max_pages": 0}', 1, 'a max_pages of 0 is 1'),
    ('{"max_pages": 1e400}', 2147483647, 'a huge max_pages is the largest integer'),
    ('{"max_pages": "7"}', 2147483647, 'a max_pages that is not a number is ignored')
) as bad (payload, budget, claim);
update silkline.jobs set payload = payload || '{"delay_seconds": 1e400}' where id = tests.job('huge');
select is(pg_temp.progress('huge') -> 'wait', 'null'::jsonb, 'a huge delay_seconds of a plugin is ignored');

-- The service

select tests.enqueue('nobodys');
select is(
  (select tests.as_service('select public.crawl_progress(tests.job(''nobodys''))')) ->> 'status',
  'pending',
  'the service sees the progress of any job'
);

-- Bad input

select tests.remember();
select throws_ok(
  $$ select tests.as_user('ann', 'select public.crawl_progress(null)') $$,
  'PT400',
  'p_job_id must not be null',
  'null for the job is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select public.crawl_progress(''nonsense'')') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'an id that is not a uuid is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select public.crawl_progress(tests.token(''nowhere''))') $$,
  'PT404',
  format('there is no job %s', tests.token('nowhere')),
  'a job that does not exist is not found'
);
select throws_ok(
  $$ select tests.as_user('bob', 'select public.crawl_progress(tests.job(''job''))') $$,
  'PT404',
  format('there is no job %s', tests.job('job')),
  'another user''s job looks like one that does not exist'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select public.crawl_progress(tests.job(''nobodys''))') $$,
  'PT404',
  format('there is no job %s', tests.job('nobodys')),
  'users may not see a job of the service'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select public.crawl_progress(tests.job(''job''))') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user sees no job'
);
select is(tests.fingerprint(), tests.remembered(), 'reading changed no row');

-- Who may call it

select function_privs_are('public', 'crawl_progress', array['uuid'], 'authenticated', array['EXECUTE'], 'users may call it');
select function_privs_are('public', 'crawl_progress', array['uuid'], 'service_role', array['EXECUTE'], 'the service may call it');
select function_privs_are('public', 'crawl_progress', array['uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not call it');
select function_privs_are('public', 'crawl_progress', array['uuid'], 'anon', '{}'::text[], 'anonymous callers may not call it');
select throws_ok(
  $$ select tests.as_worker('select public.crawl_progress(tests.job(''job''))') $$,
  '42501',
  'permission denied for function crawl_progress',
  'a worker with the limited key that tries to call it is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.crawl_progress(tests.job(''job''))') $$,
  '42501',
  'permission denied for function crawl_progress',
  'an anonymous caller who tries to call it is refused'
);

select * from finish();
rollback;

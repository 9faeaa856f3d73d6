-- pending_crawl_work: the pending URLs of running jobs, from counters that equal the rows.

begin;
select plan(15);

select tests.make_users('ann', 'bob');

create function pg_temp.work(p_user text)
  returns jsonb
  language sql
as $$
  select tests.as_user(p_user, 'select public.pending_crawl_work()');
$$;

select is(
  pg_temp.work('ann'),
  '{"jobs": 0, "total_pending": 0, "total_in_progress": 0, "pages_per_second": 0.00, "parts": []}'::jsonb,
  'without running jobs no work is pending'
);

select tests.claimed_job(name, 'ann') from unnest(array['big', 'small', 'drained', 'paused']) as name;
select tests.claimed_job('bobs', 'bob');
select tests.claimed_job('nobodys');
select tests.checkpoint('big', jsonb_build_object('seq', 1, 'discovered', tests.links('https://b.example/1', 'https://b.example/2', 'https://b.example/3', 'https://b.example/4')), 1);
select tests.checkpoint('small', jsonb_build_object('seq', 1, 'discovered', tests.links('https://s.example/1')));
select tests.checkpoint('paused', jsonb_build_object('seq', 1, 'discovered', tests.links('https://p.example/1')));
select tests.checkpoint('bobs', jsonb_build_object('seq', 1, 'discovered', tests.links('https://o.example/1', 'https://o.example/2')));
select tests.checkpoint('nobodys', jsonb_build_object('seq', 1, 'discovered', tests.links('https://n.example/1')));
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''paused''))');

select is(
  pg_temp.work('ann') - 'pages_per_second',
  jsonb_build_object(
    'jobs', 3,
    'total_pending', 4,
    'total_in_progress', 1,
    'parts', jsonb_build_array(
      jsonb_build_object('job_id', tests.job('big'), 'host', 'big.example', 'total_pending', 3, 'total_in_progress', 1),
      jsonb_build_object('job_id', tests.job('small'), 'host', 'small.example', 'total_pending', 1, 'total_in_progress', 0)
    )
  ),
  'a user sees the total of her running jobs, and each job, the largest first'
);
select is(
  (pg_temp.work('ann') ->> 'total_pending')::bigint,
  (
    select count(*)
    from silkline.tasks as task
    join silkline.jobs as job
      on job.id = task.job_id
    where job.user_id = tests.user_id('ann')
      and job.status = 'processing'
      and task.status = 'pending'
  ),
  'the total equals the rows of the frontier'
);
select is(pg_temp.work('bob') -> 'total_pending', '2'::jsonb, 'another user sees only their own jobs');
select is(
  (select tests.as_service('select public.pending_crawl_work()')) - '{pages_per_second,parts}'::text[],
  '{"jobs": 5, "total_pending": 7, "total_in_progress": 1}'::jsonb,
  'the service sees the total of all jobs'
);
select tests.as_user('ann', 'select id from public.resume_crawl_job(tests.job(''paused''))');
select is(pg_temp.work('ann') -> 'total_pending', '5'::jsonb, 'a resumed job counts again');
select public.release_crawl_job(tests.token('big'));
select is(pg_temp.work('ann') -> 'total_pending', '2'::jsonb, 'a job that is not running does not count');
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select public.pending_crawl_work()') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user sees no work'
);
select tests.remember();
select pg_temp.work('ann');
select is(tests.fingerprint(), tests.remembered(), 'reading changed no row');

-- Who may call it

select function_privs_are('public', 'pending_crawl_work', '{}'::name[], 'authenticated', array['EXECUTE'], 'users may call it');
select function_privs_are('public', 'pending_crawl_work', '{}'::name[], 'service_role', array['EXECUTE'], 'the service may call it');
select function_privs_are('public', 'pending_crawl_work', '{}'::name[], 'crawl_worker', '{}'::text[], 'workers with the limited key may not call it');
select function_privs_are('public', 'pending_crawl_work', '{}'::name[], 'anon', '{}'::text[], 'anonymous callers may not call it');
select throws_ok(
  $$ select tests.as_worker('select public.pending_crawl_work()') $$,
  '42501',
  'permission denied for function pending_crawl_work',
  'a worker with the limited key that tries to call it is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.pending_crawl_work()') $$,
  '42501',
  'permission denied for function pending_crawl_work',
  'an anonymous caller who tries to call it is refused'
);

select * from finish();
rollback;

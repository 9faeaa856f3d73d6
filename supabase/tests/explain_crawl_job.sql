-- explain_crawl_job: "why is my job not running?", with a code and a sentence.

begin;
select plan(43);

select tests.make_users('ann', 'bob');

create function pg_temp.reasons(p_name text)
  returns text[]
  language sql
as $$
  select array(
    select reason ->> 'code'
    from jsonb_array_elements(
      (select tests.as_user('ann', format('select public.explain_crawl_job(tests.job(%L))', p_name))) -> 'reasons'
    ) as reason
  );
$$;

create function pg_temp.sentence(p_name text)
  returns text
  language sql
as $$
  select (select tests.as_user('ann', format('select public.explain_crawl_job(tests.job(%L))', p_name))) #>> '{reasons,0,text}';
$$;

-- Without workers

select tests.enqueue('job', 'ann');
select is(pg_temp.reasons('job'), array['no_worker'], 'no worker is a reason');
select is(pg_temp.sentence('job'), 'No live worker runs jobs of kind crawl.', 'the reason has a sentence');
select public.heartbeat_crawl_jobs(tests.worker_id('photographer'), '{}', '{"kinds": ["screenshot"]}');
select is(pg_temp.reasons('job'), array['no_worker'], 'a worker of other kinds does not help');
select public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"kinds": ["crawl"]}');

-- In line

select is(
  (select tests.as_user('ann', 'select public.explain_crawl_job(tests.job(''job''))')),
  jsonb_build_object(
    'job_id', tests.job('job'),
    'status', 'pending',
    'reasons', '[{"code": "in_line", "text": "It is next in line.", "jobs_ahead": 0}]'::jsonb
  ),
  'the first job in line is next'
);
select tests.enqueue('second', 'ann');
select tests.enqueue('third', 'ann');
select is(pg_temp.sentence('third'), '2 jobs are ahead of it in line.', 'a job in line has the number of jobs ahead of it');
update public.crawl_workers set last_seen_at = now() - interval '1 hour' where true;
select is(pg_temp.reasons('job'), array['no_worker'], 'a lost worker does not count');
update public.crawl_workers set last_seen_at = now() where true;

-- Host, quota, time

select tests.claim('job');
select tests.enqueue('same-host', 'ann', '{"url": "https://job.example/"}');
select is(pg_temp.reasons('same-host'), array['host_busy'], 'a busy host is a reason');
select is(
  pg_temp.sentence('same-host'),
  'Host job.example is being crawled by 1 other job; the limit is 1.',
  'the sentence does not say whose job occupies the host'
);
update public.crawl_settings set max_running_jobs_per_user = 1 where id;
select is(pg_temp.reasons('second'), array['quota'], 'the owner''s limit is a reason');
select is(pg_temp.reasons('same-host'), array['host_busy', 'quota'], 'all reasons are returned');
update public.crawl_settings set max_running_jobs_per_user = null where id;
update silkline.jobs set host = 'list of ' || owner_id where id in (tests.job('job'), tests.job('same-host'));
select is(pg_temp.reasons('same-host'), array['host_busy'], 'a list waits for another list of its owner');
select is(
  pg_temp.sentence('same-host'),
  'Running lists of URLs of its owner: 1; the limit is 1.',
  'the sentence names lists, not a host'
);
update public.crawl_settings set max_lists_per_user = 2 where id;
select isnt(pg_temp.reasons('same-host'), array['host_busy'], 'lists have a limit of their own');
update public.crawl_settings set max_lists_per_user = 1 where id;
update silkline.jobs set host = 'job.example' where id in (tests.job('job'), tests.job('same-host'));
select tests.enqueue('later', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select is(pg_temp.reasons('later'), array['scheduled'], 'a job with a later run_after is scheduled');
select is(
  (select tests.as_user('ann', 'select public.explain_crawl_job(tests.job(''later''))')) #>> '{reasons,0,until}',
  to_jsonb(now() + interval '1 hour') #>> '{}',
  'a scheduled job says until when'
);
select public.fail_crawl_job(tests.token('job'), 'oom', null, true, 60);
select is(pg_temp.reasons('job'), array['backoff'], 'a job that broke waits for its backoff');
select is(
  pg_temp.sentence('job'),
  format('Attempt 1 failed (oom); the job is retried after %s.', now() + interval '60 seconds'),
  'the sentence says what failed and when the job is retried'
);

-- The other states

select tests.claim('second');
select is(pg_temp.reasons('second'), array['running'], 'a running job says so');
insert into public.crawl_hosts (host, backoff_until) values ('second.example', now() + interval '1 minute');
select is(
  pg_temp.sentence('second'),
  format('It is running; requests to host second.example are on hold until %s.', to_jsonb(now() + interval '1 minute') #>> '{}'),
  'and what it waits for'
);
update public.crawl_hosts set backoff_until = null, crawl_delay_seconds = 10 where host = 'second.example';
select is(
  pg_temp.sentence('second'),
  'It is running; host second.example gets one request every 10 seconds.',
  'and how slow its requests are'
);
select is(
  (select tests.as_user('ann', 'select public.explain_crawl_job(tests.job(''second''))')) #> '{reasons,0,wait}',
  '{"reason": "delay", "seconds": 10}',
  'the wait is also there as JSON'
);
select tests.age('second', '31 seconds');
select is(pg_temp.reasons('second'), array['worker_silent'], 'a silent worker is a reason before it is lost');
select is(
  pg_temp.sentence('second'),
  'The last heartbeat of its worker was 31 seconds ago; after 120 another takes over.',
  'the sentence says for how long it has been silent'
);
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''second''))');
select is(pg_temp.reasons('second'), array['paused'], 'a paused job says so');
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''second''))');
select is(pg_temp.reasons('second'), array['stopped'], 'a stopped job says so');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''third''))');
select is(pg_temp.reasons('third'), array['cancelled'], 'a cancelled job says so');
select public.release_crawl_job(tests.token('second'));
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''same-host''))');
select tests.claimed_job('failed', 'ann');
select public.fail_crawl_job(tests.token('failed'), 'oom', 'out of memory', false);
select is(pg_temp.sentence('failed'), 'It failed on its first attempt: out of memory', 'a failed job says why');
select tests.claimed_job('patient', 'ann');
select public.release_crawl_job(tests.token('patient'), 'later', 90);
select is(pg_temp.reasons('patient'), array['backoff'], 'a job whose site asked to wait is in backoff');
select is(
  pg_temp.sentence('patient'),
  format('Host patient.example asked to wait; the job continues after %s.', now() + interval '90 seconds'),
  'the sentence says which host asked, and until when'
);
select tests.enqueue('nobodys');
select is(
  (select tests.as_service('select public.explain_crawl_job(tests.job(''nobodys''))')) ->> 'status',
  'pending',
  'the service may ask about any job'
);

-- Bad input

select tests.remember();
select throws_ok(
  $$ select tests.as_user('ann', 'select public.explain_crawl_job(null)') $$,
  'PT400',
  'p_job_id must not be null',
  'null for the job is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select public.explain_crawl_job(''nonsense'')') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'an id that is not a uuid is refused'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select public.explain_crawl_job(tests.token(''nowhere''))') $$,
  'PT404',
  format('there is no job %s', tests.token('nowhere')),
  'a job that does not exist is not found'
);
select throws_ok(
  $$ select tests.as_user('bob', 'select public.explain_crawl_job(tests.job(''job''))') $$,
  'PT404',
  format('there is no job %s', tests.job('job')),
  'another user''s job looks like one that does not exist'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select public.explain_crawl_job(tests.job(''nobodys''))') $$,
  'PT404',
  format('there is no job %s', tests.job('nobodys')),
  'users may not ask about a job of the service'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select public.explain_crawl_job(tests.job(''job''))') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not ask'
);
select is(tests.fingerprint(), tests.remembered(), 'asking changed no row');

-- Who may call it

select function_privs_are('public', 'explain_crawl_job', array['uuid'], 'authenticated', array['EXECUTE'], 'users may ask');
select function_privs_are('public', 'explain_crawl_job', array['uuid'], 'service_role', array['EXECUTE'], 'the service may ask');
select function_privs_are('public', 'explain_crawl_job', array['uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not ask');
select function_privs_are('public', 'explain_crawl_job', array['uuid'], 'anon', '{}'::text[], 'anonymous callers may not ask');
select throws_ok(
  $$ select tests.as_worker('select public.explain_crawl_job(tests.job(''job''))') $$,
  '42501',
  'permission denied for function explain_crawl_job',
  'a worker with the limited key that tries to ask is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.explain_crawl_job(tests.job(''job''))') $$,
  '42501',
  'permission denied for function explain_crawl_job',
  'an anonymous caller who tries to ask is refused'
);

select * from finish();
rollback;

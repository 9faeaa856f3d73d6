-- fail_crawl_job: a broken crawl is retried with backoff while retries are left.

begin;
select plan(53);

select tests.make_users('ann');

create function pg_temp.fail(
  p_name text,
  p_code text default 'crashed:SIGSEGV',
  p_is_retryable boolean default true,
  p_after integer default null
)
  returns table (token uuid, job_id uuid, command text, status text)
  language sql
as $$
  select answer.lease_token, answer.job_id, answer.command, answer.status::text
  from public.fail_crawl_job(tests.token(p_name), p_code, 'it broke', p_is_retryable, p_after) as answer;
$$;

-- Claim the job again, whatever it waits for, under a new token.
create function pg_temp.claim_again(p_name text, p_token text)
  returns void
  language sql
as $$
  select tests.age(p_name, '1 hour');
  select public.claim_crawl_jobs(tests.worker_id(), array[tests.token(p_token)]);
$$;

-- Retries with backoff

select tests.claimed_job('broken', 'ann', '{"max_retries": 2}');
select results_eq(
  $$
    select tests.as_worker($sql$
      select job_id, command, status
      from public.fail_crawl_job(tests.token('broken'), 'oom', 'out of memory')
    $sql$)
  $$,
  $$ select jsonb_build_object('job_id', tests.job('broken'), 'command', 'continue', 'status', 'pending') $$,
  'after a worker with the limited key reports a broken crawl, the job is pending again'
);
select results_eq(
  $$
    select waits_for::text, retry_count, error_code, error_message, worker_id, lease_check_at, completed_at
    from silkline.jobs
    where id = tests.job('broken')
  $$,
  $$ values ('time', 1, 'oom', 'out of memory', null::uuid, null::timestamptz, null::timestamptz) $$,
  'it waits for its time, with one retry spent and the error stored'
);
select ok(
  (
    select run_after between now() + interval '7.5 seconds' and now() + interval '15 seconds'
    from silkline.jobs
    where id = tests.job('broken')
  ),
  'the first retry comes after half to all of the base'
);
select tests.age('broken', '5 seconds');
select tests.remember();
select results_eq(
  $$ select * from pg_temp.fail('broken', 'another') $$,
  $$ values (tests.token('broken'), tests.job('broken'), 'continue', 'pending') $$,
  'a repeated call gets the same answer'
);
select is(tests.fingerprint(), tests.remembered(), 'a repeated call spends no second retry');
select pg_temp.claim_again('broken', 'broken-2');
select is(tests.status('broken'), 'processing', 'after its backoff the job is claimed again');
select pg_temp.fail('broken-2');
select ok(
  (
    select run_after between now() + interval '15 seconds' and now() + interval '30 seconds'
    from silkline.jobs
    where id = tests.job('broken')
  ),
  'each retry waits twice as long'
);
select pg_temp.claim_again('broken', 'broken-3');
select results_eq(
  $$ select command, status from pg_temp.fail('broken-3', 'timeout') $$,
  $$ values ('continue', 'failed') $$,
  'max_retries 2 means three attempts; then the job has failed'
);
select results_eq(
  $$ select attempt, retry_count, completed_at, error_code from silkline.jobs where id = tests.job('broken') $$,
  $$ values (3, 2, now(), 'timeout') $$,
  'a failed job has its attempts, end time and last error'
);

update public.crawl_settings set backoff_base_seconds = 600, backoff_cap_seconds = 900 where id;
select tests.claimed_job('capped', 'ann', '{"max_retries": 20}');
update silkline.jobs set retry_count = 19 where id = tests.job('capped');
select pg_temp.fail('capped');
select ok(
  (
    select run_after between now() + interval '450 seconds' and now() + interval '900 seconds'
    from silkline.jobs
    where id = tests.job('capped')
  ),
  'no backoff is longer than the cap'
);
update public.crawl_settings set backoff_base_seconds = 15 where id;

select tests.claimed_job('told', 'ann');
select pg_temp.fail('told', 'http:429', true, 77);
select is(
  (select run_after from silkline.jobs where id = tests.job('told')),
  now() + interval '77 seconds',
  'a worker may choose when to retry'
);
select tests.claimed_job('hopeless', 'ann');
select results_eq(
  $$ select status from pg_temp.fail('hopeless', 'bad_payload', false) $$,
  $$ values ('failed') $$,
  'an error that is not retryable fails the job at once'
);
select is(
  (select retry_count from silkline.jobs where id = tests.job('hopeless')),
  0,
  'a job that failed at once spent no retry'
);
select tests.claimed_job('default', 'ann');
select results_eq(
  $$ select status from pg_temp.fail('default', 'oom', null) $$,
  $$ values ('pending') $$,
  'null for p_is_retryable means retryable'
);
select tests.claimed_job('never', 'ann', '{"max_retries": 0}');
select results_eq(
  $$ select status from pg_temp.fail('never') $$,
  $$ values ('failed') $$,
  'max_retries 0 means one attempt'
);
select tests.claimed_job('talkative', 'ann');
select public.fail_crawl_job(tests.token('talkative'), 'oom', repeat('e', 10000000));
select is(
  (select length(error_message) from silkline.jobs where id = tests.job('talkative')),
  10000,
  'an error message of ten megabytes is cut'
);
delete from silkline.jobs where true;

-- URLs in flight become suspects

select tests.claimed_job('poison', 'ann', '{"max_retries": 1}');
select tests.checkpoint('poison', jsonb_build_object('seq', 1, 'discovered', tests.links('https://p.example/')), 1);
select pg_temp.fail('poison');
select results_eq(
  $$ select status::text, crashes::integer, lease_token from silkline.tasks where job_id = tests.job('poison') $$,
  $$ values ('pending', 1, null::uuid) $$,
  'a URL in flight during a crash is pending again, and a suspect'
);
select pg_temp.claim_again('poison', 'poison-2');
select tests.checkpoint('poison-2', '{"seq": 1}', 1);
select results_eq(
  $$ select status from pg_temp.fail('poison-2') $$,
  $$ values ('pending') $$,
  'a crash that finds poison costs the job no retry, even the last one'
);
select results_eq(
  $$ select status::text, last_error, finished_at from silkline.tasks where job_id = tests.job('poison') $$,
  $$ values ('error', 'poison: the process died twice while fetching this URL', now()) $$,
  'a suspect that crashes the process alone ends as poison'
);
select results_eq(
  $$ select retry_count, run_after from silkline.jobs where id = tests.job('poison') $$,
  $$ values (1, now()) $$,
  'with the poison gone, the job runs again at once'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after crashes');
delete from silkline.jobs where true;

-- Suspects by name

create function pg_temp.tasks(p_name text)
  returns table (url text, status text, crashes integer, attempts integer)
  language sql
as $$
  select right(task.url, 1), task.status::text, task.crashes, task.attempts
  from silkline.tasks as task
  where task.job_id = tests.job(p_name)
  order by task.url;
$$;

select tests.claimed_job('named', 'ann', '{"max_pages": 3, "max_retries": 5}');
select tests.checkpoint(
  'named',
  jsonb_build_object('seq', 1, 'discovered', tests.links('https://n.example/1', 'https://n.example/2', 'https://n.example/3')),
  3
);
select public.fail_crawl_job(
  tests.token('named'), 'oom', null, true, 0,
  array[tests.url_key('https://n.example/2'), tests.url_key('https://else.example/')]
);
select results_eq(
  $$ select * from pg_temp.tasks('named') $$,
  $$ values ('1', 'pending', 0, 0), ('2', 'pending', 1, 1), ('3', 'pending', 0, 0) $$,
  'only the URL that was being fetched is a suspect; the others get their attempt back'
);
select is(
  (select pages_spent from silkline.states where job_id = tests.job('named')),
  1,
  'with their first attempt they are refunded to the budget'
);
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('named-2')]);
select is(
  jsonb_array_length(tests.checkpoint('named-2', '{"seq": 1}', 10) -> 'tasks'),
  2,
  'URLs that were not begun are leased as before, and the suspect waits'
);
select public.fail_crawl_job(tests.token('named-2'), 'oom', null, true, 0, '{}');
select results_eq(
  $$ select * from pg_temp.tasks('named') $$,
  $$ values ('1', 'pending', 0, 0), ('2', 'pending', 1, 1), ('3', 'pending', 0, 0) $$,
  'a process that died with nothing in flight makes no suspect'
);
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('named-3')]);
select tests.checkpoint('named-3', '{"seq": 1}', 10);
select tests.checkpoint(
  'named-3',
  jsonb_build_object('seq', 2, 'finished', jsonb_build_array(tests.fetched('https://n.example/1'), tests.fetched('https://n.example/3'))),
  10
);
select public.fail_crawl_job(tests.token('named-3'), 'oom', null, true, 0, array[tests.url_key('https://n.example/2')]);
select results_eq(
  $$ select * from pg_temp.tasks('named') $$,
  $$ values ('1', 'done', 0, 1), ('2', 'error', 2, 2), ('3', 'done', 0, 1) $$,
  'a suspect that is reported again is poison'
);
select is(
  (select retry_count from silkline.jobs where id = tests.job('named')),
  2,
  'the crash that finds poison costs no retry'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after named crashes');
delete from silkline.jobs where true;

-- The user's decision wins

select tests.claimed_job(name, 'ann') from unnest(array['paused', 'stopped', 'cancelled']) as name;
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''paused''))');
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''stopped''))');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''cancelled''))');
select results_eq($$ select command, status from pg_temp.fail('paused') $$, $$ values ('pause', 'paused') $$, 'a paused job that breaks stays paused');
select results_eq($$ select command, status from pg_temp.fail('stopped') $$, $$ values ('stop', 'stopped') $$, 'a stopped job that breaks stays stopped');
select results_eq($$ select command, status from pg_temp.fail('cancelled') $$, $$ values ('cancel', 'cancelled') $$, 'a cancelled job that breaks stays cancelled');
select is_empty(
  $$ select idempotency_key from silkline.jobs where num_nonnulls(worker_id, lease_check_at, host_slot) > 0 or retry_count > 0 $$,
  'each of them has ended its lease and spent no retry'
);

-- Lost leases

select tests.claimed_job('zombie', 'ann');
select tests.age('zombie', '3 minutes');
select public.reap_crawl_jobs();
select public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('zombie-2')]);
select tests.age('zombie', '1 minute');
select tests.remember();
select results_eq(
  $$ select * from pg_temp.fail('zombie') $$,
  $$ values (tests.token('zombie'), null::uuid, 'lost', null::text) $$,
  'a late worker cannot fail a job that another worker runs'
);
select results_eq($$ select command from pg_temp.fail('never-claimed') $$, $$ values ('lost') $$, 'a token that never was a lease is lost');
select is(tests.fingerprint(), tests.remembered(), 'a lost lease writes nothing');

-- Bad input

select throws_ok(
  $$ select * from public.fail_crawl_job(null, 'oom') $$,
  'PT400',
  'p_lease_token must not be null',
  'a failure without a lease token is refused'
);
select throws_ok(
  $$ select * from public.fail_crawl_job('nonsense', 'oom') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'a token that is not a uuid is refused'
);
select throws_ok(
  $$ select * from pg_temp.fail('zombie-2', null) $$,
  'PT422',
  'p_error_code must be a short code, not NULL',
  'a failure without a code is refused'
);
select throws_ok(
  $$ select * from pg_temp.fail('zombie-2', '') $$,
  'PT422',
  'p_error_code must be a short code, not ''''',
  'an empty code is refused'
);
select throws_ok(
  $$ select * from pg_temp.fail('zombie-2', 'it just broke') $$,
  'PT422',
  'p_error_code must be a short code, not ''it just broke''',
  'a sentence for a code is refused'
);
select throws_ok(
  $$ select * from pg_temp.fail('zombie-2', repeat('x', 10000000)) $$,
  'PT422',
  format('p_error_code must be a short code, not %L', repeat('x', 100)),
  'a code of ten megabytes is refused, and the message is short'
);
select throws_ok(
  $$ select * from pg_temp.fail('zombie-2', 'oom', true, -1) $$,
  'PT422',
  'p_retry_after_seconds must be from 0 to 604800, not -1',
  'a negative wait is refused'
);
select throws_ok(
  $$ select * from pg_temp.fail('zombie-2', 'oom', true, 604801) $$,
  'PT422',
  'p_retry_after_seconds must be from 0 to 604800, not 604801',
  'a wait of more than a week is refused'
);
select throws_ok(
  $$ select public.fail_crawl_job(tests.token('zombie-2'), 'oom', p_suspects => array[null]::uuid[]) $$,
  'PT422',
  'p_suspects must be a list of at most 10000 uuids without nulls',
  'null among the suspects is refused'
);
select throws_ok(
  $$ select public.fail_crawl_job(tests.token('zombie-2'), 'oom', p_suspects => array(select gen_random_uuid() from generate_series(1, 10001))) $$,
  'PT422',
  'p_suspects must be a list of at most 10000 uuids without nulls',
  'more than 10000 suspects are refused'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- How long it ran

select public.fail_crawl_job(tests.token('zombie-2'), 'oom', p_running_seconds => 0.5) from generate_series(1, 2);
select is(
  (select running_seconds from silkline.jobs where id = tests.job('zombie')),
  0.5::real,
  'the running time of a failed lease is added, once'
);

-- Who may call it

select function_privs_are('public', 'fail_crawl_job', array['uuid', 'text', 'text', 'boolean', 'integer', 'uuid[]', 'real'], 'service_role', array['EXECUTE'], 'the service may report failures');
select function_privs_are('public', 'fail_crawl_job', array['uuid', 'text', 'text', 'boolean', 'integer', 'uuid[]', 'real'], 'crawl_worker', array['EXECUTE'], 'workers may report failures');
select function_privs_are('public', 'fail_crawl_job', array['uuid', 'text', 'text', 'boolean', 'integer', 'uuid[]', 'real'], 'authenticated', '{}'::text[], 'users may not report failures');
select function_privs_are('public', 'fail_crawl_job', array['uuid', 'text', 'text', 'boolean', 'integer', 'uuid[]', 'real'], 'anon', '{}'::text[], 'anonymous callers may not report failures');
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.fail_crawl_job(tests.token(''zombie-2''), ''oom'')') $$,
  '42501',
  'permission denied for function fail_crawl_job',
  'a user who tries to fail her own job is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.fail_crawl_job(tests.token(''zombie-2''), ''oom'')') $$,
  '42501',
  'permission denied for function fail_crawl_job',
  'an anonymous caller who tries to fail a job is refused'
);

select * from finish();
rollback;

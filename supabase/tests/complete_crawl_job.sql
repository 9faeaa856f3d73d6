-- complete_crawl_job: a drained job ends, once, and never against its user's decision.

begin;
select plan(56);

select tests.make_users('ann');

create function pg_temp.complete(p_name text, p_result jsonb default '{}', p_audit jsonb default null)
  returns table (token uuid, job_id uuid, command text, status text)
  language sql
as $$
  select answer.lease_token, answer.job_id, answer.command, answer.status::text
  from public.complete_crawl_job(tests.token(p_name), p_result, p_audit) as answer;
$$;

-- The usual end

select tests.claimed_job('done', 'ann');
select tests.age('done', '1 minute');
select results_eq(
  $$
    select tests.as_worker($sql$
      select job_id, command, status
      from public.complete_crawl_job(tests.token('done'), '{"pages": 3}')
    $sql$)
  $$,
  $$ select jsonb_build_object('job_id', tests.job('done'), 'command', 'continue', 'status', 'completed') $$,
  'a worker with the limited key completes a drained job'
);
select results_eq(
  $$
    select status::text, completed_at, progress_percentage::integer, result, worker_id, lease_check_at, host_slot::integer
    from silkline.jobs
    where id = tests.job('done')
  $$,
  $$ values ('completed', now(), 100, '{"done": 0, "error": 0, "skipped": 0, "pages": 3}'::jsonb, null::uuid, null::timestamptz, null::integer) $$,
  'a completed job has its result, its end time, 100 percent and no lease'
);
select tests.remember();
select results_eq(
  $$ select * from pg_temp.complete('done', '{"pages": 4}') $$,
  $$ values (tests.token('done'), tests.job('done'), 'continue', 'completed') $$,
  'a repeated call gets the same answer'
);
select is(tests.fingerprint(), tests.remembered(), 'a repeated call changes nothing');

-- Not drained

select tests.claimed_job('open', 'ann');
select tests.checkpoint('open', jsonb_build_object('seq', 1, 'discovered', tests.links('https://o.example/1', 'https://o.example/2')), 1);
select tests.age('open', '1 minute');
select tests.remember();
select throws_ok(
  $$ select * from pg_temp.complete('open') $$,
  'PT409',
  format('job %s is not drained: 2 URLs are left', tests.job('open')),
  'a job with URLs pending or in flight is not completed'
);
select is(tests.fingerprint(), tests.remembered(), 'a refused completion changes nothing');
select public.release_crawl_job(tests.token('open'));
delete from silkline.jobs where id = tests.job('open');

-- How long it ran

select tests.claimed_job('timed', 'ann');
select public.release_crawl_job(tests.token('timed'), p_running_seconds => 2.5);
select is(
  (select running_seconds from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('timed-2')])),
  2.5::real,
  'a claim returns how long earlier leases ran the job'
);
select public.complete_crawl_job(tests.token('timed-2'), p_running_seconds => 1.25) from generate_series(1, 2);
select is(
  (select running_seconds from silkline.jobs where id = tests.job('timed')),
  3.75::real,
  'the running time of a lease is added, once'
);

-- The user's decision wins

select tests.claimed_job(name, 'ann') from unnest(array['paused', 'stopped', 'cancelled']) as name;
select tests.checkpoint(name, jsonb_build_object('seq', 1, 'discovered', tests.links('https://w.example/')), 1)
from unnest(array['paused', 'stopped', 'cancelled']) as name;
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''paused''))');
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''stopped''))');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''cancelled''))');
select results_eq(
  $$ select command, status from pg_temp.complete('paused', '{"pages": 1}') $$,
  $$ values ('pause', 'paused') $$,
  'a job that was paused meanwhile stays paused'
);
select results_eq(
  $$ select command, status from pg_temp.complete('stopped', '{"pages": 1}') $$,
  $$ values ('stop', 'stopped') $$,
  'a job that was stopped meanwhile stays stopped'
);
select results_eq(
  $$ select command, status from pg_temp.complete('cancelled', '{"pages": 1}') $$,
  $$ values ('cancel', 'cancelled') $$,
  'a job that was cancelled meanwhile stays cancelled'
);
select is_empty(
  $$ select idempotency_key from silkline.jobs where num_nonnulls(worker_id, lease_check_at, host_slot) > 0 $$,
  'none of them has a lease any more'
);
select results_eq(
  $$ select idempotency_key, result from silkline.jobs where status in ('paused', 'stopped', 'cancelled') order by 1 $$,
  $$
    values
      ('cancelled', null),
      ('paused', '{"done": 0, "error": 0, "skipped": 0, "pages": 1}'::jsonb),
      ('stopped', '{"done": 0, "error": 0, "skipped": 0, "pages": 1}'::jsonb)
  $$,
  'paused and stopped jobs keep their results, cancelled ones do not'
);
select is_empty(
  $$ select url from silkline.tasks where status = 'in_progress' $$,
  'no URL stays in flight without a lease'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after completing');

-- Lost leases

select tests.claimed_job('zombie', 'ann');
select tests.age('zombie', '3 minutes');
select public.reap_crawl_jobs();
select tests.age('zombie', '1 minute');
select tests.remember();
select results_eq(
  $$ select * from pg_temp.complete('zombie', '{"pages": 9}', '{"score": 1, "grade": "F", "categories": {}, "findings": [], "ruleset_version": "1"}') $$,
  $$ values (tests.token('zombie'), null::uuid, 'lost', null::text) $$,
  'a late worker cannot complete a reaped job'
);
select results_eq(
  $$ select command from pg_temp.complete('never-claimed') $$,
  $$ values ('lost') $$,
  'a token that never was a lease is lost'
);
select is(tests.fingerprint(), tests.remembered(), 'a lost lease writes nothing: no status, no result, no audit');
select public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('zombie-2')]);
select tests.age('zombie', '1 minute');
select tests.remember();
select results_eq(
  $$ select command from pg_temp.complete('zombie') $$,
  $$ values ('lost') $$,
  'a late worker cannot complete a job that another worker runs'
);
select is(tests.fingerprint(), tests.remembered(), 'the job of the other worker is untouched');

-- Audits

select tests.claimed_job('audit', 'ann');
select tests.remember();
select throws_ok(
  format('select * from pg_temp.complete(%L, %L, %L)', 'audit', '{}', bad.audit),
  bad.code,
  case bad.code
    when 'PT422' then 'p_audit must be an object with exactly the keys score, grade, categories, findings and ruleset_version'
    else format('new row for relation "crawl_audits" violates check constraint "crawl_audits_%s"', bad.rule)
  end,
  bad.claim
)
from (
  values
    ('5', 'PT422', null, 'an audit that is not an object is refused'),
    ('{"score": 101, "grade": "A", "categories": {}, "findings": [], "ruleset_version": "1"}', 'PT422', null, 'a score of 101 is refused'),
    ('{"score": -1, "grade": "A", "categories": {}, "findings": [], "ruleset_version": "1"}', 'PT422', null, 'a negative score is refused'),
    ('{"score": "good", "grade": "A", "categories": {}, "findings": [], "ruleset_version": "1"}', 'PT422', null, 'a score that is not a number is refused'),
    ('{"score": 90, "categories": {}, "findings": [], "ruleset_version": "1"}', 'PT422', null, 'an audit without a grade is refused'),
    ('{"score": 90, "grade": "A", "categories": [], "findings": [], "ruleset_version": "1"}', '23514', 'categories_are_an_object', 'categories that are not an object are refused'),
    ('{"score": 90, "grade": "A", "categories": {}, "findings": {}, "ruleset_version": "1"}', '23514', 'findings_are_a_list', 'findings that are not a list are refused'),
    ('{"score": 90, "grade": "A", "categories": {}, "findings": [], "ruleset_version": "1", "colour": 1}', 'PT422', null, 'an unknown key in an audit is refused')
) as bad (audit, code, rule, claim);
select throws_like(
  $$
    select * from pg_temp.complete(
      'audit',
      '{}',
      jsonb_build_object('score', 90, 'grade', 'A', 'categories', '{}'::jsonb, 'findings', jsonb_build_array(repeat('f', 10000000)), 'ruleset_version', '1')
    )
  $$,
  'p_audit has % bytes, more than 5000000',
  'an audit of ten megabytes is refused'
);
select is(tests.fingerprint(), tests.remembered(), 'a refused audit changed no row');
select results_eq(
  $$ select status from pg_temp.complete('audit', '{}', '{"score": 90, "grade": "A", "categories": {"seo": 90}, "findings": [{"rule": "title"}], "ruleset_version": "1"}') $$,
  $$ values ('completed') $$,
  'an audit completes with its findings'
);
select results_eq(
  $$ select score::integer, grade, categories, findings, ruleset_version from public.crawl_audits where job_id = tests.job('audit') $$,
  $$ values (90, 'A', '{"seo": 90}'::jsonb, '[{"rule": "title"}]'::jsonb, '1') $$,
  'its findings are stored with the job'
);

-- Bad input

select tests.claimed_job('kept', 'ann');
select tests.age('kept', '10 seconds');
select tests.remember();
select throws_ok(
  $$ select * from public.complete_crawl_job(null) $$,
  'PT400',
  'p_lease_token must not be null',
  'a completion without a lease token is refused'
);
select throws_ok(
  $$ select * from public.complete_crawl_job('nonsense') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'a token that is not a uuid is refused'
);
select throws_ok(
  $$ select * from pg_temp.complete('kept', null) $$,
  'PT422',
  'p_result must be a JSON object of at most 64 KB',
  'null for the result is refused'
);
select throws_ok(
  $$ select * from pg_temp.complete('kept', '[]') $$,
  'PT422',
  'p_result must be a JSON object of at most 64 KB',
  'a result that is not an object is refused'
);
select throws_ok(
  $$ select * from pg_temp.complete('kept', jsonb_build_object('text', repeat('t', 10000000))) $$,
  'PT422',
  'p_result must be a JSON object of at most 64 KB',
  'a result of ten megabytes is refused'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

select throws_ok(
  format('select public.%s, p_running_seconds => %s)', call.call, bad.seconds),
  'PT422',
  format('p_running_seconds must be from 0 to 604800, not %s', bad.told),
  format('%s does not take a running time of %s', split_part(call.call, '(', 1), bad.told)
)
from (
  values
    ('complete_crawl_job(tests.token(''zombie-2'')'),
    ('fail_crawl_job(tests.token(''zombie-2''), ''oom'''),
    ('release_crawl_job(tests.token(''zombie-2'')')
) as call (call)
cross join (
  values ('-1', '-1'), ('604801', '604801'), ('null', 'null'), ('''NaN''', 'NaN')
) as bad (seconds, told);

-- Who may call it

select function_privs_are('public', 'complete_crawl_job', array['uuid', 'jsonb', 'jsonb', 'real'], 'service_role', array['EXECUTE'], 'the service may complete');
select function_privs_are('public', 'complete_crawl_job', array['uuid', 'jsonb', 'jsonb', 'real'], 'crawl_worker', array['EXECUTE'], 'workers may complete');
select function_privs_are('public', 'complete_crawl_job', array['uuid', 'jsonb', 'jsonb', 'real'], 'authenticated', '{}'::text[], 'users may not complete');
select function_privs_are('public', 'complete_crawl_job', array['uuid', 'jsonb', 'jsonb', 'real'], 'anon', '{}'::text[], 'anonymous callers may not complete');
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.complete_crawl_job(tests.token(''kept''))') $$,
  '42501',
  'permission denied for function complete_crawl_job',
  'a user who tries to complete her own job is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.complete_crawl_job(tests.token(''kept''))') $$,
  '42501',
  'permission denied for function complete_crawl_job',
  'an anonymous caller who tries to complete is refused'
);

select * from finish();
rollback;

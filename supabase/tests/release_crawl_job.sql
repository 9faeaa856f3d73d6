-- release_crawl_job: hands a job back without losses, or confirms a pause, stop or cancel.

begin;
select plan(60);

select tests.make_users('ann');

create function pg_temp.release(p_name text, p_reason text default 'shutdown')
  returns table (token uuid, job_id uuid, command text, status text)
  language sql
as $$
  select answer.lease_token, answer.job_id, answer.command, answer.status::text
  from public.release_crawl_job(tests.token(p_name), p_reason) as answer;
$$;

-- Shutdown

select tests.claimed_job('handed-back', 'ann', '{"max_retries": 0}');
select tests.checkpoint('handed-back', jsonb_build_object('seq', 1, 'discovered', tests.links('https://h.example/')), 1);
select results_eq(
  $$
    select tests.as_worker($sql$
      select job_id, command, status from public.release_crawl_job(tests.token('handed-back'))
    $sql$)
  $$,
  $$ select jsonb_build_object('job_id', tests.job('handed-back'), 'command', 'continue', 'status', 'pending') $$,
  'a worker with the limited key releases a job'
);
select results_eq(
  $$
    select status::text, waits_for::text, retry_count, run_after, worker_id, lease_check_at, host_slot::integer
    from silkline.jobs
    where id = tests.job('handed-back')
  $$,
  $$ values ('pending', null::text, 0, now(), null::uuid, null::timestamptz, null::integer) $$,
  'it is in line at once, and no retry is spent, even if none is left'
);
select results_eq(
  $$ select status::text, crashes::integer, lease_token from silkline.tasks where job_id = tests.job('handed-back') $$,
  $$ values ('pending', 0, null::uuid) $$,
  'its URLs in flight are free again, and not suspects'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after a release');
select tests.age('handed-back', '1 minute');
select tests.remember();
select results_eq(
  $$ select * from pg_temp.release('handed-back') $$,
  $$ values (tests.token('handed-back'), tests.job('handed-back'), 'continue', 'pending') $$,
  'a repeated call gets the same answer'
);
select is(tests.fingerprint(), tests.remembered(), 'a repeated call changes nothing');
select public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('next')]);
select is(
  (select worker_id from silkline.jobs where id = tests.job('handed-back')),
  tests.worker_id('other'),
  'another worker takes a released job at once'
);
select tests.age('handed-back', '1 minute');
select tests.remember();
select results_eq(
  $$ select * from pg_temp.release('handed-back') $$,
  $$ values (tests.token('handed-back'), null::uuid, 'lost', null::text) $$,
  'once another worker has claimed the job, the old token is lost'
);
select results_eq($$ select command from pg_temp.release('never-claimed') $$, $$ values ('lost') $$, 'a token that never was a lease is lost');
select is(tests.fingerprint(), tests.remembered(), 'a lost lease writes nothing');

-- The jobs of a killed worker

select tests.claimed_job('killed', 'ann', '{"max_retries": 1}');
select tests.checkpoint('killed', jsonb_build_object('seq', 1, 'discovered', tests.links('https://k.example/')), 1);
select results_eq(
  $$ select status from pg_temp.release('killed', 'worker_restarted') $$,
  $$ values ('pending') $$,
  'a successor releases the jobs of a killed worker'
);
select results_eq(
  $$ select job.retry_count, task.losses::integer, task.crashes::integer from silkline.jobs as job join silkline.tasks as task on task.job_id = job.id where job.id = tests.job('killed') $$,
  $$ values (1, 1, 0) $$,
  'a killed worker counts as lost: one retry, and URLs that are marked but not suspects'
);
select results_eq(
  $$ select status::text, waits_for::text, error_code, error_message from silkline.jobs where id = tests.job('killed') $$,
  $$ values ('pending', null::text, 'worker_lost', format('worker %s was killed', tests.worker_id())) $$,
  'the job is in line at once, and says that its worker was killed'
);
select tests.remember();
select results_eq(
  $$ select command, status from pg_temp.release('killed', 'worker_restarted') $$,
  $$ values ('continue', 'pending') $$,
  'a successor that repeats the call gets the same answer'
);
select is(tests.fingerprint(), tests.remembered(), 'a killed worker costs one retry, however often that is reported');
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('killed-2')]);
select results_eq(
  $$ select status from pg_temp.release('killed-2', 'worker_restarted') $$,
  $$ values ('failed') $$,
  'a job whose worker was killed fails if no retries are left'
);
select results_eq(
  $$ select error_code, completed_at, lease_check_at from silkline.jobs where id = tests.job('killed') $$,
  $$ values ('worker_lost', now(), null::timestamptz) $$,
  'the failed job says that its worker was killed'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after kills');
select tests.claimed_job('reaped', 'ann', '{"max_retries": 1}');
select tests.checkpoint('reaped', jsonb_build_object('seq', 1, 'discovered', tests.links('https://k.example/')), 1);
select tests.age('reaped', '3 minutes');
select public.reap_crawl_jobs();
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('reaped-2')]);
select tests.age('reaped', '3 minutes');
select public.reap_crawl_jobs();
select results_eq(
  $$ select seq, from_status, to_status, actor, actor_id, reason, attempt, error_code from silkline.events where job_id = tests.job('killed') order by seq $$,
  $$ select seq, from_status, to_status, actor, actor_id, reason, attempt, error_code from silkline.events where job_id = tests.job('reaped') order by seq $$,
  'history is the same whether the successor or the reaper finds that a worker is gone'
);
select results_eq(
  $$ select status, waits_for, attempt, retry_count, error_code, running_seconds, completed_at from silkline.jobs where id = tests.job('killed') $$,
  $$ select status, waits_for, attempt, retry_count, error_code, running_seconds, completed_at from silkline.jobs where id = tests.job('reaped') $$,
  'and so is the job'
);

-- The confirmation of a user's decision

select tests.claimed_job(name, 'ann') from unnest(array['paused', 'stopped', 'cancelled']) as name;
select tests.checkpoint(name, jsonb_build_object('seq', 1, 'discovered', tests.links('https://w.example/')), 1)
from unnest(array['paused', 'stopped', 'cancelled']) as name;
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''paused''))');
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''stopped''))');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''cancelled''))');
select results_eq($$ select command, status from pg_temp.release('paused') $$, $$ values ('pause', 'paused') $$, 'a paused job that is released stays paused');
select results_eq($$ select command, status from pg_temp.release('stopped') $$, $$ values ('stop', 'stopped') $$, 'a stopped job that is released stays stopped');
select results_eq($$ select command, status from pg_temp.release('cancelled', 'worker_restarted') $$, $$ values ('cancel', 'cancelled') $$, 'a cancelled job of a killed worker stays cancelled');
select is_empty(
  $$
    select idempotency_key
    from silkline.jobs
    where idempotency_key in ('paused', 'stopped', 'cancelled')
      and (num_nonnulls(worker_id, lease_check_at, host_slot) > 0 or retry_count > 0)
  $$,
  'each of them has ended its lease and spent no retry'
);
select is_empty(
  $$ select url from silkline.tasks where status = 'in_progress' and job_id in (tests.job('paused'), tests.job('stopped'), tests.job('cancelled')) $$,
  'no URL stays in flight without a lease'
);

-- Attempts and budget are refunded

select tests.claimed_job('often', 'ann', '{"max_pages": 2}');
select tests.checkpoint('often', jsonb_build_object('seq', 1, 'discovered', tests.links('https://o.example/1', 'https://o.example/2', 'https://o.example/3')), 10);
select public.release_crawl_job(tests.token('often'));
select results_eq(
  $$ select attempts::integer from silkline.tasks where job_id = tests.job('often') $$,
  $$ values (0), (0), (0) $$,
  'a leased URL that was not fetched gets its attempt back'
);
select is((select pages_spent from silkline.states where job_id = tests.job('often')), 0, 'and is refunded to the budget');
do $do$
begin
  for nth in 1..40 loop
    perform public.claim_crawl_jobs(tests.worker_id(), array[tests.token('often' || nth)]);
    perform tests.checkpoint('often' || nth, '{"seq": 1}', 10);
    perform public.release_crawl_job(tests.token('often' || nth));
  end loop;
end
$do$;
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('often-last')]);
select is(
  jsonb_path_query_array(tests.checkpoint('often-last', '{"seq": 1}', 10), '$.tasks[*].attempts'),
  '[1, 1]',
  'after forty releases, URLs still start with their first attempt'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after releases');
delete from silkline.jobs where true;

-- Later

select tests.claimed_job('patient', 'ann', '{"max_retries": 0}');
select tests.checkpoint('patient', jsonb_build_object('seq', 1, 'discovered', tests.links('https://patient.example/1', 'https://patient.example/2')), 2);
select tests.checkpoint(
  'patient',
  jsonb_build_object(
    'seq', 2,
    'finished', jsonb_build_array(tests.fetched('https://patient.example/1')),
    'retried', jsonb_build_array(jsonb_build_object('url_key', tests.url_key('https://patient.example/2'), 'after_seconds', 600, 'error', 'http 429'))
  )
);
select tests.enqueue('same-host', 'ann', '{"url": "https://patient.example/"}');
select is_empty($$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('same-host')]) $$, 'while it runs its host is busy');
select results_eq(
  $$ select command, status::text from public.release_crawl_job(tests.token('patient'), 'later', 600) $$,
  $$ values ('continue', 'pending') $$,
  'a job whose site asked to wait is released for later'
);
select results_eq(
  $$ select waits_for::text, run_after, retry_count, error_code, lease_check_at from silkline.jobs where id = tests.job('patient') $$,
  $$ values ('time', now() + interval '600 seconds', 0, null::text, null::timestamptz) $$,
  'it waits for its time, and spends no retry, not even its last'
);
select results_eq(
  $$ select total_done, total_pending from silkline.states where job_id = tests.job('patient') $$,
  $$ values (1, 1) $$,
  'it keeps its results'
);
select results_eq(
  $$ select reason, actor::text from silkline.events where job_id = tests.job('patient') order by seq desc limit 1 $$,
  $$ values ('later', 'worker') $$,
  'history says why'
);
select results_eq(
  $$ select command, status::text from public.release_crawl_job(tests.token('patient'), 'later', 60) $$,
  $$ values ('continue', 'pending') $$,
  'a repeated call gets the same answer'
);
select is((select run_after from silkline.jobs where id = tests.job('patient')), now() + interval '600 seconds', 'and changes nothing');
select results_eq(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('same-host')]) $$,
  $$ select tests.job('same-host') $$,
  'meanwhile its host is free for others'
);
select public.complete_crawl_job(tests.token('same-host'));
select tests.age('patient', '600 seconds');
select results_eq(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('patient-2')]) $$,
  $$ select tests.job('patient') $$,
  'it is claimed again when its time comes'
);
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''patient''))');
select results_eq(
  $$ select command, status::text from public.release_crawl_job(tests.token('patient-2'), 'later', 600) $$,
  $$ values ('pause', 'paused') $$,
  'a job that was paused meanwhile stays paused'
);
delete from silkline.jobs where true;

-- It keeps its turn

delete from silkline.jobs where true;
select tests.claimed_job('interrupted', 'ann');
select tests.enqueue('new-' || nth, 'ann') from generate_series(1, 3) as nth;
select tests.enqueue('important', null, '{}', 'crawl', 5);
select public.release_crawl_job(tests.token('interrupted'));
select results_eq(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('i-1')]) $$,
  $$ values (tests.job('important')) $$,
  'a released job does not overtake a higher priority'
);
select isnt_empty(
  $$
    select id
    from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('i-2'), tests.token('i-3')])
    where id = tests.job('interrupted')
  $$,
  'a released job is first or second in line'
);
delete from silkline.jobs where true;

-- Bad input

select tests.claimed_job('kept', 'ann');
select tests.age('kept', '10 seconds');
select tests.remember();
select throws_ok(
  $$ select * from public.release_crawl_job(null) $$,
  'PT400',
  'p_lease_token must not be null',
  'a release without a lease token is refused'
);
select throws_ok(
  $$ select * from public.release_crawl_job('nonsense') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'a token that is not a uuid is refused'
);
select throws_ok(
  $$ select * from pg_temp.release('kept', null) $$,
  'PT422',
  'p_reason must be shutdown, later or worker_restarted, not NULL',
  'null for the reason is refused'
);
select throws_ok(
  $$ select * from pg_temp.release('kept', 'bored') $$,
  'PT422',
  'p_reason must be shutdown, later or worker_restarted, not ''bored''',
  'an unknown reason is refused'
);
select throws_ok(
  $$ select * from pg_temp.release('kept', repeat('x', 10000000)) $$,
  'PT422',
  format('p_reason must be shutdown, later or worker_restarted, not %L', repeat('x', 100)),
  'a reason of ten megabytes is refused, and the message is short'
);
select throws_ok(
  format('select public.release_crawl_job(tests.token(%L), %L, %s)', 'kept', bad.reason, bad.seconds),
  'PT422',
  bad.message,
  bad.claim
)
from (
  values
    ('later', 'null', 'p_after_seconds must be from 1 to 86400, not null', 'later without a time is refused'),
    ('later', '0', 'p_after_seconds must be from 1 to 86400, not 0', 'later in 0 seconds is refused'),
    ('later', '86401', 'p_after_seconds must be from 1 to 86400, not 86401', 'later in more than a day is refused'),
    ('shutdown', '60', 'p_after_seconds cannot be used with the reason shutdown', 'a shutdown with a time is refused')
) as bad (reason, seconds, message, claim);
select throws_ok(
  $$ select public.release_crawl_job(tests.token('kept'), 'worker_restarted', p_running_seconds => 5) $$,
  'PT422',
  'p_running_seconds cannot be used with the reason worker_restarted',
  'a running time for a killed worker is refused'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');
select is(tests.status('kept'), 'processing', 'the job continues');

-- How long it ran

select tests.claimed_job('timed-' || reason, 'ann') from unnest(array['shutdown', 'later', 'paused']) as reason;
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''timed-paused''))');
select public.release_crawl_job(
  tests.token('timed-' || reason),
  case reason when 'later' then 'later' else 'shutdown' end,
  case reason when 'later' then 60 end,
  7
)
from unnest(array['shutdown', 'later', 'paused']) as reason
cross join generate_series(1, 2);
select results_eq(
  $$ select running_seconds from silkline.jobs where idempotency_key like 'timed-%' $$,
  $$ values (7::real), (7), (7) $$,
  'the running time of a released lease is added, once, for every reason'
);

-- Who may call it

select function_privs_are('public', 'release_crawl_job', array['uuid', 'text', 'integer', 'real'], 'service_role', array['EXECUTE'], 'the service may release');
select function_privs_are('public', 'release_crawl_job', array['uuid', 'text', 'integer', 'real'], 'crawl_worker', array['EXECUTE'], 'workers may release');
select function_privs_are('public', 'release_crawl_job', array['uuid', 'text', 'integer', 'real'], 'authenticated', '{}'::text[], 'users may not release');
select function_privs_are('public', 'release_crawl_job', array['uuid', 'text', 'integer', 'real'], 'anon', '{}'::text[], 'anonymous callers may not release');
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.release_crawl_job(tests.token(''kept''))') $$,
  '42501',
  'permission denied for function release_crawl_job',
  'a user who tries to release her own job is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.release_crawl_job(tests.token(''kept''))') $$,
  '42501',
  'permission denied for function release_crawl_job',
  'an anonymous caller who tries to release is refused'
);

select * from finish();
rollback;

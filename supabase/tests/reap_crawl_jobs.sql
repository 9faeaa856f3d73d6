-- reap_crawl_jobs: ends the leases of silent workers, and never those of live ones.

begin;
select plan(43);

select tests.make_users('ann');

create function pg_temp.reap(p_limit integer default 100)
  returns table (token uuid, job_id uuid, command text, status text)
  language sql
as $$
  select answer.lease_token, answer.job_id, answer.command, answer.status::text
  from public.reap_crawl_jobs(p_limit) as answer;
$$;

-- Live and silent workers

select is_empty($$ select * from pg_temp.reap() $$, 'a queue without leases returns no rows');
select tests.claimed_job('live', 'ann');
select tests.claimed_job('silent', 'ann', '{"max_retries": 1}');
select tests.checkpoint('silent', jsonb_build_object('seq', 1, 'discovered', tests.links('https://s.example/')), 1);
select tests.age('live', '119 seconds');
select tests.age('silent', '121 seconds');
select results_eq(
  $$
    select tests.as_worker('select lease_token, job_id, command, status from public.reap_crawl_jobs()')
  $$,
  $$
    select jsonb_build_object(
      'lease_token', tests.token('silent'),
      'job_id', tests.job('silent'),
      'command', 'lost',
      'status', 'pending'
    )
  $$,
  'a lease ends stale_after seconds after its last heartbeat, and not a second earlier'
);
select is(tests.status('live'), 'processing', 'the job of a live worker continues');
select results_eq(
  $$
    select status::text, waits_for::text, retry_count, run_after, error_code, worker_id, lease_token, lease_check_at, host_slot::integer
    from silkline.jobs
    where id = tests.job('silent')
  $$,
  $$ values ('pending', null::text, 1, now(), 'worker_lost', null::uuid, null::uuid, null::timestamptz, null::integer) $$,
  'a reaped job is in line at once, with one retry spent and no trace of the lease'
);
select is(
  (select error_message from silkline.jobs where id = tests.job('silent')),
  format('no heartbeat from worker %s since %s', tests.worker_id(), now() - interval '121 seconds'),
  'a reaped job says since when its worker has been silent'
);
select results_eq(
  $$ select status::text, crashes::integer, attempts::integer from silkline.tasks where job_id = tests.job('silent') $$,
  $$ values ('pending', 0, 0) $$,
  'its URLs in flight are free, get their attempt back, and are not suspects'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after reaping');
select is(
  (select running_seconds from silkline.jobs where id = tests.job('silent')),
  0::real,
  'the running time of a lost worker is not counted'
);
select results_eq(
  $$ select reason, actor::text, actor_id, from_status::text, to_status::text, error_code from silkline.events where job_id = tests.job('silent') order by seq desc limit 1 $$,
  $$ values ('worker_lost', 'system', null::uuid, 'processing', 'pending', 'worker_lost') $$,
  'history says that its worker was lost'
);
select is_empty($$ select * from pg_temp.reap() $$, 'a lease is reaped once');

-- A renewed lease is checked again later

select tests.age('live', '10 seconds');
select public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('live')]);
select is_empty($$ select * from pg_temp.reap() $$, 'a lease that is renewed in time is kept, however long it is held');
select is(
  (select lease_check_at from silkline.jobs where id = tests.job('live')),
  now() + interval '120 seconds',
  'the reaper checks it again when it could next be stale'
);
select tests.age('live', '121 seconds');
select results_eq($$ select job_id from pg_temp.reap() $$, $$ values (tests.job('live')) $$, 'and reaps it then');
delete from silkline.jobs where id = tests.job('live');

-- No retries left

select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('silent-2')]);
select tests.age('silent', '3 minutes');
select results_eq($$ select status from pg_temp.reap() $$, $$ values ('failed') $$, 'a job whose worker is lost fails if no retries are left');
select results_eq(
  $$ select status::text, completed_at, error_code, retry_count from silkline.jobs where id = tests.job('silent') $$,
  $$ values ('failed', now(), 'worker_lost', 1) $$,
  'the failed job says why, and its retries stay within the limit'
);

-- Poison

select tests.claimed_job('poison', 'ann', '{"max_retries": 0}');
select tests.checkpoint('poison', jsonb_build_object('seq', 1, 'discovered', tests.links('https://p.example/')), 1);
update silkline.tasks set crashes = 1 where job_id = tests.job('poison');
select tests.age('poison', '3 minutes');
select results_eq($$ select status from pg_temp.reap() $$, $$ values ('pending') $$, 'a lost worker that exposes poison costs no retry');
select is(
  (select status::text from silkline.tasks where job_id = tests.job('poison')),
  'error',
  'the poison URL has ended'
);
delete from silkline.jobs where true;

-- A page that kills machines

create function pg_temp.lose(p_name text, p_nth integer)
  returns jsonb
  language plpgsql
as $$
declare
  v_handed_out jsonb;
begin
  perform public.claim_crawl_jobs(tests.worker_id(), array[tests.token(p_name || p_nth)]);
  v_handed_out := tests.checkpoint(
    p_name || p_nth,
    jsonb_build_object('seq', 1, 'discovered', tests.links('https://m.example/1', 'https://m.example/2')),
    10
  );
  -- The second run finishes the first page, so only the other one is in flight when it dies.
  if p_nth = 2 then
    perform tests.checkpoint(
      p_name || p_nth,
      jsonb_build_object('seq', 2, 'finished', jsonb_build_array(tests.fetched('https://m.example/1')))
    );
  end if;
  perform tests.age(p_name, '3 minutes');
  perform public.reap_crawl_jobs();
  return v_handed_out -> 'tasks';
end
$$;

create function pg_temp.killer()
  returns table (status text, losses integer, crashes integer)
  language sql
as $$
  select task.status::text, task.losses, task.crashes
  from silkline.tasks as task
  where task.url_key = tests.url_key('https://m.example/2');
$$;

select tests.enqueue('killer', 'ann', '{"max_retries": 2}');
select is(jsonb_array_length(pg_temp.lose('killer', 1)), 2, 'two URLs are in flight when the first machine dies');
select results_eq($$ select * from pg_temp.killer() $$, $$ values ('pending', 1, 0) $$, 'after the first lost machine, the URLs are only marked');
select is(jsonb_array_length(pg_temp.lose('killer', 2)), 2, 'after a lost machine, its URLs are leased together again');
select results_eq($$ select * from pg_temp.killer() $$, $$ values ('pending', 1, 1) $$, 'a URL in flight during a second loss is a suspect');
select pg_temp.lose('killer', 3);
select results_eq($$ select * from pg_temp.killer() $$, $$ values ('error', 1, 2) $$, 'the third loss makes it poison');
select results_eq(
  $$ select status::text, retry_count from silkline.jobs where id = tests.job('killer') $$,
  $$ values ('pending', 2) $$,
  'and the job continues, because that costs no retry'
);
delete from silkline.jobs where true;

-- The user's decision

select tests.claimed_job(name, 'ann') from unnest(array['paused', 'stopped', 'cancelled']) as name;
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''paused''))');
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''stopped''))');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''cancelled''))');
select tests.age(name, '3 minutes') from unnest(array['paused', 'stopped', 'cancelled']) as name;
select set_eq(
  $$ select job_id, command, status from pg_temp.reap() $$,
  $$
    values
      (tests.job('paused'), 'lost', 'paused'),
      (tests.job('stopped'), 'lost', 'stopped'),
      (tests.job('cancelled'), 'lost', 'cancelled')
  $$,
  'a lost worker that did not release loses its lease; the user''s decision stays'
);
select is_empty(
  $$ select idempotency_key from silkline.jobs where num_nonnulls(worker_id, lease_token, lease_check_at, host_slot) > 0 or retry_count > 0 or error_code is not null $$,
  'their leases have ended, and no retry is spent'
);
delete from silkline.jobs where true;

-- Hosts and times

select tests.claimed_job('holder', 'ann', '{"url": "https://one.example/"}');
select tests.enqueue('waiter', 'ann', '{"url": "https://one.example/"}');
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('none')]);
update silkline.jobs set max_retries = 0 where id = tests.job('holder');
select tests.age('holder', '3 minutes');
select pg_temp.reap();
select results_eq(
  $$ select status::text, waits_for::text from silkline.jobs where id = tests.job('waiter') $$,
  $$ values ('pending', null::text) $$,
  'reaping a job unblocks the next one of its host'
);
select tests.enqueue('due', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select pg_temp.reap();
select is((select waits_for::text from silkline.jobs where id = tests.job('due')), 'time', 'a job waits until its time');
select tests.age('due', '1 hour');
select pg_temp.reap();
select is((select waits_for::text from silkline.jobs where id = tests.job('due')), null, 'reaping also puts due jobs in line');
delete from silkline.jobs where true;

select tests.claimed_job('interrupted', 'ann');
select tests.enqueue('new-' || nth, 'ann') from generate_series(1, 3) as nth;
select tests.age('interrupted', '3 minutes');
select pg_temp.reap();
select isnt_empty(
  $$
    select id
    from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('i'), tests.token('j')])
    where id = tests.job('interrupted')
  $$,
  'a job whose worker was lost is first or second in line'
);
delete from silkline.jobs where true;

-- Bounded

select tests.claimed_job('many-' || nth, 'ann') from generate_series(1, 3) as nth;
select tests.age('many-' || nth, make_interval(mins => 10 - nth)) from generate_series(1, 3) as nth;
select results_eq(
  $$ select job_id from pg_temp.reap(2) $$,
  $$ values (tests.job('many-1')), (tests.job('many-2')) $$,
  'up to p_limit leases end in one call, the oldest first'
);
select results_eq($$ select job_id from pg_temp.reap(2) $$, $$ values (tests.job('many-3')) $$, 'the next call continues');

-- Bad input

select tests.remember();
select throws_ok(
  $$ select * from public.reap_crawl_jobs(null) $$,
  'PT422',
  'p_limit must be from 1 to 1000, not null',
  'null for the limit is refused'
);
select throws_ok($$ select * from public.reap_crawl_jobs(0) $$, 'PT422', 'p_limit must be from 1 to 1000, not 0', 'a limit of 0 is refused');
select throws_ok($$ select * from public.reap_crawl_jobs(-1) $$, 'PT422', 'p_limit must be from 1 to 1000, not -1', 'a negative limit is refused');
select throws_ok($$ select * from public.reap_crawl_jobs(1001) $$, 'PT422', 'p_limit must be from 1 to 1000, not 1001', 'a limit of 1001 is refused');
select throws_ok($$ select * from public.reap_crawl_jobs('many') $$, '22P02', 'invalid input syntax for type integer: "many"', 'a limit that is not a number is refused');
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'reap_crawl_jobs', array['integer'], 'service_role', array['EXECUTE'], 'the service may reap');
select function_privs_are('public', 'reap_crawl_jobs', array['integer'], 'crawl_worker', array['EXECUTE'], 'workers may reap');
select function_privs_are('public', 'reap_crawl_jobs', array['integer'], 'authenticated', '{}'::text[], 'users may not reap');
select function_privs_are('public', 'reap_crawl_jobs', array['integer'], 'anon', '{}'::text[], 'anonymous callers may not reap');
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.reap_crawl_jobs()') $$,
  '42501',
  'permission denied for function reap_crawl_jobs',
  'a user who tries to reap is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.reap_crawl_jobs()') $$,
  '42501',
  'permission denied for function reap_crawl_jobs',
  'an anonymous caller who tries to reap is refused'
);

select * from finish();
rollback;

-- claim_crawl_jobs: what a worker gets, in which order, and which jobs are set aside.

begin;
select plan(73);

select tests.make_users('ann', 'bob', 'carol');

create function pg_temp.claim(variadic p_tokens text[])
  returns setof text
  language sql
as $$
  select job.idempotency_key
  from public.claim_crawl_jobs(
    tests.worker_id(),
    array(select tests.token(name) from unnest(p_tokens) as name)
  ) as lease
  join silkline.jobs as job
    on job.id = lease.id;
$$;

create function pg_temp.waits_for(p_name text)
  returns text
  language sql
as $$
  select coalesce(job.waits_for::text, 'nothing')
  from silkline.jobs as job
  where job.id = tests.job(p_name);
$$;

-- An empty queue

select is_empty($$ select pg_temp.claim('none') $$, 'an empty queue returns no rows');

-- What a claim does to a job

select tests.enqueue('first', 'ann');
select tests.age('first', '1 hour');
select results_eq(
  $$ select tests.as_worker('select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token(''first'')])') $$,
  $$ select to_jsonb(tests.job('first')) $$,
  'a worker with the limited key gets the first job in line'
);
select results_eq(
  $$
    select status::text, worker_id, lease_token, attempt, started_at, last_heartbeat, host_slot::integer
    from silkline.jobs
    where id = tests.job('first')
  $$,
  $$ select 'processing', tests.worker_id(), tests.token('first'), 1, now(), now(), 1 $$,
  'a claimed job is processing, under the lease of its worker'
);
select is(
  (select lease_check_at from silkline.jobs where id = tests.job('first')),
  now() + interval '120 seconds',
  'the reaper checks the lease after stale_after'
);
select results_eq(
  $$ select to_jsonb(lease) from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('first')]) as lease $$,
  $$
    select jsonb_build_object(
      'lease_token', tests.token('first'),
      'id', job.id,
      'user_id', tests.user_id('ann'),
      'kind', 'crawl',
      'payload', job.payload,
      'priority', 0,
      'source_id', job.source_id,
      'host', 'first.example',
      'status', 'processing',
      'attempt', 1,
      'retry_count', 0,
      'max_retries', 3,
      'running_seconds', 0,
      'created_at', now() - interval '1 hour',
      'started_at', now()
    )
    from silkline.jobs as job
    where job.id = tests.job('first')
  $$,
  'the answer has what a worker needs, and nothing about places, slots and keys'
);

-- The token is the idempotency key

select tests.enqueue('second', 'ann');
select results_eq(
  $$ select pg_temp.claim('first') $$,
  $$ values ('first') $$,
  'the same token again returns the same job'
);
select is(
  (select attempt from silkline.jobs where id = tests.job('first')),
  1,
  'a repeated claim does not count as an attempt'
);
select is(tests.status('second'), 'pending', 'a repeated claim takes no second job');
select set_eq(
  $$ select pg_temp.claim('first', 'second') $$,
  array['first', 'second'],
  'known tokens return their jobs, new ones take more, in one call'
);
select is_empty(
  $$ select * from public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('first')]) $$,
  'the token of another worker returns nothing'
);
select tests.enqueue('third', 'ann');
select public.release_crawl_job(tests.token('second'));
select is_empty($$ select pg_temp.claim('second') $$, 'a token whose lease has ended takes nothing again');
select is(
  (select lease_token from silkline.jobs where id = tests.job('third')),
  null,
  'a token whose lease has ended was not used for another job'
);
select set_eq(
  $$ select pg_temp.claim('again', 'third') $$,
  array['second', 'third'],
  'a released job is claimed again under a new token'
);
select is(
  (select attempt from silkline.jobs where id = tests.job('second')),
  2,
  'a second claim counts as a second attempt'
);
select is_empty($$ select pg_temp.claim('more') $$, 'a claimed job is not claimed again');
select set_config('tests.reaped', lease_token::text, true) from silkline.jobs where id = tests.job('third');
select tests.age('third', '3 minutes');
select public.reap_crawl_jobs();
select is(
  (select attempt from silkline.jobs where id = tests.job('third')),
  1,
  'reaping does not count as an attempt'
);
select is_empty(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[current_setting('tests.reaped')::uuid]) $$,
  'a token whose lease was reaped takes nothing again'
);
select is_empty($$ select pg_temp.claim('second') $$, 'nor does one whose job has been claimed under another token');
select results_eq($$ select pg_temp.claim('unused') $$, $$ values ('third') $$, 'a new token takes the job that they did not');
delete from silkline.jobs where true;
select tests.enqueue('fourth', 'ann');
select is_empty($$ select pg_temp.claim('first', 'second', 'third', 'again', 'unused') $$, 'tokens of deleted jobs take nothing again');
delete from silkline.jobs where true;

-- Order: the priority of the service, then turns between users

select tests.enqueue('low', null, '{}', 'crawl', -5);
select tests.enqueue('normal');
select tests.enqueue('high', null, '{}', 'crawl', 5);
select results_eq($$ select pg_temp.claim('order-1') $$, $$ values ('high') $$, 'the highest priority goes first');
select results_eq($$ select pg_temp.claim('order-2') $$, $$ values ('normal') $$, 'then the next priority');
select results_eq($$ select pg_temp.claim('order-3') $$, $$ values ('low') $$, 'the lowest priority goes last');
delete from silkline.jobs where true;

select tests.enqueue('ann-' || nth, 'ann') from generate_series(1, 20) as nth;
select tests.enqueue('bob-1', 'bob');
select tests.enqueue('bob-2', 'bob');
select set_eq(
  $$ select pg_temp.claim('turn-1', 'turn-2', 'turn-3', 'turn-4') $$,
  array['ann-1', 'ann-2', 'bob-1', 'bob-2'],
  'users take turns: twenty jobs of one do not delay two of another'
);
delete from silkline.jobs where true;

-- A user's own priority

select tests.enqueue('ann-' || nth, 'ann') from generate_series(1, 3) as nth;
select tests.enqueue('bob-' || nth, 'bob', '{}', 'crawl', 90 + nth) from generate_series(1, 4) as nth;
select set_eq(
  $$ select pg_temp.claim('own-1', 'own-2') $$,
  array['ann-1', 'bob-4'],
  'a user''s priority orders that user''s jobs, and beats no turn of another'
);
select set_eq($$ select pg_temp.claim('own-3', 'own-4') $$, array['ann-2', 'bob-3'], 'nor the next turn');
select set_eq($$ select pg_temp.claim('own-5', 'own-6', 'own-7') $$, array['ann-3', 'bob-2', 'bob-1'], 'and every job is claimed');
delete from silkline.jobs where true;

update public.crawl_settings set max_user_priority = 10 where id;
select tests.enqueue('ann', 'ann', '{}', 'crawl', 9);
select tests.enqueue('bob', 'bob', '{}', 'crawl', 10);
select results_eq($$ select pg_temp.claim('max-1') $$, $$ values ('bob') $$, 'up to max_user_priority, a user''s priority counts among all users');
update public.crawl_settings set max_user_priority = 0 where id;
delete from silkline.jobs where true;

-- Kinds

update public.crawl_settings set plugin_kinds = '{screenshot}' where id;
select tests.enqueue('site', 'ann');
select tests.enqueue('picture', 'ann', '{}', 'screenshot');
select is_empty(
  $$ select * from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('k')], '{}') $$,
  'a worker that runs no kinds gets nothing'
);
select is_empty(
  $$ select * from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('k')], '{nonsense}') $$,
  'a worker that runs only unknown kinds gets nothing'
);
select results_eq(
  $$
    select id
    from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('k'), tests.token('l')], '{screenshot}')
  $$,
  $$ values (tests.job('picture')) $$,
  'a worker gets only jobs of the kinds it runs'
);
select results_eq($$ select pg_temp.claim('m', 'n') $$, $$ values ('site') $$, 'without p_kinds a worker gets jobs of any known kind');
delete from silkline.jobs where true;

-- Browsers

select tests.enqueue('drawn', 'ann', '{"fetcher": "browser"}');
select tests.enqueue('sent', 'ann', '{"fetcher": "auto"}');
select results_eq(
  $$
    select id
    from public.claim_crawl_jobs(
      tests.worker_id(), array[tests.token('o'), tests.token('p')], p_can_render => false
    )
  $$,
  $$ values (tests.job('sent')) $$,
  'a worker without a browser gets no job that renders every page'
);
select is_empty(
  $$
    select id
    from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('q')], '{screenshot}', true)
  $$,
  'a worker with a browser that runs no crawls gets none either'
);
select results_eq(
  $$ select pg_temp.claim('r', 's') $$,
  $$ values ('drawn') $$,
  'a worker with a browser gets it'
);
delete from silkline.jobs where true;

-- Time

select tests.enqueue('later', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select is_empty($$ select pg_temp.claim('t') $$, 'a job is not claimed before its time');
select tests.age('later', '1 hour');
select results_eq($$ select pg_temp.claim('t') $$, $$ values ('later') $$, 'a job is claimed once its time has come');
delete from silkline.jobs where true;

-- One job per host

select tests.claimed_job('host-1', 'ann', '{"url": "https://one.example/a"}');
select tests.enqueue('host-2', 'bob', '{"url": "https://ONE.example:443/b"}');
select tests.enqueue('elsewhere', 'bob');
select set_eq(
  $$ select pg_temp.claim('host-2', 'host-3') $$,
  array['elsewhere'],
  'one job per host runs at a time, across users, however the host is spelled'
);
select is(pg_temp.waits_for('host-2'), 'host', 'the second job of a host is set aside');
select is_empty($$ select pg_temp.claim('host-4') $$, 'a job that is set aside is not claimed');
select public.complete_crawl_job((select lease_token from silkline.jobs where id = tests.job('host-1')));
select is(pg_temp.waits_for('host-2'), 'nothing', 'the end of a job unblocks the next one of its host');
select results_eq($$ select pg_temp.claim('host-5') $$, $$ values ('host-2') $$, 'the unblocked job is claimed');
select public.release_crawl_job(tests.token('host-5'));
delete from silkline.jobs where true;

select tests.enqueue('row-' || nth, 'ann', '{"url": "https://one.example/"}') from generate_series(1, 60) as nth;
select tests.enqueue('behind', 'ann');
select results_eq($$ select pg_temp.claim('row-1') $$, $$ values ('row-1') $$, 'of many jobs for one host, the first is claimed');
select results_eq($$ select pg_temp.claim('row-2') $$, $$ values ('behind') $$, 'the others do not hide the job behind them');
select is_empty(
  $$ select idempotency_key from silkline.jobs where status = 'pending' and waits_for is null $$,
  'all of them are set aside, and cost the next claim nothing'
);
delete from silkline.jobs where true;

update public.crawl_settings set max_jobs_per_host = 2 where id;
select tests.enqueue('host-' || nth, 'ann', '{"url": "https://one.example/"}') from generate_series(1, 3) as nth;
select is(
  (select count(*) from pg_temp.claim('slot-1', 'slot-2', 'slot-3')),
  2::bigint,
  'max_jobs_per_host jobs run at a time'
);
select set_eq(
  $$ select host_slot::integer from silkline.jobs where status = 'processing' $$,
  array[1, 2],
  'each of them holds its own slot'
);
update public.crawl_settings set max_jobs_per_host = 1 where id;
delete from silkline.jobs where true;

-- Running jobs per owner

update public.crawl_settings set max_running_jobs_per_user = 1 where id;
select tests.enqueue('mine-1', 'ann');
select tests.enqueue('mine-2', 'ann');
select tests.enqueue('yours', 'bob');
select tests.enqueue('nobodys-1');
select tests.enqueue('nobodys-2');
select set_eq(
  $$ select pg_temp.claim('owner-1', 'owner-2', 'owner-3', 'owner-4', 'owner-5') $$,
  array['mine-1', 'yours', 'nobodys-1', 'nobodys-2'],
  'an owner runs as many jobs as allowed; jobs of the service have no limit'
);
select is(pg_temp.waits_for('mine-2'), 'owner', 'jobs over the owner''s limit are set aside');
select public.complete_crawl_job((select lease_token from silkline.jobs where id = tests.job('mine-1')));
select results_eq($$ select pg_temp.claim('owner-6') $$, $$ values ('mine-2') $$, 'when a job ends, the owner''s next job is claimed');
update public.crawl_settings set max_running_jobs_per_user = null where id;
delete from silkline.jobs where true;

-- A user's decision

select tests.enqueue('paused', 'ann');
select tests.enqueue('stopped', 'ann');
select tests.enqueue('cancelled', 'ann');
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''paused''))');
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''stopped''))');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''cancelled''))');
select is_empty($$ select pg_temp.claim('decision-1', 'decision-2', 'decision-3') $$, 'jobs that a user paused, stopped or cancelled are not claimed');
delete from silkline.jobs where true;

-- Deleted accounts

select tests.claimed_job('held', 'carol');
select tests.enqueue('abandoned', 'carol');
select tests.enqueue('behind-it', 'ann');
delete from auth.users where id = tests.user_id('carol');
select results_eq(
  $$ select pg_temp.claim('gone-1', 'gone-2') $$,
  $$ values ('behind-it') $$,
  'no job of a deleted account is claimed, and it does not delay the others'
);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('held')]) $$,
  $$ values ('lost') $$,
  'the lease of a deleted account is lost'
);
delete from silkline.jobs where true;

-- Silent workers

select tests.claimed_job('silent', 'ann', '{}', 'dead');
select tests.age('silent', '3 minutes');
select results_eq($$ select pg_temp.claim('new') $$, $$ values ('silent') $$, 'a claim reaps the lease of a silent worker and takes its job');
select results_eq(
  $$ select worker_id, lease_token, attempt, retry_count from silkline.jobs where id = tests.job('silent') $$,
  $$ select tests.worker_id(), tests.token('new'), 2, 1 $$,
  'the reaped job runs under the new lease, one retry spent'
);
select results_eq(
  $$ select error_code, error_message from silkline.jobs where id = tests.job('silent') $$,
  $$ values (null::text, null::text) $$,
  'a claim clears the error of the previous attempt'
);
delete from silkline.jobs where true;

-- Bad input

select tests.enqueue('kept', 'ann');
select tests.enqueue('kept-2', 'ann');
select tests.remember();
select throws_ok(
  $$ select * from public.claim_crawl_jobs(null, array[tests.token('x')]) $$,
  'PT400',
  'p_worker_id must not be null',
  'a claim without a worker is refused'
);
select throws_ok(
  $$ select * from public.claim_crawl_jobs(tests.worker_id(), null) $$,
  'PT400',
  'p_lease_tokens must be a list of uuids without nulls',
  'null for the tokens is refused'
);
select throws_ok(
  $$ select * from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('x'), null]) $$,
  'PT400',
  'p_lease_tokens must be a list of uuids without nulls',
  'null among the tokens is refused'
);
select throws_ok(
  $$ select * from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('x'), tests.token('x')]) $$,
  'PT422',
  'p_lease_tokens contains the same token twice',
  'the same token twice is refused'
);
select throws_ok(
  $$
    select *
    from public.claim_crawl_jobs(
      tests.worker_id(),
      array(select md5(nth::text)::uuid from generate_series(1, 1001) as nth)
    )
  $$,
  'PT422',
  'p_lease_tokens has 1001 tokens, more than 1000',
  'more than 1000 tokens are refused'
);
select throws_ok(
  $$ select * from public.claim_crawl_jobs('nonsense', array[tests.token('x')]) $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'a worker id that is not a uuid is refused'
);
select throws_ok(
  $$ select * from public.claim_crawl_jobs(tests.worker_id(), '{nonsense}') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'a token that is not a uuid is refused'
);
select throws_ok(
  $$ select * from public.claim_crawl_jobs(tests.worker_id(), array[array[tests.token('x')], array[tests.token('y')]]) $$,
  'PT400',
  'p_lease_tokens must be a list of uuids without nulls',
  'a list of lists of tokens is refused'
);
select is_empty(
  $$ select * from public.claim_crawl_jobs(tests.worker_id(), '{}') $$,
  'a claim without tokens takes no jobs'
);
select is_empty(
  $$ select * from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('x')], '{null}') $$,
  'a null kind matches no job'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'claim_crawl_jobs', array['uuid', 'uuid[]', 'text[]', 'boolean'], 'service_role', array['EXECUTE'], 'the service may claim');
select function_privs_are('public', 'claim_crawl_jobs', array['uuid', 'uuid[]', 'text[]', 'boolean'], 'crawl_worker', array['EXECUTE'], 'workers may claim');
select function_privs_are('public', 'claim_crawl_jobs', array['uuid', 'uuid[]', 'text[]', 'boolean'], 'authenticated', '{}'::text[], 'users may not claim');
select function_privs_are('public', 'claim_crawl_jobs', array['uuid', 'uuid[]', 'text[]', 'boolean'], 'anon', '{}'::text[], 'anonymous callers may not claim');
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.claim_crawl_jobs(tests.worker_id(), array[tests.token(''x'')])') $$,
  '42501',
  'permission denied for function claim_crawl_jobs',
  'a user who tries to claim is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.claim_crawl_jobs(tests.worker_id(), array[tests.token(''x'')])') $$,
  '42501',
  'permission denied for function claim_crawl_jobs',
  'an anonymous caller who tries to claim is refused'
);

select * from finish();
rollback;

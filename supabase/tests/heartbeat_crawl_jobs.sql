-- heartbeat_crawl_jobs: leases are renewed, workers registered, and each lease answered.

begin;
select plan(40);

select tests.make_users('ann', 'bob');

create function pg_temp.beat(p_worker text, variadic p_tokens text[])
  returns table (token uuid, job_id uuid, command text, status text)
  language sql
as $$
  select answer.lease_token, answer.job_id, answer.command, answer.status::text
  from public.heartbeat_crawl_jobs(
    tests.worker_id(p_worker),
    array(select tests.token(name) from unnest(p_tokens) as name)
  ) as answer;
$$;

-- Renewal and commands

select tests.claimed_job(name, 'ann')
from unnest(array['goes-on', 'paused', 'stopped', 'cancelled']) as name;
select tests.age(name, '60 seconds')
from unnest(array['goes-on', 'paused', 'stopped', 'cancelled']) as name;
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''paused''))');
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''stopped''))');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''cancelled''))');

select set_eq(
  $$ select * from pg_temp.beat('worker', 'goes-on', 'paused', 'stopped', 'cancelled') $$,
  $$
    values
      (tests.token('goes-on'), tests.job('goes-on'), 'continue', 'processing'),
      (tests.token('paused'), tests.job('paused'), 'pause', 'paused'),
      (tests.token('stopped'), tests.job('stopped'), 'stop', 'stopped'),
      (tests.token('cancelled'), tests.job('cancelled'), 'cancel', 'cancelled')
  $$,
  'each lease is answered with what its user wants'
);
select is_empty(
  $$ select idempotency_key from public.crawl_jobs where last_heartbeat < now() $$,
  'every lease is renewed, also of jobs that are still being saved'
);
select is(
  (select lease_check_at from public.crawl_jobs where id = tests.job('goes-on')),
  now() + interval '60 seconds',
  'a heartbeat moves no index entry: the reaper looks when it meant to'
);
select is(
  (select count(*) from public.crawl_events where job_id = tests.job('goes-on')),
  2::bigint,
  'a heartbeat is no event'
);

-- Lost leases

select tests.age('goes-on', '60 seconds');
delete from public.crawl_workers where true;
select public.heartbeat_crawl_jobs(tests.worker_id('other'), '{}', '{"slots": 1}');
select results_eq(
  $$ select * from pg_temp.beat('other', 'goes-on') $$,
  $$ values (tests.token('goes-on'), null::uuid, 'lost', null::text) $$,
  'the token of another worker is lost to this one'
);
select results_eq(
  $$ select * from pg_temp.beat('other', 'never-claimed') $$,
  $$ values (tests.token('never-claimed'), null::uuid, 'lost', null::text) $$,
  'a token that never was a lease is lost'
);
select is(
  (select last_heartbeat from public.crawl_jobs where id = tests.job('goes-on')),
  now() - interval '60 seconds',
  'a lost lease is not renewed'
);
select public.release_crawl_job(tests.token('goes-on'));
select results_eq(
  $$ select command from pg_temp.beat('worker', 'goes-on') $$,
  $$ values ('lost') $$,
  'a lease that its holder has ended is lost'
);
select public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('second-lease')]);
select tests.age('goes-on', '10 seconds');
select results_eq(
  $$ select command from pg_temp.beat('worker', 'goes-on') $$,
  $$ values ('lost') $$,
  'a job that another worker runs now is lost to the first'
);
select is(
  (select last_heartbeat from public.crawl_jobs where id = tests.job('goes-on')),
  now() - interval '10 seconds',
  'the heartbeat of a zombie does not keep the new lease alive'
);
select set_eq(
  $$ select job_id, command from pg_temp.beat('other', 'second-lease', 'goes-on') $$,
  $$ values (tests.job('goes-on'), 'continue'), (null::uuid, 'lost') $$,
  'live and lost leases are answered in one call'
);

-- The registry

select is(
  (
    select tests.as_worker($sql$
      select count(*)
      from public.heartbeat_crawl_jobs(
        tests.worker_id('new'),
        '{}',
        '{"hostname": "box", "version": "1.2", "slots": 4, "busy_slots": 2, "kinds": ["crawl"]}'
      )
    $sql$)
  ),
  '0'::jsonb,
  'a worker without jobs beats too, and is answered no rows'
);
select results_eq(
  $$
    select hostname, version, slots, busy_slots, kinds, started_at, last_seen_at
    from public.crawl_workers
    where id = tests.worker_id('new')
  $$,
  $$ values ('box', '1.2', 4, 2, '{crawl}'::text[], now(), now()) $$,
  'a heartbeat registers its worker'
);
update public.crawl_workers
set started_at = now() - interval '1 hour', last_seen_at = now() - interval '1 minute'
where id = tests.worker_id('new');
select public.heartbeat_crawl_jobs(tests.worker_id('new'), '{}', '{"hostname": "box", "busy_slots": 3, "slots": 4}');
select results_eq(
  $$ select busy_slots, started_at, last_seen_at from public.crawl_workers where id = tests.worker_id('new') $$,
  $$ values (3, now() - interval '1 hour', now()) $$,
  'the next heartbeat tells what changed; the start stays'
);
select public.heartbeat_crawl_jobs(tests.worker_id('terse'), '{}');
select results_eq(
  $$ select hostname, version, slots, kinds from public.crawl_workers where id = tests.worker_id('terse') $$,
  $$ values ('unknown', 'unknown', 0, '{}'::text[]) $$,
  'a worker that says nothing of itself is registered all the same'
);
select public.heartbeat_crawl_jobs(
  tests.worker_id('long'),
  '{}',
  jsonb_build_object('hostname', repeat('h', 1000), 'version', repeat('v', 1000))
);
select results_eq(
  $$ select length(hostname), length(version) from public.crawl_workers where id = tests.worker_id('long') $$,
  $$ values (255, 100) $$,
  'names that are too long are cut'
);

-- The end of a worker

select public.heartbeat_crawl_jobs(tests.worker_id('terse'), '{}', '{"has_ended": true}');
select is_empty(
  $$ select from public.crawl_workers where id = tests.worker_id('terse') $$,
  'a worker that has ended leaves the fleet'
);
select public.heartbeat_crawl_jobs(tests.worker_id('new'), '{}', '{"has_ended": false}');
select isnt_empty(
  $$ select from public.crawl_workers where id = tests.worker_id('new') $$,
  'one that has not, stays'
);

-- Bad input

select tests.age('goes-on', '10 seconds');
select tests.remember();
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(null, '{}') $$,
  'PT400',
  'p_worker_id must not be null',
  'a heartbeat names its worker'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), null) $$,
  'PT400',
  'p_lease_tokens must be a list of uuids without nulls',
  'null for the tokens is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{null}') $$,
  'PT400',
  'p_lease_tokens must be a list of uuids without nulls',
  'null among the tokens is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id('other'), array[tests.token('second-lease'), tests.token('second-lease')]) $$,
  'PT422',
  'p_lease_tokens contains the same token twice',
  'a token is sent once'
);
select throws_ok(
  $$
    select *
    from public.heartbeat_crawl_jobs(
      tests.worker_id(),
      array(select md5(nth::text)::uuid from generate_series(1, 1001) as nth)
    )
  $$,
  'PT422',
  'p_lease_tokens has 1001 tokens, more than 1000',
  'more than 1000 tokens are refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs('nonsense', '{}') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'a worker id that is no uuid is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', null) $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds and has_ended',
  'null for the worker is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '[]') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds and has_ended',
  'a worker that is no object is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"colour": "red"}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds and has_ended',
  'an unknown key of the worker is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"slots": -1}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds and has_ended',
  'a negative number of slots is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"slots": "many"}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds and has_ended',
  'slots that are no number are refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"slots": 99999999999}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds and has_ended',
  'a number of slots past all bounds is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"kinds": "crawl"}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds and has_ended',
  'kinds that are no list are refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"has_ended": "perhaps"}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds and has_ended',
  'an end that is neither true nor false is refused'
);
select throws_like(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', jsonb_build_object('hostname', repeat('h', 10000000))) $$,
  'p_worker has % bytes, more than 10000',
  'ten megabytes about a worker are refused'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'heartbeat_crawl_jobs', array['uuid', 'uuid[]', 'jsonb'], 'service_role', array['EXECUTE'], 'the service may beat');
select function_privs_are('public', 'heartbeat_crawl_jobs', array['uuid', 'uuid[]', 'jsonb'], 'crawl_worker', array['EXECUTE'], 'workers may beat');
select function_privs_are('public', 'heartbeat_crawl_jobs', array['uuid', 'uuid[]', 'jsonb'], 'authenticated', '{}'::text[], 'users may not beat');
select function_privs_are('public', 'heartbeat_crawl_jobs', array['uuid', 'uuid[]', 'jsonb'], 'anon', '{}'::text[], 'anonymous callers may not beat');
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.heartbeat_crawl_jobs(tests.worker_id(), ''{}'')') $$,
  '42501',
  'permission denied for function heartbeat_crawl_jobs',
  'a user who tries to beat is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.heartbeat_crawl_jobs(tests.worker_id(), ''{}'')') $$,
  '42501',
  'permission denied for function heartbeat_crawl_jobs',
  'an anonymous caller who tries to beat is refused'
);

select * from finish();
rollback;

-- heartbeat_crawl_jobs: renews leases, registers workers, and returns a command per lease.

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
  'each lease gets the command of its user'
);
select is_empty(
  $$ select idempotency_key from silkline.jobs where last_heartbeat < now() $$,
  'every lease is renewed, even of jobs that are still being saved'
);
select is(
  (select lease_check_at from silkline.jobs where id = tests.job('goes-on')),
  now() + interval '60 seconds',
  'a heartbeat does not change lease_check_at, which is indexed'
);
select is(
  (select count(*) from silkline.events where job_id = tests.job('goes-on')),
  2::bigint,
  'a heartbeat adds no event'
);

-- Lost leases

select tests.age('goes-on', '60 seconds');
delete from public.crawl_workers where true;
select public.heartbeat_crawl_jobs(tests.worker_id('other'), '{}', '{"slots": 1}');
select results_eq(
  $$ select * from pg_temp.beat('other', 'goes-on') $$,
  $$ values (tests.token('goes-on'), null::uuid, 'lost', null::text) $$,
  'the token of another worker is lost'
);
select results_eq(
  $$ select * from pg_temp.beat('other', 'never-claimed') $$,
  $$ values (tests.token('never-claimed'), null::uuid, 'lost', null::text) $$,
  'a token that never was a lease is lost'
);
select is(
  (select last_heartbeat from silkline.jobs where id = tests.job('goes-on')),
  now() - interval '60 seconds',
  'a lost lease is not renewed'
);
select public.release_crawl_job(tests.token('goes-on'));
select results_eq(
  $$ select command from pg_temp.beat('worker', 'goes-on') $$,
  $$ values ('lost') $$,
  'an ended lease is lost'
);
select public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('second-lease')]);
select tests.age('goes-on', '10 seconds');
select results_eq(
  $$ select command from pg_temp.beat('worker', 'goes-on') $$,
  $$ values ('lost') $$,
  'after another worker has claimed a job, the first lease is lost'
);
select is(
  (select last_heartbeat from silkline.jobs where id = tests.job('goes-on')),
  now() - interval '10 seconds',
  'the heartbeat of a lost worker does not renew the new lease'
);
select set_eq(
  $$ select job_id, command from pg_temp.beat('other', 'second-lease', 'goes-on') $$,
  $$ values (tests.job('goes-on'), 'continue'), (null::uuid, 'lost') $$,
  'one call answers live and lost leases'
);

-- The list of workers

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
  'a worker without jobs may send a heartbeat, and gets no rows'
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
  'the next heartbeat updates the worker, but not started_at'
);
select public.heartbeat_crawl_jobs(tests.worker_id('terse'), '{}');
select results_eq(
  $$ select hostname, version, slots, kinds from public.crawl_workers where id = tests.worker_id('terse') $$,
  $$ values ('unknown', 'unknown', 0, '{}'::text[]) $$,
  'a worker without a description is registered, too'
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
  'a worker that has ended is removed'
);
select public.heartbeat_crawl_jobs(tests.worker_id('new'), '{}', '{"has_ended": false}');
select isnt_empty(
  $$ select from public.crawl_workers where id = tests.worker_id('new') $$,
  'a worker that has not ended stays'
);

-- Bad input

select tests.age('goes-on', '10 seconds');
select tests.remember();
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(null, '{}') $$,
  'PT400',
  'p_worker_id must not be null',
  'a heartbeat without a worker id is refused'
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
  'the same token twice is refused'
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
  'a worker id that is not a uuid is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', null) $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds, can_render and has_ended',
  'null for the worker is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '[]') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds, can_render and has_ended',
  'a worker that is not an object is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"colour": "red"}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds, can_render and has_ended',
  'an unknown key in the worker is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"slots": -1}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds, can_render and has_ended',
  'a negative number of slots is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"slots": "many"}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds, can_render and has_ended',
  'slots that are not a number are refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"slots": 99999999999}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds, can_render and has_ended',
  'a huge number of slots is refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"kinds": "crawl"}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds, can_render and has_ended',
  'kinds that are not a list are refused'
);
select throws_ok(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', '{"has_ended": "perhaps"}') $$,
  'PT422',
  'p_worker must be an object with no keys other than hostname, version, slots, busy_slots, kinds, can_render and has_ended',
  'a has_ended that is not a boolean is refused'
);
select throws_like(
  $$ select * from public.heartbeat_crawl_jobs(tests.worker_id(), '{}', jsonb_build_object('hostname', repeat('h', 10000000))) $$,
  'p_worker has % bytes, more than 10000',
  'a worker of ten megabytes is refused'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'heartbeat_crawl_jobs', array['uuid', 'uuid[]', 'jsonb'], 'service_role', array['EXECUTE'], 'the service may send heartbeats');
select function_privs_are('public', 'heartbeat_crawl_jobs', array['uuid', 'uuid[]', 'jsonb'], 'crawl_worker', array['EXECUTE'], 'workers may send heartbeats');
select function_privs_are('public', 'heartbeat_crawl_jobs', array['uuid', 'uuid[]', 'jsonb'], 'authenticated', '{}'::text[], 'users may not send heartbeats');
select function_privs_are('public', 'heartbeat_crawl_jobs', array['uuid', 'uuid[]', 'jsonb'], 'anon', '{}'::text[], 'anonymous callers may not send heartbeats');
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.heartbeat_crawl_jobs(tests.worker_id(), ''{}'')') $$,
  '42501',
  'permission denied for function heartbeat_crawl_jobs',
  'a user who tries to send a heartbeat is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.heartbeat_crawl_jobs(tests.worker_id(), ''{}'')') $$,
  '42501',
  'permission denied for function heartbeat_crawl_jobs',
  'an anonymous caller who tries to send a heartbeat is refused'
);

select * from finish();
rollback;

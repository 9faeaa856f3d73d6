-- list_crawl_workers: workers are live, late or lost by the time of the database.

begin;
select plan(12);

select tests.make_users('ann');

select is_empty($$ select * from public.list_crawl_workers() $$, 'without workers the list is empty');
select public.heartbeat_crawl_jobs(tests.worker_id(name), '{}', jsonb_build_object('hostname', name, 'version', '1', 'slots', 4, 'busy_slots', 1, 'kinds', '["crawl"]'::jsonb))
from unnest(array['new', 'live', 'late', 'almost', 'lost']) as name;
update public.crawl_workers as worker
set
  started_at = now() - interval '1 day',
  last_seen_at = now() - seen.ago
from (
  values
    ('live', interval '24 seconds'),
    ('late', interval '25 seconds'),
    ('almost', interval '119 seconds'),
    ('lost', interval '120 seconds')
) as seen (name, ago)
where worker.id = tests.worker_id(seen.name);

select results_eq(
  $$ select tests.as_service('select hostname, state from public.list_crawl_workers()') $$,
  $$
    values
      ('{"hostname": "new", "state": "live"}'::jsonb),
      ('{"hostname": "live", "state": "live"}'),
      ('{"hostname": "late", "state": "late"}'),
      ('{"hostname": "almost", "state": "late"}'),
      ('{"hostname": "lost", "state": "lost"}')
  $$,
  'live for two and a half heartbeats, late until stale_after, then lost; the latest first'
);
select results_eq(
  $$ select id, version, slots, busy_slots, kinds, started_at, last_seen_at from public.list_crawl_workers() where hostname = 'live' $$,
  $$ values (tests.worker_id('live'), '1', 4, 1, '{crawl}'::text[], now() - interval '1 day', now() - interval '24 seconds') $$,
  'a worker is listed with its own description'
);
update public.crawl_settings set heartbeat_every_seconds = 40 where id;
select results_eq(
  $$ select state from public.list_crawl_workers() where hostname = 'late' $$,
  $$ values ('live') $$,
  'the settings decide what is late'
);
select tests.remember();
select * from public.list_crawl_workers();
select is(tests.fingerprint(), tests.remembered(), 'reading changed no row');

-- Who may call it

select function_privs_are('public', 'list_crawl_workers', '{}'::name[], 'service_role', array['EXECUTE'], 'the service may list workers');
select function_privs_are('public', 'list_crawl_workers', '{}'::name[], 'authenticated', '{}'::text[], 'users may not list workers');
select function_privs_are('public', 'list_crawl_workers', '{}'::name[], 'crawl_worker', '{}'::text[], 'workers with the limited key may not list workers');
select function_privs_are('public', 'list_crawl_workers', '{}'::name[], 'anon', '{}'::text[], 'anonymous callers may not list workers');
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.list_crawl_workers()') $$,
  '42501',
  'permission denied for function list_crawl_workers',
  'a user who tries to list workers is refused'
);
select throws_ok(
  $$ select tests.as_worker('select * from public.list_crawl_workers()') $$,
  '42501',
  'permission denied for function list_crawl_workers',
  'a worker with the limited key that tries to list workers is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.list_crawl_workers()') $$,
  '42501',
  'permission denied for function list_crawl_workers',
  'an anonymous caller who tries to list workers is refused'
);

select * from finish();
rollback;

-- cancel_crawl_jobs: all jobs that match a filter end permanently, in slices. The filter and the
-- slices are the same for pause, resume, stop and retry.

begin;
select plan(75);

select tests.make_users('ann', 'bob');

-- The answer for a filter, as ann.
create function pg_temp.cancel(p_filter jsonb, p_limit integer default 1000)
  returns jsonb
  language sql
as $$
  select tests.as_user('ann', format('select public.cancel_crawl_jobs(%L, %L)', p_filter, p_limit));
$$;

-- How many jobs of ann match a filter.
create function pg_temp.count(p_filter jsonb)
  returns integer
  language sql
as $$
  select (pg_temp.cancel(p_filter, 0) -> 'matched')::integer;
$$;

-- What it does in each state

select tests.claimed_job(name, 'ann')
from unnest(array['processing', 'completed', 'failed', 'stopped-saving', 'paused-saving', 'cancelled-saving']) as name;
select public.complete_crawl_job(tests.token('completed'));
select public.fail_crawl_job(tests.token('failed'), 'broken', null, false);
select tests.enqueue(name, 'ann') from unnest(array['pending', 'paused', 'stopped', 'cancelled']) as name;
select tests.enqueue('later', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select tests.as_user('ann', format('select id from public.%s_crawl_job(tests.job(%L))', button.verb, button.name))
from (
  values
    ('pause', 'paused'),
    ('pause', 'paused-saving'),
    ('stop', 'stopped'),
    ('stop', 'stopped-saving'),
    ('cancel', 'cancelled'),
    ('cancel', 'cancelled-saving')
) as button (verb, name);
select tests.enqueue('others', 'bob');
select tests.enqueue('nobodys');
select tests.age(job.idempotency_key, '1 minute') from silkline.jobs as job;

select tests.remember();
select is(
  pg_temp.cancel('{"all": true}', 0),
  '{"matched": 5, "changed": 0, "left": 5, "count_limit": 100000}',
  'with a limit of 0 it only counts the jobs that it could cancel'
);
select is(tests.fingerprint(), tests.remembered(), 'counting changes nothing');
select is(
  pg_temp.cancel('{"all": true}'),
  '{"matched": 5, "changed": 5, "left": 0, "count_limit": 100000}',
  'jobs that are pending, running or paused are cancelled'
);
select results_eq(
  $$ select idempotency_key, status::text, completed_at = now() from silkline.jobs order by 1 $$,
  $$
    values
      ('cancelled', 'cancelled', false),
      ('cancelled-saving', 'cancelled', false),
      ('completed', 'completed', false),
      ('failed', 'failed', false),
      ('later', 'cancelled', true),
      ('nobodys', 'pending', null),
      ('others', 'pending', null),
      ('paused', 'cancelled', true),
      ('paused-saving', 'cancelled', true),
      ('pending', 'cancelled', true),
      ('processing', 'cancelled', true),
      ('stopped', 'stopped', false),
      ('stopped-saving', 'stopped', false)
  $$,
  'ended jobs stay as they are, and so do those of others'
);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('processing')]) $$,
  $$ values ('cancel') $$,
  'the worker of a running job gets the command with the next heartbeat'
);
select results_eq(
  $$
    select event.from_status::text, event.to_status::text, event.actor::text, event.actor_id, event.reason
    from silkline.events as event
    where event.job_id in (tests.job('pending'), tests.job('processing'))
      and event.to_status = 'cancelled'
    order by event.from_status
  $$,
  $$
    values
      ('pending', 'cancelled', 'user', tests.user_id('ann'), 'cancel'),
      ('processing', 'cancelled', 'user', tests.user_id('ann'), 'cancel')
  $$,
  'history says who cancelled each job'
);
select tests.remember();
select is(
  pg_temp.cancel('{"all": true}'),
  '{"matched": 0, "changed": 0, "left": 0, "count_limit": 100000}',
  'cancelling twice is fine'
);
select is(tests.fingerprint(), tests.remembered(), 'cancelling twice changes nothing');
delete from silkline.jobs where true;

-- Slices

select tests.enqueue('slice-' || nth, 'ann') from generate_series(1, 5) as nth;
select results_eq(
  $$ select pg_temp.cancel('{"all": true}', 2) - 'count_limit' from generate_series(1, 4) $$,
  $$
    values
      ('{"matched": 5, "changed": 2, "left": 3}'::jsonb),
      ('{"matched": 3, "changed": 2, "left": 1}'),
      ('{"matched": 1, "changed": 1, "left": 0}'),
      ('{"matched": 0, "changed": 0, "left": 0}')
  $$,
  'a call cancels up to p_limit jobs, and says how many are left'
);
delete from silkline.jobs where true;

-- Filters

update public.crawl_settings set plugin_kinds = '{screenshot}' where id;
select tests.enqueue('first', 'ann', '{"url": "https://one.example/a"}');
select tests.enqueue('second', 'ann', '{"url": "https://one.example/b"}');
select tests.enqueue('third', 'ann', '{"url": "https://two.example:8080/"}');
select tests.enqueue('picture', 'ann', '{"url": "https://two.example/"}', 'screenshot');
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''second''))');
select tests.age('third', '1 day');
update silkline.jobs set source_id = 'shop' where id in (tests.job('first'), tests.job('third'));

select is(pg_temp.count(filter.filter), filter.matched, filter.claim)
from (
  values
    ('{"all": true}'::jsonb, 4, '"all" matches every job'),
    ('{"status": "paused"}', 1, 'a filter by status'),
    ('{"status": ["paused", "pending"]}', 4, 'a filter by several statuses'),
    ('{"status": []}', 0, 'no status matches no job'),
    ('{"status": "completed"}', 0, 'jobs of a status that cannot be cancelled do not match'),
    ('{"host": "one.example"}', 2, 'a filter by host'),
    ('{"host": "ONE.example:443"}', 2, 'a host matches however it is spelled'),
    ('{"host": "two.example:8080"}', 1, 'a filter by host and port'),
    ('{"host": "example"}', 0, 'a host does not match its subdomains'),
    ('{"host": ""}', 0, 'an empty host matches no job'),
    ('{"host": "a b/c?d"}', 0, 'what is not a host matches no job'),
    ('{"source_id": "shop"}', 2, 'a filter by source'),
    ('{"kind": "screenshot"}', 1, 'a filter by kind'),
    ('{"created_before": "2999-01-01"}', 4, 'a filter by a date'),
    ('{"created_after": "2999-01-01T00:00:00+02:00"}', 0, 'a filter by a time with its zone'),
    ('{"host": "one.example", "status": "pending", "kind": "crawl"}', 1, 'a job must match every key'),
    ('{"all": true, "host": "one.example"}', 2, '"all" does not widen another key'),
    ('{"job_ids": []}', 0, 'no ids match no job')
) as filter (filter, matched, claim);
select is(
  pg_temp.count(jsonb_build_object('created_before', to_char(now() at time zone 'UTC' - interval '1 hour', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))),
  1,
  'jobs created before a time'
);
select is(
  pg_temp.count(jsonb_build_object('created_after', to_char(now() at time zone 'UTC' - interval '1 hour', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))),
  3,
  'jobs created after a time'
);
select is(pg_temp.count(jsonb_build_object('job_ids', tests.job('first'))), 1, 'a filter by the id of a job');
select is(
  pg_temp.count(jsonb_build_object('job_ids', jsonb_build_array(tests.job('first'), upper(tests.job('third')::text), tests.token('nowhere')))),
  2,
  'a filter by several ids, of which some may not exist'
);
select is(
  pg_temp.count(jsonb_build_object('job_ids', (select jsonb_agg(gen_random_uuid()) from generate_series(1, 1000)))),
  0,
  'a filter may name a thousand jobs'
);
select is(
  pg_temp.cancel('{"host": "one.example", "status": "pending"}') - 'count_limit',
  '{"matched": 1, "changed": 1, "left": 0}',
  'the jobs that match are cancelled'
);
select results_eq(
  $$ select idempotency_key from silkline.jobs where status = 'cancelled' $$,
  $$ values ('first') $$,
  'and no others'
);

-- Whose jobs

select tests.enqueue('others', 'bob');
select tests.enqueue('nobodys');
select is(
  (select tests.as_user('bob', 'select public.cancel_crawl_jobs(''{"all": true}'', 0) -> ''matched''')),
  '1',
  'users match only their own jobs'
);
select is(
  pg_temp.count(jsonb_build_object('job_ids', jsonb_build_array(tests.job('others'), tests.job('nobodys')))),
  0,
  'a job of another user or of the service matches as little as one that does not exist'
);
select is(
  (select tests.as_user('ann', format('select public.cancel_crawl_jobs(%L, 0, %L) -> %L', '{"all": true}', tests.user_id('ann'), 'matched'))),
  '3',
  'users may name themselves'
);
select throws_ok(
  format(
    'select tests.as_user(%L, %L)',
    'ann',
    format('select public.cancel_crawl_jobs(%L, 0, %L)', '{"all": true}', tests.user_id('bob'))
  ),
  'PT403',
  'only the service may act for another user',
  'users may not name another user'
);
select is(
  (select tests.as_service('select public.cancel_crawl_jobs(''{"all": true}'', 0) -> ''matched''')),
  '5',
  'the service matches the jobs of all'
);
select is(
  (select tests.as_service(format('select public.cancel_crawl_jobs(%L, 1000, %L) -> %L', '{"all": true}', tests.user_id('bob'), 'changed'))),
  '1',
  'the service may name a user'
);
select is(tests.status('others'), 'cancelled', 'whose jobs are cancelled');
select is(tests.status('nobodys'), 'pending', 'and no others');
select results_eq(
  $$ select actor::text, actor_id, reason from silkline.events where job_id = tests.job('others') order by seq desc limit 1 $$,
  $$ values ('operator', null::uuid, 'cancel') $$,
  'history says that an operator did it'
);
delete from silkline.jobs where true;

-- The next jobs of the hosts

select tests.claimed_job('runs', 'ann', '{"url": "https://one.example/"}');
select tests.enqueue('goes', 'ann', '{"url": "https://two.example/", "max_pages": 1}');
select tests.enqueue('waits', 'bob', '{"url": "https://one.example/"}');
select is_empty(
  $$
    select id
    from public.claim_crawl_jobs(tests.worker_id(), array(select tests.token('w-' || nth) from generate_series(1, 3) as nth))
    where id = tests.job('waits')
  $$,
  'a job waits for its host'
);
select pg_temp.cancel('{"all": true}');
select is_empty(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('w-4')]) $$,
  'a host is not free until the worker of the cancelled job has released it'
);
select public.release_crawl_job(tests.token('runs'));
select results_eq(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('w-5')]) $$,
  $$ values (tests.job('waits')) $$,
  'then the next job of the host is claimed, and no cancelled one'
);

-- Bad input

select tests.enqueue('open', 'ann');
select tests.remember();
select throws_ok(
  format('select pg_temp.cancel(%L, %s)', bad.filter, bad.rows),
  bad.code,
  bad.message,
  bad.claim
)
from (
  values
    (null, '1', 'PT400', 'p_filter must be an object that names jobs', 'null for the filter is refused'),
    ('{}', '1', 'PT400', 'p_filter must be an object that names jobs', 'an empty filter is refused'),
    ('[]', '1', 'PT400', 'p_filter must be an object that names jobs', 'a filter that is a list is refused'),
    ('{"all": false}', '1', 'PT422', 'all must be true', 'all: false is refused'),
    ('{"colour": "red"}', '1', 'PT422', 'unknown key "colour" in p_filter', 'an unknown key is refused'),
    ('{"urls": "all"}', '1', 'PT422', 'unknown key "urls" in p_filter', 'the choice of URLs is not part of a filter'),
    ('{"host": null}', '1', 'PT422', 'host must be a string', 'null for a host is refused'),
    ('{"source_id": 5}', '1', 'PT422', 'source_id must be a string', 'a source that is a number is refused'),
    ('{"status": "odd"}', '1', 'PT422', 'unknown status "odd"', 'an unknown status is refused'),
    ('{"status": ["paused", null]}', '1', 'PT422', 'unknown status null', 'null among the statuses is refused'),
    ('{"status": {}}', '1', 'PT422', 'status must be a string or a list of strings', 'a status that is an object is refused'),
    ('{"job_ids": "nonsense"}', '1', 'PT422', '"nonsense" is not the id of a job', 'an id that is not a uuid is refused'),
    ('{"job_ids": [null]}', '1', 'PT422', 'null is not the id of a job', 'null among the ids is refused'),
    ('{"created_before": 5}', '1', 'PT422', 'created_before must be a time such as 2026-12-31T08:00:00Z, not 5', 'a time that is a number is refused'),
    ('{"created_before": "2026-02-31"}', '1', 'PT422', 'created_before must be a time such as 2026-12-31T08:00:00Z, not "2026-02-31"', 'a day that does not exist is refused'),
    ('{"created_after": "2026-01-01 08:00 Mars/Olympus"}', '1', 'PT422', 'created_after must be a time such as 2026-12-31T08:00:00Z, not "2026-01-01 08:00 Mars/Olympus"', 'an unknown time zone is refused'),
    ('{"all": true}', 'null', 'PT422', 'p_limit must be from 0 to 1000, not null', 'null for the limit is refused'),
    ('{"all": true}', '-1', 'PT422', 'p_limit must be from 0 to 1000, not -1', 'a negative limit is refused'),
    ('{"all": true}', '1001', 'PT422', 'p_limit must be from 0 to 1000, not 1001', 'a limit of 1001 is refused')
) as bad (filter, rows, code, message, claim);
select throws_ok(
  format(
    'select pg_temp.cancel(%L, 1)',
    jsonb_build_object('job_ids', (select jsonb_agg(gen_random_uuid()) from generate_series(1, 1001)))
  ),
  'PT422',
  'job_ids may have at most 1000 entries',
  'more than a thousand ids are refused'
);
select throws_like(
  $$ select pg_temp.cancel(jsonb_build_object('host', repeat('h', 1000000))) $$,
  'p_filter has % bytes, more than 65536',
  'a filter of a megabyte is refused'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select public.cancel_crawl_jobs(''{"all": true}'')') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user may not cancel'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'cancel_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'authenticated', array['EXECUTE'], 'users may cancel');
select function_privs_are('public', 'cancel_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'service_role', array['EXECUTE'], 'the service may cancel');
select function_privs_are('public', 'cancel_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not cancel');
select function_privs_are('public', 'cancel_crawl_jobs', array['jsonb', 'integer', 'uuid'], 'anon', '{}'::text[], 'anonymous callers may not cancel');
select throws_ok(
  $$ select tests.as_worker('select public.cancel_crawl_jobs(''{"all": true}'')') $$,
  '42501',
  'permission denied for function cancel_crawl_jobs',
  'a worker with the limited key that tries to cancel is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.cancel_crawl_jobs(''{"all": true}'')') $$,
  '42501',
  'permission denied for function cancel_crawl_jobs',
  'an anonymous caller who tries to cancel is refused'
);

select * from finish();
rollback;

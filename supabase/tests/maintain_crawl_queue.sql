-- maintain_crawl_queue: retention in bounded batches, overlooked jobs, silent workers.

begin;
select plan(36);

select tests.make_users('ann', 'bob');

create function pg_temp.maintain()
  returns jsonb
  language sql
as $$
  select tests.as_service('select public.maintain_crawl_queue()');
$$;

create function pg_temp.end_job(p_name text)
  returns void
  language sql
as $$
  select tests.claimed_job(p_name, 'ann');
  select tests.checkpoint(p_name, jsonb_build_object('seq', 1, 'discovered', tests.links('https://e.example/')), 1);
  select tests.checkpoint(p_name, jsonb_build_object('seq', 2, 'finished', jsonb_build_array(tests.fetched('https://e.example/'))));
  select public.complete_crawl_job(
    tests.token(p_name),
    '{}',
    '{"score": 90, "grade": "A", "categories": {}, "findings": [], "ruleset_version": "1"}'
  );
$$;

select is(
  pg_temp.maintain(),
  '{"tasks": 0, "jobs": 0, "page_versions": 0, "hosts": 0, "workers": 0, "reaped": 0, "unblocked": 0}'::jsonb,
  'on an empty queue it does nothing'
);

-- Ended jobs

select pg_temp.end_job('old');
select pg_temp.end_job('young');
select tests.age('old', '30 days 1 minute');
select tests.age('young', '29 days');
select tests.enqueue('waiting', 'ann');
select tests.age('waiting', '100 days');
select is(
  pg_temp.maintain() - '{reaped,unblocked}'::text[],
  '{"tasks": 1, "jobs": 1, "page_versions": 0, "hosts": 0, "workers": 0}'::jsonb,
  'a job that ended more than keep_ended_jobs_days ago is deleted'
);
select set_eq(
  $$ select idempotency_key from silkline.jobs $$,
  array['young', 'waiting'],
  'a younger job is kept, and so is an old one that has not ended'
);
select set_eq(
  $$
    select job_id from silkline.states
    union all
    select job_id from silkline.events
    union all
    select job_id from silkline.tasks
    union all
    select job_id from public.crawl_audits
  $$,
  $$ values (tests.job('young')), (tests.job('waiting')) $$,
  'its state, history, URLs and audit are deleted with it'
);
select is(
  (select count(*) from public.crawl_pages),
  2::bigint,
  'pages outlive the job that found them'
);
update public.crawl_settings set keep_ended_jobs_days = 20 where id;
select is(pg_temp.maintain() -> 'jobs', '1'::jsonb, 'the settings decide how long jobs are kept');
delete from silkline.jobs where true;
update public.crawl_settings set keep_ended_jobs_days = 30 where id;

-- In bounded batches, under every plan: with these statistics, as after a mass deletion, the
-- planner believes that the tables are empty and uses nested loops instead of hash joins.

analyze silkline.jobs, silkline.tasks;
update public.crawl_settings set max_open_jobs_per_user = null where id;
select tests.enqueue('many-' || nth, 'ann', jsonb_build_object('url', format('https://m%s.example/', nth)))
from generate_series(1, 1001) as nth;
select tests.as_user('ann', format('select id from public.cancel_crawl_job(%L)', job.id))
from silkline.jobs as job;
select tests.age(job.idempotency_key, '31 days') from silkline.jobs as job;
select is(pg_temp.maintain() -> 'jobs', '1000'::jsonb, 'at most 1000 jobs are deleted in one call');
select is(pg_temp.maintain() -> 'jobs', '1'::jsonb, 'the next call continues');

select tests.enqueue('huge', 'ann');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''huge''))');
insert into silkline.tasks (job_id, url_key, url, depth)
select tests.job('huge'), md5(nth::text)::uuid, 'https://huge.example/' || nth, 1
from generate_series(1, 10001) as nth;
update silkline.states set total_pending = 10001 where job_id = tests.job('huge');
update silkline.jobs set completed_at = now() - interval '31 days' where id = tests.job('huge');
select is(
  pg_temp.maintain() @> '{"tasks": 10000, "jobs": 0}',
  true,
  'at most 10000 URLs are deleted in one call, and their job stays until they are gone'
);
select is(pg_temp.maintain() @> '{"tasks": 1, "jobs": 1}', true, 'the job is deleted with the last of them');

-- A job that is still leased

select tests.claimed_job('saving', 'ann');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''saving''))');
update silkline.jobs set completed_at = now() - interval '31 days' where id = tests.job('saving');
select pg_temp.maintain();
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('saving')]) $$,
  $$ values ('lost') $$,
  'a worker that still holds a deleted job gets lost'
);
delete from public.crawl_workers where true;

-- Outdated page versions

delete from public.crawl_pages where true;
insert into public.crawl_pages (user_id, source_id, url_key, url, version, is_latest, job_id, content_hash, last_seen_at)
select
  tests.user_id('ann'),
  's',
  tests.url_key('https://p.example/'),
  'https://p.example/',
  version,
  version = 3,
  tests.token('gone'),
  'hash-' || version,
  now() - seen.ago
from (
  values
    (1, interval '91 days'),
    (2, interval '89 days'),
    (3, interval '1000 days')
) as seen (version, ago);
insert into public.crawl_hosts (host, updated_at)
values ('unused.example', now() - interval '31 days'), ('used.example', now() - interval '29 days');
select is(pg_temp.maintain() -> 'page_versions', '1'::jsonb, 'an outdated version older than keep_old_page_versions_days is deleted');
select results_eq(
  $$ select host from public.crawl_hosts order by host $$,
  array['used.example'],
  'facts about a host that is no longer crawled are deleted'
);
select set_eq(
  $$ select version from public.crawl_pages $$,
  array[2, 3],
  'the latest version of a page is kept, however old, and so is a younger outdated one'
);

-- Workers

select public.heartbeat_crawl_jobs(tests.worker_id(name), '{}') from unnest(array['gone', 'here']) as name;
update public.crawl_workers set last_seen_at = now() - interval '8 days' where id = tests.worker_id('gone');
update public.crawl_workers set last_seen_at = now() - interval '6 days' where id = tests.worker_id('here');
select is(pg_temp.maintain() -> 'workers', '1'::jsonb, 'a worker that was not seen for a week is deleted');
select results_eq($$ select id from public.crawl_workers $$, $$ values (tests.worker_id('here')) $$, 'the others are kept');

-- Silent workers and due jobs

select tests.claimed_job('silent', 'ann');
select tests.age('silent', '3 minutes');
select tests.enqueue('due', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select tests.age('due', '2 hours');
select is(pg_temp.maintain() -> 'reaped', '1'::jsonb, 'silent workers are reaped');
select is(tests.status('silent'), 'pending', 'their jobs are pending again');
select is(
  (select waits_for::text from silkline.jobs where id = tests.job('due')),
  null,
  'jobs whose time has come are in line'
);
delete from silkline.jobs where true;

-- Overlooked jobs

create function pg_temp.waiting()
  returns bigint
  language sql
as $$
  select count(*) from silkline.jobs where waits_for is not null;
$$;

select tests.enqueue('host-' || nth, 'ann', '{"url": "https://one.example/"}') from generate_series(1, 4) as nth;
select public.claim_crawl_jobs(tests.worker_id(), array(select gen_random_uuid() from generate_series(1, 4)));
select is(pg_temp.waiting(), 3::bigint, 'three jobs wait for their host');
select is(pg_temp.maintain() -> 'unblocked', '0'::jsonb, 'while their host is busy, none is unblocked');
update public.crawl_settings set max_jobs_per_host = 3 where id;
select is(pg_temp.maintain() -> 'unblocked', '2'::jsonb, 'after the limit is raised, as many are unblocked as may run');
select is(pg_temp.waiting(), 1::bigint, 'the last still waits');
delete from silkline.jobs where waits_for is null;
select is(pg_temp.maintain() -> 'unblocked', '1'::jsonb, 'a job whose host was freed by a deletion is unblocked');
select is(pg_temp.waiting(), 0::bigint, 'no job waits for a free host');
update public.crawl_settings set max_jobs_per_host = 1, max_running_jobs_per_user = 1 where id;
delete from silkline.jobs where true;

select tests.enqueue('own-' || nth, 'ann') from generate_series(1, 3) as nth;
select public.claim_crawl_jobs(tests.worker_id(), array(select gen_random_uuid() from generate_series(1, 3)));
select is(pg_temp.waiting(), 2::bigint, 'two jobs wait for their owner''s limit');
select is(pg_temp.maintain() -> 'unblocked', '0'::jsonb, 'while their owner is at the limit, none is unblocked');
update public.crawl_settings set max_running_jobs_per_user = null where id;
select is(pg_temp.maintain() -> 'unblocked', '2'::jsonb, 'without the limit, all are unblocked');
select is(pg_temp.waiting(), 0::bigint, 'no job waits for an owner without a limit');

-- Who may call it

select function_privs_are('public', 'maintain_crawl_queue', '{}'::name[], 'service_role', array['EXECUTE'], 'the service may maintain');
select function_privs_are('public', 'maintain_crawl_queue', '{}'::name[], 'authenticated', '{}'::text[], 'users may not maintain');
select function_privs_are('public', 'maintain_crawl_queue', '{}'::name[], 'crawl_worker', '{}'::text[], 'workers with the limited key may not maintain');
select function_privs_are('public', 'maintain_crawl_queue', '{}'::name[], 'anon', '{}'::text[], 'anonymous callers may not maintain');
select throws_ok(
  $$ select tests.as_user('ann', 'select public.maintain_crawl_queue()') $$,
  '42501',
  'permission denied for function maintain_crawl_queue',
  'a user who tries to maintain is refused'
);
select throws_ok(
  $$ select tests.as_worker('select public.maintain_crawl_queue()') $$,
  '42501',
  'permission denied for function maintain_crawl_queue',
  'a worker with the limited key that tries to maintain is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.maintain_crawl_queue()') $$,
  '42501',
  'permission denied for function maintain_crawl_queue',
  'an anonymous caller who tries to maintain is refused'
);

select * from finish();
rollback;

-- maintain_crawl_queue: silent workers, overlooked jobs, retention; none of them stops the others.

begin;
select plan(53);

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
  '{
    "reaped": 0,
    "unblocked": 0,
    "pruned": {"jobs": 0, "page_versions": 0, "hosts": 0, "workers": 0},
    "swept": {"jobs": 0, "pages": 0, "swept_jobs": 0, "urls": 0},
    "failed": {}
  }'::jsonb,
  'on an empty queue it does nothing'
);
select results_eq(
  $$ select part, ran_at, error from silkline.maintenance order by part $$,
  $$
    values
      ('prune', now(), null::text),
      ('reap', now(), null),
      ('sweep', now(), null),
      ('unblock', now(), null)
  $$,
  'each part is recorded'
);

-- Ended jobs

select pg_temp.end_job('old');
select pg_temp.end_job('young');
select tests.age('old', '30 days 1 minute');
select tests.age('young', '29 days');
select tests.enqueue('waiting', 'ann');
select tests.age('waiting', '100 days');
select is(
  pg_temp.maintain() - '{reaped,unblocked,failed}'::text[],
  '{
    "pruned": {"jobs": 1, "page_versions": 0, "hosts": 0, "workers": 0},
    "swept": {"jobs": 0, "pages": 0, "swept_jobs": 1, "urls": 1}
  }'::jsonb,
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
select is(pg_temp.maintain() #> '{pruned,jobs}', '1'::jsonb, 'the settings decide how long jobs are kept');
delete from silkline.jobs where true;
update public.crawl_settings set keep_ended_jobs_days = 30 where id;

-- For a bounded time, a slice at a time, under every plan: with these statistics, as after a mass
-- deletion, the planner believes that the tables are empty.

analyze silkline.jobs, silkline.tasks;
select pg_temp.maintain();
insert into silkline.jobs (id, user_id, kind, payload, source_id, host, place)
select md5('many ' || nth)::uuid, tests.user_id('ann'), 'crawl', '{}', 's', 'h' || nth, nth
from generate_series(1, 1500) as nth;
update silkline.jobs set status = 'cancelled', completed_at = now() - interval '31 days' where true;
select is(
  silkline.prune(0) -> 'jobs',
  '1000'::jsonb,
  'when its time is up it stops after a slice'
);
select is(silkline.prune(10) -> 'jobs', '500'::jsonb, 'the next call continues');
select is(
  pg_temp.maintain() #> '{swept,swept_jobs}',
  '1500'::jsonb,
  'what deleted jobs left behind is swept'
);

-- A job that is still leased

select tests.claimed_job('saving', 'ann');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''saving''))');
select tests.enqueue('behind', 'ann', '{"url": "https://saving.example/"}');
update silkline.jobs set waits_for = 'host' where id = tests.job('behind');
update silkline.jobs set completed_at = now() - interval '31 days' where id = tests.job('saving');
select pg_temp.maintain();
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('saving')]) $$,
  $$ values ('lost') $$,
  'a worker that still holds a deleted job gets lost'
);
select is(
  (select waits_for::text from silkline.jobs where id = tests.job('behind')),
  null,
  'the next job of its host is in line'
);
delete from silkline.jobs where true;
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
insert into silkline.spent_tokens (lease_token, spent_at)
values (tests.token('yesterday'), now() - interval '25 hours'), (tests.token('today'), now() - interval '23 hours');
insert into silkline.quota_uses (owner_id, hour, jobs)
values
  (tests.user_id('bob'), now() - interval '49 hours', 1),
  (tests.user_id('bob'), now() - interval '47 hours', 1);
select is(
  pg_temp.maintain() #> '{pruned,page_versions}',
  '1'::jsonb,
  'an outdated version older than keep_old_page_versions_days is deleted'
);
select set_eq(
  $$ select version from public.crawl_pages $$,
  array[2, 3],
  'the latest version of a page is kept, however old, and so is a younger outdated one'
);
select results_eq(
  $$ select host from public.crawl_hosts order by host $$,
  array['used.example'],
  'facts about a host that is no longer crawled are deleted'
);
select results_eq(
  $$ select lease_token from silkline.spent_tokens where spent_at < now() $$,
  $$ values (tests.token('today')) $$,
  'spent tokens are kept for a day'
);
select is(
  (select count(*) from silkline.quota_uses where owner_id = tests.user_id('bob')),
  1::bigint,
  'what users spent of their quota is kept for two days'
);

-- Workers

select public.heartbeat_crawl_jobs(tests.worker_id(name), '{}') from unnest(array['gone', 'here']) as name;
update public.crawl_workers set last_seen_at = now() - interval '8 days' where id = tests.worker_id('gone');
update public.crawl_workers set last_seen_at = now() - interval '6 days' where id = tests.worker_id('here');
select is(pg_temp.maintain() #> '{pruned,workers}', '1'::jsonb, 'a worker that was not seen for a week is deleted');
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

select tests.enqueue('host-' || nth, 'ann', '{"url": "https://one.example/"}') from generate_series(1, 5) as nth;
select public.claim_crawl_jobs(tests.worker_id(), array(select gen_random_uuid() from generate_series(1, 5)));
select is(pg_temp.waiting(), 4::bigint, 'four jobs wait for their host');
select is(pg_temp.maintain() -> 'unblocked', '0'::jsonb, 'while their host is busy, none is unblocked');
update public.crawl_settings set max_jobs_per_host = 3 where id;
select is(pg_temp.maintain() -> 'unblocked', '2'::jsonb, 'after the limit is raised, as many are unblocked as may run');
select is(pg_temp.maintain() -> 'unblocked', '0'::jsonb, 'those in line count: the next call unblocks no more');
select is(pg_temp.waiting(), 2::bigint, 'the last two still wait');
delete from silkline.jobs where lease_check_at is not null;
select is(pg_temp.maintain() -> 'unblocked', '1'::jsonb, 'a job whose host was freed by a deletion is unblocked');
select is(pg_temp.waiting(), 1::bigint, 'and no other');
delete from silkline.jobs where true;
update public.crawl_settings set max_jobs_per_host = 1 where id;

select tests.enqueue('list-' || nth, 'ann') from generate_series(1, 3) as nth;
update silkline.jobs set host = 'list of ' || owner_id, waits_for = 'host' where true;
update public.crawl_settings set max_lists_per_user = 2 where id;
select is(pg_temp.maintain() -> 'unblocked', '2'::jsonb, 'lists of URLs have a limit of their own');
delete from silkline.jobs where true;

insert into silkline.jobs (user_id, kind, payload, source_id, host, place, waits_for)
select tests.user_id('ann'), 'crawl', '{}', 's', format('h%s.example', nth), nth, 'host'
from generate_series(11, 15) as nth;
select is(
  array(
    select silkline.unblock_overlooked_hosts(2)
    from generate_series(1, 3)
  ),
  array[2, 2, 1],
  'a call visits a bounded number of hosts, and the next one continues after them'
);
select is(pg_temp.waiting(), 0::bigint, 'so that every host is reached');
update silkline.jobs set waits_for = 'host' where host = 'h11.example';
select is(silkline.unblock_overlooked_hosts(2), 1, 'after the last host it begins again');
delete from silkline.jobs where true;

update public.crawl_settings set max_running_jobs_per_user = 1 where id;
select tests.enqueue('own-' || nth, 'ann') from generate_series(1, 3) as nth;
select public.claim_crawl_jobs(tests.worker_id(), array(select gen_random_uuid() from generate_series(1, 3)));
select is(pg_temp.waiting(), 2::bigint, 'two jobs wait for their owner''s limit');
select is(pg_temp.maintain() -> 'unblocked', '0'::jsonb, 'while their owner is at the limit, none is unblocked');
update public.crawl_settings set max_running_jobs_per_user = 2 where id;
select is(pg_temp.maintain() -> 'unblocked', '1'::jsonb, 'after the limit is raised, as many are unblocked as may run');
select is(pg_temp.maintain() -> 'unblocked', '0'::jsonb, 'the next call unblocks no more');
update public.crawl_settings set max_running_jobs_per_user = null where id;
select is(pg_temp.maintain() -> 'unblocked', '1'::jsonb, 'without the limit, all are unblocked');
select is(pg_temp.waiting(), 0::bigint, 'no job waits for an owner without a limit');
insert into silkline.jobs (user_id, kind, payload, source_id, host, place, waits_for)
select gen_random_uuid(), 'crawl', '{}', 's', format('h%s.example', nth), nth, 'owner'
from generate_series(1, 5) as nth;
select is(
  array(
    select silkline.unblock_overlooked_owners(2)
    from generate_series(1, 3)
  ),
  array[2, 2, 1],
  'every owner is reached, too'
);
delete from silkline.jobs where true;

-- A floor that is too high hides a job from claims

select tests.enqueue('hidden', 'ann');
update silkline.lines as line
set floor = job.place + 1, next_floor = job.place + 1
from silkline.jobs as job
where job.id = tests.job('hidden')
  and line.lane = 'crawl'
  and line.band = 0;
select is_empty(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('too early')]) $$,
  'a job below the floor of its line is not claimed'
);
select pg_temp.maintain();
select is(tests.claim('hidden'), tests.job('hidden'), 'maintenance lowers the floor');

-- A part that fails

create function pg_temp.fail()
  returns trigger
  language plpgsql
as $$
begin
  raise exception 'the disk is full';
end
$$;
create trigger tg_fail before delete on public.crawl_hosts for each statement execute function pg_temp.fail();
select tests.age('hidden', '3 minutes');
select is(
  pg_temp.maintain() -> 'failed',
  '{"prune": "the disk is full (SQLSTATE P0001)"}'::jsonb,
  'a part that fails is named in the answer'
);
select is(tests.status('hidden'), 'pending', 'and the silent worker was reaped');
select results_eq(
  $$ select part, error from silkline.maintenance where error is not null $$,
  $$ values ('prune', 'the disk is full (SQLSTATE P0001)') $$,
  'the failure is recorded'
);
drop trigger tg_fail on public.crawl_hosts;
select pg_temp.maintain();
select is_empty($$ select part from silkline.maintenance where error is not null $$, 'until the part succeeds');

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

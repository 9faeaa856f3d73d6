-- crawl_queue_stats: the queue in numbers, for each user their own jobs.

begin;
select plan(19);

select tests.make_users('ann', 'bob');

create function pg_temp.stats(p_user text)
  returns jsonb
  language sql
as $$
  select tests.as_user(p_user, 'select public.crawl_queue_stats()');
$$;

select is(
  pg_temp.stats('ann'),
  '{
    "open": {"pending": 0, "processing": 0, "paused": 0},
    "pending": {"in_line": 0, "time": 0, "host": 0, "owner": 0},
    "oldest_in_line_seconds": null,
    "ended_in_24_hours": {},
    "workers": {"live": 0, "late": 0, "slots": 0, "busy_slots": 0},
    "count_limit": 5000
  }'::jsonb,
  'an empty queue has zeros'
);

select tests.claimed_job(name, 'ann') from unnest(array['running', 'completed', 'failed', 'old']) as name;
select public.complete_crawl_job(tests.token('completed'));
select public.complete_crawl_job(tests.token('old'));
select tests.age('old', '25 hours');
select public.fail_crawl_job(tests.token('failed'), 'broken', null, false);
select tests.enqueue('same-host', 'ann', '{"url": "https://running.example/"}');
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('none')]);
select tests.enqueue('later', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select tests.enqueue('next', 'ann');
select tests.age('next', '90 seconds');
select tests.enqueue('paused', 'ann');
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''paused''))');
select tests.enqueue('bobs', 'bob');
select tests.enqueue('nobodys');

select is(pg_temp.stats('ann') -> 'open', '{"pending": 3, "processing": 1, "paused": 1}'::jsonb, 'open jobs are counted by status');
select is(
  pg_temp.stats('ann') -> 'pending',
  '{"in_line": 1, "time": 1, "host": 1, "owner": 0}'::jsonb,
  'pending jobs are counted by what they wait for'
);
select is(pg_temp.stats('ann') -> 'oldest_in_line_seconds', '90'::jsonb, 'the age of the oldest job in line is returned');
select is(
  pg_temp.stats('ann') -> 'ended_in_24_hours',
  '{"completed": 1, "failed": 1}'::jsonb,
  'jobs that ended within a day are counted by status, older ones are not'
);
select is(pg_temp.stats('bob') -> 'open', '{"pending": 1, "processing": 0, "paused": 0}'::jsonb, 'a user sees only the numbers of their own jobs');
select is(
  (select tests.as_service('select public.crawl_queue_stats()')) -> 'open',
  '{"pending": 5, "processing": 1, "paused": 1}'::jsonb,
  'the service sees the numbers of all jobs'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select public.crawl_queue_stats()') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user sees no numbers'
);

select public.heartbeat_crawl_jobs(tests.worker_id('live'), '{}', '{"slots": 4, "busy_slots": 1}');
select public.heartbeat_crawl_jobs(tests.worker_id('late'), '{}', '{"slots": 8, "busy_slots": 2}');
select public.heartbeat_crawl_jobs(tests.worker_id('lost'), '{}', '{"slots": 16, "busy_slots": 3}');
update public.crawl_workers set last_seen_at = now() - interval '60 seconds' where id = tests.worker_id('late');
update public.crawl_workers set last_seen_at = now() - interval '1 hour' where id = tests.worker_id('lost');
select is(
  pg_temp.stats('ann') -> 'workers',
  '{"live": 1, "late": 1, "slots": 4, "busy_slots": 1}'::jsonb,
  'users see how many workers and slots are live, and nothing else about workers'
);

update public.crawl_settings set max_running_jobs_per_user = 1 where id;
select public.claim_crawl_jobs(tests.worker_id(), array(select gen_random_uuid() from generate_series(1, 3)));
select is(pg_temp.stats('ann') -> 'pending' -> 'owner', '1'::jsonb, 'jobs over their owner''s limit are counted');
select tests.remember();
select pg_temp.stats('ann');
select is(tests.fingerprint(), tests.remembered(), 'reading changed no row');

-- Counts stop

delete from silkline.jobs where true;
insert into silkline.jobs (user_id, kind, payload, source_id, host, place)
select tests.user_id('ann'), 'crawl', '{}', 's', 'h' || number, number
from generate_series(1, 6000) as number;
select is(
  pg_temp.stats('ann') #> '{open,pending}',
  '5000'::jsonb,
  'a count stops at count_limit'
);
select is(
  (select tests.as_service('select public.crawl_queue_stats()')) -> 'pending',
  '{"in_line": 5000, "time": 0, "host": 0, "owner": 0}'::jsonb,
  'also for the service'
);

-- Who may call it

select function_privs_are('public', 'crawl_queue_stats', '{}'::name[], 'authenticated', array['EXECUTE'], 'users may call it');
select function_privs_are('public', 'crawl_queue_stats', '{}'::name[], 'service_role', array['EXECUTE'], 'the service may call it');
select function_privs_are('public', 'crawl_queue_stats', '{}'::name[], 'crawl_worker', '{}'::text[], 'workers with the limited key may not call it');
select function_privs_are('public', 'crawl_queue_stats', '{}'::name[], 'anon', '{}'::text[], 'anonymous callers may not call it');
select throws_ok(
  $$ select tests.as_worker('select public.crawl_queue_stats()') $$,
  '42501',
  'permission denied for function crawl_queue_stats',
  'a worker with the limited key that tries to call it is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.crawl_queue_stats()') $$,
  '42501',
  'permission denied for function crawl_queue_stats',
  'an anonymous caller who tries to call it is refused'
);

select * from finish();
rollback;

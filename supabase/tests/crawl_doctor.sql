-- crawl_doctor: each problem is found, with a hint what to do about it.

begin;
select plan(50);

select tests.make_users('ann');

create function pg_temp.status(p_check text)
  returns text
  language sql
as $$
  select doctor.status from public.crawl_doctor() as doctor where doctor.check_name = p_check;
$$;

create function pg_temp.detail(p_check text)
  returns text
  language sql
as $$
  select doctor.detail from public.crawl_doctor() as doctor where doctor.check_name = p_check;
$$;

select tests.remember();
select results_eq(
  $$ select tests.as_service('select check_name from public.crawl_doctor()') $$,
  $$
    values
      ('"cron"'::jsonb),
      ('"maintenance"'),
      ('"cron_history"'),
      ('"leases"'),
      ('"workers"'),
      ('"stuck_jobs"'),
      ('"counters"'),
      ('"deleted"'),
      ('"bloat"'),
      ('"grants"'),
      ('"row_level_security"'),
      ('"accounts"'),
      ('"realtime"')
  $$,
  'the service gets one row per check'
);
select is(tests.fingerprint(), tests.remembered(), 'the doctor changes no row');
select is_empty(
  $$ select check_name from public.crawl_doctor() where status not in ('ok', 'warning', 'error') or detail is null or hint is null $$,
  'each check has a status, a detail and a hint'
);
select is_empty(
  $$ select check_name, detail from public.crawl_doctor() where status = 'error' and check_name not in ('cron') $$,
  'a new queue is healthy'
);

-- Without pg_cron

select ok(
  pg_temp.status('cron') = 'warning' or to_regclass('cron.job') is not null,
  'a missing pg_cron is a warning'
);
select public.maintain_crawl_queue();
select ok(
  pg_temp.status('cron') = 'ok' or to_regclass('cron.job') is not null,
  'without pg_cron it is enough to call maintain_crawl_queue'
);
update silkline.maintenance set ran_at = now() - interval '11 minutes' where part = 'sweep';
select ok(
  pg_temp.status('cron') = 'warning' or to_regclass('cron.job') is not null,
  'but not if the last call is too old, or one part of it'
);
select public.maintain_crawl_queue();

-- Maintenance that fails

create function pg_temp.fail()
  returns trigger
  language plpgsql
as $$
begin
  raise exception 'the disk is full';
end
$$;
create trigger tg_fail before delete on public.crawl_hosts for each statement execute function pg_temp.fail();
select public.maintain_crawl_queue();
select is(pg_temp.status('maintenance'), 'error', 'a part of maintenance that fails is an error');
select is(
  pg_temp.detail('maintenance'),
  format('prune failed at %s: the disk is full (SQLSTATE P0001)', now()),
  'the part is named, with its error'
);
drop trigger tg_fail on public.crawl_hosts;
select public.maintain_crawl_queue();
select is(pg_temp.status('maintenance'), 'ok', 'after a run without errors it is fine again');

-- Leases

select tests.claimed_job('silent', 'ann');
select tests.age('silent', '4 minutes');
select is(pg_temp.status('leases'), 'ok', 'a lease that is due for reaping is fine');
select tests.age('silent', '2 minutes');
select is(pg_temp.status('leases'), 'error', 'a lease that stays overdue is an error');
select is(pg_temp.detail('leases'), '1 overdue', 'overdue leases are counted');
select public.reap_crawl_jobs();
select is(pg_temp.status('leases'), 'ok', 'after reaping it is fine again');

-- Workers

select is(pg_temp.status('workers'), 'error', 'jobs in line without a live worker are an error');
select is(pg_temp.detail('workers'), '0 live; jobs in line: 1', 'workers and jobs are counted');
select public.heartbeat_crawl_jobs(tests.worker_id(), '{}');
select is(pg_temp.status('workers'), 'ok', 'one live worker is enough');
delete from silkline.jobs where true;
delete from public.crawl_workers where true;
select is(pg_temp.status('workers'), 'ok', 'without jobs in line no worker is needed');

-- Stuck jobs

select tests.enqueue('late', 'ann', '{}', 'crawl', 0, now() + interval '1 hour');
select tests.age('late', '64 minutes');
select is(pg_temp.status('stuck_jobs'), 'ok', 'a job that has been due for four minutes is fine');
select tests.age('late', '2 minutes');
select is(pg_temp.status('stuck_jobs'), 'error', 'a job that has been due for longer is an error');
select public.maintain_crawl_queue();
select is(pg_temp.status('stuck_jobs'), 'ok', 'maintenance puts it in line');
select tests.enqueue('host-1', 'ann', '{"url": "https://one.example/"}');
select tests.enqueue('host-2', 'ann', '{"url": "https://one.example/"}');
select public.claim_crawl_jobs(tests.worker_id(), array(select gen_random_uuid() from generate_series(1, 3)));
select is(pg_temp.status('stuck_jobs'), 'ok', 'a job that waits for a busy host is fine');
delete from silkline.jobs where waits_for is null;
select is(pg_temp.detail('stuck_jobs'), '1 waiting without a reason', 'a job that waits for a free host is found');
delete from silkline.jobs where true;

-- Counters

select tests.claimed_job('counted', 'ann');
select tests.checkpoint('counted', jsonb_build_object('seq', 1, 'discovered', tests.links('https://c.example/1', 'https://c.example/2')), 1);
select is(pg_temp.status('counters'), 'ok', 'counters that equal the rows are fine');
update silkline.states set total_pending = total_pending + 1 where job_id = tests.job('counted');
select is(pg_temp.status('counters'), 'error', 'counters that differ are an error');
select is(
  pg_temp.detail('counters'),
  format('1 jobs have counters that differ from their URLs, such as %s', tests.job('counted')),
  'the job is named'
);
update silkline.states set total_pending = total_pending - 1 where job_id = tests.job('counted');
insert into silkline.tasks (job_id, url_key, url, depth) values (tests.job('counted'), tests.url_key('more'), 'https://c.example/3', 1);
select is(pg_temp.status('counters'), 'error', 'so are URLs that are not counted');
delete from silkline.jobs where true;

-- Deleted rows

select is(pg_temp.status('deleted'), 'ok', 'a job that has just been deleted is fine');
update silkline.deleted_jobs set deleted_at = now() - interval '61 minutes' where true;
select is(pg_temp.status('deleted'), 'warning', 'a deleted job that is not swept within an hour is a warning');
select public.maintain_crawl_queue();
select is(pg_temp.status('deleted'), 'ok', 'after a sweep it is fine again');
select tests.make_users('leaver');
select tests.enqueue('left', 'leaver');
delete from auth.users where id = tests.user_id('leaver');
update silkline.deleted_accounts set deleted_at = now() - interval '61 minutes' where true;
select is(pg_temp.status('deleted'), 'warning', 'so is an account');
select public.maintain_crawl_queue();
select is(pg_temp.status('deleted'), 'ok', 'an account that has been swept is fine, though it is remembered');

-- Rights

grant execute on function public.crawl_progress(uuid) to anon;
select is(pg_temp.status('grants'), 'error', 'a function that is open to anonymous callers is an error');
select is(pg_temp.detail('grants'), 'open to anonymous callers: public.crawl_progress(uuid)', 'the open function is named');
revoke execute on function public.crawl_progress(uuid) from anon;
grant usage on sequence public.crawl_pages_id_seq to anon;
select is(pg_temp.detail('grants'), 'open to anonymous callers: public.crawl_pages_id_seq', 'an open sequence is found');
revoke usage on sequence public.crawl_pages_id_seq from anon;
grant select on public.crawl_jobs to anon;
select is(pg_temp.detail('grants'), 'open to anonymous callers: public.crawl_jobs', 'an open view is found');
revoke select on public.crawl_jobs from anon;
grant update (status) on silkline.jobs to anon;
select is(pg_temp.detail('grants'), 'open to anonymous callers: silkline.jobs', 'an open column is found');
revoke update (status) on silkline.jobs from anon;
select is(pg_temp.status('grants'), 'ok', 'without these grants all is closed');
alter table public.crawl_pages disable row level security;
select is(pg_temp.status('row_level_security'), 'error', 'a table without row level security is an error');
select is(pg_temp.detail('row_level_security'), 'off for public.crawl_pages', 'the open table is named');
alter table public.crawl_pages enable row level security;
alter view public.crawl_tasks reset (security_invoker);
select is(pg_temp.detail('row_level_security'), 'off for public.crawl_tasks', 'a view with the rights of its owner is found');
alter view public.crawl_tasks set (security_invoker = true);
select is(pg_temp.status('row_level_security'), 'ok', 'with row level security everywhere it is fine');
select is(pg_temp.status('accounts'), 'ok', 'the trigger that hears of deleted accounts exists');

-- Who may call it

select function_privs_are('public', 'crawl_doctor', '{}'::name[], 'service_role', array['EXECUTE'], 'the service may call it');
select function_privs_are('public', 'crawl_doctor', '{}'::name[], 'authenticated', '{}'::text[], 'users may not call it');
select function_privs_are('public', 'crawl_doctor', '{}'::name[], 'crawl_worker', '{}'::text[], 'workers with the limited key may not call it');
select function_privs_are('public', 'crawl_doctor', '{}'::name[], 'anon', '{}'::text[], 'anonymous callers may not call it');
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.crawl_doctor()') $$,
  '42501',
  'permission denied for function crawl_doctor',
  'a user who tries to call it is refused'
);
select throws_ok(
  $$ select tests.as_worker('select * from public.crawl_doctor()') $$,
  '42501',
  'permission denied for function crawl_doctor',
  'a worker with the limited key that tries to call it is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.crawl_doctor()') $$,
  '42501',
  'permission denied for function crawl_doctor',
  'an anonymous caller who tries to call it is refused'
);

select * from finish();
rollback;

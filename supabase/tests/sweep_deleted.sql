-- sweep_deleted: a deleted job or account is gone at once, and what it left behind is swept later.

begin;
select plan(34);

select tests.make_users('ann', 'bob');

create function pg_temp.sweep()
  returns jsonb
  language sql
as $$
  select (select tests.as_service('select public.maintain_crawl_queue()')) -> 'swept';
$$;

-- Rows of a job, wherever they are.
create function pg_temp.rows_of(p_job_id uuid)
  returns table (name text)
  language sql
as $$
  select 'job' from silkline.jobs where id = p_job_id
  union all
  select 'state' from silkline.states where job_id = p_job_id
  union all
  select 'URL' from silkline.tasks where job_id = p_job_id
  union all
  select 'event' from silkline.events where job_id = p_job_id
  union all
  select 'audit' from public.crawl_audits where job_id = p_job_id
  union all
  select 'page' from public.crawl_pages where job_id = p_job_id;
$$;

-- What a user sees of a job through the API.
create function pg_temp.seen(p_user text, p_job_id uuid)
  returns setof jsonb
  language sql
as $$
  select tests.as_user(
    p_user,
    format(
      'select ''job'' from public.crawl_jobs where id = %1$L
       union all
       select ''state'' from public.crawl_states where job_id = %1$L
       union all
       select ''URL'' from public.crawl_tasks where job_id = %1$L
       union all
       select ''event'' from public.crawl_events where job_id = %1$L
       union all
       select ''audit'' from public.crawl_audits where job_id = %1$L
       union all
       select ''page'' from public.crawl_pages where job_id = %1$L',
      p_job_id
    )
  );
$$;

-- A finished job with a page and an audit.
create function pg_temp.finished_job(p_name text, p_owner text)
  returns void
  language sql
as $$
  select tests.claimed_job(p_name, p_owner);
  select tests.checkpoint(p_name, jsonb_build_object('seq', 1, 'discovered', tests.links('https://' || p_name || '.example/')), 1);
  select tests.checkpoint(p_name, jsonb_build_object('seq', 2, 'finished', jsonb_build_array(tests.fetched('https://' || p_name || '.example/'))));
  select public.complete_crawl_job(
    tests.token(p_name),
    '{}',
    '{"score": 90, "grade": "A", "categories": {}, "findings": [], "ruleset_version": "1"}'
  );
$$;

-- A job

select pg_temp.finished_job('deleted', 'ann');
select pg_temp.finished_job('kept', 'ann');
create temporary table ids on commit drop as
select tests.job('deleted') as deleted, tests.job('kept') as kept;
select set_eq(
  $$ select name from pg_temp.rows_of((select deleted from ids)) $$,
  array['job', 'state', 'URL', 'event', 'audit', 'page'],
  'a job has rows in six tables'
);
delete from silkline.jobs where id = tests.job('deleted');
select set_eq(
  $$ select * from pg_temp.seen('ann', (select deleted from ids)) $$,
  array['"audit"'::jsonb, '"page"'],
  'a deleted job is gone for its owner at once, with its URLs and its history'
);
select is(pg_temp.sweep(), '{"jobs": 0, "pages": 0, "swept_jobs": 1, "urls": 1}'::jsonb, 'what it left behind is swept');
select set_eq(
  $$ select name from pg_temp.rows_of((select deleted from ids)) $$,
  array['page'],
  'pages outlive the job that found them'
);
select is_empty($$ select from silkline.deleted_jobs $$, 'a job that has been swept is forgotten');
select is(
  (select count(*) from pg_temp.rows_of((select kept from ids))),
  8::bigint,
  'another job of the same owner keeps all its rows'
);

-- A slice holds many jobs, and a large job takes many slices

select tests.enqueue('large', 'ann');
select tests.enqueue('small-' || nth, 'ann') from generate_series(1, 3) as nth;
insert into silkline.tasks (job_id, url_key, url, depth)
select tests.job('large'), md5(nth::text)::uuid, 'https://large.example/' || nth, 1
from generate_series(1, 12345) as nth
union all
select tests.job('large'), '00000000-0000-0000-0000-000000000000', 'https://large.example/zero', 1
union all
select tests.job('small-' || nth), md5(nth::text)::uuid, 'https://small.example/' || nth, 1
from generate_series(1, 3) as nth;
delete from silkline.jobs where idempotency_key like 'small-%' or idempotency_key = 'large';
select is(
  silkline.sweep_deleted_jobs(0),
  '{"urls": 5000, "swept_jobs": 0}'::jsonb,
  'it stops after a slice when its time is up'
);
select is(
  silkline.sweep_deleted_jobs(10),
  '{"urls": 7349, "swept_jobs": 4}'::jsonb,
  'the next call continues until all is swept'
);
select is((select count(*) from silkline.tasks), 1::bigint, 'no URL of a deleted job is left');

-- An account

select pg_temp.finished_job('done', 'bob');
select tests.claimed_job('running', 'bob');
select tests.checkpoint('running', jsonb_build_object('seq', 1, 'discovered', tests.links('https://running.example/1', 'https://running.example/2')), 1);
select tests.enqueue('waiting', 'ann', '{"url": "https://running.example/"}');
select tests.enqueue('next', 'bob', '{"url": "https://next.example/"}');
select tests.enqueue('after-next', 'ann', '{"url": "https://next.example/"}');
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('none')], '{none}');
update silkline.jobs set waits_for = 'host' where id in (tests.job('waiting'), tests.job('after-next'));
update silkline.jobs set place = 0 where id = tests.job('next');
update ids set deleted = tests.job('done'), kept = tests.job('running');
select isnt_empty(
  $$ select * from pg_temp.seen('bob', (select deleted from ids)) $$,
  'before the deletion a user sees their job'
);
delete from auth.users where id = tests.user_id('bob');
select is_empty(
  $$
    select pg_temp.seen('bob', deleted) from ids
    union all
    select pg_temp.seen('bob', kept) from ids
  $$,
  'after it, a JWT that is still valid shows nothing at once'
);
select throws_ok(
  format('select tests.as_user(''bob'', %L)', call.sql),
  'PT401',
  'the account of the caller has been deleted',
  format('and %s refuses it', call.name)
)
from (
  values
    ('crawl_progress', 'select public.crawl_progress(tests.job(''running''))'),
    ('explain_crawl_job', 'select public.explain_crawl_job(tests.job(''running''))'),
    ('crawl_job_pages', 'select public.crawl_job_pages(tests.job(''running''))'),
    ('crawl_queue_stats', 'select public.crawl_queue_stats()'),
    ('pending_crawl_work', 'select public.pending_crawl_work()'),
    ('enqueue_crawl_job', 'select public.enqueue_crawl_job(''{"url": "https://new.example/"}'')'),
    ('cancel_crawl_job', 'select public.cancel_crawl_job(tests.job(''running''))')
) as call (name, sql);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('running')]) $$,
  $$ values ('lost') $$,
  'a heartbeat for one of its jobs gets lost'
);
select is(
  tests.checkpoint('running', '{"seq": 2}') ->> 'command',
  'lost',
  'a checkpoint for one of its jobs gets lost'
);
select results_eq(
  $$ select command from public.complete_crawl_job(tests.token('running')) $$,
  $$ values ('lost') $$,
  'a completion of one of its jobs gets lost'
);
select is_empty(
  $$ select id from public.claim_crawl_jobs(tests.worker_id('late'), array[tests.token('late')]) where user_id = tests.user_id('bob') $$,
  'a claim takes none of its jobs'
);
select public.release_crawl_job(tests.token('late'));
select ok(
  pg_temp.sweep() @> '{"pages": 1, "urls": 3}',
  'what it left behind is swept'
);
select is_empty(
  $$
    select pg_temp.rows_of(deleted) from ids
    union all
    select pg_temp.rows_of(kept) from ids
  $$,
  'its jobs, URLs, history, audits and pages are gone'
);
select is(
  (select count(*) from silkline.jobs where waits_for = 'host'),
  0::bigint,
  'the next jobs of the hosts that it occupied, or was next on, are in line'
);
select results_eq(
  $$ select command from public.heartbeat_crawl_jobs(tests.worker_id(), array[tests.token('running')]) $$,
  $$ values ('lost') $$,
  'its worker still gets lost'
);
select is_empty(
  $$ select id from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('running')]) $$,
  'and a repeated claim with its token takes no job'
);

-- Late writes

insert into silkline.jobs (id, user_id, kind, payload, source_id, host, place)
values (tests.token('late job'), tests.user_id('bob'), 'crawl', '{}', 's', 'late.example', 1);
insert into public.crawl_pages (user_id, source_id, url_key, url, version, job_id, content_hash)
values (tests.user_id('bob'), 's', tests.url_key('late'), 'https://late.example/', 1, tests.token('late job'), 'hash');
select ok(
  pg_temp.sweep() @> '{"jobs": 1, "pages": 1}',
  'what was written while the account was being deleted is swept by the next call'
);
update silkline.deleted_accounts set deleted_at = now() - interval '7 days';
select pg_temp.sweep();
select isnt_empty($$ select from silkline.deleted_accounts $$, 'the account is remembered for as long as a JWT may be valid');
update silkline.deleted_accounts set deleted_at = now() - interval '9 days';
insert into silkline.jobs (user_id, kind, payload, source_id, host, place, status)
values (tests.user_id('bob'), 'crawl', '{}', 's', 'late.example', 1, 'pending');
select silkline.sweep_deleted_accounts(-1);
select isnt_empty($$ select from silkline.deleted_accounts $$, 'and for as long as it has jobs');
select pg_temp.sweep();
select is_empty($$ select from silkline.deleted_accounts $$, 'then it is forgotten');

-- Accounts without jobs, and jobs that another call has locked

select tests.make_users('cam', 'dan');
select tests.enqueue('dans', 'dan');
delete from auth.users where id in (tests.user_id('cam'), tests.user_id('dan'));
select ok(pg_temp.sweep() @> '{"jobs": 1}', 'an account without jobs is no obstacle');
select is_empty(
  $$ select from silkline.quota_uses where owner_id = tests.user_id('dan') $$,
  'what it used of its quota is forgotten, too'
);
select is((select count(*) from silkline.jobs where user_id = tests.user_id('ann')), 3::bigint, 'the jobs of others are kept');

select * from finish();
rollback;

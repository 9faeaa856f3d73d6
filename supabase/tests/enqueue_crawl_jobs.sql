-- enqueue_crawl_jobs: thousands of jobs in one call, all or none.

begin;
select plan(69);

select tests.make_users('ann', 'bob');

create function pg_temp.enqueue(p_jobs jsonb)
  returns jsonb
  language sql
as $$
  select tests.as_user('ann', format('select public.enqueue_crawl_jobs(%L)', p_jobs));
$$;

create function pg_temp.job(p_id jsonb)
  returns setof silkline.jobs
  language sql
as $$
  select * from silkline.jobs where id = (p_id #>> '{}')::uuid;
$$;

create temporary table answers (name text primary key, answer jsonb) on commit drop;

-- Many jobs, each with its own options

update public.crawl_settings set plugin_kinds = '{screenshot}' where id;
insert into answers
values (
  'three',
  pg_temp.enqueue('[
    {"payload": {"url": "https://a.example/"}},
    {"payload": {"url": "https://b.example/"}, "kind": "screenshot", "priority": 5, "source_id": "b", "idempotency_key": "b"},
    {"payload": {"url": "https://c.example/", "max_retries": 1}, "priority": null}
  ]')
);
select is((select answer -> 'count' from answers where name = 'three'), '3'::jsonb, 'the answer counts the jobs');
select results_eq(
  $$
    select job.host, job.kind, job.priority::integer, job.source_id, job.max_retries, job.user_id
    from answers
    cross join lateral jsonb_array_elements(answer -> 'job_ids') with ordinality as listed (id, nth)
    cross join lateral pg_temp.job(listed.id) as job
    where answers.name = 'three'
    order by listed.nth
  $$,
  $$
    values
      ('a.example', 'crawl', 0, 'a.example', 3, tests.user_id('ann')),
      ('b.example', 'screenshot', 5, 'b', 3, tests.user_id('ann')),
      ('c.example', 'crawl', 0, 'c.example', 1, tests.user_id('ann'))
  $$,
  'the ids are in the order of the jobs, each with its own options'
);
select is(
  (
    select count(*)
    from answers
    cross join jsonb_array_elements(answer -> 'job_ids') as listed (id)
    join silkline.states as state
      on state.job_id = (listed.id #>> '{}')::uuid
    where answers.name = 'three'
  ),
  3::bigint,
  'each job has a state'
);
select results_eq(
  $$ select waits_for::text from pg_temp.job(pg_temp.enqueue(jsonb_build_array(jsonb_build_object('payload', '{"url": "https://later.example/"}'::jsonb, 'run_after', now() + interval '1 hour'))) -> 'job_ids' -> 0) $$,
  $$ values ('time') $$,
  'a scheduled job waits for its time'
);

-- Jobs of one host

insert into answers
values ('host', pg_temp.enqueue('[{"payload": {"url": "https://one.example/1"}}, {"payload": {"url": "https://one.example/2"}}]'));
select results_eq(
  $$
    select job.waits_for::text
    from answers
    cross join lateral jsonb_array_elements(answer -> 'job_ids') with ordinality as listed (id, nth)
    cross join lateral pg_temp.job(listed.id) as job
    where answers.name = 'host'
    order by listed.nth
  $$,
  $$ values (null::text), ('host') $$,
  'the first of several jobs for one host is in line, the others wait for it'
);

create function pg_temp.waits(p_jobs jsonb)
  returns text[]
  language sql
as $$
  select array_agg(job.waits_for::text order by listed.nth)
  from jsonb_array_elements(pg_temp.enqueue(p_jobs) -> 'job_ids') with ordinality as listed (id, nth)
  cross join lateral pg_temp.job(listed.id) as job;
$$;

select is(
  pg_temp.waits('[{"payload": {"url": "https://p.example/1"}}, {"payload": {"url": "https://p.example/2"}, "priority": 5}]'),
  array['host', null],
  'the job with the highest priority is in line'
);
select is(
  pg_temp.waits('[{"payload": {"url": "https://s.example/1"}}, {"payload": {"url": "https://S.example.:443/2"}}]'),
  array[null, 'host'],
  'two spellings of a host are one host'
);
select is(
  pg_temp.waits('[{"payload": {}, "kind": "screenshot"}, {"payload": {}, "kind": "screenshot"}]'),
  array[null, null]::text[],
  'jobs of a plugin without a URL do not wait for each other'
);
select is(
  pg_temp.waits('[{"payload": {"strategy": "list", "urls": ["https://a.example", "https://b.example"]}}, {"payload": {"strategy": "list", "urls": ["https://c.example", "https://d.example"]}}]'),
  array[null, 'host'],
  'of the lists of an owner, one at a time is in line'
);
update public.crawl_settings set max_lists_per_user = 2 where id;
select is(
  pg_temp.waits('[{"payload": {"strategy": "list", "urls": ["https://a.example", "https://b.example"]}}, {"payload": {"strategy": "list", "urls": ["https://c.example", "https://d.example"]}}, {"payload": {"strategy": "list", "urls": ["https://e.example", "https://f.example"]}}]'),
  array[null, null, 'host'],
  'max_lists_per_user applies to them'
);
select ok(
  (
    select bool_and(listed.id #>> '{}' > before.id #>> '{}')
    from (select pg_temp.enqueue((select jsonb_agg('{"payload": {"url": "https://o.example/"}}'::jsonb) from generate_series(1, 300))) -> 'job_ids' as ids) as answer
    cross join lateral jsonb_array_elements(answer.ids) with ordinality as listed (id, nth)
    join lateral jsonb_array_elements(answer.ids) with ordinality as before (id, nth)
      on before.nth = listed.nth - 1
  ),
  'the ids of a call sort in the order of its jobs'
);

-- Idempotency

select is(
  pg_temp.enqueue('[{"payload": {"url": "https://k.example/"}, "idempotency_key": "k"}]') #>> '{job_ids,0}',
  (select tests.as_user('ann', $$ select id from public.enqueue_crawl_job('{"url": "https://k.example/"}', p_idempotency_key => 'k') $$)) #>> '{}',
  'both functions mean the same by what is left out'
);
select is(
  pg_temp.enqueue('[{"payload": {"url": "https://k.example/"}, "idempotency_key": "k", "kind": null, "priority": 0, "source_id": null, "run_after": null}]') -> 'count',
  '1',
  'so does null'
);
select tests.remember();
select is(
  pg_temp.enqueue('[{"payload": {"url": "https://b.example/"}, "kind": "screenshot", "priority": 5, "source_id": "b", "idempotency_key": "b"}]') -> 'job_ids' -> 0,
  (select answer -> 'job_ids' -> 1 from answers where name = 'three'),
  'a known idempotency key returns its job'
);
select is(tests.fingerprint(), tests.remembered(), 'a call with only known keys changes nothing');
insert into answers
values ('twice', pg_temp.enqueue('[{"payload": {"url": "https://t.example/"}, "idempotency_key": "t"}, {"payload": {"url": "https://t.example/"}, "idempotency_key": "t"}]'));
select is(
  (select answer -> 'job_ids' -> 0 from answers where name = 'twice'),
  (select answer -> 'job_ids' -> 1 from answers where name = 'twice'),
  'the same key twice in one call is one job'
);
select tests.remember();
select throws_ok(
  $$ select pg_temp.enqueue('[{"payload": {"url": "https://n.example/"}}, {"payload": {"url": "https://other.example/"}, "idempotency_key": "t"}]') $$,
  'PT409',
  'job 2: idempotency key "t" was used for a job that differs in payload.url',
  'a key of a different job is refused'
);
select throws_ok(
  $$ select pg_temp.enqueue('[{"payload": {"url": "https://n.example/"}, "idempotency_key": "n"}, {"payload": {"url": "https://other.example/"}, "idempotency_key": "n"}]') $$,
  'PT409',
  'job 2: idempotency key "n" was used for a job that differs in payload.url',
  'one key for two different jobs in one call is refused'
);
select is(tests.fingerprint(), tests.remembered(), 'a call with one refused key creates no job');

-- Fairness

delete from silkline.jobs where true;
select pg_temp.enqueue(
  (
    select jsonb_agg(jsonb_build_object('payload', jsonb_build_object('url', format('https://h%s.example/', nth))))
    from generate_series(1, 1000) as nth
  )
);
select tests.enqueue('single', 'bob');
select ok(
  exists (
    select
    from public.claim_crawl_jobs(tests.worker_id(), array[tests.token('1'), tests.token('2')]) as job
    where job.id = tests.job('single')
  ),
  'a thousand jobs of one user delay the one job of another by a single turn'
);

-- Quotas

delete from silkline.jobs where true;
update public.crawl_settings set max_open_jobs_per_user = 2 where id;
select tests.remember();
select throws_ok(
  $$ select pg_temp.enqueue('[{"payload": {"url": "https://1.example/"}}, {"payload": {"url": "https://2.example/"}}, {"payload": {"url": "https://3.example/"}}]') $$,
  'PT429',
  'this would exceed the limit of 2 open jobs per user',
  'a call that exceeds the quota is refused'
);
select is(tests.fingerprint(), tests.remembered(), 'a call over the quota creates no job');
update public.crawl_settings set max_open_jobs_per_user = null where id;

-- The service

select results_eq(
  $$
    select user_id
    from pg_temp.job((select tests.as_service('select public.enqueue_crawl_jobs(''[{"payload": {"url": "https://s.example/"}}]'', tests.user_id(''bob''))')) -> 'job_ids' -> 0)
  $$,
  $$ values (tests.user_id('bob')) $$,
  'the service may enqueue for a user'
);

-- Bad input

select tests.remember();
select throws_ok(
  format('select pg_temp.enqueue(%L)', bad.jobs),
  bad.code,
  bad.message,
  bad.claim
)
from (
  values
    (null::text, 'PT400', 'p_jobs must be a list of objects', 'null for the jobs is refused'),
    ('{}', 'PT400', 'p_jobs must be a list of objects', 'an object for the jobs is refused'),
    ('[]', 'PT422', 'p_jobs must have from 1 to 10000 entries, not 0', 'an empty list is refused'),
    ('[5]', 'PT422', 'a job must be an object', 'a job that is not an object is refused'),
    ('[null]', 'PT422', 'a job must be an object', 'a job that is null is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "colour": 1}]', 'PT422', 'a job may contain only payload, kind, priority, source_id, idempotency_key and run_after', 'an unknown key in a job is refused'),
    ('[{}]', 'PT422', 'the payload must be a JSON object', 'a job without a payload is refused'),
    ('[{"payload": {"url": "javascript:alert(1)"}}]', 'PT422', 'url must begin with http:// or https://, not "javascript:alert(1)"', 'a javascript: URL is refused'),
    ('[{"payload": {"url": "https://x.example/"}}, {"payload": {"url": "https://x.example/", "max_pages": -1}}]', 'PT422', 'job 2: max_pages must be a whole number from 1 to 1000000, not -1', 'the message says which job is wrong'),
    ('[{"payload": {"url": "https://x.example/"}, "priority": "high"}]', 'PT422', 'priority must be a whole number, not "high"', 'a string for the priority is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "priority": 1.5}]', 'PT422', 'priority must be a whole number, not 1.5', 'a fraction for the priority is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "priority": -101}]', 'PT422', 'priority must be from -100 to 100, not -101', 'a priority below -100 is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "kind": 5}]', 'PT422', 'kind must be a string, not 5', 'a kind that is not a string is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "source_id": {"a": 1}}]', 'PT422', 'source_id must be a string of 1 to 500 characters', 'a source that is not a string is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "idempotency_key": 5}]', 'PT422', 'idempotency_key must be a string of 1 to 200 characters', 'an idempotency key that is not a string is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "nonsense"}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "nonsense"', 'a string that is not a time is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": 5}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not 5', 'a number for a time is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "2026-13-45T99:00:00Z"}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "2026-13-45T99:00:00Z"', 'an impossible date is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "2026-02-31"}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "2026-02-31"', 'the 31st of February is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "2027-02-29T08:00:00Z"}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "2027-02-29T08:00:00Z"', 'a leap day of another year is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "1900-02-29"}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "1900-02-29"', 'a leap day of 1900 is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "2026-04-31"}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "2026-04-31"', 'the 31st of April is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "0000-01-01"}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "0000-01-01"', 'the year 0 is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "2026-12-01T24:00:00Z"}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "2026-12-01T24:00:00Z"', 'the hour 24 is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "2026-12-01T08:00:00+24:00"}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "2026-12-01T08:00:00+24:00"', 'an offset of a day is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "2026-12-01T08:00:00+16:00"}]', 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "2026-12-01T08:00:00+16:00"', 'an offset of 16 hours, which Postgres cannot read, is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "run_after": "9999-12-31"}]', 'PT422', 'run_after must be within a year', 'a time in the far future is refused'),
    ('[{"payload": {"url": "https://x.example/"}, "kind": "audit"}]', 'PT422', 'jobs of kind audit are not available yet', 'an audit is refused'),
    ('[{"payload": {"url": "https://x.example/"}}, {"payload": {"url": "x"}}, {"payload": {"url": "https://x.example/", "tries": 0}}]', 'PT422', 'job 2: url must begin with http:// or https://, not "x"', 'the first wrong job is named if its URL is wrong'),
    ('[{"payload": {"url": "https://x.example/"}}, {"payload": {"url": "https://x.example/", "tries": 0}}, {"payload": {"url": "x"}}]', 'PT422', 'job 2: tries must be a whole number from 1 to 10, not 0', 'the first wrong job is named if an option is wrong')
) as bad (jobs, code, message, claim);
select lives_ok(
  format(
    'select tests.as_service(%L)',
    format(
      'select public.enqueue_crawl_jobs(%L)',
      jsonb_build_array(jsonb_build_object('payload', '{"url": "https://x.example/"}'::jsonb, 'run_after', moment.text))
    )
  ),
  format('the time %s is accepted', moment.text)
)
from unnest('{2024-02-29,2000-02-29T23:59:59.999999999-1559,0001-01-01T00:00:00+15:59,2026-11-30 08:00+05}'::text[]) as moment (text);
select tests.remember();
select throws_ok(
  $$ select pg_temp.enqueue((select jsonb_agg(1) from generate_series(1, 10001))) $$,
  'PT422',
  'p_jobs must have from 1 to 10000 entries, not 10001',
  'more than 10000 jobs in one call are refused'
);
select throws_ok(
  $$ select pg_temp.enqueue(jsonb_build_array(jsonb_build_object('payload', jsonb_build_object('url', 'https://x.example/', 'user_agent', repeat('x', 10000000))))) $$,
  'PT413',
  null,
  'a payload of ten megabytes is refused as too large'
);
select throws_ok(
  $$ select pg_temp.enqueue((select jsonb_agg(jsonb_build_object('payload', jsonb_build_object('url', 'https://x.example/', 'user_agent', repeat('x', 60000)))) from generate_series(1, 300))) $$,
  'PT413',
  null,
  'jobs of 18 megabytes in one call are refused as too large'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select public.enqueue_crawl_jobs(''[{"payload": {"url": "https://x.example/"}}]'', tests.user_id(''bob''))') $$,
  'PT403',
  'only the service may act for another user',
  'a user cannot enqueue for another'
);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select public.enqueue_crawl_jobs(''[{"payload": {"url": "https://x.example/"}}]'')') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user enqueues nothing'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Who may call it

select function_privs_are('public', 'enqueue_crawl_jobs', array['jsonb', 'uuid'], 'authenticated', array['EXECUTE'], 'users may enqueue');
select function_privs_are('public', 'enqueue_crawl_jobs', array['jsonb', 'uuid'], 'service_role', array['EXECUTE'], 'the service may enqueue');
select function_privs_are('public', 'enqueue_crawl_jobs', array['jsonb', 'uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not enqueue');
select function_privs_are('public', 'enqueue_crawl_jobs', array['jsonb', 'uuid'], 'anon', '{}'::text[], 'anonymous callers may not enqueue');
select throws_ok(
  $$ select tests.as_worker('select public.enqueue_crawl_jobs(''[{"payload": {"url": "https://x.example/"}}]'')') $$,
  '42501',
  'permission denied for function enqueue_crawl_jobs',
  'a worker with the limited key that tries to enqueue is refused'
);
select throws_ok(
  $$ select tests.as_anon('select public.enqueue_crawl_jobs(''[{"payload": {"url": "https://x.example/"}}]'')') $$,
  '42501',
  'permission denied for function enqueue_crawl_jobs',
  'an anonymous caller who tries to enqueue is refused'
);

select * from finish();
rollback;

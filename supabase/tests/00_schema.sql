-- The whole schema is closed: who may read, call and write what, by catalogue and by trying.
-- Also the rules that the tables enforce.

begin;
select plan(199);

-- Row level security

select is_empty(
  $$
    select relation.oid::regclass
    from pg_catalog.pg_class as relation
    where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and relation.relkind in ('r', 'p')
      and not relation.relrowsecurity
  $$,
  'row level security is on for every table'
);

select is_empty(
  $$
    select relation.oid::regclass
    from pg_catalog.pg_class as relation
    where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and relation.relkind in ('v', 'm', 'f')
      and (
        relation.relkind <> 'v'
        or not coalesce('security_invoker=true' = any (relation.reloptions), false)
      )
  $$,
  'no view, materialized view or foreign table bypasses row level security'
);

select tables_are(
  'public',
  array[
    'crawl_audits',
    'crawl_hosts',
    'crawl_pages',
    'crawl_settings',
    'crawl_workers'
  ],
  'the API has these tables and no other'
);
select views_are(
  'public',
  array[
    'crawl_events',
    'crawl_jobs',
    'crawl_states',
    'crawl_tasks'
  ],
  'the API has these views and no other'
);
select tables_are(
  'silkline',
  array[
    'deleted_accounts',
    'deleted_jobs',
    'events',
    'jobs',
    'lines',
    'maintenance',
    'payload_options',
    'quota_uses',
    'spent_tokens',
    'states',
    'tasks',
    'time_floors'
  ],
  'the private schema has these tables and no other'
);
select views_are('silkline', '{}'::name[], 'the private schema has no view');

select set_eq(
  $$
    select policy.schemaname || '.' || policy.tablename, policy.policyname::text, policy.cmd, policy.roles::text
    from pg_catalog.pg_policies as policy
    where policy.schemaname in ('public', 'silkline')
  $$,
  $$
    values
      ('public.crawl_settings', 'Signed-in users read the settings', 'SELECT', '{authenticated}'),
      ('public.crawl_pages', 'Users read their own pages', 'SELECT', '{authenticated}'),
      ('public.crawl_audits', 'Users read their own audits', 'SELECT', '{authenticated}'),
      ('public.crawl_hosts', 'Only the service reads hosts', 'SELECT', '{service_role}'),
      ('public.crawl_workers', 'Only the service reads workers', 'SELECT', '{service_role}'),
      ('silkline.jobs', 'Users read their own jobs', 'SELECT', '{authenticated}'),
      ('silkline.states', 'Users read the state of their own jobs', 'SELECT', '{authenticated}'),
      ('silkline.tasks', 'Users read the URLs of their own jobs', 'SELECT', '{authenticated}'),
      ('silkline.events', 'Users read the history of their own jobs', 'SELECT', '{authenticated}'),
      ('silkline.deleted_accounts', 'Only the service reads deleted accounts', 'SELECT', '{service_role}'),
      ('silkline.deleted_jobs', 'Only the service reads deleted jobs', 'SELECT', '{service_role}'),
      ('silkline.lines', 'Only the service reads lines', 'SELECT', '{service_role}'),
      ('silkline.maintenance', 'Only the service reads maintenance', 'SELECT', '{service_role}'),
      ('silkline.payload_options', 'Only the service reads options', 'SELECT', '{service_role}'),
      ('silkline.quota_uses', 'Only the service reads uses of quotas', 'SELECT', '{service_role}'),
      ('silkline.spent_tokens', 'Only the service reads spent tokens', 'SELECT', '{service_role}'),
      ('silkline.time_floors', 'Only the service reads floors', 'SELECT', '{service_role}')
  $$,
  'these are all policies, and they grant reading only'
);

select is_empty(
  $$
    select policy.policyname
    from pg_catalog.pg_policies as policy
    where policy.schemaname in ('public', 'silkline')
      and (policy.qual is null or policy.qual = 'true')
  $$,
  'no policy is open to all'
);

-- Functions

select set_eq(
  $$
    select function.proname::text
    from pg_catalog.pg_proc as function
    where function.pronamespace = 'public'::regnamespace
  $$,
  array[
    'claim_crawl_jobs',
    'heartbeat_crawl_jobs',
    'checkpoint_crawl_job',
    'complete_crawl_job',
    'complete_crawl_jobs',
    'fail_crawl_job',
    'release_crawl_job',
    'reap_crawl_jobs',
    'enqueue_crawl_job',
    'enqueue_crawl_jobs',
    'pause_crawl_job',
    'pause_crawl_jobs',
    'resume_crawl_job',
    'resume_crawl_jobs',
    'stop_crawl_job',
    'stop_crawl_jobs',
    'cancel_crawl_job',
    'cancel_crawl_jobs',
    'retry_crawl_job',
    'retry_crawl_jobs',
    'crawl_progress',
    'pending_crawl_work',
    'crawl_queue_stats',
    'explain_crawl_job',
    'crawl_job_pages',
    'list_crawl_workers',
    'maintain_crawl_queue',
    'crawl_doctor'
  ],
  'the API has these functions and no other'
);

select is_empty(
  $$
    select function.proname
    from pg_catalog.pg_proc as function
    where function.pronamespace = 'public'::regnamespace
    group by function.proname
    having count(*) > 1
  $$,
  'no function of the API is overloaded'
);

select is_empty(
  $$
    select function.oid::regprocedure
    from pg_catalog.pg_proc as function
    where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and not coalesce('search_path=""' = any (function.proconfig), false)
  $$,
  'every function pins an empty search_path'
);

-- Before PostgreSQL 18, an unavoidable sequential scan then costs more than any JIT threshold.
select is_empty(
  $$
    select function.oid::regprocedure
    from pg_catalog.pg_proc as function
    where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and 'enable_seqscan=off' = any (function.proconfig)
      and not 'jit=off' = any (function.proconfig)
  $$,
  'every function that disables sequential scans also disables JIT'
);

select is_empty(
  $$
    select function.oid::regprocedure, parameter.name
    from pg_catalog.pg_proc as function
    cross join lateral unnest(function.proargnames) with ordinality as parameter (name, nth)
    where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and coalesce(function.proargmodes[parameter.nth], 'i') in ('i', 'b', 'v')
      and parameter.name not like 'p\_%'
  $$,
  'every named parameter begins with p_'
);

select is_empty(
  $$
    select function.oid::regprocedure
    from pg_catalog.pg_proc as function
    where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and function.pronargs > 0
      and function.proargnames is null
  $$,
  'every parameter has a name'
);

select is_empty(
  $$
    select function.oid::regprocedure
    from pg_catalog.pg_proc as function
    where function.pronamespace = 'public'::regnamespace
      and not function.proretset
      and function.prorettype <> 'jsonb'::regtype
  $$,
  'every function of the API returns rows or jsonb'
);

select is_empty(
  $$
    select function.oid::regprocedure
    from pg_catalog.pg_proc as function
    where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and obj_description(function.oid, 'pg_proc') is null
  $$,
  'every function has a comment'
);

select set_eq(
  $$
    select function.pronamespace::regnamespace || '.' || function.proname
    from pg_catalog.pg_proc as function
    where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and function.prosecdef
  $$,
  array[
    'public.claim_crawl_jobs',
    'public.heartbeat_crawl_jobs',
    'public.checkpoint_crawl_job',
    'public.complete_crawl_job',
    'public.complete_crawl_jobs',
    'public.fail_crawl_job',
    'public.release_crawl_job',
    'public.reap_crawl_jobs',
    'public.list_crawl_workers',
    'public.maintain_crawl_queue',
    'public.crawl_doctor',
    'silkline.caller_id',
    'silkline.enqueue',
    'silkline.change_job',
    'silkline.change_matching_jobs',
    'silkline.retry_job',
    'silkline.retry_matching_jobs',
    'silkline.explain_job',
    'silkline.job_progress',
    'silkline.job_pages',
    'silkline.pending_work',
    'silkline.queue_stats',
    'silkline.check_host_settings',
    'silkline.record_new_jobs',
    'silkline.record_change_by_sql',
    'silkline.remember_deleted_account',
    'silkline.remember_deleted_jobs'
  ],
  'only these functions run with the rights of their owner'
);

select is_empty(
  $$
    select function.oid::regprocedure
    from pg_catalog.pg_proc as function
    where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and (
        has_function_privilege('anon', function.oid, 'execute')
        or exists (
          select
          from aclexplode(coalesce(function.proacl, acldefault('f', function.proowner))) as entry
          where entry.grantee = 0
        )
      )
  $$,
  'anonymous callers and public may execute nothing'
);

select set_eq(
  $$
    select function.pronamespace::regnamespace || '.' || function.proname
    from pg_catalog.pg_proc as function
    where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and has_function_privilege('authenticated', function.oid, 'execute')
  $$,
  array[
    'public.enqueue_crawl_job',
    'public.enqueue_crawl_jobs',
    'public.pause_crawl_job',
    'public.pause_crawl_jobs',
    'public.resume_crawl_job',
    'public.resume_crawl_jobs',
    'public.stop_crawl_job',
    'public.stop_crawl_jobs',
    'public.cancel_crawl_job',
    'public.cancel_crawl_jobs',
    'public.retry_crawl_job',
    'public.retry_crawl_jobs',
    'public.crawl_progress',
    'public.pending_crawl_work',
    'public.crawl_queue_stats',
    'public.explain_crawl_job',
    'public.crawl_job_pages',
    'silkline.enqueue',
    'silkline.change_job',
    'silkline.change_matching_jobs',
    'silkline.retry_job',
    'silkline.retry_matching_jobs',
    'silkline.explain_job',
    'silkline.job_progress',
    'silkline.job_pages',
    'silkline.pending_work',
    'silkline.queue_stats',
    'silkline.caller_id',
    'silkline.is_service',
    'silkline.topic_job_id'
  ],
  'users may execute these functions and no other'
);

select set_eq(
  $$
    select function.pronamespace::regnamespace || '.' || function.proname
    from pg_catalog.pg_proc as function
    where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and has_function_privilege('service_role', function.oid, 'execute')
  $$,
  array[
    'public.claim_crawl_jobs',
    'public.heartbeat_crawl_jobs',
    'public.checkpoint_crawl_job',
    'public.complete_crawl_job',
    'public.complete_crawl_jobs',
    'public.fail_crawl_job',
    'public.release_crawl_job',
    'public.reap_crawl_jobs',
    'public.enqueue_crawl_job',
    'public.enqueue_crawl_jobs',
    'public.pause_crawl_job',
    'public.pause_crawl_jobs',
    'public.resume_crawl_job',
    'public.resume_crawl_jobs',
    'public.stop_crawl_job',
    'public.stop_crawl_jobs',
    'public.cancel_crawl_job',
    'public.cancel_crawl_jobs',
    'public.retry_crawl_job',
    'public.retry_crawl_jobs',
    'public.crawl_progress',
    'public.pending_crawl_work',
    'public.crawl_queue_stats',
    'public.explain_crawl_job',
    'public.crawl_job_pages',
    'public.list_crawl_workers',
    'public.maintain_crawl_queue',
    'public.crawl_doctor',
    'silkline.enqueue',
    'silkline.change_job',
    'silkline.change_matching_jobs',
    'silkline.retry_job',
    'silkline.retry_matching_jobs',
    'silkline.explain_job',
    'silkline.job_progress',
    'silkline.job_pages',
    'silkline.pending_work',
    'silkline.queue_stats',
    'silkline.caller_id',
    'silkline.is_service'
  ],
  'the service may execute the whole API, and only the private functions that it calls'
);

select set_eq(
  $$
    select function.pronamespace::regnamespace || '.' || function.proname
    from pg_catalog.pg_proc as function
    where function.pronamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and has_function_privilege('crawl_worker', function.oid, 'execute')
  $$,
  array[
    'public.claim_crawl_jobs',
    'public.heartbeat_crawl_jobs',
    'public.checkpoint_crawl_job',
    'public.complete_crawl_job',
    'public.complete_crawl_jobs',
    'public.fail_crawl_job',
    'public.release_crawl_job',
    'public.reap_crawl_jobs'
  ],
  'a worker with the limited key may execute the worker functions and no other'
);

-- Schemas and roles

select schema_privs_are('silkline', 'anon', '{}'::text[], 'anonymous callers may not enter the private schema');
select schema_privs_are('silkline', 'crawl_worker', '{}'::text[], 'workers with the limited key may not enter the private schema');
select schema_privs_are('silkline', 'authenticated', array['USAGE'], 'users may not create anything in the private schema');
select schema_privs_are('silkline', 'service_role', array['USAGE'], 'the service may not create anything in the private schema');
select schema_privs_are('public', 'crawl_worker', array['USAGE'], 'workers with the limited key may not create anything in the API');
select is_member_of('crawl_worker', array['authenticator'], 'the API can switch to the role of a worker');
select is_member_of('crawl_worker', array['supabase_realtime_admin'], 'Realtime can switch to the role of a worker');
select is_empty(
  $$
    select membership.roleid::regrole
    from pg_catalog.pg_auth_members as membership
    where membership.member = 'crawl_worker'::regrole
  $$,
  'a worker with the limited key is a member of no other role'
);
select results_eq(
  $$
    select role.rolcanlogin, role.rolsuper, role.rolbypassrls, role.rolcreaterole, role.rolinherit
    from pg_catalog.pg_roles as role
    where role.rolname = 'crawl_worker'
  $$,
  $$ values (false, false, false, false, false) $$,
  'the role crawl_worker cannot log in and bypasses no rule'
);

-- Tables, for each role

select is_empty(
  $$
    select relation.oid::regclass, wanted.role, wanted.privilege
    from pg_catalog.pg_class as relation
    cross join unnest(array['anon', 'crawl_worker']) as role (name)
    cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) as privilege (name)
    cross join lateral (select role.name as role, privilege.name as privilege) as wanted
    where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and relation.relkind in ('r', 'v')
      and has_any_column_privilege(wanted.role, relation.oid, wanted.privilege)
  $$,
  'anonymous callers and workers with the limited key have no right on any column'
);

select is_empty(
  $$
    select relation.oid::regclass, role.name, privilege.name
    from pg_catalog.pg_class as relation
    cross join unnest(array['anon', 'crawl_worker', 'authenticated', 'service_role']) as role (name)
    cross join unnest(array['USAGE', 'SELECT', 'UPDATE']) as privilege (name)
    where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and relation.relkind = 'S'
      and has_sequence_privilege(role.name, relation.oid, privilege.name)
  $$,
  'no role has a right on a sequence'
);

select set_eq(
  $$
    select
      role.name as role,
      relation.relnamespace::regnamespace || '.' || relation.relname as relation,
      privilege.name as privilege
    from pg_catalog.pg_class as relation
    cross join unnest(array['anon', 'crawl_worker', 'authenticated', 'service_role']) as role (name)
    cross join unnest(
      array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']
    ) as privilege (name)
    where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and relation.relkind in ('r', 'v')
      and has_table_privilege(role.name, relation.oid, privilege.name)
  $$,
  $$
    values
      ('authenticated', 'public.crawl_settings', 'SELECT'),
      ('authenticated', 'public.crawl_jobs', 'SELECT'),
      ('authenticated', 'public.crawl_states', 'SELECT'),
      ('authenticated', 'public.crawl_tasks', 'SELECT'),
      ('authenticated', 'public.crawl_events', 'SELECT'),
      ('authenticated', 'public.crawl_pages', 'SELECT'),
      ('authenticated', 'public.crawl_audits', 'SELECT'),
      ('authenticated', 'silkline.events', 'SELECT'),
      ('service_role', 'public.crawl_settings', 'SELECT'),
      ('service_role', 'public.crawl_settings', 'UPDATE'),
      ('service_role', 'public.crawl_jobs', 'SELECT'),
      ('service_role', 'public.crawl_states', 'SELECT'),
      ('service_role', 'public.crawl_tasks', 'SELECT'),
      ('service_role', 'public.crawl_events', 'SELECT'),
      ('service_role', 'public.crawl_pages', 'SELECT'),
      ('service_role', 'public.crawl_audits', 'SELECT'),
      ('service_role', 'public.crawl_hosts', 'SELECT'),
      ('service_role', 'public.crawl_workers', 'SELECT'),
      ('service_role', 'silkline.events', 'SELECT'),
      ('service_role', 'silkline.deleted_accounts', 'SELECT'),
      ('service_role', 'silkline.deleted_jobs', 'SELECT'),
      ('service_role', 'silkline.quota_uses', 'SELECT'),
      ('service_role', 'silkline.spent_tokens', 'SELECT'),
      ('service_role', 'silkline.lines', 'SELECT'),
      ('service_role', 'silkline.time_floors', 'SELECT'),
      ('service_role', 'silkline.payload_options', 'SELECT'),
      ('service_role', 'silkline.maintenance', 'SELECT')
  $$,
  'no role may do more with a table or view than this'
);

select set_eq(
  $$
    select role.name as role, relation.relname || '.' || attribute.attname as hidden
    from pg_catalog.pg_class as relation
    join pg_catalog.pg_attribute as attribute
      on attribute.attrelid = relation.oid
    cross join unnest(array['authenticated', 'service_role']) as role (name)
    where relation.relnamespace = 'silkline'::regnamespace
      and relation.relkind = 'r'
      and attribute.attnum > 0
      and not attribute.attisdropped
      and has_any_column_privilege(role.name, relation.oid, 'SELECT')
      and not has_column_privilege(role.name, relation.oid, attribute.attnum, 'SELECT')
  $$,
  $$
    select role, hidden
    from unnest(array['authenticated', 'service_role']) as role
    cross join unnest(
      array[
        'jobs.lease_token',
        'jobs.place',
        'jobs.host_slot',
        'jobs.lane',
        'jobs.has_lost_turn',
        'jobs.idempotency_request',
        'states.batch_token',
        'states.batch_seq',
        'states.progress_sent_at',
        'tasks.lease_token',
        'tasks.lease_seq'
      ]
    ) as hidden
  $$,
  'of the tables behind the views, these columns are hidden and no other'
);

select is_empty(
  $$
    select role.name, relation.oid::regclass, attribute.attname, privilege.name
    from pg_catalog.pg_class as relation
    join pg_catalog.pg_attribute as attribute
      on attribute.attrelid = relation.oid
    cross join unnest(array['authenticated', 'service_role']) as role (name)
    cross join unnest(array['INSERT', 'UPDATE', 'REFERENCES']) as privilege (name)
    where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and relation.relkind in ('r', 'v')
      and attribute.attnum > 0
      and not attribute.attisdropped
      and has_column_privilege(role.name, relation.oid, attribute.attnum, privilege.name)
      and (role.name, relation.relname, privilege.name) <> ('service_role', 'crawl_settings', 'UPDATE')
  $$,
  'no role may write a column, except for the service the settings'
);

-- By trying: two users, each with a job that left a row in every table

select tests.make_users('ann', 'bob');
select tests.claimed_job('ann-job', 'ann');
select tests.claimed_job('bob-job', 'bob');
select tests.checkpoint(name, jsonb_build_object('seq', 1, 'discovered', tests.links('https://a.example/')), 1)
from unnest(array['ann-job', 'bob-job']) as name;
select tests.checkpoint(
  name,
  jsonb_build_object(
    'seq', 2,
    'finished', jsonb_build_array(tests.fetched('https://a.example/')),
    'hosts', '[{"host": "a.example", "robots_status": 200}]'::jsonb
  )
)
from unnest(array['ann-job', 'bob-job']) as name;
select public.complete_crawl_job(
  tests.token(name),
  '{}',
  '{"score": 90, "grade": "A", "categories": {}, "findings": [], "ruleset_version": "1"}'
)
from unnest(array['ann-job', 'bob-job']) as name;
select public.heartbeat_crawl_jobs(tests.worker_id(), '{}');

select results_eq(
  $$ select tests.as_user('ann', 'select id from public.crawl_jobs') $$,
  $$ select to_jsonb(tests.job('ann-job')) $$,
  'a user reads her own jobs only'
);
select results_eq(
  $$ select tests.as_user('ann', 'select job_id from public.crawl_states') $$,
  $$ select to_jsonb(tests.job('ann-job')) $$,
  'a user reads the state of her own jobs only'
);
select results_eq(
  $$ select tests.as_user('ann', 'select job_id from public.crawl_tasks') $$,
  $$ select to_jsonb(tests.job('ann-job')) $$,
  'a user reads the URLs of her own jobs only'
);
select results_eq(
  format($$ select distinct tests.as_user('ann', 'select job_id from silkline.%s') $$, name),
  $$ select to_jsonb(tests.job('ann-job')) $$,
  format('the policy of silkline.%s alone limits a user to her own jobs', name)
)
from unnest(array['states', 'tasks', 'events']) as name;
select results_eq(
  $$ select tests.as_user('ann', 'select id from silkline.jobs') $$,
  $$ select to_jsonb(tests.job('ann-job')) $$,
  'so does the policy of silkline.jobs'
);
select throws_ok(
  format('select tests.run_as(%L, tests.user_id(%L), %L)', role, 'ann', 'select lease_token from silkline.jobs'),
  '42501',
  'permission denied for table jobs',
  format('%s does not read lease tokens', role)
)
from unnest(array['authenticated', 'service_role']) as role;
select results_eq(
  $$ select tests.as_user('ann', 'select job_id from public.crawl_pages') $$,
  $$ select to_jsonb(tests.job('ann-job')) $$,
  'a user reads her own pages only, even of a URL that another user crawled'
);
select results_eq(
  $$ select tests.as_user('ann', 'select job_id from public.crawl_audits') $$,
  $$ select to_jsonb(tests.job('ann-job')) $$,
  'a user reads her own audits only'
);
select results_eq(
  $$ select distinct tests.as_user('ann', 'select distinct job_id from public.crawl_events') $$,
  $$ select to_jsonb(tests.job('ann-job')) $$,
  'a user reads the history of her own jobs only'
);
select results_eq(
  $$ select tests.as_user('ann', 'select count(*) from public.crawl_settings') $$,
  $$ select to_jsonb(1) $$,
  'a user reads the settings'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.crawl_hosts') $$,
  '42501',
  'permission denied for table crawl_hosts',
  'a user does not read hosts'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from public.crawl_workers') $$,
  '42501',
  'permission denied for table crawl_workers',
  'a user does not read workers'
);
select throws_ok(
  $$ select tests.as_user('ann', 'select * from silkline.payload_options') $$,
  '42501',
  'permission denied for table payload_options',
  'a user does not read the private schema'
);
select is_empty(
  format($$ select tests.run_as('authenticated', null, 'select 1 from public.%I') $$, name),
  format('a token without a user reads nothing of %s', name)
)
from unnest(
  array[
    'crawl_settings',
    'crawl_jobs',
    'crawl_states',
    'crawl_tasks',
    'crawl_pages',
    'crawl_audits',
    'crawl_events'
  ]
) as name;

select results_eq(
  format($$ select tests.as_service('select count(*) > 0 from public.%I') $$, name),
  $$ select to_jsonb(true) $$,
  format('the service reads %s', name)
)
from unnest(
  array[
    'crawl_settings',
    'crawl_jobs',
    'crawl_states',
    'crawl_tasks',
    'crawl_pages',
    'crawl_audits',
    'crawl_events',
    'crawl_hosts',
    'crawl_workers'
  ]
) as name;

select throws_ok(
  format('select tests.run_as(%L, null, %L)', role, format('select * from public.%I', name)),
  '42501',
  format(
    'permission denied for %s %s',
    case when name in ('crawl_jobs', 'crawl_states', 'crawl_tasks', 'crawl_events') then 'view' else 'table' end,
    name
  ),
  format('%s does not read %s', role, name)
)
from unnest(array['anon', 'crawl_worker']) as role
cross join unnest(
  array[
    'crawl_settings',
    'crawl_jobs',
    'crawl_states',
    'crawl_tasks',
    'crawl_pages',
    'crawl_audits',
    'crawl_events',
    'crawl_hosts',
    'crawl_workers'
  ]
) as name;

-- JWT claims that name the service do not make a user the service: the role decides.
select is_empty(
  $$
    select tests.as_user('ann', $sql$
      select job.id
      from set_config('request.jwt.claims', '{"role": "service_role"}', true)
      cross join silkline.jobs as job
    $sql$)
  $$,
  'a forged claim opens no row'
);
select throws_ok(
  $$
    select tests.as_user('ann', $sql$
      select public.crawl_queue_stats() -> 'ended_in_24_hours'
      from set_config('request.jwt.claims', '{"role": "service_role"}', true)
    $sql$)
  $$,
  'PT401',
  'the caller is not signed in',
  'with a forged claim, other users'' jobs are not counted'
);
select throws_ok(
  $$
    select tests.as_user('ann', $sql$
      select public.cancel_crawl_job(tests.job('bob-job'))
      from set_config('request.jwt.claims', '{"role": "service_role"}', true)
    $sql$)
  $$,
  'PT401',
  'the caller is not signed in',
  'a forged claim changes no job'
);

select tests.remember();
select throws_ok(
  format(
    'select tests.write_as(%L, tests.user_id(%L), %L)',
    role,
    'ann',
    'update silkline.jobs set priority = 100 where true'
  ),
  '42501',
  case when role in ('anon', 'crawl_worker') then 'permission denied for schema silkline' else 'permission denied for table jobs' end,
  format('%s does not update jobs directly', role)
)
from unnest(array['anon', 'authenticated', 'service_role', 'crawl_worker']) as role;
select throws_ok(
  format(
    'select tests.write_as(%L, tests.user_id(%L), %L)',
    role,
    'ann',
    'delete from silkline.events where true'
  ),
  '42501',
  case when role in ('anon', 'crawl_worker') then 'permission denied for schema silkline' else 'permission denied for table events' end,
  format('%s does not rewrite history', role)
)
from unnest(array['anon', 'authenticated', 'service_role', 'crawl_worker']) as role;
select throws_ok(
  format(
    'select tests.write_as(%L, tests.user_id(%L), %L)',
    role,
    'ann',
    'update public.crawl_settings set max_open_jobs_per_user = null where true'
  ),
  '42501',
  'permission denied for table crawl_settings',
  format('%s does not change the limits', role)
)
from unnest(array['anon', 'authenticated', 'crawl_worker']) as role;
select throws_ok(
  format('select tests.write_as(%L, null, %L)', role, 'truncate public.crawl_pages'),
  '42501',
  'permission denied for table crawl_pages',
  format('%s does not truncate: row level security would not stop it', role)
)
from unnest(array['anon', 'authenticated', 'service_role', 'crawl_worker']) as role;
select throws_ok(
  format('select tests.run_as(%L, null, %L)', role, 'select silkline.prune(1)'),
  '42501',
  case
    when role in ('anon', 'crawl_worker') then 'permission denied for schema silkline'
    else 'permission denied for function prune'
  end,
  format('%s does not call private functions', role)
)
from unnest(array['anon', 'authenticated', 'service_role', 'crawl_worker']) as role;
select is(tests.fingerprint(), tests.remembered(), 'refused writes changed no row');

select lives_ok(
  $$ select tests.write_as('service_role', null, 'update public.crawl_settings set max_open_jobs_per_user = 5 where id') $$,
  'the service changes the settings'
);

-- Rules that the tables enforce

select set_eq(
  $$
    select constraint_.conname::text
    from pg_catalog.pg_constraint as constraint_
    where constraint_.connamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and constraint_.contype in ('c', 'f', 'u')
      and constraint_.convalidated
  $$,
  array[
    'crawl_settings_is_one_row',
    'crawl_settings_heartbeat_fits_lease',
    'crawl_settings_backoff_is_ordered',
    'crawl_settings_limits_are_positive',
    'crawl_settings_lists_have_no_nulls',
    'crawl_settings_user_limits_can_be_met',
    'states_counts_are_not_negative',
    'states_redirected_starts_are_a_list',
    'tasks_url_is_short',
    'tasks_depth_is_in_range',
    'tasks_lease_fits_status',
    'tasks_error_has_message',
    'tasks_skip_reason_is_known',
    'crawl_pages_version_is_positive',
    'crawl_pages_links_are_a_list',
    'crawl_pages_metadata_is_an_object',
    'crawl_pages_quality_is_a_small_object',
    'crawl_hosts_host_is_short',
    'crawl_hosts_robots_txt_is_bounded',
    'crawl_hosts_delay_is_in_range',
    'crawl_audits_score_is_a_percentage',
    'crawl_audits_grade_is_short',
    'crawl_audits_categories_are_an_object',
    'crawl_audits_findings_are_a_list',
    'crawl_workers_slots_are_not_negative',
    'lines_band_is_in_range',
    'lines_floor_is_in_band',
    'time_floors_is_one_row',
    'payload_options_type_is_known'
  ],
  'every rule that is a constraint is in place and valid; no foreign key makes a write wait'
);
select is_empty(
  $$
    select relation.oid::regclass
    from pg_catalog.pg_class as relation
    where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and relation.relkind = 'r'
      and not exists (
        select
        from pg_catalog.pg_index as index
        where index.indrelid = relation.oid
          and index.indisprimary
      )
  $$,
  'every table has a primary key'
);

select set_eq(
  $$
    select index.indexrelid::regclass::text
    from pg_catalog.pg_index as index
    join pg_catalog.pg_class as relation
      on relation.oid = index.indrelid
    where relation.relnamespace in ('public'::regnamespace, 'silkline'::regnamespace)
      and index.indisunique
      and not index.indisprimary
      and index.indisvalid
  $$,
  array[
    'silkline.jobs_lease_token_is_unique',
    'silkline.jobs_host_slot_is_held_once',
    'silkline.jobs_idempotency_key_is_unique',
    'crawl_pages_version_is_unique',
    'crawl_pages_latest_is_unique'
  ],
  'every rule that is a unique index is in place and valid'
);
select has_index('silkline', 'jobs', 'jobs_in_line', 'the index of the line exists');
select col_is_pk('silkline', 'tasks', array['job_id', 'url_key'], 'a job has each URL once');
select has_trigger('auth', 'users', 'tg_silkline_remember_deleted_account', 'deleted accounts are noticed');
select has_trigger('silkline', 'jobs', 'tg_jobs_remember_deleted', 'deleted jobs are noticed');

-- The rules for a job at rest, by trying to break them

select tests.claimed_job('leased', 'ann');
select tests.enqueue('rule', 'ann');

create function pg_temp.break_job(p_name text, p_change text)
  returns void
  language plpgsql
as $$
begin
  execute format('update silkline.jobs set %s where id = tests.job(%L)', p_change, p_name);
end
$$;

select throws_ok(
  format('select pg_temp.break_job(%L, %L)', broken.job, broken.change),
  '23514',
  format('job %s (%s) breaks the rule %s', tests.job(broken.job), broken.status, broken.rule),
  broken.claim
)
from (
  values
    ('rule', 'completed_at = now()', 'pending', 'jobs_ended_means_completed_at',
      'a job that has not ended has no end time'),
    ('rule', $$status = 'stopped'$$, 'stopped', 'jobs_ended_means_completed_at',
      'a job that has ended has an end time'),
    ('rule', $$status = 'paused', waits_for = 'time'$$, 'paused', 'jobs_only_pending_waits',
      'only a pending job waits'),
    ('rule', $$status = 'processing'$$, 'processing', 'jobs_lease_fits_status',
      'a running job has a lease'),
    ('rule', 'retry_count = -1', 'pending', 'jobs_retries_are_in_range',
      'retries are not negative'),
    ('rule', 'retry_count = max_retries + 1', 'pending', 'jobs_retries_are_in_range',
      'retries stay within the limit'),
    ('rule', 'progress_percentage = 101', 'pending', 'jobs_progress_is_a_percentage',
      'progress is at most 100 percent'),
    ('rule', 'progress_percentage = -1', 'pending', 'jobs_progress_is_a_percentage',
      'progress is at least 0 percent'),
    ('rule', 'running_seconds = -1', 'pending', 'jobs_running_seconds_are_not_negative',
      'running time is not negative'),
    ('rule', 'worker_id = tests.worker_id()', 'pending', 'jobs_lease_is_whole',
      'a worker id without a lease is refused'),
    ('rule', 'host_slot = 1', 'pending', 'jobs_lease_is_whole',
      'a host slot without a lease is refused'),
    ('leased', 'lease_token = null', 'processing', 'jobs_lease_is_whole',
      'a lease has a token'),
    ('leased', 'worker_id = null', 'processing', 'jobs_lease_is_whole',
      'a lease has a worker'),
    ('leased', 'host_slot = null', 'processing', 'jobs_lease_is_whole',
      'a lease has a slot at its host'),
    ('leased', $$status = 'pending'$$, 'pending', 'jobs_lease_fits_status',
      'a pending job has no lease'),
    ('leased', $$status = 'completed', completed_at = now()$$, 'completed', 'jobs_lease_fits_status',
      'a completed job has no lease'),
    (
      'leased',
      $$status = 'failed', completed_at = now(), worker_id = null, lease_check_at = null, host_slot = null$$,
      'failed',
      'jobs_failed_means_error_code',
      'a failed job has an error code'
    )
) as broken (job, change, status, rule, claim);

select throws_ok(
  format(
    $$
      insert into silkline.jobs
        (id, kind, payload, priority, source_id, host, idempotency_key, place, max_retries)
      values (tests.token('new'), %L, %L, %L, %L, %L, %L, 1, %L)
    $$,
    bad.kind, bad.payload, bad.priority, bad.source_id, bad.host, bad.idempotency_key, bad.max_retries
  ),
  '23514',
  format('new job %s breaks the rule %s', tests.token('new'), bad.rule),
  bad.claim
)
from (
  values
    ('Not A Name', '{}', 0, 's', 'h', 'k', 3, 'jobs_kind_is_a_name',
      'a kind is a short lower-case name'),
    ('crawl', '[]', 0, 's', 'h', 'k', 3, 'jobs_payload_is_an_object',
      'a payload is an object'),
    ('crawl', '{}', 101, 's', 'h', 'k', 3, 'jobs_priority_is_in_range',
      'a priority is at most 100'),
    ('crawl', '{}', -101, 's', 'h', 'k', 3, 'jobs_priority_is_in_range',
      'a priority is at least -100'),
    ('crawl', '{}', 0, '', 'h', 'k', 3, 'jobs_source_is_short',
      'a source is not empty'),
    ('crawl', '{}', 0, repeat('s', 501), 'h', 'k', 3, 'jobs_source_is_short',
      'a source has at most 500 characters'),
    ('crawl', '{}', 0, 's', '', 'k', 3, 'jobs_host_is_short',
      'a host is not empty'),
    ('crawl', '{}', 0, 's', repeat('h', 301), 'k', 3, 'jobs_host_is_short',
      'a host has at most 300 characters'),
    ('crawl', '{}', 0, 's', 'h', '', 3, 'jobs_idempotency_key_is_short',
      'an idempotency key is not empty'),
    ('crawl', '{}', 0, 's', 'h', repeat('k', 201), 3, 'jobs_idempotency_key_is_short',
      'an idempotency key has at most 200 characters'),
    ('crawl', '{}', 0, 's', 'h', 'k', 101, 'jobs_retries_are_in_range',
      'at most 100 retries'),
    ('crawl', '{}', 0, 's', 'h', 'k', -1, 'jobs_retries_are_in_range',
      'retries are not negative from the start')
) as bad (kind, payload, priority, source_id, host, idempotency_key, max_retries, rule, claim);

select tests.enqueue('rival', 'bob', '{"url": "https://leased.example/"}');
select throws_ok(
  $$
    update silkline.jobs as rival
    set
      status = 'processing',
      worker_id = holder.worker_id,
      lease_token = tests.token('rival'),
      lease_check_at = holder.lease_check_at,
      last_heartbeat = now(),
      host_slot = holder.host_slot
    from silkline.jobs as holder
    where rival.id = tests.job('rival')
      and holder.id = tests.job('leased')
  $$,
  '23505',
  'duplicate key value violates unique constraint "jobs_host_slot_is_held_once"',
  'two jobs cannot hold the same slot of a host'
);
select throws_ok(
  $$ select pg_temp.break_job('rival', $sql$lease_token = tests.token('leased')$sql$) $$,
  '23505',
  'duplicate key value violates unique constraint "jobs_lease_token_is_unique"',
  'two jobs cannot have the same lease token'
);
select throws_ok(
  $$
    insert into silkline.jobs (id, kind, payload, source_id, host, place, status, completed_at)
    values (tests.token('new'), 'crawl', '{}', 's', 'h', 1, 'completed', now())
  $$,
  '23514',
  format('new job %s breaks the rule jobs_begin_pending', tests.token('new')),
  'a new job is pending'
);
select throws_ok(
  $$ insert into public.crawl_settings default values $$,
  '23505',
  'duplicate key value violates unique constraint "crawl_settings_pkey"',
  'there is only one row of settings'
);
select throws_ok(
  $$ update public.crawl_settings set stale_after_seconds = 2 * heartbeat_every_seconds where id $$,
  '23514',
  'new row for relation "crawl_settings" violates check constraint "crawl_settings_heartbeat_fits_lease"',
  'a lease must outlast three heartbeats'
);

-- The state machine, every pair of states

-- Move a job to a status, with whatever else that status needs, and return what happened.
create function pg_temp.move(p_name text, p_status public.crawl_job_status)
  returns text
  language plpgsql
as $$
begin
  update silkline.jobs as job
  set
    status = p_status,
    completed_at = case when p_status in ('completed', 'failed', 'stopped', 'cancelled') then now() end,
    error_code = case when p_status = 'failed' then 'broken' end,
    worker_id = case when p_status = 'processing' then tests.worker_id() end,
    lease_token = case when p_status = 'processing' then tests.token(p_name) end,
    last_heartbeat = case when p_status = 'processing' then now() end,
    lease_check_at = case when p_status = 'processing' then now() + interval '2 minutes' end,
    host_slot = case when p_status = 'processing' then 1 end
  where job.id = tests.job(p_name);
  return 'done';
exception
  when sqlstate 'PT409' then
    return 'refused';
end
$$;

select tests.write_as('service_role', null, 'update public.crawl_settings set max_open_jobs_per_user = null where id');
select tests.enqueue(format('%s-%s', old, new), 'ann')
from unnest(enum_range(null::public.crawl_job_status)) as old
cross join unnest(enum_range(null::public.crawl_job_status)) as new;
-- Through processing where there is no direct transition.
select pg_temp.move(format('%s-%s', old, new), 'processing')
from unnest('{completed, failed}'::public.crawl_job_status[]) as old
cross join unnest(enum_range(null::public.crawl_job_status)) as new;
select pg_temp.move(format('%s-%s', old, new), old)
from unnest(enum_range(null::public.crawl_job_status)) as old
cross join unnest(enum_range(null::public.crawl_job_status)) as new;

select is(
  pg_temp.move(format('%s-%s', transition.old, transition.new), transition.new),
  case when transition.is_legal then 'done' else 'refused' end,
  format(
    'a job that is %s %s %s',
    transition.old,
    case
      when transition.old = transition.new then 'stays'
      when transition.is_legal then 'becomes'
      else 'never becomes'
    end,
    transition.new
  )
)
from (
  select
    old,
    new,
    old = new or (old::text, new::text) in (
      ('pending', 'processing'),
      ('pending', 'paused'),
      ('pending', 'stopped'),
      ('pending', 'cancelled'),
      ('processing', 'pending'),
      ('processing', 'paused'),
      ('processing', 'completed'),
      ('processing', 'failed'),
      ('processing', 'stopped'),
      ('processing', 'cancelled'),
      ('paused', 'pending'),
      ('paused', 'processing'),
      ('paused', 'stopped'),
      ('paused', 'cancelled'),
      ('stopped', 'pending'),
      ('stopped', 'processing'),
      ('failed', 'pending'),
      ('completed', 'pending')
    ) as is_legal
  from unnest(enum_range(null::public.crawl_job_status)) as old
  cross join unnest(enum_range(null::public.crawl_job_status)) as new
) as transition;

select * from finish();
rollback;

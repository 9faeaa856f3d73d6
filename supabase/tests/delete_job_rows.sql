-- What is deleted with a job, and with the account that owned it.
begin;
select plan(7);

select tests.make_users('ann', 'bob');
select tests.claimed_job('job', 'ann');
select tests.checkpoint(
  'job',
  jsonb_build_object('seq', 1, 'discovered', tests.links('https://a.example/1', 'https://a.example/2'))
);
select tests.enqueue('kept', 'bob');
create temporary table deleted as select tests.job('job') as id;

select isnt_empty(
  $$ select from silkline.tasks where job_id = (select id from deleted) $$,
  'before the deletion the job has a frontier'
);

delete from auth.users where id = tests.user_id('ann');

select is_empty(
  $$ select from silkline.jobs where id = (select id from deleted) $$,
  'deleting an account deletes its jobs'
);
select is_empty(
  $$ select from silkline.states where job_id = (select id from deleted) $$,
  'deleting a job deletes its state'
);
select is_empty(
  $$ select from silkline.tasks where job_id = (select id from deleted) $$,
  'deleting a job deletes its frontier'
);
select is_empty(
  $$ select from silkline.events where job_id = (select id from deleted) $$,
  'deleting a job deletes its history'
);
select results_eq(
  $$ select count(*) from silkline.states where job_id = tests.job('kept') $$,
  array[1::bigint],
  'another job keeps its state'
);
select results_eq(
  $$ select count(*) from silkline.events where job_id = tests.job('kept') $$,
  array[1::bigint],
  'another job keeps its history'
);

select * from finish();
rollback;

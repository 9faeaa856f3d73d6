-- checkpoint_crawl_job: results in, next URLs out, once per batch and only under the lease.

begin;
select plan(225);

select tests.make_users('ann', 'bob');

create function pg_temp.keys(p_answer jsonb)
  returns setof uuid
  language sql
as $$
  select (task ->> 'url_key')::uuid
  from jsonb_array_elements(p_answer -> 'tasks') as task;
$$;

create function pg_temp.task(p_name text, p_url text)
  returns setof silkline.tasks
  language sql
as $$
  select task.*
  from silkline.tasks as task
  where task.job_id = tests.job(p_name)
    and task.url_key = tests.url_key(p_url);
$$;

-- The answer of the last checkpoint, for the assertions about it.
create temporary table answers (name text primary key, answer jsonb) on commit drop;

-- Discovery

select tests.claimed_job('site', 'ann');
select tests.age('site', '10 seconds');
insert into answers
values (
  'discovery',
  tests.checkpoint(
    'site',
    jsonb_build_object(
      'seq', 1,
      'current_url', 'https://site.example/now',
      'discovered', tests.links('https://site.example/a', 'https://site.example/b', 'https://site.example/a')
        || jsonb_build_object(
          'url_key', tests.url_key('https://site.example/trap'),
          'url', 'https://site.example/trap',
          'depth', 1,
          'found_on', tests.url_key('https://site.example/a'),
          'skip_reason', 'trap'
        )
    )
  )
);
select is(
  (select answer - '{hosts,progress}'::text[] from answers where name = 'discovery'),
  jsonb_build_object(
    'command', 'continue',
    'job_id', tests.job('site'),
    'seq', 1,
    'pending', 2,
    'drained', false,
    'next_in_seconds', 0,
    'tasks', '[]'::jsonb,
    'links', '[]'::jsonb
  ),
  'discovered URLs are pending, each once; no URL is leased unless asked for'
);
select ok(
  (
    select public.crawl_progress(tests.job('site')) @> (answer -> 'progress')
      and answer -> 'progress' ? 'pages_done'
    from answers
    where name = 'discovery'
  ),
  'the answer has the same progress as a snapshot'
);
select results_eq(
  $$ select status::text, skip_reason, found_on, finished_at from pg_temp.task('site', 'https://site.example/trap') $$,
  $$ values ('skipped', 'trap', tests.url_key('https://site.example/a'), now()) $$,
  'a skipped URL is kept with the reason and the page that linked to it'
);
select results_eq(
  $$ select last_heartbeat from silkline.jobs where id = tests.job('site') $$,
  $$ values (now()) $$,
  'a checkpoint renews the lease'
);
select is(
  (select current_url from silkline.states where job_id = tests.job('site')),
  'https://site.example/now',
  'the state names the URL that is being fetched'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after discovery');
select is(
  tests.checkpoint('site', jsonb_build_object('seq', 2, 'discovered', tests.links('javascript:alert(1)', 'file:///etc/passwd', 'data:text/html,x'))) ->> 'pending',
  '2',
  'a javascript:, file: or data: URL is never pending'
);
select is(
  (select links_refused from silkline.states where job_id = tests.job('site')),
  '{"invalid_url": 3}',
  'it is counted instead'
);
select is_empty(
  $$ select url from silkline.tasks where job_id = tests.job('site') and url !~ '^https' $$,
  'and not stored'
);

-- Links that the rules refuse

select tests.claimed_job('refused', 'ann');
select is(
  tests.checkpoint('refused', '{"seq": 1, "refused": {"out_of_scope": 12, "excluded": 3}}') #> '{progress,links_refused}',
  '{"excluded": 3, "out_of_scope": 12}',
  'links that the rules refuse are counted by reason'
);
select is(
  tests.checkpoint(
    'refused',
    jsonb_build_object(
      'seq', 2,
      'refused', '{"out_of_scope": 1, "invalid_url": 0}'::jsonb,
      'discovered', jsonb_build_array(
        tests.links('https://refused.example/a') -> 0,
        tests.links('https://else.example/1') -> 0 || '{"skip_reason": "out_of_scope"}',
        tests.links('https://else.example/2') -> 0 || '{"skip_reason": "excluded"}',
        tests.links('https://else.example/3') -> 0 || '{"skip_reason": "invalid_url"}',
        tests.links('HTTP://refused.example/b') -> 0,
        tests.links('mailto:ann@refused.example') -> 0
      )
    )
  ) #> '{progress,links_refused}',
  '{"excluded": 4, "out_of_scope": 14, "invalid_url": 2}',
  'the counts add up, with links that an older worker sends one by one'
);
select is(
  tests.checkpoint('refused', '{"seq": 2, "refused": {"out_of_scope": 1}}') #> '{progress,links_refused}',
  '{"excluded": 4, "out_of_scope": 14, "invalid_url": 2}',
  'a repeated batch counts once'
);
select results_eq(
  $$ select url, status::text from silkline.tasks where job_id = tests.job('refused') order by url collate "C" $$,
  $$ values ('HTTP://refused.example/b', 'pending'), ('https://refused.example/a', 'pending') $$,
  'refused links are not stored'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after links were refused');
select tests.checkpoint(
  'refused',
  jsonb_build_object('seq', 3, 'discovered', jsonb_build_array(tests.links('https://1.2.3.4.5/') -> 0 || '{"depth": 0, "skip_reason": "invalid_url"}'))
);
select is(
  (select skip_reason from pg_temp.task('refused', 'https://1.2.3.4.5/')),
  'invalid_url',
  'a start URL is stored with the reason, because a user asked for it'
);
select is(
  tests.as_user('ann', 'select public.crawl_progress(tests.job(''refused''))') -> 'links_refused',
  '{"excluded": 4, "out_of_scope": 14, "invalid_url": 2}',
  'the snapshot has the counts'
);
select public.release_crawl_job(tests.token('refused'), 'later', 60);

-- Leasing URLs

insert into answers
select
  'first',
  tests.as_worker(
    'select public.checkpoint_crawl_job(tests.token(''site''), ''{"seq": 3}'', 10)'
  );
select set_eq(
  $$ select pg_temp.keys(answer) from answers where name = 'first' $$,
  $$ values (tests.url_key('https://site.example/a')), (tests.url_key('https://site.example/b')) $$,
  'a worker with the limited key leases the pending URLs'
);
select results_eq(
  $$ select status::text, lease_token, attempts::integer from pg_temp.task('site', 'https://site.example/a') $$,
  $$ values ('in_progress', tests.token('site'), 1) $$,
  'a leased URL is in progress under the token of its job'
);
select is(
  tests.checkpoint('site', '{"seq": 3}', 10) - 'hosts',
  (select answer - 'hosts' from answers where name = 'first'),
  'a repeated batch returns the URLs that the first one leased'
);
select is(
  (select seq from silkline.states where job_id = tests.job('site')),
  3,
  'a repeated batch counts once'
);
select is(
  tests.checkpoint('site', '{"seq": 4}', 10) -> 'tasks',
  '[]'::jsonb,
  'a URL in flight is not leased again'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after leasing');

-- Finished URLs and their pages

select tests.checkpoint(
  'site',
  jsonb_build_object(
    'seq', 5,
    'finished', jsonb_build_array(
      tests.fetched(
        'https://site.example/a',
        'hash-1',
        '{"title": "A", "markdown": "# A", "etag": "\"1\"", "links": ["https://site.example/b"], "metadata": {"lang": "en", "made_with": "main 1"}, "extractor": "default", "extractor_version": "1"}'
      )
    )
  )
);
select results_eq(
  $$
    select status::text, http_status::integer, lease_token, finished_at, page_id is not null
    from pg_temp.task('site', 'https://site.example/a')
  $$,
  $$ values ('done', 200, null::uuid, now(), true) $$,
  'a finished URL is done, and refers to its page'
);
select results_eq(
  $$
    select user_id, source_id, url, version, is_latest, job_id, content_hash, title, markdown, etag, links, metadata
    from public.crawl_pages
  $$,
  $$
    values (
      tests.user_id('ann'), 'site.example', 'https://site.example/a', 1, true, tests.job('site'), 'hash-1',
      'A', '# A', '"1"', '["https://site.example/b"]'::jsonb, '{"lang": "en", "made_with": "main 1"}'::jsonb
    )
  $$,
  'its page is stored as version 1, for its owner'
);
select results_eq(
  $$ select total_done, total_in_progress, total_bytes, pages_new, pages_spent from silkline.states where job_id = tests.job('site') $$,
  $$ values (1, 1, 100::bigint, 1, 2) $$,
  'the state counts the page, its bytes and what was spent of the budget'
);
select is(
  (select progress_percentage::integer from silkline.jobs where id = tests.job('site')),
  50,
  'one of two URLs is 50 percent'
);
select tests.checkpoint(
  'site',
  jsonb_build_object('seq', 5, 'finished', jsonb_build_array(tests.fetched('https://site.example/a', 'other')))
);
select is((select count(*) from public.crawl_pages), 1::bigint, 'a repeated batch stores no page again');
select tests.checkpoint(
  'site',
  jsonb_build_object('seq', 6, 'finished', jsonb_build_array(tests.fetched('https://site.example/a', 'other')))
);
select results_eq(
  $$ select version, content_hash from public.crawl_pages $$,
  $$ values (1, 'hash-1') $$,
  'a URL that is not in flight cannot be finished again'
);
select tests.checkpoint(
  'site',
  jsonb_build_object(
    'seq', 7,
    'finished', jsonb_build_array(
      jsonb_build_object('url_key', tests.url_key('https://site.example/b'), 'status', 'error', 'error', 'http 500', 'http_status', 500)
    )
  )
);
select results_eq(
  $$ select status::text, last_error, http_status::integer from pg_temp.task('site', 'https://site.example/b') $$,
  $$ values ('error', 'http 500', 500) $$,
  'a URL that failed keeps the reason'
);
select is(
  tests.checkpoint('site', '{"seq": 8}', 10) -> 'drained',
  'true'::jsonb,
  'with nothing pending and nothing in flight the frontier is drained'
);
select is(
  (select progress_percentage::integer from silkline.jobs where id = tests.job('site')),
  99,
  'a drained job is not yet complete'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after finishing');
select public.complete_crawl_job(tests.token('site'));

-- A recrawl: validators out, versions in

select tests.claimed_job('recrawl', 'ann', '{"url": "https://site.example/"}');
select tests.checkpoint(
  'recrawl',
  jsonb_build_object('seq', 1, 'discovered', tests.links('https://site.example/a', 'https://site.example/b'))
);
select is(
  (
    select task ->> 'etag'
    from jsonb_array_elements(tests.checkpoint('recrawl', '{"seq": 2}', 10) -> 'tasks') as task
    where (task ->> 'url_key')::uuid = tests.url_key('https://site.example/a')
  ),
  '"1"',
  'a URL comes with the validators of its stored page'
);
select results_eq(
  $$
    select task ->> 'url', task ->> 'made_with'
    from jsonb_array_elements(tests.checkpoint('recrawl', '{"seq": 2}', 10) -> 'tasks') as task
    order by 1
  $$,
  $$ values ('https://site.example/a', 'main 1'), ('https://site.example/b', null) $$,
  'and with the options that the page was made with'
);
insert into answers
select
  'links-' || try,
  tests.checkpoint(
    'recrawl',
    jsonb_build_object(
      'seq', 3,
      'want_links', jsonb_build_array(
        tests.url_key('https://site.example/unknown'),
        tests.url_key('https://site.example/a'),
        tests.url_key('https://site.example/unknown'),
        tests.url_key('https://site.example/b')
      )
    )
  )
from generate_series(1, 2) as try;
select is(
  (select answer -> 'links' from answers where name = 'links-1'),
  jsonb_build_array(
    jsonb_build_object('url_key', tests.url_key('https://site.example/unknown'), 'links', '[]'::jsonb),
    jsonb_build_object('url_key', tests.url_key('https://site.example/a'), 'links', '["https://site.example/b"]'::jsonb),
    jsonb_build_object('url_key', tests.url_key('https://site.example/b'), 'links', '[]'::jsonb)
  ),
  'the stored links come once per key, in the order asked for; none where there is no page'
);
select is(
  (select answer from answers where name = 'links-2'),
  (select answer from answers where name = 'links-1'),
  'a repeated batch returns the same links'
);
update public.crawl_pages set last_seen_at = now() - interval '1 day' where true;
select is(
  tests.checkpoint(
    'recrawl',
    jsonb_build_object(
      'seq', 4,
      'finished', jsonb_build_array(
        jsonb_build_object(
          'url_key', tests.url_key('https://site.example/a'),
          'status', 'done',
          'http_status', 304,
          'not_modified', true,
          'page', null
        ),
        tests.fetched('https://site.example/b', 'hash-b')
      )
    )
  ) - '{hosts,job_id,seq,pending,tasks,progress}'::text[],
  '{"command": "continue", "drained": true, "next_in_seconds": null, "links": []}',
  'links come only when asked for, and do not keep the frontier from draining'
);
select results_eq(
  $$
    select version, last_seen_at, title, links, metadata, http_status::integer, extractor, extractor_version
    from public.crawl_pages
    where url = 'https://site.example/a'
  $$,
  $$
    values (
      1, now(), 'A', '["https://site.example/b"]'::jsonb, '{"lang": "en", "made_with": "main 1"}'::jsonb, 200, 'default', '1'
    )
  $$,
  'a page that answered 304 is seen again, adds no version and keeps what is stored'
);
select results_eq(
  $$ select pages_new, pages_changed, pages_unchanged from silkline.states where job_id = tests.job('recrawl') $$,
  $$ values (1, 0, 1) $$,
  'the state counts new and unchanged pages'
);
select public.complete_crawl_job(tests.token('recrawl'));

select tests.claimed_job('changed', 'ann', '{"url": "https://site.example/"}');
select tests.checkpoint('changed', jsonb_build_object('seq', 1, 'discovered', tests.links('https://site.example/a', 'https://site.example/b')), 10);
select tests.checkpoint(
  'changed',
  jsonb_build_object(
    'seq', 2,
    'finished', jsonb_build_array(
      tests.fetched('https://site.example/a', 'hash-2'),
      tests.fetched(
        'https://site.example/b',
        'hash-b',
        '{"title": "B", "http_status": 203, "links": ["https://site.example/c"], "metadata": {"made_with": "main 2"}, "extractor": "other", "extractor_version": "2"}'
      )
    )
  )
);
select results_eq(
  $$ select version, is_latest, content_hash from public.crawl_pages where url = 'https://site.example/a' order by version $$,
  $$ values (1, false, 'hash-1'), (2, true, 'hash-2') $$,
  'a changed page adds a version, and only the last is the latest'
);
select results_eq(
  $$
    select version, title, links, metadata, http_status::integer, extractor, extractor_version
    from public.crawl_pages
    where url = 'https://site.example/b'
  $$,
  $$ values (1, 'B', '["https://site.example/c"]'::jsonb, '{"made_with": "main 2"}'::jsonb, 203, 'other', '2') $$,
  'a page with the same hash adds no version, but updates its links and metadata'
);
select results_eq(
  $$ select pages_new, pages_changed, pages_unchanged from silkline.states where job_id = tests.job('changed') $$,
  $$ values (0, 1, 1) $$,
  'the state counts changed pages'
);
select public.complete_crawl_job(tests.token('changed'));
select tests.claimed_job('bobs', 'bob', '{"url": "https://site.example/"}');
select is(
  (
    select task -> 'etag'
    from jsonb_array_elements(
      tests.checkpoint('bobs', jsonb_build_object('seq', 1, 'discovered', tests.links('https://site.example/a')), 1) -> 'tasks'
    ) as task
  ),
  'null'::jsonb,
  'validators do not come from another user''s page'
);
select tests.checkpoint('bobs', jsonb_build_object('seq', 2, 'finished', jsonb_build_array(tests.fetched('https://site.example/a', 'hash-2'))));
select results_eq(
  $$ select version from public.crawl_pages where user_id = tests.user_id('bob') $$,
  $$ values (1) $$,
  'each user has their own versions'
);
select public.complete_crawl_job(tests.token('bobs'));

-- Quality

select tests.claimed_job('quality', 'ann');
select tests.checkpoint(
  'quality',
  jsonb_build_object('seq', 1, 'discovered', tests.links('https://q.example/a', 'https://q.example/b', 'https://q.example/c', 'https://q.example/d')),
  10
);
select is(
  (
    tests.checkpoint(
      'quality',
      jsonb_build_object(
        'seq', 2,
        'finished', jsonb_build_array(
          tests.fetched('https://q.example/a', 'a', '{"quality": {"kept": 0.5, "warnings": ["cut", "code_lost"]}}'),
          tests.fetched('https://q.example/b', 'b', '{"quality": {"kept": 0.4, "warnings": ["cut"]}}'),
          tests.fetched('https://q.example/c', 'c', '{"quality": {"kept": 1, "warnings": []}}'),
          tests.fetched('https://q.example/d', 'd')
        )
      )
    ) -> 'progress'
  ) - (
    select array_agg(key)
    from jsonb_object_keys(public.crawl_progress(tests.job('quality'))) as key
    where key not in ('pages_with_warnings', 'page_warnings')
  ),
  '{"pages_with_warnings": 2, "page_warnings": {"cut": 2, "code_lost": 1}}',
  'pages with warnings are counted once, and once for each kind of warning'
);
select results_eq(
  $$ select url, quality from public.crawl_pages where source_id = 'quality.example' order by url $$,
  $$
    values
      ('https://q.example/a', '{"kept": 0.5, "warnings": ["cut", "code_lost"]}'::jsonb),
      ('https://q.example/b', '{"kept": 0.4, "warnings": ["cut"]}'),
      ('https://q.example/c', '{"kept": 1, "warnings": []}'),
      ('https://q.example/d', null)
  $$,
  'the quality of a page is stored; it may be unknown'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after pages with warnings');
select is(
  tests.checkpoint(
    'quality',
    jsonb_build_object('seq', 2, 'finished', jsonb_build_array(tests.fetched('https://q.example/a', 'a', '{"quality": {"warnings": ["cut"]}}')))
  ) #> '{progress,pages_with_warnings}',
  '2',
  'a repeated batch counts once'
);
select public.complete_crawl_job(tests.token('quality'));

select tests.claimed_job('quality-again', 'ann', '{"url": "https://quality.example/"}');
select tests.checkpoint(
  'quality-again',
  jsonb_build_object('seq', 1, 'discovered', tests.links('https://q.example/a', 'https://q.example/b', 'https://q.example/c', 'https://q.example/d')),
  10
);
select tests.checkpoint(
  'quality-again',
  jsonb_build_object(
    'seq', 2,
    'finished', jsonb_build_array(
      jsonb_build_object('url_key', tests.url_key('https://q.example/a'), 'status', 'done', 'http_status', 304, 'not_modified', true),
      tests.fetched('https://q.example/b', 'b', '{"quality": {"kept": 0.45, "warnings": ["cut"]}}'),
      tests.fetched('https://q.example/c', 'c-2', '{"quality": {"kept": 0.1, "warnings": ["little_kept"]}}'),
      tests.fetched('https://q.example/d', 'd')
    )
  )
);
select results_eq(
  $$ select url, version, quality from public.crawl_pages where source_id = 'quality.example' and is_latest order by url $$,
  $$
    values
      ('https://q.example/a', 1, '{"kept": 0.5, "warnings": ["cut", "code_lost"]}'::jsonb),
      ('https://q.example/b', 1, '{"kept": 0.45, "warnings": ["cut"]}'),
      ('https://q.example/c', 2, '{"kept": 0.1, "warnings": ["little_kept"]}'),
      ('https://q.example/d', 1, null)
  $$,
  'a 304 keeps the quality; a page that was read again brings its own'
);
select results_eq(
  $$ select pages_with_warnings, page_warnings from silkline.states where job_id = tests.job('quality-again') $$,
  $$ values (3, '{"cut": 2, "code_lost": 1, "little_kept": 1}'::jsonb) $$,
  'the warnings of a page that answered 304 count for this job, too'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after a recrawl of pages with warnings');
select throws_ok(
  format(
    'select tests.checkpoint(''quality-again'', %L)',
    jsonb_build_object('seq', 3, 'finished', jsonb_build_array(tests.fetched('https://q.example/a', 'a', '{"quality": {"warnings": ["eaten"]}}')))
  ),
  'PT422',
  'the warnings of a page must be cut, needs_browser, nothing_kept, little_kept, headings_lost or code_lost',
  'a warning must be of a known kind'
);
select throws_ok(
  format(
    'select tests.checkpoint(''quality-again'', %L)',
    jsonb_build_object('seq', 3, 'finished', jsonb_build_array(tests.fetched('https://q.example/a', 'a', jsonb_build_object('quality', jsonb_build_object('kept', repeat('x', 3000))))))
  ),
  'PT422',
  'the quality of a page may have at most 2000 bytes',
  'a quality is small'
);
select throws_ok(
  $$ update public.crawl_pages set quality = '[]' where url = 'https://q.example/a' $$,
  '23514',
  null,
  'no page can have a quality that is not an object'
);
select public.complete_crawl_job(tests.token('quality-again'));

-- Retries

select tests.claimed_job('retries', 'ann');
select tests.checkpoint('retries', jsonb_build_object('seq', 1, 'discovered', tests.links('https://r.example/')), 1);
select is(
  (
    tests.checkpoint(
      'retries',
      jsonb_build_object(
        'seq', 2,
        'retried', jsonb_build_array(
          jsonb_build_object('url_key', tests.url_key('https://r.example/'), 'after_seconds', 30, 'error', 'timeout')
        )
      ),
      10
    ) ->> 'next_in_seconds'
  )::numeric,
  30::numeric,
  'a retry waits until it is due, and the answer says how long'
);
select results_eq(
  $$ select status::text, last_error, next_run_at from pg_temp.task('retries', 'https://r.example/') $$,
  $$ values ('pending', 'timeout', now() + interval '30 seconds') $$,
  'a retried URL is pending again and keeps the error'
);
select tests.age('retries', '30 seconds');
select is(
  tests.checkpoint('retries', '{"seq": 3}', 10) -> 'tasks' -> 0 -> 'attempts',
  '2'::jsonb,
  'a retry is leased when due, as the second attempt'
);
select is(
  (select pages_spent from silkline.states where job_id = tests.job('retries')),
  1,
  'a retry does not count against the budget'
);
update silkline.tasks set attempts = 30 where job_id = tests.job('retries');
select tests.checkpoint(
  'retries',
  jsonb_build_object(
    'seq', 4,
    'retried', jsonb_build_array(
      jsonb_build_object('url_key', tests.url_key('https://r.example/'), 'after_seconds', -5, 'error', 'timeout')
    )
  )
);
select results_eq(
  $$ select status::text, last_error from pg_temp.task('retries', 'https://r.example/') $$,
  $$ values ('error', 'gave up after 30 attempts: timeout') $$,
  'the thirtieth attempt is the last, so that a job always drains'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after retries');
select public.complete_crawl_job(tests.token('retries'));

-- The budget

select tests.claimed_job('budget', 'ann', '{"max_pages": 2}');
select is(
  jsonb_array_length(
    tests.checkpoint(
      'budget',
      jsonb_build_object('seq', 1, 'discovered', tests.links('https://u.example/1', 'https://u.example/2', 'https://u.example/3')),
      10
    ) -> 'tasks'
  ),
  2,
  'no more than max_pages URLs are leased'
);
select tests.checkpoint(
  'budget',
  jsonb_build_object(
    'seq', 2,
    'retried', jsonb_build_array(
      jsonb_build_object('url_key', (select url_key from silkline.tasks where job_id = tests.job('budget') and status = 'in_progress' order by url_key limit 1))
    ),
    'discovered', tests.links('https://u.example/4')
  )
);
select is(
  (select count(*) from silkline.tasks where job_id = tests.job('budget') and status = 'pending'),
  3::bigint,
  'URLs beyond the budget wait while a URL in flight might be refunded'
);
select is(
  jsonb_array_length(tests.checkpoint('budget', '{"seq": 3}', 10) -> 'tasks'),
  1,
  'a retry is leased although the budget is spent'
);
select is(
  tests.checkpoint('budget', '{"seq": 4}', 10) - '{hosts,job_id,links,progress}'::text[],
  '{"command": "continue", "seq": 4, "pending": 2, "drained": false, "next_in_seconds": null, "tasks": []}',
  'URLs that wait for the budget have no due time'
);
select is(
  tests.checkpoint(
    'budget',
    jsonb_build_object(
      'seq', 5,
      'finished', (
        select jsonb_agg(tests.fetched(url))
        from silkline.tasks
        where job_id = tests.job('budget') and status = 'in_progress'
      ),
      'discovered', tests.links('https://u.example/5')
    ),
    10
  ) -> 'drained',
  'true',
  'once nothing is in flight the frontier drains'
);
select results_eq(
  $$ select status::text, skip_reason, count(*) from silkline.tasks where job_id = tests.job('budget') group by 1, 2 order by 1 $$,
  $$ values ('done', null::text, 2::bigint), ('skipped', 'budget', 3::bigint) $$,
  'URLs beyond the budget end as skipped, with that reason'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after the budget is spent');
delete from silkline.jobs where id = tests.job('budget');

-- The budget counts pages

-- What is spent of a budget of one after a leased URL ends like this.
create function pg_temp.spent_by(p_end jsonb)
  returns integer
  language plpgsql
as $$
declare
  -- The token of a deleted job is never used again.
  v_name constant text := 'one-' || md5(p_end::text);
  v_spent integer;
begin
  perform tests.claimed_job(v_name, 'ann', '{"max_pages": 1}');
  perform tests.checkpoint(v_name, jsonb_build_object('seq', 1, 'discovered', tests.links('https://one.example/')), 1);
  perform tests.checkpoint(
    v_name,
    jsonb_build_object(
      'seq', 2,
      'finished', jsonb_build_array(jsonb_build_object('url_key', tests.url_key('https://one.example/')) || p_end)
    )
  );
  select state.pages_spent into v_spent from silkline.states as state where state.job_id = tests.job(v_name);
  delete from silkline.jobs where id = tests.job(v_name);
  return v_spent;
end
$$;

select is(pg_temp.spent_by(ended.result::jsonb), ended.spent, ended.claim)
from (
  values
    ('{"status": "skipped", "skip_reason": "redirect", "http_status": 301}', 0, 'a redirect is refunded'),
    ('{"status": "skipped", "skip_reason": "canonical", "http_status": 200}', 0, 'a copy of another page is refunded'),
    ('{"status": "skipped", "skip_reason": "robots", "unfetched": true}', 0, 'a URL that was never requested is refunded'),
    ('{"status": "error", "error": "host given up", "unfetched": true}', 0, 'so is one that ended as an error without a request'),
    ('{"status": "skipped", "skip_reason": "forbidden_address"}', 1, 'a skipped URL without an HTTP status may have been requested, and counts'),
    ('{"status": "done", "unfetched": true, "page": {"url": "https://one.example/", "content_hash": "h"}}', 1, 'a stored page counts, even if marked unfetched'),
    ('{"status": "done", "http_status": 200}', 0, 'a file that is not a page is refunded'),
    ('{"status": "done", "http_status": 304, "not_modified": true}', 1, 'an unchanged page counts'),
    ('{"status": "skipped", "skip_reason": "noindex", "http_status": 200}', 1, 'a page that was fetched and not kept counts'),
    ('{"status": "error", "error": "http 500", "http_status": 500}', 1, 'a page that failed counts'),
    ('{"status": "done", "http_status": 200, "page": {"url": "https://one.example/", "content_hash": "h"}}', 1, 'a page counts')
) as ended (result, spent, claim);

select tests.claimed_job('unasked', 'ann', '{"max_pages": 1}');
select tests.checkpoint('unasked', jsonb_build_object('seq', 1, 'discovered', tests.links('https://a.example/1', 'https://a.example/2')), 1);
update silkline.states set pages_free = 1010 where job_id = tests.job('unasked');
select is(
  jsonb_array_length(
    tests.checkpoint(
      'unasked',
      jsonb_build_object(
        'seq', 2,
        'finished', (
          select jsonb_agg(jsonb_build_object('url_key', url_key, 'status', 'skipped', 'skip_reason', 'robots', 'unfetched', true))
          from silkline.tasks
          where job_id = tests.job('unasked') and status = 'in_progress'
        )
      ),
      10
    ) -> 'tasks'
  ),
  1,
  'refunds for URLs that were never requested are unbounded'
);
delete from silkline.jobs where id = tests.job('unasked');

select tests.claimed_job('hops', 'ann', '{"max_pages": 1}');
select tests.checkpoint('hops', jsonb_build_object('seq', 1, 'discovered', tests.links('https://h.example/', 'https://h.example/other')), 1);
select is(
  jsonb_array_length(
    tests.checkpoint(
      'hops',
      jsonb_build_object(
        'seq', 2,
        'finished', (
          select jsonb_agg(jsonb_build_object('url_key', url_key, 'status', 'skipped', 'skip_reason', 'redirect', 'http_status', 301))
          from silkline.tasks
          where job_id = tests.job('hops') and status = 'in_progress'
        )
      ),
      10
    ) -> 'tasks'
  ),
  1,
  'the next URL uses the refund of a redirect in the same checkpoint'
);
update silkline.states set pages_free = 1009 where job_id = tests.job('hops');
select tests.checkpoint('hops', jsonb_build_object('seq', 3, 'discovered', tests.links('https://h.example/1', 'https://h.example/2')));
do $do$
begin
  for nth in 4..5 loop
    perform tests.checkpoint(
      'hops',
      jsonb_build_object(
        'seq', nth,
        'finished', (
          select jsonb_agg(jsonb_build_object('url_key', url_key, 'status', 'skipped', 'skip_reason', 'redirect', 'http_status', 301))
          from silkline.tasks
          where job_id = tests.job('hops') and status = 'in_progress'
        )
      ),
      10
    );
  end loop;
end
$do$;
select results_eq(
  $$ select skip_reason, count(*) from silkline.tasks where job_id = tests.job('hops') group by 1 order by 1 $$,
  $$ values ('budget', 1::bigint), ('redirect', 3::bigint) $$,
  'refunds for redirects are bounded, so that a job always drains'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after redirects');
delete from silkline.jobs where id = tests.job('hops');

-- Copies: pages that name another as their original

create function pg_temp.named(p_url text, p_title text, p_original text)
  returns jsonb
  language sql
as $$
  select tests.fetched(p_url, p_url, jsonb_build_object('title', p_title))
    || jsonb_build_object('canonical_key', tests.url_key(p_original));
$$;

select tests.claimed_job('copies', 'ann', '{"max_pages": 3}');
select tests.checkpoint('copies', jsonb_build_object('seq', 1, 'discovered', tests.links('https://c.example/same', 'https://c.example/other')), 10);
select is(
  tests.checkpoint(
    'copies',
    jsonb_build_object(
      'seq', 2,
      'discovered', tests.links('https://c.example/original'),
      'finished', jsonb_build_array(
        pg_temp.named('https://c.example/same', 'T', 'https://c.example/original'),
        pg_temp.named('https://c.example/other', 'Other', 'https://c.example/original')
      )
    ),
    10
  ) #>> '{tasks,0,url}',
  'https://c.example/original',
  'a page whose original is yet to be fetched is dropped, and the original is fetched'
);
select is_empty(
  $$ select url from public.crawl_pages where job_id = tests.job('copies') $$,
  'a copy is not stored'
);
select is(
  tests.checkpoint(
    'copies',
    jsonb_build_object(
      'seq', 3,
      'finished', jsonb_build_array(tests.fetched('https://c.example/original', 'h', '{"title": "T"}'))
    ),
    10
  ) #>> '{tasks,0,url}',
  'https://c.example/other',
  'a copy is restored if its original has another title'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows while it is fetched again');
select tests.checkpoint(
  'copies',
  jsonb_build_object(
    'seq', 4,
    'finished', jsonb_build_array(pg_temp.named('https://c.example/other', 'Other', 'https://c.example/original'))
  )
);
select results_eq(
  $$
    select task.url, task.status::text, task.skip_reason, page.title
    from silkline.tasks as task
    left join public.crawl_pages as page on page.id = task.page_id
    where task.job_id = tests.job('copies')
    order by 1
  $$,
  $$
    values
      ('https://c.example/original', 'done', null, 'T'),
      ('https://c.example/other', 'done', null, 'Other'),
      ('https://c.example/same', 'skipped', 'canonical', null)
  $$,
  'it is then kept; a copy with the title of its original is not'
);
select results_eq(
  $$ select pages_spent, total_done, total_skipped from silkline.states where job_id = tests.job('copies') $$,
  $$ values (2, 2, 1) $$,
  'a copy is refunded, a page that was kept counts'
);
delete from silkline.jobs where id = tests.job('copies');

select tests.claimed_job('lost', 'ann', '{"max_pages": 1}');
select tests.checkpoint('lost', jsonb_build_object('seq', 1, 'discovered', tests.links('https://l.example/copy')), 1);
select tests.checkpoint(
  'lost',
  jsonb_build_object(
    'seq', 2,
    'discovered', tests.links('https://l.example/gone'),
    'finished', jsonb_build_array(pg_temp.named('https://l.example/copy', 'T', 'https://l.example/gone'))
  ),
  1
);
select is(
  tests.checkpoint(
    'lost',
    jsonb_build_object(
      'seq', 3,
      'finished', jsonb_build_array(jsonb_build_object('url_key', tests.url_key('https://l.example/gone'), 'status', 'error', 'error', 'http 404'))
    ),
    1
  ) #>> '{tasks,0,url}',
  'https://l.example/copy',
  'an original that failed is refunded, so that its copy can be fetched'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after an original failed');
select tests.checkpoint(
  'lost',
  jsonb_build_object(
    'seq', 4,
    'finished', jsonb_build_array(pg_temp.named('https://l.example/copy', 'T', 'https://l.example/gone'))
  )
);
select is(
  (select total_done from silkline.states where job_id = tests.job('lost')),
  1,
  'the restored copy is stored'
);
delete from silkline.jobs where id = tests.job('lost');

select tests.claimed_job('poison', 'ann', '{"max_pages": 1}');
select tests.checkpoint('poison', jsonb_build_object('seq', 1, 'discovered', tests.links('https://l.example/copy')), 1);
select tests.checkpoint(
  'poison',
  jsonb_build_object(
    'seq', 2,
    'discovered', tests.links('https://l.example/deadly'),
    'finished', jsonb_build_array(pg_temp.named('https://l.example/copy', 'T', 'https://l.example/deadly'))
  ),
  1
);
update silkline.tasks set crashes = 1 where url = 'https://l.example/deadly';
select public.fail_crawl_job(tests.token('poison'), 'oom', p_suspects => array[tests.url_key('https://l.example/deadly')]);
select results_eq(
  $$ select url, status::text, attempts::integer, crashes::integer from silkline.tasks where job_id = tests.job('poison') order by 1 $$,
  $$ values ('https://l.example/copy', 'pending', 0, 0), ('https://l.example/deadly', 'error', 0, 0) $$,
  'a copy is restored if its original kills the process'
);
select is(
  (select pages_spent from silkline.states where job_id = tests.job('poison')),
  0,
  'and its original is refunded'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after an original killed the process');
delete from silkline.jobs where id = tests.job('poison');

-- A shorter path to a URL that was too deep

select tests.claimed_job('deep', 'ann', '{"max_pages": 1}');
select tests.checkpoint('deep', jsonb_build_object('seq', 1, 'discovered',
  tests.links('https://d.example/start')
    || (tests.links('https://d.example/deep') -> 0 || '{"depth": 9, "skip_reason": "too_deep"}')
    || (tests.links('https://d.example/deep too') -> 0 || '{"depth": 9, "skip_reason": "too_deep"}')
    || (tests.links('https://d.example/out') -> 0 || '{"skip_reason": "trap"}')
), 1);
update silkline.tasks set next_run_at = now() - interval '1 hour' where job_id = tests.job('deep');
select is(
  tests.checkpoint('deep', jsonb_build_object('seq', 2, 'discovered', jsonb_build_array(
    tests.links('https://d.example/deep') -> 0 || '{"depth": 4}',
    tests.links('https://d.example/deep') -> 0 || jsonb_build_object('depth', 3, 'found_on', tests.url_key('https://d.example/start')),
    tests.links('https://d.example/deep too') -> 0 || '{"depth": 8, "skip_reason": "too_deep"}',
    tests.links('https://d.example/out') -> 0,
    tests.links('https://d.example/both') -> 0 || '{"depth": 9, "skip_reason": "too_deep"}',
    tests.links('https://d.example/both') -> 0 || '{"depth": 2}',
    tests.links('https://d.example/start') -> 0 || '{"depth": 7}'
  ))) ->> 'pending',
  '2',
  'a URL that was too deep is pending when a shorter path leads there'
);
select results_eq(
  $$
    select url, status::text, skip_reason, depth::integer, found_on, next_run_at = now(), finished_at
    from silkline.tasks
    where job_id = tests.job('deep')
    order by url collate "C"
  $$,
  $$
    values
      ('https://d.example/both', 'pending', null::text, 2, null::uuid, true, null::timestamptz),
      ('https://d.example/deep', 'pending', null, 3, tests.url_key('https://d.example/start'), true, null),
      ('https://d.example/deep too', 'skipped', 'too_deep', 9, null, false, now()),
      ('https://d.example/out', 'skipped', 'trap', 1, null, false, now()),
      ('https://d.example/start', 'in_progress', null, 1, null, false, null)
  $$,
  'it has the depth of the shortest path; other URLs that are found again do not change'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after a shorter path was found');
update silkline.states set total_pending = 10100 where job_id = tests.job('deep');
select tests.checkpoint('deep', jsonb_build_object('seq', 3, 'discovered', tests.links('https://d.example/deep too')));
select is(
  (select skip_reason from pg_temp.task('deep', 'https://d.example/deep too')),
  'too_deep',
  'it stays skipped if the frontier is full'
);
update silkline.states set total_pending = 2 where job_id = tests.job('deep');
select tests.checkpoint('deep', jsonb_build_object(
  'seq', 4,
  'finished', jsonb_build_array(tests.fetched('https://d.example/start')),
  'discovered', tests.links('https://d.example/deep too')
));
select is(
  (select skip_reason from pg_temp.task('deep', 'https://d.example/deep too')),
  'too_deep',
  'and if the budget is spent'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows when it stays skipped');
delete from silkline.jobs where id = tests.job('deep');

-- Where start URLs redirected to

select tests.claimed_job('moved', 'ann');
select ok(not tests.checkpoint('moved', '{"seq": 1}') ? 'redirected_starts', 'without a redirected start the answer has none');
select is(
  tests.checkpoint('moved', '{"seq": 2, "redirected_starts": ["https://www.moved.example/", "https://moved.example/en/"]}') -> 'redirected_starts',
  '["https://www.moved.example/", "https://moved.example/en/"]',
  'the answer names where start URLs redirected to'
);
select is(
  tests.checkpoint('moved', '{"seq": 3, "redirected_starts": ["https://moved.example/en/", "https://moved.example/fr/"]}') -> 'redirected_starts',
  '["https://www.moved.example/", "https://moved.example/en/", "https://moved.example/fr/"]',
  'each is stored once'
);
select tests.checkpoint('moved', jsonb_build_object('seq', 4, 'redirected_starts', (select jsonb_agg('https://moved.example/' || n) from generate_series(1, 100) as n)));
select is(
  (select jsonb_array_length(redirected_starts) from silkline.states where job_id = tests.job('moved')),
  100,
  'no more than 100 are stored'
);
select public.release_crawl_job(tests.token('moved'));
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('moved-2')]);
select is(
  tests.checkpoint('moved-2', '{"seq": 1}') #>> '{redirected_starts,0}',
  'https://www.moved.example/',
  'the next attempt gets them with its first checkpoint'
);
select public.complete_crawl_job(tests.token('moved-2'));
select tests.as_user('ann', 'select id from public.retry_crawl_job(tests.job(''moved''), ''all'')');
select is(
  (select redirected_starts from silkline.states where job_id = tests.job('moved')),
  '[]',
  'a job that starts over drops them'
);
delete from silkline.jobs where id = tests.job('moved');

-- Suspects of a crash

select tests.claimed_job('crash', 'ann');
select tests.checkpoint(
  'crash',
  jsonb_build_object('seq', 1, 'discovered', tests.links('https://c.example/1', 'https://c.example/2')),
  2
);
select public.fail_crawl_job(tests.token('crash'), 'crashed:SIGSEGV', null, true, 0);
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('crash-2')]);
select tests.checkpoint('crash-2', jsonb_build_object('seq', 1, 'discovered', tests.links('https://c.example/3')));
select results_eq(
  $$ select pg_temp.keys(tests.checkpoint('crash-2', '{"seq": 2}', 10)) $$,
  $$ values (tests.url_key('https://c.example/3')) $$,
  'suspects of a crash are leased last'
);
select is(
  tests.checkpoint('crash-2', '{"seq": 3}', 10) -> 'tasks',
  '[]'::jsonb,
  'no suspect is leased while another URL is in flight'
);
select is(
  jsonb_array_length(
    tests.checkpoint(
      'crash-2',
      jsonb_build_object('seq', 4, 'finished', jsonb_build_array(tests.fetched('https://c.example/3'))),
      10
    ) -> 'tasks'
  ),
  1,
  'a suspect is leased alone'
);
select is(
  tests.checkpoint('crash-2', jsonb_build_object('seq', 5, 'discovered', tests.links('https://c.example/4')), 10) -> 'tasks',
  '[]'::jsonb,
  'nothing is leased together with a suspect, so that a second crash has one cause'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows with suspects');
select public.fail_crawl_job(tests.token('crash-2'), 'crashed:SIGSEGV', null, true, 0);
select set_eq(
  $$ select status::text, count(*) from silkline.tasks where job_id = tests.job('crash') group by status $$,
  $$ values ('pending', 2::bigint), ('done', 1::bigint), ('error', 1::bigint) $$,
  'a suspect whose process dies again ends as poison; the others continue'
);
delete from silkline.jobs where id = tests.job('crash');

-- Hosts

select tests.claimed_job('hosts', 'ann');
select tests.checkpoint(
  'hosts',
  '{
    "seq": 1,
    "hosts": [
      {"host": "H.example", "robots_txt": "User-agent: *", "robots_status": 200, "crawl_delay_seconds": 2},
      {"host": "down.example", "backoff_seconds": 60, "error_streak": 3, "last_error": "timeout"}
    ]
  }'
);
update public.crawl_hosts set updated_at = now() - interval '90 seconds' where host = 'down.example';
select is(
  tests.checkpoint('hosts', '{"seq": 2, "want_hosts": ["h.EXAMPLE", "down.example", "unknown.example"]}') -> 'hosts',
  '[
    {"host": "down.example", "robots_txt": null, "robots_status": null, "robots_age_seconds": null, "backoff_seconds": 60.000000, "error_streak": 3, "age_seconds": 90.000000},
    {"host": "h.example", "robots_txt": "User-agent: *", "robots_status": 200, "robots_age_seconds": 0.000000, "backoff_seconds": 0, "error_streak": 0, "age_seconds": 0.000000}
  ]'::jsonb,
  'a crawl gets what another learned about a host'
);
select tests.checkpoint('hosts', '{"seq": 3, "hosts": [{"host": "h.example", "error_streak": 1}]}');
select results_eq(
  $$ select robots_txt, crawl_delay_seconds, error_streak from public.crawl_hosts where host = 'h.example' $$,
  $$ values ('User-agent: *', 2::real, 1) $$,
  'a fact about errors keeps robots.txt'
);
select tests.checkpoint('hosts', '{"seq": 10, "hosts": [{"host": "down.example", "robots_txt": "User-agent: x", "robots_status": 200}]}');
select results_eq(
  $$ select robots_txt, backoff_until, error_streak, last_error from public.crawl_hosts where host = 'down.example' $$,
  $$ values ('User-agent: x', now() + interval '60 seconds', 3, 'timeout') $$,
  'a new robots.txt does not end a backoff'
);
select tests.checkpoint('hosts', '{"seq": 11, "hosts": [{"host": "down.example", "backoff_seconds": 0}]}');
select is(
  tests.checkpoint('hosts', '{"seq": 12, "want_hosts": ["down.example"]}') -> 'hosts' -> 0 ->> 'backoff_seconds',
  '0',
  'a backoff of 0 seconds ends it'
);
select tests.checkpoint('hosts', '{"seq": 13, "hosts": [{"host": "down.example", "robots_status": 404}]}');
select results_eq(
  $$ select robots_txt, robots_status::integer, error_streak from public.crawl_hosts where host = 'down.example' $$,
  $$ values (null::text, 404, 3) $$,
  'a robots.txt that is gone is deleted, and nothing else'
);
select tests.checkpoint('hosts', '{"seq": 20, "hosts": [{"host": "slow.example", "robots_status": 200, "crawl_delay_seconds": 9}, {"host": "slow.example", "backoff_seconds": 1}]}');
select is((select crawl_delay_seconds from public.crawl_hosts where host = 'slow.example'), 9::real, 'a crawl delay comes with robots.txt');
select tests.checkpoint('hosts', '{"seq": 21, "hosts": [{"host": "slow.example", "robots_status": 200}]}');
select is((select crawl_delay_seconds from public.crawl_hosts where host = 'slow.example'), null, 'and goes with it');
select tests.checkpoint(
  'hosts',
  '{
    "seq": 22,
    "hosts": [
      {"host": "parts.example", "robots_status": 200, "robots_txt": "User-agent: y"},
      {"host": "parts.example", "backoff_seconds": 5},
      {"host": "Parts.example", "error_streak": 1, "last_error": "closed"},
      {"host": "parts.example", "error_streak": 2}
    ]
  }'
);
select results_eq(
  $$ select robots_txt, robots_status::integer, backoff_until, error_streak, last_error from public.crawl_hosts where host = 'parts.example' $$,
  $$ values ('User-agent: y', 200, now() + interval '5 seconds', 2, 'closed') $$,
  'if a host is sent twice in one batch, the last value of each field wins'
);
select lives_ok(
  $$ select tests.checkpoint('hosts', '{"seq": 23, "hosts": [{"host": "h.example", "error_streak": 2}, {"host": "H.example", "error_streak": 5}]}') $$,
  'a host may be sent twice in one batch'
);
select is(
  (select error_streak from public.crawl_hosts where host = 'h.example'),
  5,
  'the later of two values wins'
);
select public.complete_crawl_job(tests.token('hosts'));

-- Hosts, with the limited key

create function pg_temp.hosts_written(p_name text, variadic p_hosts text[])
  returns setof text
  language plpgsql
as $$
begin
  perform tests.as_worker(
    format(
      'select public.checkpoint_crawl_job(%L, %L)',
      tests.token(p_name),
      jsonb_build_object(
        'seq', 1,
        'hosts', (select jsonb_agg(jsonb_build_object('host', host, 'error_streak', 77)) from unnest(p_hosts) as host)
      )
    )
  );
  return query
    select host.host
    from public.crawl_hosts as host
    where host.error_streak = 77
    order by 1;
  delete from public.crawl_hosts where error_streak = 77;
end
$$;

insert into public.crawl_hosts (host, backoff_until) values ('victim.example', null);
select tests.claimed_job('limited', 'ann', '{"url": "https://www.limited.example:8443/docs/"}');
select results_eq(
  $$
    select pg_temp.hosts_written(
      'limited',
      'limited.example', 'www.limited.example', 'WWW.limited.example:8443', 'cdn.limited.example:80', 'a.b.limited.example',
      'victim.example', 'notlimited.example', 'example', 'limited.example.evil.test', repeat('x.', 200) || 'limited.example'
    )
  $$,
  $$
    values
      ('a.b.limited.example'), ('cdn.limited.example:80'), ('limited.example'), ('www.limited.example'), ('www.limited.example:8443')
  $$,
  'a worker with the limited key writes facts about the host of its job and subdomains, and about no other'
);
select is(
  (select error_streak from public.crawl_hosts where host = 'victim.example'),
  null,
  'facts about another host are ignored without an error'
);
select public.complete_crawl_job(tests.token('limited'));
select public.enqueue_crawl_job(
  '{"strategy": "list", "urls": ["https://one.list.example/a", "https://two.list.example/", "https://x.github.io/b"]}',
  p_idempotency_key => 'list'
);
select tests.claim('list');
select results_eq(
  $$ select pg_temp.hosts_written('list', 'one.list.example', 'www.two.list.example', 'list.example', 'three.list.example', 'y.github.io', 'x.github.io') $$,
  $$ values ('one.list.example'), ('www.two.list.example'), ('x.github.io') $$,
  'the hosts of a list are those of its URLs; their neighbours are not'
);
select public.complete_crawl_job(tests.token('list'));
select tests.claimed_job('trusted', 'ann');
select tests.as_service(
  format('select public.checkpoint_crawl_job(%L, %L)', tests.token('trusted'), '{"seq": 1, "hosts": [{"host": "elsewhere.example", "error_streak": 3}]}')
);
select is(
  (select error_streak from public.crawl_hosts where host = 'elsewhere.example'),
  3,
  'the service writes facts about every host'
);
select public.complete_crawl_job(tests.token('trusted'));

-- Live progress

create function pg_temp.progress_sent(p_name text)
  returns setof jsonb
  language sql
as $$
  select message.payload - 'id'
  from realtime.messages as message
  where message.topic = 'crawl_job:' || tests.job(p_name)
    and message.event = 'progress'
    and message.private
  order by (message.payload ->> 'seq')::integer;
$$;

select tests.claimed_job('live', 'ann');
insert into answers
select
  'live-' || seq,
  tests.checkpoint('live', jsonb_build_object('seq', seq, 'discovered', tests.links('https://live.example/' || seq)), 10)
from generate_series(1, 2) as seq;
select results_eq(
  $$ select pg_temp.progress_sent('live') $$,
  $$ select answer -> 'progress' || jsonb_build_object('job_id', tests.job('live'), 'attempt', 1) from answers where name = 'live-1' $$,
  'the first checkpoint sends the progress of its answer; another within a second does not'
);
update silkline.states set progress_sent_at = now() - interval '1 second' where job_id = tests.job('live');
select tests.checkpoint('live', '{"seq": 3}');
select is((select array_agg(sent -> 'seq') from pg_temp.progress_sent('live') as sent), array['1', '3']::jsonb[], 'after a second the next one is sent');
update silkline.states set progress_sent_at = now() - interval '0.5 seconds' where job_id = tests.job('live');
select tests.checkpoint(
  'live',
  jsonb_build_object('seq', 4, 'finished', jsonb_build_array(tests.fetched('https://live.example/1'), tests.fetched('https://live.example/2')))
);
select is(
  (select array_agg(sent -> 'pages_done') from pg_temp.progress_sent('live') as sent),
  array['0', '0', '2']::jsonb[],
  'when the job drains the progress is sent at once'
);
update silkline.states set progress_sent_at = now() - interval '0.5 seconds' where job_id = tests.job('live');
select tests.checkpoint('live', '{"seq": 5}');
select tests.checkpoint('live', '{"seq": 5}');
select is((select count(*) from pg_temp.progress_sent('live')), 3::bigint, 'and only once');
select public.complete_crawl_job(tests.token('live'));

-- The user's decision, and lost leases

select tests.claimed_job(name, 'ann') from unnest(array['paused', 'stopped', 'cancelled']) as name;
select tests.checkpoint(name, jsonb_build_object('seq', 1, 'discovered', tests.links('https://w.example/1', 'https://w.example/2')), 1)
from unnest(array['paused', 'stopped', 'cancelled']) as name;
select tests.as_user('ann', 'select id from public.pause_crawl_job(tests.job(''paused''))');
select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''stopped''))');
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''cancelled''))');
insert into answers
select
  name,
  tests.checkpoint(
    name,
    jsonb_build_object(
      'seq', 2,
      'finished', (
        select jsonb_agg(tests.fetched(task.url))
        from silkline.tasks as task
        where task.job_id = tests.job(name)
          and task.status = 'in_progress'
      )
    ),
    10
  )
from unnest(array['paused', 'stopped', 'cancelled']) as name;
select results_eq(
  $$
    select answers.name, answer ->> 'command', jsonb_array_length(answer -> 'tasks'), state.total_done
    from answers
    join silkline.states as state
      on state.job_id = tests.job(answers.name)
    where answers.name in ('paused', 'stopped', 'cancelled')
    order by answers.name
  $$,
  $$
    values
      ('cancelled', 'cancel', 0, 0),
      ('paused', 'pause', 0, 1),
      ('stopped', 'stop', 0, 1)
  $$,
  'the last results of a paused or stopped crawl are kept, those of a cancelled one are not; none gets more URLs'
);
select is_empty($$ select tests.wrong_counters() $$, 'counters equal rows after pause, stop and cancel');

select tests.claimed_job('zombie', 'ann');
select tests.checkpoint('zombie', jsonb_build_object('seq', 1, 'discovered', tests.links('https://z.example/')), 1);
select tests.age('zombie', '3 minutes');
select public.reap_crawl_jobs();
select tests.remember();
select is(
  tests.checkpoint(
    'zombie',
    jsonb_build_object(
      'seq', 2,
      'finished', jsonb_build_array(tests.fetched('https://z.example/')),
      'discovered', tests.links('https://z.example/2'),
      'hosts', '[{"host": "z.example"}]'::jsonb
    ),
    10
  ),
  '{"command": "lost", "tasks": []}'::jsonb,
  'a reaped lease is lost'
);
select is(tests.fingerprint(), tests.remembered(), 'under a reaped lease nothing is written: no task, no page, no host, no counter');
select public.claim_crawl_jobs(tests.worker_id('other'), array[tests.token('zombie-2')]);
select tests.checkpoint('zombie-2', '{"seq": 1}', 1);
select tests.remember();
select is(
  tests.checkpoint('zombie', jsonb_build_object('seq', 3, 'finished', jsonb_build_array(tests.fetched('https://z.example/')))) ->> 'command',
  'lost',
  'after another worker has claimed the job, the first lease is lost'
);
select is(tests.checkpoint('never-claimed', '{"seq": 1}') ->> 'command', 'lost', 'a token that never was a lease is lost');
select is(tests.fingerprint(), tests.remembered(), 'a lost worker changes nothing of the new lease');
select public.release_crawl_job(tests.token('zombie-2'));
select is(
  tests.checkpoint('zombie-2', '{"seq": 2}') ->> 'command',
  'lost',
  'a released lease writes nothing more'
);
delete from silkline.jobs where id = tests.job('zombie');

-- Each lease of a job numbers its own batches

select tests.claimed_job('numbers', 'ann');
select tests.checkpoint('numbers', '{"seq": 5}');
select public.release_crawl_job(tests.token('numbers'));
select public.claim_crawl_jobs(tests.worker_id(), array[tests.token('numbers-2')]);
select is(
  tests.checkpoint('numbers-2', jsonb_build_object('seq', 1, 'discovered', tests.links('https://n.example/'))) ->> 'pending',
  '1',
  'batches are numbered within a lease: the first of a new lease counts'
);

-- Bad input

select tests.checkpoint('numbers-2', '{"seq": 2}', 1);
select tests.age('numbers', '10 seconds');
select tests.remember();
select throws_ok(
  $$ select public.checkpoint_crawl_job(null, '{"seq": 3}') $$,
  'PT400',
  'p_lease_token must not be null',
  'a checkpoint without a lease token is refused'
);
select throws_ok(
  $$ select public.checkpoint_crawl_job('nonsense', '{"seq": 3}') $$,
  '22P02',
  'invalid input syntax for type uuid: "nonsense"',
  'a token that is not a uuid is refused'
);
select throws_ok(
  format('select tests.checkpoint(%L, %L, %s)', 'numbers-2', bad.batch, bad.want),
  bad.code,
  bad.message,
  bad.claim
)
from (
  values
    (null, '0', 'PT400', 'p_batch must be a JSON object', 'null for the batch is refused'),
    ('[]', '0', 'PT400', 'p_batch must be a JSON object', 'a batch that is not an object is refused'),
    ('{"seq": 3}', 'null', 'PT422', 'p_want must be from 0 to 1000, not null', 'null for p_want is refused'),
    ('{"seq": 3}', '-1', 'PT422', 'p_want must be from 0 to 1000, not -1', 'a negative p_want is refused'),
    ('{"seq": 3}', '1001', 'PT422', 'p_want must be from 0 to 1000, not 1001', 'a p_want of 1001 is refused'),
    ('{}', '0', 'PT422', 'seq must be a positive whole number', 'a batch without a seq is refused'),
    ('{"seq": null}', '0', 'PT422', 'seq must be a positive whole number', 'a batch with null for its seq is refused'),
    ('{"seq": 0}', '0', 'PT422', 'seq must be a positive whole number', 'a batch numbered 0 is refused'),
    ('{"seq": -3}', '0', 'PT422', 'seq must be a positive whole number', 'a batch with a negative seq is refused'),
    ('{"seq": 1.5}', '0', 'PT422', 'seq must be a positive whole number', 'a batch numbered 1.5 is refused'),
    ('{"seq": "x"}', '0', 'PT422', 'seq must be a positive whole number', 'a batch numbered x is refused'),
    ('{"seq": 99999999999}', '0', 'PT422', 'seq must be a positive whole number', 'a batch with a huge seq is refused'),
    ('{"seq": "3"}', '0', 'PT422', 'seq must be a positive whole number', 'a seq that is text is refused'),
    ('{"seq": [3]}', '0', 'PT422', 'seq must be a positive whole number', 'a seq that is a list is refused'),
    ('{"seq": 3, "colour": 1}', '0', 'PT422', 'unknown key colour in p_batch', 'an unknown key is refused'),
    ('{"seq": 3, "refused": [1]}', '0', 'PT422', 'refused must be an object', 'refused that is not an object is refused'),
    ('{"seq": 3, "refused": {"dislike": 1}}', '0', 'PT422', 'refused may contain only out_of_scope, excluded and invalid_url', 'an unknown reason in refused is refused'),
    ('{"seq": 3, "refused": {"excluded": "1"}}', '0', 'PT422', 'refused may contain only whole numbers from 0 to 1000000000', 'a count that is text is refused'),
    ('{"seq": 3, "refused": {"excluded": -1}}', '0', 'PT422', 'refused may contain only whole numbers from 0 to 1000000000', 'a negative count is refused'),
    ('{"seq": 3, "refused": {"excluded": 1.5}}', '0', 'PT422', 'refused may contain only whole numbers from 0 to 1000000000', 'a fraction for a count is refused'),
    ('{"seq": 3, "refused": {"excluded": 1000000001}}', '0', 'PT422', 'refused may contain only whole numbers from 0 to 1000000000', 'a huge count is refused'),
    ('{"seq": 3, "refused": {"excluded": null}}', '0', 'PT422', 'refused may contain only whole numbers from 0 to 1000000000', 'null for a count is refused'),
    ('{"seq": 3, "hosts": [{"error_streak": 1}]}', '0', 'PT422', 'each of hosts must name its host', 'a host without a name is refused'),
    ('{"seq": 3, "finished": {}}', '0', 'PT422', 'finished must be a list of at most 5000 entries', 'finished that is not a list is refused'),
    ('{"seq": 3, "retried": "x"}', '0', 'PT422', 'retried must be a list of at most 5000 entries', 'retried that is not a list is refused'),
    ('{"seq": 3, "discovered": 1}', '0', 'PT422', 'discovered must be a list of at most 50000 entries', 'discovered that is not a list is refused'),
    ('{"seq": 3, "hosts": null}', '0', 'PT422', 'hosts must be a list of at most 5000 entries', 'hosts that are not a list are refused'),
    ('{"seq": 3, "current_url": 5}', '0', 'PT422', 'current_url must be a string', 'a current_url that is not a string is refused'),
    ('{"seq": 3, "want_links": "x"}', '0', 'PT422', 'want_links must be a list of at most 500 entries', 'want_links that are not a list are refused'),
    ('{"seq": 3, "want_links": [null]}', '0', 'PT422', 'want_links may contain only URL keys', 'null among want_links is refused'),
    ('{"seq": 3, "want_links": [["x"]]}', '0', 'PT422', 'want_links may contain only URL keys', 'a list among want_links is refused'),
    ('{"seq": 3, "want_links": ["x"]}', '0', '22P02', 'invalid input syntax for type uuid: "x"', 'a key of want_links that is not a uuid is refused'),
    ('{"seq": 3, "redirected_starts": "x"}', '0', 'PT422', 'redirected_starts must be a list of at most 100 entries', 'redirected_starts that are not a list are refused'),
    ('{"seq": 3, "redirected_starts": [1]}', '0', 'PT422', 'redirected_starts may contain only URLs', 'a redirected start that is not a string is refused'),
    ('{"seq": 3, "redirected_starts": ["file:///x"]}', '0', 'PT422', 'redirected_starts may contain only URLs', 'a redirected start that is not an http(s) URL is refused'),
    ('{"seq": 3, "finished": [{"status": "pending"}]}', '0', 'PT422', 'the status of a finished URL must be done, error or skipped', 'a finished URL cannot be pending'),
    ('{"seq": 3, "finished": [{"status": "colour"}]}', '0', 'PT422', 'the status of a finished URL must be done, error or skipped', 'a finished URL with an unknown status is refused'),
    ('{"seq": 3, "finished": [{}]}', '0', 'PT422', 'the status of a finished URL must be done, error or skipped', 'a finished URL without a status is refused'),
    ('{"seq": 3, "finished": [5]}', '0', 'PT422', 'the status of a finished URL must be done, error or skipped', 'a finished URL that is not an object is refused'),
    ('{"seq": 3, "finished": [{"status": "done", "url_key": "x"}]}', '0', '22P02', 'invalid input syntax for type uuid: "x"', 'a key that is not a uuid is refused'),
    ('{"seq": 3, "discovered": [{"url_key": "x", "url": "https://x.example/", "depth": 1}]}', '0', '22P02', 'invalid input syntax for type uuid: "x"', 'a discovered key that is not a uuid is refused')
) as bad (batch, want, code, message, claim);
select throws_ok(
  format(
    'select tests.checkpoint(%L, %L)',
    'numbers-2',
    jsonb_build_object('seq', 3, 'discovered', jsonb_build_array(tests.links('https://bad.example/') -> 0 || bad.change))
  ),
  bad.code,
  bad.message,
  bad.claim
)
from (
  values
    ('{"depth": -1}'::jsonb, '23514',
      'new row for relation "tasks" violates check constraint "tasks_depth_is_in_range"',
      'a negative depth is refused'),
    ('{"skip_reason": "dislike"}', '23514',
      'new row for relation "tasks" violates check constraint "tasks_skip_reason_is_known"',
      'an unknown skip reason is refused'),
    ('{"url": null}', '23502',
      'null value in column "url" of relation "tasks" violates not-null constraint',
      'a discovered URL that is null is refused'),
    (jsonb_build_object('url', 'https://' || repeat('u', 10000000)), '23514',
      'new row for relation "tasks" violates check constraint "tasks_url_is_short"',
      'a URL of ten megabytes is refused')
) as bad (change, code, message, claim);
select throws_ok(
  $$
    select tests.checkpoint('numbers-2', jsonb_build_object('seq', 3, 'finished', jsonb_build_array(
      jsonb_build_object('url_key', tests.url_key('https://n.example/'), 'status', 'skipped', 'skip_reason', 'dislike')
    )))
  $$,
  '23514',
  'new row for relation "tasks" violates check constraint "tasks_skip_reason_is_known"',
  'a URL cannot be skipped for an unknown reason'
);
select throws_ok(
  $$
    select tests.checkpoint('numbers-2', jsonb_build_object('seq', 3, 'finished', jsonb_build_array(
      tests.fetched('https://n.example/', null)
    )))
  $$,
  '23502',
  'null value in column "content_hash" of relation "crawl_pages" violates not-null constraint',
  'a page without a hash is refused'
);
select throws_ok(
  format(
    'select tests.checkpoint(%L, %L)',
    'numbers-2',
    jsonb_build_object(
      'seq', 3,
      bad.part, jsonb_build_array(
        bad.entry::jsonb || jsonb_build_object(
          bad.key,
          case bad.key when 'page' then jsonb_build_object('http_status', wrong.value::jsonb) else wrong.value::jsonb end
        )
      )
    )
  ),
  'PT422',
  bad.message,
  format('%s %s that is %s is refused', bad.part, bad.key, wrong.what)
)
from (
  values
    ('finished', 'http_status', '{"status": "done"}', 'the http_status of a finished URL must be a number from 0 to 999'),
    ('finished', 'bytes', '{"status": "done"}', 'the bytes of a finished URL must be a number from 0 to 10000000000'),
    ('finished', 'page', '{"status": "done"}', 'the http_status of a page must be a number from 0 to 999'),
    ('retried', 'after_seconds', '{}', 'after_seconds must be a number, at most 1000000'),
    ('retried', 'http_status', '{}', 'the http_status of a retried URL must be a number from 0 to 999'),
    ('discovered', 'depth', '{}', 'the depth of a discovered URL must be a number, at most 1000'),
    ('hosts', 'robots_status', '{"host": "x"}', 'robots_status must be a number from 0 to 999'),
    ('hosts', 'crawl_delay_seconds', '{"host": "x"}', 'crawl_delay_seconds must be a number from 0 to 3600'),
    ('hosts', 'backoff_seconds', '{"host": "x"}', 'backoff_seconds must be a number from 0 to 1000000'),
    ('hosts', 'error_streak', '{"host": "x"}', 'error_streak must be a number from 0 to 1000000000')
) as bad (part, key, entry, message)
cross join (
  values
    ('text', '"1"'),
    ('a number of 62,000 digits', repeat('9', 62000))
) as wrong (what, value);
select throws_ok(
  $$ select tests.checkpoint('numbers-2', jsonb_build_object('seq', 3, 'finished', (select jsonb_agg('{"status": "done"}'::jsonb) from generate_series(1, 5001)))) $$,
  'PT422',
  'finished must be a list of at most 5000 entries',
  'more than 5000 finished URLs in one batch are refused'
);
select throws_ok(
  $$ select tests.checkpoint('numbers-2', jsonb_build_object('seq', 3, 'discovered', (select jsonb_agg(1) from generate_series(1, 50001)))) $$,
  'PT422',
  'discovered must be a list of at most 50000 entries',
  'more than 50000 links in one batch are refused'
);
select throws_ok(
  $$ select tests.checkpoint('numbers-2', jsonb_build_object('seq', 3, 'redirected_starts', (select jsonb_agg('https://x.example/' || n) from generate_series(1, 101) as n))) $$,
  'PT422',
  'redirected_starts must be a list of at most 100 entries',
  'more than 100 redirected starts in one batch are refused'
);
select throws_ok(
  $$ select tests.checkpoint('numbers-2', jsonb_build_object('seq', 3, 'want_links', (select jsonb_agg(gen_random_uuid()) from generate_series(1, 501)))) $$,
  'PT422',
  'want_links must be a list of at most 500 entries',
  'the links of more than 500 pages in one batch are refused'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- Endless links

select tests.claimed_job('endless-1', 'ann', '{"max_pages": 1}');
select tests.checkpoint('endless-1', jsonb_build_object('seq', 1, 'discovered', (
  select jsonb_agg(jsonb_build_object(
    'url_key', tests.url_key('https://endless.example/' || n),
    'url', 'https://endless.example/' || n,
    'depth', 1
  ))
  from generate_series(1, 10100) as n
)));
select tests.checkpoint('endless-1', jsonb_build_object('seq', 2, 'discovered', jsonb_build_array(
  jsonb_build_object('url_key', tests.url_key('https://endless.example/more'), 'url', 'https://endless.example/more', 'depth', 1),
  jsonb_build_object('url_key', tests.url_key('https://elsewhere.example/'), 'url', 'https://elsewhere.example/', 'depth', 1, 'skip_reason', 'trap')
)));
select is(
  (select count(*) from silkline.tasks where url = 'https://endless.example/more'),
  0::bigint,
  'at most 100 * max_pages + 10000 pending URLs are stored'
);
select is(
  (select skip_reason from silkline.tasks where url = 'https://elsewhere.example/'),
  'trap',
  'skipped URLs have their own limit'
);

-- More links than fit into an answer

select tests.claimed_job('large', 'ann');
insert into public.crawl_pages (user_id, source_id, url_key, url, version, is_latest, job_id, content_hash, links)
select
  tests.user_id('ann'),
  'large.example',
  tests.url_key('large ' || n),
  'https://large.example/' || n,
  version,
  version = 2,
  tests.job('large'),
  'hash',
  case version
    when 1 then '["https://old.example/"]'
    else jsonb_build_array(repeat('x', case n when 5 then 5000000 else 1500000 end))
  end
from generate_series(1, 5) as n
cross join generate_series(1, 2) as version;

create function pg_temp.links_of(p_seq integer, variadic p_pages integer[])
  returns integer[]
  language sql
as $$
  select array_agg(length(entry #>> '{links,0}'))
  from jsonb_array_elements(
    tests.checkpoint(
      'large',
      jsonb_build_object('seq', p_seq, 'want_links', (select jsonb_agg(tests.url_key('large ' || n)) from unnest(p_pages) as n))
    ) -> 'links'
  ) as entry;
$$;

select is(pg_temp.links_of(1, 1, 2, 3, 4), '{1500000,1500000}', 'the first pages that fit into 4 MB are returned');
select is(pg_temp.links_of(2, 5, 1), '{5000000}', 'the first page is returned, however large it is');
select is(pg_temp.links_of(3, 3, 4, 5), '{1500000,1500000}', 'the others are returned when asked for again');
select tests.claimed_job('bobs-large', 'bob', '{"url": "https://large.example/page"}')
from (select public.release_crawl_job(tests.token('large'), 'later', 60)) as released;
select is(
  tests.checkpoint('bobs-large', jsonb_build_object('seq', 1, 'want_links', jsonb_build_array(tests.url_key('large 1')))) #> '{links,0,links}',
  '[]',
  'links do not come from another user''s page'
);

-- Who may call it

select function_privs_are('public', 'checkpoint_crawl_job', array['uuid', 'jsonb', 'integer'], 'service_role', array['EXECUTE'], 'the service may checkpoint');
select function_privs_are('public', 'checkpoint_crawl_job', array['uuid', 'jsonb', 'integer'], 'crawl_worker', array['EXECUTE'], 'workers may checkpoint');
select function_privs_are('public', 'checkpoint_crawl_job', array['uuid', 'jsonb', 'integer'], 'authenticated', '{}'::text[], 'users may not checkpoint');
select function_privs_are('public', 'checkpoint_crawl_job', array['uuid', 'jsonb', 'integer'], 'anon', '{}'::text[], 'anonymous callers may not checkpoint');
select throws_ok(
  $$ select tests.as_user('ann', 'select public.checkpoint_crawl_job(tests.token(''numbers-2''), ''{"seq": 3}'')') $$,
  '42501',
  'permission denied for function checkpoint_crawl_job',
  'a user who tries to checkpoint is refused, even her own job with the right token'
);
select throws_ok(
  $$ select tests.as_anon('select public.checkpoint_crawl_job(tests.token(''numbers-2''), ''{"seq": 3}'')') $$,
  '42501',
  'permission denied for function checkpoint_crawl_job',
  'an anonymous caller who tries to checkpoint is refused'
);

select * from finish();
rollback;

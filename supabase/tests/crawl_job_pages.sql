-- crawl_job_pages: the results of a job, page by page, for callers who may see the job.

begin;
select plan(37);

select tests.make_users('ann', 'bob');

create function pg_temp.pages(p_name text, p_arguments text default '', p_user text default 'ann')
  returns setof jsonb
  language sql
as $$
  select tests.as_user(
    p_user,
    format('select * from public.crawl_job_pages(tests.job(%L)%s)', p_name, p_arguments)
  );
$$;

-- One URL of each kind

select tests.claimed_job('first', 'ann', '{"url": "https://site.example/"}');
select tests.checkpoint(
  'first',
  jsonb_build_object(
    'seq', 1,
    'discovered', tests.links('https://site.example/a', 'https://site.example/b', 'https://site.example/c', 'https://site.example/d')
      || (tests.links('https://else.example/') -> 0 || jsonb_build_object('skip_reason', 'too_deep', 'found_on', tests.url_key('https://site.example/a')))
  ),
  4
);
select tests.checkpoint(
  'first',
  jsonb_build_object(
    'seq', 2,
    'finished', jsonb_build_array(
      tests.fetched(
        'https://site.example/a',
        'hash-a',
        '{"title": "A", "markdown": "# A", "links": ["https://site.example/b"], "metadata": {"language": "en"}, "extractor": "default", "extractor_version": "1", "quality": {"kept": 0.9, "warnings": ["cut"]}}'
      ),
      tests.fetched('https://site.example/b', 'hash-b'),
      jsonb_build_object('url_key', tests.url_key('https://site.example/c'), 'status', 'error', 'error', 'http 500', 'http_status', 500)
    )
  )
);
select is(
  (select page from pg_temp.pages('first') as page where page ->> 'url' = 'https://site.example/a') - '{finished_at,first_seen_at,last_seen_at}'::text[],
  jsonb_build_object(
    'url_key', tests.url_key('https://site.example/a'),
    'url', 'https://site.example/a',
    'depth', 1,
    'status', 'done',
    'skip_reason', null,
    'last_error', null,
    'http_status', 200,
    'attempts', 1,
    'found_on', null,
    'page_url', 'https://site.example/a',
    'version', 1,
    'change', 'new',
    'title', 'A',
    'content_hash', 'hash-a',
    'extractor', 'default',
    'extractor_version', '1',
    'quality', '{"kept": 0.9, "warnings": ["cut"]}'::jsonb,
    'metadata', '{"language": "en"}'::jsonb,
    'markdown', null,
    'links', null
  ),
  'a fetched URL comes with its page, without content by default'
);
select is(
  (select page ->> 'first_seen_at' from pg_temp.pages('first') as page where page ->> 'url' = 'https://site.example/a'),
  to_jsonb(now()) #>> '{}',
  'a page has its first and last time seen'
);
select results_eq(
  $$ select page ->> 'markdown', page -> 'links' from pg_temp.pages('first', ', p_with_content => true') as page where page ->> 'url' = 'https://site.example/a' $$,
  $$ values ('# A', '["https://site.example/b"]'::jsonb) $$,
  'with content it has Markdown and links'
);
select results_eq(
  $$ select page ->> 'last_error', page ->> 'http_status', page ->> 'version', page ->> 'change' from pg_temp.pages('first') as page where page ->> 'url' = 'https://site.example/c' $$,
  $$ values ('http 500', '500', null::text, null::text) $$,
  'a failed URL has its error, and no page'
);
select results_eq(
  $$ select page ->> 'skip_reason', (page ->> 'found_on')::uuid from pg_temp.pages('first') as page where page ->> 'url' = 'https://else.example/' $$,
  $$ values ('too_deep', tests.url_key('https://site.example/a')) $$,
  'a skipped URL has its reason, and where it was found'
);

-- By status

select is(
  array(
    select page ->> 'status'
    from pg_temp.pages('first', format(', p_status => %L', filter.status)) as page
  ),
  array_fill(filter.status, array[filter.count]),
  format('only URLs that are %s', filter.status)
)
from (values ('done'::text, 2), ('error', 1), ('in_progress', 1), ('skipped', 1)) as filter (status, count);
select is_empty($$ select pg_temp.pages('first', ', p_status => ''pending''') $$, 'a status that no URL has returns no rows');

-- Paging

select is(
  array(select (page ->> 'url_key')::uuid from pg_temp.pages('first') as page),
  array(select url_key from silkline.tasks where job_id = tests.job('first') order by url_key),
  'URLs come in the order of their keys'
);
create function pg_temp.stream(p_arguments text)
  returns uuid[]
  language plpgsql
as $$
declare
  v_keys uuid[] := '{}';
  v_more uuid[];
begin
  loop
    v_more := array(
      select (page ->> 'url_key')::uuid
      from pg_temp.pages('first', format(', p_limit => 1, p_after => %L', v_keys[cardinality(v_keys)]) || p_arguments) as page
    );
    exit when v_more = '{}';
    v_keys := v_keys || v_more;
  end loop;
  return v_keys;
end
$$;
select is(
  pg_temp.stream(''),
  array(select url_key from silkline.tasks where job_id = tests.job('first') order by url_key),
  'each call continues after the last key of the previous one'
);
select is(
  pg_temp.stream(', p_status => ''done'''),
  array(select url_key from silkline.tasks where job_id = tests.job('first') and status = 'done' order by url_key),
  'with a status, too'
);
select is(
  pg_temp.stream(', p_status => ''error'''),
  array(select url_key from silkline.tasks where job_id = tests.job('first') and status = 'error' order by url_key),
  'also for failed URLs'
);
insert into silkline.tasks (job_id, url_key, url, depth)
values (tests.job('first'), '00000000-0000-0000-0000-000000000000', 'https://site.example/zero', 1);
update silkline.states set total_pending = total_pending + 1 where job_id = tests.job('first');
select is(
  (select page ->> 'url' from pg_temp.pages('first', ', p_limit => 1') as page),
  'https://site.example/zero',
  'the lowest key of all is not left out'
);
select is(
  (select count(*) from pg_temp.pages('first', ', p_after => ''00000000-0000-0000-0000-000000000000''')),
  5::bigint,
  'and not returned twice'
);

-- Large pages

create function pg_temp.large_page(p_number integer, p_markdown integer, p_links integer)
  returns void
  language sql
as $$
  with page as (
    insert into public.crawl_pages (user_id, source_id, url_key, url, version, job_id, content_hash, markdown, links)
    values (
      tests.user_id('ann'),
      'large',
      tests.url_key('large ' || p_number),
      'https://site.example/' || p_number,
      1,
      tests.job('large'),
      'hash',
      repeat('x', p_markdown),
      (select coalesce(jsonb_agg(repeat('y', 1000)), '[]') from generate_series(1, p_links))
    )
    returning id, url_key, url
  )
  insert into silkline.tasks (job_id, url_key, url, depth, status, page_id, finished_at)
  select tests.job('large'), page.url_key, page.url, 1, 'done', page.id, now()
  from page;
$$;
select tests.enqueue('large', 'ann');
select pg_temp.large_page(number, 999000, 0) from generate_series(1, 6) as number;
select is(
  (select count(*) from pg_temp.pages('large', ', p_with_content => true')),
  4::bigint,
  'an answer has about 4 MB of content'
);
select is(
  (select count(*) from pg_temp.pages('large')),
  6::bigint,
  'without content it has all rows'
);
delete from silkline.tasks where job_id = tests.job('large');
select pg_temp.large_page(number, 0, 1000) from generate_series(11, 16) as number;
select is(
  (select count(*) from pg_temp.pages('large', ', p_with_content => true')),
  3::bigint,
  'links count as they are sent, not as they are stored'
);
delete from silkline.tasks where job_id = tests.job('large');
select pg_temp.large_page(number, 9000000, 0) from generate_series(21, 22) as number;
select is(
  (select count(*) from pg_temp.pages('large', ', p_with_content => true')),
  1::bigint,
  'a page that is larger than that comes alone'
);
select is(
  (
    select count(*)
    from pg_temp.pages('large', ', p_with_content => true') as first
    cross join lateral pg_temp.pages('large', format(', p_with_content => true, p_after => %L', first ->> 'url_key')) as second
    where second ->> 'url_key' > first ->> 'url_key'
  ),
  1::bigint,
  'and the next call continues after it'
);
delete from silkline.jobs where id = tests.job('large');

-- What changed since the previous crawl

select tests.as_user('ann', 'select id from public.stop_crawl_job(tests.job(''first''))');
select public.release_crawl_job(tests.token('first'));
select tests.claimed_job('second', 'ann', '{"url": "https://site.example/"}');
select tests.checkpoint('second', jsonb_build_object('seq', 1, 'discovered', tests.links('https://site.example/a', 'https://site.example/b', 'https://site.example/e')), 3);
select tests.checkpoint(
  'second',
  jsonb_build_object(
    'seq', 2,
    'finished', jsonb_build_array(
      tests.fetched('https://site.example/a', 'hash-a2'),
      jsonb_build_object('url_key', tests.url_key('https://site.example/b'), 'status', 'done', 'http_status', 304, 'not_modified', true),
      tests.fetched('https://site.example/e', 'hash-e')
    )
  )
);
select set_eq(
  $$ select right(page ->> 'url', 1), page ->> 'change', (page ->> 'version')::integer from pg_temp.pages('second') as page $$,
  $$ values ('a', 'changed', 2), ('b', 'unchanged', 1), ('e', 'new', 1) $$,
  'pages are new, changed or unchanged since the previous crawl'
);
select results_eq(
  $$ select page ->> 'content_hash', page ->> 'change' from pg_temp.pages('first') as page where page ->> 'url' = 'https://site.example/a' $$,
  $$ values ('hash-a', 'new') $$,
  'an older job returns the version that it saw'
);
delete from public.crawl_pages where content_hash = 'hash-a';
select results_eq(
  $$ select page ->> 'status', page ->> 'version', page ->> 'change' from pg_temp.pages('first') as page where page ->> 'url' = 'https://site.example/a' $$,
  $$ values ('done', null::text, null::text) $$,
  'a URL whose page version was pruned is still returned'
);

-- Bad input

select throws_ok(
  $$ select pg_temp.pages('first', ', p_status => ''lost''') $$,
  'PT422',
  'p_status must be pending, in_progress, done, error or skipped, not ''lost''',
  'an unknown status is refused'
);
select throws_ok(
  format('select pg_temp.pages(''first'', '', p_limit => %s'')', bad.count),
  'PT422',
  format('p_limit must be from 1 to 1000, not %s', bad.count),
  format('a limit of %s is refused', bad.count)
)
from unnest(array['0', '1001', '-1', 'null']) as bad (count);

-- Who may see what

select throws_ok(
  $$ select pg_temp.pages('first', '', 'bob') $$,
  'PT404',
  format('there is no job %s', tests.job('first')),
  'another user''s job looks like one that does not exist'
);
select throws_ok(
  $$ select * from public.crawl_job_pages(null) $$,
  'PT400',
  'p_job_id must not be null',
  'null for the job is refused'
);
select is(
  (select count(*) from tests.as_service('select * from public.crawl_job_pages(tests.job(''first''))')),
  6::bigint,
  'the service sees the pages of any job'
);
select function_privs_are('public', 'crawl_job_pages', array['uuid', 'text', 'boolean', 'uuid', 'integer'], 'service_role', array['EXECUTE'], 'the service may read pages');
select function_privs_are('public', 'crawl_job_pages', array['uuid', 'text', 'boolean', 'uuid', 'integer'], 'authenticated', array['EXECUTE'], 'users may read pages');
select function_privs_are('public', 'crawl_job_pages', array['uuid', 'text', 'boolean', 'uuid', 'integer'], 'crawl_worker', '{}'::text[], 'workers may not read pages');
select function_privs_are('public', 'crawl_job_pages', array['uuid', 'text', 'boolean', 'uuid', 'integer'], 'anon', '{}'::text[], 'anonymous callers may not read pages');
select throws_ok(
  $$ select tests.as_anon('select * from public.crawl_job_pages(tests.job(''first''))') $$,
  '42501',
  'permission denied for function crawl_job_pages',
  'an anonymous caller who tries to call it is refused'
);

select * from finish();
rollback;

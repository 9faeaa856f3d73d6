-- enqueue_crawl_job: what a user may enqueue, how much of it, and what is refused.

begin;
select plan(242);

select tests.make_users('ann', 'bob', 'gone');
delete from auth.users where id = tests.user_id('gone');

-- Enqueue as ann, and return the row.
create function pg_temp.enqueue(p_arguments text)
  returns jsonb
  language sql
as $$
  select tests.as_user('ann', format('select * from public.enqueue_crawl_job(%s)', p_arguments));
$$;

-- The hint of a refused call.
create function pg_temp.hint(p_arguments text)
  returns text
  language plpgsql
as $$
declare
  v_hint text;
begin
  perform pg_temp.enqueue(p_arguments);
  return null;
exception
  when others then
    get stacked diagnostics v_hint = pg_exception_hint;
    return v_hint;
end
$$;

-- A job with every default

create temporary table answers (name text primary key, answer jsonb) on commit drop;
insert into answers values ('plain', pg_temp.enqueue($$'{"url": "https://Example.com:443/start"}'$$));

select is(
  (
    select jsonb_build_object(
      'user_id', answer -> 'user_id',
      'kind', answer -> 'kind',
      'priority', answer -> 'priority',
      'status', answer -> 'status',
      'waits_for', answer -> 'waits_for',
      'host', answer -> 'host',
      'source_id', answer -> 'source_id',
      'max_retries', answer -> 'max_retries',
      'attempt', answer -> 'attempt',
      'progress_percentage', answer -> 'progress_percentage'
    )
    from answers
    where name = 'plain'
  ),
  jsonb_build_object(
    'user_id', tests.user_id('ann'),
    'kind', 'crawl',
    'priority', 0,
    'status', 'pending',
    'waits_for', null,
    'host', 'example.com',
    'source_id', 'example.com',
    'max_retries', 3,
    'attempt', 0,
    'progress_percentage', 0
  ),
  'a job belongs to its caller and is pending, with default settings and the host of its URL'
);
select is(
  (select answer -> 'payload' from answers where name = 'plain'),
  (
    select jsonb_object_agg(name, default_value) || '{"url": "https://Example.com:443/start"}'
    from silkline.payload_options
    where kind = 'crawl'
      and default_value is not null
  ),
  'the payload is complete: what was sent, and the current defaults'
);
select results_eq(
  $$ select total_pending, seq from silkline.states where job_id = (select (answer ->> 'id')::uuid from answers where name = 'plain') $$,
  $$ values (0, 0) $$,
  'a job has its state from the start'
);
select is(
  (pg_temp.enqueue($$'{"url": "https://example.com/", "max_retries": 7}'$$) ->> 'max_retries')::integer,
  7,
  'max_retries of the payload applies to the job'
);
select is(
  pg_temp.enqueue($$'{"url": "http://example.com:8080/"}', p_source_id => 'docs'$$) - '{id,payload,place}'::text[] @> '{"host": "example.com:8080", "source_id": "docs"}',
  true,
  'a port belongs to the host, and the caller may choose the source'
);
select is(
  pg_temp.enqueue($$'{"url": "https://example.com/", "fetcher": "generated"}'$$) -> 'payload' ->> 'fetcher',
  'generated',
  'a fetcher may be the name of a plugin'
);
select is(
  pg_temp.enqueue($$'{"url": "https://example.com/"}', p_run_after => now() + interval '1 hour'$$) ->> 'waits_for',
  'time',
  'a scheduled job waits for its time'
);
select is(
  pg_temp.enqueue($$'{"url": "https://example.com/"}', p_kind => null, p_priority => null, p_source_id => null$$) ->> 'kind',
  'crawl',
  'null for an option means its default'
);
select is(
  pg_temp.enqueue($$'{"url": "https://example.com/", "max_pages": 1e3}'$$) -> 'payload' ->> 'max_pages',
  '1000',
  'a whole number may be written with an exponent'
);

-- Hosts: one host has one spelling

select is(
  pg_temp.enqueue(format('%L', jsonb_build_object('url', spelling.url))) ->> 'host',
  spelling.host,
  format('the host of %s is %s', spelling.url, spelling.host)
)
from (
  values
    ('HTTPS://EXAMPLE.com/', 'example.com'),
    ('https://example.com./', 'example.com'),
    ('https://example.com:0443/', 'example.com'),
    ('http://example.com.:00080?x', 'example.com'),
    ('http://example.com:443/', 'example.com:443'),
    ('https://example.com:08443#x', 'example.com:8443'),
    ('https://XN--bcher-kva.example/', 'xn--bcher-kva.example'),
    ('https://under_score.example/', 'under_score.example'),
    ('https://192.0.2.1./', '192.0.2.1'),
    ('https://[2001:DB8:0:0::1]:443/', '[2001:db8::1]'),
    ('http://[::1]:08080/', '[::1]:8080'),
    ('https://example.com/ä?ö', 'example.com'),
    (format('https://example.com/%s', repeat('x', 500)), 'example.com')
) as spelling (url, host);
select is(
  pg_temp.enqueue($$'{"strategy": "list", "urls": ["https://list.example/a", "https://LIST.example:443/b"]}'$$) @> '{"host": "list.example", "source_id": "list.example"}',
  true,
  'a list of URLs on one host occupies that host'
);
select is(
  pg_temp.enqueue($$'{"strategy": "list", "urls": ["https://list.example/a", "https://other.example/b"]}'$$) @> jsonb_build_object('host', 'list of ' || tests.user_id('ann'), 'source_id', 'list'),
  true,
  'a list of URLs on several hosts occupies none of them, and counts as a host of its owner'
);

-- Priority

select results_eq(
  format(
    'select priority::integer, (100 - (place >> 40))::integer from silkline.jobs where id = %L',
    pg_temp.enqueue(format($$'{"url": "https://example.com/"}', p_priority => %s$$, sent.priority)) ->> 'id'
  ),
  format('values (%s, %s)', sent.priority, sent.band),
  sent.claim
)
from (
  values
    (100, 0, 'a priority above max_user_priority is kept, and does not count among all users'),
    (0, 0, 'a priority of max_user_priority counts among all users'),
    (-100, -100, 'so does a lower one')
) as sent (priority, band, claim);

-- Idempotency

insert into answers values ('once', pg_temp.enqueue($$'{"url": "https://example.com/"}', p_idempotency_key => 'k'$$));
select tests.remember();
select is(
  pg_temp.enqueue($$'{"url": "https://example.com/"}', p_idempotency_key => 'k'$$),
  (select answer from answers where name = 'once'),
  'the same idempotency key returns the same job'
);
select is(tests.fingerprint(), tests.remembered(), 'a repeated call creates no second job');
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"url": "https://example.com/other"}', p_idempotency_key => 'k'$$) $sql$,
  'PT409',
  'idempotency key "k" was used for a job that differs in payload.url',
  'an idempotency key cannot be used for two different jobs'
);
select throws_ok(
  format('select pg_temp.enqueue(%L)', other.arguments || $$, p_idempotency_key => 'k'$$),
  'PT409',
  'idempotency key "k" was used for a job that differs in ' || other.fields,
  format('a repeated call that differs in %s is refused, and says so', other.fields)
)
from (
  values
    ($$'{"url": "https://example.com/", "max_pages": 1000}'$$, 'payload.max_pages'),
    ($$'{"url": "https://example.com/"}', p_priority => -1$$, 'priority'),
    ($$'{"url": "https://example.com/"}', p_source_id => 'other'$$, 'source_id'),
    ($$'{"url": "https://example.com/"}', p_run_after => now() + interval '1 hour'$$, 'run_after'),
    ($$'{"url": "https://example.com/"}', p_kind => 'screenshot'$$, 'kind'),
    ($$'{"url": "https://example.com/", "tries": 1, "scope": "domain"}', p_priority => 1, p_source_id => 'other'$$, 'payload.scope, payload.tries, priority, ...')
) as other (arguments, fields);
update public.crawl_settings
set
  default_max_retries = 5,
  max_user_pages = 10,
  denied_user_hosts = '{example.com}'
where id;
update silkline.payload_options set default_value = '5' where name = 'tries';
select is(
  pg_temp.enqueue($$'{"url": "https://example.com/"}', p_idempotency_key => 'k'$$) ->> 'id',
  (select answer ->> 'id' from answers where name = 'once'),
  'a repeated call returns its job, whatever the operator has changed'
);
update public.crawl_settings
set
  default_max_retries = 3,
  max_user_pages = null,
  denied_user_hosts = '{}'
where id;
update silkline.payload_options set default_value = '3' where name = 'tries';
insert into answers values ('scheduled', pg_temp.enqueue($$'{"url": "https://example.com/"}', p_idempotency_key => 'scheduled', p_run_after => date_trunc('day', now() + interval '2 days')$$));
set local time zone 'Asia/Tokyo';
select is(
  pg_temp.enqueue(format($$'{"url": "https://example.com/"}', p_idempotency_key => 'scheduled', p_run_after => %L$$, (select answer ->> 'run_after' from answers where name = 'scheduled'))) ->> 'id',
  (select answer ->> 'id' from answers where name = 'scheduled'),
  'a time is the same in every time zone'
);
set local time zone 'UTC';
select isnt(
  (select tests.as_user('bob', $$select id from public.enqueue_crawl_job('{"url": "https://example.com/"}', p_idempotency_key => 'k')$$)),
  (select answer -> 'id' from answers where name = 'once'),
  'the idempotency key of one user means nothing to another'
);

-- The service

select is(
  (select tests.as_service($$select user_id from public.enqueue_crawl_job('{"url": "https://example.com/"}')$$)),
  'null'::jsonb,
  'a job of the service has no owner'
);
select is(
  (select tests.as_service($$select user_id from public.enqueue_crawl_job('{"url": "https://example.com/"}', p_user_id => tests.user_id('bob'))$$)),
  to_jsonb(tests.user_id('bob')),
  'the service may enqueue for a user'
);
select is(
  (select tests.as_service($$select priority from public.enqueue_crawl_job('{"url": "https://example.com/"}', p_priority => 100)$$)),
  '100'::jsonb,
  'the service may use every priority'
);
select is(
  (select (100 - (place >> 40))::integer from silkline.jobs where priority = 100 and user_id is null),
  100,
  'the priority of the service counts among all users'
);
select throws_ok(
  $sql$ select tests.as_service($$select id from public.enqueue_crawl_job('{"url": "https://example.com/"}', p_user_id => tests.user_id('nobody'))$$) $sql$,
  'PT422',
  format('there is no user %s', tests.user_id('nobody')),
  'the service cannot enqueue for a user who does not exist'
);

-- Plugins

select throws_ok(
  $sql$ select pg_temp.enqueue($$'{}', p_kind => 'screenshot'$$) $sql$,
  'PT422',
  'unknown kind "screenshot"',
  'a kind that no operator has added is refused'
);
select is(
  pg_temp.hint($$'{}', p_kind => 'screenshot'$$),
  'Use crawl; the operator adds the kinds of plugins to crawl_settings.plugin_kinds.',
  'the hint names the known kinds'
);
update public.crawl_settings set plugin_kinds = '{audit}' where id;
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"url": "https://example.com/"}', p_kind => 'audit'$$) $sql$,
  'PT422',
  'jobs of kind audit are not available yet',
  'an audit is refused, even as the kind of a plugin'
);
select is(
  pg_temp.hint($$'{"url": "https://example.com/"}', p_kind => 'audit'$$),
  'Use the kind crawl, or the kind of a plugin.',
  'the hint says what to use instead'
);
update public.crawl_settings set plugin_kinds = '{screenshot}' where id;
select is(
  pg_temp.enqueue($$'{"width": 800}', p_kind => 'screenshot'$$) @> '{"source_id": "screenshot", "kind": "screenshot", "payload": {"width": 800}}',
  true,
  'a plugin checks its own keys, and needs no URL'
);
select results_eq(
  $$ select host from silkline.jobs where kind = 'screenshot' $$,
  $$ select 'screenshot:' || id from silkline.jobs where kind = 'screenshot' $$,
  'a job without a URL shares its host with no other'
);
select is(
  pg_temp.enqueue($$'{"url": "https://Example.com/", "urls": [5], "strategy": "list"}', p_kind => 'screenshot'$$) ->> 'host',
  'example.com',
  'a plugin''s job occupies the host of its URL'
);
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"policy": {"deny_hosts": []}}', p_kind => 'screenshot'$$) $sql$,
  'PT422',
  'policy is set by the queue',
  'no caller sets the policy of a plugin''s job'
);
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"size": [{"of": -1e131071}]}', p_kind => 'screenshot'$$) $sql$,
  'PT422',
  'numbers in a payload must be between 1e-15 and 1e15',
  'a number of a few bytes that is thousands of digits long is refused'
);
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"size": 1e-16000}', p_kind => 'screenshot'$$) $sql$,
  'PT422',
  'numbers in a payload must be between 1e-15 and 1e15',
  'so is one with thousands of decimal zeros'
);
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"sizes": [0, 0e-16383]}', p_kind => 'screenshot'$$) $sql$,
  'PT422',
  'numbers in a payload must be between 1e-15 and 1e15',
  'so is a zero with thousands of decimals'
);
select throws_ok(
  $sql$ select pg_temp.enqueue($$jsonb_build_object('a', (repeat('[', 21) || repeat(']', 21))::jsonb), p_kind => 'screenshot'$$) $sql$,
  'PT422',
  'a payload must not be nested deeper than 20 levels',
  'a deeply nested payload is refused'
);
select ok(
  pg_temp.enqueue($$jsonb_build_object('a', (repeat('[', 19) || '0, 1e15, -0.5' || repeat(']', 19))::jsonb), p_kind => 'screenshot'$$) is not null,
  'ordinary numbers and lists are accepted'
);
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"url": "javascript:alert(1)"}', p_kind => 'screenshot'$$) $sql$,
  'PT422',
  'url must begin with http:// or https://, not "javascript:alert(1)"',
  'the URL of a plugin''s job is checked, too'
);
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"max_retries": "many"}', p_kind => 'screenshot'$$) $sql$,
  'PT422',
  'max_retries must be a whole number from 0 to 20, not "many"',
  'max_retries of a plugin''s job must be a number'
);
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"max_retries": 1000}', p_kind => 'screenshot'$$) $sql$,
  'PT422',
  'max_retries must be a whole number from 0 to 20, not 1000',
  'max_retries of a plugin''s job is bounded'
);
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"user_agent": "x\r\ny: z"}', p_kind => 'screenshot'$$) $sql$,
  'PT422',
  'user_agent must not contain control characters or line breaks',
  'the user agent of a plugin''s job is checked, too'
);

-- Quotas

update public.crawl_settings
set max_open_jobs_per_user = (select count(*) from silkline.jobs where user_id = tests.user_id('ann')) + 1
where id;
select lives_ok($sql$ select pg_temp.enqueue($$'{"url": "https://example.com/"}', p_idempotency_key => 'last'$$) $sql$, 'a user may fill the quota');
select tests.remember();
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"url": "https://example.com/"}'$$) $sql$,
  'PT429',
  (select format('this would exceed the limit of %s open jobs per user', max_open_jobs_per_user) from public.crawl_settings),
  'one open job more than allowed is refused'
);
select is(tests.fingerprint(), tests.remembered(), 'a call over the quota leaves no row behind');
select lives_ok($sql$ select pg_temp.enqueue($$'{"url": "https://example.com/"}', p_idempotency_key => 'last'$$) $sql$, 'a repeated call succeeds although the quota is full');
select lives_ok(
  $sql$ select tests.as_user('bob', $$select id from public.enqueue_crawl_job('{"url": "https://example.com/"}')$$) $sql$,
  'the quota of one user does not apply to another'
);
select tests.as_user('ann', 'select id from public.cancel_crawl_job(tests.job(''last''))');
select lives_ok($sql$ select pg_temp.enqueue($$'{"url": "https://example.com/"}'$$) $sql$, 'a job that has ended makes room');
update public.crawl_settings
set
  max_open_jobs_per_user = null,
  max_jobs_per_user_per_day = (select sum(jobs) from silkline.quota_uses where owner_id = tests.user_id('ann'))
where id;
select throws_ok(
  $sql$ select pg_temp.enqueue($$'{"url": "https://example.com/"}'$$) $sql$,
  'PT429',
  (select format('this would exceed the limit of %s new or retried jobs per user in 24 hours', max_jobs_per_user_per_day) from public.crawl_settings),
  'more jobs in a day than allowed are refused, even after others have ended'
);
update silkline.quota_uses set hour = hour - interval '25 hours' where true;
select lives_ok($sql$ select pg_temp.enqueue($$'{"url": "https://example.com/"}'$$) $sql$, 'a day later there is room again');
update public.crawl_settings set max_jobs_per_user_per_day = null where id;

-- Bad input: the payload

select tests.remember();
select throws_ok(
  format('select pg_temp.enqueue(%L)', format('%L::jsonb', bad.payload)),
  'PT422',
  bad.message,
  bad.claim
)
from (
  values
    (null, 'the payload must be a JSON object', 'null for the payload is refused'),
    ('null', 'the payload must be a JSON object', 'JSON null for the payload is refused'),
    ('[]', 'the payload must be a JSON object', 'a list for the payload is refused'),
    ('"https://example.com/"', 'the payload must be a JSON object', 'a string for the payload is refused'),
    ('{}', 'the payload needs a url', 'a payload without a URL is refused'),
    ('{"url": "https://example.com/", "colour": 1}', 'unknown key "colour" in the payload', 'an unknown key is refused'),
    ('{"url": null}', 'url must be a URL, not null', 'null for the URL is refused'),
    ('{"url": 5}', 'url must be a URL, not 5', 'a number for the URL is refused'),
    ('{"url": ["https://example.com/"]}', 'url must be a URL, not a list', 'a list for the URL is refused'),
    ('{"url": ""}', 'url must begin with http:// or https://, not ""', 'an empty URL is refused'),
    ('{"url": "javascript:alert(1)"}', 'url must begin with http:// or https://, not "javascript:alert(1)"', 'a javascript: URL is refused'),
    ('{"url": "file:///etc/passwd"}', 'url must begin with http:// or https://, not "file:///etc/passwd"', 'a file: URL is refused'),
    ('{"url": "data:text/html,x"}', 'url must begin with http:// or https://, not "data:text/html,x"', 'a data: URL is refused'),
    ('{"url": "ftp://example.com/"}', 'url must begin with http:// or https://, not "ftp://example.com/"', 'an ftp: URL is refused'),
    ('{"url": "//example.com/"}', 'url must begin with http:// or https://, not "//example.com/"', 'a URL without a scheme is refused'),
    ('{"url": "https://"}', 'url has no valid host', 'a URL without a host is refused'),
    ('{"url": "https:///path"}', 'url has no valid host', 'a URL with an empty host is refused'),
    ('{"url": "https://example.com:port/"}', 'url has no valid host', 'a URL with a port that is not a number is refused'),
    ('{"url": "https://ann:secret@example.com/"}', 'url must not contain a user name or password', 'a URL with a password is refused'),
    ('{"url": "https://exam ple.com/"}', 'url must not contain spaces, control characters or backslashes', 'a URL with a space is refused'),
    ('{"url": "https://example.com/\n"}', 'url must not contain spaces, control characters or backslashes', 'a URL with a line break is refused'),
    ('{"url": "https://ex%61mple.com/"}', 'the host of url is not in its ASCII form: "ex%61mple.com"', 'a percent-encoded host is refused'),
    ('{"url": "https://bücher.example/"}', 'the host of url is not in its ASCII form: "bücher.example"', 'an internationalized host is refused'),
    ('{"url": "https://ｅxample.com/"}', 'the host of url is not in its ASCII form: "ｅxample.com"', 'a full-width letter in a host is refused'),
    ('{"url": "https://exa\u00admple.com/"}', 'the host of url is not in its ASCII form: "exa­mple.com"', 'a soft hyphen in a host is refused'),
    ('{"url": "https://example.com:65536/"}', 'the port of url is greater than 65535', 'a port above 65535 is refused'),
    ('{"url": "https://example.com:0000000000000065536/"}', 'the port of url is greater than 65535', 'a long port is refused'),
    ('{"url": "https://example..com/"}', 'the host of url has an empty part', 'a host with an empty label is refused'),
    ('{"url": "https://.example.com/"}', 'the host of url has an empty part', 'a host that begins with a dot is refused'),
    ('{"url": "https://./"}', 'the host of url has an empty part', 'the root of all domains is refused'),
    ('{"url": "http://127.1/"}', 'the host of url is not a usual IPv4 address', 'a short IPv4 address is refused'),
    ('{"url": "http://2130706433/"}', 'the host of url is not a usual IPv4 address', 'an IPv4 address as one number is refused'),
    ('{"url": "http://0x7f.0.0.1/"}', 'the host of url is not a usual IPv4 address', 'a hexadecimal IPv4 address is refused'),
    ('{"url": "http://127.0.0.01/"}', 'the host of url is not a usual IPv4 address', 'an octal IPv4 address is refused'),
    ('{"url": "http://example.0x1f/"}', 'the host of url is not a usual IPv4 address', 'a host that ends in a number is refused'),
    ('{"url": "http://256.0.0.1/"}', 'the host of url is not a usual IPv4 address', 'an IPv4 address out of range is refused'),
    ('{"url": "http://[::1::]/"}', 'the host of url is not an IPv6 address', 'a malformed IPv6 address is refused'),
    ('{"url": "http://[127.0.0.1]/"}', 'the host of url is not an IPv6 address', 'an IPv4 address in brackets is refused'),
    ('{"url": "http://[fe80::1%25eth0]/"}', 'the host of url is not in its ASCII form: "[fe80::1%25eth0]"', 'an IPv6 address with a zone is refused'),
    ('{"url": "https://exam(ple.com/"}', 'url has no valid host', 'a host with a parenthesis is refused'),
    ('{"url": "https://example.com\\@evil.example/"}', 'url must not contain spaces, control characters or backslashes', 'a URL with a backslash is refused'),
    (format('{"url": "https://%s.example/"}', repeat('h', 400)), 'the host of url is longer than 300 characters', 'a host of 400 characters is refused'),
    (format('{"url": "https://example.com/%s"}', repeat('u', 3000)), 'url is 3020 characters long, more than 2048', 'a URL of 3000 characters is refused'),
    ('{"url": "https://example.com/", "max_pages": -1}', 'max_pages must be a whole number from 1 to 1000000, not -1', 'a negative number is refused'),
    ('{"url": "https://example.com/", "max_pages": 0}', 'max_pages must be a whole number from 1 to 1000000, not 0', 'a crawl of no pages is refused'),
    ('{"url": "https://example.com/", "max_pages": 1000001}', 'max_pages must be a whole number from 1 to 1000000, not 1000001', 'a number above its maximum is refused'),
    ('{"url": "https://example.com/", "max_pages": 1.5}', 'max_pages must be a whole number from 1 to 1000000, not 1.5', 'a fraction for a whole number is refused'),
    ('{"url": "https://example.com/", "max_pages": 10.0}', 'max_pages must be a whole number from 1 to 1000000, not 10.0', 'a whole number with a decimal point is refused here, not at each checkpoint'),
    ('{"url": "https://example.com/", "max_pages": "10"}', 'max_pages must be a whole number from 1 to 1000000, not "10"', 'a string for a number is refused'),
    ('{"url": "https://example.com/", "max_pages": null}', 'max_pages must be a whole number from 1 to 1000000, not null', 'null for a number is refused'),
    ('{"url": "https://example.com/", "delay_seconds": -0.1}', 'delay_seconds must be a number from 0 to 60, not -0.1', 'a negative delay is refused'),
    ('{"url": "https://example.com/", "obey_robots": "yes"}', 'obey_robots must be true or false, not "yes"', 'a string for a boolean is refused'),
    ('{"url": "https://example.com/", "strategy": "guess"}', 'strategy must be one of page, site, sitemap, list, llms_txt, not "guess"', 'an unknown strategy is refused'),
    ('{"url": "https://example.com/", "strategy": 5}', 'strategy must be a string, not 5', 'a number for a string is refused'),
    ('{"url": "https://example.com/", "fetcher": "null"}', 'there is no fetcher null', 'the fetcher null is refused'),
    ('{"url": "https://example.com/", "include": "x"}', 'include must be a list of strings, not "x"', 'a string for a list is refused'),
    ('{"url": "https://example.com/", "include": [5]}', 'include may contain only strings, not 5', 'a number in a list of strings is refused'),
    ('{"url": "https://example.com/", "include": [null]}', 'include may contain only strings, not null', 'null in a list of strings is refused'),
    ('{"url": "https://example.com/", "include": [""]}', 'the entries of include must have 1 to 500 characters', 'an empty string in a list is refused'),
    ('{"url": "https://example.com/", "user_agent": ""}', 'user_agent must have from 1 to 300 characters, not 0', 'an empty string is refused'),
    ('{"url": "https://example.com/", "user_agent": "x\r\nHost: evil.example"}', 'user_agent must not contain control characters or line breaks', 'a string with a line break is refused'),
    ('{"url": "https://example.com/", "user_agent": "x\u0001"}', 'user_agent must not contain control characters or line breaks', 'a string with a control character is refused'),
    ('{"url": "https://example.com/", "user_agent": "x\u0085"}', 'user_agent must not contain control characters or line breaks', 'a string with a control character beyond ASCII is refused'),
    ('{"url": "https://example.com/", "user_agent": "x\u2028"}', 'user_agent must not contain control characters or line breaks', 'a string with a line separator is refused'),
    ('{"url": "https://example.com/", "include": ["x\n"]}', 'include must not contain control characters or line breaks', 'a line break in a list of strings is refused'),
    ('{"url": "https://example.com/", "strategy": "list"}', 'strategy list takes urls, not url', 'strategy list with url is refused'),
    ('{"strategy": "list"}', 'strategy list needs urls', 'strategy list without URLs is refused'),
    ('{"strategy": "list", "urls": []}', 'urls must have from 1 to 1000 entries, not 0', 'an empty list of URLs is refused'),
    ('{"strategy": "list", "urls": ["https://example.com/", "javascript:alert(1)"]}', 'urls must begin with http:// or https://, not "javascript:alert(1)"', 'a javascript: URL in a list is refused'),
    ('{"strategy": "list", "urls": ["https://example.com/", "https://bücher.example/"]}', 'the host of urls is not in its ASCII form: "bücher.example"', 'an internationalized host in a list is refused'),
    ('{"strategy": "list", "urls": ["https://example.com/", 5]}', 'urls may contain only strings, not 5', 'a number in a list of URLs is refused'),
    ('{"strategy": "list", "urls": "https://example.com/"}', 'urls must be a list of URLs, not "https://example.com/"', 'a string for a list of URLs is refused'),
    ('{"url": "https://example.com/", "policy": {}}', 'unknown key "policy" in the payload', 'no caller sets the policy of a job'),
    ('{"url": "https://example.com/", "urls": ["https://example.com/"]}', 'urls can only be used with strategy list', 'urls without strategy list is refused')
) as bad (payload, message, claim);
select is(
  pg_temp.hint($$'{"url": "https://example.com/", "fetcher": "null"}'$$),
  'Use auto, http, browser, or the name of a plugin.',
  'the hint names the fetchers'
);
select is(
  pg_temp.hint($$'{"url": "https://bücher.example/"}'$$),
  'Send the host in punycode, such as xn--bcher-kva.example: in JavaScript, new URL(url).href has it.',
  'the hint says how to write an internationalized host'
);
select ok(
  pg_temp.hint($$'{"url": "https://example.com/", "colour": 1}'$$) ~ '^Options are concurrency, .*, wait_seconds[.]$',
  'the hint lists the options'
);
select throws_like(
  $sql$ select pg_temp.enqueue($$jsonb_build_object('url', 'https://example.com/', 'user_agent', repeat('x', 10000000))$$) $sql$,
  'the payload has % bytes, more than 65536',
  'a payload of ten megabytes is refused'
);
select throws_ok(
  $sql$ select pg_temp.enqueue($$jsonb_build_object('url', 'https://example.com/', 'user_agent', repeat('x', 10000000))$$) $sql$,
  'PT413',
  null,
  'a payload of ten megabytes is refused as too large'
);

-- Bad input: the other parameters

select throws_ok(
  format('select pg_temp.enqueue(%L)', $$'{"url": "https://example.com/"}', $$ || bad.argument),
  bad.code,
  bad.message,
  bad.claim
)
from (
  values
    ($$p_kind => ''$$, 'PT422', 'unknown kind ""', 'an empty kind is refused'),
    ($$p_kind => repeat('k', 10000000)$$, 'PT422', format('unknown kind "%s"', repeat('k', 60)), 'a kind of ten megabytes is refused, and the message is short'),
    ($$p_priority => 101$$, 'PT422', 'priority must be from -100 to 100, not 101', 'a priority above 100 is refused'),
    ($$p_priority => -101$$, 'PT422', 'priority must be from -100 to 100, not -101', 'a priority below -100 is refused'),
    ($$p_priority => 1000000$$, 'PT422', 'priority must be from -100 to 100, not 1000000', 'a huge priority is refused'),
    ($$p_source_id => ''$$, 'PT422', 'source_id must be a string of 1 to 500 characters', 'an empty source is refused'),
    ($$p_source_id => repeat('s', 10000000)$$, 'PT422', 'source_id must be a string of 1 to 500 characters', 'a source of ten megabytes is refused'),
    ($$p_idempotency_key => ''$$, 'PT422', 'idempotency_key must be a string of 1 to 200 characters', 'an empty idempotency key is refused'),
    ($$p_idempotency_key => repeat('k', 10000000)$$, 'PT422', 'idempotency_key must be a string of 1 to 200 characters', 'an idempotency key of ten megabytes is refused'),
    ($$p_run_after => now() + interval '2 years'$$, 'PT422', 'run_after must be within a year', 'a job scheduled in two years is refused'),
    ($$p_run_after => 'infinity'$$, 'PT422', 'run_after must be a time such as 2026-12-31T08:00:00Z, not "infinity"', 'a job scheduled at infinity is refused'),
    ($$p_user_id => tests.user_id('bob')$$, 'PT403', 'only the service may act for another user', 'a user cannot enqueue for another')
) as bad (argument, code, message, claim);
select throws_ok(
  $$ select tests.run_as('authenticated', null, 'select * from public.enqueue_crawl_job(''{"url": "https://example.com/"}'')') $$,
  'PT401',
  'the caller is not signed in',
  'a token without a user enqueues nothing'
);
select throws_ok(
  $sql$ select tests.run_as('authenticated', tests.user_id('gone'), $$select * from public.enqueue_crawl_job('{"url": "https://example.com/"}')$$) $sql$,
  'PT401',
  'the account of the caller has been deleted',
  'the token of a deleted account enqueues nothing'
);
select is(tests.fingerprint(), tests.remembered(), 'bad input changed no row');

-- What the operator lets users choose

-- The payload of a job that is enqueued with one setting changed.
create function pg_temp.enqueue_with(
  p_setting text,
  p_value text,
  p_payload jsonb,
  p_kind text default 'crawl',
  p_role text default 'authenticated'
)
  returns jsonb
  language plpgsql
as $$
declare
  v_before text;
  v_payload jsonb;
begin
  execute format('select %I::text from public.crawl_settings', p_setting) into v_before;
  execute format('update public.crawl_settings set %I = %L where id', p_setting, p_value);
  v_payload := tests.run_as(
    p_role,
    case p_role when 'authenticated' then tests.user_id('ann') end,
    format('select payload from public.enqueue_crawl_job(%L, %L)', p_payload, p_kind)
  );
  execute format('update public.crawl_settings set %I = %L where id', p_setting, v_before);
  return v_payload;
end
$$;

create temporary table rules (
  setting text,
  value text,
  option text,
  refused jsonb,
  accepted jsonb,
  usual jsonb,
  message text
) on commit drop;
insert into rules
values
  ('max_user_concurrency', '4', 'concurrency', '5', '4', '4', 'concurrency must be at most 4 (crawl_settings.max_user_concurrency), not 5'),
  ('min_user_delay_seconds', '1.5', 'delay_seconds', '1.25', '1.5', '1.5', 'delay_seconds must be at least 1.5 (crawl_settings.min_user_delay_seconds), not 1.25'),
  ('max_user_pages', '500', 'max_pages', '501', '500', '500', 'max_pages must be at most 500 (crawl_settings.max_user_pages), not 501'),
  ('max_user_page_bytes', '2048', 'max_page_bytes', '2049', '1024', '2048', 'max_page_bytes must be at most 2048 (crawl_settings.max_user_page_bytes), not 2049'),
  ('max_user_seconds', '60', 'max_seconds', '3600', '59', '60', 'max_seconds must be at most 60 (crawl_settings.max_user_seconds), not 3600'),
  ('user_fetchers', '{browser}', 'fetcher', '"http"', '"browser"', '"browser"', 'fetcher "http" is not allowed (crawl_settings.user_fetchers)'),
  ('user_fetchers', '{browser,http}', 'fetcher', '"generated"', '"browser"', '"browser"', 'fetcher "generated" is not allowed (crawl_settings.user_fetchers)'),
  ('user_agents', '{ours/1.0}', 'user_agent', '"ours/2.0"', '"ours/1.0"', null, 'user_agent "ours/2.0" is not allowed (crawl_settings.user_agents)'),
  ('users_may_ignore_robots', 'false', 'obey_robots', 'false', 'true', 'true', 'obey_robots false is not allowed (crawl_settings.users_may_ignore_robots)');

select throws_ok(
  format(
    'select pg_temp.enqueue_with(%L, %L, %L, %L)',
    rules.setting,
    rules.value,
    jsonb_build_object('url', 'https://example.com/', rules.option, rules.refused),
    kind
  ),
  'PT403',
  rules.message,
  format('%s limits what users ask for in jobs of kind %s: %s', rules.setting, kind, rules.value)
)
from rules
cross join unnest('{crawl,screenshot}'::text[]) as kind;
select is(
  pg_temp.enqueue_with(rules.setting, rules.value, jsonb_build_object('url', 'https://example.com/', rules.option, rules.accepted)) -> rules.option,
  rules.accepted,
  format('%s of %s allows %s', rules.setting, rules.value, rules.accepted)
)
from rules;
select is(
  pg_temp.enqueue_with(rules.setting, rules.value, '{"url": "https://example.com/"}') -> rules.option,
  rules.usual,
  format('with %s of %s, the default of %s is within it', rules.setting, rules.value, rules.option)
)
from rules;
select is(
  pg_temp.enqueue_with(rules.setting, rules.value, jsonb_build_object('url', 'https://example.com/', rules.option, rules.refused), p_role => 'service_role') -> rules.option,
  rules.refused,
  format('%s does not limit the service', rules.setting)
)
from rules;
select is(
  pg_temp.enqueue_with('max_user_pages', '5000', '{}', 'screenshot'),
  '{"max_pages": 5000}',
  'a plugin''s job, which has no limit of pages by default, gets that of the operator'
);
select is(
  pg_temp.enqueue_with('max_user_concurrency', '16', '{}', 'screenshot'),
  '{}',
  'a limit above the usual value adds nothing to the job of a plugin'
);
select throws_ok(
  $$ select pg_temp.enqueue_with('max_user_seconds', '60', '{"max_seconds": "604800"}', 'screenshot') $$,
  'PT422',
  'max_seconds must be a whole number from 1 to 604800, not "604800"',
  'a plugin''s job cannot evade a limit with a value of another type'
);
select throws_ok(
  $$ select pg_temp.enqueue_with('user_agents', '{}', '{"url": "https://example.com/", "user_agent": "x"}') $$,
  'PT403',
  'user_agent "x" is not allowed (crawl_settings.user_agents)',
  'an empty list allows no user agent but that of the worker'
);

-- Hosts that users may crawl

select throws_ok(
  format('select pg_temp.enqueue_with(%L, %L, %L, %L)', host.setting, host.value, host.payload, host.kind),
  'PT403',
  format('crawls of %s are not allowed (crawl_settings.%s)', host.named, host.setting),
  host.claim
)
from (
  values
    ('denied_user_hosts', '{example.com}', '{"url": "https://example.com/"}', 'crawl', 'example.com', 'a denied host is refused'),
    ('denied_user_hosts', '{example.com}', '{"url": "https://www.Example.com:8443/"}', 'crawl', 'www.example.com:8443', 'so are the hosts below it, on every port'),
    ('denied_user_hosts', '{other.example,.Example.COM.}', '{"url": "https://example.com/"}', 'crawl', 'example.com', 'so is a host that the operator spells in another way'),
    ('denied_user_hosts', '{*.example.com}', '{"url": "https://a.example.com/"}', 'crawl', 'a.example.com', 'so is one with a star'),
    ('denied_user_hosts', '{https://example.com/}', '{"url": "https://example.com/"}', 'crawl', 'example.com', 'so is one that was copied from the address bar'),
    ('denied_user_hosts', '{2001:DB8::0:1}', '{"url": "https://[2001:db8::1]/"}', 'crawl', '[2001:db8::1]', 'so is an IPv6 address'),
    ('denied_user_hosts', '{192.0.2.1}', '{"url": "https://192.0.2.1/"}', 'crawl', '192.0.2.1', 'so is an IPv4 address'),
    ('denied_user_hosts', '{b.example}', '{"strategy": "list", "urls": ["https://a.example/", "https://b.example/"]}', 'crawl', 'b.example', 'every URL of a list counts'),
    ('denied_user_hosts', '{example.com}', '{"url": "https://example.com/"}', 'screenshot', 'example.com', 'the URL of a plugin''s job counts'),
    ('allowed_user_hosts', '{example.com}', '{"url": "https://example.org/"}', 'crawl', 'example.org', 'a host that is not allowed is refused'),
    ('allowed_user_hosts', '{example.com}', '{"url": "https://badexample.com/"}', 'crawl', 'badexample.com', 'the end of a name is not a host above it'),
    ('allowed_user_hosts', '{example.com}', '{"strategy": "list", "urls": ["https://example.com/", "https://b.example/"]}', 'crawl', 'b.example', 'every URL of a list must be allowed'),
    ('allowed_user_hosts', '{}', '{"url": "https://example.com/"}', 'crawl', 'example.com', 'an empty list allows no host')
) as host (setting, value, payload, kind, named, claim);
select is(
  pg_temp.enqueue_with(host.setting, host.value, host.payload::jsonb, host.kind, host.role) -> 'policy',
  host.policy::jsonb,
  host.claim
)
from (
  values
    ('denied_user_hosts', '{Example.com}', '{"url": "https://badexample.com/"}', 'crawl', 'authenticated', '{"deny_hosts": ["example.com"]}', 'the crawler gets the denied hosts'),
    ('allowed_user_hosts', '{Example.com}', '{"url": "https://www.example.com/"}', 'crawl', 'authenticated', '{"allow_hosts": ["example.com"], "deny_hosts": []}', 'the crawler gets the allowed hosts'),
    ('allowed_user_hosts', '{example.com}', '{"width": 800}', 'screenshot', 'authenticated', '{"allow_hosts": ["example.com"], "deny_hosts": []}', 'a plugin''s job without a URL gets them, too'),
    ('allowed_user_hosts', '{example.com}', '{"url": "https://example.org/"}', 'crawl', 'service_role', null, 'the service may crawl every host'),
    ('max_user_pages', '10', '{"url": "https://example.org/"}', 'crawl', 'authenticated', null, 'without lists of hosts there is no policy')
) as host (setting, value, payload, kind, role, policy, claim);
select throws_ok(
  format('update public.crawl_settings set denied_user_hosts = array[%L] where id', wrong.entry),
  'PT422',
  format('denied_user_hosts must contain hosts, not %s', to_json(wrong.entry)),
  format('the operator cannot deny %s, which would deny nothing', to_json(wrong.entry))
)
from unnest(array['bücher.example', 'example com', '', '*', '10.0.0.0/8', '127.1']) as wrong (entry);

-- Who may call it

select function_privs_are('public', 'enqueue_crawl_job', array['jsonb', 'text', 'integer', 'text', 'text', 'timestamptz', 'uuid'], 'authenticated', array['EXECUTE'], 'users may enqueue');
select function_privs_are('public', 'enqueue_crawl_job', array['jsonb', 'text', 'integer', 'text', 'text', 'timestamptz', 'uuid'], 'service_role', array['EXECUTE'], 'the service may enqueue');
select function_privs_are('public', 'enqueue_crawl_job', array['jsonb', 'text', 'integer', 'text', 'text', 'timestamptz', 'uuid'], 'crawl_worker', '{}'::text[], 'workers with the limited key may not enqueue');
select function_privs_are('public', 'enqueue_crawl_job', array['jsonb', 'text', 'integer', 'text', 'text', 'timestamptz', 'uuid'], 'anon', '{}'::text[], 'anonymous callers may not enqueue');
select throws_ok(
  $$ select tests.as_worker('select * from public.enqueue_crawl_job(''{"url": "https://example.com/"}'')') $$,
  '42501',
  'permission denied for function enqueue_crawl_job',
  'a worker with the limited key that tries to enqueue is refused'
);
select throws_ok(
  $$ select tests.as_anon('select * from public.enqueue_crawl_job(''{"url": "https://example.com/"}'')') $$,
  '42501',
  'permission denied for function enqueue_crawl_job',
  'an anonymous caller who tries to enqueue is refused'
);

select * from finish();
rollback;

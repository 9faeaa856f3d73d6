-- The options of each kind of job, as rows, and the functions that check payloads against
-- them. An error is one sentence. A test compares docs/reference/options.md with this table.

create table silkline.payload_options (
  kind text not null,
  name text not null,
  type text not null,
  minimum numeric,
  maximum numeric,
  choices text[],
  default_value jsonb,
  description text not null,
  primary key (kind, name),
  constraint payload_options_type_is_known
    check (type in ('integer', 'number', 'boolean', 'text', 'url', 'texts', 'urls'))
);
alter table silkline.payload_options enable row level security;

comment on table silkline.payload_options is
  'The keys of a payload, per kind of job: type, bounds, default, meaning.';
comment on column silkline.payload_options.maximum is
  'The largest value of a number, length of a string or URL, or number of entries in a list.';

create policy "Only the service reads options"
  on silkline.payload_options
  for select
  to service_role
  using ((select auth.role()) = 'service_role');

revoke all on silkline.payload_options from anon, authenticated, service_role;
grant select on silkline.payload_options to service_role;

insert into silkline.payload_options
  (kind, name, type, minimum, maximum, choices, default_value, description)
values
  ('crawl', 'url', 'url', 1, 2048, null, null,
    'Where the crawl starts.'),
  ('crawl', 'urls', 'urls', 1, 1000, null, null,
    'The pages to fetch with strategy "list", instead of url.'),
  ('crawl', 'strategy', 'text', null, null, '{page,site,sitemap,list,llms_txt}', '"site"',
    'How URLs are found: one page only, by links, by sitemap, from urls, by llms.txt.'),
  ('crawl', 'max_pages', 'integer', 1, 1000000, null, '1000',
    'Fetch at most this many pages; redirects and sitemaps do not count.'),
  ('crawl', 'max_depth', 'integer', 0, 100, null, '20',
    'Follow links at most this many steps from the start.'),
  ('crawl', 'max_seconds', 'integer', 1, 604800, null, '3600',
    'Maximum running time; paused time does not count.'),
  ('crawl', 'max_page_bytes', 'integer', 1024, 104857600, null, '10485760',
    'Skip responses larger than this after decompression.'),
  ('crawl', 'scope', 'text', null, null, '{host,domain,prefix}', '"host"',
    'Which links to follow: same host, same registrable domain, or below the start URL.'),
  ('crawl', 'include', 'texts', 0, 100, null, '[]',
    'Fetch only URLs that match one of these regular expressions.'),
  ('crawl', 'exclude', 'texts', 0, 100, null, '[]',
    'Fetch no URL that matches one of these regular expressions.'),
  ('crawl', 'fetcher', 'text', 1, 40, null, '"http"',
    'What fetches pages: http, browser, or the name of a plugin.'),
  ('crawl', 'extractor', 'text', 1, 40, null, '"default"',
    'What turns HTML into Markdown: default, or the name of a plugin.'),
  ('crawl', 'markdown', 'text', null, null, '{main,full,none}', '"main"',
    'Markdown of the main content, of the full page, or none.'),
  ('crawl', 'obey_robots', 'boolean', null, null, null, 'true',
    'Obey robots.txt.'),
  ('crawl', 'follow_nofollow', 'boolean', null, null, null, 'false',
    'Follow links marked nofollow.'),
  ('crawl', 'keep_noindex', 'boolean', null, null, null, 'false',
    'Keep pages marked noindex.'),
  ('crawl', 'only_changes', 'boolean', null, null, null, 'true',
    'Send conditional requests for pages stored earlier.'),
  ('crawl', 'concurrency', 'integer', 1, 64, null, '8',
    'Maximum number of open requests.'),
  ('crawl', 'delay_seconds', 'number', 0, 60, null, '0',
    'Minimum pause between two requests to one host.'),
  ('crawl', 'timeout_seconds', 'number', 1, 120, null, '20',
    'Timeout of one request.'),
  ('crawl', 'tries', 'integer', 1, 10, null, '3',
    'Attempts to fetch a URL before it counts as failed.'),
  ('crawl', 'retry_seconds', 'number', 0, 3600, null, '10',
    'Pause before the first retry of a URL; doubled for each further retry.'),
  ('crawl', 'user_agent', 'text', 1, 300, null, null,
    'Sent with each request, and matched against robots.txt.'),
  ('crawl', 'max_retries', 'integer', 0, 20, null, null,
    'Retries of the job after it broke; default: crawl_settings.default_max_retries.');

-- What is wrong with a URL, or null. The crawler does the full WHATWG parse; this refuses what
-- could never be fetched or must never be stored.
create function silkline.url_error(p_name text, p_url text)
  returns text
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  -- Nearly every URL is valid, and then this is the whole cost.
  if p_url ~* ('^https?://[^][[:space:][:cntrl:]\\/?#@:]+(:[0-9]{1,5})?'
      || '([/?#][^[:space:][:cntrl:]\\]*)?$')
    and length(p_url) <= 2048
    and length(split_part(p_url, '/', 3)) <= 300
  then
    return null;
  end if;

  return case
    when p_url is null then format('%s must be a URL, not null', p_name)
    when length(p_url) > 2048
      then format('%s is %s characters long, more than 2048', p_name, length(p_url))
    when p_url !~* '^https?://'
      then format(
        '%s must begin with http:// or https://, not %s',
        p_name,
        quote_ident(left(p_url, 40))
      )
    when p_url ~ '[[:space:][:cntrl:]\\]'
      then format('%s must not contain spaces, control characters or backslashes', p_name)
    when p_url ~ '^[^/]*//[^/?#]*@'
      then format('%s must not contain a user name or password', p_name)
    when p_url !~ '^[^/]*//(\[[0-9A-Fa-f:.]+\]|[^][/?#:@]+)(:[0-9]{1,5})?([/?#]|$)'
      then format('%s has no valid host', p_name)
    when length(silkline.url_host(p_url)) > 300
      then format('the host of %s is longer than 300 characters', p_name)
  end;
end
$$;

comment on function silkline.url_error(text, text) is
  'One sentence about what is wrong with a URL, or null.';

revoke execute on function silkline.url_error(text, text) from public, anon, authenticated;

-- The host of a URL, with its port unless that is the scheme's default.
create function silkline.url_host(p_url text)
  returns text
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return regexp_replace(
    regexp_replace(
      lower(substring(p_url from '^[^/]*//([^/?#]+)')),
      case when p_url ~* '^https' then ':443$' else ':80$' end,
      ''
    ),
    -- A trailing dot names the same host.
    '[.](:[0-9]+)?$',
    '\1'
  );
end
$$;

comment on function silkline.url_host(text) is
  'Host and port of a URL, for the limit of jobs per host.';

revoke execute on function silkline.url_host(text) from public, anon, authenticated;

-- The first error in the payloads of a list of jobs, each {kind, payload}; no row if all are
-- valid. One statement for all of them: 10,000 payloads take a fifth of a second. Plugins check
-- their own keys; only the keys that are read for every kind are checked here.
create function silkline.find_payload_error(p_jobs jsonb)
  returns table (nth bigint, error text, hint text)
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return query
    with job as (
      select
        listed.nth,
        listed.value -> 'payload' as payload,
        coalesce(listed.value ->> 'kind', 'crawl') as kind,
        coalesce(listed.value ->> 'kind', 'crawl') <> 'crawl' as is_plugin
      from jsonb_array_elements(p_jobs) with ordinality as listed (value, nth)
    ),
    option_error as (
      select
        job.nth,
        problem.error,
        case
          when option.name is null then format('Options are %s.', known.names)
          when given.text = 'null' and option.name = 'fetcher'
            then 'Use http, browser, or the name of a plugin.'
        end as hint
      from job
      cross join (
        select string_agg(option.name, ', ' order by option.name) as names
        from silkline.payload_options as option
        where option.kind = 'crawl'
      ) as known
      cross join lateral jsonb_each(
        case jsonb_typeof(job.payload) when 'object' then job.payload end
      ) as entry
      left join silkline.payload_options as option
        on option.kind = 'crawl'
        and option.name = entry.key
      cross join lateral (
        select
          jsonb_typeof(entry.value) as type,
          entry.value #>> '{}' as text,
          left(entry.value::text, 60) as said
      ) as given
      cross join lateral (
        select case
          when job.is_plugin and entry.key not in (
            'url',
            'max_pages',
            'max_retries',
            'user_agent'
          )
            then null
          when option.name is null
            then format('unknown key %s in the payload', to_json(left(entry.key, 60)))

          when option.type in ('integer', 'number') then case
            when case
              when given.type <> 'number' then true
              when option.type = 'integer' and given.text !~ '^-?[0-9]+$' then true
              else given.text::numeric not between option.minimum and option.maximum
            end
              then format(
                '%s must be a %s from %s to %s, not %s',
                option.name,
                case option.type when 'integer' then 'whole number' else 'number' end,
                option.minimum,
                option.maximum,
                given.said
              )
          end

          when option.type = 'boolean' then case
            when given.type <> 'boolean'
              then format('%s must be true or false, not %s', option.name, given.said)
          end

          when option.type in ('texts', 'urls') then case
            when given.type <> 'array'
              then format(
                '%s must be a list of %s, not %s',
                option.name,
                case option.type when 'urls' then 'URLs' else 'strings' end,
                given.said
              )
            when jsonb_array_length(entry.value) not between option.minimum and option.maximum
              then format(
                '%s must have from %s to %s entries, not %s',
                option.name,
                option.minimum,
                option.maximum,
                jsonb_array_length(entry.value)
              )
            else silkline.list_error(option.name, option.type, entry.value)
          end

          when given.type <> 'string'
            then format(
              '%s must be a %s, not %s',
              option.name,
              case option.type when 'url' then 'URL' else 'string' end,
              given.said
            )
          when option.type = 'url' then silkline.url_error(option.name, given.text)
          when option.choices is not null then case
            when given.text <> all (option.choices)
              then format(
                '%s must be one of %s, not %s',
                option.name,
                array_to_string(option.choices, ', '),
                given.said
              )
          end
          when given.text ~ '[[:cntrl:]\u0080-\u009f\u2028\u2029]'
            then format('%s must not contain control characters or line breaks', option.name)
          -- It reads like no fetcher at all, so not even a plugin may have this name.
          when option.name = 'fetcher' and given.text = 'null' then 'there is no fetcher null'
          when length(given.text) not between option.minimum and option.maximum
            then format(
              '%s must have from %s to %s characters, not %s',
              option.name,
              option.minimum,
              option.maximum,
              length(given.text)
            )
        end as error
      ) as problem
    ),
    payload_error as (
      select
        job.nth,
        case
          when jsonb_typeof(job.payload) is distinct from 'object'
            then 'the payload must be a JSON object'
          when job.is_plugin then null
          when job.payload ->> 'strategy' = 'list' then case
            when job.payload ? 'url' then 'strategy list takes urls, not url'
            when not job.payload ? 'urls' then 'strategy list needs urls'
          end
          when job.payload ? 'urls' then 'urls can only be used with strategy list'
          when not job.payload ? 'url' then 'the payload needs a url'
        end as error,
        null::text as hint
      from job
    )
    select found.nth, found.error, found.hint
    from (
      select 1 as rank, option_error.* from option_error
      union all
      select 2 as rank, payload_error.* from payload_error
    ) as found
    where found.error is not null
    order by found.nth, found.rank, found.error
    limit 1;
end
$$;

comment on function silkline.find_payload_error(jsonb) is
  'The first error in the payloads of a list of jobs, as one sentence.';

revoke execute on function silkline.find_payload_error(jsonb) from public, anon, authenticated;

-- What is wrong with the entries of a list, or null.
create function silkline.list_error(p_name text, p_type text, p_list jsonb)
  returns text
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select problem.error
    from jsonb_array_elements(p_list) as entry
    cross join lateral (
      select case
        when jsonb_typeof(entry) <> 'string'
          then format('%s may contain only strings, not %s', p_name, left(entry::text, 60))
        when p_type = 'urls'
          then silkline.url_error(p_name, entry #>> '{}')
        when entry #>> '{}' ~ '[[:cntrl:]\u0080-\u009f\u2028\u2029]'
          then format('%s must not contain control characters or line breaks', p_name)
        when length(entry #>> '{}') not between 1 and 500
          then format('the entries of %s must have 1 to 500 characters', p_name)
      end as error
    ) as problem
    where problem.error is not null
    limit 1
  );
end
$$;

comment on function silkline.list_error(text, text, jsonb) is
  'One sentence about what is wrong with the entries of a list, or null.';

revoke execute on function silkline.list_error(text, text, jsonb)
  from public, anon, authenticated;

-- The options that a job gets unless its payload sets them.
create function silkline.payload_defaults(p_kind text)
  returns jsonb
  language sql
  stable
  security invoker
  set search_path = ''
as $$
  select coalesce(jsonb_object_agg(option.name, option.default_value), '{}')
  from silkline.payload_options as option
  where option.kind = p_kind
    and option.default_value is not null;
$$;

comment on function silkline.payload_defaults(text) is
  'The default options of a kind of job.';

revoke execute on function silkline.payload_defaults(text) from public, anon, authenticated;

-- The options of each kind of job, the hosts of its URLs, and what the operator lets users choose.
--
-- Whatever is sent, a message has at most 300 characters, and no number or list is written out
-- before its size is known: a number of a few bytes, such as 1e131071, may have 100,000 digits. A
-- test compares docs/reference/options.md with the table of options.

-- Why a job is refused.
create type silkline.refusal as (
  nth integer,  -- of the jobs in the call
  code text,
  message text,
  hint text
);

-- How a message names a value that was sent.
create function silkline.describe(p_value jsonb)
  returns text
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return case jsonb_typeof(p_value)
    when 'string' then to_json(left(p_value #>> '{}', 60))::text
    when 'object' then 'an object'
    when 'array' then 'a list'
    when 'number' then case
      when abs(p_value::numeric) > 1e15 or scale(p_value::numeric) > 15
        then 'a number of more than 15 digits'
      else p_value::text
    end
    else p_value::text
  end;
end
$$;

comment on function silkline.describe(jsonb) is
  'A value for a message: short, whatever it is.';

revoke execute on function silkline.describe(jsonb) from public, anon, authenticated;

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
  ('crawl', 'fetcher', 'text', 1, 40, null, '"auto"',
    'What fetches pages: http, browser, auto (http, and a browser where scripts draw the page), or '
    'the name of a plugin.'),
  ('crawl', 'wait_for', 'text', 1, 500, null, null,
    'A CSS selector that a rendered page must match before it is read, within timeout_seconds.'),
  ('crawl', 'wait_seconds', 'number', 0, 30, null, '0',
    'How long a rendered page is left to its scripts before it is read.'),
  ('crawl', 'scroll', 'boolean', null, null, null, 'false',
    'Scroll a rendered page to its end while it grows, before it is read.'),
  ('crawl', 'extractor', 'text', 1, 40, null, '"default"',
    'What turns HTML into Markdown: default, or the name of a plugin.'),
  ('crawl', 'markdown', 'text', null, null, '{main,full,none}', '"main"',
    'Markdown of the main content, of the full page, or none.'),
  ('crawl', 'links', 'text', null, null, '{inline,none,references}', '"inline"',
    'Where Markdown has the URLs of links: in the text, nowhere, or listed at the end.'),
  ('crawl', 'max_markdown_chars', 'integer', 1000, 10000000, null, '5000000',
    'Cut longer Markdown off at this many characters, with the warning cut.'),
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

-- URLs and hosts

-- One host has one spelling, so that jobs on it can be counted. Nearly every URL has it already:
-- this pattern proves it, and the host is the part between the second and the third slash. It holds
-- for URLs of up to 300 characters. Everything else is read by silkline.read_url.
create function silkline.plain_url()
  returns text
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return '^https?://(?:[a-z0-9_-]+[.])*[a-z][a-z0-9_-]*(?:/[!-\[\]-~]*)?$';
end
$$;

comment on function silkline.plain_url() is
  'A pattern of URLs whose host is spelled in its only form.';

revoke execute on function silkline.plain_url() from public, anon, authenticated;

-- The host of a URL in its only spelling, or what is wrong with the URL.
--
-- The crawler does the full WHATWG parse; this refuses what could never be fetched or must never
-- be stored, and every spelling of a host that Postgres cannot translate: an internationalized name
-- has many spellings in Unicode, and one in ASCII.
create function silkline.read_url(
  p_name text,
  p_url text,
  out host text,
  out error text,
  out hint text
)
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
declare
  v_site constant text := substring(left(p_url, 2048) from '^[^/]*//([^/?#]*)');
  v_name text := lower(regexp_replace(v_site, ':[0-9]*$', '') collate "C");
  v_port text := ltrim(substring(v_site from ':([0-9]*)$'), '0');
begin
  error := case
    when length(p_url) > 2048
      then format('%s is %s characters long, more than 2048', p_name, length(p_url))
    when p_url !~ '^[Hh][Tt][Tt][Pp][Ss]?://'
      then format(
        '%s must begin with http:// or https://, not %s',
        p_name,
        to_json(left(p_url, 40))
      )
    when p_url ~ '[[:space:][:cntrl:]\u0080-\u009f\u2028\u2029\\]'
      then format('%s must not contain spaces, control characters or backslashes', p_name)
    when v_site ~ '@'
      then format('%s must not contain a user name or password', p_name)
    when v_site ~ '[^!-$&-~]'
      then format('the host of %s is not in its ASCII form: %s', p_name, to_json(left(v_site, 60)))
    when v_name !~ '^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)$' or v_site ~ ':$'
      then format('%s has no valid host', p_name)
    when length(v_name) > 300
      then format('the host of %s is longer than 300 characters', p_name)
    when length(v_port) > 5 or lpad(v_port, 5, '0') > '65535' collate "C"
      then format('the port of %s is greater than 65535', p_name)
  end;

  if error is not null then
    if v_site ~ '[^!-$&-~]' then
      hint := 'Send the host in punycode, such as xn--bcher-kva.example: '
        || 'in JavaScript, new URL(url).href has it.';
    end if;
    return;
  end if;

  if v_name like '[%' then
    begin
      v_name := format('[%s]', host(btrim(v_name, '[]')::inet));
    exception
      when invalid_text_representation then
        v_name := null;
    end;
    if v_name not like '[%:%]' or v_name is null then
      error := format('the host of %s is not an IPv6 address', p_name);
      return;
    end if;
  else
    -- A trailing dot names the same host.
    v_name := regexp_replace(v_name, '[.]$', '');
    if v_name ~ '(^|[.])([.]|$)' then
      error := format('the host of %s has an empty part', p_name);
      return;
    end if;
    -- Browsers read these as IPv4 addresses, in many spellings: 127.1, 0x7f.1, 2130706433.
    if v_name ~ '(^|[.])([0-9]+|0x[0-9a-f]*)$'
      and v_name !~ ('^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])[.]){3}'
        || '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$')
    then
      error := format('the host of %s is not a usual IPv4 address', p_name);
      hint := 'Write the address as four numbers, such as 192.0.2.1.';
      return;
    end if;
  end if;

  host := v_name || case
    when v_port is null then ''
    when v_port = case when p_url ~ '^.{4}:' then '80' else '443' end then ''
    when v_port = '' then ':0'
    else ':' || v_port
  end;
end
$$;

comment on function silkline.read_url(text, text) is
  'The canonical host of a URL, or a sentence about what is wrong with the URL.';

revoke execute on function silkline.read_url(text, text) from public, anon, authenticated;

-- The hosts of a payload, or what is wrong with its URLs. A plugin's job may have none.
create function silkline.read_hosts(
  p_kind text,
  p_payload jsonb,
  out hosts text[],
  out error text,
  out hint text
)
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_takes_list constant boolean :=
    p_kind = 'crawl' and p_payload -> 'strategy' is not distinct from '"list"';
  v_name constant text := case when v_takes_list then 'urls' else 'url' end;
  v_plain constant text := silkline.plain_url();
  v_urls jsonb := p_payload -> v_name;
  v_bounds record;
  v_wrong integer;
begin
  if p_kind <> 'crawl' and v_urls is null then
    hosts := '{}';
    return;
  end if;

  select option.minimum, option.maximum
  into v_bounds
  from silkline.payload_options as option
  where option.kind = 'crawl'
    and option.name = v_name;

  error := case
    when v_takes_list and p_payload ? 'url' then 'strategy list takes urls, not url'
    when v_takes_list and v_urls is null then 'strategy list needs urls'
    when p_kind = 'crawl' and not v_takes_list and p_payload ? 'urls'
      then 'urls can only be used with strategy list'
    when v_urls is null then 'the payload needs a url'
    when not v_takes_list and jsonb_typeof(v_urls) <> 'string'
      then format('url must be a URL, not %s', silkline.describe(v_urls))
    when v_takes_list and jsonb_typeof(v_urls) <> 'array'
      then format('urls must be a list of URLs, not %s', silkline.describe(v_urls))
    when v_takes_list
      and jsonb_array_length(v_urls) not between v_bounds.minimum and v_bounds.maximum
      then format(
        'urls must have from %s to %s entries, not %s',
        v_bounds.minimum,
        v_bounds.maximum,
        jsonb_array_length(v_urls)
      )
  end;
  if error is not null then
    return;
  end if;

  if not v_takes_list then
    v_urls := jsonb_build_array(v_urls);
  end if;

  select
    array_agg(distinct listed.host),
    min(listed.nth) filter (where listed.host is null)
  into hosts, v_wrong
  from (
    select
      entry.nth,
      case
        when jsonb_typeof(entry.value) <> 'string' then null
        when length(entry.value #>> '{}') <= 300 and entry.value #>> '{}' ~ v_plain
          then split_part(entry.value #>> '{}', '/', 3)
        else (silkline.read_url(v_name, entry.value #>> '{}')).host
      end as host
    from jsonb_array_elements(v_urls) with ordinality as entry (value, nth)
  ) as listed;

  if v_wrong is not null then
    hosts := null;
    v_urls := v_urls -> (v_wrong - 1);
    if jsonb_typeof(v_urls) = 'string' then
      select wrong.error, wrong.hint
      into error, hint
      from silkline.read_url(v_name, v_urls #>> '{}') as wrong;
    else
      error := format('urls may contain only strings, not %s', silkline.describe(v_urls));
    end if;
  end if;
end
$$;

comment on function silkline.read_hosts(text, jsonb) is
  'The hosts of the URLs of a payload, or a sentence about what is wrong with the URLs.';

revoke execute on function silkline.read_hosts(text, jsonb) from public, anon, authenticated;

-- The host that a job occupies while it runs; null if its URLs are refused. A list of URLs on
-- several hosts occupies none of them, and counts as a host of its owner. A plugin's job without a
-- URL is a host of its own.
create function silkline.job_host(p_kind text, p_payload jsonb, p_owner_id uuid, p_id uuid)
  returns text
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_hosts constant text[] := (silkline.read_hosts(p_kind, p_payload)).hosts;
begin
  return case
    when cardinality(v_hosts) = 0 then p_kind || ':' || p_id
    when cardinality(v_hosts) = 1 then v_hosts[1]
    when cardinality(v_hosts) > 1 then 'list of ' || p_owner_id
  end;
end
$$;

comment on function silkline.job_host(text, jsonb, uuid, uuid) is
  'The host that a job occupies while it runs.';

revoke execute on function silkline.job_host(text, jsonb, uuid, uuid)
  from public, anon, authenticated;

-- What the operator lets users choose

-- What signed-in users may choose, as far as crawl_settings limits it. The service is free.
create function silkline.user_bounds()
  returns table (name text, minimum numeric, maximum numeric, choices jsonb, rule text)
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return query
    select bound.*
    from public.crawl_settings as settings
    cross join lateral (
      values
        ('concurrency', null, settings.max_user_concurrency::numeric, null,
          'max_user_concurrency'),
        ('delay_seconds', settings.min_user_delay_seconds::numeric, null, null,
          'min_user_delay_seconds'),
        ('max_pages', null, settings.max_user_pages, null, 'max_user_pages'),
        ('max_page_bytes', null, settings.max_user_page_bytes, null, 'max_user_page_bytes'),
        ('max_seconds', null, settings.max_user_seconds, null, 'max_user_seconds'),
        ('fetcher', null, null, to_jsonb(settings.user_fetchers), 'user_fetchers'),
        ('user_agent', null, null, to_jsonb(settings.user_agents), 'user_agents'),
        ('obey_robots', null, null,
          case when not settings.users_may_ignore_robots then '[true]'::jsonb end,
          'users_may_ignore_robots')
    ) as bound (name, minimum, maximum, choices, rule)
    where num_nonnulls(bound.minimum, bound.maximum, bound.choices) > 0;
end
$$;

comment on function silkline.user_bounds() is
  'What users may choose, and the setting that says so.';

revoke execute on function silkline.user_bounds() from public, anon, authenticated;

-- The options that a job gets unless its payload sets them.
create function silkline.payload_defaults(p_kind text)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select coalesce(jsonb_object_agg(option.name, option.default_value), '{}')
    from silkline.payload_options as option
    where option.kind = p_kind
      and option.default_value is not null
  );
end
$$;

comment on function silkline.payload_defaults(text) is
  'The default options of a kind of job.';

revoke execute on function silkline.payload_defaults(text) from public, anon, authenticated;

-- The same for a job of a user: within the bounds, and with the hosts that the crawler has to
-- refuse. A plugin's job is crawled with the usual options, too, but without a limit of pages.
create function silkline.user_defaults(p_kind text)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return (
    with bounded as (
      select
        bound.name,
        usual.value as usual_value,
        case
          when bound.maximum is not null
            then to_jsonb(least(usual.value::numeric, bound.maximum))
          when bound.minimum is not null
            then to_jsonb(greatest(usual.value::numeric, bound.minimum))
          when bound.choices @> usual.value or bound.choices = '[]' then usual.value
          else bound.choices -> 0
        end as value
      from silkline.user_bounds() as bound
      join silkline.payload_options as option
        on option.kind = 'crawl'
        and option.name = bound.name
        and option.default_value is not null
      cross join lateral (
        select case
          when p_kind = 'crawl' or bound.name <> 'max_pages' then option.default_value
        end as value
      ) as usual
    )
    select
      silkline.payload_defaults(p_kind)
      || coalesce(
        (
          select jsonb_object_agg(bounded.name, bounded.value)
          from bounded
          where bounded.value is distinct from bounded.usual_value
        ),
        '{}'
      )
      || case
        when settings.allowed_user_hosts is null and settings.denied_user_hosts = '{}' then '{}'
        else jsonb_build_object(
          'policy',
          jsonb_strip_nulls(
            jsonb_build_object(
              'allow_hosts', settings.allowed_user_hosts,
              'deny_hosts', settings.denied_user_hosts
            )
          )
        )
      end
    from public.crawl_settings as settings
  );
end
$$;

comment on function silkline.user_defaults(text) is
  'The default options of a kind of job for users, within what the operator allows.';

revoke execute on function silkline.user_defaults(text) from public, anon, authenticated;

-- Hosts in their only spelling, for a setting. An entry that stands for no host would allow or deny
-- nothing, and nobody would notice.
create function silkline.read_host_list(p_setting text, p_entries text[])
  returns text[]
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
declare
  v_entry text;
  v_host text;
  v_hosts text[] := case when p_entries is not null then '{}'::text[] end;
begin
  foreach v_entry in array coalesce(p_entries, '{}') loop
    v_host := regexp_replace(v_entry, '^(https?://)?([*]?[.])?(.*?)/?$', '\3', 'i');
    v_host := case
      when v_host ~ '[/?#]' then null
      when v_host ~ ':.*:' and v_host not like '[%'
        then (silkline.read_url('', format('http://[%s]', v_host))).host
      else (silkline.read_url('', 'http://' || v_host)).host
    end;
    if v_host is null then
      raise sqlstate 'PT422' using
        message = format('%s must contain hosts, not %s', p_setting, to_json(left(v_entry, 60))),
        hint = 'Write a host such as example.com, in punycode. It includes all hosts below it.';
    end if;
    v_hosts := v_hosts || btrim(regexp_replace(v_host, ':[0-9]+$', ''), '[]');
  end loop;

  return v_hosts;
end
$$;

comment on function silkline.read_host_list(text, text[]) is
  'The canonical hosts of a setting, or PT422.';

revoke execute on function silkline.read_host_list(text, text[]) from public, anon, authenticated;

-- definer because operators may not execute private functions
create function silkline.check_host_settings()
  returns trigger
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
begin
  new.allowed_user_hosts := silkline.read_host_list('allowed_user_hosts', new.allowed_user_hosts);
  new.denied_user_hosts := silkline.read_host_list('denied_user_hosts', new.denied_user_hosts);

  return new;
end
$$;

comment on function silkline.check_host_settings() is
  'Trigger: store the hosts in crawl_settings in their only spelling.';

revoke execute on function silkline.check_host_settings() from public, anon, authenticated;

create trigger tg_crawl_settings_check_hosts
  before insert or update of allowed_user_hosts, denied_user_hosts on public.crawl_settings
  for each row
  execute function silkline.check_host_settings();

-- The setting that keeps users from crawling a host, or null. An entry stands for a host and all
-- hosts below it. The crawler does the same for links and redirects: class HostPolicy.
create function silkline.rule_against_host(p_host text)
  returns text
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_name constant text := '.' || btrim(regexp_replace(p_host, ':[0-9]+$', ''), '[]');
begin
  return (
    select case
      when exists (
        select
        from unnest(settings.denied_user_hosts) as entry
        where right(v_name, length(entry) + 1) = '.' || entry
      )
        then 'denied_user_hosts'
      when settings.allowed_user_hosts is not null
        and not exists (
          select
          from unnest(settings.allowed_user_hosts) as entry
          where right(v_name, length(entry) + 1) = '.' || entry
        )
        then 'allowed_user_hosts'
    end
    from public.crawl_settings as settings
  );
end
$$;

comment on function silkline.rule_against_host(text) is
  'The setting that keeps users from crawling a host, or null.';

revoke execute on function silkline.rule_against_host(text) from public, anon, authenticated;

-- The check of options

-- The options of jobs, without their URLs: jobs of one call usually share them.
create type silkline.option_set as (
  nth integer,  -- the first job that has them
  kind text,
  options jsonb
);

-- The first payload of a plugin's job that would be too long if it were written out.
create function silkline.find_plugin_error(p_sets silkline.option_set[])
  returns silkline.refusal
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
declare
  v_first silkline.refusal;
begin
  if not exists (select from unnest(p_sets) as job where job.kind <> 'crawl') then
    return null;
  end if;

  select job.nth, 'PT422', problem.error, null
  into v_first
  from unnest(p_sets) as job
  cross join lateral (
    select case
      when exists (
        select
        from jsonb_path_query(job.options, '$.** ? (@.type() == "number")') as sent (number)
        where abs(sent.number::numeric) > 1e15
          or case sent.number::numeric
            -- 0e-16383 is written out, too.
            when 0 then scale(sent.number::numeric) > 15
            else abs(sent.number::numeric) < 1e-15
          end
      )
        then 'numbers in a payload must be between 1e-15 and 1e15'
      when jsonb_path_exists(job.options, 'strict $.**{21}')
        then 'a payload must not be nested deeper than 20 levels'
    end as error
  ) as problem
  where job.kind <> 'crawl'
    and problem.error is not null
  order by job.nth
  limit 1;

  return v_first;
end
$$;

comment on function silkline.find_plugin_error(silkline.option_set[]) is
  'The first payload of a plugin''s job with too long numbers or too deep nesting.';

revoke execute on function silkline.find_plugin_error(silkline.option_set[])
  from public, anon, authenticated;

-- The first error in the options of jobs, in one statement for all of them. Plugins check their own
-- options; here only those are checked that are read for every kind, or that the operator bounds.
create function silkline.find_option_error(p_sets silkline.option_set[], p_is_user boolean)
  returns silkline.refusal
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_first silkline.refusal;
  v_plugin_error silkline.refusal;
begin
  select
    checked.nth,
    case when checked.error is null then 'PT403' else 'PT422' end,
    coalesce(checked.error, checked.breach),
    case
      when checked.error is null then 'The operator of the queue sets this limit for users.'
      when checked.is_unknown then format(
        'Options are %s.',
        (
          select string_agg(known.name, ', ' order by known.name)
          from silkline.payload_options as known
          where known.kind = 'crawl'
        )
      )
      when checked.is_fetcher_null then 'Use auto, http, browser, or the name of a plugin.'
    end
  into v_first
  from (
    select
      job.nth,
      option.name is null as is_unknown,
      option.name = 'fetcher' and given.text = 'null' as is_fetcher_null,
      case
        when job.kind <> 'crawl' and entry.key = 'policy'
          then 'policy is set by the queue'
        when job.kind <> 'crawl'
          and bound.name is null
          and entry.key not in ('max_pages', 'max_retries', 'user_agent')
          then null
        when option.name is null
          then format('unknown key %s in the payload', to_json(left(entry.key, 60)))

        when option.type in ('integer', 'number') then case
          when case
            when given.type <> 'number' then true
            when scale(entry.value::numeric) > case option.type when 'integer' then 0 else 15 end
              then true
            else entry.value::numeric not between option.minimum and option.maximum
          end
            then format(
              '%s must be a %s from %s to %s, not %s',
              option.name,
              case option.type when 'integer' then 'whole number' else 'number' end,
              option.minimum,
              option.maximum,
              silkline.describe(entry.value)
            )
        end

        when option.type = 'boolean' then case
          when given.type <> 'boolean'
            then format(
              '%s must be true or false, not %s',
              option.name,
              silkline.describe(entry.value)
            )
        end

        when option.type = 'texts' then case
          when given.type <> 'array'
            then format(
              '%s must be a list of strings, not %s',
              option.name,
              silkline.describe(entry.value)
            )
          when jsonb_array_length(entry.value) not between option.minimum and option.maximum
            then format(
              '%s must have from %s to %s entries, not %s',
              option.name,
              option.minimum,
              option.maximum,
              jsonb_array_length(entry.value)
            )
          else (
            select wrong.error
            from jsonb_array_elements(entry.value) as item
            cross join lateral (
              select case
                when jsonb_typeof(item) <> 'string'
                  then format(
                    '%s may contain only strings, not %s',
                    option.name,
                    silkline.describe(item)
                  )
                when item #>> '{}' ~ '[[:cntrl:]\u0080-\u009f\u2028\u2029]'
                  then format('%s must not contain control characters or line breaks', option.name)
                when length(item #>> '{}') not between 1 and 500
                  then format('the entries of %s must have 1 to 500 characters', option.name)
              end as error
            ) as wrong
            where wrong.error is not null
            limit 1
          )
        end

        when given.type <> 'string'
          then format('%s must be a string, not %s', option.name, silkline.describe(entry.value))
        when option.choices is not null then case
          when given.text <> all (option.choices)
            then format(
              '%s must be one of %s, not %s',
              option.name,
              array_to_string(option.choices, ', '),
              silkline.describe(entry.value)
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
      end as error,
      case
        when bound.maximum is not null and given.type = 'number' then case
          when entry.value::numeric > bound.maximum
            then format(
              '%s must be at most %s (crawl_settings.%s), not %s',
              bound.name,
              bound.maximum,
              bound.rule,
              silkline.describe(entry.value)
            )
        end
        when bound.minimum is not null and given.type = 'number' then case
          when entry.value::numeric < bound.minimum
            then format(
              '%s must be at least %s (crawl_settings.%s), not %s',
              bound.name,
              bound.minimum,
              bound.rule,
              silkline.describe(entry.value)
            )
        end
        when not bound.choices @> entry.value
          then format(
            '%s %s is not allowed (crawl_settings.%s)',
            bound.name,
            silkline.describe(entry.value),
            bound.rule
          )
      end as breach
    from unnest(p_sets) as job
    cross join lateral jsonb_each(job.options) as entry
    left join silkline.payload_options as option
      on option.kind = 'crawl'
      and option.name = entry.key
    left join silkline.user_bounds() as bound
      on bound.name = entry.key
      and p_is_user
    cross join lateral (
      select
        jsonb_typeof(entry.value) as type,
        case jsonb_typeof(entry.value) when 'string' then entry.value #>> '{}' end as text
    ) as given
    -- Keeps the planner from copying these expressions to each use.
    offset 0
  ) as checked
  where checked.error is not null
    or checked.breach is not null
  order by checked.nth, coalesce(checked.error, checked.breach)
  limit 1;

  v_plugin_error := silkline.find_plugin_error(p_sets);
  if v_plugin_error.nth < v_first.nth or v_first.nth is null then
    return v_plugin_error;
  end if;

  return v_first;
end
$$;

comment on function silkline.find_option_error(silkline.option_set[], boolean) is
  'The first error in the options of jobs, as one sentence.';

revoke execute on function silkline.find_option_error(silkline.option_set[], boolean)
  from public, anon, authenticated;

-- What a job may ask for: the options of each kind, as rows, and the one function that
-- checks payloads against them. Each mistake is answered with one sentence. The options
-- are also the reference for people: docs/options.md is checked against this table.

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
  'Of a number its value, of a text or URL its length, of a list its number of entries.';

insert into silkline.payload_options
  (kind, name, type, minimum, maximum, choices, default_value, description)
values
  ('crawl', 'url', 'url', 1, 2048, null, null,
    'Where to begin.'),
  ('crawl', 'urls', 'urls', 1, 1000, null, null,
    'The pages of strategy "list", instead of url.'),
  ('crawl', 'strategy', 'text', null, null, '{page,site,sitemap,list,llms_txt}', '"site"',
    'How URLs are found: one page, by links, by sitemap, as listed, by llms.txt.'),
  ('crawl', 'max_pages', 'integer', 1, 1000000, null, '1000',
    'How many URLs are fetched at most.'),
  ('crawl', 'max_depth', 'integer', 0, 100, null, '20',
    'How many links away from the start.'),
  ('crawl', 'max_seconds', 'integer', 1, 604800, null, '3600',
    'Running time; paused time does not count.'),
  ('crawl', 'max_page_bytes', 'integer', 1024, 104857600, null, '10485760',
    'Larger responses are skipped; counted after decompression.'),
  ('crawl', 'scope', 'text', null, null, '{host,domain,prefix}', '"host"',
    'Which links are followed: same host, same registrable domain, below the start URL.'),
  ('crawl', 'include', 'texts', 0, 100, null, '[]',
    'Only URLs that match one of these regular expressions.'),
  ('crawl', 'exclude', 'texts', 0, 100, null, '[]',
    'No URL that matches one of these regular expressions.'),
  ('crawl', 'fetcher', 'text', 1, 40, null, '"http"',
    'http, browser, or the name of a plugin.'),
  ('crawl', 'extractor', 'text', 1, 40, null, '"default"',
    'What turns HTML into Markdown: default, or the name of a plugin.'),
  ('crawl', 'markdown', 'text', null, null, '{main,full,none}', '"main"',
    'Markdown of the main content, of the full page, or none.'),
  ('crawl', 'obey_robots', 'boolean', null, null, null, 'true',
    'Whether robots.txt is obeyed.'),
  ('crawl', 'follow_nofollow', 'boolean', null, null, null, 'false',
    'Whether links marked nofollow are followed.'),
  ('crawl', 'keep_noindex', 'boolean', null, null, null, 'false',
    'Whether pages marked noindex are kept.'),
  ('crawl', 'only_changes', 'boolean', null, null, null, 'true',
    'Whether a page stored earlier is asked for with its validators.'),
  ('crawl', 'concurrency', 'integer', 1, 64, null, '8',
    'Open requests at a time.'),
  ('crawl', 'delay_seconds', 'number', 0, 60, null, '0',
    'Least pause between two requests to one host.'),
  ('crawl', 'timeout_seconds', 'number', 1, 120, null, '20',
    'Of one request.'),
  ('crawl', 'user_agent', 'text', 1, 300, null, null,
    'Sent with each request, and matched against robots.txt.'),
  ('crawl', 'max_retries', 'integer', 0, 20, null, null,
    'Of the job, after it broke; by default as in crawl_settings.'),
  ('audit', 'url', 'url', 1, 2048, null, null,
    'The site to audit.'),
  ('audit', 'max_pages', 'integer', 1, 10000, null, '50',
    'How many pages are looked at.'),
  ('audit', 'max_depth', 'integer', 0, 100, null, '3',
    'How many links away from the start.'),
  ('audit', 'max_seconds', 'integer', 1, 86400, null, '1800',
    'Running time; paused time does not count.'),
  ('audit', 'categories', 'texts', 0, 20, null, '[]',
    'Only these categories of rules; all when empty.'),
  ('audit', 'fetcher', 'text', 1, 40, null, '"http"',
    'http, browser, or the name of a plugin.'),
  ('audit', 'obey_robots', 'boolean', null, null, null, 'true',
    'Whether robots.txt is obeyed.'),
  ('audit', 'concurrency', 'integer', 1, 64, null, '4',
    'Open requests at a time.'),
  ('audit', 'timeout_seconds', 'number', 1, 120, null, '20',
    'Of one request.'),
  ('audit', 'user_agent', 'text', 1, 300, null, null,
    'Sent with each request, and matched against robots.txt.'),
  ('audit', 'max_retries', 'integer', 0, 20, null, null,
    'Of the job, after it broke; by default as in crawl_settings.');

-- What is wrong with a URL, or null. The full WHATWG parse is the crawler's; this keeps
-- out what could never be fetched or should never be stored.
create function silkline.url_mistake(p_name text, p_url text)
  returns text
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return case
    when p_url is null then format('%s must be a URL, not null', p_name)
    when length(p_url) > 2048
      then format('%s is %s characters long, more than 2048', p_name, length(p_url))
    when p_url !~* '^https?://'
      then format('%s must begin with http:// or https://, not %s', p_name, quote_ident(left(p_url, 40)))
    when p_url ~ '[[:space:][:cntrl:]\\]'
      then format('%s must not hold spaces, control characters or backslashes', p_name)
    when p_url ~ '^[^/]*//[^/?#]*@'
      then format('%s must not hold a user name or password', p_name)
    when p_url !~ '^[^/]*//(\[[0-9A-Fa-f:.]+\]|[^][/?#:@]+)(:[0-9]{1,5})?([/?#]|$)'
      then format('%s has no valid host', p_name)
  end;
end
$$;

comment on function silkline.url_mistake(text, text) is
  'One sentence about what is wrong with a URL, or null.';

revoke execute on function silkline.url_mistake(text, text) from public, anon, authenticated;

-- The host of a URL, with its port unless that is the scheme's own.
create function silkline.url_host(p_url text)
  returns text
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return regexp_replace(
    lower(substring(p_url from '^[^/]*//([^/?#]+)')),
    case when p_url ~* '^https' then ':443$' else ':80$' end,
    ''
  );
end
$$;

comment on function silkline.url_host(text) is
  'Host and port of a URL, for one-job-per-host.';

revoke execute on function silkline.url_host(text) from public, anon, authenticated;

-- What is wrong with one option's value, or null.
create function silkline.option_mistake(
  p_option silkline.payload_options,
  p_value jsonb
)
  returns text
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
declare
  v_type constant text := jsonb_typeof(p_value);
  v_text constant text := p_value #>> '{}';
  v_said constant text := left(p_value::text, 60);
  v_entry text;
  v_mistake text;
begin
  case
    when p_option.type in ('integer', 'number') then
      if v_type <> 'number'
        or v_text::numeric not between p_option.minimum and p_option.maximum
        or (p_option.type = 'integer' and v_text::numeric % 1 <> 0)
      then
        return format(
          '%s must be a %s from %s to %s, not %s',
          p_option.name,
          case p_option.type when 'integer' then 'whole number' else 'number' end,
          p_option.minimum,
          p_option.maximum,
          v_said
        );
      end if;

    when p_option.type = 'boolean' then
      if v_type <> 'boolean' then
        return format('%s must be true or false, not %s', p_option.name, v_said);
      end if;

    when (v_type = 'array') <> (p_option.type in ('texts', 'urls')) or v_type not in ('array', 'string') then
      return format(
        '%s must be a %s, not %s',
        p_option.name,
        case p_option.type
          when 'texts' then 'list of texts'
          when 'urls' then 'list of URLs'
          when 'url' then 'URL'
          else 'text'
        end,
        v_said
      );

    when p_option.choices is not null then
      if v_text <> all (p_option.choices) then
        return format(
          '%s must be one of %s, not %s',
          p_option.name,
          array_to_string(p_option.choices, ', '),
          v_said
        );
      end if;

    when p_option.type = 'url' then
      return silkline.url_mistake(p_option.name, v_text);

    when p_option.type = 'text' then
      if length(v_text) not between p_option.minimum and p_option.maximum then
        return format(
          '%s must have from %s to %s characters, not %s',
          p_option.name,
          p_option.minimum,
          p_option.maximum,
          length(v_text)
        );
      end if;

    else
      if jsonb_array_length(p_value) not between p_option.minimum and p_option.maximum then
        return format(
          '%s must have from %s to %s entries, not %s',
          p_option.name,
          p_option.minimum,
          p_option.maximum,
          jsonb_array_length(p_value)
        );
      end if;

      for v_entry in select entry from jsonb_array_elements_text(p_value) as entry loop
        v_mistake := case
          when p_option.type = 'urls' then silkline.url_mistake(p_option.name, v_entry)
          when v_entry is null or length(v_entry) not between 1 and 500
            then format('%s must hold texts of 1 to 500 characters', p_option.name)
        end;
        if v_mistake is not null then
          return v_mistake;
        end if;
      end loop;
  end case;

  return null;
end
$$;

comment on function silkline.option_mistake(silkline.payload_options, jsonb) is
  'One sentence about what is wrong with an option, or null.';

revoke execute on function silkline.option_mistake(silkline.payload_options, jsonb)
  from public, anon, authenticated;

-- What is wrong with a payload, or null. Plugins check their own keys.
create function silkline.payload_mistake(p_kind text, p_payload jsonb)
  returns text
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_mistake text;
begin
  if jsonb_typeof(p_payload) is distinct from 'object' then
    return 'the payload must be a JSON object';
  end if;

  if p_kind not in ('crawl', 'audit') then
    return case when p_payload ? 'url' then silkline.url_mistake('url', p_payload ->> 'url') end;
  end if;

  select
    case
      when option.name is null then format('unknown key %s in the payload', to_json(left(entry.key, 60)))
      else silkline.option_mistake(option, entry.value)
    end as mistake
  into v_mistake
  from jsonb_each(p_payload) as entry
  left join silkline.payload_options as option
    on option.kind = p_kind
    and option.name = entry.key
  order by mistake nulls last
  limit 1;

  return case
    when v_mistake is not null then v_mistake
    when p_payload ->> 'strategy' = 'list' and p_payload ? 'url'
      then 'strategy list takes urls, not url'
    when p_payload ->> 'strategy' = 'list' and not p_payload ? 'urls'
      then 'strategy list needs urls'
    when p_payload ->> 'strategy' = 'list' then null
    when p_payload ? 'urls' then 'urls goes with strategy list only'
    when not p_payload ? 'url' then 'the payload needs a url'
  end;
end
$$;

comment on function silkline.payload_mistake(text, jsonb) is
  'One sentence about what is wrong with a payload, or null.';

revoke execute on function silkline.payload_mistake(text, jsonb) from public, anon, authenticated;

-- The options that a job gets when its payload does not name them.
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

-- How a checkpoint checks its batch, and stores what is not part of the frontier: pages, and facts
-- about hosts. These functions run inside checkpoint_crawl_job, which holds the lock of the job.

-- Refuse a batch of the wrong shape; returns its number. The paths find what is wrong without
-- copying the parts of a batch, which may have a megabyte. Numbers are compared as numbers: a cast
-- would copy any text into its error message.
create function silkline.check_batch(p_batch jsonb, p_want integer)
  returns integer
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
declare
  v_error text;
begin
  if p_want is null or p_want not between 0 and 1000 then
    raise sqlstate 'PT422' using
      message = format('p_want must be from 0 to 1000, not %s', coalesce(p_want::text, 'null')),
      hint = 'Ask for as many URLs as the crawl can fetch in a second or two.';
  end if;

  if jsonb_typeof(p_batch) is distinct from 'object' then
    raise sqlstate 'PT400' using
      message = 'p_batch must be a JSON object',
      hint = 'Send at least {"seq": 1}.';
  end if;

  select rule.error
  into v_error
  from (
    values
      (
        'strict $.current_url ? (@.type() != "string" && @.type() != "null")'::jsonpath,
        'current_url must be a string'
      ),
      (
        'strict $.finished ? (@.type() != "array" || @.size() > 5000)',
        'finished must be a list of at most 5000 entries'
      ),
      (
        'strict $.retried ? (@.type() != "array" || @.size() > 5000)',
        'retried must be a list of at most 5000 entries'
      ),
      (
        'strict $.discovered ? (@.type() != "array" || @.size() > 50000)',
        'discovered must be a list of at most 50000 entries'
      ),
      (
        'strict $.hosts ? (@.type() != "array" || @.size() > 5000)',
        'hosts must be a list of at most 5000 entries'
      ),
      (
        'strict $.want_hosts ? (@.type() != "array" || @.size() > 5000)',
        'want_hosts must be a list of at most 5000 entries'
      ),
      (
        'strict $.want_links ? (@.type() != "array" || @.size() > 500)',
        'want_links must be a list of at most 500 entries'
      ),
      (
        'strict $.redirected_starts ? (@.type() != "array" || @.size() > 100)',
        'redirected_starts must be a list of at most 100 entries'
      ),
      (
        'strict $.want_links[*] ? (@.type() != "string")',
        'want_links may contain only URL keys'
      ),
      (
        'strict $.refused ? (@.type() != "object")',
        'refused must be an object'
      ),
      (
        'strict $.refused.keyvalue() ? (
          @.key != "out_of_scope" && @.key != "excluded" && @.key != "invalid_url"
        )',
        'refused may contain only out_of_scope, excluded and invalid_url'
      ),
      (
        'strict $.refused.keyvalue().value ? (
          !(@.type() == "number" && @ >= 0 && @ <= 1000000000 && @.floor() == @)
        )',
        'refused may contain only whole numbers from 0 to 1000000000'
      ),
      (
        '$.finished[*] ? (
          !(@.status == "done" || @.status == "error" || @.status == "skipped")
        )',
        'the status of a finished URL must be done, error or skipped'
      ),
      (
        '$.finished[*].http_status ? (
          @.type() != "null" && (@ < 0 || @ > 999 || @.type() != "number")
        )',
        'the http_status of a finished URL must be a number from 0 to 999'
      ),
      (
        '$.finished[*].page.http_status ? (
          @.type() != "null" && (@ < 0 || @ > 999 || @.type() != "number")
        )',
        'the http_status of a page must be a number from 0 to 999'
      ),
      (
        '$.finished[*].page.quality.type() ? (@ != "object" && @ != "null")',
        'the quality of a page must be an object'
      ),
      (
        '$.finished[*].page.quality.warnings.type() ? (@ != "array")',
        'the warnings of a page must be a list'
      ),
      (
        '$.finished[*].page.quality.warnings[*].type() ? (@ != "string")',
        'the warnings of a page must be strings'
      ),
      (
        '$.finished[*].page.quality.warnings[*] ? (
          @ != "cut"
          && @ != "needs_browser"
          && @ != "nothing_kept"
          && @ != "little_kept"
          && @ != "headings_lost"
          && @ != "code_lost"
        )',
        'the warnings of a page must be cut, needs_browser, nothing_kept, little_kept, '
          || 'headings_lost or code_lost'
      ),
      (
        '$.finished[*].bytes ? (
          @.type() != "null" && (@ < 0 || @ > 10000000000 || @.type() != "number")
        )',
        'the bytes of a finished URL must be a number from 0 to 10000000000'
      ),
      (
        '$.retried[*].after_seconds ? (
          @.type() != "null" && (@ < -1000000 || @ > 1000000 || @.type() != "number")
        )',
        'after_seconds must be a number, at most 1000000'
      ),
      (
        '$.retried[*].http_status ? (
          @.type() != "null" && (@ < 0 || @ > 999 || @.type() != "number")
        )',
        'the http_status of a retried URL must be a number from 0 to 999'
      ),
      (
        '$.discovered[*].depth ? (@ > 1000 || @.type() != "number")',
        'the depth of a discovered URL must be a number, at most 1000'
      ),
      (
        '$.hosts[*] ? (!(@.host.type() == "string"))',
        'each of hosts must name its host'
      ),
      (
        '$.hosts[*].robots_status ? (
          @.type() != "null" && (@ < 0 || @ > 999 || @.type() != "number")
        )',
        'robots_status must be a number from 0 to 999'
      ),
      (
        '$.hosts[*].crawl_delay_seconds ? (
          @.type() != "null" && (@ < 0 || @ > 3600 || @.type() != "number")
        )',
        'crawl_delay_seconds must be a number from 0 to 3600'
      ),
      (
        '$.hosts[*].backoff_seconds ? (
          @.type() != "null" && (@ < 0 || @ > 1000000 || @.type() != "number")
        )',
        'backoff_seconds must be a number from 0 to 1000000'
      ),
      (
        '$.hosts[*].error_streak ? (
          @.type() != "null" && (@ < 0 || @ > 1000000000 || @.type() != "number")
        )',
        'error_streak must be a number from 0 to 1000000000'
      )
  ) as rule (path, error)
  where jsonb_path_exists(p_batch, rule.path, silent => true)
  limit 1;

  v_error := coalesce(
    (
      select format('unknown key %I in p_batch', left(entry.key, 100))
      from jsonb_object_keys(p_batch) as entry (key)
      where entry.key not in (
        'seq',
        'finished',
        'retried',
        'discovered',
        'refused',
        'hosts',
        'want_hosts',
        'want_links',
        'redirected_starts',
        'current_url'
      )
      limit 1
    ),
    v_error
  );

  if v_error is null and jsonb_path_exists(
    p_batch,
    'strict $.seq ? (@.type() == "number" && @ >= 1 && @ <= 999999999 && @.floor() == @)',
    silent => true
  ) is not true then
    v_error := 'seq must be a positive whole number';
  end if;

  if v_error is null and exists (
    select
    from jsonb_path_query(p_batch, '$.finished[*].page.quality') as sent (quality)
    where pg_column_size(sent.quality) > 2000
  ) then
    v_error := 'the quality of a page may have at most 2000 bytes';
  end if;

  if v_error is null and p_batch ? 'redirected_starts' and exists (
    select
    from jsonb_array_elements(p_batch -> 'redirected_starts') as start
    where jsonb_typeof(start) <> 'string'
      or start #>> '{}' !~* '^https?://[^[:space:]]+$'
      or length(start #>> '{}') > 4096
  ) then
    v_error := 'redirected_starts may contain only URLs';
  end if;

  if v_error is not null then
    raise sqlstate 'PT422' using
      message = v_error,
      hint = 'See the keys of a batch in docs/reference/checkpoint.md.';
  end if;

  return (p_batch -> 'seq')::integer;
end
$$;

comment on function silkline.check_batch(jsonb, integer) is
  'Raise unless this is a valid batch of a checkpoint; returns its number.';

revoke execute on function silkline.check_batch(jsonb, integer) from public, anon, authenticated;

-- Where start URLs redirected to: each once, in the order they were reported, at most 100.
create function silkline.merge_starts(p_known jsonb, p_reported jsonb)
  returns jsonb
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select coalesce(jsonb_agg(start.url order by start.nth), '[]')
    from (
      select listed.url, min(listed.nth) as nth
      from jsonb_array_elements_text(p_known || p_reported) with ordinality as listed (url, nth)
      group by listed.url
      order by min(listed.nth)
      limit 100
    ) as start
  );
end
$$;

comment on function silkline.merge_starts(jsonb, jsonb) is
  'Add to the URLs that the start URLs of a job redirected to.';

revoke execute on function silkline.merge_starts(jsonb, jsonb) from public, anon, authenticated;

-- What is read of each page before it is known which of them are stored.
create type silkline.page_head as (content_hash text);

-- Store the pages of the finished URLs that this lease holds, except copies. A page whose content
-- has not changed gets no new version: its last_seen_at moves, and its links, metadata and quality
-- are replaced by those that were sent (a 304 sends none). Returns these URLs, each once, with their
-- pages and the warnings about them, so that a batch of a megabyte is read once.
create function silkline.save_pages(
  p_job silkline.jobs,
  p_finished jsonb,
  p_copies uuid[]
)
  returns table (
    place tid,
    status text,
    skip_reason text,
    error text,
    http_status smallint,
    bytes bigint,
    unfetched boolean,
    not_modified boolean,
    is_copy boolean,
    page_id bigint,
    change text,
    warnings jsonb
  )
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
#variable_conflict use_column
begin
  -- Two jobs of one owner may crawl the same source: they number their versions one at a time.
  perform silkline.lock('source', format('%s %s', p_job.owner_id, p_job.source_id));

  return query
    with held as materialized (
      -- Without the pages, which would be copied with each row. Sorted by key, so that
      -- neighbouring rows go into the indexes together.
      select distinct on (sent.url_key)
        sent.*,
        task.place,
        sent.url_key = any (p_copies) as is_copy,
        -- Not "is not null", which is about its fields.
        sent.page is distinct from null as has_page,
        sent.nth - 1 as index
      from rows from (
        jsonb_to_recordset(p_finished) as (
          url_key uuid,
          status text,
          skip_reason text,
          error text,
          http_status smallint,
          bytes bigint,
          unfetched boolean,
          not_modified boolean,
          page silkline.page_head
        )
      ) with ordinality as sent (
        url_key,
        status,
        skip_reason,
        error,
        http_status,
        bytes,
        unfetched,
        not_modified,
        page,
        nth
      )
      -- lateral, order and limit: see silkline.describe_tasks
      cross join lateral (
        select leased.ctid as place
        from silkline.tasks as leased
        where leased.job_id = p_job.id
          and leased.url_key = sent.url_key
          and leased.status = 'in_progress'
          and leased.lease_token = p_job.lease_token
        limit 1
      ) as task
      order by sent.url_key
    ),
    sent as materialized (
      select
        held.url_key,
        held.index,
        held.has_page,
        held.not_modified is true as not_modified,
        latest.place as latest_place,
        latest.version as latest_version,
        held.not_modified is true or latest.content_hash = (held.page).content_hash as is_unchanged
      from held
      left join lateral (
        select
          known.ctid as place,
          known.version,
          known.content_hash
        from public.crawl_pages as known
        where known.owner_id = p_job.owner_id
          and known.source_id = p_job.source_id
          and known.url_key = held.url_key
          and known.is_latest
        order by known.version desc
        limit 1
      ) as latest
        on true
      where not held.is_copy
        and (held.has_page or held.not_modified)
    ),
    -- By ctid: one read per page under every plan, even if the table was empty when it was made.
    seen_again as (
      update public.crawl_pages as latest
      set
        last_seen_at = now(),
        etag = coalesce(again.etag, latest.etag),
        last_modified = coalesce(again.last_modified, latest.last_modified),
        http_status = case
          when again.not_modified then latest.http_status
          else again.http_status
        end,
        title = case when again.not_modified then latest.title else again.title end,
        links = case when again.not_modified then latest.links else coalesce(again.links, '[]') end,
        metadata = case
          when again.not_modified then latest.metadata
          else coalesce(again.metadata, '{}')
        end,
        extractor = case when again.not_modified then latest.extractor else again.extractor end,
        extractor_version = case
          when again.not_modified then latest.extractor_version
          else again.extractor_version
        end,
        quality = case when again.not_modified then latest.quality else again.quality end
      from (
        select
          sent.latest_place,
          sent.not_modified,
          page.*
        from sent
        cross join lateral jsonb_to_record(
          case when sent.has_page then p_finished #> array[sent.index::text, 'page'] else '{}' end
        ) as page (
          http_status smallint,
          title text,
          links jsonb,
          metadata jsonb,
          etag text,
          last_modified text,
          extractor text,
          extractor_version text,
          quality jsonb
        )
        where sent.is_unchanged
      ) as again
      where latest.ctid = again.latest_place
      returning
        latest.url_key,
        latest.id,
        latest.quality -> 'warnings' as warnings
    ),
    outdated as (
      update public.crawl_pages as latest
      set is_latest = false
      from sent
      where latest.ctid = sent.latest_place
        and sent.is_unchanged is not true
      returning latest.id
    ),
    saved as (
      insert into public.crawl_pages (
        user_id,
        source_id,
        url_key,
        url,
        version,
        job_id,
        http_status,
        content_hash,
        title,
        markdown,
        links,
        metadata,
        etag,
        last_modified,
        extractor,
        extractor_version,
        quality
      )
      select
        p_job.user_id,
        p_job.source_id,
        sent.url_key,
        page.url,
        coalesce(sent.latest_version, 0) + 1,
        p_job.id,
        page.http_status,
        page.content_hash,
        page.title,
        page.markdown,
        coalesce(page.links, '[]'),
        coalesce(page.metadata, '{}'),
        page.etag,
        page.last_modified,
        page.extractor,
        page.extractor_version,
        page.quality
      from sent
      cross join lateral jsonb_to_record(
        p_finished #> array[sent.index::text, 'page']
      ) as page (
        url text,
        http_status smallint,
        content_hash text,
        title text,
        markdown text,
        links jsonb,
        metadata jsonb,
        etag text,
        last_modified text,
        extractor text,
        extractor_version text,
        quality jsonb
      )
      -- Reads outdated, so that the old version stops being the latest before the new one is
      -- inserted.
      where sent.is_unchanged is not true
        and (select count(*) from outdated) >= 0
      returning
        crawl_pages.url_key,
        crawl_pages.id,
        crawl_pages.version,
        crawl_pages.quality -> 'warnings' as warnings
    ),
    page as (
      select
        saved.url_key,
        saved.id,
        case saved.version when 1 then 'new' else 'changed' end as change,
        saved.warnings
      from saved
      union all
      select
        seen_again.url_key,
        seen_again.id,
        'unchanged',
        seen_again.warnings
      from seen_again
    )
    select
      held.place,
      held.status,
      held.skip_reason,
      held.error,
      held.http_status,
      held.bytes,
      held.unfetched,
      held.not_modified,
      held.is_copy,
      page.id,
      page.change,
      page.warnings
    from held
    left join page
      on page.url_key = held.url_key;
end
$$;

comment on function silkline.save_pages(silkline.jobs, jsonb, uuid[]) is
  'Store the pages of a checkpoint as versions; returns the finished URLs with their pages.';

revoke execute on function silkline.save_pages(silkline.jobs, jsonb, uuid[])
  from public, anon, authenticated;

-- The facts that a worker with the limited key may write under a lease: those about the hosts of
-- the job's URLs, without their port and a leading www., and about subdomains of these. Other hosts
-- of the same registrable domain are left out: which suffixes are public is not known here, and on
-- github.io the neighbours of a host belong to others.
create function silkline.facts_about_own_hosts(p_job silkline.jobs, p_hosts jsonb)
  returns jsonb
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return (
    with own as (
      select distinct regexp_replace(lower(named.host), '^www[.]|:[0-9]+$', '', 'g') as host
      from (
        select p_job.host
        union all
        select split_part(p_job.payload ->> 'url', '/', 3)
        union all
        select split_part(listed.url, '/', 3)
        from jsonb_array_elements_text(
          case jsonb_typeof(p_job.payload -> 'urls') when 'array' then p_job.payload -> 'urls' end
        ) as listed (url)
      ) as named
      where named.host <> ''
    ),
    fact as materialized (
      select
        listed.value,
        listed.nth,
        string_to_array(
          regexp_replace(lower(listed.value ->> 'host'), ':[0-9]+$', ''),
          '.'
        ) as labels
      from jsonb_array_elements(p_hosts) with ordinality as listed (value, nth)
      where length(listed.value ->> 'host') <= 300
    )
    select coalesce(jsonb_agg(fact.value order by fact.nth), '[]')
    from fact
    where fact.nth in (
      select named.nth
      from fact as named
      cross join lateral generate_subscripts(named.labels, 1) as first (label)
      join own
        on own.host = array_to_string(named.labels[first.label:], '.')
    )
  );
end
$$;

comment on function silkline.facts_about_own_hosts(silkline.jobs, jsonb) is
  'The facts of a batch that are about hosts of its job.';

revoke execute on function silkline.facts_about_own_hosts(silkline.jobs, jsonb)
  from public, anon, authenticated;

-- Share what a crawl learned about hosts with all other crawls. Values that are not sent stay as
-- they are stored, with one exception: a robots_status replaces robots_txt and the crawl delay,
-- by null if they are missing. backoff_seconds 0 ends a backoff. From a worker with the limited
-- key, facts about hosts that are not of its job are ignored.
create function silkline.save_hosts(p_job silkline.jobs, p_batch jsonb)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_hosts jsonb := p_batch -> 'hosts';
begin
  if v_hosts is null then
    return;
  end if;

  if not silkline.is_service() then
    v_hosts := silkline.facts_about_own_hosts(p_job, v_hosts);
  end if;

  insert into public.crawl_hosts as host (
    host,
    robots_txt,
    robots_status,
    robots_fetched_at,
    crawl_delay_seconds,
    backoff_until,
    error_streak,
    last_error
  )
  select
    fact.host,
    left(fact.robots_txt, 524288),
    fact.robots_status,
    case when fact.robots_status is not null then now() end,
    fact.crawl_delay_seconds,
    case
      when fact.backoff_seconds is not null
        then now() + make_interval(secs => least(fact.backoff_seconds, 86400))
    end,
    fact.error_streak,
    left(fact.last_error, 2000)
  from (
    -- If a host is sent twice in one batch, the last value of each field wins.
    select
      lower(sent.host) as host,
      (array_agg(sent.robots_txt order by sent.nth desc)
        filter (where sent.robots_status is not null))[1] as robots_txt,
      (array_agg(sent.robots_status order by sent.nth desc)
        filter (where sent.robots_status is not null))[1] as robots_status,
      (array_agg(sent.crawl_delay_seconds order by sent.nth desc)
        filter (where num_nonnulls(sent.crawl_delay_seconds, sent.robots_status) > 0)
      )[1] as crawl_delay_seconds,
      (array_agg(sent.backoff_seconds order by sent.nth desc)
        filter (where sent.backoff_seconds is not null))[1] as backoff_seconds,
      (array_agg(sent.error_streak order by sent.nth desc)
        filter (where sent.error_streak is not null))[1] as error_streak,
      (array_agg(sent.last_error order by sent.nth desc)
        filter (where sent.last_error is not null))[1] as last_error
    from rows from (
      jsonb_to_recordset(v_hosts) as (
        host text,
        robots_txt text,
        robots_status smallint,
        crawl_delay_seconds real,
        backoff_seconds real,
        error_streak integer,
        last_error text
      )
    ) with ordinality as sent (
      host,
      robots_txt,
      robots_status,
      crawl_delay_seconds,
      backoff_seconds,
      error_streak,
      last_error,
      nth
    )
    group by lower(sent.host)
  ) as fact
  -- Every crawl locks hosts in this order, so that two never deadlock.
  order by fact.host
  on conflict (host) do update
  set
    robots_txt = case
      when excluded.robots_fetched_at is null then host.robots_txt
      else excluded.robots_txt
    end,
    robots_status = coalesce(excluded.robots_status, host.robots_status),
    robots_fetched_at = coalesce(excluded.robots_fetched_at, host.robots_fetched_at),
    crawl_delay_seconds = case
      when excluded.robots_fetched_at is null
        then coalesce(excluded.crawl_delay_seconds, host.crawl_delay_seconds)
      else excluded.crawl_delay_seconds
    end,
    backoff_until = coalesce(excluded.backoff_until, host.backoff_until),
    error_streak = coalesce(excluded.error_streak, host.error_streak),
    last_error = coalesce(excluded.last_error, host.last_error),
    updated_at = now();
end
$$;

comment on function silkline.save_hosts(silkline.jobs, jsonb) is
  'Store what a crawl learned about hosts.';

revoke execute on function silkline.save_hosts(silkline.jobs, jsonb)
  from public, anon, authenticated;

-- How a checkpoint checks its batch, and stores pages and facts about hosts. These functions run
-- inside checkpoint_crawl_job, which holds the lock of the job.

-- Refuse a batch of the wrong shape.
create function silkline.check_batch(p_batch jsonb, p_want integer)
  returns void
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

  select
    case
      when entry.key not in (
        'seq',
        'finished',
        'retried',
        'discovered',
        'hosts',
        'want_hosts',
        'want_links',
        'redirected_starts',
        'current_url'
      )
        then format('unknown key %I in p_batch', left(entry.key, 100))
      when entry.key = 'current_url'
        then case
          when jsonb_typeof(entry.value) not in ('string', 'null')
            then 'current_url must be a string'
        end
      when entry.key = 'seq' then null
      when jsonb_typeof(entry.value) <> 'array'
        then format('%s must be a list', entry.key)
      when entry.key = 'finished'
        and jsonb_path_exists(
          entry.value,
          '$[*] ? (!(@.status == "done" || @.status == "error" || @.status == "skipped"))'
        )
        then 'the status of a finished URL must be done, error or skipped'
      when entry.key = 'want_links'
        and jsonb_path_exists(entry.value, 'strict $[*] ? (@.type() != "string")')
        then 'want_links may contain only URL keys'
      when entry.key = 'redirected_starts' and exists (
        select
        from jsonb_array_elements(entry.value) as start
        where jsonb_typeof(start) <> 'string'
          or start #>> '{}' !~* '^https?://[^[:space:]]+$'
          or length(start #>> '{}') > 4096
      )
        then 'redirected_starts may contain only URLs'
      when jsonb_array_length(entry.value)
        > case entry.key
          when 'discovered' then 50000
          when 'redirected_starts' then 100
          when 'want_links' then 500
          else 5000
        end
        then format('%s has too many entries: %s', entry.key, jsonb_array_length(entry.value))
    end
  into v_error
  from jsonb_each(p_batch) as entry
  order by 1 nulls last
  limit 1;

  if v_error is null and coalesce((p_batch ->> 'seq') !~ '^[1-9][0-9]{0,8}$', true) then
    v_error := 'seq must be a positive whole number';
  end if;

  if v_error is not null then
    raise sqlstate 'PT422' using
      message = v_error,
      hint = 'See the keys of a batch in docs/reference/checkpoint.md.';
  end if;
end
$$;

comment on function silkline.check_batch(jsonb, integer) is
  'Raise unless this is a valid batch of a checkpoint.';

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
    select jsonb_agg(start.url order by start.nth)
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

-- How many pages a job may fetch. The payload of a plugin need not say.
create function silkline.page_budget(p_payload jsonb)
  returns integer
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return case
    when jsonb_typeof(p_payload -> 'max_pages') = 'number'
      then least(greatest((p_payload ->> 'max_pages')::numeric, 1), 2147483647)::integer
    else 2147483647
  end;
end
$$;

comment on function silkline.page_budget(jsonb) is
  'The page budget of a payload.';

revoke execute on function silkline.page_budget(jsonb) from public, anon, authenticated;
grant execute on function silkline.page_budget(jsonb) to authenticated, service_role;

-- Store the pages of URLs that this lease holds, except copies. A page whose content has not
-- changed gets no new version: its last_seen_at moves, and its links and metadata are replaced by
-- those that were sent (a 304 sends none). Returns the page of each URL, and how it changed.
create function silkline.save_pages(
  p_job silkline.jobs,
  p_finished jsonb,
  p_copies uuid[]
)
  returns table (url_key uuid, page_id bigint, change text)
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
    with sent as materialized (
      select distinct on (task.url_key)
        task.url_key,
        coalesce(finished.not_modified, false) as not_modified,
        page.*,
        latest.id as latest_id,
        latest.version as latest_version,
        latest.content_hash as latest_hash
      from jsonb_to_recordset(p_finished) as finished (
        url_key uuid,
        not_modified boolean,
        page jsonb
      )
      join silkline.tasks as task
        on task.job_id = p_job.id
        and task.url_key = finished.url_key
        and task.status = 'in_progress'
        and task.lease_token = p_job.lease_token
      cross join lateral jsonb_to_record(coalesce(finished.page, '{}')) as page (
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
        extractor_version text
      )
      -- lateral and limit: see silkline.tasks_of_batch
      left join lateral (
        select
          known.id,
          known.version,
          known.content_hash
        from public.crawl_pages as known
        where known.owner_id = p_job.owner_id
          and known.source_id = p_job.source_id
          and known.url_key = finished.url_key
          and known.is_latest
        limit 1
      ) as latest
        on true
      where (finished.page is not null or finished.not_modified)
        and finished.url_key <> all (p_copies)
    ),
    seen_again as (
      update public.crawl_pages as latest
      set
        last_seen_at = now(),
        etag = coalesce(sent.etag, latest.etag),
        last_modified = coalesce(sent.last_modified, latest.last_modified),
        http_status = case
          when sent.not_modified then latest.http_status
          else sent.http_status
        end,
        title = case when sent.not_modified then latest.title else sent.title end,
        links = case when sent.not_modified then latest.links else coalesce(sent.links, '[]') end,
        metadata = case
          when sent.not_modified then latest.metadata
          else coalesce(sent.metadata, '{}')
        end,
        extractor = case when sent.not_modified then latest.extractor else sent.extractor end,
        extractor_version = case
          when sent.not_modified then latest.extractor_version
          else sent.extractor_version
        end
      from sent
      where latest.id = sent.latest_id
        and (sent.not_modified or sent.content_hash = sent.latest_hash)
      returning latest.url_key, latest.id
    ),
    outdated as (
      update public.crawl_pages as latest
      set is_latest = false
      from sent
      where latest.id = sent.latest_id
        and not sent.not_modified
        and sent.content_hash is distinct from sent.latest_hash
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
        extractor_version
      )
      select
        p_job.user_id,
        p_job.source_id,
        sent.url_key,
        sent.url,
        coalesce(sent.latest_version, 0) + 1,
        p_job.id,
        sent.http_status,
        sent.content_hash,
        sent.title,
        sent.markdown,
        coalesce(sent.links, '[]'),
        coalesce(sent.metadata, '{}'),
        sent.etag,
        sent.last_modified,
        sent.extractor,
        sent.extractor_version
      from sent
      -- Reads outdated, so that the old version stops being the latest before the new one is
      -- inserted.
      where not sent.not_modified
        and (sent.latest_id is null or sent.content_hash is distinct from sent.latest_hash)
        and (select count(*) from outdated) >= 0
      returning crawl_pages.url_key, crawl_pages.id, crawl_pages.version
    )
    select saved.url_key, saved.id, case saved.version when 1 then 'new' else 'changed' end
    from saved
    union all
    select seen_again.url_key, seen_again.id, 'unchanged'
    from seen_again;
end
$$;

comment on function silkline.save_pages(silkline.jobs, jsonb, uuid[]) is
  'Store the pages of a checkpoint as versions.';

revoke execute on function silkline.save_pages(silkline.jobs, jsonb, uuid[])
  from public, anon, authenticated;

-- Share what a crawl learned about hosts with all other crawls. Values that are not sent stay as
-- they are stored, with one exception: a robots_status replaces robots_txt and the crawl delay,
-- by null if they are missing. backoff_seconds 0 ends a backoff.
create function silkline.save_hosts(p_hosts jsonb)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
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
        then now() + make_interval(secs => least(greatest(fact.backoff_seconds, 0), 86400))
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
      jsonb_to_recordset(p_hosts) as (
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

comment on function silkline.save_hosts(jsonb) is
  'Store what a crawl learned about hosts.';

revoke execute on function silkline.save_hosts(jsonb) from public, anon, authenticated;

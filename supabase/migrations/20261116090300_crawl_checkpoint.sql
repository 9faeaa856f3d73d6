-- The checkpoint: one round trip per second and job between a crawl and the database.
--
-- In: finished URLs with their pages, URLs to try again, links found, facts about hosts.
-- Out: the user's command, and the next URLs to fetch. All of it in one transaction under
-- the lock of the job, so that a lost lease writes nothing, counters equal rows, and the
-- batch counts once: its number is remembered, and a repeated call is answered with the
-- URLs that the first one handed out.
--
--   p_batch  {seq, finished, retried, discovered, hosts, want_hosts, current_url}
--     seq         1, 2, 3, … within one lease
--     finished    [{url_key, status: done | error | skipped, http_status, bytes,
--                   skip_reason, error, not_modified, page: {url, content_hash, title,
--                   markdown, links, metadata, etag, last_modified, http_status, extractor,
--                   extractor_version}}]
--     retried     [{url_key, after_seconds, error, http_status}]
--     discovered  [{url_key, url, depth, found_on, skip_reason}]
--     hosts       [{host, robots_txt, robots_status, crawl_delay_seconds, backoff_seconds,
--                   error_streak, last_error}]
--     want_hosts  [host, …]
--   answer   {command, job_id, seq, drained, pending, next_in_seconds, tasks: [{url_key, url,
--             depth, attempts, etag, last_modified}], links: [{url_key, depth, links}], hosts}

-- Refuse a batch that is not of this shape, with one sentence.
create function silkline.check_batch(p_batch jsonb, p_want integer)
  returns void
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
declare
  v_mistake text;
begin
  if p_want is null or p_want not between 0 and 1000 then
    raise sqlstate 'PT422' using
      message = format('p_want must be from 0 to 1000, not %s', coalesce(p_want::text, 'null')),
      hint = 'Ask for as many URLs as the crawl can fetch within a second or two.';
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
        'current_url'
      )
        then format('unknown key %I in p_batch', left(entry.key, 100))
      when entry.key = 'current_url'
        then case
          when jsonb_typeof(entry.value) not in ('string', 'null')
            then 'current_url must be a text'
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
      when jsonb_array_length(entry.value) > case entry.key when 'discovered' then 50000 else 5000 end
        then format('%s entries are too many in %s', jsonb_array_length(entry.value), entry.key)
    end
  into v_mistake
  from jsonb_each(p_batch) as entry
  order by 1 nulls last
  limit 1;

  if v_mistake is null and coalesce((p_batch ->> 'seq') !~ '^[1-9][0-9]{0,8}$', true) then
    v_mistake := 'seq must be a whole number from 1';
  end if;

  if v_mistake is not null then
    raise sqlstate 'PT422' using
      message = v_mistake,
      hint = 'The keys of a batch are listed in docs/queue.md.';
  end if;
end
$$;

comment on function silkline.check_batch(jsonb, integer) is
  'Raise unless this is the batch of a checkpoint.';

revoke execute on function silkline.check_batch(jsonb, integer) from public, anon, authenticated;

-- How many URLs a job may fetch; plugins need not say.
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

-- Store the pages of URLs that this lease holds. A page that has not changed makes no
-- version; it is only seen again. Returns the page of each URL, and what happened to it.
create function silkline.save_pages(p_job public.crawl_jobs, p_finished jsonb)
  returns table (url_key uuid, page_id bigint, change text)
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
#variable_conflict use_column
begin
  -- Two jobs of one owner may meet in one source: their versions are numbered in turn.
  perform pg_advisory_xact_lock(
    hashtextextended(format('source %s %s', p_job.user_id, p_job.source_id), 0)
  );

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
      join public.crawl_tasks as task
        on task.job_id = p_job.id
        and task.url_key = finished.url_key
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
      -- lateral and limit: see tasks_of_batch
      left join lateral (
        select
          known.id,
          known.version,
          known.content_hash
        from public.crawl_pages as known
        where coalesce(known.user_id, '00000000-0000-0000-0000-000000000000'::uuid)
            = coalesce(p_job.user_id, '00000000-0000-0000-0000-000000000000'::uuid)
          and known.source_id = p_job.source_id
          and known.url_key = finished.url_key
          and known.is_latest
        limit 1
      ) as latest
        on true
      where finished.page is not null
        or finished.not_modified
    ),
    seen_again as (
      update public.crawl_pages as latest
      set
        last_seen_at = now(),
        etag = coalesce(sent.etag, latest.etag),
        last_modified = coalesce(sent.last_modified, latest.last_modified)
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
      -- Reads outdated, so that the old version has given way before the new one comes.
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

comment on function silkline.save_pages(public.crawl_jobs, jsonb) is
  'Store the pages of a checkpoint as versions.';

revoke execute on function silkline.save_pages(public.crawl_jobs, jsonb)
  from public, anon, authenticated;

-- Share what a crawl learned about hosts with all other crawls.
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
    lower(fact.host),
    left(fact.robots_txt, 524288),
    fact.robots_status,
    case when fact.robots_status is not null then now() end,
    fact.crawl_delay_seconds,
    case
      when fact.backoff_seconds > 0
        then now() + make_interval(secs => least(fact.backoff_seconds, 86400))
    end,
    coalesce(fact.error_streak, 0),
    left(fact.last_error, 2000)
  from (
    select distinct on (lower(sent.host)) sent.*
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
    order by lower(sent.host), sent.nth desc
  ) as fact
  -- In one order for all, so that two crawls never wait for each other.
  order by lower(fact.host)
  on conflict (host) do update
  set
    robots_txt = case
      when excluded.robots_fetched_at is null then host.robots_txt
      else excluded.robots_txt
    end,
    robots_status = coalesce(excluded.robots_status, host.robots_status),
    robots_fetched_at = coalesce(excluded.robots_fetched_at, host.robots_fetched_at),
    crawl_delay_seconds = coalesce(excluded.crawl_delay_seconds, host.crawl_delay_seconds),
    backoff_until = excluded.backoff_until,
    error_streak = excluded.error_streak,
    last_error = excluded.last_error,
    updated_at = now();
end
$$;

comment on function silkline.save_hosts(jsonb) is
  'Store what a crawl learned about hosts.';

revoke execute on function silkline.save_hosts(jsonb) from public, anon, authenticated;

-- Hand out URLs, in the order they were found; retries come back at their time. A first
-- fetch is paid from the budget here. Suspects of a crash go last, and alone.
create function silkline.lease_tasks(
  p_job public.crawl_jobs,
  p_seq integer,
  p_want integer,
  p_budget integer,
  p_in_progress integer
)
  returns table (leased integer, spent integer)
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_leased integer := 0;
  v_spent integer := 0;
begin
  -- Alone means that nothing joins it, either.
  if p_in_progress = 1 and exists (
    select
    from public.crawl_tasks as suspect
    where suspect.job_id = p_job.id
      and suspect.status = 'in_progress'
      and suspect.crashes > 0
  ) then
    return query select 0, 0;
    return;
  end if;

  with next as (
    select task.url_key
    from public.crawl_tasks as task
    where task.job_id = p_job.id
      and task.status = 'pending'
      and task.crashes = 0
      and task.next_run_at <= now()
      -- With the budget spent, what was never fetched is skipped by the caller.
      and (p_budget > 0 or task.attempts > 0)
    order by task.next_run_at
    limit case when p_budget > 0 then least(p_want, p_budget) else p_want end
  ),
  handed_out as (
    update public.crawl_tasks as task
    set
      status = 'in_progress',
      lease_token = p_job.lease_token,
      lease_seq = p_seq,
      attempts = least(task.attempts + 1, 32767)
    from next
    where task.job_id = p_job.id
      and task.url_key = next.url_key
    returning task.attempts
  )
  select count(*), count(*) filter (where handed_out.attempts = 1)
  into v_leased, v_spent
  from handed_out;

  if v_leased = 0 and p_in_progress = 0 and p_want > 0 then
    update public.crawl_tasks as task
    set
      status = 'in_progress',
      lease_token = p_job.lease_token,
      lease_seq = p_seq,
      attempts = least(task.attempts + 1, 32767)
    where task.job_id = p_job.id
      and task.url_key = (
        select suspect.url_key
        from public.crawl_tasks as suspect
        where suspect.job_id = p_job.id
          and suspect.status = 'pending'
          and suspect.crashes > 0
          and suspect.next_run_at <= now()
        order by suspect.next_run_at
        limit 1
      );
    get diagnostics v_leased = row_count;
  end if;

  return query select v_leased, v_spent;
end
$$;

comment on function silkline.lease_tasks(public.crawl_jobs, integer, integer, integer, integer) is
  'Hand out the next URLs of a job to its lease.';

revoke execute on function silkline.lease_tasks(public.crawl_jobs, integer, integer, integer, integer)
  from public, anon, authenticated;

-- definer because crawl_worker may touch no table
create function public.checkpoint_crawl_job(
  p_lease_token uuid,
  p_batch jsonb,
  p_want integer default 0
)
  returns jsonb
  language plpgsql
  volatile
  security definer
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
as $$
declare
  v_job public.crawl_jobs;
  v_state public.crawl_states;
  v_seq integer;
  v_max_pages integer;
  v_done integer := 0;
  v_error integer := 0;
  v_skipped integer := 0;
  v_bytes bigint := 0;
  v_new integer := 0;
  v_changed integer := 0;
  v_unchanged integer := 0;
  v_retried integer := 0;
  v_given_up integer := 0;
  v_found integer := 0;
  v_found_skipped integer := 0;
  v_unpaid integer := 0;
  v_leased integer := 0;
  v_spent integer := 0;
  v_budget integer;
  v_links jsonb := '[]';
  v_seconds double precision;
begin
  perform silkline.check_batch(p_batch, p_want);
  v_seq := (p_batch ->> 'seq')::integer;

  select job.*
  into v_job
  from public.crawl_jobs as job
  where job.lease_token = p_lease_token
  for no key update;

  if v_job.lease_check_at is null then
    return jsonb_build_object(
      'command', (silkline.lost(p_lease_token)).command,
      'tasks', '[]'::jsonb
    );
  end if;

  -- Cancelled: nothing more is wanted of this crawl.
  if v_job.status = 'cancelled' then
    update public.crawl_jobs as job
    set last_heartbeat = now()
    where job.id = v_job.id;
    return jsonb_build_object('command', 'cancel', 'job_id', v_job.id, 'tasks', '[]'::jsonb);
  end if;

  select state.*
  into v_state
  from public.crawl_states as state
  where state.job_id = v_job.id
  for no key update;
  v_max_pages := silkline.page_budget(v_job.payload);

  if v_state.batch_token is distinct from p_lease_token or v_state.batch_seq < v_seq then
    if jsonb_array_length(coalesce(p_batch -> 'finished', '[]')) > 0 then
      with page as materialized (
        select saved.url_key, saved.page_id, saved.change
        from silkline.save_pages(v_job, p_batch -> 'finished') as saved
      ),
      finished as (
        update public.crawl_tasks as task
        set
          status = sent.status,
          skip_reason = case sent.status when 'skipped' then sent.skip_reason end,
          last_error = case sent.status
            when 'error' then left(coalesce(sent.error, 'failed without a reason'), 2000)
          end,
          http_status = sent.http_status,
          page_id = page.page_id,
          finished_at = now(),
          lease_token = null,
          lease_seq = null
        from jsonb_to_recordset(p_batch -> 'finished') as sent (
          url_key uuid,
          status public.crawl_task_status,
          skip_reason text,
          error text,
          http_status smallint,
          bytes bigint
        )
        left join page
          on page.url_key = sent.url_key
        where task.job_id = v_job.id
          and task.url_key = sent.url_key
          and task.lease_token = p_lease_token
          and sent.status in ('done', 'error', 'skipped')
        returning task.status, greatest(sent.bytes, 0) as bytes, page.change
      )
      select
        count(*) filter (where finished.status = 'done'),
        count(*) filter (where finished.status = 'error'),
        count(*) filter (where finished.status = 'skipped'),
        coalesce(sum(finished.bytes), 0),
        count(*) filter (where finished.change = 'new'),
        count(*) filter (where finished.change = 'changed'),
        count(*) filter (where finished.change = 'unchanged')
      into v_done, v_error, v_skipped, v_bytes, v_new, v_changed, v_unchanged
      from finished;
    end if;

    -- Tries are bounded here too, whatever the crawl does: a run always drains.
    if jsonb_array_length(coalesce(p_batch -> 'retried', '[]')) > 0 then
      with retried as (
        update public.crawl_tasks as task
        set
          status = case when task.attempts >= 10 then 'error' else 'pending' end
            ::public.crawl_task_status,
          next_run_at = now()
            + make_interval(secs => least(greatest(coalesce(sent.after_seconds, 0), 0), 86400)),
          last_error = left(
            case when task.attempts >= 10 then 'gave up after 10 tries: ' else '' end
              || coalesce(sent.error, 'failed without a reason'),
            2000
          ),
          http_status = sent.http_status,
          finished_at = case when task.attempts >= 10 then now() end,
          lease_token = null,
          lease_seq = null
        from jsonb_to_recordset(p_batch -> 'retried') as sent (
          url_key uuid,
          after_seconds double precision,
          error text,
          http_status smallint
        )
        where task.job_id = v_job.id
          and task.url_key = sent.url_key
          and task.lease_token = p_lease_token
        returning task.status
      )
      select
        count(*) filter (where retried.status = 'pending'),
        count(*) filter (where retried.status = 'error')
      into v_retried, v_given_up
      from retried;
    end if;

    v_budget := greatest(v_max_pages - v_state.pages_spent, 0);

    -- Sorted by key, so that the rows go into the index side by side.
    if jsonb_array_length(coalesce(p_batch -> 'discovered', '[]')) > 0 then
      with found as (
        insert into public.crawl_tasks as task (
          job_id,
          url_key,
          url,
          depth,
          status,
          skip_reason,
          found_on,
          finished_at
        )
        select
          v_job.id,
          sent.url_key,
          sent.url,
          sent.depth,
          case when reason.skip_reason is null then 'pending' else 'skipped' end
            ::public.crawl_task_status,
          reason.skip_reason,
          sent.found_on,
          case when reason.skip_reason is not null then now() end
        from jsonb_to_recordset(p_batch -> 'discovered') as sent (
          url_key uuid,
          url text,
          depth smallint,
          skip_reason text,
          found_on uuid
        )
        cross join lateral (
          select
            case
              when sent.skip_reason is not null then sent.skip_reason
              when sent.url !~* '^https?://' then 'invalid_url'
              when v_budget = 0 then 'budget'
            end as skip_reason
        ) as reason
        order by sent.url_key
        on conflict (job_id, url_key) do nothing
        returning task.status
      )
      select
        count(*) filter (where found.status = 'pending'),
        count(*) filter (where found.status = 'skipped')
      into v_found, v_found_skipped
      from found;
    end if;

    if jsonb_array_length(coalesce(p_batch -> 'hosts', '[]')) > 0 then
      perform silkline.save_hosts(p_batch -> 'hosts');
    end if;

    -- The budget is spent: what is left in the frontier ends with that reason, a bounded
    -- number per checkpoint.
    if v_budget = 0 and v_state.total_pending + v_retried > 0 then
      update public.crawl_tasks as task
      set
        status = 'skipped',
        skip_reason = 'budget',
        finished_at = now()
      where task.job_id = v_job.id
        and task.url_key = any (
          array(
            select unpaid.url_key
            from public.crawl_tasks as unpaid
            where unpaid.job_id = v_job.id
              and unpaid.status = 'pending'
              and unpaid.crashes = 0
              and unpaid.attempts = 0
            order by unpaid.next_run_at
            limit 5000
          )
        );
      get diagnostics v_unpaid = row_count;
    end if;

    -- Not while skipping goes on: retries would be searched among all that is left.
    if v_job.status = 'processing' and p_want > 0 and v_unpaid < 5000 then
      select handed_out.leased, handed_out.spent
      into v_leased, v_spent
      from silkline.lease_tasks(
        v_job,
        v_seq,
        p_want,
        v_budget,
        v_state.total_in_progress - v_done - v_error - v_skipped - v_retried - v_given_up
      ) as handed_out;
    end if;

    v_seconds := extract(epoch from now() - coalesce(v_state.checkpoint_at, v_job.started_at));

    update public.crawl_states as state
    set
      total_pending = state.total_pending + v_retried + v_found - v_unpaid - v_leased,
      total_in_progress = state.total_in_progress
        - v_done - v_error - v_skipped - v_retried - v_given_up + v_leased,
      total_done = state.total_done + v_done,
      total_error = state.total_error + v_error + v_given_up,
      total_skipped = state.total_skipped + v_skipped + v_found_skipped + v_unpaid,
      total_bytes = state.total_bytes + v_bytes,
      pages_new = state.pages_new + v_new,
      pages_changed = state.pages_changed + v_changed,
      pages_unchanged = state.pages_unchanged + v_unchanged,
      pages_spent = state.pages_spent + v_spent,
      -- Smoothed over about ten seconds.
      pages_per_second = case
        when v_seconds > 0
          then state.pages_per_second
            + ((v_done + v_error) / v_seconds - state.pages_per_second) * (1 - exp(-v_seconds / 10))
        else state.pages_per_second
      end,
      current_url = coalesce(left(p_batch ->> 'current_url', 4096), state.current_url),
      seq = state.seq + 1,
      batch_token = p_lease_token,
      batch_seq = v_seq,
      checkpoint_at = now()
    where state.job_id = v_job.id
    returning state.* into v_state;
  end if;

  -- A page that answered 304 keeps the links of its stored version. For a repeated batch, too.
  if jsonb_path_exists(p_batch, '$.finished[*].not_modified ? (@ == true)') then
    select coalesce(
      jsonb_agg(
        jsonb_build_object('url_key', task.url_key, 'depth', task.depth, 'links', page.links)
        order by task.url_key
      ),
      '[]'
    )
    into v_links
    from jsonb_to_recordset(p_batch -> 'finished') as sent (url_key uuid, not_modified boolean)
    join public.crawl_tasks as task
      on task.job_id = v_job.id
      and task.url_key = sent.url_key
    join public.crawl_pages as page
      on page.id = task.page_id
    where sent.not_modified
      and page.links <> '[]';
  end if;

  update public.crawl_jobs as job
  set
    last_heartbeat = now(),
    -- Never 100 before the end: only completed is complete.
    progress_percentage = least(
      99,
      100 * (v_state.total_done + v_state.total_error)
        / greatest(
          least(
            v_state.total_done + v_state.total_error
              + v_state.total_pending + v_state.total_in_progress,
            v_max_pages
          ),
          1
        )
    )
  where job.id = v_job.id;

  return jsonb_build_object(
    'command', silkline.command_for(v_job.status),
    'job_id', v_job.id,
    'seq', v_state.seq,
    'pending', v_state.total_pending,
    'drained',
      v_state.total_pending + v_state.total_in_progress = 0 and v_links = '[]',
    'next_in_seconds', case
      when v_leased = 0 and v_state.total_pending > 0 then silkline.next_task_in_seconds(v_job.id)
    end,
    'tasks', silkline.tasks_of_batch(v_job, v_seq),
    'links', v_links,
    'hosts', silkline.host_facts(p_batch -> 'want_hosts')
  );
end
$$;

comment on function public.checkpoint_crawl_job(uuid, jsonb, integer) is
  'Store what a crawl has done since the last checkpoint; answers the command and the next URLs.';

revoke execute on function public.checkpoint_crawl_job(uuid, jsonb, integer)
  from public, anon, authenticated;
grant execute on function public.checkpoint_crawl_job(uuid, jsonb, integer)
  to service_role, crawl_worker;

-- The URLs that one batch handed out and that are still in flight, with the validators of
-- their stored pages, so that the crawl can ask for changes only.
create function silkline.tasks_of_batch(p_job public.crawl_jobs, p_seq integer)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select coalesce(
      jsonb_agg(
        jsonb_build_object(
          'url_key', task.url_key,
          'url', task.url,
          'depth', task.depth,
          'attempts', task.attempts,
          'etag', page.etag,
          'last_modified', page.last_modified
        )
        order by task.depth, task.url_key
      ),
      '[]'
    )
    from public.crawl_tasks as task
    -- lateral and limit: one probe of the unique index per URL, whatever the planner thinks
    -- of a table that was small when the plan was made.
    left join lateral (
      select latest.etag, latest.last_modified
      from public.crawl_pages as latest
      where coalesce(latest.user_id, '00000000-0000-0000-0000-000000000000'::uuid)
          = coalesce(p_job.user_id, '00000000-0000-0000-0000-000000000000'::uuid)
        and latest.source_id = p_job.source_id
        and latest.url_key = task.url_key
        and latest.is_latest
      limit 1
    ) as page
      on true
    where task.job_id = p_job.id
      and task.status = 'in_progress'
      and task.lease_token = p_job.lease_token
      and task.lease_seq = p_seq
  );
end
$$;

comment on function silkline.tasks_of_batch(public.crawl_jobs, integer) is
  'The URLs that a checkpoint handed out, as its answer.';

revoke execute on function silkline.tasks_of_batch(public.crawl_jobs, integer)
  from public, anon, authenticated;

-- How long until the next pending URL of a job is due; 0 when one is due already.
create function silkline.next_task_in_seconds(p_job_id uuid)
  returns double precision
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return greatest(
    0,
    extract(
      epoch from least(
        (
          select min(task.next_run_at)
          from public.crawl_tasks as task
          where task.job_id = p_job_id
            and task.status = 'pending'
            and task.crashes = 0
        ),
        (
          select min(suspect.next_run_at)
          from public.crawl_tasks as suspect
          where suspect.job_id = p_job_id
            and suspect.status = 'pending'
            and suspect.crashes > 0
        )
      ) - now()
    )
  );
end
$$;

comment on function silkline.next_task_in_seconds(uuid) is
  'Seconds until the next pending URL of a job is due.';

revoke execute on function silkline.next_task_in_seconds(uuid) from public, anon, authenticated;

-- What the queue knows about hosts that a crawl asks for.
create function silkline.host_facts(p_hosts jsonb)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  if p_hosts is null then
    return '[]';
  end if;

  return (
    select coalesce(
      jsonb_agg(
        jsonb_build_object(
          'host', host.host,
          'robots_txt', host.robots_txt,
          'robots_status', host.robots_status,
          'robots_age_seconds', extract(epoch from now() - host.robots_fetched_at),
          'crawl_delay_seconds', host.crawl_delay_seconds,
          'backoff_seconds', greatest(0, extract(epoch from host.backoff_until - now())),
          'error_streak', host.error_streak
        )
        order by host.host
      ),
      '[]'
    )
    from jsonb_array_elements_text(p_hosts) as wanted (name)
    join public.crawl_hosts as host
      on host.host = lower(wanted.name)
  );
end
$$;

comment on function silkline.host_facts(jsonb) is
  'Robots rules, delay and backoff of the hosts asked for.';

revoke execute on function silkline.host_facts(jsonb) from public, anon, authenticated;

-- The checkpoint: one round trip per second and job between a crawl and the database.
--
-- In: finished URLs with their pages, URLs to retry, links found, facts about hosts. Out: the
-- user's command, and the next URLs to fetch. All of it is one transaction under the lock of the
-- job: a lost lease writes nothing, and counters equal rows. A batch counts once: its number is
-- stored, and a repeated call returns the URLs that the first one leased.
--
-- max_pages counts pages. A URL is charged when it is first leased, so no more than max_pages are
-- ever in flight, and refunded if it does not end as a page: it was a redirect, a copy dropped for
-- its original, a file that is not a page (a sitemap), or was never requested (unfetched: because
-- of robots.txt, or a host that was given up). So when the budget is spent, pending URLs wait
-- until nothing that could be refunded is in flight; then they end as skipped.
--
--   p_batch  {seq, finished, retried, discovered, hosts, want_hosts, want_links,
--             redirected_starts, current_url}
--     seq         1, 2, 3, … within one lease
--     finished    [{url_key, status: done | error | skipped, http_status, bytes,
--                   skip_reason, error, unfetched, not_modified, canonical_key,
--                   page: {url, content_hash, title, markdown, links, metadata, etag,
--                   last_modified, http_status, extractor, extractor_version}}]
--     retried     [{url_key, after_seconds, error, http_status}]
--     discovered  [{url_key, url, depth, found_on, skip_reason}]
--     hosts       [{host, robots_txt, robots_status, crawl_delay_seconds, backoff_seconds,
--                   error_streak, last_error}]
--     want_hosts  [host, …]
--     want_links  [url_key, …] of unchanged pages whose stored links the crawl will follow
--     redirected_starts  [url, …] where start URLs redirected to; stored, and returned each time
--   answer   {command, job_id, seq, drained, pending, next_in_seconds, tasks: [{url_key, url,
--             depth, attempts, etag, last_modified, made_with}], links: [{url_key, links}],
--             hosts, redirected_starts, progress}

-- definer because crawl_worker has no rights on tables
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
  set jit = 'off'
as $$
declare
  v_job silkline.jobs;
  v_state silkline.states;
  v_seq integer;
  v_percentage smallint;
  v_max_pages integer;
  v_done integer := 0;
  v_error integer := 0;
  v_skipped integer := 0;
  v_bytes bigint := 0;
  v_new integer := 0;
  v_changed integer := 0;
  v_copies uuid[] := '{}'::uuid[];
  v_unfetched integer := 0;
  v_free integer := 0;
  v_unchanged integer := 0;
  v_retried integer := 0;
  v_given_up integer := 0;
  v_restored integer := 0;
  v_refunded integer := 0;
  v_found integer := 0;
  v_found_skipped integer := 0;
  v_revived integer := 0;
  v_unpaid integer := 0;
  v_leased integer := 0;
  v_spent integer := 0;
  v_in_flight integer;
  v_budget integer;
  v_lacks_budget boolean;
  v_max_links bigint;
  v_seconds double precision;
begin
  perform silkline.check_batch(p_batch, p_want);
  v_seq := (p_batch ->> 'seq')::integer;

  perform silkline.check_lease_token(p_lease_token);

  select job.*
  into v_job
  from silkline.lock_leases(array[p_lease_token]) as job;

  if v_job.id is null then
    return jsonb_build_object('command', 'lost', 'tasks', '[]'::jsonb);
  end if;

  -- The results of a cancelled crawl are discarded.
  if v_job.status = 'cancelled' then
    update silkline.jobs as job
    set last_heartbeat = now()
    where job.id = v_job.id;
    return jsonb_build_object('command', 'cancel', 'job_id', v_job.id, 'tasks', '[]'::jsonb);
  end if;

  select state.*
  into v_state
  from silkline.states as state
  where state.job_id = v_job.id
  for no key update;
  v_max_pages := silkline.page_budget(v_job.payload);
  -- A page may have thousands of links that will never be fetched: how many are stored is
  -- bounded by how many pages the job may fetch.
  v_max_links := 100 * v_max_pages::bigint + 10000;

  if v_state.batch_token is distinct from p_lease_token or v_state.batch_seq < v_seq then
    if jsonb_array_length(coalesce(p_batch -> 'finished', '[]')) > 0 then
      if jsonb_path_exists(p_batch, '$.finished[*].canonical_key') then
        v_copies := silkline.mark_copies(
          v_job,
          p_batch -> 'finished',
          array(
            select found.url_key
            from jsonb_to_recordset(p_batch -> 'discovered') as found (
              url_key uuid,
              skip_reason text
            )
            where found.skip_reason is null
              and v_state.total_pending < v_max_links
          )
        );
      end if;

      with page as materialized (
        select saved.url_key, saved.page_id, saved.change
        from silkline.save_pages(v_job, p_batch -> 'finished', v_copies) as saved
      ),
      finished as (
        update silkline.tasks as task
        set
          status = judged.status,
          skip_reason = judged.skip_reason,
          last_error = left(
            coalesce(
              sent.error,
              case sent.status when 'error' then 'failed for an unknown reason' end
            ),
            2000
          ),
          http_status = sent.http_status,
          page_id = page.page_id,
          -- No longer charged: a retry of the failed URLs must not refund it again.
          attempts = case
            when sent.status = 'error' and sent.unfetched then 0
            else task.attempts
          end,
          crashes = case
            when sent.status = 'error' and sent.unfetched then 0
            else task.crashes
          end,
          finished_at = now(),
          lease_token = null,
          lease_seq = null
        from jsonb_to_recordset(p_batch -> 'finished') as sent (
          url_key uuid,
          status public.crawl_task_status,
          skip_reason text,
          error text,
          http_status smallint,
          bytes bigint,
          unfetched boolean,
          not_modified boolean
        )
        cross join lateral (
          select
            case when sent.url_key = any (v_copies) then 'skipped' else sent.status end
              ::public.crawl_task_status as status,
            case
              when sent.url_key = any (v_copies) then 'canonical'
              when sent.status = 'skipped' then sent.skip_reason
            end as skip_reason
        ) as judged
        left join page
          on page.url_key = sent.url_key
        where task.job_id = v_job.id
          and task.url_key = sent.url_key
          and task.status = 'in_progress'
          and task.lease_token = p_lease_token
          and sent.status in ('done', 'error', 'skipped')
        returning
          task.status,
          greatest(sent.bytes, 0) as bytes,
          page.change,
          case
            when sent.unfetched and page.page_id is null then 'not fetched'
            when task.skip_reason in ('redirect', 'canonical') then 'no page'
            when task.status = 'done' and page.page_id is null and sent.not_modified is not true
              then 'no page'
          end as refund
      )
      select
        count(*) filter (where finished.status = 'done'),
        count(*) filter (where finished.status = 'error'),
        count(*) filter (where finished.status = 'skipped'),
        coalesce(sum(finished.bytes), 0),
        count(*) filter (where finished.change = 'new'),
        count(*) filter (where finished.change = 'changed'),
        count(*) filter (where finished.change = 'unchanged'),
        count(*) filter (where finished.refund = 'not fetched'),
        -- An endless chain of redirects would never spend the budget.
        least(
          count(*) filter (where finished.refund = 'no page'),
          greatest(10 * v_max_pages::bigint + 1000 - v_state.pages_free, 0)
        )
      into
        v_done,
        v_error,
        v_skipped,
        v_bytes,
        v_new,
        v_changed,
        v_unchanged,
        v_unfetched,
        v_free
      from finished;
    end if;

    -- Attempts are bounded here too, whatever the crawl does, so that a job always drains.
    if jsonb_array_length(coalesce(p_batch -> 'retried', '[]')) > 0 then
      with retried as (
        update silkline.tasks as task
        set
          status = case when task.attempts >= 30 then 'error' else 'pending' end
            ::public.crawl_task_status,
          next_run_at = now()
            + make_interval(secs => least(greatest(coalesce(sent.after_seconds, 0), 0), 86400)),
          last_error = left(
            case when task.attempts >= 30 then 'gave up after 30 attempts: ' else '' end
              || coalesce(sent.error, 'failed for an unknown reason'),
            2000
          ),
          http_status = sent.http_status,
          finished_at = case when task.attempts >= 30 then now() end,
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
          and task.status = 'in_progress'
          and task.lease_token = p_lease_token
        returning task.status
      )
      select
        count(*) filter (where retried.status = 'pending'),
        count(*) filter (where retried.status = 'error')
      into v_retried, v_given_up
      from retried;
    end if;

    -- Restore copies whose original has turned out to be no substitute.
    if exists (
      select
      from silkline.tasks as copy
      where copy.job_id = v_job.id
        and copy.skip_reason = 'canonical'
    ) then
      select copies.restored, copies.refunded
      into v_restored, v_refunded
      from silkline.restore_copies(
        v_job.id,
        array(
          select (ended.url_key #>> '{}')::uuid
          from jsonb_path_query(p_batch, '$.finished[*].url_key') as ended (url_key)
          union all
          select (ended.url_key #>> '{}')::uuid
          from jsonb_path_query(p_batch, '$.retried[*].url_key') as ended (url_key)
        )
      ) as copies;
    end if;

    v_in_flight := v_state.total_in_progress
      - v_done - v_error - v_skipped - v_retried - v_given_up;
    v_free := v_free + v_refunded;
    v_budget := greatest(v_max_pages - v_state.pages_spent + v_unfetched + v_free, 0);
    v_lacks_budget := v_budget = 0 and v_in_flight = 0;

    -- Sorted by key, so that neighbouring rows go into the index together.
    if jsonb_array_length(coalesce(p_batch -> 'discovered', '[]')) > 0 then
      with found as (
        insert into silkline.tasks as task (
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
              when v_lacks_budget then 'budget'
            end as skip_reason
        ) as reason
        where case
            when reason.skip_reason is null then v_state.total_pending
            else v_state.total_skipped
          end < v_max_links
        order by sent.url_key
        on conflict (job_id, url_key) do nothing
        returning task.status
      )
      select
        count(*) filter (where found.status = 'pending'),
        count(*) filter (where found.status = 'skipped')
      into v_found, v_found_skipped
      from found;

      -- A URL that was too deep is pending again when a shorter path leads to it. A second
      -- statement, because ON CONFLICT DO UPDATE would lock the row of every known link.
      if not v_lacks_budget and v_state.total_pending < v_max_links and exists (
        select
        from silkline.tasks as deep
        where deep.job_id = v_job.id
          and deep.skip_reason = 'too_deep'
      ) then
        update silkline.tasks as task
        set
          status = 'pending',
          skip_reason = null,
          depth = again.depth,
          found_on = again.found_on,
          attempts = 0,
          crashes = 0,
          losses = 0,
          next_run_at = now(),
          finished_at = null
        from (
          select distinct on (known.place)
            known.place,
            sent.depth,
            sent.found_on
          from jsonb_to_recordset(p_batch -> 'discovered') as sent (
            url_key uuid,
            depth smallint,
            skip_reason text,
            found_on uuid
          )
          -- lateral and limit: see silkline.tasks_of_batch
          cross join lateral (
            select deep.ctid as place
            from silkline.tasks as deep
            where deep.job_id = v_job.id
              and deep.url_key = sent.url_key
              and deep.skip_reason = 'too_deep'
            limit 1
          ) as known
          where sent.skip_reason is null
          order by known.place, sent.depth
        ) as again
        where task.ctid = again.place;
        get diagnostics v_revived = row_count;
      end if;
    end if;

    if jsonb_array_length(coalesce(p_batch -> 'hosts', '[]')) > 0 then
      perform silkline.save_hosts(p_batch -> 'hosts');
    end if;

    -- The budget is spent and nothing can be refunded: skip what is left in the frontier, a
    -- bounded number of URLs per checkpoint.
    if v_lacks_budget and v_state.total_pending + v_restored > 0 then
      update silkline.tasks as task
      set
        status = 'skipped',
        skip_reason = 'budget',
        finished_at = now()
      where task.ctid = any (
        array(
          select unpaid.ctid
          from silkline.tasks as unpaid
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

    -- Not while more URLs have to be skipped: a retry in flight would stop that.
    if v_job.status = 'processing' and p_want > 0 and v_unpaid < 5000 then
      select handed_out.leased, handed_out.spent
      into v_leased, v_spent
      from silkline.lease_tasks(
        v_job,
        v_seq,
        p_want,
        v_budget,
        v_in_flight
      ) as handed_out;
    end if;

    -- Without the time between two leases.
    v_seconds := extract(
      epoch from now() - case v_state.batch_token
        when p_lease_token then v_state.checkpoint_at
        else v_job.last_heartbeat
      end
    );

    update silkline.states as state
    set
      total_pending = state.total_pending
        + v_retried + v_found + v_revived + v_restored - v_unpaid - v_leased,
      total_in_progress = v_in_flight + v_leased,
      total_done = state.total_done + v_done,
      total_error = state.total_error + v_error + v_given_up,
      total_skipped = state.total_skipped
        + v_skipped + v_found_skipped + v_unpaid - v_revived - v_restored,
      total_bytes = state.total_bytes + v_bytes,
      pages_new = state.pages_new + v_new,
      pages_changed = state.pages_changed + v_changed,
      pages_unchanged = state.pages_unchanged + v_unchanged,
      pages_spent = state.pages_spent + v_spent - v_unfetched - v_free,
      pages_free = state.pages_free + v_free,
      -- Smoothed over about ten seconds; at first, over the whole run.
      pages_per_second = case
        when v_seconds > 0
          then state.pages_per_second
            + ((v_done + v_error) / v_seconds - state.pages_per_second)
            * greatest(
              1 - exp(-v_seconds / 10),
              v_seconds / extract(epoch from now() - v_job.started_at)
            )
        else state.pages_per_second
      end,
      current_url = coalesce(left(p_batch ->> 'current_url', 4096), state.current_url),
      redirected_starts = case
        when jsonb_array_length(coalesce(p_batch -> 'redirected_starts', '[]')) > 0
          then silkline.merge_starts(state.redirected_starts, p_batch -> 'redirected_starts')
        else state.redirected_starts
      end,
      seq = state.seq + 1,
      batch_token = p_lease_token,
      batch_seq = v_seq,
      checkpoint_at = now()
    where state.job_id = v_job.id
    returning state.* into v_state;
  end if;

  update silkline.jobs as job
  set
    last_heartbeat = now(),
    -- Only a completed job is at 100.
    progress_percentage = least(
      99,
      100::bigint * (v_state.total_done + v_state.total_error)
        / greatest(
          least(
            v_state.total_done + v_state.total_error
              + v_state.total_pending + v_state.total_in_progress,
            v_max_pages
          ),
          1
        )
    )
  where job.id = v_job.id
  returning job.progress_percentage into v_percentage;

  return jsonb_build_object(
    'command', silkline.command_for(v_job.status),
    'job_id', v_job.id,
    'seq', v_state.seq,
    'pending', v_state.total_pending,
    'drained', v_state.total_pending + v_state.total_in_progress = 0,
    'next_in_seconds', case
      when v_leased = 0 and v_state.total_pending > 0
        then silkline.next_task_in_seconds(
          v_job.id,
          v_state.pages_spent < v_max_pages or v_state.total_in_progress = 0
        )
    end,
    'tasks', silkline.tasks_of_batch(v_job, v_seq),
    'links', case
      when jsonb_array_length(coalesce(p_batch -> 'want_links', '[]')) > 0
        then silkline.stored_links(v_job, p_batch -> 'want_links')
      else '[]'
    end,
    'hosts', silkline.host_facts(p_batch -> 'want_hosts'),
    'progress', silkline.page_counts(v_state, v_job, silkline.current_wait(v_job, v_state))
      || jsonb_build_object('progress_percentage', v_percentage)
  ) || case v_state.redirected_starts
    when '[]' then '{}'
    else jsonb_build_object('redirected_starts', v_state.redirected_starts)
  end;
end
$$;

comment on function public.checkpoint_crawl_job(uuid, jsonb, integer) is
  'Store what a crawl did since the last checkpoint; returns the command and the next URLs.';

revoke execute on function public.checkpoint_crawl_job(uuid, jsonb, integer)
  from public, anon, authenticated;
grant execute on function public.checkpoint_crawl_job(uuid, jsonb, integer)
  to service_role, crawl_worker;

-- The checkpoint: one round trip per second and job between a crawl and the database.
--
-- In: finished URLs with their pages, URLs to retry, links found, facts about hosts. Out: the
-- user's command, and the next URLs to fetch. All of it is one transaction under the lock of the
-- job: a lost lease writes nothing. A batch counts once: its number is stored, and a repeated call
-- returns the URLs that the first one leased.
--
-- Counters equal rows, because each step (finish, retry, restore, add, revive, skip, lease) returns
-- what it did to the rows as silkline.task_counts, and checkpoint_crawl_job adds all of them to the
-- state. No step writes the state itself.
--
-- max_pages counts pages. A URL is charged when it is first leased, so no more than max_pages are
-- ever in flight, and refunded if it does not end as a page: it was a redirect, a copy dropped for
-- its original, a file that is not a page (a sitemap), or was never requested (unfetched: because
-- of robots.txt, or a host that was given up). So when the budget is spent, pending URLs wait
-- until nothing that could be refunded is in flight; then they end as skipped.
--
--   p_batch  {seq, finished, retried, discovered, refused, hosts, want_hosts, want_links,
--             redirected_starts, current_url}
--     seq         1, 2, 3, … within one lease
--     finished    [{url_key, status: done | error | skipped, http_status, bytes,
--                   skip_reason, error, unfetched, not_modified, canonical_key,
--                   page: {url, content_hash, title, markdown, links, metadata, etag,
--                   last_modified, http_status, extractor, extractor_version, quality}}]
--     retried     [{url_key, after_seconds, error, http_status}]
--     discovered  [{url_key, url, depth, found_on, skip_reason}]
--     refused     {out_of_scope, excluded, invalid_url}: how many links the rules refused
--     hosts       [{host, robots_txt, robots_status, crawl_delay_seconds, backoff_seconds,
--                   error_streak, last_error}]
--     want_hosts  [host, …]
--     want_links  [url_key, …] of unchanged pages whose stored links the crawl will follow
--     redirected_starts  [url, …] where start URLs redirected to; stored, and returned each time
--   answer   {command, job_id, seq, drained, pending, next_in_seconds, tasks: [{url_key, url,
--             depth, attempts, etag, last_modified, made_with}], links: [{url_key, links}],
--             hosts, redirected_starts, progress}

-- Whether more links of a kind (pending, skipped) may be stored. A page may have thousands that
-- will never be fetched, so they are bounded by how many pages the job may fetch. Asked with the
-- counters from before a batch, so that all its steps get the same answer.
create function silkline.has_room(p_job silkline.jobs, p_links integer)
  returns boolean
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return p_links < 100 * silkline.page_budget(p_job.payload)::bigint + 10000;
end
$$;

comment on function silkline.has_room(silkline.jobs, integer) is
  'Whether a job may store more links than these.';

revoke execute on function silkline.has_room(silkline.jobs, integer)
  from public, anon, authenticated;

-- Store the pages of finished URLs, and end these URLs. Refunds what was not a page. p_finished is
-- a part of p_batch; its caller takes it out once, because each time copies up to a megabyte.
create function silkline.finish_tasks(
  p_job silkline.jobs,
  p_before silkline.states,
  p_finished jsonb,
  p_batch jsonb
)
  returns silkline.task_counts
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_counts silkline.task_counts;
  v_copies uuid[] := '{}'::uuid[];
  v_unfetched integer;
begin
  if p_finished is null then
    return null;
  end if;

  if jsonb_path_exists(p_finished, '$[*].canonical_key') then
    v_copies := silkline.mark_copies(
      p_job,
      p_finished,
      array(
        select found.url_key
        from jsonb_to_recordset(p_batch -> 'discovered') as found (
          url_key uuid,
          skip_reason text
        )
        where found.skip_reason is null
          and silkline.has_room(p_job, p_before.total_pending)
      )
    );
  end if;

  with finished as (
    update silkline.tasks as task
    set
      status = ended.status,
      skip_reason = ended.skip_reason,
      last_error = left(
        coalesce(
          ended.error,
          case ended.status when 'error' then 'failed for an unknown reason' end
        ),
        2000
      ),
      http_status = ended.http_status,
      page_id = ended.page_id,
      -- No longer charged: a retry of the failed URLs must not refund it again.
      attempts = case
        when ended.status = 'error' and ended.unfetched then 0
        else task.attempts
      end,
      crashes = case
        when ended.status = 'error' and ended.unfetched then 0
        else task.crashes
      end,
      finished_at = now(),
      lease_token = null,
      lease_seq = null
    from (
      select
        held.place,
        case when held.is_copy then 'skipped' else held.status end
          ::public.crawl_task_status as status,
        case
          when held.is_copy then 'canonical'
          when held.status = 'skipped' then held.skip_reason
        end as skip_reason,
        held.error,
        held.http_status,
        held.bytes,
        held.unfetched,
        held.not_modified,
        held.page_id,
        held.change,
        held.warnings
      from silkline.save_pages(p_job, p_finished, v_copies) as held
    ) as ended
    where task.ctid = ended.place
    returning
      ended.status,
      ended.bytes,
      ended.change,
      ended.warnings,
      case
        when ended.unfetched and ended.page_id is null then 'not fetched'
        when ended.skip_reason in ('redirect', 'canonical') then 'no page'
        when ended.status = 'done' and ended.page_id is null and ended.not_modified is not true
          then 'no page'
      end as refund
  )
  select
    - count(*),
    count(*) filter (where finished.status = 'done'),
    count(*) filter (where finished.status = 'error'),
    count(*) filter (where finished.status = 'skipped'),
    sum(finished.bytes),
    count(*) filter (where finished.change = 'new'),
    count(*) filter (where finished.change = 'changed'),
    count(*) filter (where finished.change = 'unchanged'),
    count(*) filter (where finished.refund = 'not fetched'),
    -- An endless chain of redirects would never spend the budget.
    least(
      count(*) filter (where finished.refund = 'no page'),
      greatest(
        10 * silkline.page_budget(p_job.payload)::bigint + 1000 - p_before.pages_free,
        0
      )
    ),
    count(*) filter (where finished.warnings <> '[]'),
    (
      select jsonb_object_agg(warning.kind, warning.pages)
      from (
        select listed.kind, count(*) as pages
        from finished as page
        cross join lateral (
          select distinct kind
          from jsonb_array_elements_text(page.warnings) as kind
        ) as listed
        group by listed.kind
      ) as warning
    )
  into
    v_counts.in_progress,
    v_counts.done,
    v_counts.error,
    v_counts.skipped,
    v_counts.bytes,
    v_counts.new,
    v_counts.changed,
    v_counts.unchanged,
    v_unfetched,
    v_counts.free,
    v_counts.with_warnings,
    v_counts.warnings
  from finished;

  v_counts.spent := - v_unfetched - v_counts.free;
  return v_counts;
end
$$;

comment on function silkline.finish_tasks(silkline.jobs, silkline.states, jsonb, jsonb) is
  'Store the pages of finished URLs, and end these URLs.';

revoke execute on function silkline.finish_tasks(silkline.jobs, silkline.states, jsonb, jsonb)
  from public, anon, authenticated;

-- Make URLs pending again. Attempts are bounded here too, whatever the crawl does, so that a job
-- always drains.
create function silkline.retry_tasks(p_job silkline.jobs, p_batch jsonb)
  returns silkline.task_counts
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_counts silkline.task_counts;
begin
  if not p_batch ? 'retried' then
    return null;
  end if;

  with retried as (
    update silkline.tasks as task
    set
      status = case when task.attempts >= 30 then 'error' else 'pending' end
        ::public.crawl_task_status,
      next_run_at = now() + make_interval(secs => again.after_seconds),
      last_error = left(
        case when task.attempts >= 30 then 'gave up after 30 attempts: ' else '' end
          || coalesce(again.error, 'failed for an unknown reason'),
        2000
      ),
      http_status = again.http_status,
      finished_at = case when task.attempts >= 30 then now() end,
      lease_token = null,
      lease_seq = null
    from (
      select
        held.place,
        least(greatest(coalesce(sent.after_seconds, 0), 0), 86400) as after_seconds,
        sent.error,
        sent.http_status
      from jsonb_to_recordset(p_batch -> 'retried') as sent (
        url_key uuid,
        after_seconds double precision,
        error text,
        http_status smallint
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
      ) as held
    ) as again
    where task.ctid = again.place
    returning task.status
  )
  select
    - count(*),
    count(*) filter (where retried.status = 'pending'),
    count(*) filter (where retried.status = 'error')
  into
    v_counts.in_progress,
    v_counts.pending,
    v_counts.error
  from retried;

  return v_counts;
end
$$;

comment on function silkline.retry_tasks(silkline.jobs, jsonb) is
  'Make URLs pending again that a crawl wants to retry.';

revoke execute on function silkline.retry_tasks(silkline.jobs, jsonb)
  from public, anon, authenticated;

-- Restore copies whose original has turned out, in this batch, to be no substitute.
create function silkline.check_copies(p_job_id uuid, p_batch jsonb)
  returns silkline.task_counts
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  if not p_batch ?| '{finished,retried}' or not exists (
    select
    from silkline.tasks as copy
    where copy.job_id = p_job_id
      and copy.skip_reason = 'canonical'
  ) then
    return null;
  end if;

  return silkline.restore_copies(
    p_job_id,
    array(
      select (ended.url_key #>> '{}')::uuid
      from jsonb_path_query(p_batch, '$.finished[*].url_key') as ended (url_key)
      union all
      select (ended.url_key #>> '{}')::uuid
      from jsonb_path_query(p_batch, '$.retried[*].url_key') as ended (url_key)
    )
  );
end
$$;

comment on function silkline.check_copies(uuid, jsonb) is
  'Restore the copies of the URLs of a batch that are no substitute for them.';

revoke execute on function silkline.check_copies(uuid, jsonb) from public, anon, authenticated;

-- Add links to the frontier, each once. A link that the rules of the crawl refuse is counted and
-- not stored: a page may have thousands of them. A start URL (depth 0) is stored in any case,
-- because a user asked for it.
--
-- The lock of the job makes the caller the only writer of these tasks, so links that are known are
-- left out by a probe each, which costs less than ON CONFLICT.
create function silkline.add_links(
  p_job silkline.jobs,
  p_before silkline.states,
  p_found jsonb,
  p_refused jsonb,
  p_lacks_budget boolean
)
  returns silkline.task_counts
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_counts silkline.task_counts;
  v_may_add constant boolean := silkline.has_room(p_job, p_before.total_pending);
  v_may_skip constant boolean := silkline.has_room(p_job, p_before.total_skipped);
begin
  if coalesce(p_found, p_refused) is null then
    return null;
  end if;

  with found as materialized (
    select
      sent.url_key,
      sent.url,
      sent.depth,
      sent.found_on,
      case
        when sent.skip_reason is not null then sent.skip_reason
        -- Saves most links the regular expression, which takes a tenth of the time of this step.
        when starts_with(sent.url, 'https://') then case when p_lacks_budget then 'budget' end
        when sent.url !~* '^https?://' then 'invalid_url'
        when p_lacks_budget then 'budget'
      end as skip_reason
    from jsonb_to_recordset(p_found) as sent (
      url_key uuid,
      url text,
      depth smallint,
      skip_reason text,
      found_on text
    )
  ),
  added as (
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
      p_job.id,
      link.url_key,
      link.url,
      link.depth,
      case when link.skip_reason is null then 'pending' else 'skipped' end
        ::public.crawl_task_status,
      link.skip_reason,
      link.found_on::uuid,
      case when link.skip_reason is not null then now() end
    from (
      -- If a link is sent twice, the shortest path that may be followed. Sorted by key, so that
      -- neighbouring rows go into the indexes together, each right after its probe.
      select distinct on (found.url_key) found.*
      from found
      where case
          when found.skip_reason is null then v_may_add
          when found.depth > 0
            and found.skip_reason in ('out_of_scope', 'excluded', 'invalid_url') then false
          else v_may_skip
        end
      order by found.url_key, found.skip_reason nulls first, found.depth
    ) as link
    -- lateral, order and limit: see silkline.describe_tasks
    left join lateral (
      select true as is_known
      from silkline.tasks as task
      where task.job_id = p_job.id
        and task.url_key between link.url_key and link.url_key
      order by task.url_key
      limit 1
    ) as known
      on true
    where known.is_known is null
    returning task.status
  )
  select
    counted.pending,
    counted.skipped,
    refused.out_of_scope + coalesce((p_refused -> 'out_of_scope')::bigint, 0),
    refused.excluded + coalesce((p_refused -> 'excluded')::bigint, 0),
    refused.invalid_url + coalesce((p_refused -> 'invalid_url')::bigint, 0)
  into
    v_counts.pending,
    v_counts.skipped,
    v_counts.out_of_scope,
    v_counts.excluded,
    v_counts.invalid_url
  from (
    select
      count(*) filter (where added.status = 'pending') as pending,
      count(*) filter (where added.status = 'skipped') as skipped
    from added
  ) as counted
  cross join (
    select
      count(*) filter (where found.skip_reason = 'out_of_scope') as out_of_scope,
      count(*) filter (where found.skip_reason = 'excluded') as excluded,
      count(*) filter (where found.skip_reason = 'invalid_url') as invalid_url
    from found
    where found.skip_reason is not null
      and found.depth > 0
  ) as refused;

  return v_counts;
end
$$;

comment on function silkline.add_links(
  silkline.jobs, silkline.states, jsonb, jsonb, boolean
) is
  'Add links to the frontier, and count those that the rules of the crawl refuse.';

revoke execute on function silkline.add_links(
  silkline.jobs, silkline.states, jsonb, jsonb, boolean
) from public, anon, authenticated;

-- URLs that were too deep are pending again when a shorter path leads to them.
create function silkline.revive_links(
  p_job silkline.jobs,
  p_before silkline.states,
  p_batch jsonb,
  p_lacks_budget boolean
)
  returns silkline.task_counts
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_counts silkline.task_counts;
begin
  if p_lacks_budget
    or not p_batch ? 'discovered'
    or not silkline.has_room(p_job, p_before.total_pending)
    or not exists (
      select
      from silkline.tasks as deep
      where deep.job_id = p_job.id
        and deep.skip_reason = 'too_deep'
    )
  then
    return null;
  end if;

  with revived as (
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
      -- lateral, order and limit: see silkline.describe_tasks
      cross join lateral (
        select deep.ctid as place
        from silkline.tasks as deep
        where deep.job_id = p_job.id
          and deep.url_key between sent.url_key and sent.url_key
          and deep.skip_reason = 'too_deep'
        order by deep.url_key
        limit 1
      ) as known
      where sent.skip_reason is null
      order by known.place, sent.depth
    ) as again
    where task.ctid = again.place
    returning task.status
  )
  select count(*), - count(*)
  into v_counts.pending, v_counts.skipped
  from revived;

  return v_counts;
end
$$;

comment on function silkline.revive_links(silkline.jobs, silkline.states, jsonb, boolean) is
  'Make URLs pending again that were too deep, and are found on a shorter path.';

revoke execute on function silkline.revive_links(silkline.jobs, silkline.states, jsonb, boolean)
  from public, anon, authenticated;

-- Skip URLs that the budget does not allow to begin: a bounded number per checkpoint.
create function silkline.skip_unpaid(p_job_id uuid)
  returns silkline.task_counts
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_counts silkline.task_counts;
begin
  update silkline.tasks as task
  set
    status = 'skipped',
    skip_reason = 'budget',
    finished_at = now()
  where task.ctid = any (
    array(
      select unpaid.ctid
      from silkline.tasks as unpaid
      where unpaid.job_id = p_job_id
        and unpaid.status = 'pending'
        and unpaid.crashes = 0
        and unpaid.attempts = 0
      order by unpaid.next_run_at
      limit 5000
    )
  );
  get diagnostics v_counts.skipped = row_count;
  v_counts.pending := - v_counts.skipped;
  return v_counts;
end
$$;

comment on function silkline.skip_unpaid(uuid) is
  'Skip pending URLs of a job whose budget is spent.';

revoke execute on function silkline.skip_unpaid(uuid) from public, anon, authenticated;

-- The state of a job after a batch, besides its counters. Its speed is smoothed over about ten
-- seconds; at first, over the whole run; without the time between two leases.
create function silkline.end_batch(
  p_job silkline.jobs,
  p_before silkline.states,
  p_state silkline.states,
  p_batch jsonb
)
  returns silkline.states
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_seconds constant double precision := extract(
    epoch from now() - case p_before.batch_token
      when p_job.lease_token then p_before.checkpoint_at
      else p_job.last_heartbeat
    end
  );
begin
  if v_seconds > 0 then
    p_state.pages_per_second := p_before.pages_per_second + (
      (
        p_state.total_done - p_before.total_done + p_state.total_error - p_before.total_error
      ) / v_seconds - p_before.pages_per_second
    ) * greatest(
      1 - exp(-v_seconds / 10),
      v_seconds / extract(epoch from now() - p_job.started_at)
    );
  end if;

  if p_batch ? 'redirected_starts' then
    p_state.redirected_starts := silkline.merge_starts(
      p_state.redirected_starts,
      p_batch -> 'redirected_starts'
    );
  end if;

  -- At most one live message per second, and one when the job drains.
  if p_before.progress_sent_at is null
    or p_before.progress_sent_at <= now() - interval '1 second'
    or (
      p_state.total_pending = 0
      and p_state.total_in_progress = 0
      and (p_before.total_pending > 0 or p_before.total_in_progress > 0)
    )
  then
    p_state.progress_sent_at := now();
  end if;

  p_state.current_url := coalesce(left(p_batch ->> 'current_url', 4096), p_state.current_url);
  p_state.seq := p_state.seq + 1;
  p_state.batch_token := p_job.lease_token;
  p_state.batch_seq := (p_batch -> 'seq')::integer;
  p_state.checkpoint_at := now();
  return p_state;
end
$$;

comment on function silkline.end_batch(silkline.jobs, silkline.states, silkline.states, jsonb) is
  'The state of a job after a batch: its speed, what it reported, and the number of the batch.';

revoke execute on function silkline.end_batch(
  silkline.jobs, silkline.states, silkline.states, jsonb
) from public, anon, authenticated;

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
  set enable_bitmapscan = 'off'
  set jit = 'off'
as $$
declare
  v_seq constant integer := silkline.check_batch(p_batch, p_want);
  v_job silkline.jobs;
  v_before silkline.states;
  v_state silkline.states;
  v_lacks_budget boolean;
  v_lease silkline.leased_tasks;
  v_leased uuid[];
  v_answer jsonb;
begin
  perform silkline.check_lease_token(p_lease_token);
  select job.* into v_job from silkline.lock_leases(array[p_lease_token]) as job;

  if v_job.id is null then
    return '{"command": "lost", "tasks": []}'::jsonb;
  end if;

  -- The results of a cancelled crawl are discarded.
  if v_job.status = 'cancelled' then
    update silkline.jobs as job set last_heartbeat = now() where job.id = v_job.id;
    return jsonb_build_object('command', 'cancel', 'job_id', v_job.id, 'tasks', '[]'::jsonb);
  end if;

  select state.* into v_before from silkline.states as state where state.job_id = v_job.id;
  v_state := v_before;

  if v_before.batch_token = p_lease_token and v_before.batch_seq >= v_seq then
    v_leased := silkline.tasks_of_batch(v_job, v_seq);
  else
    v_state := silkline.add_counts(
      v_state, silkline.finish_tasks(v_job, v_before, p_batch -> 'finished', p_batch)
    );
    v_state := silkline.add_counts(v_state, silkline.retry_tasks(v_job, p_batch));
    v_state := silkline.add_counts(v_state, silkline.check_copies(v_job.id, p_batch));

    -- The budget is spent, and nothing is in flight that could be refunded.
    v_lacks_budget := v_state.total_in_progress = 0
      and v_state.pages_spent >= silkline.page_budget(v_job.payload);

    v_state := silkline.add_counts(
      v_state,
      silkline.add_links(
        v_job, v_before, p_batch -> 'discovered', p_batch -> 'refused', v_lacks_budget
      )
    );
    v_state := silkline.add_counts(
      v_state, silkline.revive_links(v_job, v_before, p_batch, v_lacks_budget)
    );
    perform silkline.save_hosts(v_job, p_batch);

    if v_lacks_budget and v_state.total_pending > 0 then
      v_state := silkline.add_counts(v_state, silkline.skip_unpaid(v_job.id));
    end if;

    if v_job.status = 'processing' and p_want > 0 and v_state.total_pending > 0 then
      v_lease := silkline.lease_tasks(v_job, v_state, v_seq, p_want);
      v_state := silkline.add_counts(v_state, v_lease.counts);
      v_leased := v_lease.keys;
    end if;

    v_state := silkline.end_batch(v_job, v_before, v_state, p_batch);
    perform silkline.save_state(v_state);
  end if;

  update silkline.jobs as job
  set
    last_heartbeat = now(),
    progress_percentage = silkline.percent_done(v_state, silkline.page_budget(v_job.payload))
  where job.id = v_job.id
  returning job.* into v_job;

  v_answer := silkline.answer_checkpoint(v_job, v_state, p_batch, v_leased);

  if v_state.progress_sent_at is distinct from v_before.progress_sent_at then
    perform silkline.send_progress(v_job, v_answer -> 'progress');
  end if;

  return v_answer;
end
$$;

comment on function public.checkpoint_crawl_job(uuid, jsonb, integer) is
  'Store what a crawl did since the last checkpoint; returns the command and the next URLs.';

revoke execute on function public.checkpoint_crawl_job(uuid, jsonb, integer)
  from public, anon, authenticated;
grant execute on function public.checkpoint_crawl_job(uuid, jsonb, integer)
  to service_role, crawl_worker;

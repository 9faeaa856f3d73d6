-- What happens to URLs besides being fetched: copies are dropped for their original, and restored
-- if that is no substitute; the URLs of a lease that ends are freed. These functions run in calls
-- that hold the lock of the job, so nothing else writes its state and its tasks meanwhile.

-- How one step of a call has changed the counters of a job. Each step moves rows of tasks, and
-- returns what that adds to their counters; null means 0.
create type silkline.task_counts as (
  pending integer,
  in_progress integer,
  done integer,
  error integer,
  skipped integer,
  bytes bigint,
  new integer,
  changed integer,
  unchanged integer,
  spent integer,
  free integer,
  out_of_scope bigint,
  excluded bigint,
  invalid_url bigint,
  with_warnings integer,
  warnings jsonb  -- {kind: pages}
);

-- The state of a job after a step, in memory: save_state writes it.
create function silkline.add_counts(p_state silkline.states, p_counts silkline.task_counts)
  returns silkline.states
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  if p_counts is null then
    return p_state;
  end if;

  p_state.total_pending := p_state.total_pending + coalesce(p_counts.pending, 0);
  p_state.total_in_progress := p_state.total_in_progress + coalesce(p_counts.in_progress, 0);
  p_state.total_done := p_state.total_done + coalesce(p_counts.done, 0);
  p_state.total_error := p_state.total_error + coalesce(p_counts.error, 0);
  p_state.total_skipped := p_state.total_skipped + coalesce(p_counts.skipped, 0);
  p_state.total_bytes := p_state.total_bytes + coalesce(p_counts.bytes, 0);
  p_state.pages_new := p_state.pages_new + coalesce(p_counts.new, 0);
  p_state.pages_changed := p_state.pages_changed + coalesce(p_counts.changed, 0);
  p_state.pages_unchanged := p_state.pages_unchanged + coalesce(p_counts.unchanged, 0);
  p_state.pages_spent := p_state.pages_spent + coalesce(p_counts.spent, 0);
  p_state.pages_free := p_state.pages_free + coalesce(p_counts.free, 0);
  p_state.pages_with_warnings :=
    p_state.pages_with_warnings + coalesce(p_counts.with_warnings, 0);

  if p_counts.warnings is not null then
    p_state.page_warnings := (
      select jsonb_object_agg(warning.kind, warning.pages)
      from (
        select counted.kind, sum(counted.pages::integer) as pages
        from (
          select before.kind, before.pages
          from jsonb_each(p_state.page_warnings) as before (kind, pages)
          union all
          select added.kind, added.pages
          from jsonb_each(p_counts.warnings) as added (kind, pages)
        ) as counted
        group by counted.kind
      ) as warning
    );
  end if;

  if p_counts.out_of_scope + p_counts.excluded + p_counts.invalid_url > 0 then
    p_state.links_refused := (
      select coalesce(jsonb_object_agg(refused.reason, refused.links), '{}')
      from (
        select
          counted.reason,
          coalesce((p_state.links_refused -> counted.reason)::bigint, 0)
            + coalesce(counted.links, 0) as links
        from (
          values
            ('out_of_scope', p_counts.out_of_scope),
            ('excluded', p_counts.excluded),
            ('invalid_url', p_counts.invalid_url)
        ) as counted (reason, links)
      ) as refused
      where refused.links > 0
    );
  end if;

  return p_state;
end
$$;

comment on function silkline.add_counts(silkline.states, silkline.task_counts) is
  'The state of a job after a step that has changed its tasks.';

revoke execute on function silkline.add_counts(silkline.states, silkline.task_counts)
  from public, anon, authenticated;

create function silkline.save_state(p_state silkline.states)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  update silkline.states as state
  set
    total_pending = p_state.total_pending,
    total_in_progress = p_state.total_in_progress,
    total_done = p_state.total_done,
    total_error = p_state.total_error,
    total_skipped = p_state.total_skipped,
    total_bytes = p_state.total_bytes,
    pages_new = p_state.pages_new,
    pages_changed = p_state.pages_changed,
    pages_unchanged = p_state.pages_unchanged,
    pages_spent = p_state.pages_spent,
    pages_free = p_state.pages_free,
    pages_per_second = p_state.pages_per_second,
    current_url = p_state.current_url,
    redirected_starts = p_state.redirected_starts,
    links_refused = p_state.links_refused,
    pages_with_warnings = p_state.pages_with_warnings,
    page_warnings = p_state.page_warnings,
    seq = p_state.seq,
    batch_token = p_state.batch_token,
    batch_seq = p_state.batch_seq,
    checkpoint_at = p_state.checkpoint_at,
    progress_sent_at = p_state.progress_sent_at
  where state.job_id = p_state.job_id;
end
$$;

comment on function silkline.save_state(silkline.states) is
  'Write the state of a job, which the caller has locked.';

revoke execute on function silkline.save_state(silkline.states) from public, anon, authenticated;

-- A copy is a page whose canonical URL names another page, its original.

-- Mark the copies in a batch: pages whose canonical_key is another URL. The page counts as a copy
-- while its original is yet to be fetched, or if that was stored with the same title. What the
-- original turns out to be later is checked by restore_copies. p_found are the URLs that this
-- batch is about to add to the frontier.
create function silkline.mark_copies(
  p_job silkline.jobs,
  p_finished jsonb,
  p_found uuid[]
)
  returns uuid[]
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_copies uuid[];
begin
  with copies as (
    update silkline.tasks as task
    set
      copy_of = copy.canonical_key,
      copy_title = copy.title
    from (
      select
        held.place,
        sent.canonical_key,
        left(sent.page ->> 'title', 1000) as title
      from jsonb_to_recordset(p_finished) as sent (
        url_key uuid,
        status text,
        canonical_key uuid,
        page jsonb
      )
      -- lateral, order and limit: see silkline.describe_tasks
      cross join lateral (
        select leased.ctid as place
        from silkline.tasks as leased
        where leased.job_id = p_job.id
          and leased.url_key = sent.url_key
          and leased.status = 'in_progress'
          and leased.lease_token = p_job.lease_token
          and leased.copy_of is distinct from leased.url_key
        limit 1
      ) as held
      left join lateral (
        select
          known.status,
          known.skip_reason,
          known.page_id
        from silkline.tasks as known
        where known.job_id = p_job.id
          and known.url_key between sent.canonical_key and sent.canonical_key
        order by known.url_key
        limit 1
      ) as original
        on true
      left join lateral (
        select stored.title
        from public.crawl_pages as stored
        where stored.id = original.page_id
        limit 1
      ) as page
        on true
      where sent.status = 'done'
        and sent.canonical_key <> sent.url_key
        and case
          when original.status in ('pending', 'in_progress') then true
          when original.status = 'done'
            then original.page_id is not null
              and left(page.title, 1000) is not distinct from left(sent.page ->> 'title', 1000)
          when original.status is null or original.skip_reason = 'too_deep'
            then sent.canonical_key = any (p_found)
          else false
        end
    ) as copy
    where task.ctid = copy.place
    returning task.url_key
  )
  select coalesce(array_agg(copies.url_key), '{}')
  into v_copies
  from copies;

  return v_copies;
end
$$;

comment on function silkline.mark_copies(silkline.jobs, jsonb, uuid[]) is
  'Mark the pages of a batch that are copies of another page; returns their keys.';

revoke execute on function silkline.mark_copies(silkline.jobs, jsonb, uuid[])
  from public, anon, authenticated;

-- Restore the copies of these originals that have ended and are no substitute: no page was stored
-- for them, or one with another title. A restored copy is fetched again and kept. An original that
-- failed is refunded to the budget, because it was fetched in place of its copies.
create function silkline.restore_copies(p_job_id uuid, p_keys uuid[])
  returns silkline.task_counts
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_counts silkline.task_counts;
begin
  with lost as materialized (
    select
      copy.place,
      original.place as original_place,
      original.is_refunded
    from unnest(p_keys) as ended (url_key)
    -- lateral, order and limit: see silkline.describe_tasks
    cross join lateral (
      select
        task.ctid as place,
        -- Not the page of an earlier run, which a URL keeps when it is retried.
        case task.status when 'done' then task.page_id end as page_id,
        task.status = 'error' and task.attempts > 0 as is_refunded
      from silkline.tasks as task
      where task.job_id = p_job_id
        and task.url_key between ended.url_key and ended.url_key
        and task.status in ('done', 'error', 'skipped')
      order by task.url_key
      limit 1
    ) as original
    cross join lateral (
      select task.ctid as place, task.copy_title
      from silkline.tasks as task
      where task.job_id = p_job_id
        and task.copy_of between ended.url_key and ended.url_key
        and task.skip_reason = 'canonical'
      order by task.copy_of
      offset 0
    ) as copy
    left join lateral (
      select stored.title
      from public.crawl_pages as stored
      where stored.id = original.page_id
      limit 1
    ) as page
      on true
    where original.page_id is null
      or left(page.title, 1000) is distinct from copy.copy_title
  ),
  restored as (
    update silkline.tasks as task
    set
      status = 'pending',
      skip_reason = null,
      copy_of = task.url_key,
      copy_title = null,
      attempts = 0,
      crashes = 0,
      losses = 0,
      next_run_at = now(),
      finished_at = null
    where task.ctid = any (array(select lost.place from lost))
    returning task.url_key
  ),
  refunded as (
    update silkline.tasks as task
    set
      attempts = 0,
      crashes = 0
    where task.ctid = any (array(select lost.original_place from lost where lost.is_refunded))
    returning task.url_key
  )
  select
    (select count(*) from restored),
    (select - count(*) from restored),
    (select - count(*) from refunded),
    (select count(*) from refunded)
  into
    v_counts.pending,
    v_counts.skipped,
    v_counts.spent,
    v_counts.free;

  return v_counts;
end
$$;

comment on function silkline.restore_copies(uuid, uuid[]) is
  'Make copies pending again whose originals turned out to be no substitute.';

revoke execute on function silkline.restore_copies(uuid, uuid[])
  from public, anon, authenticated;

-- Free the URLs of a lease that ends, depending on what ended it:
--
--   release      the worker handed the job back
--   crash        its process died. p_suspects are the URLs that it was fetching; without a
--                list, all URLs of the lease are suspects. Each suspect is next leased alone.
--                If the process dies again, that URL is the cause: it ends as poison, and the
--                job continues without it.
--   worker_lost  no more heartbeats, which rarely is the fault of a page. A URL that was in
--                flight is only marked the first time; the second time counts as a crash. So a
--                page that kills machines is out after three, and a machine that died for
--                another reason costs its URLs nothing.
--
-- URLs that are not suspects get their attempt back, and with the first attempt their page of
-- the budget: they may never have been fetched. Returns how many URLs turned out to be poison.
-- A lease with no URL in flight costs one read of its state.
create function silkline.free_tasks(
  p_job_id uuid,
  p_cause text,
  p_suspects uuid[] default null
)
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_state silkline.states;
  v_counts silkline.task_counts;
  v_poison uuid[] := '{}'::uuid[];
begin
  select state.*
  into v_state
  from silkline.states as state
  where state.job_id = p_job_id;

  if v_state.total_in_progress = 0 then
    return 0;
  end if;

  if p_cause <> 'release' then
    with suspect as (
      update silkline.tasks as task
      set
        status = case when task.crashes > 0 then 'error' else 'pending' end
          ::public.crawl_task_status,
        last_error = case
          when task.crashes > 0 then 'poison: the process died twice while fetching this URL'
          else task.last_error
        end,
        finished_at = case when task.crashes > 0 then now() end,
        crashes = task.crashes + 1,
        lease_token = null,
        lease_seq = null
      where task.ctid = any (
        array(
          select leased.ctid
          from silkline.tasks as leased
          where leased.job_id = p_job_id
            and leased.status between 'in_progress' and 'in_progress'
            and case p_cause
              when 'crash'
                then p_suspects is null or coalesce(leased.url_key = any (p_suspects), false)
              else leased.losses > 0 or leased.crashes > 0
            end
          -- The order names the index: see silkline.describe_tasks.
          order by leased.status
        )
      )
      returning task.url_key, task.status
    )
    select
      count(*) filter (where suspect.status = 'pending'),
      count(*) filter (where suspect.status = 'error'),
      - count(*),
      coalesce(array_agg(suspect.url_key) filter (where suspect.status = 'error'), '{}')
    into
      v_counts.pending,
      v_counts.error,
      v_counts.in_progress,
      v_poison
    from suspect;
    v_state := silkline.add_counts(v_state, v_counts);

    if v_poison <> '{}' then
      v_state := silkline.add_counts(v_state, silkline.restore_copies(p_job_id, v_poison));
    end if;
  end if;

  v_counts := null;
  with other as (
    update silkline.tasks as task
    set
      status = 'pending',
      attempts = task.attempts - 1,
      losses = task.losses + (p_cause = 'worker_lost')::integer,
      lease_token = null,
      lease_seq = null
    where task.ctid = any (
      array(
        select leased.ctid
        from silkline.tasks as leased
        where leased.job_id = p_job_id
          and leased.status between 'in_progress' and 'in_progress'
        order by leased.status
      )
    )
    returning task.attempts
  )
  select
    count(*),
    - count(*),
    - count(*) filter (where other.attempts = 0)
  into
    v_counts.pending,
    v_counts.in_progress,
    v_counts.spent
  from other;

  perform silkline.save_state(silkline.add_counts(v_state, v_counts));

  return cardinality(v_poison);
end
$$;

comment on function silkline.free_tasks(uuid, text, uuid[]) is
  'Free the URLs of a lease that ends (release, crash, worker_lost); returns the poison count.';

revoke execute on function silkline.free_tasks(uuid, text, uuid[])
  from public, anon, authenticated;

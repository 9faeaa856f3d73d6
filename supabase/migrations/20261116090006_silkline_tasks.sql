-- What happens to URLs besides being fetched: copies are dropped for their original, and restored
-- if that is no substitute; the URLs of a lease that ends are freed. These functions run in calls
-- that hold the lock of the job.

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
      copy_of = sent.canonical_key,
      copy_title = left(sent.page ->> 'title', 1000)
    from jsonb_to_recordset(p_finished) as sent (
      url_key uuid,
      status text,
      canonical_key uuid,
      page jsonb
    )
    -- lateral and limit: see silkline.tasks_of_batch
    left join lateral (
      select
        known.status,
        known.skip_reason,
        known.page_id
      from silkline.tasks as known
      where known.job_id = p_job.id
        and known.url_key = sent.canonical_key
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
    where task.job_id = p_job.id
      and task.url_key = sent.url_key
      and task.status = 'in_progress'
      and task.lease_token = p_job.lease_token
      and task.copy_of is distinct from task.url_key
      and sent.status = 'done'
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
    returning task.url_key
  )
  select array_agg(copies.url_key)
  into v_copies
  from copies;

  return coalesce(v_copies, '{}');
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
  returns table (restored integer, refunded integer)
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return query
    with lost as materialized (
      select
        copy.place,
        original.place as original_place,
        original.is_refunded
      from unnest(p_keys) as ended (url_key)
      -- lateral and limit: see silkline.tasks_of_batch
      cross join lateral (
        select
          task.ctid as place,
          -- Not the page of an earlier run, which a URL keeps when it is retried.
          case task.status when 'done' then task.page_id end as page_id,
          task.status = 'error' and task.attempts > 0 as is_refunded
        from silkline.tasks as task
        where task.job_id = p_job_id
          and task.url_key = ended.url_key
          and task.status in ('done', 'error', 'skipped')
        limit 1
      ) as original
      cross join lateral (
        select task.ctid as place, task.copy_title
        from silkline.tasks as task
        where task.job_id = p_job_id
          and task.copy_of = ended.url_key
          and task.skip_reason = 'canonical'
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
    taken_back as (
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
    unpaid as (
      update silkline.tasks as task
      set
        attempts = 0,
        crashes = 0
      where task.ctid = any (array(select lost.original_place from lost where lost.is_refunded))
      returning task.url_key
    )
    select
      (select count(*) from taken_back)::integer,
      (select count(*) from unpaid)::integer;
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
  v_suspects integer := 0;
  v_poison uuid[] := '{}'::uuid[];
  v_restored integer := 0;
  v_refunded integer := 0;
  v_others integer;
  v_unpaid integer;
begin
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
      where task.job_id = p_job_id
        and task.status = 'in_progress'
        and case p_cause
          when 'crash' then p_suspects is null or coalesce(task.url_key = any (p_suspects), false)
          else task.losses > 0 or task.crashes > 0
        end
      returning task.url_key, task.status
    )
    select
      count(*) filter (where suspect.status = 'pending'),
      coalesce(array_agg(suspect.url_key) filter (where suspect.status = 'error'), '{}')
    into v_suspects, v_poison
    from suspect;

    if v_poison <> '{}' then
      select copies.restored, copies.refunded
      into v_restored, v_refunded
      from silkline.restore_copies(p_job_id, v_poison) as copies;
    end if;
  end if;

  with other as (
    update silkline.tasks as task
    set
      status = 'pending',
      attempts = task.attempts - 1,
      losses = task.losses + (p_cause = 'worker_lost')::integer,
      lease_token = null,
      lease_seq = null
    where task.job_id = p_job_id
      and task.status = 'in_progress'
    returning task.attempts
  )
  select count(*), count(*) filter (where other.attempts = 0)
  into v_others, v_unpaid
  from other;

  if v_suspects + cardinality(v_poison) + v_others > 0 then
    update silkline.states as state
    set
      total_in_progress = state.total_in_progress
        - v_suspects - cardinality(v_poison) - v_others,
      total_pending = state.total_pending + v_suspects + v_others + v_restored,
      total_error = state.total_error + cardinality(v_poison),
      total_skipped = state.total_skipped - v_restored,
      pages_spent = state.pages_spent - v_unpaid - v_refunded,
      pages_free = state.pages_free + v_refunded
    where state.job_id = p_job_id;
  end if;

  return cardinality(v_poison);
end
$$;

comment on function silkline.free_tasks(uuid, text, uuid[]) is
  'Free the URLs of a lease that ends (release, crash, worker_lost); returns the poison count.';

revoke execute on function silkline.free_tasks(uuid, text, uuid[])
  from public, anon, authenticated;

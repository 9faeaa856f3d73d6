-- Deletion: what is past its retention time, and what deleted jobs and accounts have left behind.
--
-- A job is deleted at once and whole: its row goes, and with it all that anyone can see of it. Its
-- state, URLs, history and audit are swept later, a slice at a time. Nobody writes to them any
-- more, because every writer first locks the row of the job. A deleted account is hidden by its row
-- in deleted_accounts; its jobs and pages are swept likewise.
--
-- What a worker or a user has locked is skipped, and left for the next run. So none of their calls
-- can deadlock with these.

-- Delete jobs that the caller has locked. Each host that one of them occupied or was next on goes
-- to the next job. Only hosts that a job is seen to wait for are locked, because the locks of a
-- large account could fill the lock table. If another call has locked the host, or sets a job aside
-- for it before this commits, unblock_overlooked_hosts does it within a minute.
create function silkline.delete_jobs(p_job_ids uuid[])
  returns integer
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_count integer;
  v_hosts text[];
  v_host text;
begin
  with deleted as (
    delete from silkline.jobs as job
    where job.id = any (p_job_ids)
    returning
      job.host,
      job.lease_check_at is not null
        or (job.status = 'pending' and job.waits_for is null) as frees_host
  )
  select count(*), array_agg(deleted.host) filter (where deleted.frees_host)
  into v_count, v_hosts
  from deleted;

  for v_host in
    select freed.host
    from unnest(v_hosts) as freed (host)
    where exists (
      select
      from silkline.jobs as job
      where job.status = 'pending'
        and job.waits_for = 'host'
        and job.host = freed.host
    )
  loop
    if silkline.try_lock('host', v_host) then
      perform silkline.unblock_next_for_host(v_host, 1);
    end if;
  end loop;

  return v_count;
end
$$;

comment on function silkline.delete_jobs(uuid[]) is
  'Delete locked jobs, and put the next jobs of their hosts in line.';

revoke execute on function silkline.delete_jobs(uuid[]) from public, anon, authenticated;

-- Delete what is older than the settings allow, for about p_seconds. The latest version of each
-- page stays; only outdated versions go.
create function silkline.prune(p_seconds double precision)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  c_slice constant integer := 1000;
  v_until constant timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
  v_settings public.crawl_settings;
  v_from timestamptz := '-infinity'::timestamptz;
  v_job_ids uuid[];
  v_page_ids bigint[];
  v_jobs integer := 0;
  v_pages integer := 0;
  v_hosts integer;
  v_workers integer;
begin
  select settings.* into v_settings from public.crawl_settings as settings;

  -- Each slice continues where the last one ended, to skip the index entries of deleted rows.
  loop
    select array_agg(job.id), max(job.completed_at)
    into v_job_ids, v_from
    from (
      select ended.id, ended.completed_at
      from silkline.jobs as ended
      where ended.completed_at < now() - make_interval(days => v_settings.keep_ended_jobs_days)
        and ended.completed_at >= v_from
      order by ended.completed_at
      limit c_slice
      for update skip locked
    ) as job;
    exit when v_job_ids is null;
    v_jobs := v_jobs + silkline.delete_jobs(v_job_ids);
    exit when clock_timestamp() > v_until;
  end loop;

  v_from := '-infinity'::timestamptz;
  loop
    select array_agg(page.id), max(page.last_seen_at)
    into v_page_ids, v_from
    from (
      select outdated.id, outdated.last_seen_at
      from public.crawl_pages as outdated
      where not outdated.is_latest
        and outdated.last_seen_at
          < now() - make_interval(days => v_settings.keep_old_page_versions_days)
        and outdated.last_seen_at >= v_from
      order by outdated.last_seen_at
      limit c_slice
      for update skip locked
    ) as page;
    exit when v_page_ids is null;

    delete from public.crawl_pages as page
    where page.id = any (v_page_ids);
    v_pages := v_pages + cardinality(v_page_ids);
    exit when clock_timestamp() > v_until;
  end loop;

  delete from public.crawl_hosts as host
  where host.host = any (
    array(
      select unused.host
      from public.crawl_hosts as unused
      where unused.updated_at < now() - make_interval(days => v_settings.keep_ended_jobs_days)
      order by unused.updated_at
      limit 10 * c_slice
      for update skip locked
    )
  );
  get diagnostics v_hosts = row_count;

  delete from public.crawl_workers as worker
  where worker.id = any (
    array(
      select gone.id
      from public.crawl_workers as gone
      where gone.last_seen_at < now() - interval '7 days'
      for update skip locked
    )
  );
  get diagnostics v_workers = row_count;

  delete from silkline.spent_tokens as spent
  where spent.spent_at < now() - interval '1 day';

  delete from silkline.quota_uses as spent
  where spent.hour < now() - interval '2 days';

  return jsonb_build_object(
    'jobs', v_jobs,
    'page_versions', v_pages,
    'hosts', v_hosts,
    'workers', v_workers
  );
end
$$;

comment on function silkline.prune(double precision) is
  'Delete what is past its retention time, for a bounded time per call.';

revoke execute on function silkline.prune(double precision) from public, anon, authenticated;

-- Delete the jobs and pages of deleted accounts, for about p_seconds. Open jobs go first, because
-- others may wait for their hosts.
create function silkline.sweep_deleted_accounts(p_seconds double precision)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  c_slice constant integer := 1000;
  v_until constant timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
  v_owner_id uuid;
  v_job_ids uuid[];
  v_page_ids bigint[];
  v_jobs integer := 0;
  v_pages integer := 0;
begin
  for v_owner_id in
    select account.owner_id
    from silkline.deleted_accounts as account
    where exists (
      select
      from silkline.jobs as job
      where job.owner_id = account.owner_id
    )
    or exists (
      select
      from public.crawl_pages as page
      where page.owner_id = account.owner_id
    )
    order by account.deleted_at
    for update skip locked
  loop
    delete from silkline.quota_uses as spent
    where spent.owner_id = v_owner_id;

    loop
      exit when clock_timestamp() > v_until;
      v_job_ids := array(
        select job.id
        from silkline.jobs as job
        where job.owner_id = v_owner_id
          and job.status in ('pending', 'processing', 'paused')
        order by job.status desc
        limit c_slice
        for update skip locked
      );

      if v_job_ids = '{}' then
        v_job_ids := array(
          select job.id
          from silkline.jobs as job
          where job.owner_id = v_owner_id
          order by job.created_at desc
          limit c_slice
          for update skip locked
        );
      end if;

      exit when v_job_ids = '{}';
      v_jobs := v_jobs + silkline.delete_jobs(v_job_ids);
    end loop;

    loop
      exit when clock_timestamp() > v_until;
      v_page_ids := array(
        select page.id
        from public.crawl_pages as page
        where page.owner_id = v_owner_id
        limit c_slice
        for update skip locked
      );
      exit when v_page_ids = '{}';

      delete from public.crawl_pages as page
      where page.id = any (v_page_ids);
      v_pages := v_pages + cardinality(v_page_ids);
    end loop;

    exit when clock_timestamp() > v_until;
  end loop;

  -- An account is remembered for as long as a JWT can be valid, so that none of its holder's calls
  -- succeeds, and what was written while it was deleted is found.
  delete from silkline.deleted_accounts as account
  where account.deleted_at < now() - interval '8 days'
    and not exists (
      select
      from silkline.jobs as job
      where job.owner_id = account.owner_id
    )
    and not exists (
      select
      from public.crawl_pages as page
      where page.owner_id = account.owner_id
    );

  return jsonb_build_object('jobs', v_jobs, 'pages', v_pages);
end
$$;

comment on function silkline.sweep_deleted_accounts(double precision) is
  'Delete the jobs and pages of deleted accounts, for a bounded time per call.';

revoke execute on function silkline.sweep_deleted_accounts(double precision)
  from public, anon, authenticated;

-- Delete the states, URLs, events and audits of deleted jobs, for about p_seconds. Many small jobs
-- share a slice; a large one takes several, each of which continues after the last key.
create function silkline.sweep_deleted_jobs(p_seconds double precision)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  c_jobs constant integer := 500;
  c_urls constant integer := 5000;
  v_until constant timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
  v_job_ids uuid[];
  v_last_id uuid := '00000000-0000-0000-0000-000000000000'::uuid;
  v_nth bigint;
  v_url_key uuid;
  v_count integer;
  v_jobs integer := 0;
  v_urls integer := 0;
begin
  loop
    v_job_ids := array(
      select deleted.job_id
      from silkline.deleted_jobs as deleted
      where deleted.job_id > v_last_id
      order by deleted.job_id
      limit c_jobs
      for update skip locked
    );
    exit when v_job_ids = '{}';
    v_last_id := v_job_ids[cardinality(v_job_ids)];
    v_nth := 1;
    v_url_key := '00000000-0000-0000-0000-000000000000';

    loop
      with slice as materialized (
        select task.place, task.url_key, job.nth
        from unnest(v_job_ids) with ordinality as job (id, nth)
        cross join lateral (
          select listed.ctid as place, listed.url_key
          from silkline.tasks as listed
          where listed.job_id = job.id
            and listed.url_key >= case job.nth
              when v_nth then v_url_key
              else '00000000-0000-0000-0000-000000000000'
            end
          order by listed.url_key
          limit c_urls
        ) as task
        where job.nth >= v_nth
        limit c_urls
      ),
      swept as (
        delete from silkline.tasks as task
        where task.ctid = any (array(select slice.place from slice))
      )
      select slice.nth, slice.url_key, (select count(*) from slice)
      into v_nth, v_url_key, v_count
      from slice
      order by slice.nth desc, slice.url_key desc
      limit 1;

      v_urls := v_urls + coalesce(v_count, 0);
      exit when coalesce(v_count, 0) < c_urls;

      if clock_timestamp() > v_until then
        return jsonb_build_object('swept_jobs', v_jobs, 'urls', v_urls);
      end if;
    end loop;

    delete from silkline.states as state
    where state.job_id = any (v_job_ids);

    delete from silkline.events as event
    where event.job_id = any (v_job_ids);

    delete from public.crawl_audits as audit
    where audit.job_id = any (v_job_ids);

    delete from silkline.deleted_jobs as deleted
    where deleted.job_id = any (v_job_ids);

    v_jobs := v_jobs + cardinality(v_job_ids);
    exit when clock_timestamp() > v_until;
  end loop;

  return jsonb_build_object('swept_jobs', v_jobs, 'urls', v_urls);
end
$$;

comment on function silkline.sweep_deleted_jobs(double precision) is
  'Delete what deleted jobs have left behind, for a bounded time per call.';

revoke execute on function silkline.sweep_deleted_jobs(double precision)
  from public, anon, authenticated;

-- Sweep deleted accounts, then deleted jobs, in about p_seconds.
create function silkline.sweep_deleted(p_seconds double precision)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_until constant timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
  v_swept constant jsonb := silkline.sweep_deleted_accounts(p_seconds / 2);
begin
  return v_swept
    || silkline.sweep_deleted_jobs(extract(epoch from v_until - clock_timestamp()));
end
$$;

comment on function silkline.sweep_deleted(double precision) is
  'Delete what deleted accounts and jobs have left behind, for a bounded time per call.';

revoke execute on function silkline.sweep_deleted(double precision)
  from public, anon, authenticated;

-- Pause, resume, stop, cancel and retry all jobs that match a filter.
--
-- A call changes a bounded number of jobs and says how many matched before it and how many are
-- left; the caller repeats it until none is. With p_limit 0 it only counts. So no call takes
-- long, none holds many locks, and a screen can ask "cancel 12,000 jobs?" before it does.

-- The strings of a key, which may hold one string or a list of them; null without the key.
create function silkline.texts_of(p_filter jsonb, p_key text)
  returns text[]
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return case jsonb_typeof(p_filter -> p_key)
    when 'array' then array(select jsonb_array_elements_text(p_filter -> p_key))
    when 'string' then array[p_filter ->> p_key]
  end;
end
$$;

comment on function silkline.texts_of(jsonb, text) is
  'The strings of a key of a filter.';

revoke execute on function silkline.texts_of(jsonb, text) from public, anon, authenticated;

-- The jobs of the caller that match a filter and that the action would change, in the order of
-- their ids, up to 100,000. p_user_id is for the service, which otherwise means the jobs of all.
create function silkline.matching_jobs(p_filter jsonb, p_action text, p_user_id uuid)
  returns setof uuid
  language plpgsql
  stable
  security invoker
  set search_path = ''
  -- A plan for these values: most of the conditions are not set.
  set plan_cache_mode = 'force_custom_plan'
as $$
declare
  v_caller_id constant uuid := silkline.owner_for(p_user_id);
  v_statuses constant text[] := silkline.texts_of(p_filter, 'status');
  v_job_ids constant uuid[] := silkline.texts_of(p_filter, 'job_ids')::uuid[];
  -- However it is spelled. What a list of URLs or a plugin's job occupies is not a host of a URL.
  v_host constant text := coalesce(
    (silkline.read_url('host', 'https://' || (p_filter ->> 'host'))).host,
    p_filter ->> 'host'
  );
begin
  return query
    select job.id
    from silkline.jobs as job
    where (v_caller_id is null or job.owner_id = v_caller_id)
      and job.status = any (
        case p_action
          when 'pause' then '{pending,processing}'
          when 'resume' then '{paused,stopped}'
          when 'retry' then '{failed,stopped,completed}'
          when 'stop' then '{pending,processing,paused}'
          when 'cancel' then '{pending,processing,paused}'
        end::public.crawl_job_status[]
      )
      and (v_statuses is null or job.status::text = any (v_statuses))
      and (v_job_ids is null or job.id = any (v_job_ids))
      and (v_host is null or job.host = v_host)
      and (p_filter -> 'source_id' is null or job.source_id = p_filter ->> 'source_id')
      and (p_filter -> 'kind' is null or job.kind = p_filter ->> 'kind')
      and (
        p_filter -> 'created_before' is null
        or job.created_at < (p_filter ->> 'created_before')::timestamptz
      )
      and (
        p_filter -> 'created_after' is null
        or job.created_at > (p_filter ->> 'created_after')::timestamptz
      )
      -- A stopped job whose worker is still saving cannot be retried yet, a completed one without
      -- failed URLs has nothing to retry, and one with too many would be refused.
      and (
        p_action <> 'retry'
        or (
          job.lease_check_at is null
          and exists (
            select
            from silkline.states as state
            where state.job_id = job.id
              and silkline.count_retried_urls(state, p_filter ->> 'urls') <= 100000
              and (
                job.status <> 'completed'
                or p_filter ->> 'urls' = 'all'
                or state.total_error + state.total_pending > 0
              )
          )
        )
      )
    order by job.id
    limit 100000;
end
$$;

comment on function silkline.matching_jobs(jsonb, text, uuid) is
  'The jobs of the caller that match a filter and that an action would change.';

revoke execute on function silkline.matching_jobs(jsonb, text, uuid)
  from public, anon, authenticated;

-- Refuse a filter that says nothing, or something unknown.
create function silkline.check_filter(p_filter jsonb, p_limit integer)
  returns void
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  c_keys constant text[] :=
    '{all,status,host,source_id,kind,created_before,created_after,job_ids}'::text[];
  v_error text;
  v_value text;
begin
  if jsonb_typeof(p_filter) is distinct from 'object' or p_filter = '{}' then
    raise sqlstate 'PT400' using
      message = 'p_filter must be an object that names jobs',
      hint = 'For example {"host": "example.com"}, or {"all": true} for all jobs.';
  end if;

  if pg_column_size(p_filter) > 65536 then
    raise sqlstate 'PT413' using
      message = format('p_filter has %s bytes, more than 65536', pg_column_size(p_filter)),
      hint = 'Name at most 1000 jobs.';
  end if;

  if p_limit is null or p_limit not between 0 and 1000 then
    raise sqlstate 'PT422' using
      message = format('p_limit must be from 0 to 1000, not %s', coalesce(p_limit::text, 'null')),
      hint = 'Repeat the call until nothing is left; 0 only counts.';
  end if;

  select case
    when entry.key <> all (c_keys)
      then format('unknown key %s in p_filter', to_json(left(entry.key, 60)))
    when entry.key = 'all' and entry.value <> 'true' then 'all must be true'
    when entry.key in ('host', 'source_id', 'kind') and jsonb_typeof(entry.value) <> 'string'
      then format('%s must be a string', entry.key)
    when entry.key in ('created_before', 'created_after')
      and (jsonb_typeof(entry.value) <> 'string' or not silkline.is_time(entry.value))
      then format(
        '%s must be a time such as 2026-12-31T08:00:00Z, not %s',
        entry.key, silkline.describe(entry.value)
      )
    when entry.key in ('status', 'job_ids')
      and jsonb_typeof(entry.value) not in ('string', 'array')
      then format('%s must be a string or a list of strings', entry.key)
    when entry.key = 'job_ids' and jsonb_typeof(entry.value) = 'array'
      and jsonb_array_length(entry.value) > 1000
      then 'job_ids may have at most 1000 entries'
  end
  into v_error
  from jsonb_each(p_filter) as entry
  order by 1 nulls last
  limit 1;

  if v_error is null then
    foreach v_value in array coalesce(silkline.texts_of(p_filter, 'status'), '{}') loop
      if v_value is null or v_value <> all (enum_range(null::public.crawl_job_status)::text[]) then
        v_error := format('unknown status %s', coalesce(to_json(left(v_value, 60))::text, 'null'));
      end if;
    end loop;

    foreach v_value in array coalesce(silkline.texts_of(p_filter, 'job_ids'), '{}') loop
      if v_value is null or v_value !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
        v_error := format(
          '%s is not the id of a job',
          coalesce(to_json(left(v_value, 60))::text, 'null')
        );
      end if;
    end loop;
  end if;

  if v_error is not null then
    raise sqlstate 'PT422' using
      message = v_error,
      hint = format('Keys of a filter are %s.', array_to_string(c_keys, ', '));
  end if;
end
$$;

comment on function silkline.check_filter(jsonb, integer) is
  'Raise unless this is a filter of jobs.';

revoke execute on function silkline.check_filter(jsonb, integer)
  from public, anon, authenticated;

-- The answer of a bulk call. matching_jobs counts up to 100,000.
create function silkline.bulk_answer(p_matched integer, p_changed integer)
  returns jsonb
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return jsonb_build_object(
    'matched', p_matched,
    'changed', p_changed,
    'left', p_matched - p_changed,
    'count_limit', 100000
  );
end
$$;

comment on function silkline.bulk_answer(integer, integer) is
  'The answer of a bulk call.';

revoke execute on function silkline.bulk_answer(integer, integer) from public, anon, authenticated;

-- Pause, resume, stop or cancel the jobs of the caller that match a filter. A job that another call
-- has locked is skipped, so that two calls at once share the work.
-- definer because users have no rights to write
create function silkline.change_matching_jobs(
  p_filter jsonb,
  p_action text,
  p_user_id uuid,
  p_limit integer
)
  returns jsonb
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_matching uuid[];
  v_job_ids uuid[];
  v_reopened integer;
begin
  perform silkline.check_filter(p_filter, p_limit);
  v_matching := array(select silkline.matching_jobs(p_filter, p_action, p_user_id));

  v_job_ids := array(
    select locked.id
    from unnest(v_matching) as matching (id)
    cross join lateral (
      select job.id
      from silkline.jobs as job
      where job.id = matching.id
        and silkline.status_after(p_action, job.status, job.lease_check_at is not null)
          <> job.status
      for no key update skip locked
    ) as locked
    limit p_limit
  );

  if p_action = 'resume' and not silkline.is_service() then
    select count(*)
    into v_reopened
    from silkline.jobs as job
    where job.id = any (v_job_ids)
      and job.status = 'stopped';
    perform silkline.check_open_jobs_quota(silkline.owner_for(p_user_id), v_reopened);
  end if;

  if v_job_ids <> '{}' then
    perform silkline.change_jobs(v_job_ids, p_action);
  end if;

  return silkline.bulk_answer(cardinality(v_matching), cardinality(v_job_ids));
end
$$;

comment on function silkline.change_matching_jobs(jsonb, text, uuid, integer) is
  'Pause, resume, stop or cancel the jobs of the caller that match a filter.';

revoke execute on function silkline.change_matching_jobs(jsonb, text, uuid, integer)
  from public, anon, authenticated;
grant execute on function silkline.change_matching_jobs(jsonb, text, uuid, integer)
  to authenticated, service_role;

create function public.pause_crawl_jobs(
  p_filter jsonb,
  p_limit integer default 1000,
  p_user_id uuid default null
)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return silkline.change_matching_jobs(p_filter, 'pause', p_user_id, p_limit);
end
$$;

comment on function public.pause_crawl_jobs(jsonb, integer, uuid) is
  'Pause the jobs that match a filter, p_limit at a time; returns how many are left.';

revoke execute on function public.pause_crawl_jobs(jsonb, integer, uuid)
  from public, anon, authenticated;
grant execute on function public.pause_crawl_jobs(jsonb, integer, uuid)
  to authenticated, service_role;

create function public.resume_crawl_jobs(
  p_filter jsonb,
  p_limit integer default 1000,
  p_user_id uuid default null
)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return silkline.change_matching_jobs(p_filter, 'resume', p_user_id, p_limit);
end
$$;

comment on function public.resume_crawl_jobs(jsonb, integer, uuid) is
  'Resume the jobs that match a filter, p_limit at a time; returns how many are left.';

revoke execute on function public.resume_crawl_jobs(jsonb, integer, uuid)
  from public, anon, authenticated;
grant execute on function public.resume_crawl_jobs(jsonb, integer, uuid)
  to authenticated, service_role;

create function public.stop_crawl_jobs(
  p_filter jsonb,
  p_limit integer default 1000,
  p_user_id uuid default null
)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return silkline.change_matching_jobs(p_filter, 'stop', p_user_id, p_limit);
end
$$;

comment on function public.stop_crawl_jobs(jsonb, integer, uuid) is
  'Stop the jobs that match a filter, p_limit at a time; returns how many are left.';

revoke execute on function public.stop_crawl_jobs(jsonb, integer, uuid)
  from public, anon, authenticated;
grant execute on function public.stop_crawl_jobs(jsonb, integer, uuid)
  to authenticated, service_role;

create function public.cancel_crawl_jobs(
  p_filter jsonb,
  p_limit integer default 1000,
  p_user_id uuid default null
)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return silkline.change_matching_jobs(p_filter, 'cancel', p_user_id, p_limit);
end
$$;

comment on function public.cancel_crawl_jobs(jsonb, integer, uuid) is
  'Cancel the jobs that match a filter, p_limit at a time; returns how many are left.';

revoke execute on function public.cancel_crawl_jobs(jsonb, integer, uuid)
  from public, anon, authenticated;
grant execute on function public.cancel_crawl_jobs(jsonb, integer, uuid)
  to authenticated, service_role;

-- Retry the jobs of the caller that match a filter, for at most about four seconds: a job may have
-- 100,000 URLs to retry.
-- definer because users have no rights to write
create function silkline.retry_matching_jobs(
  p_filter jsonb,
  p_urls text,
  p_user_id uuid,
  p_limit integer
)
  returns jsonb
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_began_at constant timestamptz := clock_timestamp();
  v_matching uuid[];
  v_job silkline.jobs;
  v_retried integer := 0;
begin
  perform silkline.check_filter(p_filter, p_limit);
  perform silkline.check_retried_urls(p_urls);
  v_matching := array(
    select silkline.matching_jobs(
      p_filter || jsonb_build_object('urls', p_urls), 'retry', p_user_id
    )
  );

  for v_job in
    select locked.*
    from unnest(v_matching) as matching (id)
    cross join lateral (
      select job.*
      from silkline.jobs as job
      where job.id = matching.id
        and job.status in ('failed', 'stopped', 'completed')
        and job.lease_check_at is null
      for no key update skip locked
    ) as locked
    limit p_limit
  loop
    perform silkline.restart_job(v_job, p_urls);
    v_retried := v_retried + 1;
    exit when clock_timestamp() > v_began_at + interval '4 seconds';
  end loop;

  return silkline.bulk_answer(cardinality(v_matching), v_retried);
end
$$;

comment on function silkline.retry_matching_jobs(jsonb, text, uuid, integer) is
  'Retry the jobs of the caller that match a filter.';

revoke execute on function silkline.retry_matching_jobs(jsonb, text, uuid, integer)
  from public, anon, authenticated;
grant execute on function silkline.retry_matching_jobs(jsonb, text, uuid, integer)
  to authenticated, service_role;

create function public.retry_crawl_jobs(
  p_filter jsonb,
  p_urls text default 'failed',
  p_limit integer default 1000,
  p_user_id uuid default null
)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  return silkline.retry_matching_jobs(p_filter, p_urls, p_user_id, p_limit);
end
$$;

comment on function public.retry_crawl_jobs(jsonb, text, integer, uuid) is
  'Retry the jobs that match a filter, p_limit at a time; returns how many are left.';

revoke execute on function public.retry_crawl_jobs(jsonb, text, integer, uuid)
  from public, anon, authenticated;
grant execute on function public.retry_crawl_jobs(jsonb, text, integer, uuid)
  to authenticated, service_role;

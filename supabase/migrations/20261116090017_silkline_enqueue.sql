-- Enqueuing: one job, or thousands, all or none.
--
-- The functions in public run with the caller's rights and contain no logic; those in silkline
-- check whose job it is, and write. The last three digits of an error code are its HTTP status:
-- PT400 malformed call, PT401 not signed in, PT403 not allowed, PT404 no such job, PT409 not in
-- this state, PT413 too large, PT422 wrong value, PT429 over the quota.

-- Refuse invalid jobs, with a message about the first error.
create function silkline.check_jobs(p_jobs jsonb, p_max_priority integer)
  returns void
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_kinds constant text[] := silkline.known_kinds();
  v_nth bigint;
  v_code text;
  v_error text;
  v_hint text;
begin
  if jsonb_typeof(p_jobs) is distinct from 'array' then
    raise sqlstate 'PT400' using
      message = 'p_jobs must be a list of objects',
      hint = 'For example [{"payload": {"url": "https://example.com"}}].';
  end if;

  if jsonb_array_length(p_jobs) not between 1 and 10000 then
    raise sqlstate 'PT422' using
      message = format(
        'p_jobs must have from 1 to 10000 entries, not %s',
        jsonb_array_length(p_jobs)
      ),
      hint = 'Split the call.';
  end if;

  if jsonb_path_exists(p_jobs, '$[*].kind ? (@ == "audit")') then
    raise sqlstate 'PT422' using
      message = 'jobs of kind audit are not available yet',
      hint = 'Use the kind crawl, or the kind of a plugin.';
  end if;

  select
    job.nth,
    problem.code,
    problem.error
  into v_nth, v_code, v_error
  from jsonb_array_elements(p_jobs) with ordinality as job (value, nth)
  cross join lateral (
    select
      coalesce(job.value ->> 'kind', 'crawl') as kind,
      job.value -> 'payload' as payload,
      job.value -> 'priority' as priority
  ) as asked
  cross join lateral (
    select
      case when pg_column_size(asked.payload) > 65536 then 'PT413' else 'PT422' end as code,
      case
        when jsonb_typeof(job.value) <> 'object' then 'a job must be an object'
        when job.value - '{payload,kind,priority,source_id,idempotency_key,run_after}'::text[]
          <> '{}'
          then 'a job may contain only payload, kind, priority, source_id, idempotency_key and '
            || 'run_after'
        when asked.kind <> all (v_kinds)
          then format('unknown kind %s', to_json(left(asked.kind, 60)))
        when pg_column_size(asked.payload) > 65536
          then format('the payload has %s bytes, more than 65536', pg_column_size(asked.payload))
        -- Only for plugins: the kind crawl has no free keys. A number of a few bytes may be long
        -- when written out.
        when asked.kind <> 'crawl'
          and exists (
            select
            from jsonb_path_query(asked.payload, '$.** ? (@.type() == "number")') as sent (number)
            where abs(sent.number::numeric) > 1e15
              or case sent.number::numeric
                -- 0e-16383 is written out, too.
                when 0 then scale(sent.number::numeric) > 15
                else abs(sent.number::numeric) < 1e-15
              end
          )
          then 'numbers in a payload must be between 1e-15 and 1e15'
        when asked.kind <> 'crawl'
          and jsonb_path_exists(asked.payload, 'strict $.**{21}')
          then 'a payload must not be nested deeper than 20 levels'
        when coalesce(jsonb_typeof(asked.priority), 'null') not in ('number', 'null')
          or coalesce((asked.priority #>> '{}') !~ '^-?[0-9]+$', false)
          then format('priority must be a whole number, not %s', left(asked.priority::text, 60))
        when (asked.priority #>> '{}')::numeric not between -100 and p_max_priority
          then format('priority must be from -100 to %s, not %s', p_max_priority, asked.priority)
        when coalesce(jsonb_typeof(job.value -> 'source_id'), 'null') not in ('string', 'null')
          or length(job.value ->> 'source_id') not between 1 and 500
          then 'source_id must be a string of 1 to 500 characters'
        when coalesce(jsonb_typeof(job.value -> 'idempotency_key'), 'null')
            not in ('string', 'null')
          or length(job.value ->> 'idempotency_key') not between 1 and 200
          then 'idempotency_key must be a string of 1 to 200 characters'
        when (job.value ->> 'run_after')
          !~ ('^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])'
            || '([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?'
            || '(Z|[+-][01][0-9](:?[0-5][0-9])?)?)?$')
          then format('run_after must be a time such as 2026-12-31T08:00:00Z, not %s',
            left((job.value -> 'run_after')::text, 60))
        when (job.value ->> 'run_after')::timestamptz > now() + interval '1 year'
          then 'run_after must be within a year'
      end as error
  ) as problem
  where problem.error is not null
  limit 1;

  if v_error is null then
    v_code := 'PT422';

    select found.nth, found.error, found.hint
    into v_nth, v_error, v_hint
    from silkline.find_payload_error(p_jobs) as found;
  end if;

  if v_error is null then
    return;
  end if;

  raise exception using
    errcode = v_code,
    message = case
      when jsonb_array_length(p_jobs) > 1 then format('job %s: %s', v_nth, v_error)
      else v_error
    end,
    hint = case
      when v_hint is not null then v_hint
      when v_error like 'unknown kind%'
        then format(
          'Use %s; the operator adds the kinds of plugins to crawl_settings.plugin_kinds.',
          array_to_string(v_kinds, ' or ')
        )
      when v_error like 'priority must be from%'
        then 'Users may go up to crawl_settings.max_user_priority.'
      else 'See the options of a job in docs/reference/options.md.'
    end;
end
$$;

comment on function silkline.check_jobs(jsonb, integer) is
  'Raise on the first invalid job.';

revoke execute on function silkline.check_jobs(jsonb, integer) from public, anon, authenticated;

-- Check and store jobs, all or none, and return one id per job in the same order. A known
-- idempotency key returns the job that it was first used for.
-- definer because users have no rights to write
create function silkline.enqueue(p_jobs jsonb, p_user_id uuid)
  returns uuid[]
  language plpgsql
  volatile
  security definer
  set search_path = ''
as $$
declare
  v_user_id constant uuid := silkline.owner_for(p_user_id);
  v_settings public.crawl_settings;
  v_new integer;
  v_ids uuid[];
  v_reused text;
begin
  select settings.* into v_settings from public.crawl_settings as settings;
  perform silkline.check_jobs(
    p_jobs,
    case when silkline.is_service() then 100 else v_settings.max_user_priority end
  );

  if p_user_id is not null and silkline.is_service()
    and not exists (select from auth.users as account where account.id = p_user_id)
  then
    raise sqlstate 'PT422' using
      message = format('there is no user %s', p_user_id),
      hint = 'p_user_id is the id of a row in auth.users.';
  end if;

  -- One enqueue at a time per owner, so that quota and idempotency keys are checked safely. The
  -- service has no quota, and needs this only for its idempotency keys.
  perform silkline.lock('enqueue', coalesce(v_user_id::text, ''))
  where v_user_id is not null
    or jsonb_path_exists(p_jobs, '$[*].idempotency_key');

  perform silkline.open_line(band.kind, band.priority)
  from (
    select distinct
      coalesce(job.value ->> 'kind', 'crawl') as kind,
      coalesce((job.value ->> 'priority')::integer, 0) as priority
    from jsonb_array_elements(p_jobs) as job (value)
  ) as band;

  with asked as materialized (
    select
      job.nth,
      silkline.new_id() as new_id,
      job.value ->> 'idempotency_key' as idempotency_key,
      coalesce(job.value ->> 'kind', 'crawl') as kind,
      coalesce((job.value ->> 'priority')::smallint, 0) as priority,
      job.value ->> 'source_id' as source_id,
      coalesce((job.value ->> 'run_after')::timestamptz, now()) as run_after,
      job.value -> 'payload' as payload
    from jsonb_array_elements(p_jobs) with ordinality as job (value, nth)
  ),
  defaults as materialized (
    select kind, silkline.payload_defaults(kind) as options
    from (select distinct asked.kind from asked) as used
  ),
  prepared as materialized (
    select
      asked.*,
      defaults.options || asked.payload as full_payload,
      coalesce(
        silkline.url_host(coalesce(asked.payload ->> 'url', asked.payload #>> '{urls,0}')),
        asked.kind
      ) as host,
      known.id as known_id,
      known.payload as known_payload,
      -- The same key twice in one call is one job as well.
      first_value(asked.nth) over (
        partition by coalesce(asked.idempotency_key, asked.nth::text), asked.idempotency_key is null
        order by asked.nth
      ) as first_nth
    from asked
    join defaults
      on defaults.kind = asked.kind
    left join silkline.jobs as known
      on known.idempotency_key = asked.idempotency_key
      and known.owner_id = coalesce(v_user_id, '00000000-0000-0000-0000-000000000000'::uuid)
  ),
  joined as materialized (
    select
      band.kind,
      band.priority,
      silkline.join_place(
        coalesce(v_user_id, '00000000-0000-0000-0000-000000000000'), band.kind, band.priority
      ) as place
    from (select distinct prepared.kind, prepared.priority::integer from prepared) as band
  ),
  fresh as (
    select
      prepared.*,
      joined.place
        + row_number() over (partition by prepared.kind, prepared.priority order by prepared.nth) - 1 as place,
      row_number() over (
        partition by prepared.host, prepared.run_after > now()
        order by prepared.priority desc, prepared.nth
      ) as nth_of_host
    from prepared
    join joined
      on joined.priority = prepared.priority
      and joined.kind = prepared.kind
    where prepared.known_id is null
      and prepared.first_nth = prepared.nth
  ),
  inserted as (
    insert into silkline.jobs (
      id,
      user_id,
      kind,
      payload,
      priority,
      source_id,
      host,
      idempotency_key,
      waits_for,
      place,
      run_after,
      max_retries
    )
    select
      fresh.new_id,
      v_user_id,
      fresh.kind,
      fresh.full_payload,
      fresh.priority,
      coalesce(fresh.source_id, fresh.host),
      fresh.host,
      fresh.idempotency_key,
      -- A job waits for earlier jobs of the same call on the same host. Whether it waits for a
      -- job of another call is left to a claim: that job may end before this one is committed.
      case
        when fresh.run_after > now() then 'time'
        when fresh.nth_of_host > v_settings.max_jobs_per_host then 'host'
      end::public.crawl_job_wait,
      fresh.place,
      fresh.run_after,
      coalesce((fresh.payload ->> 'max_retries')::integer, v_settings.default_max_retries)
    from fresh
    returning jobs.id
  )
  select
    (select count(*) from inserted),
    array_agg(coalesce(first.known_id, first.new_id) order by prepared.nth),
    min(prepared.idempotency_key) filter (
      where coalesce(first.known_payload, first.full_payload) <> prepared.full_payload
    )
  into v_new, v_ids, v_reused
  from prepared
  join prepared as first
    on first.nth = prepared.first_nth;

  if v_reused is not null then
    raise sqlstate 'PT409' using
      message = format('idempotency key %s was used for a different job', to_json(v_reused)),
      hint = 'Use a new key for a new job.';
  end if;

  if v_new > 0 then
    perform silkline.check_open_jobs_quota(coalesce(v_user_id, '00000000-0000-0000-0000-000000000000'), 0);
    perform silkline.spend_daily_quota(coalesce(v_user_id, '00000000-0000-0000-0000-000000000000'), v_new);
  end if;

  return v_ids;
end
$$;

comment on function silkline.enqueue(jsonb, uuid) is
  'Check and store jobs, all or none; returns their ids in order.';

revoke execute on function silkline.enqueue(jsonb, uuid) from public, anon, authenticated;
grant execute on function silkline.enqueue(jsonb, uuid) to authenticated, service_role;

-- Enqueue one job. The same idempotency key returns the same job.
create function public.enqueue_crawl_job(
  p_payload jsonb,
  p_kind text default 'crawl',
  p_priority integer default 0,
  p_source_id text default null,
  p_idempotency_key text default null,
  p_run_after timestamptz default null,
  p_user_id uuid default null
)
  returns setof public.crawl_jobs
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_ids constant uuid[] := silkline.enqueue(
    jsonb_build_array(
      jsonb_strip_nulls(
        jsonb_build_object(
          'kind', p_kind,
          'priority', p_priority,
          'source_id', p_source_id,
          'idempotency_key', p_idempotency_key,
          'run_after', p_run_after
        )
      ) || jsonb_build_object('payload', p_payload)
    ),
    p_user_id
  );
begin
  return query
    select job.*
    from public.crawl_jobs as job
    where job.id = v_ids[1];
end
$$;

comment on function public.enqueue_crawl_job(jsonb, text, integer, text, text, timestamptz, uuid) is
  'Enqueue one job; returns its row.';

revoke execute
  on function public.enqueue_crawl_job(jsonb, text, integer, text, text, timestamptz, uuid)
  from public, anon, authenticated;
grant execute
  on function public.enqueue_crawl_job(jsonb, text, integer, text, text, timestamptz, uuid)
  to authenticated, service_role;

-- Enqueue up to 10,000 jobs, all or none.
create function public.enqueue_crawl_jobs(p_jobs jsonb, p_user_id uuid default null)
  returns jsonb
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_ids constant uuid[] := silkline.enqueue(p_jobs, p_user_id);
begin
  return jsonb_build_object('count', cardinality(v_ids), 'job_ids', to_jsonb(v_ids));
end
$$;

comment on function public.enqueue_crawl_jobs(jsonb, uuid) is
  'Enqueue up to 10,000 jobs, all or none; returns their ids in order.';

revoke execute on function public.enqueue_crawl_jobs(jsonb, uuid)
  from public, anon, authenticated;
grant execute on function public.enqueue_crawl_jobs(jsonb, uuid)
  to authenticated, service_role;

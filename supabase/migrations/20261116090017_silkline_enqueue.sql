-- Enqueuing: one job, or thousands, all or none.
--
-- The functions in public run with the caller's rights and contain no logic; those in silkline
-- check whose job it is, and write. The last three digits of an error code are its HTTP status:
-- PT400 malformed call, PT401 not signed in, PT403 not allowed, PT404 no such job, PT409 not in
-- this state, PT413 too large, PT422 wrong value, PT429 over the quota.
--
-- silkline.enqueue is the way of a call: check_form, read_jobs, find_repeats, check_jobs, the
-- quotas, insert_jobs. Each step takes all jobs in one statement, because a function call per job
-- costs more than the rest of its work. Nothing is written before everything has been checked.

-- A job to enqueue.
create type silkline.new_job as (
  nth integer,
  id uuid,
  kind text,
  payload jsonb,  -- as it was sent
  priority smallint,
  source_id text,
  idempotency_key text,
  run_after timestamptz,  -- null: at once
  host text,  -- null: its URLs are refused
  request jsonb,  -- what an idempotency key stands for; null without a key
  repeats uuid  -- the job that its idempotency key was first used for
);

-- Refuse a job.
create function silkline.refuse(p_refusal silkline.refusal, p_count integer)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  raise exception using
    errcode = p_refusal.code,
    message = left(
      case when p_count > 1 then format('job %s: ', p_refusal.nth) else '' end
        || p_refusal.message,
      300
    ),
    hint = coalesce(
      p_refusal.hint,
      'See the options of a job in docs/reference/options.md.'
    );
end
$$;

comment on function silkline.refuse(silkline.refusal, integer) is
  'Raise the error of one of the jobs in a call.';

revoke execute on function silkline.refuse(silkline.refusal, integer)
  from public, anon, authenticated;

-- Whether a value is a time, or null, that Postgres can read. PostgreSQL 15 has no
-- pg_input_is_valid(), so this knows the calendar.
create function silkline.is_time(p_value jsonb)
  returns boolean
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
declare
  v_text constant text := case jsonb_typeof(p_value) when 'string' then p_value #>> '{}' end;
begin
  if v_text is null then
    return jsonb_typeof(p_value) = 'null';
  end if;

  if length(v_text) > 40
    or v_text !~ ('^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])'
      || '([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?'
      || '(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$')
    or v_text ~ '^0000'
  then
    return false;
  end if;

  return substr(v_text, 9, 2)::integer <= extract(
    day from make_date(left(v_text, 4)::integer, substr(v_text, 6, 2)::integer, 1)
      + interval '1 month'
      - interval '1 day'
  );
end
$$;

comment on function silkline.is_time(jsonb) is
  'Whether a value is a time in ISO 8601, or null.';

revoke execute on function silkline.is_time(jsonb) from public, anon, authenticated;

-- Refuse jobs that cannot be read: of the wrong form, or too large. What their payloads contain is
-- checked later.
create function silkline.check_form(p_jobs jsonb)
  returns void
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_first silkline.refusal;
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

  if jsonb_array_length(p_jobs) > 1 and pg_column_size(p_jobs) > 16777216 then
    raise sqlstate 'PT413' using
      message = format('p_jobs has %s bytes, more than 16777216', pg_column_size(p_jobs)),
      hint = 'Split the call.';
  end if;

  select job.nth, problem.code, problem.message, null
  into v_first
  from jsonb_array_elements(p_jobs) with ordinality as job (value, nth)
  cross join lateral (
    select
      job.value -> 'payload' as payload,
      job.value -> 'kind' as kind,
      job.value -> 'priority' as priority,
      job.value -> 'source_id' as source_id,
      job.value -> 'idempotency_key' as key,
      job.value -> 'run_after' as run_after
  ) as sent
  cross join lateral (
    select
      case when pg_column_size(sent.payload) > 65536 then 'PT413' else 'PT422' end as code,
      case
        when pg_column_size(sent.payload) > 65536
          then format('the payload has %s bytes, more than 65536', pg_column_size(sent.payload))
        when jsonb_typeof(job.value) <> 'object' then 'a job must be an object'
        when job.value - '{payload,kind,priority,source_id,idempotency_key,run_after}'::text[]
          <> '{}'
          then 'a job may contain only payload, kind, priority, source_id, idempotency_key and '
            || 'run_after'
        when jsonb_typeof(sent.payload) is distinct from 'object'
          then 'the payload must be a JSON object'
        when jsonb_typeof(sent.kind) not in ('string', 'null')
          then format('kind must be a string, not %s', silkline.describe(sent.kind))
        when sent.priority is not null and case jsonb_typeof(sent.priority)
          when 'number' then scale(sent.priority::numeric) > 0
          when 'null' then false
          else true
        end
          then format(
            'priority must be a whole number, not %s',
            silkline.describe(sent.priority)
          )
        when case jsonb_typeof(sent.priority)
          when 'number' then sent.priority::numeric not between -100 and 100
        end
          then format('priority must be from -100 to 100, not %s', silkline.describe(sent.priority))
        when sent.source_id is not null and case jsonb_typeof(sent.source_id)
          when 'string' then length(sent.source_id #>> '{}') not between 1 and 500
          when 'null' then false
          else true
        end
          then 'source_id must be a string of 1 to 500 characters'
        when sent.key is not null and case jsonb_typeof(sent.key)
          when 'string' then length(sent.key #>> '{}') not between 1 and 200
          when 'null' then false
          else true
        end
          then 'idempotency_key must be a string of 1 to 200 characters'
        when sent.run_after is not null and not silkline.is_time(sent.run_after)
          then format(
            'run_after must be a time such as 2026-12-31T08:00:00Z, not %s',
            silkline.describe(sent.run_after)
          )
      end as message
  ) as problem
  where problem.message is not null
  limit 1;

  if v_first.message is not null then
    perform silkline.refuse(v_first, jsonb_array_length(p_jobs));
  end if;
end
$$;

comment on function silkline.check_form(jsonb) is
  'Raise on the first job that cannot be read.';

revoke execute on function silkline.check_form(jsonb) from public, anon, authenticated;

-- Read jobs whose form is right, and give them ids and hosts.
create function silkline.read_jobs(p_jobs jsonb, p_owner_id uuid)
  returns silkline.new_job[]
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  -- The ids of a call have a counter, as RFC 9562 allows: they are in order, and one random number
  -- is enough for 10,000 jobs. Their ends differ too, because commands take the end of an id.
  v_id constant text := replace(silkline.new_id()::text, '-', '');
  v_plain constant text := silkline.plain_url();
begin
  return array(
    select
      row (
        job.nth,
        job.id,
        job.kind,
        job.payload,
        coalesce(job.priority, 0),
        job.source_id,
        job.idempotency_key,
        job.run_after,
        case
          when length(job.url) <= 300
            and job.url ~ v_plain
            and not job.payload ? 'urls'
            and job.payload -> 'strategy' is distinct from '"list"'
            then split_part(job.url, '/', 3)
          else silkline.job_host(job.kind, job.payload, p_owner_id, job.id)
        end,
        null,
        null
      )::silkline.new_job
    from (
      select
        sent.nth,
        (
          left(v_id, 16) || to_hex(32768 + sent.nth) || right(md5(v_id || sent.nth), 12)
        )::uuid as id,
        coalesce(sent.value ->> 'kind', 'crawl') as kind,
        sent.value -> 'payload' as payload,
        case
          when jsonb_typeof(sent.value #> '{payload,url}') = 'string'
            then sent.value #>> '{payload,url}'
        end as url,
        (sent.value ->> 'priority')::smallint as priority,
        sent.value ->> 'source_id' as source_id,
        sent.value ->> 'idempotency_key' as idempotency_key,
        (sent.value ->> 'run_after')::timestamptz as run_after
      from jsonb_array_elements(p_jobs) with ordinality as sent (value, nth)
      -- Keeps the planner from copying these expressions to each use.
      offset 0
    ) as job
    order by job.nth
  );
end
$$;

comment on function silkline.read_jobs(jsonb, uuid) is
  'Jobs as typed rows, with their ids and hosts.';

revoke execute on function silkline.read_jobs(jsonb, uuid) from public, anon, authenticated;

-- The fields in which two requests differ, for a message.
create function silkline.name_differences(p_one jsonb, p_other jsonb)
  returns text
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  return (
    select string_agg(differing.name, ', ' order by differing.nth)
      || case when max(differing.count) > 3 then ', ...' else '' end
    from (
      select
        left(field.name, 60) as name,
        row_number() over (order by field.name) as nth,
        count(*) over () as count
      from (
        select coalesce(one.key, other.key) as name
        from jsonb_each(p_one - 'payload') as one
        full join jsonb_each(p_other - 'payload') as other
          on other.key = one.key
        where one.value is distinct from other.value
        union all
        select 'payload.' || coalesce(one.key, other.key)
        from jsonb_each(p_one -> 'payload') as one
        full join jsonb_each(p_other -> 'payload') as other
          on other.key = one.key
        where one.value is distinct from other.value
      ) as field
    ) as differing
    where differing.nth <= 3
  );
end
$$;

comment on function silkline.name_differences(jsonb, jsonb) is
  'The names of the fields in which two requests differ; three at most.';

revoke execute on function silkline.name_differences(jsonb, jsonb)
  from public, anon, authenticated;

-- Note which jobs repeat another, in this call or an earlier one, because they have its idempotency
-- key; refuse a key that was used for something else. What the caller sent is compared, and not
-- what became of it: an operator who changes a setting turns no repeated call into another job.
create function silkline.find_repeats(p_jobs silkline.new_job[], p_owner_id uuid)
  returns silkline.new_job[]
  language plpgsql
  volatile  -- to see what was committed before the lock of the owner was acquired
  security invoker
  set search_path = ''
as $$
declare
  v_jobs silkline.new_job[];
  v_nth integer;
  v_known_request jsonb;
begin
  with asked as materialized (
    select
      job.*,
      case
        when job.idempotency_key is not null then jsonb_build_object(
          'kind', job.kind,
          'payload', job.payload,
          'priority', job.priority,
          'source_id', job.source_id,
          'run_after', job.run_after at time zone 'UTC'
        )
      end as sent
    from unnest(p_jobs) as job
  ),
  compared as (
    select
      asked.*,
      coalesce(known.id, nullif(first_value(asked.id) over same_key, asked.id)) as known_id,
      case
        when known.id is null then first_value(asked.sent) over same_key
        else known.idempotency_request
      end as known_request
    from asked
    left join silkline.jobs as known
      on known.owner_id = p_owner_id
      and known.idempotency_key = asked.idempotency_key
    where asked.idempotency_key is not null
    window same_key as (partition by asked.idempotency_key order by asked.nth)
  )
  select
    array_agg(
      row (
        asked.nth,
        asked.id,
        asked.kind,
        asked.payload,
        asked.priority,
        asked.source_id,
        asked.idempotency_key,
        asked.run_after,
        asked.host,
        asked.sent,
        compared.known_id
      )::silkline.new_job
      order by asked.nth
    ),
    min(asked.nth) filter (where compared.known_request <> asked.sent),
    (
      array_agg(compared.known_request order by asked.nth)
        filter (where compared.known_request <> asked.sent)
    )[1]
  into v_jobs, v_nth, v_known_request
  from asked
  left join compared
    on compared.nth = asked.nth;

  if v_nth is not null then
    perform silkline.refuse(
      row (
        v_nth,
        'PT409',
        format(
          'idempotency key %s was used for a job that differs in %s',
          to_json(left(v_jobs[v_nth].idempotency_key, 60)),
          silkline.name_differences(v_known_request, v_jobs[v_nth].request)
        ),
        'Use a new key for a new job.'
      )::silkline.refusal,
      cardinality(p_jobs)
    );
  end if;

  return v_jobs;
end
$$;

comment on function silkline.find_repeats(silkline.new_job[], uuid) is
  'Note which jobs repeat another one, by their idempotency keys; PT409 if one differs.';

revoke execute on function silkline.find_repeats(silkline.new_job[], uuid)
  from public, anon, authenticated;

-- Why users may not crawl a host of this job, or null.
create function silkline.host_refusal(p_job silkline.new_job)
  returns silkline.refusal
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_host text;
  v_rule text;
begin
  foreach v_host in array coalesce(
    (silkline.read_hosts(p_job.kind, p_job.payload)).hosts,
    '{}'
  )
  loop
    v_rule := silkline.rule_against_host(v_host);
    if v_rule is not null then
      return row (
        p_job.nth,
        'PT403',
        format('crawls of %s are not allowed (crawl_settings.%s)', left(v_host, 100), v_rule),
        'The operator of the queue sets the hosts that users may crawl.'
      )::silkline.refusal;
    end if;
  end loop;

  return null;
end
$$;

comment on function silkline.host_refusal(silkline.new_job) is
  'Why users may not crawl the hosts of a job, or null.';

revoke execute on function silkline.host_refusal(silkline.new_job)
  from public, anon, authenticated;

-- What is wrong with one job, apart from its options, or null.
create function silkline.job_refusal(p_job silkline.new_job, p_is_user boolean)
  returns silkline.refusal
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_read record;
begin
  if p_job.kind = 'audit' then
    return row (
      p_job.nth,
      'PT422',
      'jobs of kind audit are not available yet',
      'Use the kind crawl, or the kind of a plugin.'
    )::silkline.refusal;
  end if;

  if p_job.kind <> all (silkline.known_kinds()) then
    return row (
      p_job.nth,
      'PT422',
      format('unknown kind %s', to_json(left(p_job.kind, 60))),
      format(
        'Use %s; the operator adds the kinds of plugins to crawl_settings.plugin_kinds.',
        array_to_string(silkline.known_kinds(), ' or ')
      )
    )::silkline.refusal;
  end if;

  if p_job.run_after > now() + interval '1 year' then
    return row (p_job.nth, 'PT422', 'run_after must be within a year', null)::silkline.refusal;
  end if;

  if p_job.host is null then
    v_read := silkline.read_hosts(p_job.kind, p_job.payload);
    return row (p_job.nth, 'PT422', v_read.error, v_read.hint)::silkline.refusal;
  end if;

  if p_is_user then
    return silkline.host_refusal(p_job);
  end if;

  return null;
end
$$;

comment on function silkline.job_refusal(silkline.new_job, boolean) is
  'What is wrong with a job, apart from its options, or null.';

revoke execute on function silkline.job_refusal(silkline.new_job, boolean)
  from public, anon, authenticated;

-- Refuse new jobs that are not valid, or that the operator does not allow, with a message about the
-- first.
create function silkline.check_jobs(p_jobs silkline.new_job[], p_is_user boolean)
  returns void
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
declare
  v_kinds text[];
  v_has_host_rules boolean;
  v_sets silkline.option_set[];
  v_nth integer;
  v_first silkline.refusal;
begin
  select
    array_remove(array['crawl'] || settings.plugin_kinds, 'audit'),
    p_is_user
      and (settings.allowed_user_hosts is not null or settings.denied_user_hosts <> '{}')
  into v_kinds, v_has_host_rules
  from public.crawl_settings as settings;

  select array_agg(row (listed.nth, listed.kind, listed.options)::silkline.option_set)
  into v_sets
  from (
    select
      min(job.nth) as nth,
      job.kind,
      case job.kind
        when 'crawl' then job.payload - '{url,urls}'::text[]
        else job.payload
      end as options
    from unnest(p_jobs) as job
    where job.repeats is null
      and job.kind = any (v_kinds)
    group by 2, 3
  ) as listed
  where listed.options <> '{}';

  if v_sets is not null then
    v_first := silkline.find_option_error(v_sets, p_is_user);
  end if;

  select min(job.nth)
  into v_nth
  from unnest(p_jobs) as job
  where job.repeats is null
    and (
      job.kind <> all (v_kinds)
      or job.run_after > now() + interval '1 year'
      or job.host is null
      or (v_has_host_rules and (silkline.host_refusal(job)).code is not null)
    );

  if v_nth is not null and (v_first.nth is null or v_nth < v_first.nth) then
    v_first := silkline.job_refusal(p_jobs[v_nth], p_is_user);
  end if;

  if v_first.nth is not null then
    perform silkline.refuse(v_first, cardinality(p_jobs));
  end if;
end
$$;

comment on function silkline.check_jobs(silkline.new_job[], boolean) is
  'Raise on the first job that is not valid.';

revoke execute on function silkline.check_jobs(silkline.new_job[], boolean)
  from public, anon, authenticated;

-- Put new jobs in line.
create function silkline.insert_jobs(
  p_jobs silkline.new_job[],
  p_user_id uuid,
  p_owner_id uuid,
  p_is_user boolean
)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
declare
  v_settings public.crawl_settings;
  v_max_band integer;
begin
  select settings.*
  into v_settings
  from public.crawl_settings as settings;

  -- Above it, a user's priority orders only the jobs of that user.
  v_max_band := case when p_is_user then v_settings.max_user_priority else 100 end;

  perform silkline.open_line(line.lane, line.band)
  from (
    select distinct lanes.lane, least(job.priority, v_max_band) as band
    from unnest(p_jobs) as job
    -- Which of them a job joins depends on its defaults.
    cross join lateral (
      values (job.kind), (silkline.lane_of(job.kind, '{"fetcher": "browser"}'))
    ) as lanes (lane)
    where job.repeats is null
  ) as line;

  with defaults as materialized (
    select
      used.kind,
      case
        when p_is_user then silkline.user_defaults(used.kind)
        else silkline.payload_defaults(used.kind)
      end as options
    from (select distinct job.kind from unnest(p_jobs) as job where job.repeats is null) as used
  ),
  job as materialized (
    select
      listed.*,
      defaults.options || listed.payload as options,
      silkline.lane_of(
        listed.kind,
        jsonb_build_object(
          'fetcher', coalesce(listed.payload -> 'fetcher', defaults.options -> 'fetcher')
        )
      ) as lane,
      least(listed.priority, v_max_band) as band,
      coalesce(listed.run_after, now()) as due_at
    from unnest(p_jobs) as listed
    join defaults
      on defaults.kind = listed.kind
    where listed.repeats is null
  ),
  line as materialized (
    select
      used.lane,
      used.band,
      silkline.join_place(p_owner_id, used.lane, used.band) as place
    from (select distinct job.lane, job.band from job) as used
  ),
  ordered as (
    select
      job.*,
      row_number() over (
        partition by job.lane, job.band
        order by job.nth
      ) as nth_in_line,
      row_number() over (
        partition by job.host, job.due_at > now()
        order by job.priority desc, job.nth
      ) as nth_on_host
    from job
  )
  insert into silkline.jobs (
    id,
    user_id,
    kind,
    payload,
    priority,
    source_id,
    host,
    idempotency_key,
    idempotency_request,
    waits_for,
    place,
    run_after,
    max_retries
  )
  select
    job.id,
    p_user_id,
    job.kind,
    job.options,
    job.priority,
    case
      when job.source_id is not null then job.source_id
      when job.host = 'list of ' || p_owner_id then 'list'
      when job.host = job.kind || ':' || job.id then job.kind
      else job.host
    end,
    job.host,
    job.idempotency_key,
    job.request,
    -- A job waits for earlier jobs of the same call on the same host. Whether it waits for a job of
    -- another call is left to a claim: that job may end before this one is committed.
    case
      when job.due_at > now() then 'time'
      when job.nth_on_host > case
        when job.host like 'list of %' then v_settings.max_lists_per_user
        else v_settings.max_jobs_per_host
      end
        then 'host'
    end::public.crawl_job_wait,
    line.place + job.nth_in_line - 1,
    job.due_at,
    coalesce((job.payload -> 'max_retries')::integer, v_settings.default_max_retries)
  from ordered as job
  join line
    on line.lane = job.lane
    and line.band = job.band
  order by job.nth;
end
$$;

comment on function silkline.insert_jobs(silkline.new_job[], uuid, uuid, boolean) is
  'Put new jobs in line.';

revoke execute on function silkline.insert_jobs(silkline.new_job[], uuid, uuid, boolean)
  from public, anon, authenticated;

-- Check and store jobs, all or none, and return one id per job in the same order. A known
-- idempotency key returns the job that it was first used for.
-- definer because users have no rights to write
create function silkline.enqueue(p_jobs jsonb, p_user_id uuid)
  returns uuid[]
  language plpgsql
  volatile
  security definer
  set search_path = ''
  -- Planning its statements each time took most of the time of a call with one job. A plan made
  -- while the table was small must not scan it once it is large.
  set plan_cache_mode = 'force_generic_plan'
  set enable_seqscan = 'off'
  set jit = 'off'
as $$
declare
  v_is_user constant boolean := not silkline.is_service();
  v_user_id constant uuid := silkline.owner_for(p_user_id);
  v_owner_id constant uuid := coalesce(v_user_id, '00000000-0000-0000-0000-000000000000');
  v_jobs silkline.new_job[];
  v_new integer;
  v_ids uuid[];
begin
  if not v_is_user
    and p_user_id is not null
    and not exists (select from auth.users as account where account.id = p_user_id)
  then
    raise sqlstate 'PT422' using
      message = format('there is no user %s', p_user_id),
      hint = 'p_user_id is the id of a row in auth.users.';
  end if;

  perform silkline.check_form(p_jobs);
  v_jobs := silkline.read_jobs(p_jobs, v_owner_id);

  if exists (select from unnest(v_jobs) as job where job.idempotency_key is not null) then
    -- Two calls with the same new key must not both find it unused.
    perform silkline.lock('enqueue', v_owner_id::text);
    v_jobs := silkline.find_repeats(v_jobs, v_owner_id);
  end if;

  select
    count(*) filter (where job.repeats is null),
    array_agg(coalesce(job.repeats, job.id) order by job.nth)
  into v_new, v_ids
  from unnest(v_jobs) as job;

  if v_new > 0 then
    perform silkline.check_jobs(v_jobs, v_is_user);
    perform silkline.check_open_jobs_quota(v_owner_id, v_new);
    perform silkline.spend_daily_quota(v_owner_id, v_new);
    perform silkline.insert_jobs(v_jobs, v_user_id, v_owner_id, v_is_user);
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

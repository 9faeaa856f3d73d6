-- The checks of what a worker sends about its leases, and the storing of audits.

-- Refuse a missing token: it holds no lease, and never did.
create function silkline.check_lease_token(p_lease_token uuid)
  returns void
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  if p_lease_token is null then
    raise sqlstate 'PT400' using
      message = 'p_lease_token must not be null',
      hint = 'Send the token that the job was claimed with.';
  end if;
end
$$;

comment on function silkline.check_lease_token(uuid) is
  'Raise unless this is a lease token.';

revoke execute on function silkline.check_lease_token(uuid) from public, anon, authenticated;

-- Refuse a missing worker id.
create function silkline.check_worker_id(p_worker_id uuid)
  returns void
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  if p_worker_id is null then
    raise sqlstate 'PT400' using
      message = 'p_worker_id must not be null',
      hint = 'Send the uuid that the worker chose when it started.';
  end if;
end
$$;

comment on function silkline.check_worker_id(uuid) is
  'Raise unless this is the id of a worker.';

revoke execute on function silkline.check_worker_id(uuid) from public, anon, authenticated;

-- Refuse a list that cannot name leases.
create function silkline.check_lease_tokens(p_lease_tokens uuid[])
  returns void
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  -- One token is the usual case, and then this is the whole cost.
  if cardinality(p_lease_tokens) = 1 and p_lease_tokens[1] is not null then
    return;
  end if;

  if p_lease_tokens is null
    or array_ndims(p_lease_tokens) > 1
    or array_position(p_lease_tokens, null) is not null
  then
    raise sqlstate 'PT400' using
      message = 'p_lease_tokens must be a list of uuids without nulls',
      hint = 'Send one random uuid per job.';
  end if;

  if cardinality(p_lease_tokens) > 1
    and cardinality(p_lease_tokens) <> (
      select count(distinct token)
      from unnest(p_lease_tokens) as token
    )
  then
    raise sqlstate 'PT422' using
      message = 'p_lease_tokens contains the same token twice',
      hint = 'Send one random uuid per job.';
  end if;

  if cardinality(p_lease_tokens) > 1000 then
    raise sqlstate 'PT422' using
      message = format(
        'p_lease_tokens has %s tokens, more than 1000',
        cardinality(p_lease_tokens)
      ),
      hint = 'Split the call.';
  end if;
end
$$;

comment on function silkline.check_lease_tokens(uuid[]) is
  'Raise unless these are lease tokens.';

revoke execute on function silkline.check_lease_tokens(uuid[]) from public, anon, authenticated;

-- Refuse an impossible running time.
create function silkline.check_running_seconds(p_running_seconds real)
  returns void
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  if p_running_seconds between 0 and 604800 is not true then
    raise sqlstate 'PT422' using
      message = format(
        'p_running_seconds must be from 0 to 604800, not %s',
        coalesce(p_running_seconds::text, 'null')
      ),
      hint = 'Send how long the crawl ran under this lease.';
  end if;
end
$$;

comment on function silkline.check_running_seconds(real) is
  'Raise unless this is a possible running time of a lease.';

revoke execute on function silkline.check_running_seconds(real) from public, anon, authenticated;

-- Refuse a result that is no small object.
create function silkline.check_result(p_result jsonb)
  returns void
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  if jsonb_typeof(p_result) is distinct from 'object' or pg_column_size(p_result) > 65536 then
    raise sqlstate 'PT422' using
      message = 'p_result must be a JSON object of at most 64 KB',
      hint = 'Store large results as pages.';
  end if;
end
$$;

comment on function silkline.check_result(jsonb) is
  'Raise unless this is the result of a job.';

revoke execute on function silkline.check_result(jsonb) from public, anon, authenticated;

create function silkline.check_audit(p_audit jsonb)
  returns void
  language plpgsql
  immutable
  security invoker
  set search_path = ''
as $$
begin
  if not (
    jsonb_typeof(p_audit) = 'object'
    and p_audit ?& '{score,grade,categories,findings,ruleset_version}'
    and p_audit - '{score,grade,categories,findings,ruleset_version}'::text[] = '{}'
    and jsonb_typeof(p_audit -> 'score') = 'number'
    and p_audit -> 'score' between '0' and '100'
    and (p_audit -> 'score')::numeric % 1 = 0
  ) then
    raise sqlstate 'PT422' using
      message = 'p_audit must be an object with exactly the keys score, grade, categories, '
        || 'findings and ruleset_version',
      hint = 'score is a whole number from 0 to 100.';
  end if;

  if pg_column_size(p_audit) > 5000000 then
    raise sqlstate 'PT413' using
      message = format('p_audit has %s bytes, more than 5000000', pg_column_size(p_audit)),
      hint = 'Send each finding once, with examples.';
  end if;
end
$$;

comment on function silkline.check_audit(jsonb) is
  'Raise unless this is the result of an audit.';

revoke execute on function silkline.check_audit(jsonb) from public, anon, authenticated;

create function silkline.save_audit(p_job_id uuid, p_audit jsonb)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = ''
as $$
begin
  insert into public.crawl_audits as audit (
    job_id,
    owner_id,
    score,
    grade,
    categories,
    findings,
    ruleset_version
  )
  select
    job.id,
    job.owner_id,
    (p_audit ->> 'score')::smallint,
    p_audit ->> 'grade',
    p_audit -> 'categories',
    p_audit -> 'findings',
    p_audit ->> 'ruleset_version'
  from silkline.jobs as job
  where job.id = p_job_id
  on conflict (job_id) do update
  set
    score = excluded.score,
    grade = excluded.grade,
    categories = excluded.categories,
    findings = excluded.findings,
    ruleset_version = excluded.ruleset_version,
    created_at = now();
end
$$;

comment on function silkline.save_audit(uuid, jsonb) is
  'Store the result of an audit.';

revoke execute on function silkline.save_audit(uuid, jsonb) from public, anon, authenticated;

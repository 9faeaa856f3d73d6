-- "Why is my job not running?" Each reason has a code and a sentence.

-- Why a job of the caller is not running, as far as its owner may know: that another user's job
-- occupies the host, but not whose.
-- definer because the reasons are in rows of other users
create function silkline.explain_job(p_job_id uuid)
  returns jsonb
  language plpgsql
  stable
  security definer
  set search_path = ''
as $$
declare
  v_job constant silkline.jobs := silkline.own_job(p_job_id);
  v_settings public.crawl_settings;
  v_reasons jsonb := '[]'::jsonb;
  v_ahead bigint;
  v_holders bigint;
  v_limit integer;
  v_running bigint;
  v_wait jsonb;
begin
  select settings.* into v_settings from public.crawl_settings as settings;

  if v_job.status = 'pending' then
    if v_job.run_after > now() then
      v_reasons := v_reasons || jsonb_build_object(
        'code', case when v_job.attempt > 0 then 'backoff' else 'scheduled' end,
        'text', case
          when v_job.attempt = 0 then format('It is scheduled for %s.', v_job.run_after)
          when v_job.error_code is null then format(
            'Host %s asked to wait; the job continues after %s.',
            v_job.host, v_job.run_after
          )
          else format(
            'Attempt %s failed (%s); the job is retried after %s.',
            v_job.attempt, v_job.error_code, v_job.run_after
          )
        end,
        'until', v_job.run_after
      );
    end if;

    v_holders := silkline.count_jobs_on_host(v_job.host);
    v_limit := case
      when v_job.host like 'list of %' then v_settings.max_lists_per_user
      else v_settings.max_jobs_per_host
    end;

    if v_holders >= v_limit then
      v_reasons := v_reasons || jsonb_build_object(
        'code', 'host_busy',
        'text', case
          when v_job.host like 'list of %' then format(
            'Running lists of URLs of its owner: %s; the limit is %s.',
            v_holders, v_limit
          )
          else format(
            'Host %s is being crawled by %s other job%s; the limit is %s.',
            v_job.host, v_holders, case v_holders when 1 then '' else 's' end, v_limit
          )
        end
      );
    end if;

    if v_job.user_id is not null and v_settings.max_running_jobs_per_user is not null then
      v_running := silkline.count_leases(v_job.owner_id);

      if v_running >= v_settings.max_running_jobs_per_user then
        v_reasons := v_reasons || jsonb_build_object(
          'code', 'quota',
          'text', format(
            'Running jobs of its owner: %s; the limit is %s.',
            v_running, v_settings.max_running_jobs_per_user
          )
        );
      end if;
    end if;

    if not exists (
      select
      from public.crawl_workers as worker
      where worker.last_seen_at > now() - make_interval(secs => v_settings.stale_after_seconds)
        and (worker.kinds = '{}' or v_job.kind = any (worker.kinds))
        and (worker.can_render or v_job.lane = v_job.kind)
    ) then
      v_reasons := v_reasons || jsonb_build_object(
        'code', 'no_worker',
        'text', case
          when v_job.lane = v_job.kind then format('No live worker runs jobs of kind %s.', v_job.kind)
          else 'No live worker has a browser: install Chromium and silkline[browser] on one.'
        end
      );
    end if;

    if v_reasons = '[]' then
      select count(*)
      into v_ahead
      from (
        select
        from silkline.jobs as other
        where other.status = 'pending'
          and other.waits_for is null
          and other.lane = v_job.lane
          -- Below the floors are only index entries of jobs that have left the line.
          and other.place >= (
            select min(line.floor)
            from silkline.lines as line
            where line.lane = v_job.lane
          )
          and (other.place, other.id) < (v_job.place, v_job.id)
        limit 10000
      ) as ahead;

      v_reasons := jsonb_build_array(
        jsonb_build_object(
          'code', 'in_line',
          'text', case
            when v_ahead = 0 then 'It is next in line.'
            when v_ahead = 1 then 'One job is ahead of it in line.'
            when v_ahead = 10000 then 'At least 10000 jobs are ahead of it in line.'
            else format('%s jobs are ahead of it in line.', v_ahead)
          end,
          'jobs_ahead', v_ahead
        )
      );
    end if;
  else
    v_wait := silkline.own_job_wait(p_job_id);
    v_reasons := jsonb_build_array(
      case
        when v_job.status = 'processing' and v_job.last_heartbeat
          < now() - make_interval(secs => 3 * v_settings.heartbeat_every_seconds)
          then jsonb_build_object(
            'code', 'worker_silent',
            'text', format(
              'The last heartbeat of its worker was %s seconds ago; after %s another takes over.',
              floor(extract(epoch from now() - v_job.last_heartbeat)),
              v_settings.stale_after_seconds
            )
          )
        when v_job.status = 'processing'
          then jsonb_build_object(
            'code', 'running',
            'text', case v_wait ->> 'reason'
              when 'host' then format(
                'It is running; requests to host %s are on hold until %s.',
                v_job.host, v_wait ->> 'until'
              )
              when 'retry' then format(
                'It is running; the next URL is retried at %s (%s).',
                v_wait ->> 'until', coalesce(v_wait ->> 'error', 'it failed')
              )
              when 'delay' then format(
                'It is running; host %s gets one request every %s seconds.',
                v_job.host, v_wait ->> 'seconds'
              )
              else 'It is running.'
            end
          ) || case when v_wait is null then '{}' else jsonb_build_object('wait', v_wait) end
        when v_job.status = 'paused'
          then jsonb_build_object(
            'code', 'paused',
            'text', 'A user paused it; it continues when it is resumed.'
          )
        when v_job.status = 'failed'
          then jsonb_build_object(
            'code', 'failed',
            'text', format(
              'It failed %s: %s',
              case v_job.attempt
                when 1 then 'on its first attempt'
                else format('after %s attempts', v_job.attempt)
              end,
              coalesce(v_job.error_message, v_job.error_code)
            )
          )
        else jsonb_build_object(
          'code', v_job.status,
          'text', format('It was %s at %s.', v_job.status, v_job.completed_at)
        )
      end
    );
  end if;

  return jsonb_build_object('job_id', v_job.id, 'status', v_job.status, 'reasons', v_reasons);
end
$$;

comment on function silkline.explain_job(uuid) is
  'Why a job of the caller is not running.';

revoke execute on function silkline.explain_job(uuid) from public, anon, authenticated;
grant execute on function silkline.explain_job(uuid) to authenticated, service_role;

create function public.explain_crawl_job(p_job_id uuid)
  returns jsonb
  language plpgsql
  stable
  security invoker
  set search_path = ''
as $$
begin
  return silkline.explain_job(p_job_id);
end
$$;

comment on function public.explain_crawl_job(uuid) is
  'Why a job is not running: reasons, each with a code and a sentence.';

revoke execute on function public.explain_crawl_job(uuid) from public, anon, authenticated;
grant execute on function public.explain_crawl_job(uuid) to authenticated, service_role;

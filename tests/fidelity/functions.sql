-- Functions of every shape and error class that the fidelity tests call.
--
-- silkline_test is replaced by a prefix of the run, so that two runs on one project do not collide.
-- They write to no table but the one below, and are dropped at the end: tests/support/project.py.

create table public.silkline_test_things (
  id integer primary key,
  label text not null,
  made_at timestamptz
);
alter table public.silkline_test_things enable row level security;
revoke all on public.silkline_test_things from anon, authenticated, service_role;
grant select, insert on public.silkline_test_things to service_role;

insert into public.silkline_test_things (id, label, made_at)
values
  (1, 'one', '2026-01-02 03:04:05.678+00'),
  (2, 'two', null),
  (3, 'three', null);

-- Shapes

create function public.silkline_test_add(a integer, b integer)
  returns integer
  language sql
  immutable
  set search_path = ''
as $$
  select a + b;
$$;

create function public.silkline_test_echo(value jsonb)
  returns jsonb
  language sql
  immutable
  set search_path = ''
as $$
  select value;
$$;

create function public.silkline_test_types(
  p_text text,
  p_uuids uuid[],
  p_at timestamptz,
  p_flag boolean default true
)
  returns jsonb
  language sql
  stable
  set search_path = ''
as $$
  select jsonb_build_object('text', p_text, 'uuids', p_uuids, 'at', p_at, 'flag', p_flag);
$$;

create function public.silkline_test_null()
  returns text
  language sql
  immutable
  set search_path = ''
as $$
  select null::text;
$$;

create function public.silkline_test_void()
  returns void
  language sql
  immutable
  set search_path = ''
as $$
  select;
$$;

create function public.silkline_test_numbers()
  returns integer[]
  language sql
  immutable
  set search_path = ''
as $$
  select array[1, 2, 3];
$$;

create function public.silkline_test_thing(p_id integer)
  returns public.silkline_test_things
  language sql
  stable
  set search_path = ''
as $$
  select thing.*
  from public.silkline_test_things as thing
  where thing.id = p_id;
$$;

create function public.silkline_test_list(p_least integer default 1)
  returns setof public.silkline_test_things
  language sql
  stable
  set search_path = ''
as $$
  select thing.*
  from public.silkline_test_things as thing
  where thing.id >= p_least
  order by thing.id;
$$;

create function public.silkline_test_labels()
  returns setof text
  language sql
  stable
  set search_path = ''
as $$
  select thing.label
  from public.silkline_test_things as thing
  order by thing.id;
$$;

create function public.silkline_test_pairs()
  returns table (n integer, word text)
  language sql
  stable
  set search_path = ''
as $$
  select thing.id, thing.label
  from public.silkline_test_things as thing
  order by thing.id;
$$;

-- Who calls, and how

create function public.silkline_test_caller()
  returns jsonb
  language sql
  stable
  set search_path = ''
as $$
  select jsonb_build_object(
    'role', current_user,
    'uid', auth.uid(),
    'claimed_role', auth.role(),
    'method', current_setting('request.method', true),
    'path', current_setting('request.path', true),
    'client', current_setting('request.headers', true)::jsonb ->> 'x-client-info',
    'timeout', current_setting('statement_timeout'),
    'role_timeout', (
      select option.option_value
      from pg_catalog.pg_roles as role
      cross join pg_catalog.pg_options_to_table(role.rolconfig) as option
      where role.rolname = current_user
        and option.option_name = 'statement_timeout'
    )
  );
$$;

-- Errors

create function public.silkline_test_refuse()
  returns void
  language plpgsql
  volatile
  set search_path = ''
as $$
begin
  raise exception 'no such luck' using detail = 'the detail', hint = 'the hint';
end
$$;

create function public.silkline_test_teapot()
  returns void
  language plpgsql
  volatile
  set search_path = ''
as $$
begin
  raise sqlstate 'PT418' using message = 'short and stout', detail = 'a handle', hint = 'a spout';
end
$$;

create function public.silkline_test_twice(value integer)
  returns integer
  language sql
  immutable
  set search_path = ''
as $$
  select value * 2;
$$;

create function public.silkline_test_twice(value text)
  returns text
  language sql
  immutable
  set search_path = ''
as $$
  select value || value;
$$;

create function public.silkline_test_insert(p_id integer)
  returns void
  language sql
  volatile
  set search_path = ''
as $$
  insert into public.silkline_test_things (id, label)
  values (p_id, 'inserted');
$$;

-- Through the other function: plpgsql itself refuses an INSERT in a stable function.
create function public.silkline_test_insert_stably(p_id integer)
  returns void
  language plpgsql
  stable
  set search_path = ''
as $$
begin
  perform public.silkline_test_insert(p_id);
end
$$;

create function public.silkline_test_sleep()
  returns void
  language sql
  volatile
  set search_path = ''
  set statement_timeout = '150ms'
as $$
  select pg_catalog.pg_sleep(20);
$$;

do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select routine.oid
    from pg_catalog.pg_proc as routine
    where routine.pronamespace = 'public'::regnamespace
      and starts_with(routine.proname, 'silkline_test_')
  loop
    execute format('revoke execute on function %s from public', v_function);
    execute format(
      'grant execute on function %s to anon, authenticated, service_role',
      v_function
    );
  end loop;
end
$$;

notify pgrst, 'reload schema';

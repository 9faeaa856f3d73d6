-- What requests may name: functions, tables and the settings of roles, as one JSON value.
--
-- $1 is the array of exposed schemas. Run with an empty search_path, so that the names of types
-- come out qualified.
with
  arguments as (
    select
      routine.oid,
      jsonb_agg(
        jsonb_build_object(
          'name', coalesce(argument.name, ''),
          'type', case argument.type
            -- Types that would truncate or pad a value are replaced by ones that take any length.
            when 'bit'::regtype then 'bit varying'
            when 'bit[]'::regtype then 'bit varying[]'
            when 'character'::regtype then 'character varying'
            when 'character[]'::regtype then 'character varying[]'
            else argument.type::regtype::text
          end,
          'is_required', argument.number <= routine.pronargs - routine.pronargdefaults,
          'is_variadic', coalesce(argument.mode = 'v', false)
        )
        order by argument.number
      ) as list,
      -- A function with an unnamed argument is callable only if that is its one argument: the body.
      bool_and(coalesce(argument.name, '') <> '')
        or count(*) = 1 and bool_and(
          argument.type in (
            'bytea'::regtype,
            'json'::regtype,
            'jsonb'::regtype,
            'text'::regtype,
            'xml'::regtype
          )
        ) as is_callable
    from pg_catalog.pg_proc as routine
    cross join lateral (
      select
        input.name,
        input.type,
        input.mode,
        row_number() over (order by input.position) as number
      from unnest(
        coalesce(routine.proallargtypes, routine.proargtypes::oid[]),
        routine.proargnames,
        routine.proargmodes
      ) with ordinality as input (type, name, mode, position)
      where input.type is not null
        and coalesce(input.mode, 'i') in ('i', 'b', 'v')
    ) as argument
    where routine.pronamespace in (
      select oid from pg_catalog.pg_namespace where nspname = any ($1::text[])
    )
    group by routine.oid
  ),
  functions as (
    select
      jsonb_build_object(
        'schema', namespace.nspname,
        'name', routine.proname,
        'arguments', coalesce(arguments.list, '[]'),
        'is_set', routine.proretset,
        'is_composite',
          result.typtype = 'c'
          or coalesce(base.typtype = 'c', false)
          or coalesce(routine.proargmodes::text[] && '{t,b,o}', false),
        'is_row', result.typtype = 'c',
        'is_void', result.oid = 'void'::regtype,
        'is_volatile', routine.provolatile = 'v',
        'settings', coalesce(settings.pairs, '[]')
      ) as item
    from pg_catalog.pg_proc as routine
    join pg_catalog.pg_namespace as namespace
      on namespace.oid = routine.pronamespace
    join pg_catalog.pg_type as result
      on result.oid = routine.prorettype
    left join pg_catalog.pg_type as base
      on base.oid = result.typbasetype
    left join arguments
      on arguments.oid = routine.oid
    left join lateral (
      select
        jsonb_agg(
          jsonb_build_array(
            split_part(setting, '=', 1),
            substr(setting, strpos(setting, '=') + 1)
          )
        ) as pairs
      from unnest(routine.proconfig) as setting
    ) as settings
      on true
    where namespace.nspname = any ($1::text[])
      and routine.prokind = 'f'
      and result.oid not in ('trigger'::regtype, 'event_trigger'::regtype)
      and coalesce(arguments.is_callable, true)
  ),
  tables as (
    select
      jsonb_build_object(
        'schema', namespace.nspname,
        'name', relation.relname,
        'json_columns', coalesce(
          jsonb_agg(attribute.attname) filter (
            where attribute.atttypid in ('json'::regtype, 'jsonb'::regtype)
          ),
          '[]'
        )
      ) as item
    from pg_catalog.pg_class as relation
    join pg_catalog.pg_namespace as namespace
      on namespace.oid = relation.relnamespace
    left join pg_catalog.pg_attribute as attribute
      on attribute.attrelid = relation.oid
      and attribute.attnum > 0
      and not attribute.attisdropped
    where namespace.nspname = any ($1::text[])
      and relation.relkind in ('r', 'v', 'm', 'f', 'p')
      and not relation.relispartition
    group by namespace.nspname, relation.relname
  ),
  -- A setting for the database takes precedence over one for all databases.
  role_settings as (
    select distinct on (role.rolname, split_part(setting, '=', 1))
      role.rolname,
      split_part(setting, '=', 1) as name,
      substr(setting, strpos(setting, '=') + 1) as value
    from pg_catalog.pg_auth_members as membership
    join pg_catalog.pg_roles as role
      on role.oid = membership.roleid
    join pg_catalog.pg_db_role_setting as stored
      on stored.setrole = role.oid
    cross join lateral unnest(stored.setconfig) as setting
    where membership.member = current_user::regrole
      and stored.setdatabase in (
        0,
        (select oid from pg_catalog.pg_database where datname = current_database())
      )
    order by role.rolname, split_part(setting, '=', 1), stored.setdatabase desc
  ),
  roles as (
    select
      role_settings.rolname as name,
      jsonb_agg(jsonb_build_array(role_settings.name, role_settings.value)) as settings
    from role_settings
    join pg_catalog.pg_settings as known
      on known.name = role_settings.name
    where known.context = 'user'
      or has_parameter_privilege(current_user, known.name, 'set')
    group by role_settings.rolname
  )
select jsonb_build_object(
  'functions', coalesce((select jsonb_agg(item) from functions), '[]'),
  'tables', coalesce((select jsonb_agg(item) from tables), '[]'),
  'roles', coalesce((select jsonb_object_agg(name, settings) from roles), '{}')
)::text;

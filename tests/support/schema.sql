-- The schema of the queue as text, one statement per row: what docs/reference/schema.sql shows.
-- Functions are listed by their signature, because their bodies are in the migrations.
with
tables as (
  select
    relation.oid,
    relation.relkind,
    format('%I.%I', space.nspname, relation.relname) as name
  from pg_catalog.pg_class as relation
  join pg_catalog.pg_namespace as space
    on space.oid = relation.relnamespace
  where relation.relkind in ('r', 'v')
    and (
      space.nspname = 'silkline'
      or (space.nspname = 'public' and relation.relname like 'crawl\_%')
    )
),
functions as (
  select
    function.*,
    format('%I.%I', space.nspname, function.proname) as name,
    pg_get_function_identity_arguments(function.oid) as arguments
  from pg_catalog.pg_proc as function
  join pg_catalog.pg_namespace as space
    on space.oid = function.pronamespace
  where space.nspname = 'silkline'
    or (space.nspname = 'public' and function.proname ~ 'crawl_')
),
-- Rights that differ from none: 'select, insert to role'.
rights as (
  select
    granted.oid,
    granted.kind,
    granted.columns,
    string_agg(granted.privilege, ', ' order by granted.privilege) as privileges,
    granted.role
  from (
    select
      listed.oid,
      'table' as kind,
      null::text as columns,
      lower(item.privilege_type) as privilege,
      item.grantee::regrole::text as role
    from tables as listed
    join pg_catalog.pg_class as relation
      on relation.oid = listed.oid
    cross join lateral aclexplode(relation.relacl) as item
    where item.grantee in (select oid from pg_catalog.pg_roles where rolname in (
      'anon', 'authenticated', 'service_role', 'crawl_worker'))
    union all
    select
      listed.oid,
      'column',
      string_agg(attribute.attname, ', ' order by attribute.attnum),
      lower(item.privilege_type),
      item.grantee::regrole::text
    from tables as listed
    join pg_catalog.pg_attribute as attribute
      on attribute.attrelid = listed.oid
    cross join lateral aclexplode(attribute.attacl) as item
    group by listed.oid, item.privilege_type, item.grantee
    union all
    select
      listed.oid,
      'function',
      null,
      lower(item.privilege_type),
      item.grantee::regrole::text
    from functions as listed
    cross join lateral aclexplode(listed.proacl) as item
    where item.grantee in (select oid from pg_catalog.pg_roles where rolname in (
      'anon', 'authenticated', 'service_role', 'crawl_worker'))
  ) as granted
  group by granted.oid, granted.kind, granted.columns, granted.role
),
lines as (
  select
    1 as part,
    format('%I.%I', space.nspname, type.typname) as name,
    0 as nth,
    case type.typtype
      when 'e' then format(
        E'create type %I.%I as enum (\n%s\n);',
        space.nspname,
        type.typname,
        (
          select string_agg(format('  %L', label.enumlabel), E',\n' order by label.enumsortorder)
          from pg_catalog.pg_enum as label
          where label.enumtypid = type.oid
        )
      )
      else format(
        E'create type %I.%I as (\n%s\n);',
        space.nspname,
        type.typname,
        (
          select string_agg(
            format('  %I %s', field.attname, format_type(field.atttypid, field.atttypmod)),
            E',\n' order by field.attnum
          )
          from pg_catalog.pg_attribute as field
          where field.attrelid = type.typrelid
            and field.attnum > 0
        )
      )
    end as statement
  from pg_catalog.pg_type as type
  join pg_catalog.pg_namespace as space
    on space.oid = type.typnamespace
  left join pg_catalog.pg_class as relation
    on relation.oid = type.typrelid
  where (type.typtype = 'e' or relation.relkind = 'c')
    and (
      space.nspname = 'silkline'
      or (space.nspname = 'public' and type.typname like 'crawl\_%')
    )

  union all
  select
    2,
    listed.name,
    0,
    case listed.relkind
      when 'v' then format(
        E'create view %s%s as\n%s',
        listed.name,
        coalesce(' with (' || array_to_string(relation.reloptions, ', ') || ')', ''),
        pg_get_viewdef(listed.oid)
      )
      else format(
        E'create table %s (\n%s%s\n)%s;',
        listed.name,
        (
          select string_agg(
            format(
              '  %I %s%s%s%s',
              field.attname,
              format_type(field.atttypid, field.atttypmod),
              case field.attidentity when 'a' then ' generated always as identity' else '' end,
              case
                when field.attgenerated = 's' then format(
                  ' generated always as (%s) stored', pg_get_expr(value.adbin, value.adrelid)
                )
                else coalesce(' default ' || pg_get_expr(value.adbin, value.adrelid), '')
              end,
              case when field.attnotnull then ' not null' else '' end
            ),
            E',\n' order by field.attnum
          )
          from pg_catalog.pg_attribute as field
          left join pg_catalog.pg_attrdef as value
            on value.adrelid = field.attrelid
            and value.adnum = field.attnum
          where field.attrelid = listed.oid
            and field.attnum > 0
            and not field.attisdropped
        ),
        (
          select coalesce(
            string_agg(
              format(
                E',\n  constraint %I %s',
                rule.conname,
                regexp_replace(pg_get_constraintdef(rule.oid), '\s+', ' ', 'g')
              ),
              '' order by rule.contype desc, rule.conname
            ),
            ''
          )
          from pg_catalog.pg_constraint as rule
          where rule.conrelid = listed.oid
            and rule.contype in ('p', 'u', 'c', 'f')
        ),
        coalesce(' with (' || array_to_string(relation.reloptions, ', ') || ')', '')
      )
    end
  from tables as listed
  join pg_catalog.pg_class as relation
    on relation.oid = listed.oid

  union all
  select
    2,
    listed.name,
    10,
    string_agg(pg_get_indexdef(index.indexrelid) || ';', E'\n' order by relation.relname)
  from tables as listed
  join pg_catalog.pg_index as index
    on index.indrelid = listed.oid
  join pg_catalog.pg_class as relation
    on relation.oid = index.indexrelid
  where not exists (
    select
    from pg_catalog.pg_constraint as rule
    where rule.conindid = index.indexrelid
  )
  group by listed.name

  union all
  select
    2,
    listed.name,
    20,
    string_agg(pg_get_triggerdef(trigger.oid) || ';', E'\n' order by trigger.tgname)
  from tables as listed
  join pg_catalog.pg_trigger as trigger
    on trigger.tgrelid = listed.oid
  where not trigger.tgisinternal
  group by listed.name

  union all
  select
    2,
    listed.name,
    30,
    'alter table ' || listed.name || ' enable row level security;'
  from tables as listed
  join pg_catalog.pg_class as relation
    on relation.oid = listed.oid
  where relation.relrowsecurity

  union all
  select
    2,
    format('%I.%I', policy.schemaname, policy.tablename),
    40,
    string_agg(
      format(
        'create policy %I on %I.%I for %s to %s%s%s;',
        policy.policyname,
        policy.schemaname,
        policy.tablename,
        lower(policy.cmd),
        array_to_string(policy.roles, ', '),
        coalesce(' using ' || regexp_replace(policy.qual, '\s+', ' ', 'g'), ''),
        coalesce(' with check ' || regexp_replace(policy.with_check, '\s+', ' ', 'g'), '')
      ),
      E'\n' order by policy.policyname
    )
  from pg_catalog.pg_policies as policy
  where policy.schemaname = 'silkline'
    or (policy.schemaname = 'public' and policy.tablename like 'crawl\_%')
    or (policy.schemaname = 'realtime' and policy.tablename = 'messages')
  group by policy.schemaname, policy.tablename

  union all
  select
    2,
    listed.name,
    50,
    string_agg(
      format(
        'grant %s%s on %s to %s;',
        granted.privileges,
        coalesce(' (' || granted.columns || ')', ''),
        listed.name,
        granted.role
      ),
      E'\n' order by granted.role, granted.columns nulls first
    )
  from tables as listed
  join rights as granted
    on granted.oid = listed.oid
    and granted.kind in ('table', 'column')
  group by listed.name

  union all
  select
    3,
    listed.name || listed.arguments,
    0,
    format(
      E'create function %s(%s)\n  returns %s\n  %s %s%s%s;%s',
      listed.name,
      pg_get_function_arguments(listed.oid),
      pg_get_function_result(listed.oid),
      case listed.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
      case when listed.prosecdef then 'security definer' else 'security invoker' end,
      (
        select coalesce(string_agg(' set ' || setting, '' order by setting), '')
        from unnest(listed.proconfig) as setting
      ),
      '',
      (
        select coalesce(
          string_agg(
            format(
              E'\ngrant execute on function %s(%s) to %s;',
              listed.name, listed.arguments, granted.role
            ),
            '' order by granted.role
          ),
          ''
        )
        from rights as granted
        where granted.oid = listed.oid
          and granted.kind = 'function'
      )
    )
  from functions as listed
)
select lines.statement
from lines
order by lines.part, lines.name, lines.nth

-- Grant what postgres creates in schema public to the roles of the API, as projects created before
-- May 2026 did. Migrations must leave the same rights either way. Run as supabase_admin, after
-- bootstrap.sql; safe to run again.
--
-- Supabase has since revoked select, insert, update, delete, usage and execute from these
-- defaults. Older projects still grant the rest: truncate, references and trigger on tables, and
-- update on sequences, which is setval().

alter default privileges for role postgres in schema public
  grant all on tables to anon, authenticated, service_role;
alter default privileges for role postgres in schema public
  grant all on sequences to anon, authenticated, service_role;
alter default privileges for role postgres in schema public
  grant all on functions to anon, authenticated, service_role;

"""One process that answers as PostgREST and Realtime do, in front of the local Postgres."""

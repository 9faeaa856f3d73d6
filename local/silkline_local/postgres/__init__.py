"""Postgres for one machine: the server, and databases that look like Supabase's.

`server.py` runs the programs of the wheel; `privileges.py` and `unprivileged.py` see to it that it
does not run as root. `migrations.py` prepares a database (`bootstrap.sql`) and applies migrations.
Nothing here imports the rest of the stack, except its errors.
"""

"""Postgres for one machine: the server, and databases that look like Supabase's.

Start at `server.py`, which runs the programs of the wheel; `programs.py` and `unprivileged.py` keep
them from running as root. `migrations.py` prepares a database (`bootstrap.sql`) and applies
migrations. Nothing here imports the rest of the stack, except its errors.
"""

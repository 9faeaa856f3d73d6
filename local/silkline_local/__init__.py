"""A Supabase stand-in for one machine: Postgres, REST, Realtime and the dashboard in one process.

Start at `stack.py`, which starts the parts in order: the server and its migrations (`postgres/`),
the API (`gateway/`), maintenance (`cron.py`). `cli.py` holds the commands, `launch.py` runs a stack
in this process or in the background, `directory.py` and `lock.py` hold what it keeps on disk.
"""

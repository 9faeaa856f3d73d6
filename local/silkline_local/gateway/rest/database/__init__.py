"""How requests reach Postgres: `pool.py` lends connections, `transaction.py` runs a request on one.

`schema_cache.py` holds the functions and tables that requests may name; `watcher.py` reloads it.
"""

"""One process that answers as PostgREST and Realtime do, in front of the local Postgres.

Start at `app.py`, which joins the services: `rest/`, `realtime/` and `dashboard.py`. They share
`callers.py` (who is calling) and `http.py` (bodies, headers, refusals).
"""

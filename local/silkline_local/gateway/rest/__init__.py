"""REST as PostgREST answers it: calls of functions, and reads of tables and views.

Start at `routes.py`. A request is read (`request.py`, `query/`), run in one transaction
(`backend.py`, `database/`) and answered (`response.py`); `calls.py` does this for functions and
`tables.py` for tables. `errors.py` words everything that is refused.
"""

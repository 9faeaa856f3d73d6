"""The query string of a request: `parser.py` reads it, `model.py` holds it, `sql.py` writes it.

`ranges.py` combines `limit`, `offset` and the `Range` header. Nothing here talks to a database.
"""

"""Realtime as Supabase's server speaks it: private channels and broadcasts.

Start at `routes.py`, which opens a `socket.py` per client. A client joins a channel (`join.py`,
`authorization.py`) and gets the broadcasts of its topic (`channels.py`). They come from other
clients, over HTTP (`rest_broadcast.py`), or from the database (`stream.py`, `delivery.py`).
"""

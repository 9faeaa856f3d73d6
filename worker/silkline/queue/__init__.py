"""Calls to the database: `rpc.py` calls its functions, `rows.py` has their answers as types,
`realtime.py` sends and receives live messages.
"""

"""The HTTP client of the tests: patient, and quick.

`httpx.get` reads the certificates of the system each time, which takes longer than most calls of a
test. Each call has a connection of its own: the server may have been another one before.
"""

import httpx

http = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))

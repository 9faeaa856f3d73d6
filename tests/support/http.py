"""The HTTP client of the tests, with a long timeout.

`httpx.get` loads the certificates of the system each time, which takes longer than most calls of a
test. Each call opens a new connection: the server may have been restarted in between.
"""

import httpx

http = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))

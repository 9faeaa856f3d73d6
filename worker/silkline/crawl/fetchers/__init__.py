"""One URL to a `Fetched`, whichever way it is requested.

http       conditional requests, and what statuses and errors mean; start reading here
browser    requests whose pages a browser renders
rendering  one page in the browser
chromium   find, start and confine Chromium
proxy      the browser's only way out, through the egress
plugin     requests that a plugin makes
"""

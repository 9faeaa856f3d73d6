"""The crawl engine, as it runs inside a runner.

job.py          puts the parts together for one job; start reading here
loop.py         leases URLs, fetches a bounded number at a time, hands in
visits.py       one URL from its turn to its end
frontier.py     what is said to the database about URLs
hosts.py        when each host may be asked again          manners.py   robots.py and backoff
strategies.py   where a crawl begins, what it follows      retries.py   what is tried again
scope.py traps.py seen.py urls.py                          which links are followed, and their keys

http.py         a request and what its answer means
egress.py       the only way out; addresses.py, resolver.py, exchange.py, connection.py, bodies.py
                behind it; tls.py says whom it trusts, egress_errors.py what goes wrong
browser.py      pages that need one; chromium.py, proxy.py behind it
reading.py      from a response to a page; document_kinds.py, charsets.py, directives.py,
                elsewhere.py, sitemap.py, llms_txt.py
extract/        HTML to facts, links and Markdown          pages.py     the record of a page

plugins.py      what other packages add; plugged.py and drafts.py put it in place
options.py      the options of a job                       fetched.py   what came of a URL
link.py         the runner's end of the pipe
"""

"""One job from its first URL to its end.

job          puts the parts together for a job; start reading here
loop         leases URLs, fetches a bounded number at a time, saves results
visits       one URL, from its turn to its outcome
frontier     what is sent to the database about URLs
hosts        when each host may be asked again
host_rules   robots.txt, Crawl-delay and backoff of a host, before it is crawled
robots       the parser and matcher of robots.txt
strategies   where a crawl starts, and which links it follows
scope traps  which links are in scope, and which lead into endless sites
"""

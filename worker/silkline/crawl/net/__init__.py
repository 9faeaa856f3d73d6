"""The only way out: everything a crawl fetches goes through `Egress`.

egress        one request, checked, bounded in size and time
addresses     which addresses may be reached
resolver      DNS lookups, cached and checked
session       one exchange over aiohttp, and its errors in our words
lenient_http  responses that browsers accept and aiohttp's parser does not
decoding      bodies, decompressed within a limit
tls           the certificates that are trusted
"""

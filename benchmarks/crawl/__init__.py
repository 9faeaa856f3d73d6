"""The crawler, next to Scrapy, Crawlee and a bare loop."""

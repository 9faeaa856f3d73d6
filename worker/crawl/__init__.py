"""The crawl engine, as it runs inside a runner. Start reading at job.py, then loop.py."""

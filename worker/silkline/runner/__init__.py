"""The subprocess of one job: `main.py` starts it, `isolation.py` is its sandbox, `channel.py` its
end of the pipe to the supervisor. What it runs is in `silkline/crawl`.
"""

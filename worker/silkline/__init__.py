"""Silkline: a crawl queue that lives in Supabase.

cli/          what a person types
supervisor/   the worker: claims jobs, runs each in a subprocess, saves, kills, reports
queue/        what is said to the database
runner/       the subprocess of one job
crawl/        the crawl that it runs

The modules next to these folders are leaves that every folder may import. docs/explanation/
architecture.md follows one job and one page through the code.
"""

__version__ = '0.1.0'

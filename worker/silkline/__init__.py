"""Silkline: a crawl queue that lives in Supabase."""

__version__ = '0.1.0'

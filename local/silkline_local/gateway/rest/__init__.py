"""REST as PostgREST answers it: functions, and reads of tables."""

from silkline_local.gateway.rest.routes import Rest

__all__ = ['Rest']

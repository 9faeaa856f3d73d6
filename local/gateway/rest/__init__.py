"""REST as PostgREST answers it: functions, and reads of tables."""

from local.gateway.rest.routes import Rest

__all__ = ['Rest']

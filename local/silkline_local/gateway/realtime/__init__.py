"""Realtime as Supabase's server speaks it: private channels and broadcasts."""

from silkline_local.gateway.realtime.routes import Realtime

__all__ = ['Realtime']

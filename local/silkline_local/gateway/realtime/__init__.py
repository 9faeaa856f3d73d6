"""Realtime as Supabase's server speaks it: private channels and broadcasts."""

from silkline_local.gateway.realtime.limits import FREE_TIER, Limits
from silkline_local.gateway.realtime.routes import Realtime

__all__ = ['FREE_TIER', 'Limits', 'Realtime']

"""A Supabase stand-in for one machine."""

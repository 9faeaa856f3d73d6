"""The local stack: its start, its calls and its broadcasts."""

"""Every performance claim of the queue, as a command."""

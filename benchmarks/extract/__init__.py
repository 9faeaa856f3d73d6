"""The extraction of main content: its quality and its speed."""

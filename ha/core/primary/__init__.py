"""The side that serves: its backups, what it sends them, and what waits for them."""

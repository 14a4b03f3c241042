"""Several ways between nodes."""

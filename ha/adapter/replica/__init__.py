"""The model of a backup: what the link brings goes into it, and into the store."""

"""What stored users may do, and how much."""

"""Virtual hosts, their definitions, the directory, and enqueueing."""

"""Replication and failover, over the hooks of the broker."""

import understudy.shared  # noqa: F401  # first of all: it finds the compiled modules

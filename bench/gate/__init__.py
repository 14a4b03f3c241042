"""A gate against getting slower: `make bench-gate`."""

"""The adapter between ha's core and the broker: hooks, links, store, timers and management."""

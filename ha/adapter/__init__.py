"""Where ha meets the broker: hooks to core, core to links, store, timers and management."""

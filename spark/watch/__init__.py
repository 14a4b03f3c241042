"""Live: follows ledgers while they grow and raises an alarm when a loss is certain (docs/how-to/watch.md).

`tail` and `lines` read, `source` puts them behind Spark's stream interface, `judge` decides, `query` makes
both one exactly-once stream, `sinks` tell the world.
"""

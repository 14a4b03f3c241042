"""Follows ledgers while they grow, and raises an alarm when a loss is certain (docs/how-to/watch.md).

`tail` plans what to read, `lines` parses it, and `source` offers both as a Spark stream source. `judge`
decides. `query` runs the stream, exactly once. `sinks` send the alarms out.
"""

"""Conversations that nobody should hold: drawn from a seed, right in most of their frames and wrong in some.

`words091` and `words10` draw them, `mutations` spoils them, `machines` holds them with a broker without
sockets, `sockets` with a real process. `python -m tests.hostile.fuzz` runs for as long as it is told.
"""

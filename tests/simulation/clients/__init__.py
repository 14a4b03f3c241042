"""Clients of a run: what they declare, say and expect; their own codec."""

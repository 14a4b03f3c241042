"""The in-sync set: which nodes may be promoted, and who keeps that record."""

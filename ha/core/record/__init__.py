"""The in-sync set: who may be promoted, who keeps that record, and where."""

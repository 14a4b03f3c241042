"""Operators' operations on queues, exchanges, bindings, messages and connections."""

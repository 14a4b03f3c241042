"""Exchanges and bindings, and the routes of messages."""

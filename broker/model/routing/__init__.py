"""Exchanges and bindings: where a message goes."""

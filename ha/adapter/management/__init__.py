"""Operators' questions to a node, and their commands."""

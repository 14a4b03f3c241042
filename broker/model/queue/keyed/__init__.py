"""Queues that know their messages by a key: last values, and message groups."""

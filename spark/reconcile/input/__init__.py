"""Ledger files to events: found, read and condensed, inside Spark's Python workers."""

"""Findings and the state of the ledgers to one answer."""

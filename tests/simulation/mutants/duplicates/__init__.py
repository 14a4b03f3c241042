"""Mutants of what keeps messages from coming twice."""

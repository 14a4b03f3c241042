"""Mutants of what keeps messages from being in a queue twice."""

from tests.simulation.mutants.duplicates import numbers, windows

MUTANTS = (*windows.MUTANTS, *numbers.MUTANTS)

"""Mutants of confirms: what goes out before it may."""

from tests.simulation.mutants.confirms import early, levels

MUTANTS = (*early.MUTANTS, *levels.MUTANTS)

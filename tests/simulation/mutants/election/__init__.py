"""Mutants of elections: who serves, by whose word, and from when to when."""

from tests.simulation.mutants.election import (
    epochs,
    lease,
    pacemaker,
    pair,
    promotion,
    record,
    register,
    switchover,
)

MUTANTS = (
    *record.MUTANTS, *register.MUTANTS, *pacemaker.MUTANTS, *pair.MUTANTS, *promotion.MUTANTS,
    *lease.MUTANTS, *epochs.MUTANTS, *switchover.MUTANTS,
)  # fmt: skip

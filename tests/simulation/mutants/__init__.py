"""The mutation check: breakages of the product by hand, each of which one named checker must find.

`MUTANTS` is all of them, `SOON` some that a few seeds find. `python -m tests.simulation.mutants` hunts them.
"""

from __future__ import annotations

from tests.simulation.mutants import (
    confirms,
    copies,
    directory,
    disks,
    divergence,
    epochs,
    events,
    lease,
    pacemaker,
    promotion,
    queues,
    record,
    register,
    resets,
    rules,
    switchover,
    transactions,
)
from tests.simulation.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *confirms.MUTANTS, *record.MUTANTS, *register.MUTANTS, *pacemaker.MUTANTS, *promotion.MUTANTS,
    *lease.MUTANTS, *epochs.MUTANTS, *copies.MUTANTS, *queues.MUTANTS, *disks.MUTANTS, *switchover.MUTANTS,
    *divergence.MUTANTS, *resets.MUTANTS, *events.MUTANTS, *transactions.MUTANTS,
    *rules.MUTANTS, *directory.MUTANTS,
)  # fmt: skip


SOON = (
    "confirm before the backup's ack",
    "let a multiple confirm run ahead",
    "answer before it is replicated",
    "include before the copy is whole",
    "never tell the joiner that it is in",
    "go on serving after a demotion",
)
"""`make test` hunts the first of these, for several checkers; `make test-system` hunts the others."""

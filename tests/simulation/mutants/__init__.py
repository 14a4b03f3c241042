"""The mutation check: breakages of the product by hand, each of which one named checker must find.

`MUTANTS` is all of them. `python -m tests.simulation.mutants` hunts them.
"""

from __future__ import annotations

from tests.simulation.mutants import (
    clocks,
    confirms,
    copies,
    directory,
    disks,
    divergence,
    duplicates,
    election,
    events,
    last_man,
    moves,
    queues,
    resets,
    rules,
    table,
    transactions,
)
from tests.simulation.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *confirms.MUTANTS, *election.MUTANTS, *copies.MUTANTS, *queues.MUTANTS, *disks.MUTANTS,
    *divergence.MUTANTS, *resets.MUTANTS, *events.MUTANTS, *transactions.MUTANTS, *moves.MUTANTS,
    *duplicates.MUTANTS, *rules.MUTANTS, *directory.MUTANTS, *clocks.MUTANTS, *last_man.MUTANTS,
    *table.MUTANTS,
)  # fmt: skip

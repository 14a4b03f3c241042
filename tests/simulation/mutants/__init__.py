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
    epochs,
    events,
    last_man,
    lease,
    moves,
    numbers,
    pacemaker,
    pair,
    promotion,
    queues,
    record,
    register,
    resets,
    rules,
    switchover,
    table,
    transactions,
)
from tests.simulation.mutants.duplicates import windows
from tests.simulation.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *confirms.MUTANTS, *record.MUTANTS, *register.MUTANTS, *pacemaker.MUTANTS, *pair.MUTANTS,
    *promotion.MUTANTS,
    *lease.MUTANTS, *epochs.MUTANTS, *copies.MUTANTS, *queues.MUTANTS, *disks.MUTANTS, *switchover.MUTANTS,
    *divergence.MUTANTS, *resets.MUTANTS, *events.MUTANTS, *transactions.MUTANTS, *moves.MUTANTS,
    *windows.MUTANTS,
    *numbers.MUTANTS,
    *rules.MUTANTS, *directory.MUTANTS, *clocks.MUTANTS, *last_man.MUTANTS,
    *table.MUTANTS,
)  # fmt: skip

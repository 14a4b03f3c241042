"""Mutants of the lease: a primary that goes on without proof that it is one."""

from __future__ import annotations

from typing import Any

from ha.core.lease import Lease
from tests.simulation.mutants.mutant import Mutant, Patch


def _good_for_ever(proven: Any) -> Any:
    def broken(self: Lease, at: float) -> None:
        self.until = float("inf")

    return broken


MUTANTS = (
    Mutant(
        "hold the lease for ever",
        "A primary that was frozen goes on where it stopped, whoever was promoted since (SIGSTOP in Qpid).",
        (28,),
        (Patch(Lease, "proven", _good_for_ever),),
    ),
)

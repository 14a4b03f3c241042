"""Mutants of what clients are told of the pair."""

from __future__ import annotations

from typing import Any

from ha.adapter import effect_runner
from tests.simulation.mutants.mutant import Mutant, Patch


def _but_of_exclusions(announce: Any) -> Any:
    def broken(node: Any, effect: Any) -> None:
        if effect.event != "excluded":
            announce(node, effect)

    return broken


MUTANTS = (
    Mutant(
        "tell nobody of an exclusion",
        "Clients who watch the pair believe in a backup on which nobody counts any more.",
        (27,),
        (Patch(effect_runner, "announce", _but_of_exclusions),),
    ),
)

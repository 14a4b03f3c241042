"""Mutants of moves from queue to queue: that come apart, or lose what they move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from broker.model.history.history import History
from ha.adapter.management.operations.moving import _Moving
from tests.simulation.mutants.mutant import Mutant, Patch

Some = Callable[[_Moving, int], int]


def _in_two_steps(some: Some) -> Some:
    def broken(self: _Moving, most: int) -> int:
        with mock.patch.object(History, "gather", lambda self: None):
            return some(self, most)

    return broken


def _but_the_last(enqueue: Any) -> Any:
    def broken(self: _Moving, envelope: Any, raws: list[bytes]) -> None:
        if len(raws) > 1:
            raws = raws[:-1]
        enqueue(self, envelope, raws)

    return broken


MUTANTS = (
    Mutant(
        "move in two steps",
        "Messages are in the target a batch before they have left the source.",
        (7,),
        (Patch(_Moving, "some", _in_two_steps),),
    ),
    Mutant(
        "lose the last of a moved run",
        "The last message of each run that is moved is not put into the target.",
        (1,),
        (Patch(_Moving, "_enqueue", _but_the_last),),
    ),
)

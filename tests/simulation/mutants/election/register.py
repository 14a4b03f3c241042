"""Mutants of what a node makes of the register's answers, and of none."""

from __future__ import annotations

from typing import Any

from ha.core.record.in_sync_record import record_from_json
from ha.core.record.record_keeper import Commit, Outcome, RecordKeeper
from tests.simulation.mutants.mutant import Mutant, Patch


def _unknown_is_done(answered: Any) -> Any:
    def broken(self: RecordKeeper, request_id: int, outcome: Outcome, document: Any, *more: Any) -> None:
        if outcome is Outcome.UNKNOWN and self._commit is not None and request_id not in self._reads:
            outcome = Outcome.DONE
        answered(self, request_id, outcome, document, *more)

    return broken


def _conflict_is_done(answered: Any) -> Any:
    def broken(self: RecordKeeper, request_id: int, outcome: Outcome, document: Any, *more: Any) -> None:
        outcome = Outcome.DONE if outcome is Outcome.CONFLICT else outcome
        answered(self, request_id, outcome, document, *more)

    return broken


def _ask_for_what_it_holds(answered: Any) -> Any:
    def broken(self: RecordKeeper, request_id: int, outcome: Outcome, document: Any, *more: Any) -> None:
        commit = self._commit
        if outcome is Outcome.CONFLICT and commit is not None and commit.request_id == request_id:
            commit.expected = record_from_json(document).version if document is not None else None
            self._ask(commit, more[0])
        else:
            answered(self, request_id, outcome, document, *more)

    return broken


def _done_when_asked(ask: Any) -> Any:
    def broken(self: RecordKeeper, commit: Commit, now: float) -> None:
        ask(self, commit, now)
        if self._commit is commit:
            self._done(commit, now)

    return broken


MUTANTS = (
    Mutant(
        "take an unknown outcome for success",
        "The register does not answer, and the change that it was asked for counts as made.",
        (3, 8),
        (Patch(RecordKeeper, "answered", _unknown_is_done),),
        because="Of an exclusion it shows as 3, of a promotion as 8.",
    ),
    Mutant(
        "ignore a conflict",
        "The register refuses a swap, since it holds another record, and the node goes on as if it had not.",
        (11,),
        (Patch(RecordKeeper, "answered", _conflict_is_done),),
    ),
    Mutant(
        "overwrite on conflict",
        "A refused swap is asked for again with whatever the register holds: the last writer wins.",
        (11,),
        (Patch(RecordKeeper, "answered", _ask_for_what_it_holds),),
    ),
    Mutant(
        "act on a record that was only asked for",
        "What the register was asked to hold is taken for granted before it has answered.",
        (3,),
        (Patch(RecordKeeper, "_ask", _done_when_asked),),
    ),
)

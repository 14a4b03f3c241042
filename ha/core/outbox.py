"""Outbox: what this node does next, in order: the effects that the core decided on and the node carries out.

Owner: HaBroker, which lends it to all parts of the core.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ha.core.effects import Effect, Log, Note, SaveRecord
from understudy.shared.codes import Coded


class Outbox:
    """Effects since the last `take`."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def take(self) -> list[Effect]:
        """All of them; none is left."""
        effects, self._effects = self._effects, []
        return effects

    def do(self, *effects: Effect) -> None:
        self._effects += effects

    def log(self, said: Coded) -> None:
        self._effects.append(Log(said))

    def warn(self, said: Coded) -> None:
        """What an operator may have to act on."""
        self._effects.append(Log(said, warns=True))

    def note(self, kind: str, **fields: Any) -> None:
        """An event for the ledger."""
        self._effects.append(Note(kind, fields))

    def mark_saves_incomplete(self) -> None:
        """Records that are still to be saved say that this node's copy is incomplete."""
        self._effects = [
            replace(effect, incomplete=True) if isinstance(effect, SaveRecord) else effect
            for effect in self._effects
        ]

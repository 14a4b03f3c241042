"""Mutants of the last man standing: a primary alone, and the transient messages on its disk."""

from __future__ import annotations

from typing import Any

from broker.model.queue.contents import QueueContents
from broker.model.routing.publish_route import PublishRoute
from broker.model.values import Need, Scope
from ha.adapter.last_man import LastMan
from tests.simulation.mutants.mutant import Mutant, Patch


def _but_dequeues(keep_transient: Any) -> Any:
    def broken(self: QueueContents, keep: bool) -> Any:
        before = self.stored
        kept = keep_transient(self, keep)
        if not before:
            self.stored = False
            self._leave_scope = self.content_scope & ~Scope.STORE
        return kept

    return broken


def _as_soon_as_applied(init: Any) -> Any:
    def broken(self: PublishRoute, *args: Any, **more: Any) -> None:
        init(self, *args, **more)
        transient, persistent = self.need
        self.need = (min(transient, Need.APPLIED), persistent)

    return broken


def _nothing(cut: Any) -> Any:
    def broken(self: LastMan, *args: Any) -> Any:
        _, looked = cut(self, *args)
        return [], looked

    return broken


def _for_ever(alone: Any) -> Any:
    return lambda self: alone(self) or (self.alone_since is not None and self._node.vhosts.serving)


MUTANTS = (
    Mutant(
        "keep transient messages and not their dequeues",
        "The last man writes transient messages, and what consumers acknowledged comes back at its start.",
        (19, 22),
        (Patch(QueueContents, "keep_transient", _but_dequeues),),
        because="The store counts them still, or a consumer gets one again: whichever is looked at first.",
    ),
    Mutant(
        "confirm transient messages before the disk",
        "The last man confirms what is only in its memory, and says that it is on its disk.",
        (2,),
        (Patch(PublishRoute, "__init__", _as_soon_as_applied),),
    ),
    Mutant(
        "forget the older transient messages",
        "The last man keeps what comes from now on, and not what it had in memory when it was left alone.",
        (2, 19),
        (Patch(LastMan, "_slice", _nothing),),
        because="Its disk lacks them when it says so, and when one is confirmed soon after.",
    ),
    Mutant(
        "go on as the last man",
        "A backup is in sync again, and transient messages go to the disk for ever.",
        (19,),
        (Patch(LastMan, "_alone", _for_ever),),
    ),
)

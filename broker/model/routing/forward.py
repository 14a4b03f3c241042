"""Forward: the link queue by which messages of an exchange go to a federated broker. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.model.queue.link import Path
    from broker.model.queue.queue import Queue
    from broker.model.routing.exchange import Exchange


@dataclass(slots=True, frozen=True, eq=True)
class Forward:
    """`node`: the federation node that takes from the queue; "": not known yet. `unmatched`: only what no
    binding matches. `only`: no binding gets what goes there."""

    queue: Queue
    node: str
    unmatched: bool
    only: bool


def forwarded(
    forwards: Sequence[Forward], targets: list[Queue | Exchange], path: Path
) -> list[Queue | Exchange]:
    """The targets of a message, by the bindings that match it, and by the forwards of its exchange. What has
    been at a node does not go there again, so that bindings get what `only` sent there when it comes back."""
    due = [each for each in forwards if not each.queue.deleted and (not each.node or each.node not in path)]
    if any(each.only and not each.unmatched for each in due):
        return [each.queue for each in due if not each.unmatched]
    found = [*targets, *(each.queue for each in due if not each.unmatched)]
    return found or [each.queue for each in due]

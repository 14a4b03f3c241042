"""Operations as work in pieces, and what they come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.errors import DeadLettersPending
from broker.model.steps import Steps
from broker.model.values import Need

if TYPE_CHECKING:
    from broker.engine import Broker
    from broker.model.queue.queue import Queue
    from ha.adapter.management.operations.arguments import Arguments

WAIT = -1
"""Steps of a piece that can do nothing in this tick."""
FEW = 50
"""Steps of a small operation."""


class Outcome(NamedTuple):
    """The answer, and what it waits for at the position of history when the operation ends."""

    need: Need
    answer: dict[str, Any]


Operation = Callable[["Broker", str | None, "Arguments"], Steps[Outcome]]
"""By the user of this name (None: root). Raises Fault and AmqpError. Checks all arguments before it changes
anything."""


def once_returned(queue: Queue) -> Steps[None]:
    """Wait until all messages that clients give back are ready again."""
    while queue.returning is not None and not queue.deleted:
        yield WAIT


def when_dead_letters_are_made(change: Callable[[], Outcome]) -> Steps[Outcome]:
    """Make a change that deletes a queue, once its refused messages have become dead letters."""
    while True:
        try:
            return change()
        except DeadLettersPending:
            yield WAIT

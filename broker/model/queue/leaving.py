"""Queues that their clients have left: a few end at once, the others some at a time, each in its turn.

Owner: `VirtualHosts`, which ends a turn's worth in each tick. A connection may own tens of thousands of
queues: ending them all in one go would stop everybody else. For clients a queue that waits here does not
exist any more: no message is routed to it, and it ends at once when a client names it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue
    from broker.model.values import Reason

AT_ONCE = 64
"""Queues that may end in one tick because their clients have left them. The engine may set another number."""


class Leaving:
    """True while a queue waits. `__contains__`: does this one? `at_once`: queues that end in one tick.
    `stirred`: a queue waits, or has ended in this tick."""

    __slots__ = ("_ended", "_waiting", "at_once", "stirred")

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._waiting: OrderedDict[Queue, Reason] = OrderedDict()
        self.at_once = at_once
        self.stirred = False
        self._ended = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, queue: object) -> bool:
        return queue in self._waiting

    def may_end(self) -> bool:
        """May one more queue end in this tick? If so, it counts."""
        if self._ended >= self.at_once or self._waiting:
            return False
        self._ended += 1
        self.stirred = True
        return True

    def add(self, queue: Queue, reason: Reason) -> None:
        """It ends for `reason` in its turn."""
        self._waiting[queue] = reason
        self.stirred = True

    def reason(self, queue: Queue) -> Reason | None:
        """Why a queue that waits here is to end; None if it does not."""
        return self._waiting.get(queue)

    def take_turn(self) -> list[tuple[Queue, Reason]]:
        """A tick begins: the queues that end in it."""
        count = min(self.at_once, len(self._waiting))
        turn = [self._waiting.popitem(last=False) for _ in range(count)]
        self._ended = count
        self.stirred = count > 0
        return turn

    def forget(self, queue: Queue) -> None:
        """It has ended."""
        self._waiting.pop(queue, None)

    def clear(self) -> None:
        """This node serves no more: nothing ends because its clients are gone."""
        self._waiting.clear()
        self._ended = 0

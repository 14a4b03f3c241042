"""Queues to delete because their clients have left: some at once, the others a few in each tick.

Owner: `VirtualHosts`, which deletes a number of them in each tick. A connection may own tens of thousands of
queues; deleting all at once would block the event loop. To clients a waiting queue no longer exists: it gets
no messages, and it is deleted at once when a client names it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue
    from broker.model.values import Reason

AT_ONCE = 64
"""Queues deleted in one tick because their clients have left. The engine may set another number."""


class Leaving:
    """True while a queue waits.

    - `in`: whether a queue waits.
    - `at_once`: queues deleted in one tick.
    - `stirred`: a queue waits, or was deleted in this tick.
    """

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
        """Whether one more queue may be deleted at once in this tick. If so, it is counted."""
        if self._ended >= self.at_once or self._waiting:
            return False
        self._ended += 1
        self.stirred = True
        return True

    def add(self, queue: Queue, reason: Reason) -> None:
        """Let the queue wait; it will be deleted for `reason`."""
        self._waiting[queue] = reason
        self.stirred = True

    def reason(self, queue: Queue) -> Reason | None:
        """Why a waiting queue is to be deleted; None if it does not wait."""
        return self._waiting.get(queue)

    def take_turn(self) -> list[tuple[Queue, Reason]]:
        """Begin a tick: returns the queues to delete in it."""
        count = min(self.at_once, len(self._waiting))
        turn = [self._waiting.popitem(last=False) for _ in range(count)]
        self._ended = count
        self.stirred = count > 0
        return turn

    def forget(self, queue: Queue) -> None:
        self._waiting.pop(queue, None)

    def clear(self) -> None:
        """This node no longer serves: drop the waiting queues without deleting them."""
        self._waiting.clear()
        self._ended = 0

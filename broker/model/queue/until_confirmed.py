"""UntilConfirmed: messages of one queue that wait until all have them that their confirms wait for.

Owner: a sink that passes on only what no failover takes back. A primary hands messages to its consumers
before its disk and its backups have them. If it dies then, a publisher that got no confirm sends them again,
and they get other ids.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.model.queue.consumer import UNLIMITED
from broker.model.values import Need, Position, Scope, need_of

if TYPE_CHECKING:
    from broker.model.history.completion import Completion
    from broker.model.history.records import Entry
    from broker.model.queue.queue import Queue


def need_of_confirm(queue: Queue) -> Need:
    """What the confirm of a persistent message waits for. A level below `all-disks` is for what backups hold,
    too."""
    need = need_of(queue.content_scope)
    if need is not Need.DURABLE or not queue.content_scope & Scope.LINK:
        return need
    return queue.rules.confirm or queue.history.confirm


class UntilConfirmed:
    """Messages in the order in which the queue handed them out."""

    __slots__ = ("_completion", "_queue", "_waiting", "count")

    def __init__(self, queue: Queue, completion: Completion) -> None:
        self._queue = queue
        self._completion = completion
        self._waiting: deque[tuple[Position, Need, list[Entry]]] = deque()
        self.count = 0
        """Messages that wait."""

    def add(self, entries: list[Entry]) -> None:
        """The queue has handed these out, in this tick."""
        queue = self._queue
        need = need_of(queue.transient_scope)
        for _, envelope, _ in entries:
            if envelope.persistent:
                need = max(need, need_of_confirm(queue))
                break
        self._waiting.append((queue.history.position, need, entries))
        self.count += len(entries)

    def take(self, most: int = UNLIMITED) -> list[Entry]:
        """Up to `most` of those that may go now. Call it after the flush of each tick."""
        ready: list[Entry] = []
        while self._waiting and most > 0:
            position, need, entries = self._waiting[0]
            if need is not Need.NONE and not self._completion.reached(position, need):
                break
            if len(entries) <= most:
                self._waiting.popleft()
            else:
                self._waiting[0] = position, Need.NONE, entries[most:]
                entries = entries[:most]
            most -= len(entries)
            ready = ready + entries if ready else entries
        self.count -= len(ready)
        return ready

    def clear(self) -> list[Entry]:
        """Give up. Returns those that wait."""
        left = [entry for _, _, entries in self._waiting for entry in entries]
        self._waiting.clear()
        self.count = 0
        return left

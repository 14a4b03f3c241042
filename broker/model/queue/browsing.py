"""Browsing: consumers that see the ready messages of a queue, oldest first, and take none. Pure.

`Queue.dispatch` calls `browse`, before others take messages. A browser is not one of the queue's consumers:
it keeps no queue alive, and nobody else away. It sees each message once, in the order of the ids; one that
comes back, behind its place, not again.
"""

from __future__ import annotations

from typing import Protocol

from broker.model.history.records import Entry, id_of
from broker.model.queue.backlog import Backlog
from broker.model.queue.consumer import Browsers
from broker.model.queue.ready_after import Ready, ready_after
from broker.model.queue.removals import HAND, Removals


class BrowsedQueue(Protocol):
    """A queue with browsers."""

    @property
    def browsers(self) -> Browsers: ...
    @property
    def ready(self) -> Ready: ...
    @property
    def backlog(self) -> Backlog: ...
    @property
    def removals(self) -> Removals: ...
    @property
    def timed(self) -> bool: ...
    def is_over(self, entry: Entry) -> bool: ...
    def schedule(self) -> None: ...


BURST = 1000
"""Maximum messages for one browser in one tick."""


def browse(queue: BrowsedQueue) -> None:
    """Hand messages to the browsers as they have credit."""
    again = False
    for consumer, seen in list(queue.browsers.items()):
        room = min(consumer.sink.credit(consumer), BURST)
        if room <= 0:
            continue
        if queue.removals.steps <= 0:
            again = True
            break
        entries = ready_after(queue.ready, queue.backlog, seen, room)
        if not entries:
            continue
        queue.browsers[consumer] = id_of(entries[-1])
        queue.removals.steps -= HAND + len(entries)
        again = again or len(entries) == room
        fresh = [entry for entry in entries if not queue.is_over(entry)] if queue.timed else entries
        if fresh:
            consumer.sink.deliver(consumer, fresh)
    if again:
        queue.schedule()

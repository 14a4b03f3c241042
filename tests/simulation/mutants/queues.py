"""Mutants of the queue and its routes: what clients would notice after a failover, or before one."""

from __future__ import annotations

from collections import deque
from typing import Any

from broker.model.definitions import Definitions
from broker.model.exchange import DirectMatcher
from broker.model.publish_route import PublishRoute
from broker.model.queue import Queue
from broker.model.queue_replica import ReplicaContents
from broker.model.records import Entry, Envelope, QueueDeclare
from tests.simulation.mutants.mutant import Mutant, Patch


def _without_the_last(activate: Any) -> Any:
    def broken(self: Queue, epoch: int) -> None:
        activate(self, epoch)
        if self.ready:
            self.ready.pop()

    return broken


def _reversed(activate: Any) -> Any:
    def broken(self: Queue, epoch: int) -> None:
        activate(self, epoch)
        self.ready.reverse()

    return broken


def _by_sequence_alone(entries: Any) -> Any:
    return lambda self: sorted(entries(self), key=lambda entry: entry[0])


def _every_binding(match: Any) -> Any:
    def broken(self: DirectMatcher, routing_key: str, headers: Any) -> list[Any]:
        return [binding for of_key in self._by_key.values() for binding in of_key.values()]

    return broken


def _as_it_was(flag: Any) -> Any:
    return lambda self: self


def _at_the_end(requeue: Any) -> Any:
    def broken(self: Queue, entries: list[Entry]) -> None:
        others, self.ready = self.ready, deque()
        requeue(self, entries)
        self.ready.extendleft(reversed(others))

    return broken


def _for_the_next_of_that_name() -> tuple[Any, Any]:
    left: dict[tuple[int, str], list[Entry]] = {}

    def leaving(end: Any) -> Any:
        def broken(self: Definitions, queue: Queue) -> Any:
            left[id(self), queue.name] = list(queue.ready)
            return end(self, queue)

        return broken

    def finding(make: Any) -> Any:
        def broken(self: Any, declared: QueueDeclare, owner: object) -> Queue:
            queue: Queue = make(self, declared, owner)
            for _, old, raw in left.pop((id(self), queue.name), ()) if self.serving else ():
                route = PublishRoute(old.exchange, old.routing_key, (queue,), False, self.generation)
                self.publish(
                    route, [raw], persistent=old.persistent, channel=old.channel,
                    largest_frame=old.largest_frame,
                )  # fmt: skip
            return queue

        return broken

    return leaving, finding


def _without_history(purge: Any) -> Any:
    def broken(self: Queue) -> int:
        count = len(self.ready)
        self.ready.clear()
        return count

    return broken


_LEAVING, _FOUND = _for_the_next_of_that_name()


MUTANTS = (
    Mutant(
        "lose a message when promoted",
        "The new primary's queue begins to serve without the newest message of its copy.",
        (1,),
        (Patch(Queue, "activate", _without_the_last),),
    ),
    Mutant(
        "serve in disorder",
        "A promoted queue hands out its newest message first.",
        (21,),
        (Patch(Queue, "activate", _reversed),),
    ),
    Mutant(
        "sort ids without their epoch",
        "Two primaries' messages are merged by sequence, as bare counters are (Qpid's ids have no epoch).",
        (21,),
        (Patch(ReplicaContents, "entries", _by_sequence_alone),),
    ),
    Mutant(
        "requeue at the end",
        "What a consumer gives back goes behind the messages that came after it.",
        (21,),
        (Patch(Queue, "requeue", _at_the_end),),
    ),
    Mutant(
        "route regardless of the key",
        "A direct exchange sends every message to all queues that are bound to it.",
        (20,),
        (Patch(DirectMatcher, "match", _every_binding),),
    ),
    Mutant(
        "never flag as redelivered",
        "After a failover a consumer cannot tell that it may have had a message before.",
        (23,),
        (Patch(Envelope, "as_redelivered", _as_it_was),),
    ),
    Mutant(
        "find the deleted queue's messages again",
        "A queue is declared again under the name of a deleted one, and what was left in that is in it.",
        (17,),
        (Patch(Definitions, "_end_queue", _LEAVING), Patch(Definitions, "_make_queue", _FOUND)),
    ),
    Mutant(
        "purge on the primary alone",
        "A purge empties the primary's queue and makes no history.",
        (17,),
        (Patch(Queue, "purge", _without_history),),
    ),
)

"""Mutants of the queue and its routes: what clients would notice after a failover, or before one."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from broker.model.history.history import History
from broker.model.history.records import ConsumerSeen, Entry, Envelope, QueueDeclare
from broker.model.queue.backlog import Backlog
from broker.model.queue.consumer import Consumers
from broker.model.queue.contents import QueueContents
from broker.model.queue.queue import Queue
from broker.model.queue.replica import ReplicaContents
from broker.model.routing.exchange import DirectMatcher
from broker.model.routing.publish_route import PublishRoute
from broker.model.values import Reason
from broker.model.vhost import vhosts as vhosts_module
from broker.model.vhost.definitions import Definitions
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.vhosts import VirtualHosts
from ha.adapter.node import Node
from tests.simulation.mutants.mutant import Mutant, Patch


def _without_grace(start_serving: Any) -> Any:
    def broken(self: Node, epoch: int, now: float) -> None:
        start_serving(self, epoch, now)
        if self._grace_until is not None:
            self._grace_until = now

    return broken


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


def _newest_first(in_order: Any) -> Any:
    return lambda self: in_order(self)[::-1]


def _all_are_active(activate: Any) -> Any:
    def broken(self: QueueContents, epoch: int) -> None:
        activate(self, epoch)
        self.rules = replace(self.rules, single_active=False)

    return broken


def _by_sequence_alone(drain: Any) -> Any:
    return lambda self: iter(sorted(drain(self), key=lambda run: int(run.first)))


def _newest_run_first(refill: Any) -> Any:
    def broken(self: Backlog, ready: Any, window: int) -> None:
        self._runs[self._at :] = self._runs[: self._at - 1 if self._at else None : -1]
        refill(self, ready, window)

    return broken


def _forget_the_tail(refill: Any) -> Any:
    def broken(self: Backlog, ready: Any, window: int) -> None:
        if len(self._runs) - self._at == 1:
            self.count -= len(self.tail)
            self.tail.clear()
        refill(self, ready, window)

    return broken


def _of_ready_ones_alone(leave_backlog: Any) -> Any:
    def broken(self: Queue, reason: Reason) -> None:
        self.backlog.clear()
        self.back = self.ready

    return broken


def _every_binding(match: Any) -> Any:
    def broken(self: DirectMatcher, routing_key: str, headers: Any) -> Any:
        return iter(((0, [binding for of_key in self._by_key.values() for binding in of_key.values()]),))

    return broken


def _as_it_was(flag: Any) -> Any:
    return lambda self: self


def _at_the_end(requeue: Any) -> Any:
    def broken(self: Queue, entries: list[Entry], **how: Any) -> None:
        others, self.ready = self.ready, deque()
        requeue(self, entries, **how)
        self.ready.extendleft(reversed(others))

    return broken


def _leave_the_messages(end: Any) -> Any:
    """For the next queue of that name."""

    def broken(self: Definitions, queue: Queue, *why: Any) -> Any:
        vars(self).setdefault("left", {})[queue.name] = list(queue.ready)
        return end(self, queue, *why)

    return broken


def _find_the_messages(make: Any) -> Any:
    def broken(self: VirtualHost, declared: QueueDeclare, owner: object) -> Queue:
        queue: Queue = make(self, declared, owner)
        left = vars(self).get("left", {}).pop(queue.name, ()) if self.serving else ()
        for _, old, raw in left:
            route = PublishRoute(old.exchange, old.routing_key, (queue,), False, self.generation)
            self.publish(
                route, [raw], persistent=old.persistent, channel=old.channel, largest_frame=old.largest_frame
            )
        return queue

    return broken


def _keep_the_young(flush: Any) -> Any:
    """Only what must precede another record is gathered; time alone never does it."""

    def broken(self: History, now: float, wall_ms: int, *, force: bool = False) -> Any:
        gathered, self._gathered = self._gathered, {}
        batch = flush(self, now, wall_ms)
        self._gathered = gathered
        return batch

    return broken


def _end_unused(apply: Any) -> Any:
    """As the primary would, were it its own client that had left."""

    def broken(vhosts: Any, record: Any) -> None:
        apply(vhosts, record)
        queue = vhosts.queues_by_uuid.get(record.queue) if isinstance(record, ConsumerSeen) else None
        if queue is not None and queue.auto_delete:
            queue.end()
            vhosts[queue.vhost]._drop_queue(queue)

    return broken


def _without_history(purge: Any) -> Any:
    def broken(self: Queue) -> int:
        count = len(self.ready)
        self.ready.clear()
        return count

    return broken


def _unrecorded(end: Any) -> Any:
    def broken(self: Queue, reason: Reason = Reason.DELETED) -> Any:
        count = len(self.ready)
        self.ready.clear()
        self._unacked.clear()
        end(self, reason)
        return count

    return broken


def _throw_away(requeue: Any) -> Any:
    return lambda self, entries, **_how: self.drop(entries, Reason.DROPPED)


def _requeue_every_seventh(acknowledge: Any) -> Any:
    def broken(self: Queue, entries: list[Entry]) -> None:
        acknowledge(self, [entry for entry in entries if entry[0] % 7])
        self.requeue([entry for entry in entries if not entry[0] % 7])

    return broken


MUTANTS = (
    Mutant(
        "lose a message when promoted",
        "The new primary's queue begins to serve without the newest message of its copy.",
        (4,),
        (Patch(QueueContents, "activate", _without_the_last),),
    ),
    Mutant(
        "serve in disorder",
        "A promoted queue hands out its newest message first.",
        (21,),
        (Patch(QueueContents, "activate", _reversed),),
    ),
    Mutant(
        "sort ids without their epoch",
        "Two primaries' messages are merged by sequence, as bare counters are (Qpid's ids have no epoch).",
        (21,),
        (Patch(ReplicaContents, "drain", _by_sequence_alone),),
    ),
    Mutant(
        "read back the newest first",
        "What was set aside comes back in the order in which it is easiest to find.",
        (21,),
        (Patch(Backlog, "refill", _newest_run_first),),
    ),
    Mutant(
        "forget what came after the last that was set aside",
        "When all that was set aside is back, the messages that were never set aside are not looked for.",
        (2, 4, 13),
        (Patch(Backlog, "refill", _forget_the_tail),),
        because="The primary lacks them: at a confirm (2), a change of the record (4), or at a quiet point.",
    ),
    Mutant(
        "purge what is set aside and tell nobody",
        "A purge, or the end of a queue, makes history of the messages in memory alone.",
        (13, 19),
        (Patch(Queue, "_leave_backlog", _of_ready_ones_alone),),
        because="The backup keeps them (13), and so does the store (19), whichever is looked at first.",
    ),
    Mutant(
        "requeue at the end",
        "What a consumer gives back goes behind the messages that came after it.",
        (21,),
        (Patch(Queue, "requeue", _at_the_end),),
    ),
    Mutant(
        "the newest consumer takes over",
        "Of a queue with a single active consumer, whoever comes last gets the messages.",
        (21,),
        (Patch(Consumers, "in_order", _newest_first),),
    ),
    Mutant(
        "a promoted node delivers to every consumer",
        "After a failover a queue has forgotten that it has a single active consumer.",
        (21,),
        (Patch(QueueContents, "activate", _all_are_active),),
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
        (
            Patch(Definitions, "_end_queue", _leave_the_messages),
            Patch(Definitions, "_make_queue", _find_the_messages),
        ),
    ),
    Mutant(
        "purge on the primary alone",
        "A purge empties the primary's queue and makes no history.",
        (17,),
        (Patch(Queue, "purge", _without_history),),
    ),
    Mutant(
        "never flush dequeues",
        "A batched dequeue waits for ever for others to make a range with.",
        (13,),
        (Patch(History, "flush", _keep_the_young),),
    ),
    Mutant(
        "end an unused queue on the backup",
        "A backup judges for itself that an auto-delete queue has lost its last consumer.",
        (18,),
        (Patch(vhosts_module, "apply_record", _end_unused),),
    ),
    Mutant(
        "keep the queues of clients that are gone",
        "After a failover nobody ends an exclusive or auto-delete queue whose client does not come back.",
        (18,),
        (Patch(VirtualHosts, "delete_abandoned", lambda original: lambda self: 0),),
    ),
    Mutant(
        "wait for nobody who may come back",
        "After a failover queues whose clients are gone end at once, before these can reconnect.",
        (18,),
        (Patch(Node, "start_serving", _without_grace),),
    ),
    Mutant(
        "delete a queue and record nothing",
        "The messages of a deleted queue go with it, and no record says so: the ledgers show a loss.",
        (29,),
        (Patch(Queue, "end", _unrecorded),),
    ),
    Mutant(
        "throw away what is given back",
        "Messages of a consumer that goes, or rejects them, are dropped instead of being ready again.",
        (1,),
        (Patch(Queue, "requeue", _throw_away),),
    ),
    Mutant(
        "give back what was acknowledged",
        "An acknowledged message goes back to the queue instead of leaving it.",
        (22,),
        (Patch(Queue, "acknowledge", _requeue_every_seventh),),
    ),
)

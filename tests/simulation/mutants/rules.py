"""Mutants of the rules by which messages leave queues."""

from __future__ import annotations

from typing import Any

from broker.amqp091.codec import dead_letter, message_format
from broker.model.history.history import History
from broker.model.history.records import Entry, id_of
from broker.model.queue.arguments import NO_RULES
from broker.model.queue.contents import QueueContents
from broker.model.queue.keyed.last_value import LastValueReady
from broker.model.queue.keyed.sorted_ready import key_of
from broker.model.queue.queue import Queue
from broker.model.values import Reason
from broker.model.vhost import policies, topology, vhosts
from broker.model.vhost.enqueueing import Enqueueing, Published
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.vhosts import VirtualHosts
from tests.simulation.mutants.mutant import Mutant, Patch


def _dequeued_later(leave: Any) -> Any:
    """The move is spread over two batches."""

    def broken(self: Queue, entries: list[Entry], reason: Reason) -> None:
        gather, History.gather = History.gather, lambda self: None  # type: ignore[method-assign]
        try:
            leave(self, entries, reason)
        finally:
            History.gather = gather  # type: ignore[method-assign]

    return broken


def _without_rules(activate: Any) -> Any:
    def broken(self: QueueContents, epoch: int) -> None:
        activate(self, epoch)
        self.rules = NO_RULES

    return broken


def _uncounted(look_again: Any) -> Any:
    def broken(self: QueueContents) -> None:
        look_again(self)
        self.ready_octets = 0

    return broken


def _open_to_all(activate: Any) -> Any:
    def broken(self: VirtualHosts, epoch: int) -> int:
        for vhost in self:
            for exchange in vhost.exchanges.values():
                exchange.internal = False
        return int(activate(self, epoch))

    return broken


def _only_this_death(with_one_more: Any) -> Any:
    return lambda records, *more: with_one_more([], *more)


def _round_and_round(cycles: Any) -> Any:
    return lambda raw, queues, reason: ()


def _as_declared(apply_to_all: Any) -> Any:
    """Policies count when they change, and not for one that begins to serve."""

    def broken(host: VirtualHost, matching: Any) -> None:
        if host.serving:
            apply_to_all(host, matching)

    return broken


def _policies_first(rules_under: Any) -> Any:
    def broken(arguments: dict[str, Any], definition: dict[str, Any]) -> Any:
        return rules_under({k: v for k, v in arguments.items() if k[2:] not in definition}, definition)

    return broken


def _all_accepted(publish: Any) -> Any:
    def broken(self: Enqueueing, route: Any, envelope: Any, raws: list[bytes], *more: Any) -> Published:
        return Published(publish(self, route, envelope, raws, *more).need, len(raws))

    return broken


def _newest_first(remove: Any) -> Any:
    def broken(self: Queue) -> None:
        limit = self.rules.max_length
        over = []
        while limit is not None and len(self.ready) > limit:
            over.append(self.ready.pop() if hasattr(self.ready, "pop") else self.ready.popleft())
        self._leave(over, Reason.DROPPED)

    return broken


def _everything_is_fresh(until: Any) -> Any:
    return lambda self, envelope: None


def _silently(activate: Any) -> Any:
    """What expired while nobody served is dropped, and no dead letter."""

    def broken(self: Queue, epoch: int) -> None:
        activate(self, epoch)
        while self.ready and (self.head_expiry() or self.removals.wall_ms) < self.removals.wall_ms:
            self._note([self.ready.popleft()], Reason.EXPIRED)

    return broken


def _every_value(put: Any) -> Any:
    def broken(self: LastValueReady, entry: Entry) -> None:
        self._by_id[id_of(entry)] = entry

    return broken


def _oldest_value(put: Any) -> Any:
    def broken(self: LastValueReady, entry: Entry) -> None:
        if key_of(self._read(entry[2])) in self._latest:
            self.replaced.append(entry)
        else:
            put(self, entry)

    return broken


def _part_of_the_delay(delay_of: Any) -> Any:
    return lambda headers: delay_of(headers) // 8


def _nowhere(make: Any) -> Any:
    def broken(self: Any, *more: Any) -> Any:
        letter = make(self, *more)
        return letter and letter._replace(queues=())

    return broken


def _without_history(drop: Any) -> Any:
    def broken(self: Queue) -> None:
        if isinstance(self.ready, LastValueReady):
            self.ready.take_replaced()
        drop(self)

    return broken


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a dead letter is dequeued in a later batch",
        "A failover between the two has the message in both queues (RabbitMQ: at-least-once dead lettering).",
        (18,),
        (Patch(Queue, "_leave", _dequeued_later),),
    ),
    Mutant(
        "a promoted backup has forgotten the rules",
        "Arguments that only the node of the declaration keeps: queues without limits after a failover.",
        (18, 1),
        (Patch(QueueContents, "activate", _without_rules),),
        because="What would have been dead-lettered is dropped, or stays.",
    ),
    Mutant(
        "a promoted queue has forgotten how many octets it holds",
        "A count that is kept as messages come and go, and not made for those that are there.",
        (18,),
        (Patch(QueueContents, "_apply_rules_again", _uncounted),),
    ),
    Mutant(
        "a promoted node takes publishes to internal exchanges",
        "A flag that only the node of the declaration keeps.",
        (6,),
        (Patch(VirtualHosts, "activate", _open_to_all),),
    ),
    Mutant(
        "a dead letter forgets the deaths before",
        "A history of one death: chains cannot be followed, and cycles have no end.",
        (18,),
        (Patch(dead_letter, "_with", _only_this_death),),
    ),
    Mutant(
        "what died by itself goes round in a cycle",
        "A message that nobody has rejected comes back to the queue that it expired in.",
        (18,),
        (Patch(message_format, "cycles", _round_and_round),),
    ),
    Mutant(
        "a promoted backup goes by no policy",
        "Policies that only the node of the change goes by: queues without limits after a failover.",
        (18, 1),
        (Patch(vhosts, "apply_to_all", _as_declared),),
        because="What would have been dead-lettered is dropped, or stays.",
    ),
    Mutant(
        "a policy wins over the arguments of a queue",
        "A merge the wrong way round.",
        (18, 1),
        (Patch(policies, "rules_under", _policies_first),),
        because="A longer time lets messages stay; another dead letter exchange loses them.",
    ),
    Mutant(
        "a publish that a full queue refuses is confirmed",
        "A confirm for a message that is nowhere.",
        (1,),
        (Patch(Enqueueing, "_publish_bounded", _all_accepted),),
    ),
    Mutant(
        "a full queue keeps what it cannot send on at once",
        "A message that was refused and is delivered all the same.",
        (18,),
        (Patch(Queue, "hold_refused", lambda hold: Queue.enqueue_run),),
    ),
    Mutant(
        "a queue that is too long loses its newest messages",
        "Drop-head at the wrong end.",
        (1,),
        (Patch(Queue, "remove_excess", _newest_first),),
    ),
    Mutant(
        "what is over is still delivered",
        "A time to live that only counts while nobody asks.",
        (18,),
        (Patch(Queue, "_expires_at", _everything_is_fresh),),
    ),
    Mutant(
        "what expired during a failover is no dead letter",
        "A promoted node that cleans up instead of deciding.",
        (1,),
        (Patch(QueueContents, "activate", _silently),),
    ),
    Mutant(
        "a delayed message comes early",
        "A part of its delay is taken for the whole.",
        (18,),
        (Patch(topology, "delay_of", _part_of_the_delay),),
    ),
    Mutant(
        "a delayed message goes nowhere when its time has come",
        "It leaves its exchange, and no queue gets it.",
        (1,),
        (Patch(Enqueueing, "_make_released", _nowhere),),
    ),
    Mutant(
        "a last-value queue keeps every value",
        "Messages of one key do not know of each other.",
        (18,),
        (Patch(LastValueReady, "_put", _every_value),),
    ),
    Mutant(
        "a last-value queue keeps the oldest value",
        "The newer message is taken for the one that is replaced.",
        (1,),
        (Patch(LastValueReady, "_put", _oldest_value),),
    ),
    Mutant(
        "a last value is replaced on the primary alone",
        "A replaced message leaves the queue, and makes no history.",
        (13, 19),
        (Patch(Queue, "drop_replaced", _without_history),),
        because="The backup keeps it (13), and so does the store (19), whichever is looked at first.",
    ),
)

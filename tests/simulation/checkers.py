"""What must hold, each class named by the invariants it checks. No code is shared with `ha.core`.

Told of every byte that a node sends to a client (`output`) and of every delivery; the rest is checked at
quiet points and at the end by the run. Raise `Violation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.simulation import wire
from tests.simulation.clients import Publisher
from tests.simulation.inspection import held, key_of, medium, record_on_disk, state
from tests.simulation.journal import Delivery, Journal, Message, Violation
from tests.simulation.machine import Machine

SERVING = frozenset({"active", "recovering"})
SERVICE = frozenset(
    {
        "connection.open-ok", "basic.ack", "basic.deliver", "basic.get-ok", "basic.consume-ok",
        "exchange.declare-ok", "queue.declare-ok", "queue.bind-ok", "queue.purge-ok", "queue.delete-ok",
    }
)  # fmt: skip
"""Methods that only a serving node sends."""


class OutputReader:
    """Cuts each connection's output into methods and hands them on."""

    def __init__(self, handlers: list[Callable[[Machine, str, list[wire.Method]], None]]) -> None:
        self.handlers = handlers
        self._parsers: dict[str, wire.Parser] = {}

    def output(self, machine: Machine, connection: str, data: bytes) -> None:
        if connection.startswith(("link-", "operator")):
            return
        parser = self._parsers.setdefault(connection, wire.Parser())
        methods = [item for item in parser.feed(data) if isinstance(item, wire.Method)]
        if methods:
            for handler in self.handlers:
                handler(machine, connection, methods)


class Serving8and9:
    """8: one node serves in an epoch, and at any instant. 9: epochs never repeat or go back."""

    def __init__(self, machines: list[Machine]) -> None:
        self.machines = machines
        self.owners: dict[int, tuple[str, int]] = {}

    def output(self, machine: Machine, connection: str, methods: list[wire.Method]) -> None:
        if not any(m.name in SERVICE for m in methods):
            return
        epoch = machine.running.core.epoch
        who = (machine.name, machine.life)
        owner = self.owners.get(epoch)
        if owner is None:
            if self.owners and epoch < max(self.owners):
                raise Violation(9, f"{machine.name} serves in epoch {epoch} after epoch {max(self.owners)}")
            self.owners[epoch] = who
        elif owner[0] != machine.name:
            raise Violation(8, f"{machine.name} and {owner[0]} both serve in epoch {epoch}")
        elif owner != who:
            raise Violation(9, f"life {who[1]} of {who[0]} serves in epoch {epoch} of life {owner[1]} again")
        for other in self.machines:
            if other is not machine and other.role() in SERVING:
                raise Violation(8, f"{machine.name} serves while {other.name} is {other.role()}")


class Confirms2and3:
    """2, 5: when a confirm leaves the primary, every in-sync backup has the message, on disk if it must be.
    3: no confirm of anything published after an in-sync backup died, until its exclusion is on disk."""

    def __init__(
        self, machines: list[Machine], journal: Journal, publishers: Mapping[str, Publisher]
    ) -> None:
        self.machines = machines
        self.journal = journal
        self.publishers = publishers
        self.checked = 0
        self._done: dict[str, int] = {}
        self._died: dict[tuple[str, int], float] = {}
        self._identities: dict[tuple[str, int], Machine] = {}

    def output(self, machine: Machine, connection: str, methods: list[wire.Method]) -> None:
        messages: list[Message] = []
        for item in methods:
            if item.name == "basic.ack":
                messages += self._confirmed(
                    connection, int(item.arguments["tag"]), bool(item.arguments["multiple"])
                )
        if messages:
            self._check(machine, messages)

    def started(self, machine: Machine) -> None:
        status = machine.status()
        self._identities[str(status["node_id"]), int(str(status["incarnation"]))] = machine

    def died(self, machine: Machine) -> None:
        now = self.journal.clock.now
        for identity, owner in self._identities.items():
            if owner is machine:
                self._died.setdefault(identity, now)

    def _confirmed(self, connection: str, tag: int, multiple: bool) -> list[Message]:
        publisher = self.publishers.get(connection.split("#")[0])
        if publisher is None or publisher.session is None or publisher.session.end is None:
            return []
        if publisher.session.end.name != connection:
            return []
        if not multiple:
            return [m for t, m in publisher.outstanding.items() if t == tag]
        since = self._done.get(connection, 0)
        self._done[connection] = max(since, tag)
        return [m for t, m in publisher.outstanding.items() if since < t <= tag]

    def _check(self, primary: Machine, messages: list[Message]) -> None:
        record = record_on_disk(primary)
        copies = [primary]
        for identity in sorted(record.in_sync) if record is not None else []:
            died = self._died.get(identity)
            if died is None:
                copies.append(self._identities[identity])
                continue
            late = next((m for m in messages if m.last_sent > died and self._queues(m)), None)
            if late is not None:
                raise Violation(3, f"{late.key} is confirmed, and a dead backup is not excluded yet")
        for copy in copies:
            _check_copy(copy, primary, messages, self._queues, self.journal)
        self.checked += len(messages)

    def _queues(self, message: Message) -> list[str]:
        """Where the message must still be: where no consumer, purge or delete may have ended it."""
        return [q for q in sorted(message.certain) if self.journal.must_hold(q, message)]


def _check_copy(
    copy: Machine,
    primary: Machine,
    messages: list[Message],
    queues: Callable[[Message], list[str]],
    journal: Journal,
) -> None:
    disk: list[bytes] | None = None
    memory: dict[str, set[str]] = {}
    for message in messages:
        for queue in queues(message):
            if queue not in memory:
                memory[queue] = {key_of(raw) for _, _, raw in held(copy, queue)}
            if message.key not in memory[queue]:
                raise Violation(
                    2, f"{primary.name} confirms {message.key}, and {copy.name} lacks it in {queue}"
                )
            if message.persistent and journal.topology.durable(queue):
                if disk is None:
                    disk = [data for path, data in medium(copy.disk).items() if "/store/" in path]
                if not any(b"<%b>" % message.key.encode() in data for data in disk):
                    raise Violation(
                        2, f"{primary.name} confirms {message.key}, not yet on the disk of {copy.name}"
                    )


@dataclass(slots=True)
class _History:
    """Of one message in one queue."""

    first_at: float
    deliveries: int = 0
    fresh: int = 0
    """Those without the redelivered flag: at most one for each send."""


class Deliveries17and20and21and23:
    """17: no message of a deleted or purged past. 20: nothing that nobody published or routed there.
    21: order per publisher and queue. 23: what may have been delivered before is flagged."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._seen: dict[tuple[str, str], _History] = {}
        journal.on_delivery.append(self.delivery)
        journal.on_unknown = self.unknown

    def unknown(self, queue: str, body: bytes) -> None:
        raise Violation(20, f"{queue} delivers what nobody published: {body[:40]!r}")

    def delivery(self, delivery: Delivery) -> None:
        message, queue = delivery.message, delivery.subscription.queue
        if queue in self.journal.short_lived:
            routed = message.exchange == self.journal.topology.churned
        else:
            routed = queue in self.journal.topology.route(message.exchange, message.routing_key)
        if not routed:
            raise Violation(20, f"{queue} delivers {message.key}, which was not routed to it")
        past = self._seen.setdefault((queue, message.key), _History(delivery.at))
        if not delivery.redelivered:
            # Bytes of a broken connection may come late: what was sent first need not be heard first.
            before = past.deliveries > 0 and past.first_at < delivery.subscription.started
            if past.fresh >= len(message.sends) or (before and len(message.sends) == 1):
                raise Violation(23, f"{queue} delivers {message.key} again without the redelivered flag")
            past.fresh += 1
        self._check_order(delivery)
        self._check_past(delivery, past)
        past.deliveries += 1

    def _check_order(self, delivery: Delivery) -> None:
        """Each delivery must fit a later send of its publisher than the delivery before it."""
        subscription, message = delivery.subscription, delivery.message
        if delivery.redelivered and not self.journal.orderly(subscription):
            return
        last = subscription.last_send.get(message.publisher, 0)
        fitting = [send for send in message.sends if send > last]
        if not fitting:
            raise Violation(
                21, f"{subscription.queue} delivers {message.key} to {subscription.client} after a later one "
                f"of {message.publisher} (send {last})",
            )  # fmt: skip
        subscription.last_send[message.publisher] = fitting[0]

    def _check_past(self, delivery: Delivery, past: _History) -> None:
        message, subscription = delivery.message, delivery.subscription
        for voiding in self.journal.voidings:
            if not voiding.done or voiding.queue != subscription.queue or voiding.end is None:
                continue
            if message.confirmed_at is None or message.confirmed_at >= voiding.sent_at:
                continue
            held_back = voiding.kind == "purge" and past.deliveries > 0
            if subscription.started >= voiding.end and not held_back and len(message.sends) == 1:
                raise Violation(
                    17, f"{subscription.queue} delivers {message.key} from before its {voiding.kind}"
                )


def check_copies_13(primary: Machine, backup: Machine) -> None:
    """At a quiet point the backup's objects and messages are the primary's (13; 14 for one that rejoined)."""
    ours, theirs = state(primary), state(backup)
    if ours == theirs:
        return
    for part in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(part, []), theirs.get(part, [])
        if one != other:
            only, extra = [x for x in one if x not in other], [x for x in other if x not in one]
            raise Violation(
                13, f"{part}: {len(only)} only on primary {primary.name} {only[:3]}, "
                f"{len(extra)} only on backup {backup.name} {extra[:3]}",
            )  # fmt: skip


def check_no_loss_1(journal: Journal, cold_starts: list[float]) -> None:
    """After the drain: each confirmed message was ended by a consumer, or by a purge or delete asked for.

    What is not persistent on a durable queue may be gone after a cold start.
    """
    for message in journal.confirmed:
        for queue in sorted(message.expected):
            if (queue, message.key) in journal.settled or journal.voided(message, queue):
                continue
            lasting = message.persistent and journal.topology.durable(queue)
            confirmed = message.confirmed_at or 0.0
            if not lasting and any(start > confirmed for start in cold_starts):
                continue
            raise Violation(1, f"{message.key}, confirmed at {confirmed:.6f}, is lost from {queue}")

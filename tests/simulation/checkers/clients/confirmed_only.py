"""What comes to a consumer with `x-confirmed-only` is as safe as what is confirmed (23)."""

from __future__ import annotations

from collections.abc import Container, Sequence

from tests.simulation.checkers.clients.confirms import Confirms2and3and5, on_disk
from tests.simulation.checkers.facts import SERVING
from tests.simulation.harness.journal import Delivery, Journal, Message, Violation
from tests.simulation.harness.machines.machine import Machine


class ConfirmedOnly23:
    """23: when such a consumer hears a message, all copies have it that its confirm waits for. Until somebody
    ends it, each promoted node has it, and the drain brings it: so it never comes from a publisher anew, as
    another one.

    Excused is what excuses the loss of a confirmed message. The time that counts is when the message left.
    """

    def __init__(self, machines: Sequence[Machine], journal: Journal, confirms: Confirms2and3and5) -> None:
        self.machines = {machine.address[1]: machine for machine in machines}
        self.journal = journal
        self.confirms = confirms
        self.checked = 0
        self.looked = 0
        """Messages looked for on a promoted node."""
        self._left: dict[tuple[str, str], tuple[Message, float]] = {}
        """By queue and key: when it left last."""
        journal.on_delivery.append(self.delivery)

    def delivery(self, delivery: Delivery) -> None:
        subscription, message = delivery.subscription, delivery.message
        if not subscription.confirmed_only:
            return
        queue = subscription.queue
        self._left[queue, message.key] = message, delivery.left
        primary = self.machines.get(subscription.port)
        if primary is None or primary.node is None or primary.role() not in SERVING:
            return
        if not self._stays(queue, message, delivery.left):
            return
        record = self.confirms.record(primary)
        for copy in self.confirms.copies(primary)[0]:
            disk = on_disk(record, primary=copy is primary)
            if why := self.confirms.lacks(copy, queue, message, disk=disk):
                raise Violation(
                    23, f"{copy.name} {why} {queue} the {message.key} that {subscription.client} got, which "
                    "gets only what could be confirmed",
                )  # fmt: skip
        self.checked += 1

    def promoted(self, machine: Machine) -> None:
        holdings = self.confirms.holdings[machine.name]
        for queue, message in self._staying():
            self.looked += 1
            if not holdings.in_memory(queue, message.key):
                raise Violation(
                    23, f"{machine.name} is promoted without the {message.key} of {queue} that a consumer "
                    "got which gets only what could be confirmed",
                )  # fmt: skip

    def end(self, memory_lost: Sequence[float], kept: Container[float] = ()) -> None:
        """After the drain."""
        for queue, message in self._staying():
            left = self._left[queue, message.key][1]
            durable = self.journal.topology.durable(queue)
            took = [at for at in memory_lost if at > left and not (durable and at in kept)]
            if not took or (message.persistent and durable):
                raise Violation(
                    23, f"{message.key} is lost from {queue}: a consumer got it that gets only what could be "
                    "confirmed",
                )  # fmt: skip

    def _staying(self) -> list[tuple[str, Message]]:
        """What each copy must have. What may have gone is forgotten."""
        self._left = {at: was for at, was in self._left.items() if self._stays(at[0], *was)}
        return [(queue, message) for (queue, _), (message, _) in self._left.items()]

    def _stays(self, queue: str, message: Message, left: float) -> bool:
        journal = self.journal
        if (queue, message.key) in journal.settled or left <= journal.forced_until:
            return False
        durable = journal.topology.durable(queue)
        lost = journal.unkept_lost if durable else journal.memory_lost
        if message.persistent and durable:
            lost = journal.disk_lost
        return left > lost and not any(
            v.end is None or left <= v.end for v in journal.voidings.get(queue, ())
        )

"""Clients see sense: what is delivered, in which order, with which flag (17, 20, 21, 23)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.harness.journal import Delivery, Journal, Violation


@dataclass(slots=True)
class _History:
    """Of one message in one queue."""

    first_at: float
    deliveries: int = 0
    fresh: int = 0
    """Those without the redelivered flag: at most one for each send."""


class Deliveries17and20and21and23:
    """17: no message of a deleted or purged past. 20: nothing that nobody published or routed there.
    21: order per publisher and queue. 23: what may have been delivered before is flagged, but for what a
    consumer gets that came before the nodes were whole again after a forced promotion: of two that serve
    neither knows what the other one has delivered."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._seen: dict[tuple[str, str], _History] = {}
        journal.on_delivery.append(self.delivery)
        journal.on_unknown = self.unknown

    def unknown(self, queue: str, body: bytes) -> None:
        raise Violation(20, f"{queue} delivers what nobody published: {body[:40]!r}")

    def delivery(self, delivery: Delivery) -> None:
        message, queue = delivery.message, delivery.subscription.queue
        if queue in self.journal.short_lived or queue in self.journal.temporaries:
            routed = message.exchange == self.journal.topology.churned
        else:
            routed = queue in self.journal.topology.route(message.exchange, message.routing_key)
        if not routed:
            raise Violation(20, f"{queue} delivers {message.key}, which was not routed to it")
        past = self._seen.setdefault((queue, message.key), _History(delivery.at))
        if not delivery.redelivered and delivery.subscription.started > self.journal.forced_until:
            # Bytes of a broken connection may come late: what was sent first need not be heard first.
            before = past.deliveries > 0 and past.first_at < delivery.subscription.started
            if past.fresh >= len(message.sends) or (before and len(message.sends) == 1):
                raise Violation(23, f"{queue} delivers {message.key} again without the redelivered flag")
            past.fresh += 1
        self._check_order(delivery, past)
        self._check_past(delivery, past)
        past.deliveries += 1

    def _check_order(self, delivery: Delivery, past: _History) -> None:
        """Each delivery must fit a later send of its publisher than the delivery before it. A copy more, of
        what was sent twice while a way was cut, is one that was held up: the publisher had gone on since.
        Nor is anything in order that is given back; without a flag, where it could not be written.
        """
        subscription, message = delivery.subscription, delivery.message
        if not self.journal.orderly(subscription, redelivered=delivery.redelivered):
            return
        if past.deliveries and len(message.sends) > 1 and message.last_sent < self.journal.ways_clear_from:
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
        if message.last_sent <= self.journal.forced_until:
            return
        for voiding in self.journal.voidings.get(subscription.queue, ()):
            if not voiding.done or voiding.end is None:
                continue
            if message.confirmed_at is None or message.confirmed_at >= voiding.sent_at:
                continue
            held_back = voiding.kind == "purge" and past.deliveries > 0
            if subscription.started >= voiding.end and not held_back and len(message.sends) == 1:
                raise Violation(
                    17, f"{subscription.queue} delivers {message.key} from before its {voiding.kind}"
                )

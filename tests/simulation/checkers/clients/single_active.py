"""Of a queue with a single active consumer, the one that came first gets all messages (21)."""

from __future__ import annotations

from tests.simulation.harness.journal import Delivery, Journal, Turn, Violation


class SingleActive21:
    """Nothing is delivered while a consumer that surely came before, at the same node, is surely there."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.checked = 0
        """Deliveries while others were waiting."""
        self.taken_over = 0
        """Changes from one that is active to the next one."""
        self._active: dict[str, Turn] = {}
        journal.on_delivery.append(self.delivery)

    def delivery(self, delivery: Delivery) -> None:
        queue, turn = delivery.subscription.queue, delivery.subscription.turn
        if turn is None or not self.journal.topology.single_active(queue):
            return
        turns = self.journal.turns[queue]
        turns[:] = [other for other in turns if other.lasts or other is turn]
        for other in turns:
            if other is turn or other.session.address != turn.session.address:
                continue
            self.checked += 1
            if other.lasts and other.known_at is not None and other.known_at < turn.asked_at:
                raise Violation(
                    21, f"{queue} delivers {delivery.message.key} to {turn.tag}, but {other.tag} came before "
                    "it and is there: it has a single active consumer",
                )  # fmt: skip
        self.taken_over += self._active.get(queue) not in (None, turn)
        self._active[queue] = turn

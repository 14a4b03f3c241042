"""No loss: a confirmed message is there, or was ended by somebody who may (1)."""

from __future__ import annotations

from tests.simulation.journal import Journal, Violation


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

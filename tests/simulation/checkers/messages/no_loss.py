"""No loss: a confirmed message is there, or was ended by somebody who may (1)."""

from __future__ import annotations

from collections.abc import Container

from tests.simulation.harness.journal import Journal, Violation


def check_no_loss_1(journal: Journal, memory_lost: list[float], kept: Container[float] = ()) -> None:
    """After the drain: each confirmed message was ended by a consumer, or by a purge or delete asked for.

    What is not persistent on a durable queue, and was sent before the last copy in memory died, may be gone;
    so may all that was sent before the nodes were whole again after a forced promotion, or before a cold
    start from disks that may lack what was confirmed. `kept`: instants of
    `memory_lost` at which a disk had what is transient in durable queues, too.
    """
    for message in journal.confirmed:
        if message.last_sent <= max(journal.forced_until, journal.disk_lost):
            continue
        for queue in sorted(message.expected):
            if (queue, message.key) in journal.settled or journal.voided(message, queue):
                continue
            confirmed = message.confirmed_at or 0.0
            durable = journal.topology.durable(queue)
            took = [at for at in memory_lost if at > message.last_sent and not (durable and at in kept)]
            if took and not (message.persistent and durable):
                continue
            raise Violation(1, f"{message.key}, confirmed at {confirmed:.6f}, is lost from {queue}")

"""What a consumer has acked seldom comes back (22)."""

from __future__ import annotations

from tests.simulation.checkers.faults import Troubles
from tests.simulation.checkers.records import Records
from tests.simulation.journal import STRAGGLE, Delivery, Journal, Violation
from tests.simulation.plan import TimingPlan


class Acked22:
    """22: a message whose ack the primary has surely heard is not delivered again, unless a promotion came
    so soon after that the promoted node need not have had the dequeue yet.

    Surely heard: its connection lasted longer than any packet is on its way. Left out are messages that were
    sent twice, and times at which packets were kept from anywhere or nodes were frozen.
    """

    def __init__(self, journal: Journal, records: Records, troubles: Troubles, timing: TimingPlan) -> None:
        self.journal = journal
        self.records = records
        self.troubles = troubles
        self.bound = timing.dequeue_lag + timing.ack_timeout + timing.backup_timeout + STRAGGLE
        self.checked = 0
        self.frozen = -1e9
        """When a process was last frozen or went on."""
        journal.on_delivery.append(self.delivery)

    def delivery(self, delivery: Delivery) -> None:
        message, queue = delivery.message, delivery.subscription.queue
        ending = self.journal.settled.get((queue, message.key))
        if ending is None or ending.line is None or len(message.sends) > 1:
            return
        heard = ending.at + STRAGGLE
        lost_at = ending.line.lost_at
        if delivery.at <= heard or (lost_at is not None and lost_at <= heard):
            return
        if ending.at <= max(self.troubles.cut, self.frozen) + STRAGGLE:
            return
        self.checked += 1
        end = self._end_of_the_one_who_heard(ending.at)
        if end is None:
            raise Violation(
                22, f"{message.key} comes back from {queue}, and the primary that heard its ack serves"
            )
        if end > ending.at + self.bound:
            raise Violation(
                22, f"{message.key} comes back from {queue} {end - ending.at:.3f} s after its ack and before "
                f"the failover, longer than {self.bound:g} s",
            )  # fmt: skip

    def _end_of_the_one_who_heard(self, acked_at: float) -> float | None:
        for promotion in self.records.promotions:
            if promotion.at > acked_at:
                before = promotion.before
                life = self.records.lives.get(before.owner) if before is not None else None
                died = life.died if life is not None else None
                return promotion.at if died is None or died < acked_at else min(died, promotion.at)
        return None

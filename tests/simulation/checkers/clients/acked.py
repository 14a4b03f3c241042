"""What a consumer has acked seldom comes back (22)."""

from __future__ import annotations

from tests.simulation.checkers.faults import Troubles
from tests.simulation.checkers.records import Records
from tests.simulation.harness.journal import STRAGGLE, Delivery, Ending, Journal, Violation
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.plan import Plan


class Acked22:
    """22: a message whose ack the primary has surely heard is not delivered again, unless a promotion came
    so soon after that the promoted node need not have had the dequeue yet.

    Surely heard: for longer than any packet is on its way, its connection lasted, its node lived, and no
    other was promoted; nor had another been, so that this one only had not heard of it yet. A delivery that
    may have left its node before that does not count, however late it is read. Left out are messages that
    were sent twice, and times at which packets were kept from anywhere, nodes were frozen, or one that would
    hand over read nothing.
    """

    def __init__(self, journal: Journal, records: Records, troubles: Troubles, plan: Plan) -> None:
        self.journal = journal
        self.records = records
        self.troubles = troubles
        self.way = STRAGGLE if plan.network.slow else STRAGGLE / 10
        self.repeats = plan.network.retransmit
        """What was sent soon after a way was mended waits behind what is sent again."""
        timing = plan.timing
        self.bound = timing.dequeue_lag + timing.ack_timeout + timing.backup_timeout + self.way
        self.checked = 0
        self.frozen = -1e9
        """When a process was last frozen, or went on, or heard its clients again."""
        self._deaf: set[str] = set()
        """Nodes that read nothing of clients for now."""
        journal.on_delivery.append(self.delivery)

    def ticked(self, machine: Machine, now: float) -> None:
        if machine.running.broker.input_paused:
            self._deaf.add(machine.name)
        elif machine.name in self._deaf:
            self.ended(machine, now)

    def ended(self, machine: Machine, now: float) -> None:
        """It reads again, or never more."""
        if machine.name in self._deaf:
            self._deaf.discard(machine.name)
            self.frozen = now

    def delivery(self, delivery: Delivery) -> None:
        message, queue = delivery.message, delivery.subscription.queue
        ending = self.journal.settled.get((queue, message.key))
        if ending is None or len(message.sends) > 1 or not self._heard(ending, delivery.left):
            return
        if ending.at <= self.journal.forced_until:
            return
        self.checked += 1
        end = self._end_of_the_one_who_heard(ending.at)
        if end is None:
            raise Violation(
                22, f"{message.key} comes back from {queue}, and the primary that heard its ack serves on"
            )
        if end > ending.at + self.bound:
            raise Violation(
                22, f"{message.key} comes back from {queue} {end - ending.at:.3f} s after its ack and before "
                f"the failover, longer than {self.bound:g} s",
            )  # fmt: skip

    def _heard(self, ending: Ending, now: float) -> bool:
        line, heard = ending.line, ending.at + self.way
        if self._deaf or line is None or now <= heard or (line.lost_at is not None and line.lost_at <= heard):
            return False
        if ending.at <= max(self.troubles.cut + self.repeats, self.frozen) + self.way:
            return False
        if any(line.opened_at <= promotion.at <= heard for promotion in self.records.promotions):
            return False
        last = next((p for p in reversed(self.records.promotions) if p.at < line.opened_at), None)
        if last is not None and last.machine.address[1] != line.port:
            return False
        return not any(
            life.died is not None and line.opened_at <= life.died <= heard
            for life in self.records.lives.values()
            if life.machine.address[1] == line.port
        )

    def _end_of_the_one_who_heard(self, acked_at: float) -> float | None:
        """When it died, or another was promoted; None if neither."""
        for promotion in self.records.promotions:
            if promotion.at > acked_at:
                before = promotion.before
                life = self.records.lives.get(before.owner) if before is not None else None
                died = life.died if life is not None else None
                return promotion.at if died is None else min(died, promotion.at)
        return None

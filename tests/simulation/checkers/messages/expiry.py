"""Whose clock ends a message's time (18): it ends when it should, whoever serves, however clocks differ.

`Dating` knows how far the clock that messages are dated by may be off: a promoted node goes on from that of
the primary that it followed. `Expiry18` reads the history of each node that serves: when a message came to a
queue with rules, and when it left because its time was over. All times here are the world's, no node's.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.model.history.batch import Batch
from broker.model.history.records import Dequeue, EnqueueRun
from broker.model.values import Reason
from tests.simulation.checkers.facts import SERVING
from tests.simulation.clients.rule_user import RuleUser, number_of, steps_of
from tests.simulation.faults.plan import Fault
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.inspection import content_of
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.plan import Plan

FOLLOWING = frozenset({"catch-up", "ready", *SERVING})
SLACK = 0.05
"""Seconds for which a wall clock and a client's may disagree: a tick, a way, a sync."""
RATE = 0.01
"""Part of the time by which a clock may be too fast or too slow: so one is made to follow another."""
JUMP = 0.1
"""Seconds by which one may jump at each promotion, and at each step of a machine's clock: twice what is too
little to be made good slowly, before it and after it."""
COMPARED = 0.2
"""Seconds by which the clocks of a primary and of the next one may have moved since they were compared."""


class Dating:
    """How well the time of a message is kept, from whoever took it to whoever ends it."""

    def __init__(self, plan: Plan) -> None:
        self._steps = sum(fault.kind is Fault.STEP_CLOCK for fault in plan.faults)
        self._followed: set[tuple[str, int]] = set()
        """The lives that have followed a primary, or been one."""
        self._promotions: list[float] = []
        self._anew = -1.0

    def tick(self, machine: Machine) -> None:
        if machine.role() in FOLLOWING:
            self._followed.add((machine.name, machine.life))

    def promoted(self, machine: Machine, now: float) -> None:
        self._promotions.append(now)
        if (machine.name, machine.life) not in self._followed:
            self._anew = now

    def kept(self, since: float) -> bool:
        """Whether all who served since then went by one clock. A node without a primary to follow, after a
        cold start, goes by its machine's."""
        return since > self._anew

    def off(self, since: float, now: float) -> float:
        """Seconds by which a time that began then may be over early now, or late."""
        promotions = sum(at >= since for at in self._promotions)
        return (
            SLACK + JUMP * (promotions + self._steps) + COMPARED * promotions + RATE * max(0.0, now - since)
        )


class Expiry18:
    """18: no message expires early because the clocks of two nodes differ."""

    def __init__(self, clock: Clock, users: Sequence[RuleUser], dating: Dating) -> None:
        self.checked = 0
        self._clock = clock
        self._dating = dating
        self._times = {
            queue: (user, rule.message_ttl)
            for user in users
            for queue, rule in zip(
                (user.queue, *steps_of(user.plan)), (user.plan, *user.plan.steps), strict=True
            )
        }
        """Each queue with rules, and its own time."""
        self._came: dict[tuple[bytes, int, int], tuple[str, int, float]] = {}
        """Each message by its queue's UUID and its id: queue, number, when."""
        self._left: list[tuple[str, int, float]] = []
        """Those that have expired in this tick; whether its node was promoted in it is known at its end."""
        self._paused: dict[str, float] = {}
        """When a node was stopped that has not ended a tick since. What it took just before is dated by then,
        and comes to its history with that tick."""

    def paused(self, machine: Machine) -> None:
        self._paused[machine.name] = self._clock.now

    def started(self, machine: Machine) -> None:
        self._paused.pop(machine.name, None)
        if self._times:
            machine.running.broker.sinks.append(_Sink(self, machine))

    def batch(self, machine: Machine, batch: Batch) -> None:
        """`machine` serves, and this came to pass there."""
        queues = machine.running.vhosts.queues_by_uuid
        since = self._paused.get(machine.name, self._clock.now)
        expired = set[tuple[str, int]]()
        """What came as a dead letter because its time was over elsewhere: the queue, the number."""
        for record in batch.records:
            if isinstance(record, EnqueueRun):
                for uuid, first in zip(record.queues, record.firsts, strict=True):
                    queue = queues.get(uuid)
                    if queue is not None and queue.vhost == RuleUser.vhost:
                        self._enqueued(uuid, queue.name, first, record, since, expired)
        for record in batch.records:
            if isinstance(record, Dequeue):
                for first, last in record.ranges:
                    for seq in range(first, last + 1):
                        came = self._came.pop((record.queue, record.epoch, seq), None)
                        if came is not None and _over(record.reason, came, expired):
                            self._left.append(came)

    def tick(self, machine: Machine) -> None:
        self._paused.pop(machine.name, None)
        left, self._left = self._left, []
        for came in left:
            self._judge(*came)

    def _enqueued(
        self, uuid: bytes, name: str, first: int, run: EnqueueRun, since: float, expired: set[tuple[str, int]]
    ) -> None:
        for seq, raw in enumerate(run.raws, first):
            number = number_of(raw)
            if name in self._times:
                self._came[uuid, run.envelope.epoch, seq] = (name, number, since)
            for death in content_of(raw)[0].get("x-death", [])[:1]:
                if death["reason"] == "expired":
                    expired.add((death["queue"], number))

    def _judge(self, queue: str, number: int, since: float) -> None:
        user, ttl = self._times[queue]
        own = user.messages[number].expiration if queue == user.queue else None
        times = [ms / 1000 for ms in (ttl, own) if ms is not None]
        now = self._clock.now
        if not times or not self._dating.kept(since):
            return
        self.checked += 1
        early = since + min(times) - now
        if early > self._dating.off(since, now):
            raise Violation(18, f"{user.name}:{number} expires in {queue} {early:.3f} s before its time")


def _over(reason: Reason, came: tuple[str, int, float], expired: set[tuple[str, int]]) -> bool:
    return reason is Reason.EXPIRED or (reason is Reason.DEAD_LETTERED and came[:2] in expired)


class _Sink:
    """Gets what comes to pass on one node while it serves."""

    def __init__(self, checker: Expiry18, machine: Machine) -> None:
        self._checker = checker
        self._machine = machine

    def batch(self, batch: Batch) -> None:
        self._checker.batch(self._machine, batch)

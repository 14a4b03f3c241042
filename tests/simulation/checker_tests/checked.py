"""What the tests of the checkers share: a quiet pair to tamper with, and stand-ins for machines."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.clients.topology import BindingPlan, ExchangePlan, QueuePlan, Topology
from tests.simulation.clients.workload import Publisher
from tests.simulation.harness.journal import Message, Violation
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.plan import Plan, PublisherPlan, TimingPlan, draw_plan
from tests.simulation.harness.world import World

TOPOLOGY = Topology(
    (QueuePlan("q1", True), QueuePlan("q2", False)),
    (ExchangePlan("amq.fanout", "fanout", True, builtin=True),),
    (BindingPlan("amq.fanout", "q1", ""),),
)


def violates(number: int, text: str = "") -> AbstractContextManager[pytest.ExceptionInfo[Violation]]:
    """`text`: a pattern of what else it says."""
    return pytest.raises(Violation, match=f"^invariant {number}: .*{text}")


def quiet_plan(**changes: Any) -> Plan:
    """Two machines and one publisher of persistent messages; no faults, no consumers."""
    plan = draw_plan(1)
    machines = tuple(replace(plan.machines[0], name=name, sync_time=0.0002) for name in "AB")
    publisher = PublisherPlan(
        "p1", window=50, burst=10, interval=0.002, frame_max=0, heartbeat=0, big=0.0, persistent=1.0,
        mandatory=False,
    )  # fmt: skip
    drawn: dict[str, Any] = {
        "nodes": 2, "machines": machines,
        "operator": replace(plan.operator, first="A", both=False, twice=False),
        "timing": TimingPlan(),
        "authority": "manual", "on_backup_loss": "continue", "min_backups": 0, "topology": TOPOLOGY,
        "publishers": (publisher,), "consumers": (), "churners": (), "pollers": (), "temporaries": (),
        "movers": (), "numberers": (), "trespassers": (), "rules": (),
        "faults": (), "network": replace(plan.network, slow=0.0, cut=0.0),
    }  # fmt: skip
    return replace(plan, **(drawn | changes))


class Pair:
    """A whole pair, A primary and B its backup, with `count` confirmed messages in q1 and in q2."""

    def __init__(self, count: int = 20, **changes: Any) -> None:
        self.world = World(quiet_plan(**changes))
        self.clock = self.world.clock
        self.journal = self.world.journal
        self.checkers = self.world.checkers
        self.world.start()
        self._until_whole()
        for actor in self.world.actors:
            actor.start()
        self.publisher: Publisher = self.world.publishers["p1"]
        self.publisher.grant(count)
        while len(self.journal.confirmed) < count:
            self.run(0.05)
        self.a, self.b = self.world.machines

    def run(self, seconds: float) -> None:
        self.clock.run(self.clock.now + seconds)

    def _until_whole(self) -> None:
        limit = self.clock.now + 20
        while self.world.whole() is None:
            assert self.clock.now < limit
            self.run(0.05)
        self.run(0.5)

    def in_queue(self, queue: str) -> list[Message]:
        return [message for message in self.journal.confirmed if queue in message.certain]


def stand_in(name: str, *, epoch: int = 1, role: str = "active", life: int = 1, **more: Any) -> Machine:
    """Something with as much of a machine as a checker reads."""
    core = SimpleNamespace(epoch=epoch, membership=SimpleNamespace(members={}))
    node = SimpleNamespace(
        core=core,
        vhost=SimpleNamespace(history=SimpleNamespace(epoch=epoch, n=0)),
        replica=SimpleNamespace(position=(epoch, 0)),
    )
    machine: Any = SimpleNamespace(
        name=name, life=life, running=node, node=node, role=lambda: machine.says, says=role, **more
    )
    found: Machine = machine
    return found

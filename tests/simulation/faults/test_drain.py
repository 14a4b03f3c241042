"""The drain at the end of a run: what it finds missing must be missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.clients.session import Session
from tests.simulation.clients.workload import Drainer
from tests.simulation.faults.plan import Fault, FaultPlan, When
from tests.simulation.faults.test_faults import plans
from tests.simulation.harness import network
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.operator import SERVING
from tests.simulation.harness.plan import Plan
from tests.simulation.harness.world import World

PLANS, QUICK = plans("pacemaker", 6), 3
"""The first few are for `make test`, the others for `make soak-sweeps`."""


@pytest.mark.parametrize(
    "plan",
    [*PLANS[:QUICK], *(pytest.param(plan, marks=pytest.mark.soak) for plan in PLANS[QUICK:])],
    ids=lambda plan: f"seed {plan.seed}",
)
def test_a_queue_is_drained_by_who_is_connected_now(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of seed 100000776: a late fencing took the primary's power when a drainer had just connected. Nobody
    told it, and what its queue held, on both nodes, was taken for lost."""
    monkeypatch.setattr(network, "KEEPALIVE", 6.0)
    traffic = FaultPlan("f1", Fault.EDIT_CIB, When.WHOLE, share=1.0, pause=0.01, length=0.0)
    lasting = tuple(replace(publisher, persistent=1.0) for publisher in plan.publishers)
    world = World(replace(plan, faults=(traffic,), publishers=lasting, consumers=(), pollers=()))
    struck: list[tuple[Drainer, Machine]] = []

    def begin(drainer: Drainer, session: Session) -> None:
        original(drainer, session)
        holds = any(world.journal.must_hold(drainer.queue, m) for m in world.journal.unsettled())
        if holds and not struck:
            primary = next(machine for machine in world.machines if machine.role() in SERVING)
            struck.append((drainer, primary))
            assert world.faults.power_off(primary)

    original = Drainer.begin
    monkeypatch.setattr(Drainer, "begin", begin)
    world.run()
    assert [drainer.connections for drainer, _ in struck] == [2]
    assert world.promotions == 2

"""Each host has a monotonic clock of its own, which begins anew with the host, not with its process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ha.core.backup.backup import Backup
from tests.simulation.checker_tests.checked import Pair, quiet_plan
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.machines.host_clock import HostClock
from tests.simulation.harness.machines.machine import Death
from tests.simulation.harness.plan import MachinePlan, draw_plan
from tests.simulation.mutants import MUTANTS


def of_host(*uptimes: int) -> HostClock:
    return HostClock(Clock(), replace(quiet_plan().machines[0], wall_error=-100, uptimes=uptimes))


def test_it_goes_on_as_the_world_does_and_begins_anew_with_its_host() -> None:
    host = of_host(5000, 17)
    host.world.run(2.5)
    assert host.now == 5002.5
    host.begin_anew()
    assert host.now == 19.5
    host.begin_anew()
    assert host.now == 5002.5, "in turn"
    assert host.wall_ms == host.world.wall_ms - 100, "whatever the other one shows"


def test_without_a_plan_for_it_it_is_the_worlds() -> None:
    host = of_host()
    host.world.run(2.5)
    host.begin_anew()
    assert host.now == 2.5


@pytest.mark.parametrize("uptime", [0, 1, 999, 1_199_999])
def test_a_timer_rings_once_it_is_due_and_at_once(uptime: int) -> None:
    host, rung = of_host(uptime), list[float]()
    due = [host.now + n * 0.7 / 3 for n in range(100)]
    for when in due:
        host.at(when, lambda: rung.append(host.now))
    host.world.run(100.0)
    assert rung == pytest.approx(due, rel=0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("death", "ahead"), [(Death.KILLED, 900), (Death.STOPPED, 900), (Death.POWER, 3), (Death.CRASHED, 3)]
)
def test_a_process_comes_and_goes_and_its_host_keeps_the_time(death: Death, ahead: int) -> None:
    pair = apart((5000,), (900, 3))
    told: list[float] = []
    pair.b.kill(death)
    assert pair.b.start()
    pair.b.hear(lambda: told.append(pair.b.host.now))
    assert told == [pair.clock.now + ahead]
    pair.run(5.0)
    assert pair.world.whole() is not None


def test_most_seeds_have_clocks_that_differ_and_some_have_one() -> None:
    plans = [draw_plan(seed) for seed in range(1, 101)]
    apart = [plan for plan in plans if len({machine.uptimes for machine in plan.machines}) == plan.nodes]
    one = [plan for plan in plans if not any(machine.uptimes for machine in plan.machines)]
    assert len(apart) + len(one) == 100 and len(apart) > 60 and len(one) > 5


@pytest.mark.parametrize(("uptimes", "whole"), [((7, 7), True), ((3, 9), False)])
def test_a_node_that_says_back_its_own_time_is_found_where_clocks_differ(
    uptimes: tuple[int, int], whole: bool
) -> None:
    pair = apart(*[(uptime,) for uptime in uptimes])
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "say back one's own time")
    assert [(patch.owner, patch.attribute) for patch in mutant.patches] == [(Backup, "heartbeat")]
    with mutant.applied():
        pair.run(5.0)
    broken = [line for line in pair.clock.recent if "acknowledged what is not sent yet" in line]
    assert (not broken) is whole


def apart(*uptimes: tuple[int, ...]) -> Pair:
    plan = quiet_plan()
    machines: list[MachinePlan] = [
        replace(machine, uptimes=of) for machine, of in zip(plan.machines, uptimes, strict=True)
    ]
    return Pair(machines=tuple(machines))

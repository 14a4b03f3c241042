"""Each kind of fault alone, under each authority that is to survive it, several times."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from random import Random

import pytest

from broker.model.history.records import HistoryCheckpoint
from broker.model.values import Scope
from ha.core.backup import backup
from ha.core.primary.consistency_checkpoints import ConsistencyCheckpoints
from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.faults import cluster as faults_cluster
from tests.simulation.faults.injector import ACTS
from tests.simulation.faults.nodes import break_links
from tests.simulation.faults.plan import CUTS, NEEDS, WEIGHTS, Fault, FaultPlan, When, draw_spoilt_copy
from tests.simulation.harness.machines.machine import Death
from tests.simulation.harness.machines.virtual_disk import Crash, VirtualDisk
from tests.simulation.harness.plan import LinkPlan, Plan, draw_plan
from tests.simulation.harness.runner import run_seed
from tests.simulation.harness.world import World


def plans(authority: str, count: int, *, all_durable: bool = True) -> list[Plan]:
    """The first seeds' plans of that authority."""
    found: list[Plan] = []
    seed = 0
    while len(found) < count:
        seed += 1
        plan = draw_plan(seed)
        if plan.authority == authority and (plan.topology.all_durable or not all_durable):
            found.append(plan)
    return found


@pytest.mark.parametrize("kind", list(Fault))
def test_copies_are_compared_when_what_was_held_up_has_arrived(kind: Fault) -> None:
    """Seed 104018010: a way was mended, and what was under way on it came after the comparison."""
    done = inspect.getsource(ACTS[kind])
    assert (kind in CUTS) == ("cut_off(" in done or "kill_unseen(" in done)
    plan = plans("pacemaker", 1)[0]
    world = World(replace(plan, faults=(FaultPlan("f1", kind, When.ANY, share=0, pause=0, length=0),)))
    assert (world.settle > plan.network.retransmit) or kind not in CUTS


def test_copies_are_not_compared_before_the_primary_has_told_all_that_it_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 1655: a history checkpoint was made in the very instant of the comparison."""
    pair, compared = Pair(), []
    world, history, run = pair.world, pair.a.running.vhost.history, pair.clock.run

    def run_and_do_something_at_first(until: float) -> None:
        run(until)
        runs.append(until)
        if len(runs) == 2:
            history.append(HistoryCheckpoint(history.epoch, Scope.LINK))

    runs: list[float] = []
    monkeypatch.setattr(pair.clock, "run", run_and_do_something_at_first)
    monkeypatch.setattr(
        world.checkers, "quiet_point", lambda *_: compared.append(history.position.n - history.n)
    )
    world._compare()
    assert compared == [0] and len(runs) >= 4


COMMON = (Fault.KILL_ALL, Fault.HAND_OVER, Fault.BAD_EVENT, Fault.MISCONFIGURE)
CASES = [
    (authority, kind) for authority, weights in WEIGHTS.items() for kind in (*weights, *COMMON)
    if authority != "manual" or kind is not Fault.MISCONFIGURE
]  # fmt: skip


@pytest.mark.parametrize(
    "count", [pytest.param(1, marks=pytest.mark.system), pytest.param(3, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize(("authority", "kind"), CASES)
def test_each_fault_alone_is_survived(authority: str, kind: Fault, count: int) -> None:
    for plan in plans(authority, count):
        fault = FaultPlan("f1", kind, NEEDS.get(kind, When.PAIR), share=0.3, pause=0.001, length=0.5)
        world = World(replace(plan, faults=(fault,)))
        world.run()
        assert world.faults.injected == [kind], f"seed {plan.seed}"
        assert world.faults.done
        assert not world.network.cuts
        assert not world.network.down


def test_each_connection_of_a_link_that_breaks_is_noted() -> None:
    pair = Pair()
    pair.clock.recent.clear()
    break_links(pair.a, pair.b, Random(1))
    broken = [
        line for line in pair.clock.recent if re.search(r"FAULT: the connection of \w to \w breaks", line)
    ]
    assert broken and all(line.startswith(f"{pair.clock.now:10.6f}  ") for line in broken)


def test_a_host_that_froze_while_its_cluster_was_down_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 110027859: its broker stood still for ever. It was the last with what is not durable, so that
    nobody was allowed to fence it."""
    monkeypatch.setattr(faults_cluster, "_someone", lambda s, rng: s.world.machines[0])
    kinds = ((Fault.KILL_CLUSTER, 3.0), (Fault.FREEZE_HOST, 0.5))
    faults = tuple(FaultPlan(f"f{kind}", kind, When.ANY, 0.0, 0.001, length) for kind, length in kinds)
    world = World(replace(plans("pacemaker", 1)[0], faults=faults))
    frozen: list[bool] = []
    machine, cluster = world.machines[0], world.cluster
    original = machine.pause

    def pause(*, in_tick: bool) -> None:
        assert cluster is not None
        original(in_tick=in_tick)
        frozen.append(not cluster.nodes[machine.name].on)
        monkeypatch.setattr(world.faults, "kill", lambda machine, death, **how: False)

    monkeypatch.setattr(machine, "pause", pause)
    world.run()
    assert frozen == [True]


@pytest.mark.parametrize("first", range(3))
def test_what_a_process_heard_while_it_was_stopped_may_be_its_end(first: int) -> None:
    """Seed 112037533: it woke up, crashed in a write, and a connection that waited was still to be let in."""
    world = World(replace(plans("manual", 1)[0], faults=(), movers=()))
    world.run()
    machine = world.machines[0]
    machine.pause()
    machine.hear(machine.kill)
    machine.hear(lambda: machine.running.status())
    machine.rng.choice = lambda options: first  # type: ignore[method-assign]
    machine.resume()
    assert machine.node is None


@pytest.mark.system
def test_a_joiner_that_is_fed_in_crumbs_catches_up_with_the_dead_letters() -> None:
    """Seed 110027658: a client of rules published for as long as it did not, and the queue of its dead
    letters grew by two messages while three of it were fetched."""
    assert run_seed(110027658).failure is None


@pytest.mark.system
@pytest.mark.parametrize("authority", list(WEIGHTS))
def test_forced_promotions_end_in_one_primary_and_equal_copies(authority: str) -> None:
    """And from then on all holds as ever: what is published when the nodes are whole again, and while another
    primary is killed, is looked for at the end."""
    faults = (
        FaultPlan("f1", Fault.FORCE, When.PAIR, share=0.3, pause=0.001, length=0.5),
        FaultPlan("f2", Fault.KILL_PRIMARY, When.WHOLE, share=0.5, pause=0.001, length=0.5),
    )
    forced = 0
    for plan in plans(authority, 12):
        world = World(replace(plan, faults=faults, movers=(), registrar=0.0))
        world.run()
        forced += world.checkers.counts["promotions, forced"]
        assert world.journal.binding
        assert world.faults.injected == [Fault.FORCE, Fault.KILL_PRIMARY], f"seed {plan.seed}"
        since = world.journal.forced_until
        assert any(m.last_sent > since for m in world.journal.confirmed), f"seed {plan.seed}"
    assert forced > 6


@pytest.mark.system
@pytest.mark.parametrize("authority", list(WEIGHTS))
def test_a_copy_that_differs_in_silence_is_found_by_the_nodes_and_mended(authority: str) -> None:
    """By the comparison at a consistency checkpoint, with as much to list as there is."""
    found = 0
    for plan in plans(authority, 6):
        world = World(replace(plan, faults=draw_spoilt_copy(Random(1), ()), link=LinkPlan()))
        world.run()
        assert world.faults.injected == [Fault.SPOIL_COPY] and not world.faults.alone
        assert not any(machine.astray or machine.spoilt for machine in world.machines)
        found += world.checkers.counts["queues fetched again"]
    assert found > 1


def test_a_copy_whose_difference_nobody_finds_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsistencyCheckpoints, "cut", lambda self, backups, now: None)
    with violates(13) as violation:
        for plan in plans("manual", 6):
            faults = draw_spoilt_copy(Random(1), ())
            World(replace(plan, faults=faults, link=LinkPlan())).run()
    assert "it has not noticed" in str(violation.value)


def test_a_difference_that_nobody_has_made_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What mends it would hide what made it."""
    world = World(replace(plans("manual", 2)[1], faults=(), movers=(), link=LinkPlan()))
    monkeypatch.setattr(backup, "digest_of", lambda ids: b"another.")
    with violates(13) as violation:
        world.run()
    assert "differs from the primary's at " in str(violation.value)
    assert "nobody has spoilt it" in str(violation.value)


def test_copies_are_spoilt_only_where_points_come_to_all_queues_soon() -> None:
    drawn = [
        plan for plan in map(draw_plan, range(1, 400)) if any(f.kind is Fault.SPOIL_COPY for f in plan.faults)
    ]
    assert 4 < len(drawn) < 40
    assert all(plan.link.lists_all for plan in drawn)
    assert not LinkPlan(quiesce_queues=1).lists_all and not LinkPlan(quiesce_most=10).lists_all


def test_every_kind_has_an_act() -> None:
    assert set(ACTS) == set(Fault)


@pytest.mark.parametrize("death", list(Death))
def test_the_last_copy_of_what_is_not_durable_is_spared(death: Death) -> None:
    plan = next(p for p in plans("manual", 40, all_durable=False) if not p.topology.all_durable)
    world = World(replace(plan, faults=()))
    world.run()
    primary = next(m for m in world.machines if m.role() == "active")
    for machine in world.machines:
        if machine is not primary:
            assert world.faults.kill(machine, death)
    world.clock.run(world.clock.now + 30.0)
    assert not world.faults.kill(primary, death)
    assert primary.node is not None


def test_a_crash_in_a_write_waits_while_it_would_take_the_last_copy() -> None:
    """Of seed 40003503: the backup left the record between the choice of the primary and its crash."""
    disk, last = VirtualDisk(), True
    disk.make_directory("/a")
    file = disk.open_append("/a/f")
    disk.crash_at, disk.spared = disk.operations, lambda: last
    file.write(b"spared")
    last = False
    with pytest.raises(Crash):
        file.write(b"not spared")
    assert run_seed(40003503).failure is None

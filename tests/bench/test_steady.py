"""The steadiness bench counts pauses as they were, and its load leaves the queue as deep as it was."""

from __future__ import annotations

from xml.etree import ElementTree

from bench import brokers
from bench.durable.nodes import connected, depth, fill
from bench.steady.histogram import Histogram, Wait, names
from bench.steady.load import BLOCK, Load
from bench.steady.probe import Probe
from bench.steady.report import GOAL_MS, Run, long_waits, svg, table


def run(*waits: Wait) -> Run:
    found = Histogram()
    found.add(waits)
    return Run("a node", 60, 5_000, 10_000, 3, 59, 12, found)


def test_a_lack_of_cores_is_no_pause_of_the_broker() -> None:
    seen = run(Wait(1, 30, 25, 2), Wait(2, 19, 0, 19), Wait(3, 0.4, 0, 0.1), Wait(4, 0.4, 0.9, 0.1))
    assert seen.met and seen.pauses.longest_own == 19 and seen.pauses.longest == 30
    assert dict(zip(names(), seen.pauses.own, strict=True))["to 20"] == 1
    assert sum(seen.pauses.own) == sum(seen.pauses.waits) == 4
    assert [line.split("ms")[0].split()[-1] for line in long_waits(seen).splitlines()] == ["30.0", "19.0"]
    assert not run(Wait(1, 30, 25, 2), Wait(2, GOAL_MS + 1, 0, 0)).met


def test_another_thread_without_a_core_may_have_pythons_lock_and_what_the_loop_ran_is_its_own() -> None:
    assert Wait(1, 300, 100, 8, others_lacked=150).own == 50
    assert Wait(1, 300, 100, 8, others_lacked=290).own == 8
    assert Wait(1, 3, 0, 8).own == 3
    assert Wait(1, 160, 10, 56, late=140).own == 20


def test_quantiles_are_of_the_brokers_part() -> None:
    found = Histogram()
    assert found.quantile(0.5) == 0
    found.add([Wait(0, 9, 8, 0)] * 98 + [Wait(0, 9, 0, 0)] * 2)
    assert 1 <= found.quantile(0.5) < 1.1 and 9 <= found.quantile(0.99) < 9.1


def test_table_and_plot_have_every_bin_of_every_system() -> None:
    runs = [run(Wait(1, 0.3, 0, 0)), run(Wait(1, 150, 0, 0))]
    lines = table(runs).splitlines()
    assert {line.count("|") for line in lines} == {4}
    assert "| over 100 ms (with the lack of cores) | 0 (0) | 1 (1) |" in lines
    drawn = ElementTree.fromstring(svg(runs, "a <machine>"))
    assert len([bar for bar in drawn if bar.tag.endswith("rect") and bar.get("width") == "28"]) == 4 * len(
        names()
    )


def test_the_load_keeps_the_depth_and_the_probe_sees_the_loop() -> None:
    with brokers.alone() as cluster:
        [broker] = cluster.brokers
        fill(broker.port, "deep", 3_000, 64)
        probe = Probe(broker.port, broker.process.pid)
        load = Load(broker.port, "deep", 64)
        passed = load.run(20_000, 0.2)
        load.close()
        probe.look()
        [wait] = probe.lap()
        wire = connected(broker.port)
        assert depth(wire, "deep") == 3_000
        wire.close()
    assert passed.confirmed and passed.confirmed % BLOCK == 0 and passed.delivered >= passed.confirmed
    assert 0 <= wait.own <= wait.ms and probe.lap() == []

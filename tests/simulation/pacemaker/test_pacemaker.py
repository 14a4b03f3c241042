"""The virtual cluster: who hears a write, who has quorum, which copy wins, what a disk keeps."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from ha.adapter.authority_port import AuthorityRequest
from tests.simulation.checker_tests.checked import violates
from tests.simulation.harness.asking import Asking
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.inspection import record_of
from tests.simulation.harness.network import Cut, Network
from tests.simulation.harness.plan import NetworkPlan
from tests.simulation.pacemaker.authority import PacemakerAuthority, Request
from tests.simulation.pacemaker.cib import MEMBER, Cib, first_cib, held_of
from tests.simulation.pacemaker.cluster import QNETD, Cluster
from tests.simulation.pacemaker.plan import PacemakerPlan

TOKEN = 0.3


def record(epoch: int, revision: int, owner: str = "a") -> dict[str, Any]:
    return {
        "cluster_id": "c", "epoch": epoch, "revision": revision, "owner": [owner, 1], "in_sync": [],
        "names": {owner: owner.upper()},
    }  # fmt: skip


class Playing(Asking):
    """A cluster of these names, and its helpers."""

    def __init__(self, names: str = "AB", seed: int = 1, **changes: Any) -> None:
        clock = Clock()
        plan = NetworkPlan(latency=0.0003, spread=0.0, cut=0.0, slow=0.0)

        def random(purpose: str) -> Random:
            return Random(f"{seed}/{purpose}")

        self.network = Network(clock, plan, random)
        self.cluster = Cluster(
            clock, self.network, PacemakerPlan(token=TOKEN, **changes), random("cluster"), list(names)
        )
        self.network.on_change = self.cluster.changed
        self.authority = PacemakerAuthority(clock, self.cluster, random)
        super().__init__(clock, self.authority)

    def cut(self, one: str, other: str) -> list[Cut]:
        cuts = [Cut(frozenset(one), frozenset(other)), Cut(frozenset(other), frozenset(one))]
        for cut in cuts:
            self.network.apply(cut)
        return cuts

    def mend(self, cuts: list[Cut]) -> None:
        for cut in cuts:
            self.network.mend(cut)

    def copy(self, name: str) -> Cib:
        return self.cluster.nodes[name].copy

    def held(self, name: str) -> object:
        held = dict(self.copy(name).held or ())
        return held.get("understudy-version")


def test_what_is_written_is_in_all_copies_and_in_force() -> None:
    playing = Playing("ABC")
    playing.ask("A", record(5, 1), None)
    assert playing.run() == [("A", "done", (5, 1))]
    assert [playing.held(name) for name in "ABC"] == ["5.1"] * 3
    playing.ask("B", record(6, 1, "b"), None)
    playing.ask("C", record(6, 2, "c"), (5, 1))
    playing.ask("B")
    assert sorted(playing.run()) == [("B", "conflict", (5, 1)), ("B", "done", (5, 1)), ("C", "done", (6, 2))]
    assert [r["epoch"] for _, r in playing.authority.history] == [5, 6]


def test_a_cib_as_text_has_what_was_written() -> None:
    cib = first_cib("AB").with_set((("understudy-record", json.dumps(record(1, 1))),))
    assert held_of(cib.xml) == cib.held
    assert cib.version == (0, 2, 0)
    assert cib.with_state("A", MEMBER) is cib
    assert cib.on_disk().states == ()


def test_a_split_in_a_write_leaves_it_on_one_side_and_unknown() -> None:
    playing = Playing()
    playing.cluster.armed.append(lambda writer: cuts.extend(playing.cut("A", "B")))
    cuts: list[Cut] = []
    playing.ask("A", record(5, 1), None)
    assert playing.run() == [("A", "unknown", None)]
    assert (playing.held("A"), playing.held("B")) == ("5.1", None)
    assert not playing.authority.history
    playing.mend(cuts)
    playing.ask("B")
    playing.run()
    assert playing.cluster.calm
    assert (playing.held("A"), playing.held("B")) == ("5.1", "5.1"), "the higher copy is taken for both"
    playing.ask("B")
    assert playing.run() == [("B", "done", (5, 1))]


def test_quorum_is_of_two_nodes_or_of_a_majority_or_by_the_device() -> None:
    pair, three, device = Playing(), Playing("ABC"), Playing(qdevice=True)
    pair.cut("A", "B")
    three.cut("C", "AB")
    device.network.apply(Cut(frozenset("A"), frozenset(("B", QNETD))))
    for playing in (pair, three, device):
        playing.run()
    assert [pair.cluster.quorate(name) for name in "AB"] == [True, True]
    assert [three.cluster.quorate(name) for name in "ABC"] == [True, True, False]
    assert [device.cluster.quorate(name) for name in "AB"] == [False, True]
    for playing, host, outcome in ((pair, "A", "unknown"), (three, "A", "done"), (three, "C", "unknown")):
        playing.ask(host)
        assert playing.run() == [(host, outcome, None)]


def test_a_host_without_power_comes_back_with_what_its_disk_had() -> None:
    playing = Playing()
    playing.ask("A", record(5, 1), None)
    playing.run()
    playing.network.power("B", False)
    playing.run()
    playing.cluster.fenced("A", "B")
    playing.ask("A", record(5, 2), (5, 1))
    assert playing.run() == [("A", "done", (5, 2))]
    cuts = playing.cut("A", "B")
    playing.network.power("B", True)
    playing.run()
    assert playing.held("B") == "5.1"
    assert not playing.cluster.quorate("B"), "wait_for_all"
    playing.ask("B")
    assert playing.run() == [("B", "unknown", None)]
    playing.mend(cuts)
    playing.run()
    assert playing.held("B") == "5.2"


def test_a_host_that_lost_a_change_with_its_power_is_behind_until_it_has_met_the_others() -> None:
    """Seed 130523797: somebody changed the configuration there meanwhile, and its older copy won."""
    playing = Playing(write_out=1e6)
    playing.ask("A", record(5, 1), None)
    playing.run()
    playing.network.power("A", False)
    cuts = playing.cut("A", "B")
    playing.network.power("A", True)
    playing.run()
    nodes = playing.cluster.nodes
    assert nodes["A"].behind and not nodes["B"].behind
    playing.mend(cuts)
    playing.run()
    assert playing.held("A") == "5.1" and not nodes["A"].behind


def test_the_last_copy_is_not_lost_with_the_power() -> None:
    playing = Playing(write_out=1e6)
    playing.ask("A", record(5, 1), None)
    playing.run()
    for name in "AB":
        playing.network.power(name, False)
    assert {playing.cluster.nodes[name].disk.epoch for name in "AB"} == {1, 2}


def test_a_helper_that_is_killed_answers_nothing() -> None:
    playing = Playing()
    playing.ask("A", record(5, 1), None)
    playing.authority.kill_helper("A")
    assert playing.run() == [("A", "unknown", None)]
    playing.ask("A")
    assert playing.run() == [("A", "done", None)]


@pytest.mark.parametrize(("first", "second"), [((6, 1), (7, 1)), ((7, 1), (6, 1))])
def test_two_that_have_replaced_the_same_record_are_not_both_in_force(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    playing = Playing()
    playing.ask("A", record(5, 1), None)
    playing.run()
    texts = {version: json.dumps(record(*version), sort_keys=True) for version in (first, second)}
    old = json.dumps(record(5, 1), sort_keys=True)
    playing.authority._parents |= dict.fromkeys(texts.values(), old)
    asked = Request("A", 0, playing.clock.now, AuthorityRequest(1, "read"), lambda *told: None)
    answer: Any = type("Answer", (), {"outcome": "done", "record": record(*first)})
    playing.authority._claim(asked, answer)
    answer.record = record(*second)
    with violates(8):
        playing.authority._claim(asked, answer)
    answer.record = record(5, 1)
    playing.authority._claim(asked, answer)
    asked.asked_at += 1.0
    with violates(8):
        playing.authority._claim(asked, answer)


def test_who_has_a_later_record_on_its_own_disk_may_be_told_of_an_earlier_one() -> None:
    """It was cut off again before it had joined, and stands with the CIB of before."""
    playing = Playing()
    playing.ask("A", record(5, 1), None)
    playing.run()
    playing.ask("A", record(5, 2), (5, 1))
    playing.run()
    asked = Request("B", 0, playing.clock.now + 1.0, AuthorityRequest(1, "read"), lambda *told: None)
    answer: Any = type("Answer", (), {"outcome": "done", "record": record(5, 1)})
    playing.authority.kept = lambda host: record_of(record(5, 2)) if host == "B" else None
    playing.authority._claim(asked, answer)
    playing.authority.kept = lambda host: record_of(record(5, 1))
    with violates(8):
        playing.authority._claim(asked, answer)

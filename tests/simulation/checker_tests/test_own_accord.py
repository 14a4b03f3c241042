"""The checker of who takes over by its own accord under `pair`, shown what it must object to."""

from __future__ import annotations

import pytest

from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.checkers.primary.own_accord import OwnAccord11
from tests.simulation.checkers.records import Promotion
from tests.simulation.harness.inspection import RecordOnDisk, identity
from tests.simulation.harness.machines.machine import Death


class Judged:
    """A pair under `manual`, in which nobody takes over, with promotions of B that are made up."""

    def __init__(self) -> None:
        self.pair = Pair(count=1)
        self.asked: dict[str, float] = {}
        machines, records = self.pair.world.machines, self.pair.checkers.records
        self.checker = OwnAccord11(self.pair.clock, machines, records, self.asked)
        self.pair.run(3.0)  # whoever connected did so long ago

    def kill(self) -> None:
        self.checker.left(self.pair.a)
        self.pair.a.kill(Death.KILLED)
        self.pair.run(0.1)

    def promote(self) -> None:
        pair, who = self.pair, self.pair.checkers.records.who(self.pair.b)
        before = RecordOnDisk(7, 1, identity(pair.b), frozenset())
        record = RecordOnDisk(10**9, 1, who, frozenset())
        self.checker.promoted(Promotion(pair.b, who, record, before, before, pair.clock.now))


def test_11_only_a_client_that_came_since_makes_a_backup_take_over() -> None:
    judged = Judged()
    judged.checker.tried(judged.pair.b.address)
    judged.pair.run(3.0)
    judged.kill()
    with violates(11, "no client has tried"):
        judged.promote()
    judged.checker.tried(judged.pair.a.address)
    with violates(11):
        judged.promote()
    judged.asked["B"] = judged.pair.clock.now
    judged.promote()
    judged.asked.clear()
    judged.checker.tried(judged.pair.b.address)
    judged.promote()


@pytest.mark.parametrize("rival", ["there", "gone", "ordered"])
def test_11_a_node_that_was_demoted_leaves_it_to_the_other_if_that_can(rival: str) -> None:
    judged = Judged()
    pair = judged.pair
    judged.promote()
    judged.checker.heard(pair.b, "this node stops serving: demoted by the operator")
    pair.a.role = lambda: "ready"  # type: ignore[method-assign]
    if rival == "there":
        with violates(11, "against an order"):
            judged.promote()
        judged.checker.tick(pair.b)  # it follows A
    elif rival == "gone":
        judged.checker.left(pair.a)
        judged.checker.tried(pair.b.address)
    else:
        judged.checker.heard(pair.a, "this node stops serving: demoted by the operator")
    judged.promote()

"""When the last copy in memory is lost: whom the record names, and who of these lives and is whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.harness.clock import Clock
from tests.simulation.harness.copies import Copies
from tests.simulation.harness.machines.machine import Machine


def machine(name: str, *, spoilt: bool = False) -> Machine:
    me = SimpleNamespace(node_id=name.lower(), incarnation=1)
    node = SimpleNamespace(me=me, last_man=SimpleNamespace(kept_since=None))
    one: Any = SimpleNamespace(name=name, node=node, running=node, spoilt=spoilt, doomed=False)
    found: Machine = one
    return found


def record(revision: int, owner: str, *in_sync: str) -> dict[str, Any]:
    members = [[name.lower(), 1] for name in in_sync]
    return {"epoch": 1, "revision": revision, "owner": [owner.lower(), 1], "in_sync": members}


class Held:
    """A register of which only the newest record counts."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.record = first
        self.underway: dict[int, dict[str, Any]] = {}
        self.on_swap = lambda: None

    def swap(self, newest: dict[str, Any]) -> None:
        self.record = newest
        self.on_swap()


def copies(held: Held, *machines: Machine) -> Copies:
    register: Any = held
    found = Copies(Clock(), list(machines), register)
    for one in machines:
        found.started(one)
    return found


@pytest.mark.parametrize("spoilt", [True, False])
def test_who_is_spoilt_before_a_record_names_it_is_no_copy_when_one_does(spoilt: bool) -> None:
    """Seed 121000489: C was spoilt while the record named A and B, and then one came that names B and C."""
    a, b, c = machine("A"), machine("B"), machine("C")
    held = Held(record(1, "A", "B"))
    found = copies(held, a, b, c)
    if spoilt:
        c.spoilt = True
        found.spoilt(c)
    found.killed(b)
    b.node = None
    assert found.memory_lost == []
    held.swap(record(2, "B", "C"))
    assert bool(found.memory_lost) is spoilt

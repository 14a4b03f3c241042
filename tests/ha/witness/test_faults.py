"""Faults that must not cost a live owner its lease."""

from __future__ import annotations

from tests.ha.witness.test_register import FIRST, B, Desk, after, asks, swaps
from tests.simulation.harness.machines.virtual_disk import VirtualDisk


def to(witness: Desk, time: float) -> None:
    """The witness lives until then."""
    while (due := witness.desk.next_deadline()) is not None and due <= time:
        witness.desk.timers(due)


def test_a_swap_that_cannot_be_saved_leaves_the_lease_of_the_owner() -> None:
    disk = VirtualDisk()
    disk.make_directory("/w")
    witness = Desk(disk)
    witness.ask(swaps(FIRST, None), 1.0)
    for second in range(2, 21):
        to(witness, second)
        witness.ask(asks("renew"), second)
    disk.failing["sync"] = 1
    assert witness.ask(swaps(after(FIRST, B, 131074), FIRST, B), 20.1)["outcome"] == "unknown"
    found = witness.ask(asks("read", B), 20.2)
    assert (found["record"], found["owner_gone"]) == (FIRST.as_json(), False)
    to(witness, 25.0)
    assert witness.ask(asks("read", B), 25.0)["owner_gone"] is True


def test_a_witness_that_stood_still_ends_no_lease_that_is_seldom_renewed() -> None:
    disk = VirtualDisk()
    disk.make_directory("/w")
    witness = Desk(disk)
    witness.ask(swaps(FIRST, None) | {"seconds": 60.0}, 0.0)
    to(witness, 14.0)
    assert witness.ask(asks("read", B, 60.0), 100.0)["owner_gone"] is False

"""What a witness keeps for a pair: one record behind compare-and-set, and a lease of its owner."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from ha.adapter.witness.desk import LOOK, WitnessDesk
from ha.adapter.witness.register import BadRequest, WitnessRegister, request_from_json
from ha.core.record.in_sync_record import Incarnation, InSyncRecord, first_record, next_record
from tests.simulation.harness.machines.virtual_disk import VirtualDisk
from understudy.shared.codes import Coded

A, B = Incarnation("a" * 32, 1), Incarnation("b" * 32, 1)
FIRST = first_record("c" * 32, 65537, A, "a")


def after(record: InSyncRecord, who: Incarnation, epoch: int) -> InSyncRecord:
    return next_record(record, "unforced", epoch, who, who.node_id[0], record.cluster_id)


def asks(kind: str, who: Incarnation = A, seconds: float = 5.0, **more: Any) -> dict[str, Any]:
    return {"id": 7, "kind": kind, "asker": list(who), "seconds": seconds, **more}


def swaps(record: InSyncRecord, expected: InSyncRecord | None, who: Incarnation = A) -> dict[str, Any]:
    version = None if expected is None else list(expected.version)
    return asks("swap", who, expected=version, record=record.as_json())


def done(register: WitnessRegister, body: dict[str, Any], now: float) -> tuple[str, bool]:
    """The outcome, and whether the owner is gone."""
    answer, _ = register.answer(request_from_json(body), now)
    return answer.outcome, answer.owner_gone


def test_a_swap_needs_the_version_that_is_held() -> None:
    register = WitnessRegister(None, 0.0)
    assert done(register, swaps(FIRST, FIRST), 1.0)[0] == "conflict"
    assert done(register, swaps(FIRST, None), 1.0)[0] == "done"
    assert done(register, swaps(FIRST, None), 1.0)[0] == "conflict"
    second = after(FIRST, B, 131074)
    assert done(register, swaps(second, FIRST, B), 2.0)[0] == "done"
    assert done(register, swaps(after(FIRST, A, 196609), FIRST), 2.0)[0] == "conflict"
    assert register.record == second


def test_only_the_owner_keeps_its_lease_alive_and_ends_it() -> None:
    register = WitnessRegister(None, 0.0)
    done(register, swaps(FIRST, None), 10.0)
    assert done(register, asks("read", B), 14.9) == ("done", False)
    done(register, asks("renew", B), 14.9)
    assert done(register, asks("read", B), 15.0) == ("done", True)
    done(register, asks("renew"), 15.1)
    assert done(register, asks("read", B), 20.0) == ("done", False)
    done(register, asks("release", B), 20.0)
    assert done(register, asks("read", B), 20.0) == ("done", False)
    done(register, asks("release"), 20.0)
    assert done(register, asks("read", B), 20.0) == ("done", True)


def test_a_witness_that_has_started_gives_each_owner_a_whole_lease() -> None:
    register = WitnessRegister(FIRST, 100.0)
    assert done(register, asks("read", B), 104.9) == ("done", False)
    assert done(register, asks("read", B), 105.0) == ("done", True)


@pytest.mark.parametrize("seed", range(5))
def test_any_interleaving_is_that_of_one_register(seed: int) -> None:
    """Against the simplest one there is: the last swap that named what was there."""
    rng, register, model = Random(seed), WitnessRegister(None, 0.0), None
    known = [FIRST]
    for step in range(60):
        who = rng.choice((A, B))
        expected = rng.choice([None, *known])
        record = FIRST if expected is None else after(expected, who, expected.epoch + 65536 + step)
        known.append(record)
        right = (expected.version if expected else None) == (model.version if model else None)
        model = record if right else model
        assert done(register, swaps(record, expected, who), step)[0] == ("done" if right else "conflict")
        assert register.record == model


@pytest.mark.parametrize(
    "body",
    [
        {}, [], "swap", 7, asks("drop"), asks("read", seconds=0.5), asks("read", seconds=1e9),
        asks("read", seconds=float("nan")), asks("swap"), asks("swap", record={"epoch": -1}),
        asks("swap", expected=[1], record=FIRST.as_json()), asks("read") | {"asker": ["a"]},
        asks("read") | {"id": -1}, asks("read") | {"id": "x"},
    ],
)  # fmt: skip
def test_what_is_no_request_is_named(body: Any) -> None:
    with pytest.raises(BadRequest) as fault:
        request_from_json(body)
    assert 0 < len(str(fault.value)) < 300 and "\n" not in str(fault.value)


class Desk:
    """A witness on a virtual disk."""

    def __init__(self, disk: VirtualDisk, now: float = 0.0) -> None:
        self.warned: list[Coded] = []
        self.desk = WitnessDesk(disk, "/w", ("shop",), self.warned.append, lambda: {"d" * 32})
        self.desk.start(now)

    def ask(self, body: dict[str, Any], now: float, pair: str = "shop") -> dict[str, Any]:
        return self.desk.hear(pair, json.dumps(body).encode(), now)


def test_what_was_answered_outlives_the_witness() -> None:
    disk = VirtualDisk()
    disk.make_directory("/w")
    assert Desk(disk).ask(swaps(FIRST, None), 1.0)["outcome"] == "done"
    disk.power_loss()
    again = Desk(disk, 50.0)
    found = again.ask(asks("read", B), 51.0)
    assert (found["record"], found["owner_gone"], found["id"]) == (FIRST.as_json(), False, 7)
    assert again.ask(asks("read", B), 51.0, "other")["reason"].endswith("'other' is not in ha.witness_for")


def test_a_node_is_no_witness_of_its_own_pair() -> None:
    disk = VirtualDisk()
    disk.make_directory("/w")
    answer = Desk(disk).ask(asks("read", Incarnation("d" * 32, 1)), 1.0)
    assert (answer["outcome"], answer["code"]) == ("unknown", "witness-of-its-own-pair")


def test_a_disk_that_fails_commits_nothing_and_is_told_once() -> None:
    disk = VirtualDisk()
    disk.make_directory("/w")
    witness = Desk(disk)
    disk.failing["sync"] = 5
    for _ in range(3):
        answer = witness.ask(swaps(FIRST, None), 1.0)
        assert (answer["outcome"], answer["code"]) == ("unknown", "witness-file-failed")
    assert len(witness.warned) == 1 and "cannot write /w/witness-shop.json" in witness.warned[0].sentence
    assert witness.ask(asks("read"), 1.0)["record"] is None
    disk.failing.clear()
    assert witness.ask(swaps(FIRST, None), 1.0)["outcome"] == "done"
    assert witness.desk.status()["shop"]["trouble"] is None


def test_a_damaged_file_is_named_and_left_alone() -> None:
    disk = VirtualDisk()
    disk.make_directory("/w")
    Desk(disk).ask(swaps(FIRST, None), 1.0)
    disk.damage("/w/witness-shop.json", 20)
    before = disk.contents()["/w/witness-shop.json"]
    witness = Desk(disk)
    answer = witness.ask(swaps(FIRST, None), 1.0)
    assert answer["outcome"] == "unknown" and "witness-shop.json" in answer["reason"]
    assert "put back the newest file that this witness wrote" in answer["reason"]
    assert disk.contents()["/w/witness-shop.json"] == before


def test_a_witness_that_stood_still_ends_no_lease() -> None:
    """The renewals of the live owner wait in its sockets."""
    disk = VirtualDisk()
    disk.make_directory("/w")
    witness = Desk(disk)
    witness.ask(swaps(FIRST, None), 1.0)
    now = 1.0
    while now < 2.0:
        witness.desk.timers(now)
        now += LOOK
    assert witness.ask(asks("read", B), 30.0)["owner_gone"] is False
    witness.ask(asks("renew"), 30.1)
    assert witness.ask(asks("read", B), 35.0)["owner_gone"] is False


def test_one_that_nobody_asks_looks_at_no_clock() -> None:
    disk = VirtualDisk()
    disk.make_directory("/w")
    witness = Desk(disk)
    assert witness.desk.next_deadline() is None
    witness.ask(asks("read"), 1.0)
    deadline = witness.desk.next_deadline()
    while deadline is not None and deadline < 60.0:
        witness.desk.timers(deadline)
        deadline = witness.desk.next_deadline()
    assert deadline is None

"""The record and the owner's lease in etcd: what each procedure leaves, also when two nodes interleave."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Generator
from random import Random
from typing import Any, TypeVar

import pytest

from ha.core.record.in_sync_record import Incarnation, RecordVersion, first_record
from ha.etcd.register import Call, EtcdAnswer, Json, Keys, Nonsense, Unreadable, read, release, renew, swap
from tests.ha.etcd.virtual import Entry, VirtualEtcd

T = TypeVar("T")
PREFIX = "/understudy/orders"
LEASE = 5


def keys(node: str) -> Keys:
    return Keys(PREFIX, f"{node} 1", LEASE)


def record(owner: str, epoch: int, revision: int = 1) -> Json:
    return first_record("pair", epoch, Incarnation(owner, 1), owner).as_json() | {"revision": revision}


def odd(**fields: object) -> str:
    return json.dumps(record("a", 1) | fields)


def run(etcd: VirtualEtcd, procedure: Generator[Call, Json, T]) -> T:
    try:
        call = next(procedure)
        while True:
            call = procedure.send(etcd.answer(call))
    except StopIteration as end:
        result: T = end.value
        return result


def put(etcd: VirtualEtcd, key: str, value: str) -> None:
    coded = b64encode(f"{PREFIX}/{key}".encode()).decode()
    etcd.keys[coded] = Entry(b64encode(value.encode()).decode(), 1, 1, 1)


def test_it_begins_empty_and_the_first_swap_wins() -> None:
    etcd, a, b = VirtualEtcd(), keys("a"), keys("b")
    assert run(etcd, read(a)) == EtcdAnswer("done", None)
    assert run(etcd, swap(a, None, record("a", 1))).outcome == "done"
    assert run(etcd, swap(b, None, record("b", 2))) == EtcdAnswer("conflict", record("a", 1))
    assert run(etcd, read(b)) == EtcdAnswer("done", record("a", 1))


def test_a_swap_is_refused_for_another_version_and_shows_itself_when_it_is_repeated() -> None:
    etcd, a = VirtualEtcd(), keys("a")
    run(etcd, swap(a, None, record("a", 1)))
    assert run(etcd, swap(a, RecordVersion(1, 2), record("a", 1, 3))).outcome == "conflict"
    assert run(etcd, swap(a, RecordVersion(1, 1), record("a", 1, 2))).outcome == "done"
    assert run(etcd, swap(a, RecordVersion(1, 1), record("a", 1, 2))) == EtcdAnswer(
        "conflict", record("a", 1, 2)
    )


def test_the_owner_is_gone_when_its_lease_has_run_out_and_not_while_it_renews() -> None:
    etcd, a, b = VirtualEtcd(), keys("a"), keys("b")
    run(etcd, swap(a, None, record("a", 1)))
    for _ in range(4):
        etcd.now += LEASE - 1
        assert run(etcd, renew(a)).record == record("a", 1)
        assert not run(etcd, read(b)).owner_gone
    etcd.now += LEASE
    assert run(etcd, read(b)) == EtcdAnswer("done", record("a", 1), owner_gone=True)


def test_an_owner_that_was_away_too_long_gets_a_new_lease_if_it_is_still_the_owner() -> None:
    etcd, a, b = VirtualEtcd(), keys("a"), keys("b")
    run(etcd, swap(a, None, record("a", 1)))
    etcd.now += 2 * LEASE
    assert run(etcd, renew(a)) == EtcdAnswer("done", record("a", 1))
    assert not run(etcd, read(b)).owner_gone
    etcd.now += 2 * LEASE
    run(etcd, swap(b, RecordVersion(1, 1), record("b", 2)))
    assert run(etcd, renew(a)) == EtcdAnswer("done", record("b", 2))
    assert not run(etcd, read(a)).owner_gone, "the other one keeps its own"


def test_another_process_of_the_owner_is_not_the_owner() -> None:
    etcd, a = VirtualEtcd(), keys("a")
    run(etcd, swap(a, None, record("a", 1)))
    restarted = Keys(PREFIX, "a 2", LEASE)
    etcd.now += LEASE
    run(etcd, renew(restarted))
    assert run(etcd, read(restarted)).owner_gone


def test_a_planned_end_lets_the_lease_go_at_once() -> None:
    etcd, a, b = VirtualEtcd(), keys("a"), keys("b")
    run(etcd, swap(a, None, record("a", 1)))
    run(etcd, release(a))
    assert run(etcd, read(b)).owner_gone
    run(etcd, release(b))  # it never had one


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "it is no JSON"),
        ("[1]", "no JSON object"),
        ("{}", "it lacks 'cluster_id'|has a wrong type"),
        ("[" * 100_000, "nested too deep|no JSON"),
        (odd(owner=3), "wrong type"),
        (odd(owner=["a", 1, 1]), "wrong type"),
        (odd(in_sync=[["b", "x"]]), "wrong type"),
        (odd(names=[]), "wrong type"),
        (odd(epoch=None), "wrong type"),
        (odd(epoch=-1), "out of range"),
        (odd(revision=10**400), "out of range"),
        (odd(epoch=0).replace(": 0", ": " + "9" * 5000), "out of range"),
        (odd(revision=1.5), "1.5 in the place of an integer"),
        (odd(epoch=float("inf")), "Infinity in the place of an integer"),
    ],
)
def test_a_key_that_holds_something_else_is_not_overwritten(value: str, fault: str) -> None:
    etcd, a = VirtualEtcd(), keys("a")
    put(etcd, "record", value)
    before = dict(etcd.keys)
    for ask in (read(a), swap(a, None, record("a", 1)), swap(a, RecordVersion(1, 1), record("a", 2))):
        with pytest.raises(Unreadable, match=fault) as caught:
            run(etcd, ask)
        assert len(str(caught.value)) < 100
    assert etcd.keys == before


@pytest.mark.parametrize("time_to_live", [float("inf"), "x", None, []])
def test_an_integer_of_etcd_that_is_none_is_named(time_to_live: object) -> None:
    a = keys("a")
    a.lease = "7"
    procedure = renew(a)
    next(procedure)
    with pytest.raises(Nonsense, match="in the place of an integer"):
        procedure.send({"result": {"TTL": time_to_live}})


@pytest.mark.parametrize(
    "answer",
    [{}, {"responses": None}, {"responses": [{}]}, {"responses": [{"response_range": {"kvs": [{}]}}] * 2}],
)
def test_an_answer_that_is_none_of_etcd_is_named(answer: Json) -> None:
    procedure = read(keys("a"))
    next(procedure)
    with pytest.raises(Nonsense):
        procedure.send(answer)


def test_of_two_nodes_whose_calls_interleave_and_get_lost_one_owns_each_version(seed: int) -> None:
    """Swaps by two nodes on the version that each has read last, in any order of their calls; answers get
    lost, and leases run out meanwhile. What a node was told to have done is in the history once, in its
    place."""
    for number in range(300):
        rng, etcd = Random(f"{seed}/{number}"), VirtualEtcd()
        history: list[Any] = []
        done: list[tuple[str, int]] = []
        nodes = [keys("a"), keys("b")]
        running: dict[str, tuple[Generator[Call, Json, EtcdAnswer], Call, int | None]] = {}
        epoch = 0
        for _ in range(60):
            node = rng.choice(nodes)
            if node.owner not in running:
                seen = run(etcd, read(node)).record
                version = None if seen is None else RecordVersion(seen["epoch"], seen["revision"])
                epoch += 1
                wanted = rng.random() < 0.7
                procedure = swap(node, version, record(node.owner[0], epoch)) if wanted else renew(node)
                running[node.owner] = (procedure, next(procedure), epoch if wanted else None)
                continue
            procedure, call, asked = running.pop(node.owner)
            answer = etcd.answer(call)
            held = run(etcd, read(node)).record
            if held is not None and held["epoch"] not in history:
                history.append(held["epoch"])
            etcd.now += rng.choice((0.0, 0.1, LEASE / 2, LEASE))
            if rng.random() < 0.1:
                procedure.close()
                continue
            try:
                running[node.owner] = (procedure, procedure.send(answer), asked)
            except StopIteration as end:
                if asked is not None and end.value.outcome == "done":
                    done.append((node.owner, asked))
        told = [number for _, number in done]
        assert len(set(told)) == len(told)
        assert [number for number in history if number in told] == told, f"{seed}/{number}"

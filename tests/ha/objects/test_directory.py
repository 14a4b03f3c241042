"""Users, permissions, policies on both nodes: when a change is answered, and what a node that returns has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ha.pair import STEP, Host, Pair

ALICE = {"action": "put", "kind": "user", "vhost": "", "name": "alice", "value": {"tags": ["monitoring"]}}
MAY = {
    "action": "put", "kind": "permission", "vhost": "/", "name": "alice",
    "value": {"configure": "", "write": ".*", "read": ".*"},
}  # fmt: skip
SHORT = {
    "action": "put", "kind": "policy", "vhost": "/", "name": "short",
    "value": {"pattern": "^q", "apply-to": "queues", "priority": 1, "definition": {"max-length": 2}},
}  # fmt: skip
NO_ALICE = {"action": "delete", "kind": "user", "vhost": "", "name": "alice"}


def define(pair: Pair, host: Host, *changes: dict[str, Any]) -> dict[str, Any]:
    return pair.ask(host, "define", changes=list(changes))


def asked(pair: Pair, host: Host, *changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The same, without waiting: where the answer will be."""
    answers: list[dict[str, Any]] = []
    host.running.manage("define", {"changes": list(changes)}, answers.append, pair.now)
    return answers


def names(host: Host) -> tuple[set[str], set[str]]:
    directory = host.running.vhosts.directory
    return set(directory.users), {name for _, name in directory.policies}


def equal(pair: Pair) -> bool:
    return len({host.running.vhosts.fingerprint() for host in pair.hosts}) == 1


def test_a_change_is_answered_when_it_is_on_both_disks() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    for slow in (a, b):
        slow.syncing = False
        answers = asked(pair, a, {**ALICE, "name": f"of {slow.name}"})
        pair.run(0.3)
        assert answers == [], slow.name
        slow.syncing = True
        pair.until(lambda there=answers: bool(there))  # type: ignore[misc]
        assert answers == [{"ok": True, "reason": "", "changed": 1, "created": 1}]
    assert names(b) == ({"of a", "of b"}, set()) and equal(pair)


def test_what_is_so_already_waits_for_who_made_it_so_and_changes_nothing() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    b.syncing = False
    first, again = asked(pair, a, ALICE), asked(pair, a, ALICE)
    pair.run(0.3)
    assert (first, again) == ([], [])
    b.syncing = True
    pair.until(lambda: bool(again))
    assert first[0]["changed"] == 1 and again[0]["changed"] == 0


def test_a_node_that_stops_serving_says_that_nobody_knows() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    b.syncing = False
    answers = asked(pair, a, ALICE)
    pair.step()
    pair.ask(a, "demote")
    pair.until(lambda: bool(answers))
    assert not answers[0]["ok"] and answers[0]["unsure"] and "ask the primary" in answers[0]["reason"]


def test_a_backup_changes_nothing_and_names_its_primary() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    for command in ("define", "directory"):
        answer = pair.ask(b, command, **({"changes": [ALICE]} if command == "define" else {}))
        assert not answer["ok"] and "its primary is a" in answer["reason"]
    assert names(a) == names(b) == (set(), set())


def test_a_join_adds_missed_entries_and_removes_deleted_ones() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    assert define(pair, a, ALICE, MAY, SHORT)["changed"] == 3
    pair.kill(b)
    assert define(pair, a, NO_ALICE)["changed"] == 2, "the permission goes with its user"
    assert define(pair, a, {**ALICE, "name": "bob"})["ok"]
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert names(b) == ({"bob"}, {"short"}) and not b.running.vhosts.directory.permissions
    assert equal(pair)


def test_an_old_primary_that_returns_forgets_what_only_it_had() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    assert define(pair, a, ALICE)["ok"]
    pair.separate(a, b)
    answers = asked(pair, a, {**ALICE, "name": "mallory"})
    pair.run(0.1)
    assert answers == [], "the backup has not got it"
    pair.kill(a, keep=True)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    pair.heal()
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert names(a) == names(b) == ({"alice"}, set()) and equal(pair)


def test_all_of_it_comes_back_from_the_disks() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    define(pair, a, ALICE, MAY, SHORT)
    for host in (a, b):
        pair.kill(host)
    pair.start(a, b)
    pair.until(lambda: a.status == "joining" and b.status == "joining")
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: b.status == "ready")
    assert names(a) == names(b) == ({"alice"}, {"short"})
    found = pair.ask(a, "directory")
    assert found["permissions"] == [{"user": "alice", "vhost": "/", **MAY["value"]}]  # type: ignore[dict-item]
    assert found["policies"] == [{"vhost": "/", "name": "short", **SHORT["value"]}]  # type: ignore[dict-item]
    assert {"name": "guest", "tags": ["administrator"], "configured": True} in found["users"]


@pytest.mark.parametrize(
    "change",
    [
        {**MAY, "value": {**MAY["value"], "read": "\ud800"}},
        {**SHORT, "value": {**SHORT["value"], "pattern": "\ud800"}},
        {**SHORT, "value": {**SHORT["value"], "definition": {"ha-params": "\ud800"}}},
        {"action": "put", "kind": "vhost", "vhost": "", "name": "x", "value": {"description": "\ud800"}},
    ],
)
def test_what_history_cannot_hold_is_refused_and_the_node_lives(change: dict[str, Any]) -> None:
    pair = Pair()
    pair.up()
    answer = define(pair, pair[0], ALICE, change)
    assert not answer["ok"] and answer["refused"]
    assert "cannot be stored" in answer["reason"] or "is not Unicode" in answer["reason"]
    assert names(pair[0]) == (set(), set())
    assert define(pair, pair[0], ALICE)["ok"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (None, "changes is a list of 1 to 200 tables"),
        ([], "changes is a list of 1 to 200 tables"),
        ([ALICE] * 201, "changes is a list of 1 to 200 tables"),
        (["alice"], "a change is a table"),
        ([{**ALICE, "name": 3}], "kind, vhost and name of a change are strings"),
        ([{**ALICE, "action": "keep"}], "the action of a change is put"),
        ([{**ALICE, "value": []}], "the action of a change is put, with a table as value"),
        ([ALICE, {**ALICE, "name": "guest"}], "user 'guest': this user is made in the configuration of a"),
        ([ALICE, {**MAY, "name": "ha"}], "permission 'ha': this user is made in the configuration of a"),
        ([ALICE, {**SHORT, "vhost": "x"}], "there is no virtual host 'x'"),
        (
            [{**SHORT, "value": {**SHORT["value"], "definition": {"ha-params": "x" * 20_000}}}],
            "octets, and 16384 are the most",
        ),
    ],
)
def test_one_fault_and_nothing_of_it_is_so(changes: Any, words: str) -> None:
    pair = Pair()
    pair.up()
    answer = pair.ask(pair[0], "define", changes=changes)
    assert not answer["ok"] and answer["refused"] and words in answer["reason"]
    assert names(pair[0]) == (set(), set())


def test_a_joiner_never_has_half_of_a_change_of_two() -> None:
    """It is told of one entry a tick, and may be promoted between two of them."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.kill(b)
    pair.run(2.5)
    assert define(pair, a, ALICE, MAY)["ok"]
    pair.snapshots(a, 40, definitions=1)
    pair.start(b)
    seen = set()
    for _ in range(400):
        pair.run(STEP)
        directory = b.running.vhosts.directory
        seen.add(("alice" in directory.users, ("/", "alice") in directory.permissions))
    assert seen == {(False, False), (True, True)}
    assert b.status == "ready" and equal(pair)

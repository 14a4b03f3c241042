"""What `status` shows of the members: this node itself, and who cannot be reached."""

from __future__ import annotations

from typing import Any

import pytest

from ha.core import codes
from tests.ha.election.test_refusals import three_of_which_one_catches_up
from tests.ha.pair import Host, Pair
from understudy.http.metrics.node_collector import NodeCollector

LAGS = {"lag", "lag_bytes", "queues_left"}
"""Of a member; a primary knows them, of whoever gets its stream."""


def members(host: Host) -> dict[str, dict[str, Any]]:
    return {line["name"]: line for line in host.running.status()["members"]}


def test_a_node_is_among_its_own_members() -> None:
    pair = Pair()
    pair.up()
    pair.run(0.5)
    for host in pair.hosts:
        shown = members(host)
        assert {name: line["self"] for name, line in shown.items()} == {
            other.name: other is host for other in pair.hosts
        }
        assert shown[host.name]["status"] == host.status
        assert all(line["in_sync"] for line in shown.values())


def test_who_cannot_be_reached_is_shown_as_such_whatever_it_said_last() -> None:
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    pair.kill(c)
    pair.run(3.0)
    assert members(a)["c"]["status"] == members(b)["c"]["status"] == "unreachable"
    assert not members(a)["c"]["in_sync"]
    pair.start(c)
    pair.until(lambda: c.status == "ready")
    pair.run(1.5)
    assert members(a)["c"]["status"] == members(b)["c"]["status"] == "ready"


@pytest.mark.parametrize(
    ("settings", "left", "words"),
    [
        (
            {"on_backup_loss": "block"},
            [],
            "a backup is in sync (ha.on_backup_loss is block); start another broker; "
            "to go on without, restart this broker with ha.on_backup_loss=continue and promote it",
        ),
        (
            {"min_backups": 2},
            ["b"],
            "2 backups are in sync (ha.min_backups is 2); start another broker; "
            "to go on without, restart this broker with ha.min_backups=1 and promote it",
        ),
        (
            {"min_backups": 1, "on_backup_loss": "block"},
            [],
            "a backup is in sync (ha.min_backups is 1 and ha.on_backup_loss is block); start another broker; "
            "to go on without, restart this broker with ha.min_backups=0 and ha.on_backup_loss=continue and "
            "promote it",
        ),
    ],
)
def test_a_primary_that_holds_confirms_says_for_whom_and_how_to_go_on(
    settings: dict[str, Any], left: list[str], words: str
) -> None:
    pair = Pair(3, **settings)
    pair.up()
    a = pair.hosts[0]
    gone = [host for host in pair.hosts[1:] if host.name not in left]
    for host in gone:
        pair.kill(host)
    pair.run(5.0)
    told = f"confirms are held until {words}"
    assert a.running.status()["reason"] == f"serving, but {told}"
    assert told in a.told(codes.CONFIRMS_HELD)
    pair.start(gone[0])
    pair.until(lambda: gone[0].status == "ready")
    pair.run(0.2)
    assert "held" not in a.running.status()["reason"]


def test_who_is_on_the_way_is_named_while_confirms_are_held() -> None:
    pair = Pair(on_backup_loss="block")
    pair.start()
    pair.run(0.3)
    a, b = pair.hosts
    b.syncing = False
    answer = pair.ask(a, "promote")
    assert answer["ok"] and "confirms are held until a backup is in sync" in answer["reason"]
    pair.declare(a, "q")
    pair.run(1.0)
    assert "; on the way: b; to go on without, restart" in a.running.status()["reason"]


def exported(host: Host) -> set[tuple[str, str]]:
    """Metric of a backup, and of which."""
    found = [sample for each in NodeCollector(host.running.status).collect() for sample in each.samples]
    return {(s.name, s.labels["member"]) for s in found if s.name.startswith("understudy_backup_")}


def test_a_lag_is_told_by_the_primary_only_and_only_of_who_gets_its_stream() -> None:
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    pair.run(0.5)
    assert {name: LAGS & line.keys() for name, line in members(a).items()} == {
        "a": set(),
        "b": LAGS,
        "c": LAGS,
    }
    assert members(b).keys() == {"a", "b", "c"}
    assert not any(LAGS & line.keys() for line in members(b).values())
    assert exported(a) == {(f"understudy_backup_{what}", name) for what in
                           ("lag_batches", "lag_bytes", "queues_left") for name in "bc"}  # fmt: skip
    assert exported(b) == set()
    pair.kill(c)
    pair.run(0.1)
    assert not LAGS & members(a)["c"].keys() and members(a)["c"]["phase"] == "lost"


def test_of_who_is_expected_and_not_there_no_lag_is_told() -> None:
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    pair.separate(b, c, reset=True)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    line = members(b)["c"]
    assert line["phase"] == "expected" and not LAGS & line.keys()


def test_a_primary_names_who_catches_up() -> None:
    pair = three_of_which_one_catches_up()
    a, b, _ = pair.hosts
    pair.run(4.0)
    assert a.running.status()["reason"] == "serving; confirms wait for b; c is catching up"
    pair.kill(b)
    pair.run(3.0)
    assert a.running.status()["reason"] == "serving alone; confirms wait for no backup; c is catching up"

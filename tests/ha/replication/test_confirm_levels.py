"""What a confirm of a persistent message waits for (`ha.confirm`, and the policy key `ha-confirm`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.model.values import Need, Position
from ha.core import codes
from ha.core.primary.confirm_terms import ConfirmTerms
from ha.core.primary.primary import Primary
from ha.core.record.in_sync_record import ALL_DISKS, InSyncRecord
from tests.builds import PURE_ONLY
from tests.ha.pair import Host, Pair


def up(**settings: Any) -> Pair:
    pair = Pair(**{"dequeue_lag": 0.0, **settings})
    pair.up()
    for name in ("q", "strict"):
        pair.declare(pair[0], name)
    pair.run(0.1)
    return pair


def confirmed(pair: Pair, queue: str, text: str) -> bool:
    """Publish to the first host; is it confirmed soon, by what its queue asks for?"""
    need = pair[0].running.vhost.route("", queue).need[True]
    position = pair.publish(pair[0], queue, text)
    pair.run(0.1)
    return pair.confirmed(pair[0], position, need=need)


def disks(pair: Pair, *, primary: bool, backup: bool) -> None:
    pair[0].syncing, pair[1].syncing = primary, backup


def policy(pair: Pair, level: object = None) -> list[dict[str, Any]]:
    """Set the level of the queues `q...`; None: no more. Returns where the answer will be."""
    change: dict[str, Any] = {"action": "delete", "kind": "policy", "vhost": "/", "name": "level"}
    if level is not None:
        value = {"pattern": "^q", "apply-to": "queues", "priority": 0, "definition": {"ha-confirm": level}}
        change |= {"action": "put", "value": value}
    answers: list[dict[str, Any]] = []
    pair[0].running.manage("define", {"changes": [change]}, answers.append, pair.now)
    pair.run(0.1)
    return answers


def levels(host: Host) -> dict[str, Any]:
    found: dict[str, Any] = host.running.status()["confirm"]
    return found


def noted(host: Host) -> list[tuple[str, int]]:
    return [(fields["name"], fields["n"]) for kind, fields in host.ledger.kinds if kind == "confirm_level"]


def test_primary_disk_waits_for_the_disk_of_the_primary_alone() -> None:
    pair = up(confirm="primary-disk")
    a = pair[0]
    assert levels(a) == {"default": "primary-disk", "least": "primary-disk", "record": "primary-disk"}
    disks(pair, primary=True, backup=False)
    assert confirmed(pair, "q", "a")
    assert not pair.confirmed(a, a.running.vhost.history.position), "replies wait for all disks at any level"
    disks(pair, primary=False, backup=True)
    assert not confirmed(pair, "q", "b")
    pair.separate(pair[0], pair[1])
    disks(pair, primary=True, backup=True)
    assert not confirmed(pair, "q", "c"), "it waits for the memory of the backup"


@pytest.mark.parametrize(
    ("level", "before_the_ack"), [("all-disks", False), ("primary-disk", True), ("all-memory", True)]
)
def test_a_synced_disk_asks_for_a_tick_unless_the_backups_ack_makes_one(
    level: str, before_the_ack: bool
) -> None:
    pair = up(confirm=level)
    a, b = pair
    for acked in (False, True):
        disks(pair, primary=False, backup=acked)
        position = pair.publish(a, "q", "a")
        pair.run(0.1)
        assert a.running.waits_for_backups() is not (acked or before_the_ack)
        a.sync.run()
        assert a.running.disk_moved() is (acked or before_the_ack)
        disks(pair, primary=True, backup=True)
        pair.run(0.1)
        assert pair.confirmed(a, position)
    pair.kill(b)
    pair.until(lambda: a.running.core.primary is not None and not a.running.core.primary.backups)
    disks(pair, primary=False, backup=True)
    pair.publish(a, "q", "alone")
    pair.run(0.1)
    assert not a.running.waits_for_backups()
    a.sync.run()
    assert a.running.disk_moved()


def test_all_memory_waits_for_no_disk_but_on_a_primary_alone() -> None:
    pair = up(confirm="all-memory")
    a, b = pair
    disks(pair, primary=False, backup=False)
    assert confirmed(pair, "q", "a")
    pair.kill(b)
    pair.until(lambda: not a.running.core.record.in_sync)  # type: ignore[union-attr]
    assert levels(a)["least"] == "primary-disk"
    assert not confirmed(pair, "q", "b"), "a primary alone waits for its disk"
    disks(pair, primary=True, backup=True)
    assert confirmed(pair, "q", "c")


def test_a_primary_alone_says_no_longer_what_a_backup_may_lack() -> None:
    pair = up(confirm="primary-disk")
    a, b = pair
    assert "under primary-disk: a backup's disk may lack" in a.running.status()["reason"]
    pair.kill(b)
    pair.until(lambda: not a.running.core.record.in_sync)  # type: ignore[union-attr]
    reason = a.running.status()["reason"]
    assert reason.endswith("; under primary-disk, but alone: confirms wait for this node's disk")
    assert "may lack" not in reason


def test_a_policy_sets_the_level_of_its_queues_and_the_record_says_so_first() -> None:
    pair = up(authority="register")
    a = pair[0]
    disks(pair, primary=True, backup=False)
    assert not confirmed(pair, "q", "a")
    pair.register.cut.add("a")
    policy(pair, "primary-disk")
    assert not confirmed(pair, "q", "b"), "the record does not say so yet"
    assert levels(a) == {"default": "all-disks", "least": "all-disks", "record": "all-disks"}
    pair.register.cut.clear()
    pair.until(lambda: levels(a)["record"] == "primary-disk")
    assert pair.register.held is not None and pair.register.held["confirm"] == "primary-disk"
    assert confirmed(pair, "q", "c")
    assert not confirmed(pair, "strict", "d")
    assert "a backup's disk may lack the last confirmed messages" in a.running.status()["reason"]
    assert pair[1].running.core.record == a.running.core.record


def test_a_stricter_level_holds_at_once_and_the_record_follows_the_disks() -> None:
    pair = up(confirm="all-disks")
    a = pair[0]
    policy(pair, "all-memory")
    disks(pair, primary=False, backup=False)
    assert confirmed(pair, "q", "a")
    policy(pair)
    assert not confirmed(pair, "q", "b")
    assert levels(a) == {"default": "all-disks", "least": "all-disks", "record": "all-memory"}
    disks(pair, primary=True, backup=False)
    pair.run(0.2)
    assert levels(a)["record"] == "all-memory", "the backup's disk lacks what was confirmed"
    disks(pair, primary=True, backup=True)
    pair.until(lambda: levels(a)["record"] == "all-disks")
    (_, weak), (_, strict) = noted(a)
    assert [name for name, _ in noted(a)] == ["all-memory", "all-disks"]
    assert 0 < weak < strict


def test_a_promoted_node_keeps_the_level_of_the_record_until_disks_have_all() -> None:
    pair = up()
    a, b = pair
    policy(pair, "primary-disk")
    disks(pair, primary=True, backup=False)
    assert confirmed(pair, "q", "a")
    policy(pair)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote", force_lossy=False)["ok"]
    pair.run(0.2)
    assert levels(b) == {"default": "all-disks", "least": "all-disks", "record": "primary-disk"}
    assert noted(b)[0] == ("primary-disk", 0)
    b.syncing = True
    pair.until(lambda: levels(b)["record"] == "all-disks")
    assert pair.contents(b, "q") == "a"


def test_what_a_new_primary_lost_before_its_disk_had_it_is_in_the_quarantine_of_the_old_one() -> None:
    pair = up(confirm="primary-disk")
    a, b = pair
    disks(pair, primary=True, backup=False)
    assert confirmed(pair, "q", "a")
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote", force_lossy=False)["ok"]
    pair.kill(b)
    disks(pair, primary=True, backup=True)
    pair.start(b)
    pair.run(0.5)
    assert pair.ask(b, "promote", force_lossy=False)["ok"]
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.contents(b, "q") == ""
    assert a.running.status()["quarantined"] == 1


def test_a_cold_start_says_what_disks_may_lack() -> None:
    pair = up(confirm="primary-disk")
    a, b = pair
    disks(pair, primary=True, backup=False)
    assert confirmed(pair, "q", "a")
    for host in (a, b):
        pair.kill(host)
    disks(pair, primary=True, backup=True)
    pair.start(b)
    pair.run(0.5)
    refused = pair.ask(b, "promote", force_lossy=False)
    assert not refused["ok"]
    assert "confirms waited for the primary's disk only (primary-disk)" in refused["reason"]
    pair.start(a)
    pair.run(0.5)
    refused = pair.ask(b, "promote", force_lossy=False)
    assert refused["code"] == codes.PROMOTE_OTHER_LATER.name, refused
    assert pair.ask(a, "promote", force_lossy=False)["ok"]
    assert pair.contents(a, "q") == "a"


def test_a_cold_start_under_all_memory_goes_by_the_latest_disk_and_says_what_that_may_cost() -> None:
    pair = up(confirm="all-memory")
    a, b = pair
    disks(pair, primary=False, backup=True)
    assert confirmed(pair, "q", "a")
    for host in (a, b):
        pair.kill(host)
    disks(pair, primary=True, backup=True)
    pair.start()
    pair.run(0.5)
    assert pair.ask(a, "promote", force_lossy=False)["code"] == codes.PROMOTE_OTHER_LATER.name
    assert pair.ask(b, "promote", force_lossy=False)["ok"]
    assert "all-memory), so the last of them may be on none" in "".join(b.told(codes.PROMOTED))
    assert pair.contents(b, "q") == "a"


def test_a_level_on_one_node_only_is_refused() -> None:
    pair = Pair()
    pair[1].settings["confirm"] = "primary-disk"
    pair.start()
    pair.run(0.5)
    assert pair.ask(pair[0], "promote", force_lossy=False)["ok"]
    pair.run(0.5)
    assert pair[1].status != "ready"
    (said,) = pair[1].told(codes.DOES_NOT_JOIN)[:1]
    assert "ha.confirm is primary-disk here and all-disks on a" in said


def test_a_wrong_level_in_a_policy_is_refused() -> None:
    pair = up()
    for wrong in ("most", 7, ["all-disks"]):
        (answer,) = policy(pair, wrong)
        assert not answer["ok"]
        assert "ha-confirm: not one of all-disks, primary-disk, all-memory" in answer["reason"]
    assert levels(pair[0])["record"] == "all-disks"


def test_a_queue_that_no_backup_holds_waits_for_its_disk_at_any_level() -> None:
    pair = up(confirm="all-memory")
    vhost = pair[0].running.vhost
    vhost.declare_queue("own", owner=pair, durable=True, arguments={"x-replicate": "none"})
    assert vhost.route("", "own").need[True] is Need.DURABLE
    assert vhost.route("", "q").need == (Need.APPLIED, Need.MEMORY)
    assert Position(1, 0) < pair.publish(pair[0], "own", "a")


def test_a_level_that_is_lowered_again_waits_until_the_stricter_record_is_known() -> None:
    """The authority has committed `all-disks`, and its answer is still on the way."""
    pair = up(authority="register")
    a = pair[0]
    policy(pair, "all-memory")
    pair.until(lambda: levels(a)["record"] == "all-memory")
    pair.register.mute.add("a")
    policy(pair)
    held = pair.register.held
    assert held is not None and "confirm" not in held and levels(a)["record"] == "all-memory"
    policy(pair, "all-memory")
    disks(pair, primary=True, backup=False)
    assert not confirmed(pair, "q", "a"), "the record says that all disks count"
    pair.register.mute.clear()
    pair.until(lambda: levels(a)["least"] == "all-memory")
    assert confirmed(pair, "q", "b")


def confirms_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A policy weakens the level, and confirms go by it before anybody else can know."""
    patch.setattr(Primary, "confirm_floor", property(lambda self: self._model.weakest_confirm()))


def raises_before_the_disks(patch: pytest.MonkeyPatch) -> None:
    """The record says that disks have what was confirmed by the weaker level before, and they do not."""
    due = ConfirmTerms.due
    patch.setattr(ConfirmTerms, "due", lambda self, wanted, durable, now: due(self, wanted, self.since, now))


def forgets_at_a_promotion(patch: pytest.MonkeyPatch) -> None:
    """The record of the new epoch says that disks have what the old primary confirmed by a weaker level."""
    promoted = InSyncRecord.promoted
    patch.setattr(
        InSyncRecord, "promoted", lambda self, *args: replace(promoted(self, *args), confirm=ALL_DISKS)
    )


@PURE_ONLY
@pytest.mark.parametrize(
    ("mutate", "found_by"),
    [
        (confirms_before_the_commit, test_a_policy_sets_the_level_of_its_queues_and_the_record_says_so_first),
        (raises_before_the_disks, test_a_stricter_level_holds_at_once_and_the_record_follows_the_disks),
        (forgets_at_a_promotion, test_a_promoted_node_keeps_the_level_of_the_record_until_disks_have_all),
    ],
)
def test_each_mutant_of_the_record_is_found(
    mutate: Callable[[pytest.MonkeyPatch], None], found_by: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        found_by()

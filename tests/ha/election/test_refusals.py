"""Refused promotions say what to do next, and who does it gets further."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.model.values import Position
from broker.store.errors import StoreUnusable
from broker.store.node_files import RecordFile
from ha.core import codes
from ha.core.election.manual import ManualAuthority
from ha.core.election.register import RegisterAuthority
from ha.core.membership import Status
from ha.core.record.authority import Evidence, PeerAnswer
from ha.core.record.in_sync_record import Incarnation, InSyncRecord
from ha.core.refusal import NEXT
from ha.core.role import OwnIdentity
from ha.core.wire.link import Method
from tests.ha.pair import Pair
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

TRANSCRIPTS = sorted((Path(__file__).parents[1] / "transcripts").glob("*.txt"))


@pytest.mark.parametrize(
    ("slept", "code"),
    [(0.1, "promote-link-up"), (3.0, "promote-primary-may-serve"), (6.0, "promote-primary-may-serve")],
)
def test_a_backup_is_promoted_unforced_once_a_hung_primary_restarts(slept: float, code: str) -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "x")
    pair.run(0.3)
    a.frozen = True
    pair.run(slept)
    answer = pair.ask(b, "promote")
    assert answer["code"] == code, answer
    assert NEXT in answer["reason"] and "hangs" in answer["reason"] and "start" in answer["reason"]
    a.frozen = False
    pair.kill(a, keep=True)
    pair.start(a)
    pair.run(0.3)
    answer = pair.ask(b, "promote")
    assert answer["ok"] and "forced" not in answer["reason"], answer
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == "x"


def test_the_refusal_after_a_lost_primary_names_the_flag_that_forces() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    a.frozen = True
    pair.run(5.0)
    early = pair.ask(b, "promote")["reason"]
    assert "(127.0.0.1:5000 does not answer)" in early and "force" not in early
    assert "ask once more; a served 6 s ago, so check that node first" in early
    pair.run(60.0)
    assert "with --force-lossy" in pair.ask(b, "promote")["reason"]
    forced = pair.ask(b, "promote", force_lossy=True)
    assert forced["ok"] and NEXT not in forced["reason"]


def test_a_restarted_node_advises_to_promote_the_backup_that_ran_on() -> None:
    """It named the primary that had died, and --force-lossy in its place, which cost transient messages."""
    pair = Pair(3)
    pair.start()
    a, b, c = pair.hosts
    pair.run(0.3)
    assert pair.ask(a, "promote", force_lossy=True)["ok"]
    pair.until(lambda: b.status == c.status == "ready")
    pair.kill(c)
    pair.run(0.1)
    pair.kill(a)
    pair.start(c)
    pair.run(1.0)
    answer = pair.ask(c, "promote")
    assert answer["code"] == "promote-other-runs-on" and answer["reason"].endswith("; next: promote b")
    assert pair.ask(b, "promote")["ok"]
    pair.until(lambda: c.status == "ready")


def test_who_has_lost_its_record_is_no_node_that_never_had_one() -> None:
    """The other one had gone on alone, and has a new disk: it was promoted as the first that ever was."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "x")
    pair.run(0.3)
    pair.kill(b)
    pair.run(3.0)
    pair.publish(a, "q", "y")
    pair.run(0.3)
    pair.kill(a)
    a.disk_does("new")
    b.disk.unlink("/b/insync.json")
    b.disk.sync_directory("/b")
    pair.start()
    pair.run(0.5)
    assert pair.ask(b, "promote")["code"] == "promote-record-lost"
    assert pair.ask(a, "promote")["code"] == "promote-other-holds-data"
    forced = pair.ask(b, "promote", force_lossy=True)
    assert forced["ok"] and "forced" in forced["reason"]
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == "x"


def three_of_which_one_catches_up() -> Pair:
    """It has yet to get anything onto its disk."""
    pair = Pair(3)
    a, b, c = pair.hosts
    c.syncing = False
    pair.start()
    pair.run(0.3)
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: (b.status, c.status) == ("ready", "catch-up"))
    pair.run(0.2)
    return pair


def test_a_joiner_advises_to_promote_the_backup_that_ran_on() -> None:
    pair = three_of_which_one_catches_up()
    a, b, c = pair.hosts
    pair.kill(a)
    pair.run(0.3)
    answer = pair.ask(c, "promote")
    assert answer["code"] == "promote-other-runs-on" and answer["reason"].endswith("; next: promote b")
    assert pair.ask(b, "promote")["ok"]


def test_who_catches_up_with_a_primary_that_serves_has_to_wait() -> None:
    """It was told to have that primary demoted; and then, that it may lack messages, and of --force-lossy."""
    pair = three_of_which_one_catches_up()
    c = pair.hosts[2]
    answer = pair.ask(c, "promote")
    assert answer["code"] == "promote-catching-up"
    assert answer["reason"].endswith("; next: wait until it is ready, then switch over")


def test_a_joiner_of_a_hung_primary_advises_to_restart_that_primary() -> None:
    pair = Pair()
    a, b = pair.hosts
    b.syncing = False
    pair.start()
    pair.run(0.3)
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: b.status == "catch-up")
    a.frozen = True
    answer = pair.ask(b, "promote")
    assert answer["code"] == "promote-primary-hangs"
    assert "if a hangs, end it, start it again and promote it" in answer["reason"]


@pytest.mark.parametrize("spoilt", [{"resetting": 1}, {"ended": 1}])
def test_whose_copy_is_not_whole_names_the_backup_that_runs_on(spoilt: dict[str, int]) -> None:
    """Of three, both are in the record, and the primary is gone."""
    names = {letter * 32: letter for letter in "abc"}
    owner, this, other = (Incarnation(node_id, 1) for node_id in names)
    record = InSyncRecord("f" * 32, 65537, 3, owner, frozenset({this, other}), names)
    found = Evidence(
        me=OwnIdentity(this.node_id, "b", 1, 2), status=Status.CATCH_UP, record=record, newest=record,
        record_lost=False, incomplete=True, **({"resetting": 0, "ended": 0} | spoilt),
        position=Position(65537, 9), linked=False, link_end=None,
        answers={other.node_id: PeerAnswer(
            other.node_id, "c", 1, "ready", False, 65537, Position(65537, 9), record, number=3
        )},
    )  # fmt: skip
    verdict = ManualAuthority().judge(found, force_lossy=False)
    assert (verdict.code, verdict.way) == ("promote-other-runs-on", "promote c")


def evidence(**more: Any) -> Evidence:
    """A node that was started again, and that the record does not name."""
    names = {letter * 32: letter for letter in "ab"}
    owner, this = (Incarnation(node_id, 1) for node_id in names)
    record = InSyncRecord("f" * 32, 65537, 3, owner, frozenset(), names)
    found: dict[str, Any] = {
        "me": OwnIdentity(this.node_id, "b", 2, 2), "status": Status.JOINING, "record": record,
        "newest": record,
        "record_lost": False, "incomplete": False, "resetting": 0, "ended": 0,
        "position": Position(65537, 9), "linked": False, "link_end": None,
    }  # fmt: skip
    return Evidence(**(found | more))


@pytest.mark.parametrize("authority", [ManualAuthority(), RegisterAuthority()])
@pytest.mark.parametrize("more", [
    {}, {"incomplete": True}, {"newest": None}, {"newest": None, "record_lost": True}, {"resetting": 1},
    {"newest": None, "record": None, "unanswered": ["h:1 does not answer"]},
])  # fmt: skip
def test_no_refusal_leads_to_force_while_another_node_was_heard_to_serve(
    authority: ManualAuthority, more: dict[str, Any]
) -> None:
    """Or while one is there that refuses this node: a wrong password is no reason to lose messages."""
    refuses = {"unanswered": ["h:1 refuses this node (403 ACCESS_REFUSED)"]}
    for heard in ({}, {"served": ("a", 61.0)}, {"served": ("a", 59.0)}, refuses):
        verdict = authority.judge(evidence(**(more | heard)), force_lossy=False)
        if not verdict.granted and heard.get("served") != ("a", 59.0) and heard is not refuses:
            continue
        assert "force" not in verdict.sentence
    unanswered = authority.judge(evidence(unanswered=["h:1 does not answer"]), force_lossy=False)
    assert "(h:1 does not answer)" in unanswered.sentence and "--force-lossy" in unanswered.sentence


def test_a_node_that_is_not_in_its_own_list_says_so() -> None:
    why = "it listens at h:2"
    found = evidence(record=None, newest=None, unanswered=["h:1 does not answer"], left_out=why)
    verdict = ManualAuthority().judge(found, force_lossy=False)
    assert verdict.code == "promote-not-listed" and "force" not in verdict.sentence


def test_the_primary_tells_of_a_node_with_its_own_name() -> None:
    pair = Pair()
    pair.hosts[1].called = "a"
    pair.start()
    a, b = pair.hosts
    pair.run(0.3)
    assert pair.ask(a, "promote")["ok"]
    pair.run(1.0)
    assert (
        "a is not taken in: both nodes are called a: change broker.name of one"
        in a.running.status()["reason"]
    )
    pair.kill(b)
    pair.run(0.2)
    assert "not taken in" not in a.running.status()["reason"]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_every_refused_promotion_in_a_transcript_names_the_next_step(path: Path) -> None:
    told = [line for line in path.read_text().splitlines() if "> promotion refused: " in line]
    assert [line for line in told if NEXT not in line and "identity of" not in line] == []


def test_a_switchover_to_nobody_in_sync_says_what_to_do() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    assert pair.ask(b, "switchover", to=None)["code"] == "switchover-not-primary"
    answer = pair.ask(a, "switchover", to="c")
    assert answer["code"] == "switchover-target-not-ready"
    assert "; next: its backups are b" in answer["reason"]
    pair.kill(b)
    pair.run(3.0)
    assert pair.ask(a, "switchover", to=None)["code"] == "switchover-no-backup"


def test_a_record_of_another_format_says_what_to_do() -> None:
    disk = VirtualDisk()
    disk.make_directory("/a")
    record = RecordFile(disk, "/a", "insync.json")
    file = disk.open_append(record.path)
    file.write(b'{"format": 2, "checksum": "", "body": {}}')
    file.close()
    with pytest.raises(StoreUnusable, match=r"has format 2, .* run the version that wrote it, or move"):
        record.load()


def test_a_record_of_another_cluster_than_the_nodes_is_refused() -> None:
    """The pair refused each other then, and named the wrong one of them."""
    pair = Pair()
    pair.up()
    b = pair.hosts[1]
    pair.kill(b)
    record = RecordFile(b.disk, "/b", "insync.json")
    record.save({**(record.load() or {}), "cluster_id": "f" * 32})
    with pytest.raises(
        StoreUnusable, match=r"^/b/insync\.json is of cluster f{32}, .* put back the one that"
    ):
        pair.start(b)


def test_who_sent_what_cannot_be_is_named() -> None:
    pair = Pair()
    pair.up()
    a = pair.hosts[0]
    primary = a.running.core.primary
    assert primary is not None
    (peer,) = primary.peers()
    a.running.core.method(peer, Method.ACK, b"short", pair.now)
    pair.run(0.1)
    assert a.told(codes.LINK_MISUSED) == [
        codes.LINK_MISUSED.say(peer="b", fault="an ack of 5 bytes").sentence
    ]

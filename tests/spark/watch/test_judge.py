"""The judge's alarms for random and hand-written histories, in any batches."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spark.watch.judge import Limits
from tests.spark.watch.history import QUEUE, History, Ledgers, Process, Record, Stage

PATIENT = Limits(heartbeat=86_400)
"""Limits for histories of which one record is shown every few seconds."""


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), most=st.integers(1, 60))
def test_each_loss_of_a_random_history_is_alarmed_exactly_once(seed: int, most: int) -> None:
    history = History(seed)
    stage = Stage(seed, PATIENT)
    stage.show(history.ledgers.written, most=most)
    stage.end(history)
    assert sorted(stage.told("lost")) == sorted(history.lost)
    assert sorted(stage.told("unplaced")) == sorted(history.unplaced)
    assert stage.kinds() <= {"lost", "unplaced"}


class Scene:
    """A judge and hand-written ledgers, with one batch a second."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.stage = Stage(1, limits)
        self.ledgers = Ledgers(random.Random(1))
        self.shown = 0

    def say(self, writer: str, kind: str, /, *, view: int = 1, life: int = 1, **fields: Any) -> None:
        self.ledgers.note((writer, life), view, kind, **fields)
        self.ledgers.flush((writer, life))

    def look(self, seconds: float = 1.0) -> list[str]:
        """The kinds of alarms in this batch."""
        fresh: dict[Process, list[Record]] = defaultdict(list)
        for process, record, _ in self.ledgers.written[self.shown :]:
            fresh[process].append(record)
        self.shown = len(self.ledgers.written)
        before = len(self.stage.alarms)
        self.stage.batch(fresh, seconds=seconds)
        return [alarm.kind for alarm in self.stage.alarms[before:]]

    def beat(self, *writers: str, batches: int = 4) -> list[str]:
        """Some batches in which these writers send heartbeats. Returns the kinds of alarms."""
        found = []
        for _ in range(batches):
            for writer in writers:
                self.say(writer, "heartbeat")
            found += self.look()
        return found

    @property
    def last(self) -> str:
        return self.stage.alarms[-1].sentence


def pair() -> Scene:
    """Primary `a`, its backup `b`, a producer and a consumer."""
    scene = Scene()
    for name in ("a", "b"):
        scene.say(name, "open", view=0, name="broker", reason="c1")
    scene.say("a", "promote", peer="", reason="bootstrap")
    scene.say("a", "definition", queue=QUEUE, name="orders", reason="replicated")
    scene.say("a", "insync", name="a,b", n=0, peer="b", reason="included")
    scene.say("p", "open", name="producer")
    scene.say("c", "open", name="consumer")
    assert scene.beat("a", "b", "p", "c") == []
    return scene


def enqueue(scene: Scene, node: str, kind: str, first: int, last: int, epoch: int = 1) -> None:
    made = {"queue": QUEUE, "epoch": epoch, "first": first, "last": last, "prod": "p.1.1/1", "pfirst": first}
    scene.say(node, kind, **made, n=first)


def test_pruned_records_are_neither_judged_nor_a_gap() -> None:
    """The watch starts on ledgers that were pruned: records of ids 1..30 are gone."""
    scene = pair()
    stage = scene.stage
    head = {"v": 2, "writer": "c", "incarnation": 1, "ts_us": 5, "view": 0}
    gone = {**head, "wseq": 60, "kind": "pruned", "first": 5, "last": 60}
    told = {**head, "wseq": 61, "kind": "acked", "queue": QUEUE, "epoch": 1, "first": 21, "last": 30}
    stage.batch({("c", 1): [gone, told]}, name="c-1-3.pruned.ledger.jsonl")
    scene.ledgers.skip(("c", 1), 62)
    scene.say("a", "enqueue", queue=QUEUE, epoch=1, first=21, last=40, prod="p.1.1/1", pfirst=21, n=1)
    scene.say("p", "confirmed", prod="p.1.1/1", first=21, last=40)
    assert scene.beat("a", "b", "p", "c") == []
    scene.say("b", "promote", view=2, peer="a", reason="unforced")
    assert scene.beat("b", "p", "c", batches=12).count("lost") == 1
    [lost] = [alarm for alarm in stage.alarms if alarm.kind == "lost"]
    assert "31..40" in lost.sentence and not {"gap", "unreadable"} & stage.kinds()


def test_silence_and_return_of_a_writer_are_alarmed_once() -> None:
    scene = pair()
    assert scene.beat("a", "p", "c", batches=20) == ["silent"]
    assert "broker b" in scene.last
    assert scene.beat("a", "b", "p", "c", batches=20) == ["back"]


def test_a_writer_known_to_have_ended_is_not_silent() -> None:
    scene = pair()
    scene.say("c", "seal")
    scene.say("b", "promote", view=2, peer="a", reason="unforced")
    assert scene.beat("b", "p", batches=40) == []
    scene.say("a", "open", view=2, life=2, name="broker", reason="c1")
    assert scene.beat("b", "p", batches=20) == ["silent"]
    assert "broker a (incarnation 2)" in scene.last


def test_writers_that_never_write_heartbeats_are_never_silent() -> None:
    scene = Scene()
    scene.ledgers.note(("old", 1), 0, "open", name="producer")
    scene.ledgers.flush(("old", 1))
    for _, record, _ in scene.ledgers.written:
        record["v"] = 1
    assert [kind for _ in range(40) for kind in scene.look()] == []


def test_a_watcher_that_slept_does_not_blame_the_writers() -> None:
    scene = pair()
    assert scene.look(seconds=3600) == []
    assert scene.beat("a", "b", "p", "c") == []


def test_a_message_whose_ack_is_recorded_late_is_not_lost() -> None:
    """A consumer acked a message that only the dead primary held; its ledger shows it long after the
    promotion."""
    scene = pair()
    enqueue(scene, "a", "enqueue", 1, 3)
    enqueue(scene, "b", "backup_enqueue", 1, 2)
    scene.say("p", "confirmed", prod="p.1.1/1", first=1, last=3)
    scene.say("b", "promote", view=2, peer="a", reason="unforced")
    assert scene.beat("b", "p", batches=8) == []
    scene.say("c", "acked", queue=QUEUE, epoch=1, first=3, last=3)
    assert scene.beat("b", "p", "c") == []


def test_a_loss_is_certain_once_all_writers_were_heard() -> None:
    scene = pair()
    enqueue(scene, "a", "enqueue", 1, 30)
    enqueue(scene, "b", "backup_enqueue", 1, 20)
    scene.say("p", "confirmed", prod="p.1.1/1", first=1, last=25)
    scene.say("b", "promote", view=2, peer="a", reason="force-lossy")
    assert scene.beat("b", "p", batches=8) == []
    assert scene.beat("b", "p", "c") == ["lost"]
    assert scene.stage.told("lost") == [(1, n) for n in range(21, 26)]
    assert "never held by b, which opened epoch 2, force-lossy" in scene.last
    scene.say("c", "acked", queue=QUEUE, epoch=1, first=21, last=21)
    assert scene.beat("b", "p", "c", batches=10) == ["found"]


def test_a_promotion_loses_nothing_from_an_unreplicated_queue() -> None:
    scene = pair()
    made = {"queue": "0f" * 16, "epoch": 1, "first": 1, "last": 3, "prod": "p.1.1/1", "pfirst": 1, "n": 1}
    scene.say("a", "enqueue", **made)
    scene.say("p", "confirmed", prod="p.1.1/1", first=1, last=3)
    scene.say("b", "promote", view=2, peer="a", reason="unforced")
    assert scene.beat("b", "p", "c", batches=10) == []


def test_a_message_not_listed_at_a_clean_end_is_lost() -> None:
    scene = pair()
    enqueue(scene, "a", "enqueue", 1, 9)
    scene.say("p", "confirmed", prod="p.1.1/1", first=1, last=9)
    scene.say("a", "dequeue", queue=QUEUE, epoch=1, first=1, last=2, reason="acked")
    scene.say("a", "present", queue=QUEUE, epoch=1, first=4, last=9)
    for name in ("a", "b", "p", "c"):
        scene.say(name, "seal")
    assert [kind for _ in range(4) for kind in scene.look()] == ["lost"]
    assert scene.stage.told("lost") == [(1, 3)]


def test_a_gap_is_alarmed_and_open_messages_are_no_longer_judged() -> None:
    scene = pair()
    enqueue(scene, "a", "enqueue", 1, 3)
    scene.say("p", "confirmed", prod="p.1.1/1", first=1, last=3)
    scene.look()
    scene.say("a", "dequeue", queue=QUEUE, epoch=1, first=1, last=3, reason="acked")
    del scene.ledgers.written[-1]
    assert scene.beat("a", "b", "p", "c", batches=8) == ["gap"]
    assert "lacks records 9" in scene.last and "3 messages without a fate" in scene.last
    scene.say("b", "promote", view=2, peer="a", reason="unforced")
    assert scene.beat("b", "p", "c", batches=10) == []
    assert scene.stage.judge.live.forgotten == 3


def test_a_ledger_that_begins_in_the_middle_is_a_note() -> None:
    scene = Scene()
    scene.say("a", "open", name="broker")
    del scene.ledgers.written[-1]
    assert scene.beat("a") == ["begins"]


def test_two_primaries_in_one_epoch_are_alarmed() -> None:
    scene = pair()
    scene.say("b", "promote", peer="", reason="force-lossy")
    assert scene.beat("a", "b", "p", "c") == ["two-primaries"]
    enqueue(scene, "a", "enqueue", 1, 3)
    enqueue(scene, "b", "enqueue", 4, 5)
    assert scene.beat("a", "b", "p", "c") == ["two-primaries"]
    assert "a and b both enqueued in orders" in scene.last


def test_losses_are_not_judged_with_missing_foreign_or_newer_ledgers() -> None:
    def lose(scene: Scene) -> list[str]:
        enqueue(scene, "a", "enqueue", 1, 3)
        scene.say("p", "confirmed", prod="p.1.1/1", first=1, last=3)
        scene.say("b", "promote", view=2, peer="a", reason="unforced")
        return scene.beat("b", "p", "c", batches=10)

    missing = pair()
    missing.say("a", "insync", name="a,b,d", n=1, peer="d", reason="included")
    assert lose(missing) == ["missing-ledger"]
    missing.say("d", "open", name="broker", reason="c1")
    assert missing.beat("b", "d", "p", "c") == ["lost"]

    mixed = pair()
    mixed.say("z", "open", name="broker", reason="other")
    assert "mixed" in lose(mixed) and "lost" not in mixed.stage.kinds()

    strange = pair()
    strange.say("y", "open", name="broker")
    strange.ledgers.written[-1][1]["v"] = 9
    assert lose(strange) == ["version"]


def test_a_session_unknown_to_all_brokers_is_no_loss() -> None:
    scene = pair()
    scene.say("p", "confirmed", prod="elsewhere/1", first=1, last=50)
    assert scene.beat("a", "b", "p", "c", batches=10) == ["unknown-session"]


def test_nothing_is_judged_while_the_watch_is_behind() -> None:
    scene = pair()
    scene.say("p", "confirmed", prod="p.1.1/1", first=1, last=3)
    scene.say("a", "unrouted", prod="p.1.1/1", first=3, last=3)
    told = []
    for _ in range(40):
        before = len(scene.stage.alarms)
        scene.stage.batch({}, behind=1000)
        told += [alarm.kind for alarm in scene.stage.alarms[before:]]
    assert told == ["behind"]
    assert scene.beat("a", "b", "p", "c", batches=6) == ["caught-up", "unplaced"]


def test_messages_older_than_the_retention_are_forgotten_and_counted() -> None:
    scene = Scene(Limits(retention=60, heartbeat=86_400))
    scene.say("a", "open", name="broker")
    scene.say("a", "promote", peer="", reason="bootstrap")
    scene.say("p", "open", name="producer")
    rows = []
    for n in range(1, 400):
        enqueue(scene, "a", "enqueue", 10 * n, 10 * n + 4)
        scene.say("p", "confirmed", prod="p.1.1/1", first=10 * n, last=10 * n + 4)
        scene.look()
        rows.append(scene.stage.judge.live.rows)
    assert max(rows[100:]) < 4 * 70
    assert scene.stage.judge.live.forgotten >= 5 * 300
    assert scene.stage.kinds() == set()
    for _ in range(200):
        scene.look()
    ledgers = scene.stage.judge.live
    assert (ledgers.ids, ledgers.sessions) == ({}, {})
    assert len(ledgers.dormant_ids) == len(ledgers.dormant_sessions) == 1
    enqueue(scene, "b", "backup_enqueue", 10, 14)  # repeated long after: ignored
    scene.say("b", "promote", view=2, peer="a", reason="unforced")
    assert scene.beat("a", "b", "p") == []


def test_dormant_entries_are_forgotten_after_a_while() -> None:
    scene = Scene(Limits(retention=60, heartbeat=86_400))
    scene.say("a", "open", name="broker")
    scene.say("a", "promote", peer="", reason="bootstrap")
    rows = []
    for n in range(1, 60):
        for kind in ("enqueue", "dequeue"):
            made = {"queue": QUEUE, "epoch": 1, "first": n, "last": n, "reason": "acked"}
            scene.say("a", kind, **made, prod=f"p.{n}/1", pfirst=1)
        for _ in range(20):
            scene.look()
        rows.append(scene.stage.judge.live.rows)
    assert max(rows[30:]) <= max(rows[:30])


def test_a_node_restored_from_an_archive_causes_no_loss() -> None:
    scene = pair()
    enqueue(scene, "a", "enqueue", 1, 9)
    scene.say("p", "confirmed", prod="p.1.1/1", first=1, last=9)
    scene.say("r", "open", view=0, name="broker", reason="c1")
    scene.say("r", "promote", view=2, peer="", reason="standalone")
    enqueue(scene, "r", "enqueue", 1, 2, epoch=2)
    assert scene.beat("a", "b", "r", "p", "c", batches=10) == []


def test_a_missing_ledger_blocks_judging_only_for_the_retention() -> None:
    scene = Scene(Limits(retention=60, heartbeat=86_400))
    scene.say("a", "open", name="broker")
    scene.say("a", "insync", name="a,gone", n=1, peer="gone", reason="included")
    assert scene.beat("a", batches=10) == ["missing-ledger"]
    assert scene.stage.judge.blind
    scene.beat("a", batches=70)
    assert not scene.stage.judge.blind

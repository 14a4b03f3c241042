"""The checkers of confirms, records and copies, each shown what it must object to, and what it must not."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from broker.model.history.epoch_ends import EpochEnd
from broker.model.history.records import Envelope
from broker.model.queue.replica import ReplicaContents
from broker.model.values import Position
from ha.core.backup.backup import Backup
from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.checkers import facade
from tests.simulation.checkers.copies.copies import check_copies_13and14, check_dequeues_16
from tests.simulation.checkers.messages.ledgers import Id, Ledgers29, MemoryLedger
from tests.simulation.harness.inspection import entries, vhost_of
from tests.simulation.harness.machines.machine import Machine


def forget(machine: Machine, queue: str, key: str) -> None:
    """The replica loses one message."""
    replica = vhost_of(machine).queues[queue].replica
    for sequence, envelope, raw in replica.entries():
        if b"<%b>" % key.encode() in raw:
            replica.dequeue(envelope.epoch, [(sequence, sequence)])


def change(machine: Machine, queue: str, key: str) -> None:
    """The replica has another last byte of one message's body."""
    replica = vhost_of(machine).queues[queue].replica
    for sequence, envelope, raw in replica.entries():
        if b"<%b>" % key.encode() in raw:
            spoilt = bytes(raw[:-2]) + bytes([raw[-2] ^ 1]) + bytes(raw[-1:])
            replica.dequeue(envelope.epoch, [(sequence, sequence)])
            replica.add_run(sequence, envelope, [spoilt])


def test_2_every_backup_in_the_record_must_have_what_is_confirmed() -> None:
    pair = Pair()
    message = pair.in_queue("q1")[-1]
    pair.checkers.confirms._check(pair.a, [message])
    forget(pair.b, "q1", message.key)
    with violates(2):
        pair.checkers.confirms._check(pair.a, [message])


def test_2_a_persistent_message_must_be_on_every_disk_and_others_need_not() -> None:
    pair = Pair()
    for path, inode in pair.b.disk._kept.items():
        if "/store/" in path:
            inode.synced = bytearray()
    transient_queue = next(m for m in pair.in_queue("q2") if "q1" not in m.certain)
    pair.checkers.confirms._check(pair.a, [transient_queue])
    with violates(2):
        pair.checkers.confirms._check(pair.a, [pair.in_queue("q1")[-1]])


def test_5_what_a_multiple_confirm_covers_besides_its_own_tag() -> None:
    pair = Pair()
    first, last = pair.in_queue("q1")[-2:]
    pair.checkers.confirms._check(pair.a, [first, last])
    forget(pair.b, "q1", first.key)
    with violates(5):
        pair.checkers.confirms._check(pair.a, [first, last])


def test_3_nothing_sent_after_a_recorded_backup_died_is_confirmed() -> None:
    pair = Pair()
    message = pair.in_queue("q1")[-1]
    pair.run(0.1)
    pair.b.kill()
    pair.checkers.confirms._check(pair.a, [message])
    pair.run(0.001)
    message.last_sent = pair.clock.now
    with violates(3):
        pair.checkers.confirms._check(pair.a, [message])


def test_3_an_exclusion_on_disk_sets_confirms_free() -> None:
    pair = Pair()
    pair.b.kill()
    pair.run(5)
    record = pair.checkers.records.of(pair.a)
    assert record is not None and not record.in_sync
    message = pair.in_queue("q1")[-1]
    message.last_sent = pair.clock.now
    pair.checkers.confirms._check(pair.a, [message])


def test_4_who_is_in_the_record_has_everything() -> None:
    pair = Pair()
    record = pair.checkers.record
    record._done = (0, 0)
    record.changed(pair.a)
    forget(pair.b, "q1", pair.in_queue("q1")[0].key)
    record._done = (0, 0)
    with violates(4):
        record.changed(pair.a)


def test_13_messages_and_definitions_are_the_same_on_both() -> None:
    pair = Pair()
    check_copies_13and14(pair.a, pair.b)
    forget(pair.b, "q2", pair.in_queue("q2")[0].key)
    with violates(13):
        check_copies_13and14(pair.a, pair.b)


def test_13_names_messages_by_their_keys_and_whatever_differs() -> None:
    pair = Pair()
    lost, spoilt = (message.key for message in pair.in_queue("q2")[:2])
    forget(pair.b, "q2", lost)
    change(pair.b, "q2", spoilt)
    with violates(13) as raised:
        check_copies_13and14(pair.a, pair.b)
    ours, theirs = str(raised.value).split(": 2 only on primary A [")[1].split("], 1 only on backup B [")
    assert re.findall(r"p1:\d+ \(id", ours) == [f"{lost} (id", f"{spoilt} (id"]
    assert theirs.startswith(f"{spoilt} (id ") and theirs not in ours
    assert "\\x" not in str(raised.value)


@pytest.mark.parametrize(
    "other",
    [{"wall_ms": 7}, {"expiration": 7}, {"priority": 7}, {"channel": 7}, {"largest_frame": 7}],
    ids=lambda other: next(iter(other)),
)
def test_13_a_message_of_another_time_or_rank_is_a_difference(other: dict[str, int]) -> None:
    pair = Pair()
    replica = vhost_of(pair.b).queues["q2"].replica
    sequence, envelope, raw = replica.entries()[0]
    replica.dequeue(envelope.epoch, [(sequence, sequence)])
    replica.add_run(sequence, _but(envelope, **other), [raw])
    with violates(13, r"1 only on primary A \[.*1 only on backup B \[.*\b7\b"):
        check_copies_13and14(pair.a, pair.b)


def test_13_whether_it_was_delivered_before_is_the_primarys_to_know() -> None:
    pair = Pair()
    queue = vhost_of(pair.a).queues["q2"]
    queue.ready[0] = (queue.ready[0][0], queue.ready[0][1].as_redelivered(), queue.ready[0][2])
    check_copies_13and14(pair.a, pair.b)


def _but(envelope: Envelope, **other: Any) -> Envelope:
    names = "persistent", "wall_ms", "channel", "largest_frame", "expiration", "priority"
    fields = {name: getattr(envelope, name) for name in names}
    return Envelope(envelope.epoch, envelope.exchange, envelope.routing_key, **fields | other)


def test_13_a_binding_more_is_a_difference() -> None:
    pair = Pair()
    vhost_of(pair.b).exchanges["amq.fanout"].bindings.clear()
    with violates(13):
        check_copies_13and14(pair.a, pair.b)


def test_13_how_far_history_went_is_the_same_on_both_of_deleted_queues_too() -> None:
    pair = Pair()
    queue = bytes(16)
    for machine in (pair.a, pair.b):
        vhost_of(machine).shared.deleted_queues.add(queue, {7: EpochEnd(5)})
    check_copies_13and14(pair.a, pair.b)
    vhost_of(pair.b).shared.deleted_queues.add(queue, {7: EpochEnd(5, ((2, 3),))})
    with violates(13, r"how far history went: .*, deleted: to 5 of epoch 7, but for \[\(2, 3\)\]\]"):
        check_copies_13and14(pair.a, pair.b)


def test_13_who_has_had_a_queue_sent_again_need_not_know_what_no_copy_comes_of() -> None:
    """Seed 130202889: it could not take a message, and the queue was deleted before it came again."""
    pair = Pair()
    vhost_of(pair.a).shared.deleted_queues.add(bytes(16), {7: EpochEnd(5)})
    check_copies_13and14(pair.a, pair.b, mended=True)
    with violates(13, "1 only on primary A"):
        check_copies_13and14(pair.a, pair.b)


def test_13_who_kept_messages_that_all_others_have_forgotten_may_know_more_than_they() -> None:
    """Seed 1232: a silent difference outlived two history checkpoints, until the backup found it."""
    pair = Pair()
    replica, epoch = vhost_of(pair.b).queues["q2"].replica, 7
    replica.set_ends(replica.ends() | {epoch: EpochEnd(5)})
    check_copies_13and14(pair.a, pair.b, mended=True)
    with violates(13, "0 only on primary A, 1 only on backup B .*: to 5 of epoch 7]"):
        check_copies_13and14(pair.a, pair.b)
    replica.set_ends({epoch: EpochEnd(5)})
    with violates(13, "1 only on primary A"):
        check_copies_13and14(pair.a, pair.b, mended=True)


def test_14_of_a_backup_that_was_primary() -> None:
    pair = Pair()
    forget(pair.b, "q1", pair.in_queue("q1")[0].key)
    pair.checkers._primaries.add("B")
    with violates(14):
        pair.checkers.quiet_point(pair.a, [pair.b])


def test_16_dequeues_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    held = entries(vhost_of(Pair().a).queues["q1"])
    assert len(held) > 5
    check_dequeues_16("q1", held, Random(1))

    def only_what_is_there(self: Any, epoch: int, ranges: Any) -> None:
        found = self._epochs.get(epoch)
        for low, high in ranges if found is not None else ():
            found.remove(low, high)

    monkeypatch.setattr(ReplicaContents, "dequeue", only_what_is_there)
    with violates(16) as found:
        check_dequeues_16("q1", held, Random(1))
    back, came = re.findall(r"copy of q1, .* has got back \d+ \[(.*?)\]; .* came (.*)", str(found.value))[0]
    assert re.match(r"p1:\d+ \(id \d+ of epoch \d+\)", back)
    assert came in (
        "its dequeue, then the message itself",
        "its dequeue, then its dequeue, then the message itself",
    )


def test_15_what_the_new_primary_never_had_is_exported_before_it_is_dropped() -> None:
    pair = Pair()
    divergent = pair.checkers.divergent
    queue = vhost_of(pair.b).queues["q1"].uuid
    epoch = pair.a.running.core.epoch
    held = {(queue, epoch - 1, 1)}
    divergent._before["B"] = (pair.b.life, held)
    divergent._promoted["A"].ends[queue, epoch - 1] = 1, ()
    divergent._rejoined(pair.b)  # its history had that one
    divergent._before["B"] = (pair.b.life, held)
    divergent._promoted["A"].ends.clear()
    with violates(15):
        divergent._rejoined(pair.b)


def test_15_what_went_with_a_link_that_came_and_went_within_a_tick_went_as_history_had_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of seed 40005862: a queue that its primary had deleted, and both nodes lost each other at once."""
    pair = Pair()
    divergent, life = pair.checkers.divergent, pair.b.life
    epoch = pair.a.running.core.epoch
    gone = b"q" * 16, epoch, 1
    monkeypatch.setattr(Backup, "linked", property(lambda self: False))
    divergent._states["B"], divergent._before["B"] = (life, "away"), (life, {gone})
    divergent.tick(pair.b)
    assert gone in divergent._before["B"][1]
    divergent.heard(pair.b, f"catching up with A in epoch {epoch}")
    divergent.tick(pair.b)
    assert gone not in divergent._before["B"][1]


def test_15_an_exported_message_excuses_its_loss_and_may_not_be_served() -> None:
    pair = Pair()
    divergent = pair.checkers.divergent
    vhost = vhost_of(pair.b)
    queue = vhost.queues["q1"]
    epoch = pair.a.running.core.epoch
    lost = queue.replica.entries()[:1]
    pair.b.running._quarantine.export(queue.uuid, "q1", lost)
    sequence = lost[0][0]
    promoted = divergent._promoted["A"]
    promoted.epoch, promoted.held = epoch + 1, set()
    promoted.ends.clear()
    queue.replica.dequeue(epoch, [(sequence, sequence)])
    divergent._before["B"] = (pair.b.life, {(queue.uuid, epoch, sequence)})
    divergent._rejoined(pair.b)
    assert divergent.exported == 1
    promotion = pair.checkers.records.promotions[-1]
    divergent._whole["A"] = (pair.a.life, epoch - 1)
    divergent.promoted(promotion, forced=False)  # one that goes on with what was before that primary
    divergent._whole["A"] = (pair.a.life, epoch)
    pair.a.running.replica.position = Position(epoch, 1)
    divergent._by_epoch[epoch] = promoted
    with violates(15):
        divergent.promoted(promotion, forced=False)
    with violates(15):
        divergent.promoted(promotion, forced=True)
    divergent._whole["A"] = (0, 0)  # nor does one that was forced with what its disk had go on with it
    divergent.promoted(promotion, forced=True)
    divergent._by_epoch[epoch] = promoted
    divergent._halfway["A"] = {(queue.uuid, epoch, sequence)}
    divergent.promoted(promotion, forced=False)  # it had not come to compare that one


def test_15_what_went_as_the_history_of_another_primary_had_it_need_not_be_exported() -> None:
    pair = Pair()
    divergent = pair.checkers.divergent
    backup = pair.b.running.core.backup
    queue = vhost_of(pair.b).queues["q1"].uuid
    for followed, kept in ((7, set[tuple[bytes, int, int]]()), (8, {(queue, 7, 1)})):
        divergent._before["B"] = (pair.b.life, {(queue, 7, 1)})
        divergent._states["B"] = (pair.b.life, "catching")
        divergent._followed["B"] = followed
        pair.b.running.core.backup = None
        divergent.tick(pair.b)
        assert divergent._before["B"][1] >= kept
        assert divergent._halfway["B"] == {(queue, 7, 1)}
        assert ((queue, 7, 1) in divergent._before["B"][1]) is bool(kept)
    divergent._before.clear()
    pair.b.running.core.backup = backup
    divergent.tick(pair.b)
    assert pair.b.role() == "ready" and "B" not in divergent._halfway


def test_15_what_was_in_the_history_of_the_primary_is_not_exported() -> None:
    pair = Pair()
    divergent = pair.checkers.divergent
    queue = vhost_of(pair.b).queues["q1"]
    some = queue.replica.entries()[:1]
    mine = {(queue.uuid, some[0][1].epoch, some[0][0])}
    divergent._before["B"] = (pair.b.life, set(mine))
    promoted = divergent._promoted["A"]
    promoted.epoch += 1
    promoted.ends[queue.uuid, some[0][1].epoch] = some[0][0], ()
    pair.b.running._quarantine.export(queue.uuid, "q1", some)
    with violates(15):
        divergent._rejoined(pair.b)


class Kept:
    """A pair whose nodes keep ledgers, with some messages enqueued and confirmed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(facade, "KEPT", 1.0)
        self.pair = Pair()
        assert self.pair.checkers.ledgers is not None
        self.ledgers: Ledgers29 = self.pair.checkers.ledgers
        self.queue = vhost_of(self.pair.a).queues["q1"]
        sequence, envelope, _ = self.queue.ready[0]
        self.first = (self.queue.uuid, envelope.epoch, sequence)

    @property
    def ledger(self) -> MemoryLedger:
        return next(ledger for ledger in self.ledgers.every if ledger.owner == "A")

    @property
    def dequeued(self) -> list[Id]:
        """In this term."""
        return self.ledger.dequeued.setdefault(self.ledger.view, [])


def test_29_ledgers_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(monkeypatch)
    kept.ledgers.balance(kept.pair.a)
    assert kept.ledgers.ids >= 20
    kept.pair.run(0.1)
    kept.queue.purge()
    kept.pair.a.tick_soon()
    kept.pair.run(0.5)
    kept.ledgers.balance(kept.pair.a)
    assert kept.first in kept.dequeued


def test_29_a_confirmed_message_that_is_in_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(monkeypatch)
    kept.queue.ready.popleft()
    with violates(29):
        kept.ledgers.balance(kept.pair.a)
    kept.ledger.quarantined.append(kept.first)
    kept.ledgers.balance(kept.pair.a)


@pytest.mark.parametrize("column", ["enqueued", "dequeued"])
def test_29_what_is_there_once_only(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(monkeypatch)
    kept.queue.ready.popleft()
    kept.dequeued.append(kept.first)
    kept.ledgers.balance(kept.pair.a)
    (kept.dequeued if column == "dequeued" else kept.ledger.enqueued).append(kept.first)
    with violates(29):
        kept.ledgers.balance(kept.pair.a)


def test_29_a_later_term_may_dequeue_once_more_what_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was dequeued while nobody heard it, and the next primary had it still."""
    kept = Kept(monkeypatch)
    kept.ledger.dequeued[kept.ledger.view - 1] = [kept.first]
    kept.ledgers.balance(kept.pair.a)
    kept.queue.ready.popleft()
    kept.dequeued.append(kept.first)
    kept.ledgers.balance(kept.pair.a)


def test_29_what_is_dequeued_is_not_present_and_what_is_present_was_enqueued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Kept(monkeypatch)
    kept.dequeued.append(kept.first)
    with violates(29):
        kept.ledgers.balance(kept.pair.a)
    kept.dequeued.clear()
    kept.ledger.enqueued.remove(kept.first)
    with violates(29):
        kept.ledgers.balance(kept.pair.a)

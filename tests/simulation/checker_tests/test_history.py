"""The checkers of what disks remember and what quarantine holds, shown what they must object to."""

from __future__ import annotations

import json

import pytest

from broker.model.history.epoch_ends import EpochEnd
from broker.model.history.records import Envelope
from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.checkers.copies.quarantine import Contents15and25
from tests.simulation.checkers.copies.remembered import OFTEN, Remembered15
from tests.simulation.harness.inspection import vhost_of
from tests.simulation.harness.machines.virtual_disk import VirtualDisk


def looked_into(pair: Pair) -> tuple[Remembered15, tuple[bytes, int]]:
    """What it knows of the messages of A's durable queue; which one that is."""
    remembered = Remembered15()
    for _ in range(OFTEN):
        remembered.tick(pair.a)
    of = vhost_of(pair.a).queues["q1"].uuid, pair.a.running.core.epoch
    assert remembered._known["A"][1] == {of: len(pair.in_queue("q1"))}
    return remembered, of


def test_15_a_start_knows_how_far_history_went() -> None:
    pair = Pair()
    remembered, (_, epoch) = looked_into(pair)
    vhost_of(pair.a).queues["q1"].purge()
    pair.run(0.5)
    remembered.dies(pair.a)
    pair.a.kill()
    pair.a.start()
    remembered.started(pair.a)
    assert remembered.checked == 1
    queue = vhost_of(pair.a).queues["q1"]
    last = len(pair.in_queue("q1"))
    queue.replica.set_ends({epoch: EpochEnd(last - 1)})
    told = f"A, just started, knows of ids up to {last - 1} of epoch {epoch} .* its disk has had {last}"
    with violates(15, told):
        remembered.started(pair.a)
    queue.replica.set_ends({})
    with violates(15, "up to 0"):
        remembered.started(pair.a)


def test_15_what_history_has_forgotten_need_not_be_known() -> None:
    pair = Pair()
    remembered, (_, epoch) = looked_into(pair)
    queue = vhost_of(pair.b).queues["q1"]
    for _ in range(OFTEN):
        remembered.tick(pair.b)
    queue.replica.set_ends({epoch: EpochEnd(7)})
    remembered.dies(pair.b)
    assert remembered._known["B"][1] == {(queue.uuid, epoch): 7}
    queue.replica.set_ends({})
    remembered.dies(pair.b)
    remembered.started(pair.b)
    assert remembered._known["B"][1] == {}
    vhost_of(pair.a).queues.clear()
    remembered.dies(pair.a)
    remembered.started(pair.a)


def test_15_what_memory_knows_for_transient_messages_need_not_be_known() -> None:
    """Seed 130303212: one was held over a history checkpoint, when the disk had none of its epoch left."""
    pair = Pair()
    remembered, (uuid, epoch) = looked_into(pair)
    replica = vhost_of(pair.b).queues["q1"].replica
    transient = Envelope(epoch, "", "q1", persistent=False, wall_ms=0, channel=1, largest_frame=9)
    replica.add_run(replica.next_of(epoch), transient, [b"transient"])
    pair.b.life += 1  # so that all is looked at again
    for _ in range(OFTEN):
        remembered.tick(pair.b)
    replica.clear()
    remembered.dies(pair.b)
    assert (uuid, epoch) not in remembered._known["B"][1] and remembered._known["A"][1]
    replica.set_ends({})
    remembered.started(pair.b)


def test_15_another_disk_and_one_behind_know_nothing() -> None:
    pair = Pair()
    remembered, of = looked_into(pair)
    pair.a.store._serial += 1  # type: ignore[union-attr]
    remembered._known.clear()
    for _ in range(OFTEN):
        remembered.tick(pair.a)
    assert not remembered._known
    remembered._known["A"] = pair.a.disk, {of: 99}
    with violates(15):
        remembered.started(pair.a)
    pair.a.disk.damaged.add("a segment")
    remembered.started(pair.a)
    assert not remembered._known
    remembered._known["A"] = pair.a.disk, {of: 99}
    pair.a.disk = VirtualDisk()
    remembered.started(pair.a)
    assert not remembered._known


def test_15_who_catches_up_takes_the_history_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    remembered, _ = looked_into(pair)
    monkeypatch.setattr(pair.a, "role", lambda: "catch-up")
    remembered.tick(pair.a)
    assert not remembered._known


@pytest.mark.parametrize(
    ("part", "other"),
    [("body", "<p1:1>"), ("frames", "AwE="), ("exchange", "x"), ("routing_key", "x"), ("persistent", None),
     ("enqueued_ms", 7), ("name", "q2")],
)  # fmt: skip
def test_15_what_is_in_quarantine_is_what_was_held(part: str, other: object) -> None:
    pair = Pair()
    contents, queue = Contents15and25(), vhost_of(pair.b).queues["q1"]
    some = queue.replica.entries()[:2]
    path = pair.b.running._quarantine.export(queue.uuid, "q1", some)
    contents.look(pair.b)
    assert not contents.checked  # nobody has looked at what it held
    contents.note(pair.b)
    contents.look(pair.b)
    assert contents.checked == 2
    lines = pair.b.disk.read(path).splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | {part: other}).encode()
    pair.b.disk.place(path, b"\n".join(lines))
    with violates(15, f"{pair.in_queue('q1')[1].key}, which was .* of q1, another {part} than was held"):
        contents.look(pair.b)
    pair.b.disk.damaged.add(path)
    contents.look(pair.b)
    pair.b.disk.damaged.clear()
    pair.b.disk.place(path, lines[0] + b"\n" + lines[1][:50])  # torn
    contents.look(pair.b)


def test_25_no_disk_puts_another_message_in_the_place_of_one() -> None:
    pair = Pair()
    contents, replica = Contents15and25(), vhost_of(pair.b).queues["q1"].replica
    contents.note(pair.a)
    contents.note(pair.b)
    sequence, envelope, raw = replica.entries()[0]
    replica.dequeue(envelope.epoch, [(sequence, sequence)])
    replica.add_run(sequence, envelope, [raw[:-2] + b"?" + raw[-1:]])
    key = pair.in_queue("q1")[0].key
    with violates(25, f"B holds {envelope.epoch}-{sequence} of q1, and it is not the {key} that was held"):
        contents.note(pair.b)

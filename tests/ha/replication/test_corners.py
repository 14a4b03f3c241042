"""Corners of the protocol between two nodes that a review suspected: each a scenario that once went wrong."""

from __future__ import annotations

from typing import Any

from broker.model.history.epoch_ends import EpochEnd
from broker.model.history.record_codec import encode_record
from broker.model.history.records import Dequeue
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.values import Position, Reason, Scope
from ha.core import codes
from ha.core.effects import SendMethod, SendStream
from ha.core.wire.link import Frame, Method
from tests.builds import PURE_ONLY
from tests.ha.pair import Host, Pair, retune


def slowly(host: Host, chunk: int = 100) -> None:
    """Cut snapshots of that primary into small pieces."""
    retune(host.running.core, snapshot_chunk=chunk)


def ask_all(pair: Pair, *hosts: Host) -> list[dict[str, Any]]:
    """All operators ask for a promotion in the same instant."""
    answers: list[dict[str, Any]] = []
    for host in hosts:
        host.running.manage("promote", {}, answers.append, pair.now)
    pair.until(lambda: len(answers) == len(hosts), 5.0)
    return answers


def serving(pair: Pair) -> list[str]:
    return [h.name for h in pair.hosts if h.node is not None and h.running.vhost.serving]


# -- two operators


def test_two_operators_bootstrap_at_once_and_make_one_cluster() -> None:
    pair = Pair()
    pair.start()
    pair.run(0.5)
    answers = ask_all(pair, *pair.hosts)
    assert sum(a["ok"] for a in answers) <= 1, answers
    pair.run(2.0)
    if not serving(pair):
        assert pair.ask(pair[0], "promote")["ok"]
    pair.until(lambda: sorted(h.status for h in pair.hosts) == ["active", "ready"])


def test_of_two_promotions_of_a_cold_pair_at_once_one_is_refused() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    position = pair.publish(a, "q", "ab")
    pair.until(lambda: pair.confirmed(a, position))
    for host in (a, b):
        host.node = None
    pair.wires.clear()
    for host in (a, b):
        host.disk.power_loss(None)
    pair.start()
    pair.run(0.5)
    answers = ask_all(pair, a, b)
    assert len(serving(pair)) <= 1, answers
    assert sum(x["ok"] for x in answers) <= 1, answers


def test_an_answer_to_an_older_question_does_not_decide_a_promotion() -> None:
    """Both ask just after each had answered the other's regular hello."""
    for offset in range(45):
        pair = Pair()
        pair.start()
        pair.run(0.5 + offset * 0.005)
        answers = ask_all(pair, *pair.hosts)
        assert sum(x["ok"] for x in answers) <= 1, offset


def test_two_operators_a_moment_apart_and_one_of_them_is_heard() -> None:
    pair = Pair()
    pair.start()
    pair.run(0.5)
    answers: list[dict[str, Any]] = []
    for host in pair.hosts:
        host.running.manage("promote", {}, answers.append, pair.now)
        pair.step()
        pair.now += 0.005
    pair.until(lambda: len(answers) == 2)
    assert len(serving(pair)) == sum(x["ok"] for x in answers) == 1, answers


# -- snapshots


def test_a_queue_deleted_during_its_snapshot_does_not_cost_the_link() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.declare(a, "r")
    pair.kill(b)
    pair.publish(a, "r", "r")
    for _ in range(5):
        pair.publish(a, "q", "0123456789")
        pair.run(0.02)
    pair.run(2.5)
    slowly(a)
    pair.start(b)
    pair.until(lambda: b.status == "catch-up" and bool(b.running.vhost.queues.get("q")))
    pair.until(lambda: b.running.vhost.queues["q"].total_count > 0)
    assert b.running.vhost.queues["q"].total_count < 50
    a.running.vhost.delete_queue("q", owner=pair)
    pair.until(lambda: b.status == "ready")
    assert not a.told(codes.LINK_MISUSED) and not b.told(codes.LINK_MISUSED), (a.log, b.log)
    assert pair.contents(b, "r") == "r" and "q" not in b.running.vhost.queues


def test_what_one_link_dequeued_in_mid_snapshot_the_next_one_brings() -> None:
    """The primary of that dequeue died without it: its successor still has the message."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "xy")
    pair.run(0.3)
    queue = a.running.vhost.queues["q"]
    ids, epoch = queue.snapshot(), a.running.core.epoch
    runs = a.running.core._primary_model.encode_runs(queue.uuid, queue.held_entries())
    replica, last = b.running.replica, (epoch, 2)
    replica.begin_queue(queue.uuid, last)
    replica.take_piece(queue.uuid, (0, -1), (epoch, 1), {epoch: ReplicationIdSet([(1, 1)])}, b"")
    gone = encode_record(Dequeue(queue.uuid, epoch, Reason.ACKED, [(1, 1)], Scope.LINK | Scope.STORE))
    here = replica.position
    replica.apply_batch(Position(here.epoch, here.n + 1), 0, gone)
    # the link breaks here; another primary begins
    replica.begin_queue(queue.uuid, last)
    replica.take_piece(queue.uuid, (0, -1), last, ids, b"".join(runs))
    replica.end_queue(queue.uuid)
    assert pair.contents(b, "q") == "xy"
    assert b.running.vhost.queues["q"].ends() == {epoch: EpochEnd(2)}


def test_the_incomplete_mark_survives_a_record_of_the_same_burst() -> None:
    """JOIN_OK brings a record, and the stream right behind it drops: in one tick, and the mark is durable."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    pair.separate(a, b, reset=True)
    pair.run(0.1)
    pair.heal()
    b.syncing = False
    pair.until(lambda: b.status == "catch-up" and b.running.core.incomplete)
    record = b.running.core.record
    assert record is not None and not record.in_sync, "the link that was made again cost the exclusion"
    body = b.running._files.record.load()
    assert body is not None and body["incomplete"]


# -- joiners


def test_a_queue_is_cut_at_a_position_that_knows_of_every_dequeue() -> None:
    """A dequeue that is still being gathered is not in the cut, and so must be in the history before it: else
    two disks at one position hold different messages, and which of them serves is the operator's choice.
    """
    pair = Pair(dequeue_lag=0.5)
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "xy")
    pair.run(1.0)
    pair.kill(b)
    pair.start(b)
    pair.until(lambda: b.status == "joining")
    assert pair.consume(a, "q", 1) == "x"
    pair.until(lambda: b.status == "ready")
    assert a.running._position() == b.running.replica.position
    pair.kill(a)
    pair.kill(b)
    pair.start()
    pair.run(0.5)
    assert (pair.contents(a, "q"), pair.contents(b, "q")) == ("y", "y")


def test_a_joiner_with_a_hung_disk_holds_confirms_only_once() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.kill(b)
    pair.run(2.5)
    b.syncing = False
    pair.start(b)
    waited = []
    for _ in range(30):
        position, since = pair.publish(a, "q", "x"), pair.now
        pair.until(lambda p=position: pair.confirmed(a, p))
        waited.append(pair.now - since)
        pair.run(0.1)
    assert sum(w > 0.5 for w in waited) <= 1, waited
    b.syncing = True
    pair.until(lambda: b.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)


# -- what a closed link proves


def test_a_link_to_an_older_primary_proves_nothing_of_the_present_one() -> None:
    """Of three, b is promoted, c cannot reach it, is excluded, and b confirms without it before it dies."""
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    pair.declare(a, "q")
    pair.run(0.3)
    pair.kill(a)
    pair.run(0.01)
    b_promoted = pair.ask(b, "promote")
    assert b_promoted["ok"], b_promoted
    pair.run(0.005)
    pair.until(lambda: c.running.core.epoch == b.running.core.epoch)
    pair.separate(b, c)
    pair.run(9.0)
    position = pair.publish(b, "q", "x")
    pair.until(lambda: pair.confirmed(b, position))
    pair.kill(b, clean=True)
    pair.run(0.5)
    answer = pair.ask(c, "promote")
    assert not answer["ok"], answer


@PURE_ONLY
def test_who_has_asked_to_be_taken_in_again_may_have_been_excluded_for_it() -> None:
    """The primary excludes a backup that links again, confirms alone, and dies before it can say so."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    pair.separate(a, b, reset=True)
    position = pair.publish(a, "q", "x")
    pair.run(0.1)
    assert not pair.confirmed(a, position)
    pair.heal()
    core = a.running.core
    take = core.take_effects

    def mute() -> list[Any]:
        return [e for e in take() if not (isinstance(e, SendMethod) and e.method == Method.JOIN_OK)]

    core.take_effects = mute  # type: ignore[method-assign]
    while not pair.confirmed(a, position):
        pair.step()
        pair.now += 0.005
    pair.kill(a)
    pair.run(0.1)
    answer = pair.ask(b, "promote")
    assert not answer["ok"], answer


def test_an_expected_member_whose_link_closes_has_its_time_to_come_back() -> None:
    """Its closed link lets it be promoted: so nothing is confirmed without it at once."""
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    pair.declare(a, "q")
    for _ in range(5):
        pair.publish(a, "q", "0123456789")
        pair.run(0.02)
    pair.run(0.2)
    pair.kill(a)
    pair.run(0.01)
    assert pair.ask(b, "promote")["ok"]
    c.syncing = False
    pair.until(lambda: c.status == "catch-up")
    pair.separate(b, c, reset=True)
    position = pair.publish(b, "q", "x")
    pair.run(0.3)
    assert not pair.confirmed(b, position)
    c.syncing = True
    pair.heal()
    pair.until(lambda: c.status == "ready" and b.status == "active")
    assert pair.confirmed(b, position) and pair.fingerprint(b) == pair.fingerprint(c)


def test_an_expected_member_that_does_not_come_back_is_excluded_in_time() -> None:
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    pair.kill(a)
    pair.run(0.01)
    assert pair.ask(b, "promote")["ok"]
    c.syncing = False
    pair.until(lambda: c.status == "catch-up")
    pair.separate(b, c, reset=True)
    position, since = pair.publish(b, "q", "x"), pair.now
    pair.until(lambda: pair.confirmed(b, position))
    assert 1.9 < pair.now - since < 2.2 and b.status == "active"


# -- replies


def test_redeclaring_a_queue_waits_until_the_queue_is_on_disk() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    b.syncing = False
    pair.declare(a, "q")
    pair.until(lambda: "q" in b.running.vhost.queues)
    pair.kill(a)
    pair.run(0.02)
    assert pair.ask(b, "promote")["ok"]
    pair.declare(b, "q")
    position = b.running.vhost.history.position
    pair.run(0.1)
    assert not pair.confirmed(b, position)
    b.syncing = True
    pair.run(0.1)
    assert pair.confirmed(b, position)


# -- an inclusion that is cut off between two of its steps


def lost_records(host: Host) -> None:
    """What that primary commits, it saves, and nobody hears of."""
    core = host.running.core
    take = core.take_effects

    def mute() -> list[Any]:
        return [e for e in take() if not (isinstance(e, SendStream) and e.parts[0][4] == Frame.RECORD)]

    core.take_effects = mute  # type: ignore[method-assign]


def committed(pair: Pair) -> str:
    """A pair whose inclusion is committed at a and unknown to b, with a message that waited for it."""
    a, b = pair.hosts
    pair.start(a)
    answer = pair.ask(a, "promote", force_lossy=True)
    assert answer["ok"], answer
    pair.declare(a, "q")
    pair.publish(a, "q", "ab")
    pair.run(0.2)
    lost_records(a)
    pair.start(b)
    pair.until(lambda: bool(a.running.core.record and a.running.core.record.in_sync))
    position = pair.publish(a, "q", "c")
    pair.until(lambda: pair.confirmed(a, position))
    assert b.status == "catch-up" and b.running.core.incomplete
    return "abc"


@PURE_ONLY
def test_a_primary_dies_after_committing_an_unheard_inclusion() -> None:
    pair = Pair()
    everything = committed(pair)
    a, b = pair.hosts
    pair.kill(a)
    pair.run(0.1)
    assert not pair.ask(b, "promote")["ok"], "as far as it knows, it is not in the record"
    pair.start(a)
    pair.run(0.3)
    refused = pair.ask(a, "promote")
    assert not refused["ok"] and "promote b" in refused["reason"]
    answer = pair.ask(b, "promote")
    assert answer["ok"], answer
    pair.until(lambda: a.status == "ready")
    assert pair.contents(b, "q") == pair.contents(a, "q") == everything


@PURE_ONLY
def test_both_die_after_the_commit_of_an_inclusion_that_nobody_heard_of() -> None:
    pair = Pair()
    everything = committed(pair)
    a, b = pair.hosts
    pair.kill(a)
    pair.kill(b)
    pair.start()
    pair.run(0.3)
    assert not pair.ask(b, "promote")["ok"]
    answer = pair.ask(a, "promote")
    assert answer["ok"], answer
    pair.until(lambda: b.status == "ready")
    assert pair.contents(b, "q") == pair.contents(a, "q") == everything


@PURE_ONLY
def test_the_joiner_dies_after_the_commit_of_its_inclusion() -> None:
    pair = Pair()
    everything = committed(pair)
    a, b = pair.hosts
    pair.kill(b)
    position = pair.publish(a, "q", "d")
    pair.run(0.5)
    assert not pair.confirmed(a, position), "the record names it: its exclusion comes first"
    pair.until(lambda: pair.confirmed(a, position))
    pair.start(b)
    del a.running.core.take_effects  # type: ignore[method-assign]
    pair.until(lambda: b.status == "ready")
    assert pair.contents(b, "q") == everything + "d"


def test_a_node_promoted_again_starts_with_empty_hands() -> None:
    """Watermarks and positions of the epochs before mean nothing in a new one."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    for one, other, letters in ((a, b, "ab"), (b, a, "cd"), (a, b, "ef"), (b, a, "gh")):
        position = pair.publish(one, "q", letters)
        assert not pair.confirmed(one, position)
        pair.until(lambda one=one, position=position: pair.confirmed(one, position))
        unsafe = pair.publish(one, "q", "!")
        assert pair.ask(one, "demote")["ok"]
        assert not pair.confirmed(one, unsafe)
        assert pair.ask(one, "promote")["ok"]
        again = pair.publish(one, "q", "?")
        assert not pair.confirmed(one, again)
        pair.until(lambda one=one, again=again: pair.confirmed(one, again))
        pair.until(lambda other=other: other.status == "ready")
        assert pair.ask(one, "demote")["ok"]
        pair.run(0.2)
        assert pair.ask(other, "promote")["ok"]
        pair.until(lambda one=one: one.status == "ready")
        assert pair.fingerprint(a) == pair.fingerprint(b)
    assert pair.contents(a, "q") == "ab!?cd!?ef!?gh!?"


def test_a_backup_with_many_queues_joins_over_the_smallest_frames() -> None:
    pair = Pair()
    pair.frame_max = 4096
    pair.up()
    a, b = pair.hosts
    for number in range(400):
        pair.declare(a, f"q{number}")
    position = pair.publish(a, "q7", "abc")
    pair.until(lambda: pair.confirmed(a, position))
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)

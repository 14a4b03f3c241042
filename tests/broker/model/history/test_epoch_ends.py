"""What history remembers of its epochs, and when it forgets them."""

from __future__ import annotations

from broker.model.history.epoch_ends import DeletedQueues, EpochEnd, after_history_checkpoint, had
from broker.model.history.records import Envelope
from broker.model.queue.consumer import Consumer
from broker.model.queue.replica import ReplicaContents
from tests.broker.model.helpers import OWNER, Everything, Follower, Sink, end_tick, publish, serving
from tests.builds import PURE_ONLY


def ranges(contents: ReplicaContents) -> dict[int, list[tuple[int, int]]]:
    return {epoch: had_.ranges_within(1, 99) for epoch, had_ in had(contents.ends()).items()}


def hold(contents: ReplicaContents, epoch: int, first: int, count: int) -> None:
    envelope = Envelope(epoch, "", "k", persistent=False, wall_ms=0, channel=1, largest_frame=9)
    contents.add_run(first, envelope, [b"m"] * count)


def test_an_end_has_all_ids_up_to_the_last_except_lost_ones() -> None:
    ids = EpochEnd(9, ((3, 4), (9, 9))).had()
    assert ids.ranges_within(1, 99) == [(1, 2), (5, 8)]
    assert had({7: EpochEnd(2)})[7].ranges_within(1, 99) == [(1, 2)]


def test_a_lacking_id_is_settled_by_its_message_or_dequeue() -> None:
    contents = ReplicaContents()
    contents.set_ends({1: EpochEnd(9, ((5, 5),)), 2: EpochEnd(4), 3: EpochEnd(6)})
    hold(contents, 1, 1, 1)
    hold(contents, 3, 5, 2)  # history since: not of the snapshot
    contents.begin_incomplete((3, 4))
    assert contents.awaits
    assert ranges(contents) == {1: [(1, 1)], 2: [], 3: [(5, 6)]}
    contents.dequeue(1, [(3, 4)])
    contents.dequeue(3, [(2, 2)])
    assert ranges(contents) == {1: [(1, 1), (3, 4)], 2: [], 3: [(2, 2), (5, 6)]}
    hold(contents, 1, 6, 2)
    assert ranges(contents)[1] == [(1, 1), (3, 4), (6, 7)]
    contents.settle((0, -1), (1, 8))
    assert ranges(contents) == {1: [(1, 4), (6, 8)], 2: [], 3: [(2, 2), (5, 6)]}
    contents.settle((1, 8), (3, 4))
    assert ranges(contents) == {1: [(1, 4), (6, 9)], 2: [(1, 4)], 3: [(1, 6)]}, "5 was lost before"
    contents.set_ends({2: EpochEnd(3)})
    assert ranges(contents) == {2: [(1, 3)]}


def test_an_end_is_forgotten_after_two_checkpoints_without_messages() -> None:
    ends = {1: EpochEnd(5), 2: EpochEnd(6), 3: EpochEnd(7)}
    once = after_history_checkpoint(ends, {2}, 3)
    assert once == {1: EpochEnd(5, settled=True), 2: EpochEnd(6), 3: EpochEnd(7)}
    twice = after_history_checkpoint(once, set(), 3)
    assert twice == {2: EpochEnd(6, settled=True), 3: EpochEnd(7)}
    assert after_history_checkpoint(twice, set(), 3) == {3: EpochEnd(7)}


@PURE_ONLY
def test_graves_are_forgotten_so_too_and_when_they_are_too_many() -> None:
    deleted_queues = DeletedQueues()
    deleted_queues.add(b"a", {1: EpochEnd(5)})
    deleted_queues.history_checkpoint()
    deleted_queues.add(b"b", {1: EpochEnd(5)})
    deleted_queues.history_checkpoint()
    assert list(deleted_queues) == [(b"b", {1: EpochEnd(5, settled=True)})]
    deleted_queues.add(b"b", {})
    deleted_queues.add(b"empty", {})
    assert not len(deleted_queues)
    for number in range(DeletedQueues.MOST + 5):
        deleted_queues.add(b"%d" % number, {1: EpochEnd(1)})
    assert len(deleted_queues) == DeletedQueues.MOST and next(iter(deleted_queues))[0] == b"5"


def test_a_follower_remembers_as_the_primary_does() -> None:
    vhost, follower = serving(5, Everything()), Follower()
    vhost.history.sinks.append(follower)
    queue = vhost.declare_queue("q", owner=OWNER)
    other = vhost.declare_queue("other", owner=OWNER)
    publish(vhost, "q", *[b"x"] * 4)
    publish(vhost, "other", *[b"x"] * 2)
    end_tick(vhost)
    vhost.shared.deactivate()
    vhost.shared.activate(6)
    follower.vhost.queues["q"].replica.set_ends(queue.ends())
    sink = Sink()
    vhost.consume(queue, Consumer("c", sink))
    vhost.shared.dispatch()
    queue.acknowledge(sink.got[:3])
    assert not vhost.shared.make_history_checkpoint()  # one message of epoch 5 is still there
    end_tick(vhost)
    assert queue.ends() == {5: EpochEnd(4)} == follower.vhost.queues["q"].ends()
    queue.acknowledge(sink.got[3:])
    vhost.delete_queue("other", owner=OWNER)
    assert vhost.shared.make_history_checkpoint()
    end_tick(vhost)
    for each in (vhost, follower.vhost):
        assert each.queues["q"].ends() == {5: EpochEnd(4, settled=True)}
        assert list(each.shared.deleted_queues) == [(other.uuid, {5: EpochEnd(2, settled=True)})]
    assert vhost.shared.make_history_checkpoint()
    end_tick(vhost)
    for each in (vhost, follower.vhost):
        assert not each.queues["q"].ends() and not len(each.shared.deleted_queues)
    assert not vhost.shared.make_history_checkpoint()

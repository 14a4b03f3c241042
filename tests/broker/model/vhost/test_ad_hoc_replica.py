"""A queue mirror: its contents are history of this broker, clients cannot touch it, and after a stop it
serves its messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.errors import ResourceLocked
from broker.model.history.records import EnqueueRun, Envelope, QueueDeclare
from broker.model.queue.consumer import Consumer
from broker.model.queue.origin import Origin, origin_of
from broker.model.queue.queue import Mode, Queue
from broker.model.values import Reason, Scope
from broker.model.vhost.ad_hoc_replica import declare_replica, end_replica, leave, stamp, take
from broker.model.vhost.vhost import VirtualHost
from tests.broker.model.helpers import OWNER, Follower, Sink, end_tick, publish, seqs, serving

ORIGIN = Origin(("far:5672",), "orders", b"u" * 16, epochs=(70_000_000,))
EPOCH = 65_537
"""Below the source's epoch; the order of the two does not matter."""


def run(epoch: int, first: int, *bodies: bytes, persistent: bool = True) -> EnqueueRun:
    envelope = Envelope(epoch, "x", "k", persistent=persistent, wall_ms=7, channel=1, largest_frame=10)
    return EnqueueRun([ORIGIN.uuid], [first], envelope, list(bodies))


def replica() -> tuple[VirtualHost, Queue, Follower]:
    """A mirror with 3, 4 and 5, and a disk that has stored all its history."""
    vhost, disk = serving(EPOCH), Follower(Scope.STORE)
    vhost.history.sinks.append(disk)
    declared = QueueDeclare(ORIGIN.uuid, "orders", True, False, False, {"x-expires": 5000})
    queue = declare_replica(vhost, declared, "copy", ORIGIN)
    take(vhost, queue, run(70_000_000, 3, b"c", b"d", b"e"), 1)
    end_tick(vhost)
    return vhost, queue, disk


def test_is_stored_with_its_origin_and_not_served_after_a_restart() -> None:
    _, queue, disk = replica()
    again = disk.vhost.queues["copy"]
    assert origin_of(again) == ORIGIN
    assert again.uuid == queue.uuid != ORIGIN.uuid
    disk.vhost.shared.activate(EPOCH + 65_536)
    assert again.mode is Mode.REPLICA
    assert again.snapshot() == queue.snapshot() == {1: again.snapshot()[1]}
    assert disk.vhost.shared.expire(1e9) == 0
    disk.vhost.shared.deactivate()
    assert again.total_count == 3


@pytest.mark.parametrize(
    "do",
    [
        lambda v: v.queue("copy", owner=OWNER),
        lambda v: v.purge_queue("copy", owner=OWNER),
        lambda v: v.delete_queue("copy", owner=OWNER),
        lambda v: v.bind_queue("copy", "amq.direct", "k", owner=OWNER),
        lambda v: v.unbind_queue("copy", "amq.direct", "k", owner=OWNER),
        lambda v: v.declare_queue("copy", owner=OWNER, durable=True, arguments={"x-expires": 5000}),
        lambda v: v.check_published("", "copy"),
    ],
)
def test_no_client_may_touch_it(do: Callable[[VirtualHost], object]) -> None:
    vhost, queue, _ = replica()
    with pytest.raises(ResourceLocked, match="replicated from another broker"):
        do(vhost)
    assert queue.total_count == 3
    assert vhost.declare_queue("copy", owner=OWNER, passive=True) is queue


def test_nothing_is_routed_to_it() -> None:
    vhost, queue, _ = replica()
    assert vhost.route("", "copy").queues == ()
    publish(vhost, "copy", b"x")
    assert queue.total_count == 3


def test_messages_removed_at_the_source_are_removed_here_and_on_disk() -> None:
    vhost, queue, disk = replica()
    leave(vhost, queue, 1, [(4, 4)], Reason.EXPIRED)
    end_tick(vhost)
    assert seqs(queue.held_entries()) == seqs(disk.vhost.queues["copy"].held_entries()) == [3, 5]


def test_after_a_stop_it_serves_its_messages_and_then_new_ones() -> None:
    vhost, queue, disk = replica()
    end_replica(vhost, queue, alone=True)
    publish(vhost, "copy", b"new", persistent=True)
    end_tick(vhost)
    again = disk.vhost.queues["copy"]
    disk.vhost.shared.activate(EPOCH + 65_536)
    for host, its in ((vhost, queue), (disk.vhost, again)):
        assert origin_of(its) is None
        sink = Sink()
        host.consume(its, Consumer("t", sink, no_ack=False, exclusive=False))
        end_tick(host)
        assert [raw for _, _, raw in sink.got] == [b"c", b"d", b"e", b"new"]
        assert [envelope.redelivered for _, envelope, _ in sink.got][:3] == [True] * 3
        assert [envelope.wall_ms for _, envelope, _ in sink.got][:3] == [7] * 3


def test_a_later_stamp_reaches_the_disk() -> None:
    vhost, queue, disk = replica()
    longer = ORIGIN.extended([70_000_009], [1])
    stamp(vhost, queue, longer.text())
    take(vhost, queue, run(70_000_009, 1, b"f"), 2)
    end_tick(vhost)
    again = disk.vhost.queues["copy"]
    assert origin_of(again) == longer
    assert [raw for _, _, raw in again.held_entries()] == [b"c", b"d", b"e", b"f"]


def test_epochs_keep_their_order_and_their_place() -> None:
    origin = Origin(("a:1",), "q", b"u" * 16).extended([90, 80, 80], [])
    assert origin.epochs == (80, 90)
    assert [origin.local(epoch) for epoch in (80, 85, 90)] == [1, None, 2]
    assert origin.source(2) == 90
    assert origin.bound((80, 5)) == (1, 5)
    assert origin.bound((85, 5))[0] == 1
    assert origin.bound((85, 5)) > (1, 10**15)
    assert origin.bound((1, 5)) < (1, 0)
    with pytest.raises(ValueError, match="85 after epoch 90"):
        origin.extended([85], [])
    assert origin.emptied().extended([85], []).local(85) == 3


def test_old_epochs_are_forgotten_and_their_places_never_reused() -> None:
    origin = Origin(("a:1",), "q", b"u" * 16)
    for epoch in range(1, 2500):
        origin = origin.extended([epoch], [2000])
    assert origin.local(2499) == 2499
    assert len(origin.epochs) < 1100
    assert len(origin.text()) < 65_536

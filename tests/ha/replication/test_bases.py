"""What the store is told at the beginning of a segment is what a start needs: whatever has changed since the
last time, by a client or by history, is in it.
"""

from __future__ import annotations

from typing import Any

from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.history.record_codec import decode_records
from broker.model.history.records import ConsumerSeen, EnqueueRun, Envelope, QueueDeclare, QueueEnds
from broker.model.queue.consumer import Consumer
from broker.model.values import Scope
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.vhosts import VirtualHosts
from ha.adapter.recovery import Bases


class Nowhere:
    def credit(self, consumer: Consumer) -> int:
        return 0

    def cancelled(self, consumer: Consumer) -> None: ...


def made() -> tuple[VirtualHost, Bases]:
    numbers = iter(range(1, 100))
    vhost = VirtualHosts(Hooks(), History(), lambda: next(numbers).to_bytes(16, "big")).root
    return vhost, Bases(vhost.shared)


def rebuilt(bases: Bases) -> VirtualHost:
    fresh, _ = made()
    for record in decode_records(b"".join(bases().records)):
        fresh.shared.apply(record)
    return fresh


def test_changes_of_definitions_and_ends_are_in_the_next_base() -> None:
    vhost, bases = made()
    vhost.shared.activate(1)
    queue = vhost.declare_queue("q", owner=None, durable=True, auto_delete=True)
    assert rebuilt(bases).shared.definitions() == vhost.shared.definitions()
    vhost.declare_exchange("x", "direct", durable=True)
    vhost.bind_queue("q", "x", "k", owner=None)
    assert rebuilt(bases).shared.definitions() == vhost.shared.definitions()
    sink: Any = Nowhere()
    consumer = Consumer("c", sink)
    vhost.consume(queue, consumer)
    assert any(isinstance(record, ConsumerSeen) for record in rebuilt(bases).shared.definitions())
    queue.enqueue_run(
        Envelope(1, "", "q", persistent=True, wall_ms=0, channel=1, largest_frame=9), [b"a", b"b", b"c"]
    )
    assert rebuilt(bases).queues["q"].replica.ends()[1].last == 3
    assert bases().queues == {queue.uuid}
    vhost.unbind_queue("q", "x", "k", owner=None)
    vhost.delete_queue("q", owner=None)
    assert rebuilt(bases).shared.definitions() == vhost.shared.definitions()
    assert not bases().queues


def test_what_a_follower_is_told_is_in_the_next_base() -> None:
    vhost, bases = made()
    uuid = b"u" * 16
    vhost.shared.apply(QueueDeclare(uuid, "q", True, False, True, {}, "none", Scope.STORE))
    assert rebuilt(bases).queues["q"].replicate == "none"
    vhost.shared.apply(QueueDeclare(uuid, "q", True, False, True, {}, "all", Scope.STORE | Scope.LINK))
    assert rebuilt(bases).queues["q"].replicate == "all"
    vhost.shared.apply(ConsumerSeen(uuid, Scope.STORE))
    assert rebuilt(bases).queues["q"].consumer_seen
    envelope = Envelope(4, "", "q", persistent=True, wall_ms=0, channel=1, largest_frame=9)
    vhost.shared.apply(EnqueueRun([uuid], [7], envelope, [b"a"], scope=Scope.STORE))
    ends = [r for r in decode_records(b"".join(bases().records)) if isinstance(r, QueueEnds)]
    assert [(r.queue, r.ends[4].last) for r in ends] == [(uuid, 7)]

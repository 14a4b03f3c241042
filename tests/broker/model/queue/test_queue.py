"""The queue: ready and unacknowledged messages, dispatch, requeue, and the resulting history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.errors import InternalError
from broker.hooks import Hooks
from broker.model.history.epoch_ends import EpochEnd
from broker.model.history.records import Dequeue, EnqueueRun, Unrouted
from broker.model.queue.consumer import Consumer
from broker.model.queue.queue import Queue
from broker.model.values import Need, Reason, Scope
from broker.model.vhost.policies import rules_under
from broker.model.vhost.vhost import VirtualHost
from tests.broker.model.helpers import (
    OWNER,
    Everything,
    Sink,
    end_tick,
    inner_route,
    publish,
    route_by_headers,
    seqs,
    serving,
)


@pytest.fixture
def vhost() -> VirtualHost:
    return serving()


@pytest.fixture
def queue(vhost: VirtualHost) -> Queue:
    made = vhost.declare_queue("q", owner=OWNER, durable=True)
    end_tick(vhost)
    return made


def consume(
    vhost: VirtualHost, queue: Queue, tag: str = "c", sink: Sink | None = None, *, no_ack: bool = False
) -> Sink:
    sink = sink or Sink()
    vhost.consume(queue, Consumer(tag, sink, no_ack=no_ack))
    return sink


def bodies(count: int) -> list[bytes]:
    return [b"m%d" % i for i in range(1, count + 1)]


def test_dispatch_hands_over_in_one_call(vhost: VirtualHost, queue: Queue) -> None:
    sink = consume(vhost, queue)
    publish(vhost, "q", *bodies(5))
    assert vhost.shared.dispatch() == 5
    assert seqs(sink.got) == [1, 2, 3, 4, 5]
    assert [raw for _, _, raw in sink.got] == bodies(5)
    assert sink.calls == 1
    assert (queue.message_count, queue.unacked_count, queue.total_count) == (0, 5, 5)
    queue.acknowledge(sink.got[1:3])
    assert queue.snapshot()[1].ranges() == [(1, 1), (4, 5)]
    batch = end_tick(vhost)
    assert batch is not None
    assert batch.records[-1] == Dequeue(queue.uuid, 1, Reason.ACKED, [(2, 3)], Scope.LINK)


def test_credit_bounds_a_dispatch_and_schedule_wakes(vhost: VirtualHost, queue: Queue) -> None:
    sink = consume(vhost, queue, sink=Sink(2))
    publish(vhost, "q", *bodies(5))
    assert vhost.shared.dispatch() == 2
    assert vhost.shared.dispatch() == 0
    sink.limit = 4
    queue.schedule()
    queue.schedule()
    assert vhost.pending == [queue]
    assert vhost.shared.dispatch() == 2


def test_round_robin_per_message(vhost: VirtualHost, queue: Queue) -> None:
    a, b, c = (consume(vhost, queue, tag, Sink(limit)) for tag, limit in (("a", 100), ("b", 1), ("c", 100)))
    publish(vhost, "q", *bodies(8))
    vhost.shared.dispatch()
    assert seqs(a.got) == [1, 4, 6, 8]
    assert seqs(b.got) == [2]
    assert seqs(c.got) == [3, 5, 7]
    publish(vhost, "q", b"m9", b"m10")
    vhost.shared.dispatch()
    assert seqs(c.got)[-1] == 9  # b, whose turn it would be, has no credit
    assert seqs(a.got)[-1] == 10


def test_round_robin_goes_on_over_dispatches(vhost: VirtualHost, queue: Queue) -> None:
    a, b = consume(vhost, queue, "a"), consume(vhost, queue, "b")
    for body in bodies(4):
        publish(vhost, "q", body)
        vhost.shared.dispatch()
    assert (seqs(a.got), seqs(b.got)) == ([1, 3], [2, 4])


def test_consumers_of_one_channel_share_its_credit(vhost: VirtualHost, queue: Queue) -> None:
    shared = Sink(3)
    consume(vhost, queue, "a", shared)
    consume(vhost, queue, "b", shared)
    publish(vhost, "q", *bodies(9))
    assert vhost.shared.dispatch() == 3
    assert shared.by_tag == {"a": [1, 3], "b": [2]}


def test_no_ack_leaves_at_once(vhost: VirtualHost, queue: Queue) -> None:
    consume(vhost, queue, no_ack=True)
    publish(vhost, "q", *bodies(3), persistent=True)
    batch = end_tick(vhost)
    assert batch is not None
    assert [type(r) for r in batch.records] == [EnqueueRun, Dequeue]
    assert batch.records[1].scope == Scope.STORE | Scope.LINK
    assert queue.total_count == 0
    assert queue.snapshot() == {}


def test_pop(vhost: VirtualHost, queue: Queue) -> None:
    publish(vhost, "q", *bodies(2))
    entry = queue.pop(no_ack=False)
    assert entry is not None
    assert (entry[0], queue.message_count, queue.unacked_count) == (1, 1, 1)
    assert queue.pop(no_ack=True) is not None
    assert queue.pop(no_ack=True) is None
    queue.acknowledge([entry])
    assert queue.total_count == 0


def test_requeue_restores_the_order_and_flags(vhost: VirtualHost, queue: Queue) -> None:
    sink = consume(vhost, queue, sink=Sink(4))
    publish(vhost, "q", *bodies(6))
    vhost.shared.dispatch()
    queue.requeue([sink.got[3], sink.got[1]])
    assert seqs(list(queue.ready)) == [2, 4, 5, 6]
    assert [e[1].redelivered for e in queue.ready] == [True, True, False, False]
    queue.requeue([sink.got[2], sink.got[0]])
    assert seqs(list(queue.ready)) == [1, 2, 3, 4, 5, 6]
    assert queue.unacked_count == 0
    first, second = queue.ready[0][1], queue.ready[1][1]
    assert first is second  # one redelivered envelope for the whole run
    assert first.deliver_tail[0] == 1


@pytest.mark.parametrize("step", [1, 2, 7])
def test_a_few_returned_messages_find_their_places_among_many(
    vhost: VirtualHost, queue: Queue, step: int
) -> None:
    """Before, between and behind the ready messages, in any order."""
    sink = consume(vhost, queue, sink=Sink(100))
    publish(vhost, "q", *bodies(100))
    vhost.shared.dispatch()
    publish(vhost, "q", *bodies(100))
    order = [n * 37 % 100 for n in range(100)]
    for at in range(0, 100, step):
        queue.requeue([sink.got[n] for n in order[at : at + step]])
        there = seqs(list(queue.ready))
        assert there == sorted(there) and len(there) == min(at + step, 100) + 100
    assert [e[1].redelivered for e in queue.ready] == [True] * 100 + [False] * 100
    assert queue.unacked_count == 0


def test_settling_twice_is_an_internal_error(vhost: VirtualHost, queue: Queue) -> None:
    sink = consume(vhost, queue)
    publish(vhost, "q", *bodies(2))
    vhost.shared.dispatch()
    queue.acknowledge(sink.got[:1])
    for settle in (queue.acknowledge, queue.requeue):
        with pytest.raises(InternalError, match="not unacked"):
            settle(sink.got[:1])


def test_drop_and_purge_have_their_reasons(vhost: VirtualHost, queue: Queue) -> None:
    sink = consume(vhost, queue, sink=Sink(2))
    publish(vhost, "q", *bodies(6), persistent=True)
    vhost.shared.dispatch()
    queue.drop(sink.got, Reason.REJECTED)
    assert vhost.purge_queue("q", owner=OWNER) == (4, Scope.STORE | Scope.LINK)
    batch = end_tick(vhost)
    assert batch is not None
    both = Scope.STORE | Scope.LINK
    assert batch.records[1:] == [
        Dequeue(queue.uuid, 1, Reason.REJECTED, [(1, 2)], both),
        Dequeue(queue.uuid, 1, Reason.PURGED, [(3, 6)], both),
    ]


def test_a_deleted_queue_takes_nothing_back(vhost: VirtualHost, queue: Queue) -> None:
    sink = consume(vhost, queue)
    publish(vhost, "q", *bodies(2))
    vhost.shared.dispatch()
    assert vhost.delete_queue("q", owner=OWNER).messages == 0
    queue.requeue(sink.got)
    queue.acknowledge(sink.got)
    batch = end_tick(vhost)
    assert batch is not None
    assert [r for r in batch.records if isinstance(r, Dequeue)] == [
        Dequeue(queue.uuid, 1, Reason.DELETED, [(1, 2)], Scope.LINK)
    ]


def test_needs_follow_persistence_and_scope(vhost: VirtualHost, queue: Queue) -> None:
    vhost.declare_queue("t", owner=OWNER)

    def need(key: str, persistent: bool) -> Need:
        route = vhost.route("", key)
        return vhost.publish(route, [b"m"], persistent=persistent, channel=1, largest_frame=9).need

    assert need("q", True) is Need.DURABLE
    assert need("q", False) is Need.APPLIED
    assert need("t", True) is Need.APPLIED
    assert need("nowhere", True) is Need.NONE
    alone = serving(hooks=Hooks())
    alone.declare_queue("t", owner=OWNER)
    assert (
        alone.publish(alone.route("", "t"), [b"m"], persistent=True, channel=1, largest_frame=9).need
        is Need.NONE
    )
    assert end_tick(alone) is None


def test_one_record_for_queues_of_one_scope(vhost: VirtualHost, queue: Queue) -> None:
    for name in ("r", "s"):
        vhost.declare_queue(name, owner=OWNER)
        vhost.bind_queue(name, "amq.fanout", "", owner=OWNER)
    vhost.bind_queue("q", "amq.fanout", "", owner=OWNER)
    end_tick(vhost)
    publish(vhost, "k", *bodies(2), exchange="amq.fanout", persistent=True)
    batch = end_tick(vhost)
    assert batch is not None
    runs = [(len(r.queues), r.scope) for r in batch.records if isinstance(r, EnqueueRun)]
    assert sorted(runs) == [(1, Scope.STORE | Scope.LINK), (2, Scope.LINK)]


def test_transient_messages_are_no_business_of_the_store(vhost: VirtualHost, queue: Queue) -> None:
    consume(vhost, queue, no_ack=True)
    publish(vhost, "q", b"m")
    batch = end_tick(vhost)
    assert batch is not None
    assert batch.payload(Scope.STORE) == []
    assert len(batch.payload(Scope.LINK)) == 2


def test_the_ledger_sees_records_without_scope() -> None:
    vhost = serving(hooks=Hooks(), ledger=True)
    queue = vhost.declare_queue("t", owner=OWNER)
    consume(vhost, queue, no_ack=True)
    publish(vhost, "t", *bodies(2))
    publish(vhost, "nowhere", *bodies(3))
    batch = end_tick(vhost)
    assert batch is not None
    assert batch.records[2] == Unrouted("p/1", 1, 3)
    assert batch.records[3] == Dequeue(queue.uuid, 1, Reason.ACKED, [(1, 2)])
    assert batch.payload(Scope.STORE | Scope.LINK) == []


def test_promotion_flags_older_epochs_and_keeps_the_order() -> None:
    vhost = serving(5, Everything())
    queue = vhost.declare_queue("q", owner=OWNER)
    sink = consume(vhost, queue, sink=Sink(2))
    publish(vhost, "q", *bodies(4))
    end_tick(vhost)
    vhost.shared.deactivate()
    assert (queue.total_count, queue.ends()) == (4, {5: EpochEnd(4)})
    assert vhost.shared.list_queues()[0].ready == 4
    queue.requeue(sink.got)  # a channel that closes late changes nothing
    vhost.shared.activate(6)
    publish(vhost, "q", *bodies(2))
    assert [(e[1].epoch, e[0], e[1].redelivered) for e in queue.ready] == [
        (5, 1, True),
        (5, 2, True),
        (5, 3, True),
        (5, 4, True),
        (6, 1, False),
        (6, 2, False),
    ]
    assert queue.ends() == {5: EpochEnd(4), 6: EpochEnd(2)}
    sink = consume(vhost, queue)
    vhost.shared.dispatch()
    queue.acknowledge(sink.got[1:5])
    queue.requeue(sink.got[5:])
    assert {epoch: ids.ranges() for epoch, ids in queue.snapshot().items()} == {5: [(1, 1)], 6: [(2, 2)]}
    assert [e[0] for e in queue.held_entries()] == [1, 2]
    queue.acknowledge(sink.got[:1])
    vhost.shared.dispatch()
    queue.acknowledge(sink.got[6:])
    batch = end_tick(vhost)
    assert batch is not None
    gone = [(r.epoch, r.ranges) for r in batch.records if isinstance(r, Dequeue)]
    assert gone == [(5, [(1, 4)]), (6, [(1, 2)])]


def test_an_epoch_that_is_not_newer_is_refused_with_nothing_changed() -> None:
    vhost = serving(5)
    vhost.declare_queue("q", owner=OWNER)
    publish(vhost, "q", b"m")
    end_tick(vhost)
    vhost.shared.deactivate()
    with pytest.raises(InternalError, match="epoch 5"):
        vhost.shared.activate(5)
    vhost.queues["q"].replica.begin_incomplete((5, 1))
    with pytest.raises(InternalError, match="incomplete"):
        vhost.shared.activate(6)
    assert not vhost.serving
    vhost.queues["q"].replica.complete()
    vhost.shared.activate(6)


def failed_over() -> VirtualHost:
    """A node that has just begun to serve.

    It has the exchange `x`, and the queues `auto` and `other` of lost clients, which had a consumer and are
    bound to `x`. `fresh` never had a consumer; `mine` and `lost` are exclusive.
    """
    vhost = serving(1)
    vhost.declare_exchange("x", "fanout", auto_delete=True)
    for name in ("auto", "other"):
        consume(vhost, vhost.declare_queue(name, owner=OWNER, auto_delete=True), sink=Sink(0))
        vhost.bind_queue(name, "x", "", owner=OWNER)
    vhost.declare_queue("fresh", owner=OWNER, auto_delete=True)
    vhost.declare_queue("mine", owner=OWNER, exclusive=True)
    vhost.declare_queue("lost", owner=OWNER, exclusive=True)
    publish(vhost, "auto", b"a")
    end_tick(vhost)
    vhost.shared.deactivate()
    vhost.shared.activate(2)
    assert vhost.shared.await_clients()
    return vhost


def test_orphans_end_once_their_clients_stay_away() -> None:
    vhost = failed_over()
    back = object()
    mine = vhost.declare_queue("mine", owner=back, exclusive=True)
    publish(vhost, "lost", b"m")
    assert sorted(q.name for q in vhost.shared.abandoned_queues()) == ["auto", "lost", "other"]
    assert vhost.shared.delete_abandoned() == 3
    assert sorted(vhost.queues) == ["fresh", "mine"] and "x" not in vhost.exchanges
    vhost.connection_closed(back)
    assert mine.deleted


@pytest.mark.parametrize(
    "use",
    [
        lambda vhost: vhost.declare_queue("auto", owner=OWNER, auto_delete=True),
        lambda vhost: vhost.declare_queue("auto", owner=OWNER, passive=True),
        lambda vhost: vhost.bind_queue("auto", "x", "", owner=OWNER),
        lambda vhost: vhost.bind_queue("auto", "amq.topic", "#", owner=OWNER),
        lambda vhost: publish(vhost, "auto", b"b"),
        lambda vhost: route_by_headers(vhost, "", "fresh", {"CC": ["auto"]}),
    ],
    ids=["declared", "passively", "bound", "bound elsewhere", "published to", "by a copy"],
)
def test_a_queue_used_after_a_failover_is_kept(
    use: Callable[[VirtualHost], object],
) -> None:
    vhost = failed_over()
    use(vhost)
    vhost.shared.delete_abandoned()
    auto = vhost.queues["auto"]
    assert auto.message_count and "other" not in vhost.queues and "x" in vhost.exchanges
    consume(vhost, auto)
    vhost.cancel(auto, auto.consumers.in_order()[0])
    assert auto.deleted, "from then on as ever"


def test_a_dead_letter_does_not_count_as_a_returning_client() -> None:
    vhost = failed_over()
    assert [queue.name for queue in inner_route(vhost, "", "auto").queues] == ["auto"]
    route_by_headers(vhost, "", "fresh", {"BCC": ["other"]}, inner=True)
    assert vhost.shared.delete_abandoned() == 4
    vhost = failed_over()
    inner_route(vhost, "", "auto")
    vhost.route("", "auto")
    assert vhost.shared.delete_abandoned() == 3 and "auto" in vhost.queues, "a client does as well"


@pytest.mark.parametrize(
    "use",
    [
        lambda vhost: vhost.declare_exchange("x", "fanout", auto_delete=True),
        lambda vhost: vhost.declare_exchange("x", "", passive=True),
        lambda vhost: vhost.route("x", "key"),
        lambda vhost: vhost.bind_exchange("x", "amq.topic", "#"),
    ],
    ids=["declared", "passively", "published to", "bound"],
)
def test_an_exchange_used_after_a_failover_outlives_others_queues(
    use: Callable[[VirtualHost], object],
) -> None:
    vhost = failed_over()
    use(vhost)
    vhost.shared.delete_abandoned()
    assert sorted(vhost.queues) == ["fresh"] and "x" in vhost.exchanges
    vhost.bind_queue("fresh", "x", "", owner=OWNER)
    vhost.unbind_queue("fresh", "x", "", owner=OWNER)
    assert "x" not in vhost.exchanges, "from then on as ever"


def test_a_queue_declared_again_while_its_end_is_undecided_stays() -> None:
    vhost = serving(1)
    auto = vhost.declare_queue("auto", owner=OWNER, auto_delete=True)
    consume(vhost, auto)
    vhost.shared.deciding = False
    vhost.cancel(auto, auto.consumers.in_order()[0])
    vhost.declare_queue("auto", owner=OWNER, auto_delete=True)
    vhost.shared.decide_again()
    assert not auto.deleted


def test_a_message_above_the_delivery_limit_is_removed() -> None:
    """Counted for each message, only for deliveries, and also with a limit from a policy."""
    vhost = serving(1)
    queue = vhost.declare_queue("q", owner=OWNER, arguments={"x-delivery-limit": 1})
    publish(vhost, "q", b"a", b"b", b"c")
    taken = [queue.pop(no_ack=False) for _ in range(3)]
    a, b, c = (entry for entry in taken if entry is not None)
    queue.requeue([a, b])
    queue.requeue([c], failed=False)
    taken = [queue.pop(no_ack=False) for _ in range(3)]
    a, b, c = (entry for entry in taken if entry is not None)
    queue.acknowledge([b])
    queue.requeue([a, c])
    end_tick(vhost)
    assert [raw for _, _, raw in queue.ready] == [b"c"]
    assert vhost.history.left[Reason.DELIVERY_LIMIT] == 1
    assert queue.returns and queue.returns.count(queue.ready[0]) == 1
    queue.purge()
    assert not queue.returns


@pytest.mark.parametrize(
    ("own", "asked", "holds"), [(5, 3, 3), (-1, 3, 3), (5, -1, 5), (-1, -1, None), (None, 0, 0)]
)
def test_a_delivery_limit_of_a_policy(own: int | None, asked: int, holds: int | None) -> None:
    arguments = {} if own is None else {"x-delivery-limit": own}
    assert rules_under(arguments, {"delivery-limit": asked}).delivery_limit == holds


def test_only_the_first_consumer_counts_where_one_is_active(vhost: VirtualHost) -> None:
    """Also if a queue of length 0 keeps messages that a consumer can take at once."""
    arguments = {"x-single-active-consumer": True, "x-max-length": 0}
    queue = vhost.declare_queue("single", owner=OWNER, arguments=arguments)
    full, free = Sink(0), Sink()
    consume(vhost, queue, "a", full)
    consume(vhost, queue, "b", free)
    publish(vhost, "single", b"1")
    end_tick(vhost)
    assert not free.got and not queue.total_count
    vhost.cancel(queue, queue.consumers.in_order()[0])
    publish(vhost, "single", b"2")
    end_tick(vhost)
    assert [raw for _, _, raw in free.got] == [b"2"]

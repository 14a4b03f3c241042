"""Last-value queues: which message stays, what history says of the others, and after a failover."""

from __future__ import annotations

import random

import pytest

from broker.amqp091.codec.fields import write_shortstr, write_table
from broker.amqp091.codec.message_format import MESSAGE_FORMAT
from broker.amqp091.codec.named_value import value_of
from broker.model.history.history import History
from broker.model.history.records import Dequeue, EnqueueRun, Entry
from broker.model.queue.consumer import Consumer
from broker.model.queue.keyed.sorted_ready import key_of
from broker.model.queue.queue import Queue
from broker.model.values import Reason
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.vhosts import VirtualHosts
from tests.broker.amqp091.wire import content
from tests.broker.model.helpers import OWNER, Everything, Recorder, Sink, end_tick, publish, seqs, uuids


def shop(**arguments: object) -> tuple[VirtualHost, Queue]:
    vhost = VirtualHosts(Everything(), History(), uuids(), MESSAGE_FORMAT).root
    vhost.shared.activate(1)
    arguments = {"x-last-value-key": "stock", **arguments}
    return vhost, vhost.declare_queue("q", owner=OWNER, durable=True, arguments=arguments)


def price(stock: object, body: str = "1") -> bytes:
    table = write_table({} if stock is None else {"stock": stock})
    return content(1, body.encode(), properties=b"\x20\0" + table)


def stop(vhost: VirtualHost) -> None:
    end_tick(vhost)
    vhost.shared.deactivate()


def bodies(entries: list[Entry]) -> str:
    return "".join(chr(raw[-2]) for _, _, raw in entries)


def test_only_the_newest_of_each_key_stays_and_messages_without_one() -> None:
    vhost, queue = shop()
    publish(vhost, "q", price("a", "1"), price("b", "2"), price("a", "3"), price(None, "4"), price(None, "5"))
    publish(vhost, "q", price("b", "6"), price(b"b", "7"), price(1, "8"), price(True, "9"))
    assert bodies(queue.held_entries()) == "3456789"
    batch = end_tick(vhost)
    assert batch is not None
    records = [record for record in batch.records if isinstance(record, EnqueueRun | Dequeue)]
    assert [type(record) for record in records] == [EnqueueRun, EnqueueRun, Dequeue]
    (gone,) = [record for record in records if isinstance(record, Dequeue)]
    assert (gone.ranges, gone.reason) == ([(1, 2)], Reason.DROPPED)
    assert len(queue.ready) == queue.message_count == 7


def test_what_a_consumer_holds_is_not_replaced_but_does_not_come_back() -> None:
    vhost, queue = shop()
    sink = Sink(1)
    vhost.consume(queue, Consumer("c", sink))
    publish(vhost, "q", price("a", "1"), price("b", "2"))
    vhost.shared.dispatch()
    publish(vhost, "q", price("a", "3"))
    assert bodies(queue.held_entries()) == "123" and queue.message_count == 2
    queue.requeue(sink.got)
    assert bodies(queue.held_entries()) == "23"
    assert (queue.message_count, queue.unacked_count) == (2, 0)


def test_limits_and_purge_know_of_it() -> None:
    vhost, queue = shop(**{"x-max-length-bytes": 3})
    publish(vhost, "q", *[price("a", str(n)) for n in range(9)], price("b", "b"), price("c", "c"))
    vhost.shared.dispatch()
    vhost.shared.removals.settle()
    assert (bodies(queue.held_entries()), queue.ready_octets) == ("8bc", 3)
    publish(vhost, "q", price("d", "d"))
    vhost.shared.removals.settle()
    assert (bodies(queue.held_entries()), queue.ready_octets) == ("bcd", 3)
    assert (queue.purge(), queue.ready_octets, len(queue.ready)) == (3, 0, 0)
    publish(vhost, "q", price("b", "x"))
    assert bodies(queue.held_entries()) == "x"


@pytest.mark.parametrize("seed", range(30))
def test_by_a_model(seed: int) -> None:
    """Random publishes, deliveries, acks, returns, and changes of the serving node."""
    chance = random.Random(seed)
    vhost, queue = shop()
    ready: dict[tuple[int, int], str] = {}
    held: dict[tuple[int, int], Entry] = {}
    epoch = 1

    def keep(mine: tuple[int, int], key: str) -> None:
        same = [at for at, other in ready.items() if other == key]
        for at in same:
            if at < mine:
                del ready[at]
        if not any(at > mine for at in same):
            ready[mine] = key

    for _ in range(120):
        what = chance.random()
        if what < 0.45:
            keys = [chance.choice("abcd") for _ in range(chance.randrange(1, 4))]
            publish(vhost, "q", *[price(key) for key in keys])
            last = queue.ids.next
            for at, key in enumerate(keys):
                keep((epoch, last - len(keys) + at), key)
        elif what < 0.65:
            entry = queue.pop(no_ack=False)
            assert (entry is None) == (not ready)
            if entry is not None:
                mine = (entry[1].epoch, entry[0])
                assert mine == min(ready)
                held[mine] = entry
                del ready[mine]
        elif what < 0.9 and held:
            mine = chance.choice(list(held))
            entry = held.pop(mine)
            if chance.random() < 0.5:
                queue.acknowledge([entry])
            else:
                queue.requeue([entry])
                keep(mine, str(value_of(entry[2], "stock")))
        elif what > 0.97:
            stop(vhost)
            epoch += 1
            vhost.shared.activate(epoch)
            for mine, entry in sorted(held.items()):
                keep(mine, str(value_of(entry[2], "stock")))
            held = {}
            queue.remove_due(0)
        found = {(entry[1].epoch, entry[0]) for entry in queue.held_entries()}
        assert found == {*ready, *held}
        assert (queue.message_count, queue.unacked_count) == (len(ready), len(held))
        ids = {(number, at) for number, some in queue.snapshot().items() for low, high in some.ranges()
               for at in range(low, high + 1)}  # fmt: skip
        assert ids == found


def test_after_a_promotion_replaced_messages_leave_in_the_first_tick() -> None:
    vhost, queue = shop()
    publish(vhost, "q", price("a", "1"))
    queue.pop(no_ack=False)
    publish(vhost, "q", price("a", "2"), price("b", "3"))
    stop(vhost)
    assert bodies(queue.held_entries()) == "123"
    vhost.shared.activate(2)
    recorder = Recorder()
    vhost.history.sinks.append(recorder)
    assert (bodies(queue.held_entries()), queue.message_count) == ("123", 2)
    queue.remove_due(0)
    assert bodies(queue.held_entries()) == "23"
    end_tick(vhost)
    (dequeue,) = [r for batch in recorder.batches for r in batch.records if isinstance(r, Dequeue)]
    assert (dequeue.epoch, dequeue.ranges, dequeue.reason) == (1, [(1, 1)], Reason.DROPPED)


def test_a_promotion_that_ends_at_once_loses_nothing() -> None:
    vhost, queue = shop()
    publish(vhost, "q", price("a", "1"))
    queue.pop(no_ack=False)
    publish(vhost, "q", price("a", "2"))
    for epoch in (2, 3):
        vhost.history.flush(0.0, 0)
        vhost.shared.deactivate()
        vhost.shared.activate(epoch)
    vhost.shared.deactivate()
    assert bodies(queue.held_entries()) == "12"


def test_the_key_is_a_header_or_else_a_property() -> None:
    flags = (1 << 15) + (1 << 13) + (1 << 12) + (1 << 11) + (1 << 10) + (1 << 7) + (1 << 6) + (1 << 3)
    properties = flags.to_bytes(2, "big") + b"".join((
        write_shortstr("text"), write_table({"type": "header", "n": 5}), b"\2", b"\7", write_shortstr("corr"),
        write_shortstr("id"), bytes(8), write_shortstr("app"),
    ))  # fmt: skip
    raw = content(1, b"type message-id", properties=properties)
    wanted = {
        "content-type": "text", "correlation-id": "corr", "message-id": "id", "app-id": "app", "n": 5,
        "type": "header", "user-id": None, "nothing": None, "priority": None,
    }  # fmt: skip
    assert {name: value_of(raw, name) for name in wanted} == wanted


def test_keys_are_small_and_differ_by_type() -> None:
    values = ["1", b"1", 1, 1.0, True, "x" * 1000, b"x" * 1000, "y" * 1000]
    keys = [key_of(value) for value in values]
    assert len(set(keys)) == len(values) and max(len(str(key)) for key in keys) < 400
    assert key_of({}) is key_of([]) is key_of(None) is None
    assert seqs([]) == []

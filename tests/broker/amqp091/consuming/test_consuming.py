"""Consuming on the wire: deliveries, qos, acks, requeue, get, cancel, flow, and slow readers."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.codec.frames import METHOD, NACK, body_of, frame
from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.codec.properties import headers_of
from broker.model.history.records import Entry
from broker.model.queue.queue import Queue
from tests.broker.amqp091.wire import ManualGate, Raw, World, content, message
from tests.builds import PURE_ONLY


def _bodies(client: Raw) -> list[bytes]:
    return [seen.body for seen in client.read() if seen.name == "basic.deliver"]


def _queue(world: World, *bodies: bytes, name: str = "q") -> Raw:
    client = world.open()
    client.call(1, "queue.declare", queue=name)
    for body in bodies:
        client.publish(1, body, routing_key=name)
    assert client.read() == []
    return client


def _ready(world: World, name: str = "q") -> int:
    return world.vhost.queues[name].message_count


def test_messages_arrive_as_published_in_order() -> None:
    world = World()
    client = _queue(world)
    bodies = [b"", b"one", b"x" * 200_000, b"two"]
    for body in bodies:
        client.publish(1, body, routing_key="q", properties=b"\x80\0\x04text")
    client.send(1, "basic.consume", queue="q", consumer_tag="c")
    seen = client.read()
    assert seen[0].name == "basic.consume-ok"
    assert [s.body for s in seen[1:]] == bodies
    assert [s["delivery_tag"] for s in seen[1:]] == [1, 2, 3, 4]
    assert {s["routing_key"] for s in seen[1:]} == {"q"}
    assert all(s.header.endswith(b"\x80\0\x04text") for s in seen[1:])


def test_acks_make_no_tick_unless_something_follows_from_them() -> None:
    world = World()
    client = _queue(world, b"a")
    broker, connection = world.broker, client.connection

    def acked(tag: int, more: bytes = b"") -> float | None:
        """Until when the ack may wait for a tick; None: not at all."""
        connection.receive(encode_frame(1, "basic.ack", delivery_tag=tag) + more, world.now)
        return broker.acks_wait(world.now) if connection.only_acked else None

    client.send(1, "basic.qos", prefetch_count=1)
    client.send(1, "basic.consume", queue="q", consumer_tag="c")
    assert _bodies(client) == [b"a"]
    until = acked(1)
    assert until is not None and until > world.now
    client.publish(1, b"b", routing_key="q")
    client.publish(1, b"c", routing_key="q")
    assert _bodies(client) == [b"b"]
    assert acked(2) is None, "another message may go out"
    world.tick()
    assert _bodies(client) == [b"c"]
    assert acked(3, message(1, b"d", "", "q")) is None
    world.tick()
    assert _bodies(client) == [b"d"]
    ack = encode_frame(1, "basic.ack", delivery_tag=4)
    for part in (ack[:9], ack[9:]):
        connection.receive(part, world.now)
        assert not connection.only_acked
    assert acked(9) is None, "the client is to hear of it"
    world.tick()
    assert client.names() == ["channel.close"]


def test_an_ack_without_a_tick_keeps_no_expired_message_alive() -> None:
    """What counts for a tick is when its first input came, so that the tick's own time expires nothing."""
    world = World()
    client = _queue(world, b"other", name="other")
    client.send(1, "basic.consume", queue="other", consumer_tag="other")
    assert _bodies(client) == [b"other"]
    client.call(1, "queue.declare", queue="q")
    client.publish(1, b"head", routing_key="q")
    client.publish(1, b"second", routing_key="q", properties=b"\x01\0\x041000")
    world.now += 0.5
    client.connection.receive(encode_frame(1, "basic.ack", delivery_tag=1), world.now)
    assert world.broker.acks_wait(world.now) is not None
    world.now += 5
    client.connection.receive(encode_frame(1, "basic.consume", queue="q", consumer_tag="c"), world.now)
    world.tick()
    assert _bodies(client) == [b"head"]


def test_an_ack_without_a_tick_is_in_the_next_sample_of_memory() -> None:
    world = World(memory_limit=1 << 30)
    client = _queue(world, b"x" * 100_000)
    client.send(1, "basic.consume", queue="q", consumer_tag="c")
    assert len(_bodies(client)) == 1
    world.pass_time(2)
    assert world.broker.memory.next_deadline() is None
    client.connection.receive(encode_frame(1, "basic.ack", delivery_tag=1), world.now)
    assert world.broker.acks_wait(world.now) == world.broker.memory.next_deadline() is not None


def test_every_split_of_the_input_gives_the_same() -> None:
    """Two messages of one route and one of another, with frames cut at every byte."""
    data = (
        message(1, b"a", "", "q") + message(1, b"b", "", "q") + message(1, b"c" * 300, "", "q", frame_max=108)
    )
    for size in (1, 2, 7, 8, 20, 33, 61, len(data)):
        world = World()
        client = _queue(world)
        for at in range(0, len(data), size):
            client.raw(data[at : at + size])
        client.send(1, "basic.consume", queue="q")
        assert _bodies(client) == [b"a", b"b", b"c" * 300]


def test_another_channel_and_a_smaller_frame_max_are_reframed() -> None:
    world = World()
    _queue(world, b"y" * 20_000)
    other = world.open(channel=9, frame_max=4096)
    other.send(9, "basic.consume", queue="q")
    seen = other.read()
    assert (seen[1].channel, seen[1].body) == (9, b"y" * 20_000)


def test_prefetch_per_consumer_and_per_channel() -> None:
    world = World()
    client = _queue(world, *[b"%d" % n for n in range(20)])
    client.call(1, "basic.qos", prefetch_count=3)
    client.send(1, "basic.consume", queue="q", consumer_tag="a")
    client.send(1, "basic.consume", queue="q", consumer_tag="b")
    assert len(_bodies(client)) == 6
    client.send(1, "basic.ack", delivery_tag=2, multiple=True)
    assert len(_bodies(client)) == 2
    shared = world.open()
    shared.call(1, "basic.qos", prefetch_count=4, global_=True)
    for tag in "ab":
        shared.send(1, "basic.consume", queue="q", consumer_tag=tag)
    assert len(_bodies(shared)) == 4
    shared.send(1, "basic.ack", delivery_tag=3)
    assert len(_bodies(shared)) == 1


def test_reject_nack_and_recover_put_messages_back_in_place_redelivered() -> None:
    world = World()
    client = _queue(world, b"1", b"2", b"3", b"4")
    client.call(1, "basic.qos", prefetch_count=4)
    client.send(1, "basic.consume", queue="q")
    assert _bodies(client) == [b"1", b"2", b"3", b"4"]
    client.send(1, "basic.reject", delivery_tag=2, requeue=True)
    (again,) = client.read()
    assert (again.body, again["redelivered"], again["delivery_tag"]) == (b"2", True, 5)
    client.send(1, "basic.nack", delivery_tag=3, multiple=True, requeue=False)
    client.send(1, "basic.recover", requeue=True)
    seen = client.read()
    assert seen[0].name == "basic.recover-ok"
    assert [(s.body, s["redelivered"]) for s in seen[1:]] == [(b"2", True), (b"4", True)]


def test_a_closed_channel_and_a_lost_connection_give_messages_back() -> None:
    world = World()
    _queue(world, b"1", b"2")
    client = world.open()
    client.send(1, "basic.consume", queue="q")
    assert _ready(world) == 0
    client.send(1, "channel.close", reply_code=200)
    assert _ready(world) == 2
    other = world.open()
    other.send(1, "basic.consume", queue="q")
    assert _ready(world) == 0
    other.connection.lost(world.now)
    world.tick()
    assert _ready(world) == 2


def test_get() -> None:
    world = World()
    client = _queue(world, b"1", b"2")
    first = client.call(1, "basic.get", queue="q")
    assert (first.body, first["message_count"], first["redelivered"]) == (b"1", 1, False)
    assert client.call(1, "basic.get", queue="", no_ack=True).body == b"2"
    assert client.call(1, "basic.get", queue="q").name == "basic.get-empty"
    client.send(1, "basic.nack", delivery_tag=1, requeue=True)
    assert client.call(1, "basic.get", queue="q")["redelivered"]


def test_cancel_by_client_and_by_deletion() -> None:
    world = World()
    client = _queue(world)
    client.call(1, "basic.consume", queue="q", consumer_tag="c")
    assert client.call(1, "basic.cancel", consumer_tag="c").name == "basic.cancel-ok"
    client.call(1, "basic.consume", queue="q", consumer_tag="d")
    world.open().call(1, "queue.delete", queue="q")
    (cancel,) = client.read()
    assert (cancel.name, cancel["consumer_tag"]) == ("basic.cancel", "d")


def test_the_next_active_consumer_begins_with_the_last_ones_messages() -> None:
    """In one tick with new messages, which come behind them."""
    world = World()
    publisher, first, second = world.open(), world.open(), world.open()
    publisher.call(1, "queue.declare", queue="q", arguments={"x-single-active-consumer": True})
    for client in (first, second):
        client.call(1, "basic.consume", queue="q")
    publisher.raw(b"".join(message(1, b"%d" % n, "", "q") for n in range(3)))
    assert (_bodies(first), _bodies(second)) == ([b"0", b"1", b"2"], [])
    publisher.connection.receive(message(1, b"late", "", "q"), world.now)
    first.send(1, "channel.close")
    assert _bodies(second) == [b"0", b"1", b"2", b"late"]


def test_a_task_may_take_days() -> None:
    """There is no `consumer_timeout`, unless somebody sets one."""
    world = World()
    client = _queue(world, b"task")
    client.send(1, "basic.consume", queue="q")
    assert _bodies(client) == [b"task"]
    world.pass_time(7 * 86400)
    assert client.connection.running and client.read() == []
    client.send(1, "basic.ack", delivery_tag=1)
    assert client.read() == [] and not world.vhost.queues["q"].total_count


def test_a_client_without_the_capability_gets_no_cancel() -> None:
    world = World()
    _queue(world)
    client = world.open(capabilities={"consumer_cancel_notify": False})
    client.call(1, "basic.consume", queue="q")
    world.open().call(1, "queue.delete", queue="q")
    assert client.read() == []


def test_flow_stops_and_resumes_deliveries() -> None:
    world = World()
    client = _queue(world)
    client.call(1, "basic.consume", queue="q")
    assert client.call(1, "channel.flow", active=False)["active"] is False
    client.publish(1, b"m", routing_key="q")
    assert client.read() == []
    client.send(1, "channel.flow", active=True)
    assert client.names() == ["channel.flow-ok", "basic.deliver"]


def test_the_replication_id_is_added_where_asked_for() -> None:
    world = World()
    client = _queue(world, b"1", b"2")
    client.send(1, "basic.consume", queue="q", arguments={"x-replication-id": True})
    seen = [s for s in client.read() if s.name == "basic.deliver"]
    uuid = world.vhost.queues["q"].uuid.hex()
    found = [headers_of(b"\2\0\1" + len(s.header).to_bytes(4, "big") + s.header) for s in seen]
    assert [h["x-replication-id"] for h in found] == [f"{uuid}:1:1", f"{uuid}:1:2"]
    assert [s.body for s in seen] == [b"1", b"2"]
    refused = client.call(1, "basic.consume", queue="q", arguments={"x-replication-id": "yes"})
    assert refused["reply_code"] == 406
    assert "invalid arg 'x-replication-id' for queue 'q' in vhost '/'" in refused["reply_text"]


def test_a_consumer_of_confirmed_messages_gets_them_once_all_gates_have_them() -> None:
    world = World()
    publisher = world.open()
    publisher.call(1, "queue.declare", queue="q", durable=True)
    client = world.open()
    client.call(1, "basic.qos", prefetch_count=3)
    client.call(1, "basic.consume", queue="q", consumer_tag="c", arguments={"x-confirmed-only": True})
    gate = ManualGate()
    world.broker.gates.append(gate)
    gate.applied = gate.durable = world.vhost.history.position
    for body in b"1", b"2":
        publisher.publish(1, body, routing_key="q", properties=b"\x10\x00\x02")
    assert client.read() == [] and world.vhost.queues["q"].unacked_count == 2
    gate.applied = world.vhost.history.position
    world.tick()
    assert client.read() == [], "they are for the disk"
    gate.durable = world.vhost.history.position
    world.tick()
    assert [s.body for s in client.read() if s.name == "basic.deliver"] == [b"1", b"2"]
    publisher.publish(1, b"3", routing_key="q", properties=b"\x10\x00\x02")
    assert client.names() == []
    client.call(1, "basic.cancel", consumer_tag="c")
    assert world.vhost.queues["q"].message_count == 1, "what had waited is ready for another one"
    ((_, envelope, _),) = world.vhost.queues["q"].ready
    assert envelope.redelivered, "another consumer may have later ones"
    client.call(1, "basic.consume", queue="q", consumer_tag="c", arguments={"x-confirmed-only": True})
    client.connection.lost(world.now)
    world.tick()
    assert world.vhost.queues["q"].message_count == 3


@pytest.mark.parametrize(
    ("arguments", "no_ack", "text"),
    [
        ({"x-confirmed-only": 1}, False, "invalid arg 'x-confirmed-only' for queue 'q' in vhost '/'"),
        ({"x-confirmed-only": True}, True, "a consumer with x-confirmed-only has to acknowledge"),
    ],
)
def test_a_wrong_wish_for_confirmed_messages(arguments: dict[str, Any], no_ack: bool, text: str) -> None:
    client = _queue(World())
    refused = client.call(1, "basic.consume", queue="q", no_ack=no_ack, arguments=arguments)
    assert refused["reply_code"] == 406 and text in refused["reply_text"]


def test_a_paused_reader_gets_its_budget_and_later_the_rest() -> None:
    world = World(unsent_max=10_000)
    client = _queue(world)
    slow = world.open()
    slow.call(1, "basic.consume", queue="q")
    slow.reading = False
    slow.connection.writable(False)
    for _ in range(40):
        client.publish(1, b"z" * 1000, routing_key="q")
    assert slow.connection.unsent == 0
    assert _ready(world) == 40
    slow.reading = True
    slow.connection.writable(True)
    world.tick()
    assert len(_bodies(slow)) == 40
    assert world.vhost.queues["q"].unacked_count == 40


def test_one_tick_delivers_no_more_than_the_budget() -> None:
    world = World(unsent_max=10_000)
    client = _queue(world, *[b"z" * 1000] * 40)
    slow = world.open()
    slow.reading = False
    slow.send(1, "basic.consume", queue="q")
    assert slow.connection.unsent < 12_000
    slow.send(1, "basic.ack", delivery_tag=0, multiple=True)
    slow.connection.lost(world.now)
    world.tick()
    acked = 40 - _ready(world)
    assert 0 < acked < 12
    assert client.read() == []


def test_a_slow_no_ack_reader_takes_only_its_budget_from_the_queue() -> None:
    """Messages that it takes leave the queue. They are lost if it disconnects, and no memory alarm counts
    them."""
    world = World(unsent_max=10_000)
    client = _queue(world, *[b"z" * 1000] * 40)
    slow = world.open()
    slow.reading = False
    slow.send(1, "basic.consume", queue="q", no_ack=True)
    assert 28 < _ready(world) < 40
    slow.reading = True
    slow.inbox += b"".join(slow.connection.take_output())
    world.tick()
    assert len(_bodies(slow)) == 40
    slow.reading = False
    for _ in range(40):
        client.publish(1, b"z" * 1000, routing_key="q")
    slow.connection.lost(world.now)
    world.tick()
    assert _ready(world) > 28


def test_staged_messages_of_a_deleted_queue_are_not_in_flight() -> None:
    world = World(unsent_max=10_000)
    client = _queue(world, *[b"z" * 9000] * 3)
    slow = world.open()
    slow.call(1, "basic.qos", prefetch_count=3, global_=True)
    slow.reading = False
    slow.send(1, "basic.consume", queue="q")
    world.tick()
    client.call(1, "queue.delete", queue="q")
    client.call(1, "queue.declare", queue="other")
    slow.reading = True
    slow.inbox += b"".join(slow.connection.take_output())
    slow.send(1, "basic.consume", queue="other")
    slow.send(1, "basic.ack", delivery_tag=0, multiple=True)
    for _ in range(3):
        client.publish(1, b"m", routing_key="other")
    assert _bodies(slow)[-3:] == [b"m"] * 3


def test_a_client_that_gets_and_does_not_read_is_not_served_further() -> None:
    world = World(unsent_max=10_000)
    _queue(world, *[b"z" * 1000] * 100)
    greedy = world.open()
    greedy.reading = False
    get = b"\1\0\1\0\0\0\x09\0\x3c\0\x46\0\0\1q\0\xce"
    greedy.connection.receive(get * 100, world.now)
    world.tick()
    assert greedy.connection.unsent < 50_000
    greedy.connection.receive(b"\x08\0\0\0\0\0\0\xce" * 20_000, world.now)
    assert greedy.connection.paused_reading
    assert greedy.connection.unsent < 50_000
    greedy.reading = True
    greedy.inbox += b"".join(greedy.connection.take_output())
    world.tick()
    assert len([s for s in greedy.read() if s.name == "basic.get-ok"]) == 100
    assert not greedy.connection.paused_reading


def test_body_of_a_message_in_many_frames() -> None:
    assert body_of(content(1, b"q" * 1000, frame_max=64)) == b"q" * 1000


@PURE_ONLY
def test_consecutive_refusals_are_served_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each requeueing walks over the ready messages, so thousands of single ones would block the broker."""
    asked: list[int] = []
    requeue = Queue.requeue

    def counted(queue: Queue, entries: list[Entry], *, failed: bool) -> None:
        asked.append(len(entries))
        requeue(queue, entries, failed=failed)

    monkeypatch.setattr(Queue, "requeue", counted)
    world = World()
    client = _queue(world, *[b"%d" % n for n in range(1000)])
    client.send(1, "basic.consume", queue="q", consumer_tag="c")
    client.send(1, "basic.cancel", consumer_tag="c")
    client.read()
    client.raw(b"".join(encode_frame(1, "basic.nack", delivery_tag=n, requeue=True) for n in range(1, 501)))
    client.raw(
        b"".join(encode_frame(1, "basic.reject", delivery_tag=n, requeue=True) for n in range(502, 1001))
    )
    assert asked == [500, 499]
    assert client.read() == []
    assert client.call(1, "basic.get", queue="q").body == b"0"


def test_consecutive_refusals_end_at_an_unknown_tag() -> None:
    world = World()
    client = _queue(world, b"1", b"2", b"3", b"4")
    for _ in range(4):
        client.call(1, "basic.get", queue="q")
    drop = encode_frame(1, "basic.reject", delivery_tag=2)
    client.raw(drop + encode_frame(1, "basic.reject", delivery_tag=9, requeue=True) + drop)
    (closed,) = client.read()
    assert (closed["reply_text"], closed["failed_method"]) == (
        "PRECONDITION_FAILED - unknown delivery tag 9",
        90,
    )
    assert _ready(world) == 3


def test_different_refusals_in_one_read_are_distinguished() -> None:
    world = World()
    client = _queue(world, *[b"%d" % n for n in range(1, 8)])
    for _ in range(7):
        client.call(1, "basic.get", queue="q")
    client.raw(
        encode_frame(1, "basic.nack", delivery_tag=1)
        + encode_frame(1, "basic.nack", delivery_tag=2, requeue=True)
        + encode_frame(1, "basic.reject", delivery_tag=4, requeue=True)
        + encode_frame(1, "basic.reject", delivery_tag=3)
        + encode_frame(1, "basic.nack", delivery_tag=6, multiple=True, requeue=True)
        + encode_frame(1, "basic.ack", delivery_tag=7)
    )
    found = [client.call(1, "basic.get", queue="q", no_ack=True) for _ in range(5)]
    assert [(s.name, s.body) for s in found] == [
        *(("basic.get-ok", body) for body in (b"2", b"4", b"5", b"6")),
        ("basic.get-empty", b""),
    ]


def test_a_refusal_that_is_cut_short_costs_the_connection() -> None:
    client = _queue(World())
    client.raw(frame(METHOD, 1, NACK))
    assert [seen["reply_code"] for seen in client.read()] == [502]

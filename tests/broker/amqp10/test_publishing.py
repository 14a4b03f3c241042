"""Publishing over AMQP 1.0: outcomes and their time, and the messages that reach the virtual host."""

from __future__ import annotations

import pytest

pytest.importorskip("proton")

from proton import Delivery, Message, symbol

from broker.amqp10.incoming import IN_DOUBT, WINDOW
from broker.model.values import Position
from tests.broker.amqp091.wire import ManualGate, World
from tests.broker.amqp10.wire import Talker, detached, world10


def _with_queue(world: World, name: str = "q", **arguments: object) -> None:
    client = world.open()
    client.call(1, "queue.declare", queue=name, durable=True, arguments=arguments)


def _bodies(world: World, queue: str = "q") -> list[bytes]:
    """Bodies as a 0-9-1 client gets them."""
    client = world.open()
    client.send(1, "basic.consume", queue=queue, no_ack=True)
    return [seen.body for seen in client.read() if seen.name == "basic.deliver"]


def test_a_message_is_accepted_and_a_client_of_0_9_1_gets_it() -> None:
    world = world10()
    _with_queue(world)
    talker = Talker(world)
    link = talker.sender("/queues/q")
    assert link.credit == 500
    deliveries = talker.send(link, *(Message(body=b"%d" % n, inferred=True, durable=True) for n in range(3)))
    assert [d.remote_state for d in deliveries] == [Delivery.ACCEPTED] * 3
    assert all(d.settled for d in deliveries)
    assert _bodies(world) == [b"0", b"1", b"2"]


def test_a_sender_after_a_failover_keeps_its_auto_delete_queue() -> None:
    world = world10()
    world.open().call(1, "queue.declare", queue="q", auto_delete=True)
    consumer = world.open()
    consumer.send(1, "basic.consume", queue="q")
    consumer.read()
    whole = world.vhost.shared
    world.vhost.queues["q"].consumers.clear()
    assert whole.await_clients()
    Talker(world).sender("/queues/q")
    assert whole.delete_abandoned() == 0 and "q" in world.vhost.queues


def test_messages_alike_become_one_run_in_the_order_of_the_client() -> None:
    world = world10()
    _with_queue(world)
    talker = Talker(world)
    one, other = talker.sender("q", "one"), talker.sender("/exchanges/amq.default/q", "other")
    assert detached(other) is not None  # the default exchange has no name
    other = talker.sender("q", "other too")
    for link, body in ((one, b"a"), (one, b"b"), (other, b"c"), (one, b"d")):
        delivery = link.delivery(body.decode())
        link.stream(Message(body=body, inferred=True).encode())
        link.advance()
        assert not delivery.settled
    talker.turn()
    assert _bodies(world) == [b"a", b"b", b"c", b"d"]


def test_accepted_comes_when_all_gates_have_the_message() -> None:
    world = world10()
    _with_queue(world)
    gate = ManualGate()
    world.broker.gates.append(gate)
    gate.applied = gate.durable = world.vhost.history.position
    talker = Talker(world)
    link = talker.sender("q")
    (durable,) = talker.send(link, Message(body=b"1", durable=True))
    (transient,) = talker.send(link, Message(body=b"2"))
    assert not durable.settled
    gate.applied = world.vhost.history.position
    talker.turn()
    assert not durable.settled and not transient.settled  # in order
    gate.durable = world.vhost.history.position
    talker.turn()
    assert (durable.remote_state, transient.remote_state) == (Delivery.ACCEPTED, Delivery.ACCEPTED)
    assert gate.durable > Position(0, 0)


def test_there_is_no_credit_without_end_while_gates_are_shut() -> None:
    world = world10()
    _with_queue(world)
    gate = ManualGate()
    gate.applied = gate.durable = world.vhost.history.position
    world.broker.gates.append(gate)
    talker = Talker(world)
    link = talker.sender("q")
    sent: list[Delivery] = []
    while link.credit and len(sent) < 2 * IN_DOUBT:
        sent += talker.send(link, *[Message(body=b"x", durable=True)] * link.credit)
    assert IN_DOUBT <= len(sent) <= IN_DOUBT + WINDOW
    gate.applied = gate.durable = world.vhost.history.position
    talker.turn()
    assert {delivery.remote_state for delivery in sent} == {Delivery.ACCEPTED}
    assert link.credit == WINDOW


def test_presettled_transfers_wait_for_no_gate() -> None:
    world = world10()
    _with_queue(world)
    gate = ManualGate()
    gate.applied = gate.durable = world.vhost.history.position
    world.broker.gates.append(gate)
    talker = Talker(world)
    link = talker.sender("q", settled=True)
    for _ in range(IN_DOUBT // 200 + 5):
        talker.send(link, *[Message(body=b"x", durable=True)] * 200, settle=True)
    assert link.credit >= WINDOW // 2
    assert not world.broker.holding


def test_unroutable_messages_are_released() -> None:
    world = world10()
    talker = Talker(world)
    link = talker.sender("/exchanges/amq.topic/no.where")
    (delivery,) = talker.send(link, Message(body=b"x"))
    assert delivery.remote_state == Delivery.RELEASED
    assert delivery.settled


def test_messages_refused_by_a_full_queue_are_rejected() -> None:
    world = world10()
    _with_queue(world, **{"x-max-length": 2, "x-overflow": "reject-publish"})
    talker = Talker(world)
    deliveries = talker.send(talker.sender("q"), *(Message(body=b"%d" % n) for n in range(4)))
    assert [d.remote_state for d in deliveries] == [Delivery.ACCEPTED] * 2 + [Delivery.REJECTED] * 2
    assert deliveries[3].remote.condition.name == "amqp:resource-limit-exceeded"


def test_headers_decide_and_the_key_of_the_address() -> None:
    world = world10()
    for name in ("q", "r"):
        _with_queue(world, name)
    binder = world.open()
    binder.call(1, "queue.bind", queue="q", exchange="amq.headers", arguments={"colour": "red"})
    binder.call(1, "queue.bind", queue="r", exchange="amq.topic", routing_key="a/b.*")
    talker = Talker(world)
    headers = talker.sender("/exchanges/amq.headers", "headers")
    red, blue = talker.send(
        headers,
        Message(body=b"red", inferred=True, properties={"colour": "red"}),
        Message(body=b"blue", inferred=True, properties={"colour": "blue"}),
    )
    assert (red.remote_state, blue.remote_state) == (Delivery.ACCEPTED, Delivery.RELEASED)
    talker.send(talker.sender("/exchanges/amq.topic/a%2Fb.c", "topic"), Message(body=b"t", inferred=True))
    assert (_bodies(world), _bodies(world, "r")) == ([b"red"], [b"t"])


def test_the_anonymous_terminus_routes_each_message() -> None:
    world = world10()
    _with_queue(world)
    talker = Talker(world)
    link = talker.sender(None)
    good, nowhere, nameless, odd = talker.send(
        link,
        Message(address="/queues/q", body=b"1", inferred=True),
        Message(address="/exchanges/no-such/k", body=b"2"),
        Message(body=b"3"),
        Message(address="/what/is/this", body=b"4"),
    )
    assert good.remote_state == Delivery.ACCEPTED
    assert [d.remote_state for d in (nowhere, nameless, odd)] == [Delivery.REJECTED] * 3
    assert nowhere.remote.condition.name == "amqp:not-found"
    assert "no target" in nameless.remote.condition.description
    assert detached(link) is None
    assert _bodies(world) == [b"1"]


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("/queues/none", "amqp:not-found"),
        ("none", "amqp:not-found"),
        ("/exchanges/none", "amqp:not-found"),
        ("/queues/a/b", "amqp:invalid-field"),
        ("/queue/q", "amqp:invalid-field"),
        ("/queues/%ff", "amqp:invalid-field"),
        ("/queues/" + "n" * 256, "amqp:invalid-field"),
    ],
)
def test_a_target_that_cannot_be_refuses_the_link(address: str, condition: str) -> None:
    world = world10()
    talker = Talker(world)
    link = talker.sender(address)
    told = detached(link)
    assert told is not None and told[0] == condition
    assert link.remote_target.address is None
    assert talker.refused is None
    assert any(condition in line and "127.0.0.1:40000" in line for line in world.logged)


def test_settled_by_the_client_nothing_is_said() -> None:
    world = world10()
    _with_queue(world)
    talker = Talker(world)
    link = talker.sender("q", settled=True)
    talker.send(link, *(Message(body=b"%d" % n, inferred=True) for n in range(400)), settle=True)
    assert len(_bodies(world)) == 400
    assert link.credit >= 250


def test_messages_in_one_read_with_the_close_are_published() -> None:
    world = world10()
    _with_queue(world)
    talker = Talker(world)
    link = talker.sender("q", settled=True)
    for number in range(3):
        delivery = link.delivery(str(number))
        link.stream(Message(body=b"%d" % number, inferred=True).encode())
        delivery.settle()
    talker.engine.close()
    talker.turn()
    assert talker.connection.wants_close
    assert _bodies(world) == [b"0", b"1", b"2"]


def test_large_messages_come_in_pieces_and_too_large_ones_close_the_link() -> None:
    world = world10(message_max=1_000_000)
    _with_queue(world)
    talker = Talker(world)
    link = talker.sender("q")
    assert link.remote_max_message_size == 1_000_000
    (delivery,) = talker.send(link, Message(body=b"x" * 900_000, inferred=True))
    assert delivery.remote_state == Delivery.ACCEPTED
    assert _bodies(world) == [b"x" * 900_000]
    (large,) = talker.send(link, Message(body=b"x" * 1_100_000, inferred=True))
    told = detached(link)
    assert told is not None and told[0] == "amqp:link:message-size-exceeded"
    assert (large.remote_state, large.remote.condition.name) == (Delivery.REJECTED, told[0])
    (delivery,) = talker.send(talker.sender("q", "again"), Message(body=b"y", inferred=True))
    assert delivery.remote_state == Delivery.ACCEPTED


def test_a_message_that_its_client_aborts_never_was() -> None:
    world = world10()
    _with_queue(world)
    talker = Talker(world)
    link = talker.sender("q")
    delivery = link.delivery("half")
    link.stream(b"\0Su\xb0\0\0\xff\xff" + b"x" * 1000)
    talker.turn()
    delivery.abort()
    talker.turn()
    (whole,) = talker.send(link, Message(body=b"whole", inferred=True))
    assert whole.remote_state == Delivery.ACCEPTED
    assert _bodies(world) == [b"whole"]


def test_malformed_messages_are_rejected_and_the_link_goes_on() -> None:
    world = world10()
    _with_queue(world)
    talker = Talker(world)
    link = talker.sender("q")
    bad, good = talker.send(link, b"\0Su\xa0\x05abc", Message(body=b"good", inferred=True))
    assert (bad.remote_state, good.remote_state) == (Delivery.REJECTED, Delivery.ACCEPTED)
    assert bad.remote.condition.name == "amqp:decode-error"


def test_another_users_user_id_is_rejected() -> None:
    world = world10()
    _with_queue(world)
    talker = Talker(world)
    own, forged = talker.send(
        talker.sender("q"), Message(user_id=b"guest", body=b"1"), Message(user_id=b"root", body=b"2")
    )
    assert (own.remote_state, forged.remote_state) == (Delivery.ACCEPTED, Delivery.REJECTED)
    assert forged.remote.condition.name == "amqp:unauthorized-access"


def test_publishers_are_named_in_history_and_numbered_from_one() -> None:
    world = world10()
    world.vhost.history.ledger_wanted = True
    _with_queue(world)
    batches: list[object] = []

    class Sink:
        def batch(self, batch: object) -> None:
            batches.extend(batch.records)  # type: ignore[attr-defined]

    world.broker.sinks.append(Sink())
    talker = Talker(world, properties={symbol("producer"): "shop.1.1"})
    link = talker.sender("q", "orders")
    talker.send(link, *(Message(body=b"x") for _ in range(3)))
    talker.send(link, Message(body=b"y"))
    told = [(r.producer, r.producer_first) for r in batches if hasattr(r, "producer_first")]
    assert told == [("shop.1.1/orders", 1), ("shop.1.1/orders", 4)]


def test_an_alarm_stops_the_reading_from_publishers_only() -> None:
    world = world10(disk_free_limit=10)
    world.broker.disk.free = lambda: 1000
    _with_queue(world)
    publisher, idle = Talker(world), Talker(world)
    publisher.send(publisher.sender("q"), Message(body=b"1"))
    world.broker.disk.free = lambda: 1
    world.pass_time(60)
    assert publisher.connection.paused_reading
    assert not idle.connection.paused_reading
    world.broker.disk.free = lambda: 1000
    world.pass_time(60)
    assert not publisher.connection.paused_reading


def test_the_group_id_is_that_of_a_queue_with_groups() -> None:
    """It is the property `app-id` of 0-9-1."""
    world = world10()
    world.open().call(1, "queue.declare", queue="q", arguments={"x-message-group": "app-id"})
    talker = Talker(world)
    talker.send(talker.sender("q"), *[Message(body=body, group_id=body[:1]) for body in ("a1", "b1", "a2")])
    one, two = (talker.receiver("q", credit=credit, name=f"r{credit}") for credit in (1, 5))
    found = [[message.body for _, message in talker.received(link)] for link in (one, two)]
    assert found == [["a1"], ["b1"]]
    one.flow(1)
    talker.turn()
    assert [message.body for _, message in talker.received(one)] == ["a2"]

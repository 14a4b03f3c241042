"""Receiving over AMQP 1.0: credit, outcomes, settlement, and messages that become ready again."""

from __future__ import annotations

import pytest

pytest.importorskip("proton")

from proton import Delivery, Message, Receiver, Terminus, symbol

from broker.amqp091.codec.fields import write_shortstr
from broker.amqp10.connection import Amqp10Connection
from broker.amqp10.outgoing import BURST, Outgoing
from broker.model.history.records import Entry
from broker.model.queue.direct_reply import REPLY_TO
from broker.model.queue.queue import Queue
from broker.model.values import Position
from tests.broker.amqp091.wire import ManualGate, Raw, World, message
from tests.broker.amqp10.wire import Talker, detached, world10
from tests.builds import PURE_ONLY


def _filled(world: World, *bodies: bytes, name: str = "q", **arguments: object) -> Raw:
    client = world.open()
    client.call(1, "queue.declare", queue=name, durable=True, arguments=arguments)
    for body in bodies:
        client.publish(1, body, routing_key=name, properties=b"\x10\x00\x02")
    return client


def _bodies(talker: Talker, link: Receiver) -> list[bytes]:
    return [bytes(message.body) for _, message in talker.received(link)]


def _depth(world: World, name: str = "q") -> tuple[int, int]:
    queue = world.vhost.queues[name]
    return queue.message_count, queue.unacked_count


def test_as_many_come_as_there_is_credit_for() -> None:
    world = world10()
    _filled(world, b"1", b"2", b"3", b"4")
    talker = Talker(world)
    link = talker.receiver("/queues/q", credit=3)
    assert _bodies(talker, link) == [b"1", b"2", b"3"]
    assert _depth(world) == (1, 3)
    link.flow(5)
    talker.turn()
    assert _bodies(talker, link) == [b"4"]


def test_a_drained_link_gets_the_ready_messages_and_returns_its_credit() -> None:
    world = world10()
    client = _filled(world, b"1", b"2")
    talker = Talker(world)
    link = talker.receiver("q")
    link.drain(10)
    talker.turn()
    assert _bodies(talker, link) == [b"1", b"2"]
    assert link.credit == 0 and not link.draining()
    client.publish(1, b"3", routing_key="q")
    talker.turn()
    assert _bodies(talker, link) == []


def test_a_drain_of_more_than_fits_at_once_ends_when_all_has_come() -> None:
    world = world10(unsent_max=20_000)
    _filled(world, *(b"%d" % n + b"x" * 1000 for n in range(100)))
    talker = Talker(world)
    link = talker.receiver("q")
    link.drain(500)
    talker.turn()
    assert len(_bodies(talker, link)) == 100
    assert link.credit == 0


def test_a_drain_of_more_than_a_burst_ends_when_all_has_come() -> None:
    world = world10()
    _filled(world, *(b"%d" % n for n in range(2 * BURST + 10)))
    talker = Talker(world)
    link = talker.receiver("q")
    link.drain(3 * BURST)
    talker.turn()
    assert len(_bodies(talker, link)) == 2 * BURST + 10
    assert link.credit == 0 and not link.draining()


def test_a_drain_does_not_delay_a_switchover_and_resumes_without_one() -> None:
    """While input is paused, all pending output must come to an end."""
    world = world10()
    _filled(world, b"1", b"2")
    talker = Talker(world)
    link = talker.receiver("q")
    link.drain(5)
    said = bytes(talker.transport.peek(talker.transport.pending()))
    assert said
    talker.transport.pop(len(said))
    talker.connection.receive(said, world.now)
    world.broker.pause_input()
    world.tick()
    assert not world.broker.holding
    assert link.draining()
    world.broker.resume_input()
    talker.turn()
    assert _bodies(talker, link) == [b"1", b"2"]
    assert link.credit == 0 and not link.draining()


def test_each_outcome_has_its_effect() -> None:
    world = world10()
    _filled(world, b"ok", b"no", b"later", b"failed", b"not here", name="q",
            **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})  # fmt: skip
    _filled(world, name="dead")
    talker = Talker(world)
    link = talker.receiver("q", credit=5)
    got = {bytes(message.body): delivery for delivery, message in talker.received(link)}
    talker.settle(got[b"ok"], Delivery.ACCEPTED)
    talker.settle(got[b"no"], Delivery.REJECTED)
    talker.settle(got[b"later"], Delivery.RELEASED)
    got[b"failed"].local.failed = True
    talker.settle(got[b"failed"], Delivery.MODIFIED)
    got[b"not here"].local.undeliverable = True
    talker.settle(got[b"not here"], Delivery.MODIFIED)
    assert _depth(world, "dead") == (2, 0)
    assert _depth(world) == (2, 0)
    link.flow(5)
    talker.turn()
    again = talker.received(link)
    assert [bytes(m.body) for _, m in again] == [b"later", b"failed"]
    assert [(m.delivery_count, m.first_acquirer) for _, m in again] == [(1, False)] * 2
    dead = talker.received(talker.receiver("dead", credit=5, name="dead"))
    assert dead[0][1].annotations[symbol("x-death")][0]["reason"] == "rejected"


def test_settled_without_an_outcome_is_ready_again() -> None:
    world = world10()
    _filled(world, b"1")
    talker = Talker(world)
    link = talker.receiver("q", credit=1)
    ((delivery, _),) = talker.received(link)
    delivery.settle()
    talker.turn()
    assert _depth(world) == (1, 0)


def test_a_second_settler_is_answered_when_it_is_safe() -> None:
    world = world10()
    _filled(world, b"1")
    gate = ManualGate()
    gate.applied = gate.durable = world.vhost.history.position
    world.broker.gates.append(gate)
    talker = Talker(world)
    link = talker.receiver("q", credit=1, second=True)
    ((delivery, _),) = talker.received(link)
    delivery.update(Delivery.ACCEPTED)
    talker.turn()
    assert _depth(world) == (0, 0)
    assert not delivery.settled
    gate.applied = gate.durable = world.vhost.history.position
    talker.turn()
    assert delivery.settled
    delivery.settle()
    talker.turn()
    assert talker.refused is None


def test_each_rejection_is_settled_when_its_dead_letter_is_safe() -> None:
    """Dead letters are made over several ticks: an outcome is settled only when its own letter is durable."""
    world = world10()
    raw = world.open()
    raw.call(1, "queue.declare", queue="dead")
    way = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    _filled(world, *[b"%d" % n for n in range(600)], **way)
    talker = Talker(world)
    link = talker.receiver("q", credit=600, second=True)
    got = [delivery for delivery, _ in talker.received(link)]
    assert len(got) == 600
    gate = ManualGate()
    gate.applied = gate.durable = world.vhost.history.position
    world.broker.gates.append(gate)
    for delivery in got:
        delivery.update(Delivery.REJECTED)
    world.vhost.removals.left = 0
    talker.turn()
    assert _depth(world, "dead") == (600, 0) and _depth(world) == (0, 0)
    assert not any(delivery.settled for delivery in got)
    epoch, last = gate.durable = world.vhost.history.position
    gate.durable = Position(epoch, last - 1)
    talker.turn()
    assert 0 < sum(delivery.settled for delivery in got) < 600
    gate.durable = world.vhost.history.position
    talker.turn()
    assert all(delivery.settled for delivery in got)
    assert talker.refused is None


def test_settled_by_the_broker_a_message_is_gone_when_it_is_sent() -> None:
    world = world10()
    _filled(world, b"1", b"2")
    talker = Talker(world)
    link = talker.receiver("q", credit=1, settled=True)
    assert _bodies(talker, link) == [b"1"]
    assert _depth(world) == (1, 0)


@pytest.mark.parametrize("how", ["close", "detach", "session", "lost"])
def test_unsettled_messages_are_ready_again_after_a_detach(how: str) -> None:
    world = world10()
    _filled(world, b"1", b"2")
    talker = Talker(world)
    link = talker.receiver("q", credit=2)
    (first, _), _ = talker.received(link)
    talker.settle(first, Delivery.ACCEPTED)
    if how == "close":
        link.close()
    elif how == "detach":
        link.detach()
    elif how == "session":
        talker.session.close()
    else:
        talker.connection.lost(world.now)
    talker.turn() if how != "lost" else world.tick()
    assert _depth(world) == (1, 0)
    assert not world.vhost.queues["q"].consumers
    other = Talker(world)
    ((_, message),) = other.received(other.receiver("q", credit=5))
    assert (bytes(message.body), message.delivery_count) == (b"2", 1)


def test_deleting_a_queue_closes_its_links() -> None:
    world = world10()
    client = _filled(world, b"1")
    talker = Talker(world)
    link = talker.receiver("q", credit=2)
    client.call(1, "queue.delete", queue="q")
    talker.turn()
    told = detached(link)
    assert told is not None and told[0] == "amqp:resource-deleted"
    assert talker.refused is None


def test_an_exclusive_consumer_keeps_others_away_and_hears_of_it() -> None:
    world = world10()
    client = _filled(world, b"1")
    client.send(1, "basic.consume", queue="q", exclusive=True)
    talker = Talker(world)
    link = talker.receiver("q", credit=2)
    told = detached(link)
    assert told is not None and told[0] == "amqp:unauthorized-access"
    assert link.remote_source.address is None


@pytest.mark.parametrize(
    ("address", "condition"),
    [("none", "amqp:not-found"), ("/exchanges/amq.topic/k", "amqp:not-implemented")],
)
def test_a_source_that_cannot_be_refuses_the_link(address: str, condition: str) -> None:
    talker = Talker(world10())
    told = detached(talker.receiver(address))
    assert told is not None and told[0] == condition


def test_a_dynamic_source_is_a_temporary_queue_of_its_own() -> None:
    world = world10()
    talker = Talker(world)
    link = talker.receiver(None, credit=5)
    address = link.remote_source.address
    assert address.startswith("/queues/amq.gen-")
    talker.send(talker.sender(address), Message(body=b"reply"))
    assert _bodies(talker, link) == [b"reply"]
    other = Talker(world)
    told = detached(other.receiver(address))
    assert told is not None and told[0] == "amqp:resource-locked"
    link.close()
    talker.turn()
    assert not world.vhost.queues


def test_a_responder_may_send_to_the_requesters_temporary_queue() -> None:
    """As over 0-9-1: exclusivity restricts consumers only."""
    world = world10()
    asks, answers = Talker(world), Talker(world)
    link = asks.receiver(None, credit=5)
    replies = answers.sender(link.remote_source.address)
    assert detached(replies) is None
    (delivery,) = answers.send(replies, Message(body=b"reply"))
    assert delivery.remote_state == Delivery.ACCEPTED
    asks.turn()
    assert _bodies(asks, link) == [b"reply"]


def test_a_responder_replies_to_a_requester_of_0_9_1_directly() -> None:
    world = world10()
    asks = _filled(world, name="requests")
    asks.send(1, "basic.consume", queue=REPLY_TO, no_ack=True)
    asks.publish(1, b"?", routing_key="requests", properties=b"\x02\0" + write_shortstr(REPLY_TO))
    answers = Talker(world)
    ((_, request),) = answers.received(answers.receiver("requests", credit=1))
    answers.send(answers.sender(request.reply_to), Message(body=b"reply"))
    *_, delivered = asks.read()
    assert (delivered.name, delivered.body) == ("basic.deliver", b"reply")


def test_a_link_that_keeps_a_message_for_too_long_is_closed() -> None:
    world = world10(consumer_timeout=40_000)
    _filled(world, b"1", b"2")
    talker = Talker(world)
    slow, other = talker.receiver("q", credit=1), talker.receiver("q", name="other")
    ((delivery, _),) = talker.received(slow)
    world.pass_time(35)
    assert detached(slow) is None
    world.pass_time(15)
    talker.turn()
    told = detached(slow)
    assert told is not None and told[0] == "amqp:precondition-failed" and "40000 ms" in told[1]
    assert detached(other) is None and _depth(world) == (2, 0)
    talker.settle(delivery, Delivery.ACCEPTED)  # too late
    assert _depth(world) == (2, 0)


def test_a_client_that_does_not_read_gets_no_more_than_its_share() -> None:
    world = world10(unsent_max=50_000)
    _filled(world, *(b"x" * 1000 for _ in range(300)))
    talker = Talker(world)
    talker.reading = False
    link = talker.receiver("q", credit=300)
    unread = b"".join(talker.connection.take_output())
    assert 50_000 < len(unread) < 60_000
    talker.inbox += unread
    talker.reading = True
    talker.turn()
    assert len(_bodies(talker, link)) == 300


def test_a_message_too_large_for_its_receiver_closes_the_link() -> None:
    world = world10()
    _filled(world, b"1", b"x" * 1000, b"3")
    talker = Talker(world)
    link = talker.session.receiver("in")
    link.source.address = "q"
    link.max_message_size = 500
    link.open()
    link.flow(5)
    talker.turn()
    assert _bodies(talker, link) == [b"1"]
    told = detached(link)
    assert told is not None and told[0] == "amqp:link:message-size-exceeded"
    assert _depth(world) == (3, 0)
    assert len(_bodies(talker, talker.receiver("q", credit=5, name="other"))) == 3


def test_more_than_a_burst_comes_in_several_ticks() -> None:
    world = world10()
    _filled(world, *(b"%d" % n for n in range(BURST + 10)))
    talker = Talker(world)
    link = talker.receiver("q", credit=2 * BURST)
    assert len(_bodies(talker, link)) == BURST + 10


def test_a_link_of_a_higher_priority_gets_more_than_a_burst_before_others_get_any() -> None:
    world = world10()
    publisher = _filled(world)
    first, second = Talker(world), Talker(world)
    low = first.receiver("q", credit=2 * BURST)
    high = second.receiver("q", credit=2 * BURST, properties={symbol("rabbitmq:priority"): 5})
    publisher.raw(b"".join(message(1, b"%d" % n, "", "q") for n in range(BURST + 10)))
    second.turn()
    first.turn()
    assert (len(_bodies(second, high)), _bodies(first, low)) == (BURST + 10, [])
    high.close()
    second.turn()
    first.turn()
    assert len(_bodies(first, low)) == BURST + 10


def test_a_closed_session_window_stops_deliveries_until_it_opens() -> None:
    world = world10(unsent_max=10_000)
    _filled(world, *(b"x" * 1000 for _ in range(200)))
    talker = Talker(world, frame_max=2048, window=16_384)
    link = talker.receiver("q", credit=200)
    taken = 0
    for _ in range(200):
        came = len(_bodies(talker, link))
        if not came:
            break
        taken += came
        talker.turn()
    assert taken == 200


def test_unsent_messages_of_a_detached_link_do_not_stop_others() -> None:
    world = world10(unsent_max=20_000)
    _filled(world, *(b"x" * 1000 for _ in range(100)))
    talker = Talker(world, frame_max=512, window=1024)
    stopped = talker.receiver("q", credit=100)
    assert isinstance(talker.connection, Amqp10Connection)
    assert talker.connection.links.piled_up > 15_000
    stopped.close()
    talker.turn()
    assert talker.connection.links.piled_up == 0
    talker.session = talker.engine.session()
    talker.session.open()
    assert len(_bodies(talker, talker.receiver("q", credit=100, name="other"))) == 100


@PURE_ONLY
def test_a_message_that_cannot_be_sent_closes_only_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is wrong with the message: a failed tick would end the node, and then the next primary."""
    world = world10()
    _filled(world, b"1", b"2", b"3")
    payload = Outgoing._payload

    def poisoned(self: Outgoing, queue: Queue, entry: Entry) -> bytes:
        if entry[2].endswith(b"2\xce"):
            raise RuntimeError("no such message")
        return payload(self, queue, entry)

    monkeypatch.setattr(Outgoing, "_payload", poisoned)
    talker, other = Talker(world), Talker(world)
    talker.receiver("q", credit=10)
    assert talker.refused is not None and talker.refused[0] == "amqp:internal-error"
    assert _depth(world) == (3, 0)
    assert any("no such message" in line for line in world.logged)
    (delivery,) = other.send(other.sender("q"), Message(body=b"4"))
    assert delivery.remote_state == Delivery.ACCEPTED


def test_a_message_that_cannot_be_converted_is_given_as_octets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would block all messages behind it."""
    world = world10()
    _filled(world, b"1", b"2")

    def fails(listed: bytes) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr("broker.amqp10.conversion._translated", fails)
    talker = Talker(world)
    (_, first), (_, second) = talker.received(talker.receiver("q", credit=10))
    assert (bytes(first.body), bytes(second.body), first.durable) == (b"1", b"2", True)
    assert any("message 1:1 of queue 'q' is given as octets alone" in line for line in world.logged)


def test_many_sessions_with_shut_windows_pile_up_no_more_than_one() -> None:
    world = world10(unsent_max=20_000)
    _filled(world, *(b"x" * 1000 for _ in range(500)))
    talker = Talker(world, frame_max=512, window=1024)
    for number in range(50):
        session = talker.engine.session()
        session.incoming_capacity = 1024
        session.open()
        link = session.receiver(f"l{number}")
        link.source.address = "q"
        link.open()
        link.flow(10)
    talker.turn()
    assert isinstance(talker.connection, Amqp10Connection)
    assert 10_000 < talker.connection.links.piled_up < 25_000
    assert len(talker.connection.links.starving) > 20


def test_the_replication_id_is_sent_on_request() -> None:
    world = world10()
    _filled(world, b"1", b"2")
    talker = Talker(world)
    link = talker.receiver("q", credit=1, properties={symbol("x-replication-id"): True})
    ((_, message),) = talker.received(link)
    uuid = world.vhost.queues["q"].uuid.hex()
    assert message.annotations[symbol("x-replication-id")] == f"{uuid}:1:1"
    ((_, other),) = talker.received(talker.receiver("q", credit=1, name="other"))
    assert symbol("x-replication-id") not in other.annotations
    wrong = talker.receiver("q", name="wrong", properties={symbol("x-replication-id"): "yes"})
    talker.turn()
    assert wrong.remote_condition.name == "amqp:invalid-field"


def test_a_link_for_confirmed_messages_gets_them_once_all_gates_have_them() -> None:
    world = world10()
    _filled(world)
    gate = ManualGate()
    world.broker.gates.append(gate)
    gate.applied = gate.durable = world.vhost.history.position
    talker, other = Talker(world), Talker(world)
    only = {symbol("x-confirmed-only"): True}
    link = talker.receiver("q", credit=2, properties=only)
    sender = other.sender("q")
    other.send(sender, Message(body=b"1", durable=True), Message(body=b"2", durable=True))
    assert talker.received(link) == []
    link.drain(0)
    talker.turn()
    assert link.credit == 2, "credit comes back behind the messages"
    gate.applied = gate.durable = world.vhost.history.position
    talker.turn()
    assert [bytes(message.body) for _, message in talker.received(link)] == [b"1", b"2"]
    link.flow(5)
    other.send(sender, Message(body=b"3", durable=True))
    assert talker.received(link) == []
    link.detach()
    talker.turn()
    assert world.vhost.queues["q"].message_count == 3
    for name, told, settled in (("a", {symbol("x-confirmed-only"): 1}, False), ("b", only, True)):
        wrong = talker.receiver("q", name=name, properties=told, **({"settled": True} if settled else {}))
        talker.turn()
        assert wrong.remote_condition.name == "amqp:invalid-field"


def test_properties_of_0_9_1_and_the_time_that_is_left() -> None:
    world = world10()
    client = _filled(world)
    properties = b"\x91\x00\x0atext/plain\x02\x0510000"
    client.publish(1, b"1", routing_key="q", properties=properties)
    world.pass_time(4)
    talker = Talker(world)
    ((_, message),) = talker.received(talker.receiver("q", credit=1))
    assert (message.content_type, message.durable) == ("text/plain", True)
    assert 5.5 <= message.ttl <= 6.5


def test_filters_are_refused_rather_than_left_out() -> None:
    world = world10()
    _filled(world, b"1")
    talker = Talker(world)
    link = talker.session.receiver("filtered")
    link.source.address = "q"
    link.source.filter.put_dict({symbol("selector"): "colour = 'red'"})
    link.open()
    talker.turn()
    told = detached(link)
    assert told is not None and told[0] == "amqp:not-implemented"


def test_a_browser_sees_messages_and_takes_none() -> None:
    """`distribution-mode` copy. A drain says when it has seen all."""
    world = world10()
    client = _filled(world, *(b"%d" % n for n in range(5)))
    talker = Talker(world)
    browser = talker.session.receiver("browser")
    browser.source.address = "q"
    browser.source.distribution_mode = Terminus.DIST_MODE_COPY
    browser.open()
    browser.flow(3)
    talker.turn()
    assert browser.remote_source.distribution_mode == Terminus.DIST_MODE_COPY
    assert _bodies(talker, browser) == [b"0", b"1", b"2"] and browser.remote_snd_settle_mode == 1
    browser.drain(10)
    talker.turn()
    assert _bodies(talker, browser) == [b"3", b"4"] and browser.credit == 0
    browser.flow(5)
    client.publish(1, b"5", routing_key="q")
    talker.turn()
    assert _bodies(talker, browser) == [b"5"] and _depth(world) == (6, 0)
    client.call(1, "queue.delete", queue="q")
    talker.turn()
    told = detached(browser)
    assert told is not None and told[0] == "amqp:resource-deleted"


def test_transactions_are_refused() -> None:
    talker = Talker(world10())
    link = talker.session.sender("coordinator")
    link.target.type = 3
    link.open()
    talker.turn()
    told = detached(link)
    assert told is not None and told[0] == "amqp:not-implemented"


def test_the_next_active_consumer_first_gets_its_predecessors_messages() -> None:
    world = world10()
    _filled(world, b"1", b"2", b"3", **{"x-single-active-consumer": True})
    first, second = Talker(world), Talker(world)
    one = first.receiver("q", credit=2)
    other = second.receiver("q", credit=5)
    assert (_bodies(first, one), _bodies(second, other)) == ([b"1", b"2"], [])
    (line,) = world.vhost.shared.list_queues()
    assert line.active is not None
    assert (line.active.tag, line.active.sink.client) == (one.name, "127.0.0.1:40000")
    one.close()
    first.turn()
    second.turn()
    assert _bodies(second, other) == [b"1", b"2", b"3"]
    (line,) = world.vhost.shared.list_queues()
    assert line.active is not None and line.active.tag == other.name

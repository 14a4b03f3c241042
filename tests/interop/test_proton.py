"""Proton's own clients, as people have them, against a broker with real sockets."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("proton")

import kombu
from proton import Delivery, Message, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, LinkDetached, SendException

from broker.amqp10.connection import PROTOCOLS
from tests.broker.server.live import Live, live_broker
from tests.tls import Authority


@pytest.fixture
def broker(live: Live) -> Live:
    live.broker.protocols.update(PROTOCOLS)
    with kombu.Connection(live.url) as connection:
        kombu.Queue("q", durable=True)(connection.channel()).declare()
    return live


def connected(live: Live, **options: Any) -> BlockingConnection:
    return BlockingConnection(
        f"amqp://guest:guest@{live.host}:{live.port}", timeout=20, allowed_mechs="PLAIN", **options
    )


def test_a_blocking_sender_and_receiver(broker: Live) -> None:
    connection = connected(broker)
    sender = connection.create_sender("/queues/q")
    for number in range(50):
        told = sender.send(Message(id=number, body=f"text {number}", durable=True, properties={"n": number}))
        assert told.remote_state == Delivery.ACCEPTED
    receiver = connection.create_receiver("/queues/q", credit=20)
    for number in range(50):
        message = receiver.receive()
        assert (message.id, message.body, message.properties["n"]) == (number, f"text {number}", number)
        receiver.accept()
    connection.close()


def test_what_one_protocol_publishes_the_other_consumes(broker: Live) -> None:
    connection = connected(broker)
    with kombu.Connection(broker.url) as other:
        other.Producer().publish({"order": 1}, routing_key="q", serializer="json")
        receiver = connection.create_receiver("q")
        came = receiver.receive()
        assert (came.content_type, bytes(came.body)) == ("application/json", b'{"order": 1}')
        receiver.accept()
        connection.create_sender("q").send(
            Message(body=b'{"order": 2}', inferred=True, content_type="application/json")
        )
        receiver.close()
        back = other.SimpleQueue(kombu.Queue("q", durable=True)).get(timeout=20)
        assert back.payload == {"order": 2}
        back.ack()
    connection.close()


def test_a_link_to_nothing_is_told_why(broker: Live) -> None:
    connection = connected(broker)
    with pytest.raises(LinkDetached, match="no queue 'nothing' in vhost '/'"):
        connection.create_sender("/queues/nothing")
    with pytest.raises(SendException):
        connection.create_sender("/exchanges/amq.topic/nobody").send(Message(body="x"))
    connection.close()


def test_request_and_reply_by_a_dynamic_source(broker: Live) -> None:
    connection = connected(broker)
    replies = connection.create_receiver(None, dynamic=True)
    sender = connection.create_sender("q")
    sender.send(Message(body="question", reply_to=replies.link.remote_source.address, correlation_id="7"))
    requests = connection.create_receiver("q")
    request = requests.receive()
    requests.accept()
    connection.create_sender(None).send(
        Message(address=request.reply_to, correlation_id=request.correlation_id, body="answer")
    )
    answer = replies.receive()
    assert (answer.correlation_id, answer.body) == ("7", "answer")
    connection.close()


class Thousand(MessagingHandler):
    """Sends a thousand messages by callbacks and receives them, one of which is released once."""

    def __init__(self, url: str) -> None:
        super().__init__(prefetch=100, auto_accept=False)
        self.url = url
        self.sent = self.accepted = 0
        self.got: list[int] = []
        self.again: list[int] = []
        self.errors: list[str] = []

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, allowed_mechs="PLAIN", reconnect=False)
        event.container.create_sender(connection, "/queues/q")
        event.container.create_receiver(connection, "/queues/q")

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.sent < 1000:
            event.sender.send(Message(body=self.sent))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1

    def on_message(self, event: Any) -> None:
        number = event.message.body
        if number == 500 and not self.again:
            self.again.append(number)
            self.release(event.delivery)
            return
        self.accept(event.delivery)
        self.got.append(number)
        if len(self.got) == 1000:
            event.connection.close()

    def on_error(self, event: Any) -> None:
        self.errors.append(str(event))
        event.container.stop()

    on_transport_error = on_connection_error = on_link_error = on_error


def test_a_container_with_callbacks(broker: Live) -> None:
    handler = Thousand(f"amqp://guest:guest@{broker.host}:{broker.port}")
    Container(handler).run()
    assert not handler.errors
    assert (handler.accepted, sorted(handler.got)) == (1000, list(range(1000)))
    first = [number for number in handler.got if number != 500]
    assert first == sorted(first)


def test_over_tls(tmp_path: Any) -> None:
    authority = Authority(tmp_path)
    tls = authority.node("node", "localhost")
    with live_broker(lambda: tls.clients) as live:
        live.broker.protocols.update(PROTOCOLS)
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(authority.ca))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        connection = BlockingConnection(
            f"amqps://guest:guest@localhost:{live.tls_port}",
            timeout=20,
            allowed_mechs="PLAIN",
            ssl_domain=domain,
        )
        receiver = connection.create_receiver(None, dynamic=True)
        connection.create_sender(receiver.link.remote_source.address).send(Message(body="secret"))
        assert receiver.receive().body == "secret"
        connection.close()

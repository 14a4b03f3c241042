"""Requests and replies over three federated nodes as real processes, by other people's clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kombu
import pika
import pika.exceptions
import pytest

from broker.security.authenticator import hash_password
from tests.failover.nodes.cluster import Cluster, local_places
from tests.failover.nodes.pair import PATIENCE, Pair, channel_of
from tests.failover.test_federation import put

LOGIN = ("federation.logins.net.username=net", "federation.logins.net.password=a word")
KOMBU: Any = kombu


def joined(down: Cluster, at: str, up: Cluster, there: str, name: str) -> None:
    """`down` has `up` as its upstream, and gives it the requests that nobody answers here."""
    user = {"password_hash": hash_password("a word"), "tags": ["federation"]}
    rights = {"configure": r"^amq\.link\.", "write": r"^(services|amq\.nodes)$", "read": r"^amq\.nodes$"}
    assert up.ask(there, "define", changes=[put("user", "net", user, ""), put("permission", "net", rights)])[
        "ok"
    ]
    upstream = {"addresses": up.list.split(","), "login": "net", "vhost": "/"}
    agent = {"exchange": "services", "upstream": name, "consume-mode": "none", "forward-mode": "unmatched"}
    here = [put("federation-upstream", name, upstream), put("federation-agent", f"services@{name}", agent)]
    assert down.ask(at, "define", changes=here)["ok"]


def knows(cluster: Cluster, at: str, *nodes: str) -> bool:
    found = cluster.answer(at)["federation"]
    ways = {line["node"] for line in found["routes"] if line["state"] == "running"}
    return ways == set(nodes) and all(agent["state"] == "running" for agent in found["agents"])


@pytest.mark.system
def test_replies_find_their_way_over_three_nodes_and_a_failover(tmp_path: Path) -> None:
    far = Cluster(tmp_path / "far", local_places(("far",)), "federation.node=far")
    hub = Cluster(tmp_path / "hub", local_places(("hub",)), "federation.node=hub", *LOGIN)
    leaf = Pair(tmp_path / "leaf", "federation.node=leaf", *LOGIN)
    with far, hub, leaf:
        far.start("far", brokers="")
        hub.start("hub", brokers="")
        leaf.whole()
        for cluster, at in ((far, "far"), (hub, "hub"), (leaf, "left")):
            with channel_of(cluster, at) as channel:  # type: ignore[arg-type]
                channel.exchange_declare("services", "direct", durable=True)
        joined(hub, "hub", far, "far", "far")
        joined(leaf, "left", hub, "hub", "hub")
        leaf.until(lambda: knows(leaf, "left", "hub", "far"), "leaf to know all")
        far.until(lambda: knows(far, "far", "hub", "leaf"), "far to know all")
        ask_by_kombu(far, leaf)
        ask_by_proton(far, leaf)
        with channel_of(leaf, "right") as channel:
            channel.confirm_delivery()
            with pytest.raises(pika.exceptions.UnroutableError):
                channel.basic_publish("", "replies@nowhere", b"", mandatory=True)


def ask_by_kombu(far: Cluster, leaf: Pair) -> None:
    """The reply queue has a name that the client chose, and the message names only that."""
    service = KOMBU.Connection(f"amqp://guest:guest@{far.addresses['far']}//")
    work = KOMBU.Queue("work", KOMBU.Exchange("services", "direct"), "square", durable=True)(
        service.channel()
    )
    work.declare()

    def client(at: str) -> tuple[Any, Any]:
        connection = KOMBU.Connection(f"amqp://guest:guest@{leaf.addresses[at]}//")
        channel = connection.channel()
        replies = KOMBU.Queue("replies", durable=True)(channel)
        replies.queue_declare()
        return KOMBU.Producer(channel), replies

    producer, replies = client("left")
    for number in range(6):
        producer.publish(str(number), exchange="services", routing_key="square", reply_to="replies")
        request = got(leaf, work)
        assert request.properties["reply_to"] == "replies@leaf"
        if number == 3:  # the reply is on its way meanwhile
            leaf.kill("left")
        KOMBU.Producer(service.channel()).publish(
            str(int(request.body) ** 2), exchange="", routing_key=request.properties["reply_to"]
        )
        if number == 3:
            assert leaf.ask("right", "promote")["ok"]
            producer, replies = client("right")
        assert int(got(leaf, replies).body) == number**2
    service.close()


def got(leaf: Pair, queue: Any) -> Any:
    found: list[Any] = []

    def there() -> bool:
        if (message := queue.get(no_ack=True)) is not None:
            found.append(message)
        return bool(found)

    leaf.until(there, "a message", PATIENCE)
    return found[0]


def ask_by_proton(far: Cluster, leaf: Pair) -> None:
    """The reply queue is a dynamic source."""
    proton = pytest.importorskip("proton")
    from proton.utils import BlockingConnection

    with channel_of(far, "far") as channel:  # type: ignore[arg-type]
        channel.queue_declare("cubes", durable=True)
        channel.queue_bind("cubes", "services", "cube")
    service = BlockingConnection(f"guest:guest@{far.addresses['far']}", timeout=PATIENCE)
    work = service.create_receiver("/queues/cubes")
    client = BlockingConnection(f"guest:guest@{leaf.addresses['right']}", timeout=PATIENCE)
    replies = client.create_receiver(None, dynamic=True)
    sender = client.create_sender("/exchanges/services/cube")
    for number in range(3):
        sender.send(proton.Message(number, reply_to=replies.link.remote_source.address))
        request = work.receive(PATIENCE)
        work.accept()
        assert request.reply_to.endswith("%40leaf")
        service.create_sender(request.reply_to, name=f"reply {number}").send(proton.Message(request.body**3))
        assert replies.receive(PATIENCE).body == number**3
        replies.accept()
    client.close()
    service.close()

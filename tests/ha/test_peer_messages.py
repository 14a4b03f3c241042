"""`amq.peer`: what the nodes of a pair say to each other, who gets it, and what comes of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.errors import AccessRefused
from ha.core.errors import LinkError
from ha.core.wire.peer_message import LARGEST, PeerMessage, parse_peer_message
from tests.bad_inputs.test_link import Liar
from tests.ha.client import Client
from tests.ha.election.pair.test_controller import up
from tests.ha.pair import Host, Pair

PEER_MESSAGE = 17


class Console:
    """A queue that is exclusive to a connection of an administrator."""

    def __init__(self, host: Host, pattern: str = "#") -> None:
        self.queue = host.running.vhost.declare_queue("watch", owner=self, exclusive=True)
        host.running.vhost.bind_queue("watch", "amq.peer", pattern, owner=self)
        self._seen = 0

    def news(self) -> list[dict[str, Any]]:
        """What came since the last call."""
        entries = self.queue.held_entries()[self._seen :]
        self._seen += len(entries)
        return [json.loads(raw[raw.index(b"{") : raw.rindex(b"}") + 1]) for *_, raw in entries]


def states(news: list[dict[str, Any]], name: str) -> list[str]:
    return [told["state"] for told in news if told["node"] == name]


def test_a_console_sees_the_controllers_of_both_nodes_change() -> None:
    pair = up()
    a, b = pair.hosts
    console = Console(a, "controller.*")
    client = Client("c", a, pair.now)
    pair.run(0.1)
    client.begin(pair.now)
    pair.run(0.5)
    told = console.news()
    assert [(news["node"], news["clients"], news["state"]) for news in told] == [("a", 1, "active")]
    assert told[0]["role"] == "primary" and told[0]["epoch"] == a.running.core.epoch

    pair.kill(b)
    pair.run(1.0)
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    pair.run(0.2)
    assert states(console.news(), "b")[-1] == "passive"


def test_an_order_and_a_switchover_are_seen() -> None:
    pair = up()
    a, b = pair.hosts
    assert pair.ask(a, "controller", do="passive")["ok"]
    pair.until(lambda: (a.status, b.status) == ("ready", "active"))
    console = Console(b)
    pair.kill(a)
    pair.run(0.5)
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    pair.run(0.2)
    assert states(console.news(), "a")[-1] == "passive"


def test_each_message_comes_once() -> None:
    pair = up()
    console = Console(pair[0], "x.y")
    pair[1].running.core.messages.publish("x.y", {"n": 1})
    pair[0].running.core.messages.publish("x.y", {"n": 2})
    pair.run(0.2)
    assert sorted((told["node"], told["n"]) for told in console.news()) == [("a", 2), ("b", 1)]


def test_a_request_gets_the_answer_of_the_other_node() -> None:
    pair = up()
    answer = pair.ask(pair[1], "controller", do="status")
    others = answer["status"]["controller"]["others"]
    assert {name: (told["role"], told["state"]) for name, told in others.items()} == {
        "a": ("primary", "active"),
    }  # fmt: skip
    pair[0].frozen = True
    begun = pair.now
    answer = pair.ask(pair[1], "controller", do="status")
    assert answer["status"]["controller"]["others"] == {}
    assert 0.9 < pair.now - begun < 1.3
    pair.kill(pair[0])
    pair.run(0.1)
    begun = pair.now
    assert pair.ask(pair[1], "controller", do="status")["status"]["controller"]["others"] == {}
    assert pair.now - begun < 0.5


def test_nothing_goes_to_another_cluster_nor_comes_from_there() -> None:
    pair = up()
    console = Console(pair[0], "x")
    liar = Liar(pair, pair[0])
    liar.say(PEER_MESSAGE, PeerMessage("x", "far", "f" * 32, {"n": 1}).encode())
    assert liar.closed is None and console.news() == []
    liar.say(PEER_MESSAGE, PeerMessage("x", "far", pair[0].running.core.cluster_id or "", {"n": 1}).encode())
    assert [told["node"] for told in console.news()] == ["far"]


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 3000, b" " * (LARGEST + 1),
        json.dumps({"key": "", "from": "x", "cluster": "", "body": {}}).encode(),
        json.dumps({"key": "k", "from": "x", "cluster": "", "body": []}).encode(),
        json.dumps({"key": "k", "from": "x", "cluster": "", "body": {}, "asks": -1}).encode(),
        json.dumps({"key": "k", "from": "x", "cluster": "", "body": {}, "answers": "one"}).encode(),
    ],
)  # fmt: skip
def test_what_is_no_message_costs_the_connection(payload: bytes) -> None:
    pair = up()
    liar = Liar(pair, pair[0])
    liar.say(PEER_MESSAGE, payload)
    assert liar.closed is not None and liar.closed.code == 501
    assert "\n" not in liar.closed.text and "message" in liar.closed.text


def test_an_answer_that_nobody_asked_for_changes_nothing() -> None:
    pair = up()
    liar = Liar(pair, pair[0])
    cluster = pair[0].running.core.cluster_id or ""
    liar.say(PEER_MESSAGE, PeerMessage("controller.status", "x", cluster, {}, answers=1).encode())
    assert liar.closed is None
    liar.say(PEER_MESSAGE, PeerMessage("unknown", "x", cluster, {}, asks=7).encode())
    assert json.loads(liar.seen[-1].payload) == {
        "key": "unknown", "from": "a", "cluster": cluster, "body": {}, "answers": 7,
    }  # fmt: skip


def test_only_exclusive_queues_and_no_exchanges_are_bound_and_nothing_is_forwarded() -> None:
    pair = Pair(1)
    pair.start()
    pair.run(0.1)
    vhost = pair[0].running.vhost
    vhost.declare_queue("shared", owner=pair, durable=True)
    with pytest.raises(AccessRefused, match="only exclusive queues"):
        vhost.bind_queue("shared", "amq.peer", "#", owner=pair)
    for ends in (("amq.peer", "amq.topic"), ("amq.topic", "amq.peer")):
        with pytest.raises(AccessRefused, match="no exchange may be bound"):
            vhost.bind_exchange(*ends, "#")
    with pytest.raises(AccessRefused, match="internal exchange"):
        vhost.route("amq.peer", "x")
    console = Console(pair[0])
    vhost.declare_exchange("x", "topic", durable=True, arguments={"alternate-exchange": "amq.peer"})
    assert vhost.route("x", "nowhere").queues == ()
    assert console.news() == []


@pytest.mark.parametrize("text", [
    '{"key": "%s", "from": "x", "cluster": "c", "body": {}}' % ("\U0001f600" * 100),
    '{"key": "k", "from": "x", "cluster": "c", "body": {"x": NaN}}',
    '{"key": "k", "from": "x", "cluster": "c", "body": {"x": -Infinity}}',
])  # fmt: skip
def test_a_key_too_long_and_what_is_no_json_are_refused(text: str) -> None:
    with pytest.raises(LinkError):
        parse_peer_message(text.encode())


def test_a_node_with_a_long_name_is_told_under_a_key_that_fits() -> None:
    pair = up()
    a, b = pair.hosts
    pair.kill(b)
    b.called = "\U0001f600" * 100
    console = Console(a, "controller.#")
    pair.declare(a, "events")
    a.running.vhost.bind_queue("events", "amq.failover", "#", owner=pair)
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    pair.run(0.2)
    events = a.running.vhost.queues["events"]
    assert console.news() and events.message_count
    for queue in (console.queue, events):
        assert max(len(envelope.routing_key.encode()) for _, envelope, _ in queue.held_entries()) <= 255

"""Operators' operations on a pair: done on both nodes, refused as a client's methods are, once through a
failover."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from broker.amqp091.codec.content import write_content
from broker.model.values import Reason
from broker.security.identity import User, default_users
from ha.adapter import codes
from ha.adapter.management.operations import moving
from tests.ha.client import Client
from tests.ha.pair import STEP, Host, Pair

SERVING = ("active", "standalone")


def a_pair(**settings: Any) -> Pair:
    pair = Pair(**settings)
    pair.up()
    return pair


def done(pair: Pair, command: str, **args: Any) -> dict[str, Any]:
    """The answer without its first two keys; it must be yes."""
    answer = pair.ask(serving(pair), command, **args)
    assert answer.pop("ok"), answer
    assert answer.pop("reason") == ""
    return answer


def refused(pair: Pair, command: str, **args: Any) -> str:
    answer = pair.ask(serving(pair), command, **args)
    assert not answer["ok"], answer
    return f"{answer.get('amqp', '')} {answer['reason']}"


def serving(pair: Pair) -> Host:
    return next(host for host in pair.hosts if host.node is not None and host.status in SERVING)


def test_objects_are_made_and_deleted_on_both_nodes() -> None:
    pair = a_pair()
    a, b = pair.hosts
    assert done(pair, "declare-queue", name="q", durable=True, arguments={"x-max-length": 5}) == {
        "created": True
    }
    assert done(pair, "declare-queue", name="q", durable=True, arguments={"x-max-length": 5}) == {
        "created": False
    }
    assert done(pair, "declare-exchange", name="x", type="topic") == {"created": True}
    key = done(pair, "bind", source="x", destination="q", routing_key="a.~")["properties_key"]
    assert key == "a.%7E"
    other = done(pair, "bind", source="x", destination="q", arguments={"n": 1})["properties_key"]
    assert other.startswith("~") and len(other) > 20
    assert done(pair, "bind", source="amq.fanout", destination="x", destination_type="exchange")["created"]
    assert pair.fingerprint(a) == pair.fingerprint(b)
    for named in (key, other):
        done(pair, "unbind", source="x", destination="q", properties_key=named)
    assert "no such binding" in refused(pair, "unbind", source="x", destination="q", properties_key=key)
    pair.publish(a, "q", "abc")
    assert done(pair, "purge", name="q") == {"messages": 3}
    done(pair, "delete-exchange", name="x", if_unused=True)
    pair.publish(a, "q", "d")
    assert refused(pair, "delete-queue", name="q", if_empty=True).startswith("406 PRECONDITION_FAILED")
    assert done(pair, "delete-queue", name="q") == {"messages": 1}
    assert "q" not in b.running.vhost.queues and pair.fingerprint(a) == pair.fingerprint(b)


@pytest.mark.parametrize(("command", "args", "reason"), [
    ("declare-queue", {"name": ""}, "'name' is empty"),
    ("declare-queue", {"name": "x" * 256}, "'name' is longer than 255 octets"),
    ("declare-queue", {"name": "\ud800"}, "'name' must be a string"),
    ("declare-queue", {"name": "q", "arguments": {"a": 1 << 70}}, "a number does not fit into 64 bits"),
    ("declare-queue", {"name": "q", "arguments": {"x-max-length": "no"}}, "406 PRECONDITION_FAILED"),
    ("declare-queue", {"name": "amq.q"}, "403 ACCESS_REFUSED"),
    ("declare-queue", {"name": "q", "vhost": "nowhere"}, "404 NOT_FOUND - no vhost 'nowhere'"),
    ("declare-queue", {"name": "q", "color\x1b": 1}, r"there is no argument 'color\x1b'"),
    ("declare-exchange", {"name": "x", "type": "no"}, "'type' must be one of direct"),
    ("delete-queue", {"name": "none"}, "404 NOT_FOUND - no queue 'none' in vhost '/'"),
    ("delete-exchange", {"name": "none"}, "404 NOT_FOUND - no exchange 'none' in vhost '/'"),
    ("delete-exchange", {"name": "amq.topic"}, "403 ACCESS_REFUSED"),
    ("bind", {"source": "none", "destination": "none"}, "404 NOT_FOUND"),
    ("purge", {"name": "none"}, "404 NOT_FOUND"),
    ("get", {"name": "q", "count": 0}, "'count' must be a whole number from 1 to 10000"),
    ("get", {"name": "q", "ackmode": "maybe"}, "'ackmode' must be one of ack_requeue_true"),
    ("publish", {"exchange": "none", "payload": ""}, "404 NOT_FOUND - no exchange 'none'"),
    ("publish", {"payload": "%", "payload_encoding": "base64"}, "'payload' is not base64"),
    ("publish", {"payload": "", "properties": {"delivery_mode": "2"}}, "delivery_mode must be a number"),
    ("publish", {"payload": "", "properties": {"expiration": "soon"}}, "406 PRECONDITION_FAILED"),
    ("publish", {"payload": "", "properties": {"colour": 1}}, "there is no 'colour'"),
    ("publish", {"payload": "", "properties": {"headers": {"k": "\ud800"}}}, "a value is no text"),
    ("move", {"name": "none", "to": "none"}, "404 NOT_FOUND"),
    ("close-connection", {"name": "nobody"}, "404 NOT_FOUND - no connection 'nobody'"),
])  # fmt: skip
def test_what_is_wrong_is_refused_in_one_line(command: str, args: dict[str, Any], reason: str) -> None:
    pair = Pair(1)
    pair.start()
    answer = pair.ask(pair[0], command, **args)
    assert not answer["ok"]
    assert reason in f"{answer.get('amqp', '')} {answer['reason']}"


def test_messages_are_got_in_each_mode() -> None:
    pair = a_pair()
    done(pair, "declare-queue", name="dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    done(pair, "declare-queue", name="q", durable=True, arguments=arguments)
    properties = {
        "delivery_mode": 2, "headers": {"n": 1, "deep": {"list": [True, None, 1.5, "t"]}},
        "correlation_id": "c", "timestamp": 1700000000,
        "priority": 3,
    }  # fmt: skip
    for body in ("één", "two"):
        assert done(pair, "publish", routing_key="q", payload=body, properties=properties) == {"routed": True}
    octets = {"payload": b64encode(b"\xff\0").decode(), "payload_encoding": "base64"}
    done(pair, "publish", routing_key="q", **octets)
    assert done(pair, "publish", routing_key="nowhere", payload="") == {"routed": False}
    found = done(pair, "get", name="q", count=10)["messages"]
    assert [(m["payload"], m["payload_encoding"], m["message_count"], m["redelivered"]) for m in found] == [
        ("één", "string", 2, False), ("two", "string", 1, False), (octets["payload"], "base64", 0, False)
    ]  # fmt: skip
    assert found[0]["properties"] == properties and found[0]["payload_bytes"] == 5
    cut = done(pair, "get", name="q", count=1, truncate=3)["messages"]
    assert [(m["payload"], m["payload_bytes"], m["redelivered"]) for m in cut] == [("é", 5, True)]
    assert len(done(pair, "get", name="q", count=1, ackmode="ack_requeue_false")["messages"]) == 1
    assert len(done(pair, "get", name="q", count=1, ackmode="reject_requeue_false")["messages"]) == 1
    (dead,) = done(pair, "get", name="dead", encoding="base64")["messages"]
    assert dead["payload"] == b64encode(b"two").decode()
    assert dead["properties"]["headers"]["x-death"][0]["reason"] == "rejected"
    counts = pair[0].running.vhost.queues["q"].counts
    assert (counts.publish, counts.get, counts.redeliver, counts.ack) == (3, 6, 3, 1)
    totals = pair[0].running.vhost.counts["amqp091"].ended
    assert (totals.publish, totals.return_unroutable, totals.get) == (4, 1, 7)
    pair.kill(pair[0])
    pair.run(0.1)
    assert pair.ask(pair[1], "promote")["ok"]
    assert [m["payload"] for m in done(pair, "get", name="q", count=10)["messages"]] == [octets["payload"]]


def test_a_published_message_waits_at_a_delayed_message_exchange() -> None:
    pair = a_pair()
    done(pair, "declare-queue", name="q", durable=True)
    arguments = {"x-delayed-type": "direct"}
    done(pair, "declare-exchange", name="later", type="x-delayed-message", durable=True, arguments=arguments)
    done(pair, "bind", source="later", destination="q", routing_key="k")
    message = {"exchange": "later", "routing_key": "k", "payload": "late"}
    properties = {"headers": {"x-delay": 500}, "delivery_mode": 2}
    assert done(pair, "publish", **message, properties=properties) == {"routed": True}
    (inner,) = set(pair[0].running.vhost.queues) - {"q"}
    for command in ("delete-queue", "purge", "get"):
        assert refused(pair, command, name=inner).startswith("405 RESOURCE_LOCKED"), command
    assert refused(pair, "move", name=inner, to="q").startswith("405 RESOURCE_LOCKED")
    assert not done(pair, "get", name="q")["messages"]
    pair.run(0.6)
    assert [m["payload"] for m in done(pair, "get", name="q")["messages"]] == ["late"]


def test_a_large_message_needs_a_limit() -> None:
    pair = Pair(1)
    pair.start()
    done(pair, "declare-queue", name="q")
    vhost = pair[0].running.vhost
    framed = write_content({}, b"x" * (5 << 20), 131072)
    vhost.publish(
        vhost.route("", "q"), [framed.raw], persistent=False, channel=1, largest_frame=framed.largest
    )
    assert "5242880 octets" in refused(pair, "get", name="q", ackmode="ack_requeue_false")
    (message,) = done(pair, "get", name="q", truncate=10)["messages"]
    assert message["payload"] == "x" * 10 and message["payload_bytes"] == 5 << 20
    done(pair, "declare-queue", name="few")
    pair.publish(pair[0], "few", "a" * 250)
    vhost.publish(
        vhost.route("", "few"), [framed.raw], persistent=False, channel=1, largest_frame=framed.largest
    )
    assert len(done(pair, "get", name="few", count=500)["messages"]) == 250
    assert [(q.message_count, q.unacked_count) for q in vhost.queues.values()] == [(1, 0), (251, 0)]


@pytest.mark.parametrize("at", range(0, 12, 2))
def test_a_move_loses_and_doubles_nothing_in_a_failover(at: int) -> None:
    """The primary fails so many steps after the move begins, and the rest is moved by the other node."""
    pair = a_pair()
    a, b = pair.hosts
    letters = "abcdefghijklmnopqrstuvwxyz" * 60
    for name in ("source", "target"):
        done(pair, "declare-queue", name=name, durable=True)
    pair.publish(a, "source", letters)
    pair.run(0.2)
    answers: list[dict[str, Any]] = []
    a.running.manage("move", {"name": "source", "to": "target"}, answers.append, pair.now)
    for _ in range(at):
        pair.step()
        pair.now += STEP
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    assert pair.contents(b, "target") + pair.contents(b, "source") == letters
    if answers:
        assert len(pair.contents(b, "target")) == len(letters)
    done(pair, "move", name="source", to="target")
    assert pair.contents(b, "target") == letters and not pair.contents(b, "source")
    assert b.running.vhosts.history.left[Reason.MOVED] <= len(letters)


def test_a_long_move_goes_on_in_pieces() -> None:
    """Clients have their turns in between, and the batches wait for the backup."""
    pair = a_pair()
    a, b = pair.hosts
    for name in ("q", "t"):
        done(pair, "declare-queue", name=name, durable=True)
    for _ in range(6 * moving.RUNS):
        pair.publish(a, "q", "x")
    pair.run(0.2)
    pair.hold(a, b)
    answers: list[dict[str, Any]] = []
    a.running.manage("move", {"name": "q", "to": "t"}, answers.append, pair.now)
    pair.step()
    assert a.running.vhost.queues["t"].message_count == moving.RUNS
    pair.run(0.2)
    assert a.running.vhost.queues["t"].message_count == moving.AHEAD * moving.RUNS and not answers
    pair.heal()
    pair.until(lambda: bool(answers))
    assert answers[0]["moved"] == 6 * moving.RUNS == len(pair.contents(b, "t"))


def test_a_move_stops_at_a_full_queue() -> None:
    pair = a_pair()
    done(pair, "declare-queue", name="q")
    done(pair, "declare-queue", name="full", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    pair.publish(pair[0], "q", "abcd")
    assert done(pair, "move", name="q", to="full") == {"moved": 2, "left": 2, "full": True}
    assert done(pair, "move", name="q", to="full", count=1) == {"moved": 0, "left": 2, "full": True}
    assert "the source and the target" in refused(pair, "move", name="q", to="q")
    assert done(pair, "publish", routing_key="full", payload="") == {"routed": False, "rejected": True}


def test_a_user_does_what_its_permissions_say() -> None:
    users = (*default_users(), User("conf", password="x"))
    pair = Pair(1)
    pair[0].users = users
    pair.start()
    changes = [
        {"action": "put", "kind": "user", "name": "ann",
         "value": {"password_hash": "", "tags": ["management"]}},
        {"action": "put", "kind": "vhost", "name": "other", "value": {}},
        {"action": "put", "kind": "permission", "vhost": "/", "name": "ann",
         "value": {"configure": "^aq", "write": "^aq|^amq.default$", "read": "^aq"}},
    ]  # fmt: skip
    assert pair.ask(pair[0], "define", changes=changes)["ok"]
    done(pair, "declare-queue", name="aq", by="ann")
    done(pair, "declare-queue", name="other", by="conf")
    for command, args in (
        ("declare-queue", {"name": "b"}), ("delete-queue", {"name": "other"}), ("purge", {"name": "other"}),
        ("get", {"name": "other"}), ("move", {"name": "other", "to": "aq"}),
        ("bind", {"source": "amq.fanout", "destination": "aq"}),
        ("publish", {"exchange": "amq.topic", "payload": ""}), ("declare-exchange", {"name": "b"}),
        ("close-connection", {"user": "guest"}),
    ):  # fmt: skip
        assert refused(pair, command, by="ann", **args).startswith("403 ACCESS_REFUSED"), command
    assert refused(pair, "declare-queue", name="aq", vhost="other", by="ann").startswith("530 NOT_ALLOWED")
    assert refused(pair, "purge", name="aq", by="nobody").startswith("403")
    user = {"user_id": "guest"}
    assert refused(pair, "publish", routing_key="aq", payload="", properties=user, by="ann").startswith("406")
    assert done(pair, "publish", routing_key="aq", payload="", properties={"user_id": "ann"}, by="ann")[
        "routed"
    ]


def test_topic_permissions_hold_for_operations() -> None:
    pair = Pair(1)
    pair.start()
    everything = {"configure": "", "write": ".*", "read": ".*"}
    changes = [
        {"action": "put", "kind": "user", "name": "ann", "value": {"password_hash": "", "tags": []}},
        {"action": "put", "kind": "permission", "vhost": "/", "name": "ann", "value": everything},
        {"action": "put", "kind": "topic-permission", "vhost": "/", "name": "ann/amq.topic",
         "value": {"write": "^w", "read": "^r"}},
    ]  # fmt: skip
    assert pair.ask(pair[0], "define", changes=changes)["ok"]
    done(pair, "declare-queue", name="q")
    ends = {"source": "amq.topic", "destination": "q", "by": "ann"}
    done(pair, "bind", **ends, routing_key="r.#")
    assert "access to topic 'w'" in refused(pair, "bind", **ends, routing_key="w")
    message = {"exchange": "amq.topic", "payload": "", "by": "ann"}
    done(pair, "publish", **message, routing_key="w")
    copies = {"headers": {"CC": ["r"]}}
    assert "access to topic 'r'" in refused(pair, "publish", **message, routing_key="r")
    assert "access to topic 'r'" in refused(pair, "publish", **message, routing_key="w", properties=copies)
    assert refused(pair, "define", changes=changes[:1], by="ann").startswith("403 ACCESS_REFUSED")


def test_an_operator_over_amqp_cannot_say_who_asks() -> None:
    pair = Pair(1)
    pair.start()
    answers: list[dict[str, Any]] = []
    question = json.dumps({"command": "purge", "args": {"name": "q", "by": "guest"}}).encode()
    pair[0].running._questions.heard(question, answers.append, pair.now, "nobody")
    pair.run(0.1)
    assert [answer["reason"] for answer in answers] == ["ACCESS_REFUSED - no user 'nobody'"]
    question = json.dumps({"command": "declare-queue", "args": {"name": "q\x1b"}}).encode()
    pair[0].running._questions.heard(question, answers.append, pair.now, "guest", "192.0.2.1:5")
    pair.run(0.1)
    assert pair[0].told(codes.OPERATION_DONE) == [r"'guest' from 192.0.2.1:5: declare-queue name='q\x1b'"]


def test_a_connection_is_closed_with_a_reason() -> None:
    pair = a_pair()
    client, other = Client("c", pair[0], pair.now), Client("d", pair[0], pair.now)
    pair.run(0.1)
    client.pump(pair.now), other.pump(pair.now)
    # Both have the address that the test gives them, so both are meant.
    assert done(pair, "close-connection", name="127.0.0.1:40000 -> a", reason="go\x1bne") == {"closed": 2}
    assert client.pump(pair.now) == ["c: connection close 320 CONNECTION_FORCED - go\x1bne"]
    assert any(r"closed by root: go\x1bne" in line for line in pair[0].log)


def test_operations_wait_while_clients_are_paused() -> None:
    pair = a_pair()
    a, _ = pair.hosts
    answers: list[dict[str, Any]] = []
    a.running.broker.pause_input()
    a.running.manage("declare-queue", {"name": "q"}, answers.append, pair.now)
    pair.run(0.1)
    assert not answers and "q" not in a.running.vhost.queues
    a.running.broker.resume_input()
    pair.until(lambda: bool(answers))
    assert answers.pop()["created"]
    a.running.broker.pause_input()
    a.running.manage("declare-queue", {"name": "late"}, answers.append, pair.now)
    pair.run(0.1)
    assert pair.ask(a, "switchover")["ok"]
    pair.run(0.1)
    assert answers[0]["code"] == "node-not-serving" and "handed over to b" in answers[0]["reason"]
    assert "late" not in pair[1].running.vhost.queues

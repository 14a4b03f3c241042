"""Exchanges and bindings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.exceptions import UnroutableError

from tests.compatibility.clients import cut_off, drained, private, refused

New = Callable[[str], str]


def bound(channel: Any, exchange: str, key: str = "", arguments: Any = None) -> str:
    queue = private(channel)
    channel.queue_bind(queue, exchange, key, arguments)
    return queue


def test_default_exchange(channel: Any) -> None:
    queue = private(channel)
    channel.basic_publish("", queue, b"x")
    assert drained(channel, queue) == [b"x"]
    with refused(403, "operation not permitted on the default exchange"):
        channel.queue_bind(queue, "", "k")


def test_direct(channel: Any, new: New) -> None:
    name = new("x")
    channel.exchange_declare(name, "direct")
    one, both = bound(channel, name, "a"), bound(channel, name, "a")
    channel.queue_bind(both, name, "b")
    for key in ("a", "b", "c"):
        channel.basic_publish(name, key, key.encode())
    assert (drained(channel, one), drained(channel, both)) == ([b"a"], [b"a", b"b"])


def test_fanout(channel: Any, new: New) -> None:
    name = new("x")
    channel.exchange_declare(name, "fanout")
    queues = [bound(channel, name, key) for key in ("", "ignored")]
    channel.queue_bind(queues[0], name, "twice")
    channel.basic_publish(name, "any", b"x")
    assert [drained(channel, queue) for queue in queues] == [[b"x"], [b"x"]]


def test_topic(channel: Any, new: New) -> None:
    name = new("x")
    channel.exchange_declare(name, "topic")
    queues = {pattern: bound(channel, name, pattern) for pattern in ("#", "*", "a.*", "a.#", "#.c", "a.b")}
    for key in ("a", "a.b", "a.b.c", ""):
        channel.basic_publish(name, key, key.encode())
    assert {pattern: drained(channel, queue) for pattern, queue in queues.items()} == {
        "#": [b"a", b"a.b", b"a.b.c", b""], "*": [b"a"], "a.*": [b"a.b"], "a.#": [b"a", b"a.b", b"a.b.c"],
        "#.c": [b"a.b.c"], "a.b": [b"a.b"],
    }  # fmt: skip


def test_headers(channel: Any, new: New) -> None:
    name = new("x")
    channel.exchange_declare(name, "headers")
    queues = {
        how: bound(channel, name, "", {"x-match": how, "a": 1, "x-b": "y"})
        for how in ("all", "any", "all-with-x", "any-with-x")
    }
    for body, headers in ((b"1", {"a": 1}), (b"2", {"a": 1, "x-b": "y"}), (b"3", {"x-b": "y"}), (b"4", {})):
        channel.basic_publish(name, "", body, pika.BasicProperties(headers=headers))
    assert {how: drained(channel, queue) for how, queue in queues.items()} == {
        "all": [b"1", b"2"], "any": [b"1", b"2"], "all-with-x": [b"2"], "any-with-x": [b"1", b"2", b"3"],
    }  # fmt: skip


def test_built_in_exchanges(channel: Any) -> None:
    for name, type_ in (("amq.direct", "direct"), ("amq.fanout", "fanout"), ("amq.topic", "topic"),
                        ("amq.headers", "headers"), ("amq.match", "headers")):  # fmt: skip
        channel.exchange_declare(name, type_, durable=True)
    with refused(403, "exchange name 'amq.mine' contains reserved prefix 'amq.*'"):
        channel.exchange_declare("amq.mine", "direct")


TRESPASSES: dict[str, Callable[[Any, str], Any]] = {
    "publish": lambda channel, name: channel.basic_publish("amq.peer", "x", b"x", mandatory=True),
    "declare": lambda channel, name: channel.exchange_declare(
        "amq.peer", "topic", durable=True, internal=True
    ),
    "delete": lambda channel, name: channel.exchange_delete("amq.peer"),
    "dead letters": lambda channel, name: channel.queue_declare(
        name, arguments={"x-dead-letter-exchange": "amq.peer"}
    ),
    "alternate": lambda channel, name: channel.exchange_declare(
        name, arguments={"alternate-exchange": "amq.peer"}
    ),
    "to an exchange": lambda channel, name: channel.exchange_bind("amq.topic", "amq.peer", "#"),
    "from an exchange": lambda channel, name: channel.exchange_bind("amq.peer", "amq.topic", "#"),
    "shared queue": lambda channel, name: (
        channel.queue_declare(name),
        channel.queue_bind(name, "amq.peer", "#"),
    ),
}


@pytest.mark.parametrize("what", TRESPASSES)
def test_amq_peer_is_for_the_nodes_of_a_pair(connection: Any, new: New, what: str) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    with refused(403, "amq.peer"):
        TRESPASSES[what](channel, new("peer"))


def test_an_administrator_may_watch_amq_peer_and_nobody_else(
    channel: Any, connect: Callable[..., Any]
) -> None:
    channel.exchange_declare("amq.peer", passive=True)
    channel.queue_bind(private(channel), "amq.peer", "#")
    worker = connect(credentials=pika.PlainCredentials("worker", "secret")).channel()
    queue = private(worker)
    with refused(403, "read access to exchange 'amq.peer' refused for user 'worker'"):
        worker.queue_bind(queue, "amq.peer", "#")


def test_unknown_type_of_exchange(connection: Any, new: New) -> None:
    with cut_off(503, "unknown exchange type 'x-recent-history'"):
        connection.channel().exchange_declare(new("x"), "x-recent-history")


def test_consistent_hash(channel: Any, new: New) -> None:
    name = new("x")
    channel.exchange_declare(name, "x-consistent-hash")
    queues = [bound(channel, name, weight) for weight in ("1", "3")]
    for number in (*range(200), *range(200)):
        channel.basic_publish(name, f"order.{number}", b"%d" % number)
    few, many = (drained(channel, queue) for queue in queues)
    assert len(few) + len(many) == 400 and 60 < len(few) < 140
    for found in (few, many):
        assert found[: len(found) // 2] == found[len(found) // 2 :], "each key goes one way"
    with refused(406, "The binding key must be an integer"):
        bound(channel, name, "heavy")


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        ({"hash-header": "who"}, lambda n: pika.BasicProperties(headers={"who": n})),
        ({"hash-property": "message_id"}, lambda n: pika.BasicProperties(message_id=str(n))),
    ],
)
def test_consistent_hash_of_a_header_or_a_property(
    channel: Any, new: New, arguments: dict[str, str], properties: Callable[[int], Any]
) -> None:
    name = new("x")
    channel.exchange_declare(name, "x-consistent-hash", arguments=arguments)
    queues = [bound(channel, name, "1") for _ in range(2)]
    for key in ("a", "b"):
        for number in range(40):
            channel.basic_publish(name, key, b"%d" % number, properties(number))
    found = [drained(channel, queue) for queue in queues]
    assert sum(map(len, found)) == 80
    for some in found:
        assert some and some[: len(some) // 2] == some[len(some) // 2 :]


@pytest.mark.parametrize("type_", ["x-random", "x-modulus-hash"])
def test_one_of_the_bindings(channel: Any, new: New, type_: str) -> None:
    name = new("x")
    channel.exchange_declare(name, type_)
    queues = [bound(channel, name) for _ in range(2)]
    for number in range(100):
        channel.basic_publish(name, str(number), b"x")
    assert sorted(map(len, (drained(channel, queue) for queue in queues)))[0] > 25


def test_delayed_messages(channel: Any, new: New) -> None:
    name = new("x")
    channel.exchange_declare(name, "x-delayed-message", arguments={"x-delayed-type": "topic"})
    queue = bound(channel, name, "a.#")
    for delay, key in ((300, "a.late"), (100, "a.early"), (0, "a.now"), (100, "b")):
        channel.basic_publish(name, key, b"", pika.BasicProperties(headers={"x-delay": delay}))
    keys = []
    for method, properties, _ in channel.consume(queue, auto_ack=True, inactivity_timeout=10):
        keys.append((method.routing_key, properties.headers["x-delay"]))
        if len(keys) == 3:
            break
    channel.cancel()
    assert keys == [("a.now", 0), ("a.early", -100), ("a.late", -300)]


def test_exchange_to_exchange(channel: Any, new: New) -> None:
    outer, inner = new("outer"), new("inner")
    channel.exchange_declare(outer, "topic")
    channel.exchange_declare(inner, "fanout")
    channel.exchange_bind(inner, outer, "a.#")
    channel.exchange_bind(outer, inner)
    queue = bound(channel, inner)
    for key in ("a.b", "b"):
        channel.basic_publish(outer, key, key.encode())
    assert drained(channel, queue) == [b"a.b"]
    channel.exchange_unbind(inner, outer, "a.#")
    channel.basic_publish(outer, "a.b", b"x")
    assert drained(channel, queue) == []


def test_alternate_exchange(channel: Any, new: New) -> None:
    first, second, last = new("first"), new("second"), new("last")
    channel.exchange_declare(first, "direct", arguments={"alternate-exchange": second})
    queue = bound(channel, first, "a")
    channel.confirm_delivery()
    with pytest.raises(UnroutableError):
        channel.basic_publish(first, "b", b"the alternate is not there", mandatory=True)
    channel.exchange_declare(second, "direct", arguments={"alternate-exchange": last})
    channel.exchange_declare(last, "fanout", internal=True, arguments={"alternate-exchange": first})
    with pytest.raises(UnroutableError):
        channel.basic_publish(first, "b", b"round in a cycle", mandatory=True)
    strays = bound(channel, last)
    for key in ("a", "b"):
        channel.basic_publish(first, key, key.encode(), mandatory=True)
    assert (drained(channel, queue), drained(channel, strays)) == ([b"a"], [b"b"])


def test_alternate_exchange_of_a_wrong_type(channel: Any, new: New) -> None:
    with refused(406, "for arg 'alternate-exchange' in exchange"):
        channel.exchange_declare(new("x"), "direct", arguments={"alternate-exchange": 5})


def test_internal_exchange(channel: Any, new: New) -> None:
    inner, outer = new("inner"), new("outer")
    channel.exchange_declare(inner, "fanout", internal=True)
    channel.exchange_declare(outer, "fanout")
    channel.exchange_bind(inner, outer)
    queue = bound(channel, inner)
    channel.basic_publish(outer, "", b"x")
    assert drained(channel, queue) == [b"x"]
    channel.confirm_delivery()
    with refused(403, f"cannot publish to internal exchange '{inner}' in vhost '/'"):
        channel.basic_publish(inner, "", b"x")


def test_auto_delete_exchange(connection: Any, channel: Any, new: New) -> None:
    name, further = new("x"), new("y")
    channel.exchange_declare(further, "fanout", auto_delete=True)
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.exchange_bind(name, further)
    queue = bound(channel, name)
    channel.exchange_declare(name, passive=True)
    channel.queue_unbind(queue, name, "")
    for gone in (name, further):
        with refused(404, f"no exchange '{gone}' in vhost '/'"):
            connection.channel().exchange_declare(gone, passive=True)


def test_exchange_declared_again(connection: Any, new: New) -> None:
    name = new("x")
    same: dict[str, Any] = {"exchange_type": "direct", "durable": True, "auto_delete": False}
    connection.channel().exchange_declare(name, **same)
    connection.channel().exchange_declare(name, **same)
    for other in ({"exchange_type": "fanout"}, {"durable": False}, {"auto_delete": True}, {"internal": True},
                  {"arguments": {"alternate-exchange": "y"}}):  # fmt: skip
        with refused(406, f"for exchange '{name}' in vhost '/': received"):
            connection.channel().exchange_declare(name, **(same | other))


def test_exchange_in_use_is_not_deleted(connection: Any, channel: Any, new: New) -> None:
    name = new("x")
    channel.exchange_declare(name, "fanout")
    bound(channel, name)
    with refused(406, f"exchange '{name}' in vhost '/' in use"):
        connection.channel().exchange_delete(name, if_unused=True)
    channel.exchange_delete(name)
    channel.exchange_delete(name)


def test_bindings_of_what_is_not_there(connection: Any, channel: Any, new: New) -> None:
    queue = private(channel)
    with refused(404, "no exchange 'gone' in vhost '/'"):
        connection.channel().queue_bind(queue, "gone")
    with refused(404, "no queue 'gone' in vhost '/'"):
        connection.channel().queue_bind("gone", "amq.fanout")
    channel.queue_unbind(queue, "amq.direct", "never bound")
    channel.queue_unbind(queue, "gone", "a")
    channel.queue_unbind("gone", "amq.direct", "a")
    channel.queue_unbind("gone", "gone", "a")
    channel.exchange_unbind("gone", "amq.direct", "a")
    channel.exchange_unbind("amq.direct", "gone", "a")
    with refused(403, "operation not permitted on the default exchange"):
        channel.queue_unbind("gone", "", "a")


def test_federation_upstream_withholds_what_has_been_downstream(
    connection: Any, channel: Any, new: New
) -> None:
    kind, source, front = "x-federation-upstream", new("x"), new("x")
    with refused(406, "x-max-hops"):
        connection.channel().exchange_declare(front, kind)
    arguments = {"x-max-hops": 2, "x-downstream-name": "down", "x-downstream-vhost": "/"}
    channel.exchange_declare(source, "topic")
    channel.exchange_declare(front, kind, internal=True, auto_delete=True, arguments=arguments)
    queue = bound(channel, front)
    channel.exchange_bind(front, source, "k", {"x-bound-from": [{"cluster-name": "down", "hops": 2}]})
    one, other = ({"cluster-name": name, "vhost": "/"} for name in ("down", "other"))
    ways: list[list[Any]] = [[], [one], [other], [other, other], [{**one, "vhost": "v"}]]
    for number, way in enumerate(ways):
        headers = {"x-received-from": way} if way else {}
        channel.basic_publish(source, "k", str(number).encode(), pika.BasicProperties(headers=headers))
    assert drained(channel, queue) == [b"0", b"2", b"4"]

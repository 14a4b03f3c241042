"""Every kind of object, on a backup that was there and on one that joins afterwards, and after a failover."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import ResourceLocked
from broker.model.vhost.vhost import VirtualHost
from tests.ha.pair import Host, Pair


def of_every_kind(vhost: VirtualHost, pair: Pair) -> None:
    """Exchanges of each type and life, bindings of each kind, queues of each kind."""
    for type_ in ("direct", "fanout", "topic", "headers"):
        vhost.declare_exchange(
            f"x.{type_}", type_, durable=True, arguments={"alternate-exchange": "x.fanout"}
        )
    vhost.declare_exchange("x.transient", "topic")
    vhost.declare_exchange("x.auto", "fanout", auto_delete=True)
    vhost.declare_exchange("x.internal", "fanout", durable=True, internal=True)
    vhost.declare_exchange("x.none", "fanout", durable=True, arguments={"x-replicate": "none"})
    for name, more in KINDS.items():
        vhost.declare_queue(name, owner=pair, **more)  # type: ignore[arg-type]
    vhost.declare_queue("none", owner=pair, durable=True, arguments={"x-replicate": "none"})
    for exchange, key in (("amq.direct", "a"), ("amq.topic", "a.#"), ("x.topic", "*.b"), ("x.auto", "")):
        vhost.bind_queue("durable", exchange, key, owner=pair)
    vhost.bind_queue("durable", "amq.headers", "", owner=pair, arguments={"kind": "a", "x-match": "any"})
    vhost.bind_queue("none", "amq.direct", "n", owner=pair)
    vhost.bind_queue("transient", "x.none", "", owner=pair)
    vhost.bind_exchange("x.internal", "amq.fanout", "")
    vhost.bind_queue("transient", "x.internal", "", owner=pair)


KINDS: dict[str, dict[str, object]] = {
    "durable": {"durable": True},
    "transient": {"arguments": {"x-replicate": "all"}},
    "exclusive": {"exclusive": True, "arguments": {"x-replicate": "all"}},
    "auto": {"durable": True, "auto_delete": True},
    "expiring": {"durable": True, "arguments": {"x-expires": 60000}},
    "kept": {"durable": True, "arguments": {"x-replicate": "configuration"}},
}


def holds_every_kind(host: Host) -> None:
    vhost = host.running.vhost
    assert vhost.queues.keys() >= KINDS.keys() and "none" not in vhost.queues
    assert "x.none" not in vhost.exchanges
    assert vhost.exchanges["x.internal"].internal and vhost.exchanges["x.auto"].auto_delete
    assert vhost.exchanges["x.topic"].alternate == "x.fanout"
    # The binding of a queue that stays where it is does so too.
    assert len(vhost.exchanges["amq.direct"].bindings) == 1
    assert vhost.queues["exclusive"].exclusive and vhost.queues["expiring"].expires == 60.0


def backup_away(late: bool) -> tuple[Pair, Host, Host]:
    """With `late`: the backup is excluded, and comes back later."""
    pair = Pair()
    pair.up()
    pair.run(0.2)
    a, b = pair.hosts
    if late:
        pair.kill(b)
        pair.run(2.5)
    return pair, a, b


def back(pair: Pair, b: Host) -> None:
    if b.node is None:
        pair.start(b)
        pair.until(lambda: b.status == "ready")
    pair.run(0.2)


@pytest.mark.parametrize("late", [False, True])
def test_every_kind_is_on_the_backup_and_serves_there(late: bool) -> None:
    pair, a, b = backup_away(late)
    of_every_kind(a.running.vhost, pair)
    back(pair, b)
    assert pair.fingerprint(a) == pair.fingerprint(b)
    holds_every_kind(b)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    holds_every_kind(b)
    vhost = b.running.vhost
    for exchange, key, reached in (
        ("amq.direct", "a", ["durable"]), ("amq.topic", "a.b", ["durable"]), ("x.topic", "x.b", ["durable"]),
        ("amq.fanout", "", ["transient"]), ("x.auto", "", ["durable"]), ("amq.direct", "n", []),
    ):  # fmt: skip
        assert sorted(queue.name for queue in vhost.route(exchange, key).queues) == reached


def test_a_queue_that_the_server_named_keeps_its_name() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    name = a.running.vhost.declare_queue(
        "", owner=pair, exclusive=True, arguments={"x-replicate": "all"}
    ).name
    assert name.startswith("amq.gen-")
    pair.publish(a, name, "abc")
    pair.run(0.2)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    claimed = b.running.vhost.declare_queue(
        name, owner=pair, exclusive=True, arguments={"x-replicate": "all"}
    )
    assert claimed.owner is pair
    assert pair.consume(b, name, 3) == "abc"


def test_after_a_failover_the_first_to_declare_owns_an_exclusive_queue() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    asked: dict[str, Any] = {"exclusive": True, "arguments": {"x-replicate": "all"}}
    a.running.vhost.declare_queue("mine", owner=pair, **asked)
    pair.publish(a, "mine", "ab")
    pair.run(0.2)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    vhost, first, other = b.running.vhost, object(), object()
    assert vhost.declare_queue("mine", owner=first, **asked).owner is first
    for owner in (other, pair):
        with pytest.raises(ResourceLocked, match="exclusive access to locked queue 'mine'"):
            vhost.declare_queue("mine", owner=owner, **asked)
    assert pair.contents(b, "mine") == "ab"


@pytest.mark.parametrize("late", [False, True])
def test_what_is_acquired_and_not_acked_is_there_and_redelivered(late: bool) -> None:
    """Also in the snapshot of a backup that joins while a consumer has it."""
    pair, a, b = backup_away(late)
    pair.declare(a, "q")
    pair.publish(a, "q", "abcd")
    queue = a.running.vhost.queues["q"]
    taken = [entry for entry in (queue.pop(no_ack=False) for _ in range(3)) if entry is not None]
    queue.acknowledge(taken[1:2])
    back(pair, b)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    new_primary = b.running.vhost.queues["q"]
    assert pair.contents(b, "q") == "acd" and all(entry[1].redelivered for entry in new_primary.ready)


def test_only_the_primary_expires_and_the_next_starts_the_time_anew() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q", arguments={"x-expires": 2000})
    pair.run(1.5)
    pair.kill(a)
    pair.run(3.0)
    assert "q" in b.running.vhost.queues
    assert pair.ask(b, "promote")["ok"]
    pair.run(1.5)
    assert "q" in b.running.vhost.queues
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    pair.run(1.0)
    assert "q" not in b.running.vhost.queues and "q" not in a.running.vhost.queues
    assert pair.fingerprint(a) == pair.fingerprint(b)

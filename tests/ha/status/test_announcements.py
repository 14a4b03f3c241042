"""What `amq.failover` tells those who bind to it, of each change of membership."""

from __future__ import annotations

import json
from collections import deque

import pytest

from broker.amqp091.codec.frames import BODY, HEADER, head
from broker.errors import AccessRefused, PreconditionFailed
from broker.model.history.records import Entry
from tests.ha.pair import Host, Pair


def frames(raw: bytes) -> list[tuple[int, bytes]]:
    """Kind and payload of each."""
    found, at = [], 0
    while at < len(raw):
        kind, channel, size = head(raw, at)
        assert channel == 1
        found.append((kind, raw[at + 7 : at + 7 + size]))
        at += size + 8
    return found


def told(host: Host, queue: str = "watch") -> list[tuple[str, str, list[str]]]:
    """Routing key, reason and who is in sync, of each event that waits in the queue."""
    waiting: deque[Entry] = host.running.vhost.queues[queue].ready
    found = []
    for _, envelope, raw in waiting:
        (kind, properties), *bodies = frames(raw)
        assert kind == HEADER and all(kind == BODY for kind, _ in bodies)
        assert b"application/json" in properties and not envelope.persistent
        assert envelope.exchange == "amq.failover"
        document = json.loads(b"".join(body for _, body in bodies))
        assert document["brokers"] == [f"127.0.0.1:{5000 + n}" for n in range(len(document["brokers"]))]
        assert envelope.routing_key == f"{document['event']}.{document['node']}"
        assert document["epoch"] == envelope.epoch
        found.append((envelope.routing_key, document["reason"], document["in_sync"]))
    return found


def watch(pair: Pair, host: Host, queue: str = "watch", key: str = "#") -> None:
    pair.declare(host, queue)
    host.running.vhost.bind_queue(queue, "amq.failover", key, owner=pair)
    pair.run(0.05)


def test_each_change_of_membership_is_told_and_survives_the_failover() -> None:
    pair = Pair(3)
    pair.up()
    pair.run(0.2)
    a, b, c = pair.hosts
    watch(pair, a)
    pair.run(0.2)
    pair.kill(c)
    pair.run(2.5)
    pair.start(c)
    pair.until(lambda: c.status == "ready")
    pair.run(0.1)
    assert told(a) == [
        ("lost.c", "its link broke", ["b"]),
        ("excluded.c", "no acknowledgement for 2 s", ["b"]),
        ("joining.c", "", ["b"]),
        ("in-sync.c", "", ["b", "c"]),
    ]
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    pair.until(lambda: c.status == "ready")
    pair.run(0.2)
    events = told(b)
    assert [key for key, _, _ in events[:4]] == ["lost.c", "excluded.c", "joining.c", "in-sync.c"]
    assert events[4][:2] == ("promoted.b", "unforced")
    assert [key for key, _, _ in events[5:]] == ["joining.c", "in-sync.c"]


def test_a_forced_promotion_is_told_and_counted_as_one() -> None:
    pair = Pair()
    pair.up()
    pair.run(0.2)
    a, b = pair.hosts
    watch(pair, a)
    pair.kill(b)
    pair.run(2.5)
    pair.kill(a)
    pair.start(b)
    pair.run(0.2)
    assert not pair.ask(b, "promote")["ok"]
    assert b.running.status()["events"].get("promoted-lossy", 0) == 0
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    counts = b.running.status()["events"]
    assert (counts["promoted"], counts["promoted-lossy"]) == (1, 1)
    assert told(b)[-1][:2] == ("promoted.b", "force-lossy")


def test_a_switchover_is_told_before_and_after() -> None:
    pair = Pair()
    pair.up()
    pair.run(0.2)
    a, b = pair.hosts
    watch(pair, a, key="*.b")
    answer = pair.ask(a, "switchover")
    assert answer["ok"], answer
    pair.until(lambda: a.status == "ready")
    assert [key for key, _, _ in told(b)] == ["switchover.b", "promoted.b"]


def test_nobody_publishes_there_or_deletes_it_and_it_is_of_one_type() -> None:
    pair = Pair()
    pair.up()
    pair.run(0.2)
    vhost = pair[0].running.vhost
    with pytest.raises(AccessRefused, match="internal exchange"):
        vhost.route("amq.failover", "promoted.a")
    with pytest.raises(AccessRefused, match="reserved prefix"):
        vhost.delete_exchange("amq.failover")
    with pytest.raises(PreconditionFailed):
        vhost.declare_exchange("amq.failover", "fanout", durable=True, internal=True)
    assert vhost.declare_exchange("amq.failover", "topic", durable=True, internal=True) is not None


def test_events_reach_queues_that_are_bound_through_another_exchange() -> None:
    pair = Pair()
    pair.up()
    pair.run(0.2)
    a, b = pair.hosts
    vhost = a.running.vhost
    before = vhost.history.n
    pair.declare(a, "q")
    vhost.declare_exchange("by-headers", "headers")
    vhost.bind_exchange("by-headers", "amq.failover", "in-sync.*")
    vhost.bind_queue("q", "by-headers", "", owner=pair)
    pair.kill(b)
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert [key for key, _, _ in told(a, "q")] == ["in-sync.b"]
    assert vhost.history.n > before


def test_events_do_not_name_lost_or_expected_backups_as_in_sync() -> None:
    """docs/reference/events.md: `in_sync` has those that are there."""
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    watch(pair, a)
    pair.declare(a, "q")
    pair.run(0.2)
    pair.kill(c)
    position = pair.publish(a, "q", "x")
    pair.run(0.5)
    assert told(a)[-1] == ("lost.c", "its link broke", ["b"]) and not pair.confirmed(a, position)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    position = pair.publish(b, "q", "y")
    pair.run(0.5)
    assert told(b)[-1] == ("promoted.b", "unforced", []) and not pair.confirmed(b, position)

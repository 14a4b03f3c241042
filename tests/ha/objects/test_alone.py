"""Queues that are of one node alone, `x-replicate` none or temporary: what becomes of them when another one
serves.
"""

from __future__ import annotations

from broker.model.vhost.vhost import VirtualHost
from tests.ha.pair import Host, Pair

NONE = {"x-replicate": "none"}


def switch(pair: Pair, old: Host, new: Host) -> VirtualHost:
    """What serves then."""
    answer = pair.ask(old, "switchover")
    assert answer["ok"], answer
    pair.run(0.5)
    assert (old.status, new.status) == ("ready", "active")
    return new.running.vhost


def test_unreplicated_transient_objects_do_not_return_after_a_switchover() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    vhost = a.running.vhost
    pair.declare(a, "kept", arguments=NONE)
    vhost.declare_exchange("x", "topic", arguments=NONE)
    vhost.declare_queue("replies", owner=object(), exclusive=True)
    vhost.declare_queue("events", owner=pair, auto_delete=True)
    vhost.bind_queue("events", "x", "old", owner=pair)
    for queue in ("kept", "replies", "events"):
        pair.publish(a, queue, "abc")
    pair.run(0.2)
    switch(pair, a, b).declare_queue("replies", owner=pair, exclusive=True)
    assert a.running.vhost.queues.keys() == {"kept"} and "x" not in a.running.vhost.exchanges
    vhost = switch(pair, b, a)
    assert vhost.declare_queue("replies", owner=pair, exclusive=True).message_count == 0
    assert pair.contents(a, "kept") == "abc" and pair.fingerprint(a) == pair.fingerprint(b)
    assert a.running.status()["quarantined"] == 0


def test_a_local_queue_gives_way_to_a_replicated_one_via_quarantine() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q", arguments=NONE)
    pair.publish(a, "q", "abc")
    pair.run(0.2)
    switch(pair, a, b)
    pair.declare(b, "q")
    pair.publish(b, "q", "de")
    pair.run(0.2)
    assert pair.contents(a, "q") == "de" and a.running.status()["quarantined"] == 3
    pair.kill(a)
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == "de" and pair.fingerprint(a) == pair.fingerprint(b)

"""Auto-delete exchanges that were bound to temporary queues, of which nothing is replicated: they end after a
failover, or a restart, unless somebody binds them again.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.model.queue.consumer import Consumer
from broker.model.vhost.vhost import VirtualHost
from ha.adapter import codes
from tests.ha.pair import Pair

UNBOUND = {"bus", "chained"}


def declare(vhost: VirtualHost, pair: Pair) -> None:
    """`idle` has never been bound; `kept` is bound to a queue that comes along; the others to none."""
    for name in (*UNBOUND, "again", "idle", "kept"):
        vhost.declare_exchange(name, "fanout", auto_delete=True, durable=True)
    vhost.declare_queue("replies", owner=object(), exclusive=True)
    vhost.declare_queue("events", owner=pair, auto_delete=True)
    pair.declare(pair[0], "q")
    for exchange, queue in (("bus", "replies"), ("again", "events"), ("kept", "q"), ("kept", "events")):
        vhost.bind_queue(queue, exchange, "", owner=vhost.queues[queue].owner)
    vhost.bind_queue("events", "chained", "a", owner=pair)


@pytest.mark.parametrize("late", [False, True])
def test_after_a_failover(late: bool) -> None:
    pair = Pair(reconnect_grace=1.0)
    pair.up()
    a, b = pair.hosts
    if late:
        pair.kill(b)
        pair.run(2.5)
    declare(a.running.vhost, pair)
    if late:
        pair.start(b)
        pair.until(lambda: b.status == "ready")
    pair.run(0.3)
    assert pair.fingerprint(a) == pair.fingerprint(b)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    exchanges = b.running.vhost.exchanges
    assert exchanges.keys() >= UNBOUND
    b.running.vhost.bind_queue("q", "again", "", owner=pair)
    pair.run(1.5)
    assert not exchanges.keys() & UNBOUND and exchanges.keys() >= {"again", "idle", "kept"}
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert a.running.vhost.exchanges.keys() == exchanges.keys()
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_after_a_restart_of_a_broker_on_its_own() -> None:
    pair = Pair(1, reconnect_grace=1.0)
    pair.start()
    declare(pair[0].running.vhost, pair)
    for _ in range(2):
        pair.run(0.3)
        pair.kill(pair[0])
        pair.start()
    exchanges = pair[0].running.vhost.exchanges
    assert exchanges.keys() >= {*UNBOUND, "again"}
    pair.run(1.5)
    assert not exchanges.keys() & {*UNBOUND, "again"} and exchanges.keys() >= {"idle", "kept"}


@pytest.mark.parametrize(
    ("names", "told"),
    [("a", "'a'"), ("abc", "'a', 'b', 'c'"), ("abcde", "'a', 'b', 'c', and 2 more")],
)
def test_queues_that_end_for_want_of_clients_are_named(names: str, told: str) -> None:
    pair = Pair(reconnect_grace=1.0)
    pair.up()
    a, b = pair.hosts
    sink: Any = SimpleNamespace(credit=lambda consumer: 0)
    for name in names:
        pair.declare(a, name, auto_delete=True)
        a.running.vhost.consume(a.running.vhost.queues[name], Consumer("c", sink))
    pair.run(0.3)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    pair.run(1.5)
    assert b.said[-1] == codes.QUEUES_ABANDONED.say(names=told)
    assert len(b.told(codes.QUEUES_ABANDONED)) == 1

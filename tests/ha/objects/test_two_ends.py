"""Queues with both auto-delete and `x-expires`, over a failover: the first of the two that comes ends them.
So it is in RabbitMQ: auto-delete never does before a first consumer, and under a consumer no queue expires.
Once, for its reason, on both nodes.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from broker.model.history.batch import Batch
from broker.model.history.records import Dequeue, QueueDelete
from broker.model.queue.consumer import Consumer
from broker.model.values import Reason
from tests.ha.pair import Host, Notes, Pair

GRACE = 2.0


class Ends(Notes):
    """What history says of the ends of queues, and why messages leave."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        self.ends, self.left = 0, Counter[Reason]()

    def batch(self, batch: Batch, role: str) -> None:
        for record in batch.records:
            self.ends += isinstance(record, QueueDelete)
            if isinstance(record, Dequeue):
                self.left[record.reason] += sum(last - first + 1 for first, last in record.ranges)


def consumes(host: Host) -> Consumer:
    """One that takes nothing."""
    sink: Any = SimpleNamespace(credit=lambda consumer: 0)
    consumer = Consumer("c", sink)
    host.running.vhost.consume(host.running.vhost.queues["q"], consumer)
    return consumer


def failed_over(expires_ms: int, *, used: bool) -> tuple[Pair, Host, Host]:
    """`used`: the queue had a consumer at the primary that died. That one is back, as a backup."""
    pair = Pair(reconnect_grace=GRACE)
    for host in pair.hosts:
        host.ledger = Ends()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q", auto_delete=True, arguments={"x-expires": expires_ms})
    pair.publish(a, "q", "abc")
    if used:
        consumes(a)
    pair.run(0.2)
    assert pair.fingerprint(a) == pair.fingerprint(b)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.start(a)
    pair.until(lambda: a.status == "ready", 0.5)
    assert pair.contents(b, "q") == "abc"
    return pair, b, a


def ended(pair: Pair, b: Host, a: Host) -> Reason:
    """It is gone from both, with what it held: once, for one reason."""
    pair.run(0.2)
    assert not b.running.vhosts.queues_by_uuid and not a.running.vhosts.queues_by_uuid
    assert pair.fingerprint(a) == pair.fingerprint(b)
    assert a.ledger.ends == b.ledger.ends == 1
    (reason,) = b.ledger.left
    assert a.ledger.left == b.ledger.left == {reason: 3}
    assert b.running.status()["dequeues"]["left"][reason.ledger_name] == 3
    return reason


def exists(host: Host) -> bool:
    return "q" in host.running.vhost.queues


def test_its_consumer_does_not_come_back() -> None:
    pair, b, a = failed_over(5000, used=True)
    pair.run(GRACE / 2)
    assert exists(b) and exists(a)
    pair.run(GRACE / 2)
    assert ended(pair, b, a) is Reason.QUEUE_UNUSED
    pair.run(6.0)
    assert ended(pair, b, a) is Reason.QUEUE_UNUSED


def test_its_time_is_over_before_that_of_its_consumer() -> None:
    """Its time begins anew with the failover."""
    pair, b, a = failed_over(800, used=True)
    pair.run(0.4)
    assert exists(b) and exists(a)
    pair.run(0.4)
    assert ended(pair, b, a) is Reason.QUEUE_EXPIRED
    pair.run(2.0)
    assert ended(pair, b, a) is Reason.QUEUE_EXPIRED


def test_both_come_in_one_tick() -> None:
    pair, b, a = failed_over(int(GRACE * 1000), used=True)
    pair.run(GRACE)
    assert ended(pair, b, a) in (Reason.QUEUE_UNUSED, Reason.QUEUE_EXPIRED)


def test_without_a_first_consumer_nothing_ends_it_but_its_time() -> None:
    pair, b, a = failed_over(5000, used=False)
    pair.run(GRACE + 2.5)
    assert exists(b) and exists(a)
    pair.run(0.5)
    assert ended(pair, b, a) is Reason.QUEUE_EXPIRED


@pytest.mark.parametrize("used", [False, True])
def test_it_does_not_expire_under_a_consumer_and_ends_with_it(used: bool) -> None:
    pair, b, a = failed_over(800, used=used)
    consumer = consumes(b)
    pair.run(3.0)
    assert exists(b) and exists(a)
    b.running.vhost.cancel(b.running.vhost.queues["q"], consumer)
    assert ended(pair, b, a) is Reason.QUEUE_UNUSED


def test_a_queue_ends_with_its_consumer_if_the_primary_dies_meanwhile() -> None:
    """The next one gives the clients their time to come back, and then decides for itself."""
    pair, b, a = failed_over(5000, used=True)
    consumer = consumes(b)
    pair.run(0.3)
    pair.hold(b, a)
    b.running.vhost.cancel(b.running.vhost.queues["q"], consumer)
    pair.kill(b)
    pair.held.clear()
    pair.run(0.1)
    assert pair.ask(a, "promote")["ok"] and exists(a)
    pair.start(b)
    pair.until(lambda: b.status == "ready", 0.5)
    for host in (a, b):
        host.ledger.clear()
    pair.run(GRACE)
    assert ended(pair, a, b) is Reason.QUEUE_UNUSED

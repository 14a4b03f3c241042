"""Queues that are deleted after a time without use."""

from __future__ import annotations

import pytest

from broker.errors import PreconditionFailed
from broker.model.queue.arguments import LONGEST
from broker.model.queue.consumer import Consumer
from broker.model.queue.queue import Queue
from broker.model.vhost.vhost import VirtualHost
from tests.broker.model.helpers import OWNER, Everything, Follower, Sink, end_tick, publish, serving

SECOND = {"x-expires": 1000}


@pytest.fixture
def vhost() -> VirtualHost:
    return serving(5, Everything())


def declare(vhost: VirtualHost, name: str = "q") -> Queue:
    return vhost.declare_queue(name, owner=OWNER, durable=True, arguments=SECOND)


def there(vhost: VirtualHost, now: float) -> list[str]:
    """The remaining queues after that tick."""
    vhost.shared.expire(now)
    return sorted(vhost.queues)


def test_an_unused_queue_expires_on_followers_too(vhost: VirtualHost) -> None:
    follower = Follower()
    vhost.history.sinks.append(follower)
    declare(vhost)
    vhost.declare_queue("stays", owner=OWNER)
    publish(vhost, "q", b"x")
    assert there(vhost, 10.0) == ["q", "stays"] and vhost.expiries.next() == 11.0
    assert there(vhost, 10.999) == ["q", "stays"]
    assert there(vhost, 11.0) == ["stays"] and vhost.expiries.next() is None
    end_tick(vhost)
    assert sorted(follower.vhost.queues) == ["stays"]
    assert there(vhost, 99.0) == ["stays"]


def test_each_use_gives_it_its_time_again(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    assert there(vhost, 10.0) == ["q"]
    declare(vhost)
    assert there(vhost, 10.9) == there(vhost, 11.0) == there(vhost, 11.8) == ["q"]
    vhost.declare_queue("q", owner=OWNER, passive=True)
    assert there(vhost, 11.85) == there(vhost, 12.8) == ["q"]
    consumer = Consumer("c", Sink())
    vhost.consume(queue, consumer)
    assert there(vhost, 12.84) == there(vhost, 50.0) == ["q"] and vhost.expiries.next() is None
    vhost.cancel(queue, consumer)
    assert there(vhost, 60.0) == there(vhost, 60.9) == ["q"]
    vhost.expiries.used(queue)  # a get
    assert there(vhost, 60.95) == there(vhost, 61.9) == ["q"]
    assert there(vhost, 61.95) == []


def test_a_queue_that_ended_otherwise_does_not_end_again(vhost: VirtualHost) -> None:
    declare(vhost)
    assert there(vhost, 10.0) == ["q"]
    vhost.delete_queue("q", owner=OWNER)
    declare(vhost)
    assert there(vhost, 10.5) == there(vhost, 11.0) == ["q"]
    assert there(vhost, 11.5) == []


def test_only_a_serving_node_expires_queues_after_a_new_wait(vhost: VirtualHost) -> None:
    declare(vhost)
    assert there(vhost, 10.0) == ["q"]
    end_tick(vhost)
    vhost.shared.deactivate()
    assert vhost.expiries.next() is None
    vhost.shared.activate(6)
    assert there(vhost, 20.0) == there(vhost, 20.9) == ["q"]
    vhost.shared.deciding = False
    vhost.shared.decide_again()  # perhaps its users could not be heard for a while
    assert there(vhost, 21.0) == there(vhost, 21.9) == ["q"]
    assert there(vhost, 22.0) == []


@pytest.mark.parametrize("wrong", [0, -1, True, "1000", 1.5, None, LONGEST + 1])
def test_a_time_is_a_number_of_milliseconds(vhost: VirtualHost, wrong: object) -> None:
    with pytest.raises(PreconditionFailed, match="invalid arg 'x-expires' for queue 'q' in vhost '/'"):
        vhost.declare_queue("q", owner=OWNER, arguments={"x-expires": wrong})
    assert not vhost.queues
    declare(vhost)
    with pytest.raises(PreconditionFailed, match="x-expires"):
        vhost.declare_queue("q", owner=OWNER, durable=True, arguments={"x-expires": 2000})

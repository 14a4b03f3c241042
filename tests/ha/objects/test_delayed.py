"""Delayed messages of a pair: through a failover and a restart, each once, at its time."""

from __future__ import annotations

from random import Random

from pika.spec import BasicProperties

from broker.amqp091.codec.properties import headers_of
from broker.model.queue.delays.delay_queue import delay_name
from broker.model.steps import finish
from broker.model.values import Reason
from tests.broker.amqp091.wire import content
from tests.ha.objects.test_two_ends import Ends
from tests.ha.pair import Host, Pair

LATER = delay_name("later")


def shop() -> Pair:
    """A pair whose exchange `later` has three messages that wait, one of them transient."""
    pair = Pair()
    for host in pair.hosts:
        host.ledger = Ends()
    pair.up()
    vhost = pair[0].running.vhost
    arguments = {"x-delayed-type": "fanout"}
    vhost.declare_exchange("later", "x-delayed-message", durable=True, arguments=arguments)
    pair.declare(pair[0], "q")
    vhost.bind_queue("q", "later", "", owner=None)
    for delay, persistent in ((3000, True), (1000, True), (2000, False)):
        raw = content(1, b"x", properties=b"".join(BasicProperties(headers={"x-delay": delay}).encode()))
        route = finish(vhost.find_by_headers("later", str(delay), headers_of(raw), raw))
        vhost.publish(route, [raw], persistent=persistent, channel=1, largest_frame=100, path=("far", "near"))
    pair.run(0.2)
    assert pair.fingerprint(pair[0]) == pair.fingerprint(pair[1])
    return pair


def counts(host: Host) -> tuple[int, int]:
    """Messages that wait, and that have gone on."""
    vhost = host.running.vhost
    return vhost.delayed(vhost.exchanges["later"]), vhost.queues["q"].total_count


def test_a_promoted_backup_sends_them_on_at_their_time_each_once() -> None:
    pair = shop()
    a, b = pair.hosts
    pair.run(1)
    assert counts(a) == counts(b) == (2, 1)
    pair.kill(a)
    pair.run(0.01)
    assert pair.ask(b, "promote")["ok"]
    assert counts(b) == (2, 1)
    pair.run(1)
    assert counts(b) == (1, 2)
    pair.run(1)
    assert counts(b) == (0, 3)
    gone_on = [envelope for _, envelope, _ in b.running.vhost.queues["q"].held_entries()]
    assert [envelope.routing_key for envelope in gone_on] == ["1000", "2000", "3000"]
    assert {envelope.path for envelope in gone_on} == {("far", "near")}, "it goes back to none of these"
    assert isinstance(b.ledger, Ends) and b.ledger.left[Reason.DEAD_LETTERED] == 3


def test_a_restarted_node_has_the_persistent_ones_and_those_that_are_late_go_at_once() -> None:
    pair = shop()
    a, b = pair.hosts
    pair.kill(b)
    pair.kill(a)
    pair.run(2)
    pair.start(a)
    assert pair.ask(a, "promote", force_lossy=True)["ok"]
    pair.run(0.1)
    assert counts(a) == (1, 1)
    pair.run(2)
    assert counts(a) == (0, 2)


def test_what_waits_is_deleted_with_the_exchange_on_both() -> None:
    pair = shop()
    a, b = pair.hosts
    a.running.vhost.delete_exchange("later")
    pair.run(0.2)
    assert pair.fingerprint(a) == pair.fingerprint(b)
    vhost = b.running.vhost
    assert LATER not in vhost.queues and vhost.queues["q"].total_count == 0


def test_over_several_failovers_each_goes_on_once_and_never_early() -> None:
    pair = shop()
    rng, due, serving = Random(7), dict[str, int](), pair[0]
    for number in range(4):
        vhost = serving.running.vhost
        for at in range(6):
            key, delay = f"{number}.{at}", rng.randrange(200, 4000)
            raw = content(1, b"x", properties=b"".join(BasicProperties(headers={"x-delay": delay}).encode()))
            route = finish(vhost.find_by_headers("later", key, headers_of(raw), raw))
            vhost.publish(route, [raw], persistent=True, channel=1, largest_frame=100)
            due[key] = vhost.shared.wall_ms + delay
        pair.run(0.5)
        other = next(host for host in pair.hosts if host is not serving)
        pair.until(lambda other=other: other.running.status()["promotable"])  # type: ignore[misc]
        pair.kill(serving)
        pair.run(0.01)
        assert pair.ask(other, "promote")["ok"]
        pair.start(serving)
        serving = other
    pair.run(8)
    found = {
        envelope.routing_key: envelope for _, envelope, _ in serving.running.vhost.queues["q"].held_entries()
    }
    assert counts(serving) == (0, len(due) + 3), "each once, the three of the beginning too"
    assert all(found[key].wall_ms >= wall_ms for key, wall_ms in due.items())

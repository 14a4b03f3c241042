"""`amq.peer`: no policy, dead letter or queue leads messages to it or from it."""

from __future__ import annotations

import pytest

from broker.model.history.records import EntryPut
from broker.model.values import ROOT
from broker.model.vhost.policy_rules import policy_fault
from tests.broker.amqp091.access.test_access import told
from tests.broker.amqp091.wire import Raw, World
from tests.builds import PURE_ONLY

WATCH = {"queue": "own", "exchange": "amq.peer", "routing_key": "#"}


def policy(pattern: str, key: str, exchange: str) -> EntryPut:
    rule = {"pattern": pattern, "apply-to": "all", "priority": 0, "definition": {key: exchange}}
    return EntryPut("policy", ROOT, "p", rule)


def watching(world: World) -> Raw:
    guest = world.open()
    guest.call(1, "queue.declare", queue="own", exclusive=True)
    assert guest.call(1, "queue.bind", **WATCH).name == "queue.bind-ok"
    return guest


@pytest.mark.parametrize("key", ["alternate-exchange", "dead-letter-exchange"])
def test_no_policy_may_name_it(key: str) -> None:
    assert "is for the nodes of the pair" in (policy_fault({key: "amq.peer"}) or "")


@PURE_ONLY
def test_a_policy_that_names_it_all_the_same_sends_no_dead_letters_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was stored before there was such an exchange."""
    monkeypatch.setattr("broker.model.vhost.directory.policy_fault", lambda definition: None)
    world = World()
    guest = watching(world)
    world.vhost.shared.change_directory([policy("^q$", "dead-letter-exchange", "amq.peer")])
    guest.call(1, "queue.declare", queue="q")
    guest.publish(1, b"forged", routing_key="q")
    tag = guest.call(1, "basic.get", queue="q")["delivery_tag"]
    guest.send(1, "basic.reject", delivery_tag=tag, requeue=False)
    for _ in range(3):
        world.tick()
    assert world.vhost.queues["own"].message_count == 0


def test_an_alternate_exchange_for_all_is_none_of_it() -> None:
    world = World()
    guest = world.open()
    guest.call(1, "exchange.declare", exchange="e", type="fanout")
    guest.call(1, "queue.declare", queue="q")
    guest.call(1, "queue.bind", queue="q", exchange="e")
    world.vhost.shared.change_directory([policy(".*", "alternate-exchange", "e")])
    assert world.vhost.exchanges["amq.topic"].alternate == "e"
    world.vhost.announce("amq.peer", "some.key", b"raw", 3)
    assert world.vhost.queues["q"].message_count == 0


def test_a_queue_that_forwards_its_dead_letters_does_not_watch() -> None:
    world = World()
    guest = world.open()
    guest.call(
        1, "queue.declare", queue="own", exclusive=True, arguments={"x-dead-letter-exchange": "amq.fanout"}
    )
    guest.send(1, "queue.bind", **WATCH)
    code, text = told(guest.read())
    assert code == 403 and "has a dead-letter exchange" in text

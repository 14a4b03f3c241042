"""Levels of replication: what `x-replicate` says of a queue holds on the link, after failover, on return."""

from __future__ import annotations

import pytest

from broker.errors import PreconditionFailed
from broker.model.history.records import ExchangeDeclare, QueueDeclare
from broker.model.values import Scope
from ha.core.replication_test import ReplicationTest
from tests.ha.pair import Pair


def test_configuration_replicates_the_queue_and_none_of_its_messages() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "c", arguments={"x-replicate": "configuration"})
    pair.declare(a, "q")
    pair.publish(a, "c", "abc")
    pair.publish(a, "q", "de")
    pair.run(0.3)
    assert (pair.contents(b, "c"), pair.contents(b, "q")) == ("", "de")
    pair.kill(a)
    pair.run(0.3)
    assert pair.ask(b, "promote")["ok"]
    assert (pair.contents(b, "c"), pair.contents(b, "q")) == ("", "de")
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "c") == "", "what only it held went to quarantine"
    assert a.running.status()["quarantined"] == 3
    assert pair.fingerprint(a) == pair.fingerprint(b)


@pytest.mark.parametrize("level", ["none", "all"])
def test_none_stays_here_and_all_goes_over(level: str) -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q", arguments={"x-replicate": level})
    pair.publish(a, "q", "abc")
    pair.run(0.3)
    there = b.running.vhost.queues.get("q")
    assert (there is not None) is (level == "all")
    assert there is None or pair.contents(b, "q") == "abc"


@pytest.mark.parametrize("default", ["none", "all"])
def test_a_level_that_there_is_not_is_refused_whatever_the_default(default: str) -> None:
    pair = Pair(replicate=default)
    pair.up()
    a, _ = pair.hosts
    with pytest.raises(PreconditionFailed, match="'All' is not one of none, configuration, all"):
        pair.declare(a, "orders", arguments={"x-replicate": "All"})
    assert "orders" not in a.running.vhost.queues


def test_a_level_that_an_earlier_version_stored_counts_as_not_said() -> None:
    queue = QueueDeclare(b"", "q", True, False, False, {"x-replicate": "All"})
    exchange = ExchangeDeclare("x", "direct", True, False, False, {"x-replicate": 5})
    for default, scope in (("none", Scope.STORE), ("all", Scope.STORE | Scope.LINK)):
        test = ReplicationTest(default)
        assert (test.queue_scope(queue), queue.replicate) == (scope, default)
        assert (test.exchange_scope(exchange), exchange.replicate) == (scope, default)

"""Rules that remove or order messages, on a queue that is replicated to a broker of no cluster: the source
decides, the copy follows, and from `--stop` on decides for itself (18).
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.model.history.records import Dequeue
from broker.model.values import Reason, Scope
from tests.ha.mirror.copies import Copies, following, in_order
from tests.ha.pair import Host, raw
from tests.simulation.harness.machines.virtual_disk import VirtualDisk


def with_rules(arguments: dict[str, Any], texts: str = "") -> Copies:
    copies = Copies(dequeue_lag=0.0)
    copies.begin("other")
    copies.declare(copies[0], "q", arguments=arguments)
    if texts:
        copies.publish(copies[0], "q", texts)
    assert copies.replicate()["ok"]
    copies.follows(copies[0])
    return copies


def put(copies: Copies, text: str, *, priority: int = 0) -> None:
    vhost = copies[0].running.vhost
    vhost.publish(
        vhost.route("", "q"), [raw(text)], persistent=True, channel=1, largest_frame=30, priority=priority
    )


class Reasons:
    """Why messages left, as a broker's history has it."""

    def __init__(self, host: Host) -> None:
        self.told: list[Reason] = []
        host.running.broker.sinks.append(self)

    def batch(self, batch: Any) -> None:
        self.told += [record.reason for record in batch.records if isinstance(record, Dequeue)]


def test_what_expires_at_the_source_goes_here_for_the_same_reason_and_nothing_by_itself() -> None:
    copies = with_rules({"x-message-ttl": 2000}, "ab")
    a, b = copies.hosts
    reasons = Reasons(b)
    copies.separate(a, b, reset=True)
    copies.run(3.0)
    assert copies.contents(a, "q") == ""
    assert copies.contents(b, "q") == "ab"
    assert reasons.told == []
    copies.heal()
    copies.publish(a, "q", "cd")
    copies.follows(a)
    assert copies.contents(b, "q") == "cd"
    copies.until(lambda: copies.contents(b, "q") == "")
    assert set(reasons.told) == {Reason.DROPPED, Reason.EXPIRED}, "compared after the break, then followed"


def test_from_stop_on_its_rules_count_here() -> None:
    copies = with_rules({"x-message-ttl": 2000}, "ab")
    a, b = copies.hosts
    copies.kill(a)
    copies.run(3.0)
    assert copies.contents(b, "q") == "ab"
    reasons = Reasons(b)
    assert copies.ask(b, "replicate-stop", name="q")["ok"]
    copies.run(0.1)
    assert copies.contents(b, "q") == ""
    assert reasons.told == [Reason.EXPIRED]


def test_a_limit_drops_at_the_source_alone_and_here_from_stop_on() -> None:
    copies = with_rules({"x-max-length": 3})
    a, b = copies.hosts
    copies.publish(a, "q", "abcdef")
    copies.follows(a)
    assert copies.contents(b, "q") == "def"
    assert copies.ask(b, "replicate-stop", name="q")["ok"]
    copies.publish(b, "q", "xy")
    copies.run(0.1)
    assert copies.contents(b, "q") == "fxy"


def test_dead_letters_are_the_sources() -> None:
    copies = with_rules({
        "x-message-ttl": 500, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other",
    })  # fmt: skip
    a, b = copies.hosts
    copies.declare(b, "other")
    copies.publish(a, "q", "ab")
    copies.follows(a)
    assert copies.contents(b, "q") == "ab"
    copies.until(lambda: copies.contents(b, "q") == "")
    assert a.running.vhost.queues["other"].total_count == 2
    assert b.running.vhost.queues["other"].total_count == 0


def test_nothing_is_dead_lettered_to_a_copy() -> None:
    copies = with_rules({})
    _, b = copies.hosts
    copies.declare(
        b, "local",
        arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"},
    )  # fmt: skip
    copies.publish(b, "local", "ab")
    copies.until(lambda: b.running.vhost.queues["local"].total_count == 0)
    assert copies.contents(b, "q") == ""


def test_priorities_are_kept_and_count_when_it_serves() -> None:
    copies = with_rules({"x-max-priority": 9})
    a, b = copies.hosts
    for text, priority in (("a", 0), ("b", 5), ("c", 1)):
        put(copies, text, priority=priority)
    copies.follows(a)
    assert in_order(copies) == "abc"
    assert copies.consume(a, "q", 1) == "b"
    put(copies, "d", priority=9)
    copies.follows(a)
    assert in_order(copies) == "acd"
    assert copies.ask(b, "replicate-stop", name="q")["ok"]
    assert copies.consume(b, "q", 3) == "dca"


def test_an_unused_queue_that_expires_at_the_source_stays_here() -> None:
    copies = with_rules({"x-expires": 1000}, "ab")
    copies.until(lambda: "q" not in copies[0].running.vhost.queues)
    copies.until(lambda: copies.line["state"] == "source gone")
    copies.run(3.0)
    assert copies.contents(copies.b, "q") == "ab"


@pytest.mark.parametrize(
    ("asked", "level"), [("all", "all"), ("configuration", "configuration"), (None, "unset")]
)
def test_from_stop_on_its_level_of_replication_is_the_one_that_a_declaration_here_gets(
    asked: str | None, level: str
) -> None:
    """So that it has a backup too, once this broker gets one."""
    copies = following(arguments={} if asked is None else {"x-replicate": asked})
    b = copies.b
    copies.declare(b, "own", arguments=b.running.vhost.queues["q"].arguments)
    assert copies.ask(b, "replicate-stop", name="q")["ok"]
    for _ in range(2):
        copies.run(0.2)
        queues = b.running.vhost.queues
        q, own = queues["q"], queues["own"]
        assert (q.scope, q.content_scope, q.replicate) == (own.scope, own.content_scope, level)
        assert copies.contents(b, "q") == "abc"
        copies.kill(b)
        copies.start(b)


def test_stopped_in_a_pair_it_stays_without_a_backup() -> None:
    """Its messages never were history that a backup has seen."""
    copies = following(arguments={"x-replicate": "all"})
    copies.kill(copies.b)
    copies.paired = True
    copies.start(copies.b)
    assert copies.ask(copies.b, "promote", force_lossy=True)["ok"]
    assert copies.ask(copies.b, "replicate-stop", name="q")["ok"]
    queue = copies.b.running.vhost.queues["q"]
    assert (queue.scope, queue.replicate) == (Scope.STORE, "none")


def test_a_stopped_copy_gets_a_backup_with_the_broker_and_survives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = following(arguments={"x-replicate": "all"})
    other, b = copies.hosts
    assert copies.ask(b, "replicate-stop", name="q")["ok"]
    copies.publish(b, "q", "xy")
    copies.run(0.2)
    copies.kill(other)
    copies.kill(b)
    other.disk = VirtualDisk()
    pair = [("127.0.0.1", host.port) for host in copies.hosts]
    monkeypatch.setattr(copies, "brokers", lambda host: pair)
    copies.start()
    copies.run(0.3)
    assert copies.ask(b, "promote", force_lossy=True)["ok"]
    copies.until(lambda: other.status == "ready")
    copies.kill(b)
    copies.run(0.3)
    assert copies.ask(other, "promote")["ok"]
    assert copies.consume(other, "q", 9) == "abcxy"

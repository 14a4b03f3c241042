"""Rules that remove or order messages, on a queue that is replicated to a broker of no cluster: the source
decides, the mirror follows, and from `--stop` on decides for itself (18).
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.model.history.records import Dequeue
from broker.model.values import Reason, Scope
from tests.ha.mirror.mirrors import Mirrors, following, in_order
from tests.ha.pair import Host, raw
from tests.simulation.harness.machines.virtual_disk import VirtualDisk


def with_rules(arguments: dict[str, Any], texts: str = "") -> Mirrors:
    mirrors = Mirrors(dequeue_lag=0.0)
    mirrors.begin("other")
    mirrors.declare(mirrors[0], "q", arguments=arguments)
    if texts:
        mirrors.publish(mirrors[0], "q", texts)
    assert mirrors.replicate()["ok"]
    mirrors.follows(mirrors[0])
    return mirrors


def put(mirrors: Mirrors, text: str, *, priority: int = 0) -> None:
    vhost = mirrors[0].running.vhost
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


def test_a_mirror_expires_what_the_source_expires_and_nothing_else() -> None:
    mirrors = with_rules({"x-message-ttl": 2000}, "ab")
    a, b = mirrors.hosts
    reasons = Reasons(b)
    mirrors.separate(a, b, reset=True)
    mirrors.run(3.0)
    assert mirrors.contents(a, "q") == ""
    assert mirrors.contents(b, "q") == "ab"
    assert reasons.told == []
    mirrors.heal()
    mirrors.publish(a, "q", "cd")
    mirrors.follows(a)
    assert mirrors.contents(b, "q") == "cd"
    mirrors.until(lambda: mirrors.contents(b, "q") == "")
    assert set(reasons.told) == {Reason.DROPPED, Reason.EXPIRED}, "compared after the break, then followed"


def test_from_stop_on_its_rules_count_here() -> None:
    mirrors = with_rules({"x-message-ttl": 2000}, "ab")
    a, b = mirrors.hosts
    mirrors.kill(a)
    mirrors.run(3.0)
    assert mirrors.contents(b, "q") == "ab"
    reasons = Reasons(b)
    assert mirrors.ask(b, "replicate-stop", name="q")["ok"]
    mirrors.run(0.1)
    assert mirrors.contents(b, "q") == ""
    assert reasons.told == [Reason.EXPIRED]


def test_a_limit_drops_at_the_source_alone_and_here_from_stop_on() -> None:
    mirrors = with_rules({"x-max-length": 3})
    a, b = mirrors.hosts
    mirrors.publish(a, "q", "abcdef")
    mirrors.follows(a)
    assert mirrors.contents(b, "q") == "def"
    assert mirrors.ask(b, "replicate-stop", name="q")["ok"]
    mirrors.publish(b, "q", "xy")
    mirrors.run(0.1)
    assert mirrors.contents(b, "q") == "fxy"


def test_dead_letters_are_the_sources() -> None:
    mirrors = with_rules({
        "x-message-ttl": 500, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other",
    })  # fmt: skip
    a, b = mirrors.hosts
    mirrors.declare(b, "other")
    mirrors.publish(a, "q", "ab")
    mirrors.follows(a)
    assert mirrors.contents(b, "q") == "ab"
    mirrors.until(lambda: mirrors.contents(b, "q") == "")
    assert a.running.vhost.queues["other"].total_count == 2
    assert b.running.vhost.queues["other"].total_count == 0


def test_nothing_is_dead_lettered_to_a_mirror() -> None:
    mirrors = with_rules({})
    _, b = mirrors.hosts
    mirrors.declare(
        b, "local",
        arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"},
    )  # fmt: skip
    mirrors.publish(b, "local", "ab")
    mirrors.until(lambda: b.running.vhost.queues["local"].total_count == 0)
    assert mirrors.contents(b, "q") == ""


def test_priorities_are_kept_and_count_when_it_serves() -> None:
    mirrors = with_rules({"x-max-priority": 9})
    a, b = mirrors.hosts
    for text, priority in (("a", 0), ("b", 5), ("c", 1)):
        put(mirrors, text, priority=priority)
    mirrors.follows(a)
    assert in_order(mirrors) == "abc"
    assert mirrors.consume(a, "q", 1) == "b"
    put(mirrors, "d", priority=9)
    mirrors.follows(a)
    assert in_order(mirrors) == "acd"
    assert mirrors.ask(b, "replicate-stop", name="q")["ok"]
    assert mirrors.consume(b, "q", 3) == "dca"


def test_an_unused_queue_that_expires_at_the_source_stays_here() -> None:
    mirrors = with_rules({"x-expires": 1000}, "ab")
    mirrors.until(lambda: "q" not in mirrors[0].running.vhost.queues)
    mirrors.until(lambda: mirrors.line["state"] == "source gone")
    mirrors.run(3.0)
    assert mirrors.contents(mirrors.b, "q") == "ab"


@pytest.mark.parametrize(
    ("asked", "level"), [("all", "all"), ("configuration", "configuration"), (None, "unset")]
)
def test_a_stopped_mirror_has_the_replication_level_of_a_new_queue(asked: str | None, level: str) -> None:
    """So that it has a backup too, once this broker gets one."""
    mirrors = following(arguments={} if asked is None else {"x-replicate": asked})
    b = mirrors.b
    mirrors.declare(b, "own", arguments=b.running.vhost.queues["q"].arguments)
    assert mirrors.ask(b, "replicate-stop", name="q")["ok"]
    for _ in range(2):
        mirrors.run(0.2)
        queues = b.running.vhost.queues
        q, own = queues["q"], queues["own"]
        assert (q.scope, q.content_scope, q.replicate) == (own.scope, own.content_scope, level)
        assert mirrors.contents(b, "q") == "abc"
        mirrors.kill(b)
        mirrors.start(b)


def test_stopped_in_a_pair_it_stays_without_a_backup() -> None:
    """Its messages never were history that a backup has seen."""
    mirrors = following(arguments={"x-replicate": "all"})
    mirrors.kill(mirrors.b)
    mirrors.paired = True
    mirrors.start(mirrors.b)
    assert mirrors.ask(mirrors.b, "promote", force_lossy=True)["ok"]
    assert mirrors.ask(mirrors.b, "replicate-stop", name="q")["ok"]
    queue = mirrors.b.running.vhost.queues["q"]
    assert (queue.scope, queue.replicate) == (Scope.STORE, "none")


def test_a_stopped_mirror_gets_a_backup_with_the_broker_and_survives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirrors = following(arguments={"x-replicate": "all"})
    other, b = mirrors.hosts
    assert mirrors.ask(b, "replicate-stop", name="q")["ok"]
    mirrors.publish(b, "q", "xy")
    mirrors.run(0.2)
    mirrors.kill(other)
    mirrors.kill(b)
    other.disk = VirtualDisk()
    pair = [("127.0.0.1", host.port) for host in mirrors.hosts]
    monkeypatch.setattr(mirrors, "brokers", lambda host: pair)
    mirrors.start()
    mirrors.run(0.3)
    assert mirrors.ask(b, "promote", force_lossy=True)["ok"]
    mirrors.until(lambda: other.status == "ready")
    mirrors.kill(b)
    mirrors.run(0.3)
    assert mirrors.ask(other, "promote")["ok"]
    assert mirrors.consume(other, "q", 9) == "abcxy"

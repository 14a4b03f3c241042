"""An old primary, or backup, that returns: what history dequeued or deleted is dropped silently, what history
never had is exported first, whoever serves and however he came to it (invariants 14, 15).
"""

from __future__ import annotations

import json

from ha.adapter import codes as adapter_codes
from ha.core import codes
from tests.ha.client import Client
from tests.ha.pair import Host, Pair


def quarantined(host: Host) -> int:
    return int(host.running.status()["quarantined"])


def rejoin(pair: Pair, host: Host, other: Host) -> None:
    pair.start(host)
    pair.until(lambda: host.status == "ready")
    assert pair.fingerprint(host) == pair.fingerprint(other)


def with_abc() -> tuple[Pair, Host, Host]:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "abc")
    pair.run(0.2)
    return pair, a, b


def test_what_history_deleted_with_its_queue_is_dropped_silently() -> None:
    pair, a, b = with_abc()
    pair.kill(b)
    a.running.vhost.delete_queue("q", owner=pair)
    pair.run(0.2)
    rejoin(pair, b, a)
    assert quarantined(b) == 0


def test_what_history_dequeued_before_two_restarts_is_dropped_silently() -> None:
    """A start compacts the store: of an epoch without messages nothing is left. The second knows nothing."""
    pair, a, b = with_abc()
    pair.kill(b)
    assert pair.consume(a, "q", 3) == "abc"
    pair.run(2.5)
    for _ in range(2):
        pair.kill(a)
        pair.start(a)
        pair.run(0.3)
    assert bool(pair.ask(a, "promote")["ok"])
    rejoin(pair, b, a)
    assert quarantined(b) == 0


def half_a_queue() -> tuple[Pair, Host, Host]:
    """b is cut off with the first messages of a queue, and with a live one that came down the stream before
    the rest. a has confirmed all.
    """
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.kill(b)
    for letter in "abcdefghijkl":
        pair.publish(a, "q", letter)
    pair.run(2.5)
    pair.snapshots(a, 1)
    pair.start(b)
    pair.until(lambda: b.status == "catch-up")
    pair.publish(a, "q", "x")
    pair.until(lambda: "x" in pair.contents(b, "q"))
    return pair, a, b


def test_an_old_primary_exports_the_gaps_of_a_forced_promotion() -> None:
    """What it lacks must not vanish unexported."""
    pair, a, b = half_a_queue()
    pair.separate(a, b, reset=True)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    half = pair.contents(b, "q")
    assert "l" not in half and "x" in half
    pair.run(0.1)
    pair.heal()
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == half
    assert quarantined(a) == len(set("abcdefghijklx") - set(half))


def test_a_forced_new_primary_knows_what_it_lacks_after_a_restart_too() -> None:
    pair, a, b = half_a_queue()
    pair.separate(a, b, reset=True)
    pair.kill(b)
    pair.start(b)
    pair.run(0.1)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    half = pair.contents(b, "q")
    assert "l" not in half and "x" in half
    pair.heal()
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == half
    assert quarantined(a) == len(set("abcdefghijklx") - set(half))


def test_messages_unknown_to_history_are_exported_from_a_deleted_queue() -> None:
    """b goes on without a; the queue is deleted there. Of what a had in it, b knew only a part."""
    pair, a, b = with_abc()
    pair.separate(a, b)
    pair.publish(a, "q", "de")  # confirmed by nobody
    pair.run(0.2)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    b.running.vhost.delete_queue("q", owner=pair)
    pair.run(0.2)
    pair.heal()
    rejoin(pair, a, b)
    assert quarantined(a) == 2


def test_messages_are_exported_if_the_queue_goes_during_its_snapshot() -> None:
    """As above, but a is already catching up when the queue goes."""
    pair, a, b = with_abc()
    pair.publish(a, "q", "0123456789" * 5)
    pair.run(0.2)
    pair.separate(a, b)
    pair.publish(a, "q", "de")  # confirmed by nobody
    pair.run(0.2)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    pair.publish(b, "q", "0123456789" * 5)
    pair.run(0.2)
    pair.snapshots(b, 1)
    pair.heal()
    pair.start(a)
    pair.until(lambda: a.status == "catch-up")
    assert "de" in pair.contents(a, "q")
    b.running.vhost.delete_queue("q", owner=pair)
    pair.until(lambda: a.status == "ready")
    assert "q" not in a.running.vhost.queues
    assert quarantined(a) == 2


def test_history_checkpoints_are_made_only_while_all_are_in_sync() -> None:
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    pair.declare(a, "q")
    pair.declare(a, "gone")
    for queue in ("q", "gone"):
        pair.publish(a, queue, "abc")
    pair.run(0.2)
    pair.kill(c)
    pair.run(2.5)
    a.running.vhost.delete_queue("gone", owner=pair)
    pair.consume(a, "q", 3)
    for letter in "xy":  # history moves, and points are cut
        pair.run(6.0)
        pair.publish(a, "q", letter)
    deleted_queues = a.running.vhosts.deleted_queues
    assert len(deleted_queues) == 1
    rejoin(pair, c, a)
    assert quarantined(c) == 0
    pair.until(lambda: not len(deleted_queues))
    pair.run(0.2)
    assert not len(b.running.vhosts.deleted_queues) and not len(c.running.vhosts.deleted_queues)


def test_a_primary_with_a_slow_disk_makes_no_history_checkpoint() -> None:
    """It returns with what history dequeued long ago: all others may have that on disk, it has not."""
    pair, a, b = with_abc()
    pair.kill(a)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    rejoin(pair, a, b)
    b.disk_does("stop")
    assert pair.consume(b, "q", 3) == "abc"
    for letter in "xyz":  # history moves, and points are cut
        pair.run(6.0)
        pair.publish(b, "q", letter)
    assert a.status == "ready"
    pair.kill(b)
    assert pair.ask(a, "promote", force_lossy=True)["ok"]
    b.disk_does("go")
    pair.start(b)
    assert "abc" in pair.contents(b, "q")
    pair.until(lambda: b.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b) and quarantined(b) == 0


def test_a_consumer_that_history_never_had_is_forgotten() -> None:
    """b hears of the first consumer of an auto-delete queue; a dies before c does, which is promoted. b would
    end that queue, were it promoted next: what history says of a queue is taken back, on disk too.
    """
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    for queue in ("used", "unused"):
        pair.declare(a, queue, auto_delete=True)
    for queue in ("used", "unused"):
        if queue == "unused":
            pair.hold(a, c)
        client = Client(queue, a, pair.now)
        client.begin(pair.now)
        client.consume(queue, 1, pair.now)
        pair.run(0.05)
    pair.kill(a)
    assert abandoned(b) == ["unused", "used"] and abandoned(c) == ["used"]
    assert pair.ask(c, "promote")["ok"]
    pair.until(lambda: any(line.startswith("b ") for line in c.told(codes.BACKUP_IN_SYNC)))
    assert abandoned(b) == ["used"] and pair.fingerprint(b) == pair.fingerprint(c)
    pair.run(0.2)
    pair.kill(b)
    pair.start(b)
    assert abandoned(b) == ["used"]


def abandoned(host: Host) -> list[str]:
    """Queues that would end if nobody came back to them."""
    return sorted(queue.name for queue in host.running.vhosts.abandoned_queues())


def gone(queue: str, how: str, messages: int) -> str:
    return adapter_codes.QUEUE_GONE.say(queue=queue, how=how, messages=messages).sentence


def test_a_queue_declared_again_is_logged_as_another_queue() -> None:
    """ "Not on the primary" was said of a queue whose name is there for everybody to see."""
    pair, a, b = with_abc()
    pair.kill(b)
    a.running.vhost.delete_queue("q", owner=pair)
    pair.declare(a, "q")
    pair.publish(a, "q", "d")
    pair.run(0.2)
    rejoin(pair, b, a)
    assert pair.contents(b, "q") == "d"
    assert b.told(adapter_codes.QUEUE_GONE) == [gone("q", "was deleted on the primary and declared again", 0)]


def test_a_queue_unknown_to_the_primary_gives_way_to_its_namesake() -> None:
    pair, a, b = with_abc()
    pair.separate(a, b)
    pair.run(3.0)
    pair.declare(a, "r")
    pair.declare(a, "s")
    pair.publish(a, "r", "xy")
    pair.run(0.2)
    pair.kill(a)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    pair.declare(b, "r")
    pair.run(0.2)
    pair.heal()
    rejoin(pair, a, b)
    assert a.told(adapter_codes.QUEUE_GONE) == [
        gone("r", "is another one on the primary", 2),
        gone("s", "is not on the primary", 0),
    ]


def test_two_nodes_may_quarantine_the_same_message_under_one_key() -> None:
    """docs/how-to/quarantine.md: whoever republishes both doubles them, and a consumer can tell."""
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    pair.declare(a, "q")
    pair.separate(a, c)
    pair.separate(b, c)
    pair.run(3.0)
    pair.publish(a, "q", "xy")
    pair.run(0.3)
    pair.kill(a)
    pair.kill(b)
    assert pair.ask(c, "promote", force_lossy=True)["ok"]
    pair.heal()
    rejoin(pair, a, c)
    rejoin(pair, b, c)
    keys = []
    for host in (a, b):
        (exported,) = [data for path, data in host.disk.contents().items() if "quarantine" in path]
        lines = [json.loads(line) for line in exported.splitlines()]
        keys.append([(line["queue"], line["epoch"], line["sequence"]) for line in lines])
    assert keys[0] == keys[1] and len(keys[0]) == 2

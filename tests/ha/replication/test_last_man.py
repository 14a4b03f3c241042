"""A primary without a backup in sync keeps transient messages on its disk (`ha.last_man = "persist"`)."""

from __future__ import annotations

from itertools import cycle, islice

from broker.model.values import Need
from ha.adapter import last_man
from tests.ha.pair import Host, Pair

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def up(**settings: object) -> Pair:
    pair = Pair(**{"dequeue_lag": 0.0, "last_man": "persist", **settings})
    pair.up()
    for name in ("q", "r"):
        pair.declare(pair[0], name)
    pair.run(0.1)
    return pair


def alone(pair: Pair) -> Host:
    """The second node dies and is excluded; the first has written everything."""
    pair.kill(pair[1])
    pair.until(lambda: kept(pair[0]))
    return pair[0]


def kept(host: Host) -> bool:
    found = host.running.status()["last_man"]
    return found["on_disk_since"] is not None


def restarted(pair: Pair, host: Host) -> None:
    """The power goes; the node comes back alone, and serves."""
    pair.kill(host)
    pair.start(host)
    pair.run(0.3)
    assert pair.ask(host, "promote", force_lossy=False, fenced=True)["ok"]


def need(host: Host, queue: str) -> Need:
    vhost = host.running.vhost
    return vhost.route("", queue).need[False]


def test_what_is_transient_survives_the_last_man() -> None:
    pair = up()
    a = pair[0]
    pair.publish(a, "q", "abc", persistent=False)
    pair.publish(a, "q", "def")
    pair.publish(a, "q", "gh", persistent=False)
    held = [a.running.vhost.queues["q"].pop(no_ack=False) for _ in range(2)]
    pair.run(0.1)
    assert need(a, "q") is Need.APPLIED
    alone(pair)
    assert need(a, "q") is Need.DURABLE
    assert "transient messages are on disk since" in a.running.status()["reason"]
    a.running.vhost.queues["q"].acknowledge([entry for entry in held[:1] if entry is not None])
    pair.run(0.1)
    a.syncing = False
    position = pair.publish(a, "q", "ij", persistent=False)
    pair.publish(a, "r", "x", persistent=False)
    pair.run(0.1)
    assert not pair.confirmed(a, position)
    a.syncing = True
    pair.run(0.1)
    assert pair.confirmed(a, position)
    assert pair.consume(a, "q", 1) == "c"
    pair.run(0.1)

    restarted(pair, a)
    assert pair.contents(a, "q") == "bdefghij"
    assert pair.contents(a, "r") == "x"
    pair.until(lambda: kept(a))
    assert pair.consume(a, "q", 3) == "bde"
    pair.run(0.1)
    restarted(pair, a)
    assert pair.contents(a, "q") == "fghij"


def test_without_the_setting_they_are_gone() -> None:
    pair = up(last_man="none")
    a = pair[0]
    pair.publish(a, "q", "abc", persistent=False)
    pair.kill(pair[1])
    pair.until(lambda: a.running.status()["last_man"]["alone_since"] is not None)
    pair.publish(a, "q", "de", persistent=False)
    pair.run(0.2)
    assert need(a, "q") is Need.APPLIED
    restarted(pair, a)
    assert pair.contents(a, "q") == ""


def test_a_backup_in_sync_ends_it_and_the_old_ones_leave_the_store() -> None:
    pair = up()
    a, b = pair
    pair.publish(a, "q", "abc", persistent=False)
    alone(pair)
    pair.publish(a, "q", "de", persistent=False)
    pair.run(0.1)
    assert stored(a, "q") == 5
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    pair.until(lambda: need(a, "q") is Need.APPLIED)
    assert a.running.status()["last_man"] == {"persist": True, "alone_since": None, "on_disk_since": None}
    pair.publish(a, "q", "fg", persistent=False)
    pair.run(0.1)
    assert stored(a, "q") == 5
    assert pair.consume(a, "q", 4) == "abcd"
    pair.run(0.2)
    assert stored(a, "q") == 1
    # Whoever is promoted has all, and what leaves its queues leaves the old disks, too.
    pair.kill(a)
    assert pair.ask(b, "promote", fenced=True, limit=10)["ok"]
    assert pair.contents(b, "q") == "efg"
    pair.until(lambda: kept(b))
    assert stored(b, "q") == 3
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.consume(b, "q", 3) == "efg"
    pair.run(0.2)
    assert stored(a, "q") == stored(b, "q") == 0
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_a_queue_declared_by_the_last_man_is_kept_and_a_transient_one_is_not() -> None:
    pair = up()
    a = alone(pair)
    pair.declare(a, "new")
    a.running.vhost.declare_queue("loose", owner=pair, durable=False)
    pair.declare(a, "mine", arguments={"x-replicate": "none"})
    for name in ("new", "loose", "mine"):
        pair.publish(a, name, "ab", persistent=False)
    pair.consume(a, "new", 1)
    pair.run(0.1)
    assert need(a, "mine") is Need.NONE
    restarted(pair, a)
    assert pair.contents(a, "new") == "b"
    assert pair.contents(a, "mine") == ""
    assert "loose" not in a.running.vhost.queues


def test_much_is_written_in_slices_while_queues_change() -> None:
    pair = up()
    a = pair[0]
    many = "".join(islice(cycle(LETTERS), last_man.LOOK * 3))
    for begin in range(0, len(many), 100):
        pair.publish(a, "q", many[begin : begin + 100], persistent=begin % 200 == 0)
    pair.publish(a, "r", "xyz", persistent=False)
    pair.run(0.2)
    pair.kill(pair[1])
    pair.until(lambda: a.running.vhosts.transient_kept)
    assert not kept(a)
    assert a.running.status()["reason"].endswith("transient messages are being written to disk")
    queue = a.running.vhost.queues["q"]
    first = [entry for entry in (queue.pop(no_ack=False) for _ in range(last_man.LOOK * 2)) if entry]
    pair.step()
    queue.acknowledge(first[::2])  # some are written, and some are not yet
    queue.requeue(first[1::2])
    pair.publish(a, "q", "!", persistent=False)
    pair.until(lambda: kept(a))
    expected = many[1 : last_man.LOOK * 2 : 2] + many[last_man.LOOK * 2 :] + "!"
    assert pair.contents(a, "q") == expected
    assert stored(a, "q") == len(expected)
    restarted(pair, a)
    assert pair.contents(a, "q") == expected
    assert pair.contents(a, "r") == "xyz"


def stored(host: Host, queue: str) -> int:
    """Messages of the queue that its disk would bring back."""
    found = host.running.vhost.queues[queue]
    index = host.running._store.index  # type: ignore[attr-defined]
    return sum(last - first + 1 for uuid, _, first, last, _ in index.ranges() if uuid == found.uuid)

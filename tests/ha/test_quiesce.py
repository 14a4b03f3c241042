"""Quiesce points: both nodes note the same ids under the same name, whatever was on its way."""

from __future__ import annotations

from collections import defaultdict

from tests.ha.pair import Host, Pair

Held = dict[str, set[tuple[str, int, int, int]]]


def points(host: Host) -> Held:
    """By name of the point: what this node noted that it held."""
    found: Held = defaultdict(set)
    for kind, fields in host.ledger.kinds:
        if kind == "quiesce":
            found[fields["name"]].add((fields["queue"], fields["epoch"], fields["first"], fields["last"]))
    return found


def test_a_point_is_cut_when_a_backup_is_in_sync_every_five_seconds_and_at_a_clean_end() -> None:
    pair = Pair()
    pair.start()
    a, b = pair.hosts
    pair.run(0.3)
    assert pair.ask(a, "promote")["ok"]
    pair.declare(a, "q")
    pair.declare(a, "empty")
    pair.publish(a, "q", "abcdef")
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    queue = a.running.vhost.queues["q"]
    taken = [queue.pop(no_ack=False) for _ in range(3)]
    queue.acknowledge([entry for entry in taken if entry is not None][1:2])
    pair.run(5.5)
    pair.publish(a, "q", "g")
    queue.acknowledge([entry for entry in taken if entry is not None][:1])
    a.running.stop(pair.now)
    pair.run(0.1)
    uuid, none = queue.uuid.hex(), a.running.vhost.queues["empty"].uuid.hex()
    epoch = queue.ids.epoch
    at_a, at_b = points(a), points(b)
    assert at_a == at_b and len(at_a) == 3
    assert list(at_a.values()) == [
        {(uuid, epoch, 1, 6), (none, 0, 0, -1)},
        {(uuid, epoch, 1, 1), (uuid, epoch, 3, 6), (none, 0, 0, -1)},
        {(uuid, epoch, 3, 7), (none, 0, 0, -1)},
    ]

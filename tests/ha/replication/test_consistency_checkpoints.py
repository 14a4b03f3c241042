"""Consistency checkpoints: both nodes note the same ids under the same name, whatever was on its way."""

from __future__ import annotations

from collections import defaultdict

import pytest

from broker.model.history.replication_id_set import ReplicationIdSet
from ha.core.errors import LinkError
from ha.core.primary.consistency_checkpoints import digest_of, encode_checkpoint, parse_checkpoint
from tests.ha.pair import Host, Pair, retune

Held = dict[str, set[tuple[str, int, int, int]]]


def points(host: Host) -> Held:
    """By name of the point: what this node noted that it held."""
    found: Held = defaultdict(set)
    for kind, fields in host.ledger.kinds:
        if kind == "quiesce":
            found[fields["name"]].add((fields["queue"], fields["epoch"], fields["first"], fields["last"]))
    return found


def test_points_are_cut_at_the_join_every_five_seconds_and_at_the_end() -> None:
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


def test_each_point_lists_a_few_queues_and_at_rest_each_once_more() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.run(6)
    retune(a.running.core, checkpoint_queues=3, checkpoint_most=5)
    texts = {"one": "a", "two": "ab", "four": "abcd", "six": "abcdef", "five": "abcde", "none": "", "x": "a"}
    for queue, text in texts.items():
        pair.declare(a, queue)
        pair.publish(a, queue, text)
    uuids = {pair_queue.uuid.hex(): name for name, pair_queue in a.running.vhost.queues.items()}

    def listed(of: Held) -> list[list[str]]:
        found = [sorted({uuids[place[0]] for place in point}) for point in of.values()]
        return [names for names in found if names]

    pair.run(7)
    first = listed(points(a))
    assert first == [["one", "two"], ["four"]][: len(first)], "what no longer fits begins the next point"
    pair.publish(a, "none", "a")
    pair.run(60)
    assert points(a) == points(b)
    rounds = [["one", "two"], ["four"], ["five"], ["none", "x"]]
    assert listed(points(a)) == rounds * 2, "six is too deep; at rest, one whole round, and then no more"


def test_whoever_gets_in_sync_is_compared_though_history_is_at_rest() -> None:
    pair = Pair(3)
    pair.up()
    a, _, c = pair.hosts
    pair.kill(c)
    pair.declare(a, "q")
    pair.publish(a, "q", "abc")
    pair.run(12)
    before = len(points(a))
    c.ledger.kinds.clear()
    pair.start(c)
    pair.until(lambda: c.status == "ready")
    pair.run(0.2)
    at_a, at_c = points(a), points(c)
    assert len(at_a) == before + 1, "its name is its own, though the position is the same"
    assert at_c and at_c.items() <= at_a.items()


def test_a_point_has_a_digest_of_each_queue_and_is_refused_if_cut_short() -> None:
    held = {bytes([n]) * 16: {n: ReplicationIdSet([(1, n), (n + 2, n + 3)])} for n in (1, 2)}
    body = b"".join(encode_checkpoint("7.9", {**held, bytes(16): {}}))
    name, digests = parse_checkpoint(body)
    assert name == "7.9" and digests == {
        queue: digest_of(ids) for queue, ids in {**held, bytes(16): {}}.items()
    }
    assert len(set(digests.values())) == 3
    assert digest_of({7: ReplicationIdSet([(1, 2)])}) != digest_of({8: ReplicationIdSet([(1, 2)])})
    for wrong in (b"", body[:-1], body + b"x", b"\xff" + body[1:]):
        with pytest.raises(LinkError):
            parse_checkpoint(wrong)

"""Message groups: one consumer for each, in order, whoever comes and goes."""

from __future__ import annotations

import random

import pytest

from broker.model.history.records import Entry
from broker.model.queue.consumer import Consumer
from broker.model.queue.keyed import message_groups
from broker.model.queue.keyed.message_groups import GroupedReady
from broker.model.queue.queue import Queue
from broker.model.vhost.vhost import VirtualHost
from tests.broker.model.helpers import Sink, publish, seqs
from tests.broker.model.queue.test_last_value import price, shop, stop


def opened(**arguments: object) -> tuple[VirtualHost, Queue]:
    vhost, _ = shop()
    given = {"x-message-group": "stock", **arguments}
    return vhost, vhost.declare_queue("g", owner=None, durable=True, arguments=given)


def send(vhost: VirtualHost, groups: str) -> None:
    """One message for each letter, `-` for none of a group."""
    publish(vhost, "g", *[price(None if group == "-" else group, group) for group in groups])


def consume(
    vhost: VirtualHost, queue: Queue, limit: int = 1 << 30, *, no_ack: bool = False, priority: int = 0
) -> tuple[Consumer, Sink]:
    sink = Sink(limit)
    consumer = Consumer("c", sink, no_ack=no_ack, priority=priority)
    vhost.consume(queue, consumer)
    return consumer, sink


def groups(entries: list[Entry]) -> str:
    return "".join(chr(raw[-2]) for _, _, raw in entries)


def test_a_group_stays_with_its_consumer_and_waits_for_it() -> None:
    vhost, queue = opened()
    _, one = consume(vhost, queue, 2)
    _, two = consume(vhost, queue)
    send(vhost, "abaaba-b")
    vhost.shared.dispatch()
    assert (groups(one.got), groups(two.got)) == ("aa", "bb-b")
    assert queue.message_count == 2
    queue.acknowledge(one.got[:1])
    one.limit = 3
    queue.schedule()
    vhost.shared.dispatch()
    assert (seqs(one.got), groups(two.got)) == ([1, 3, 4], "bb-b")
    one.limit = 10
    send(vhost, "ca")
    vhost.shared.dispatch()
    assert groups(one.got) == "aaaaa" + "c" * (two.got[-1][0] != 9)


def test_when_a_consumer_ends_its_groups_are_free_once_nothing_is_outstanding() -> None:
    vhost, queue = opened()
    first, one = consume(vhost, queue, 1)
    _, two = consume(vhost, queue, 0)
    send(vhost, "aab")
    vhost.shared.dispatch()
    vhost.cancel(queue, first)
    two.limit = 10
    vhost.shared.dispatch()
    assert (groups(one.got), groups(two.got)) == ("a", "b")  # the first a is with a client
    queue.requeue(one.got)
    vhost.shared.dispatch()
    assert groups(two.got) == "baa" and seqs(two.got) == [3, 1, 2]


def test_a_shared_group_has_a_consumer_only_while_it_holds_messages() -> None:
    vhost, queue = opened(**{"x-message-group-shared": True})
    _, one = consume(vhost, queue, 1)
    _, two = consume(vhost, queue, 1)
    send(vhost, "aaa")
    vhost.shared.dispatch()
    assert (seqs(one.got), seqs(two.got)) == ([1], [])
    queue.acknowledge(one.got)
    vhost.shared.dispatch()
    assert (seqs(one.got), seqs(two.got)) == ([1], [2])
    queue.requeue(two.got)
    one.limit = 2
    vhost.shared.dispatch()
    assert sorted(seqs(one.got) + seqs(two.got)) == [1, 2, 2]


def test_basic_get_takes_of_free_groups_only_and_has_them_until_it_settles() -> None:
    vhost, queue = opened()
    consume(vhost, queue, 1)
    send(vhost, "aabbc")
    vhost.shared.dispatch()
    found = [queue.pop(no_ack=no_ack) for no_ack in (False, True)]
    assert [groups([entry]) for entry in found if entry] == ["b", "c"]
    assert queue.pop(no_ack=False) is None and queue.message_count == 2
    queue.acknowledge([entry for entry in found[:1] if entry])
    last = queue.pop(no_ack=True)
    assert last is not None and groups([last]) == "b"


def test_a_purge_and_a_limit_leave_the_owners() -> None:
    vhost, queue = opened(**{"x-max-length": 3})
    _, one = consume(vhost, queue, 1)
    _, two = consume(vhost, queue, 5)
    send(vhost, "aaaaa")
    vhost.shared.dispatch()
    vhost.shared.removals.settle()
    assert queue.message_count == 3 and queue.purge() == 3
    send(vhost, "ab")
    vhost.shared.dispatch()
    assert (groups(one.got), groups(two.got)) == ("a", "b")


def test_what_is_over_is_not_delivered_from_the_middle_either() -> None:
    vhost, queue = opened(**{"x-message-ttl": 1000, "x-max-length-bytes": 100})
    _, one = consume(vhost, queue, 1)
    _, two = consume(vhost, queue, 0)
    vhost.shared.wall_ms = 5_000
    send(vhost, "aab")
    vhost.shared.dispatch()
    vhost.shared.wall_ms = 7_000
    vhost.shared.removals.since = None
    two.limit = 5
    send(vhost, "c")
    queue.schedule()
    vhost.shared.dispatch()
    assert (groups(one.got), groups(two.got)) == ("a", "c")
    vhost.shared.removals.settle()
    assert (queue.message_count, queue.unacked_count, queue.ready_octets) == (0, 2, 0)


def test_after_a_promotion_the_groups_are_free_and_in_order() -> None:
    vhost, queue = opened()
    _, one = consume(vhost, queue, 2)
    send(vhost, "aabab")
    vhost.shared.dispatch()
    stop(vhost)
    vhost.shared.activate(2)
    _, two = consume(vhost, queue)
    vhost.shared.dispatch()
    assert seqs(two.got) == [1, 2, 3, 4, 5] and all(envelope.redelivered for _, envelope, _ in two.got)
    assert seqs(one.got) == [1, 2]


def test_owners_of_idle_groups_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_groups, "IDLE_MAX", 2)
    vhost, queue = opened()
    _, one = consume(vhost, queue, 3)
    send(vhost, "abc")
    vhost.shared.dispatch()
    queue.acknowledge(one.got)
    one.limit = 3
    _, two = consume(vhost, queue, 3)
    send(vhost, "abc")
    vhost.shared.dispatch()
    assert groups(two.got) == "a"  # forgotten first; the others wait for their owner
    assert isinstance(queue.ready, GroupedReady)
    assert len(queue.ready._groups) == 3 and len(queue.ready._idle) <= 2


@pytest.mark.parametrize("seed", range(40))
def test_by_its_promises(seed: int) -> None:
    """Random publishes, credits, acks, returns, gets, and consumers that come and go."""
    chance = random.Random(seed)
    shared = bool(seed % 2)
    vhost, queue = opened(**{"x-message-group-shared": shared})
    there: list[tuple[Consumer, Sink, dict[int, Entry]]] = []
    loose: dict[int, Entry] = {}
    """Held by nobody who still consumes."""
    owner: dict[str, Consumer] = {}
    sent = 0
    for _ in range(150):
        what = chance.random()
        if what < 0.3:
            some = "".join(chance.choice("abcde-") for _ in range(chance.randrange(5)))
            send(vhost, some)
            sent += len(some)
        elif what < 0.4 and len(there) < 3:
            there.append((*consume(vhost, queue, 0), {}))
        elif what < 0.47 and there:
            gone, _, held = there.pop(chance.randrange(len(there)))
            vhost.cancel(queue, gone)
            owner = {group: mine for group, mine in owner.items() if mine is not gone}
            if chance.random() < 0.5:
                queue.requeue(list(held.values()))
            else:
                loose |= held
        elif what < 0.55 and (entry := queue.pop(no_ack=False)) is not None:
            loose[entry[0]] = entry
        elif what < 0.8:
            pools = [held for *_, held in there] + [loose]
            pool = chance.choice(pools)
            some_held = chance.sample(sorted(pool), min(len(pool), chance.randrange(4)))
            entries = [pool.pop(seq) for seq in some_held]
            (queue.acknowledge if chance.random() < 0.6 else queue.requeue)(entries)
        _, sink, held = chance.choice(there) if there else (None, Sink(0), {})
        sink.limit = len(sink.got) + chance.randrange(4)
        queue.schedule()
        before = {id(sink): len(sink.got) for _, sink, _ in there}
        vhost.shared.dispatch()
        for consumer, sink, held in there:
            for entry in sink.got[before[id(sink)] :]:
                group = groups([entry])
                held[entry[0]] = entry
                _is_next(queue, entry, loose)
                if group != "-" and not shared:
                    assert owner.setdefault(group, consumer) is consumer
            sink.limit = len(sink.got)
        _check(queue, [*(held for *_, held in there), loose])
    assert queue.ids.next - 1 == sent


def _is_next(queue: Queue, entry: Entry, loose: dict[int, Entry]) -> None:
    """Nothing older of its group is ready, and nothing of it is with somebody who does not consume."""
    group = groups([entry])
    if group != "-":
        assert all(other[0] > entry[0] for other in queue.ready if groups([other]) == group)
        assert all(groups([other]) != group for other in loose.values())


def _check(queue: Queue, pools: list[dict[int, Entry]]) -> None:
    """Nothing is held in two places, and messages of one group are with one consumer."""
    held = [seq for pool in pools for seq in pool]
    assert len(held) == len(set(held)) == queue.unacked_count
    *consumers, _ = pools
    for group in "abcde":
        holders = [pool for pool in consumers if any(groups([entry]) == group for entry in pool.values())]
        assert len(holders) <= 1, group

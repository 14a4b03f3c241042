"""Two real nodes over byte streams: from bootstrap to rejoin."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from broker.amqp091.client import ClientConnection, Closed, Opened
from broker.model.octets import as_octets, as_text
from broker.model.values import Need
from broker.peer import Peer
from tests.ha.pair import Host, Pair, raw


def test_a_fresh_pair_waits_in_joining_until_one_is_promoted() -> None:
    pair = Pair()
    pair.start()
    pair.run(1.0)
    assert [h.status for h in pair.hosts] == ["joining", "joining"]
    assert pair.ask(pair[0], "promote")["ok"]
    pair.until(lambda: pair[1].status == "ready")
    assert pair[0].status == "active"


def test_a_confirm_waits_for_the_backup_and_the_copy_is_a_copy() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    position = pair.publish(a, "q", "xyz")
    assert not pair.confirmed(a, position)
    pair.until(lambda: pair.confirmed(a, position))
    assert pair.contents(b, "q") == "xyz"
    assert pair.consume(a, "q", 1) == "x"
    pair.run(0.2)
    assert pair.contents(b, "q") == "yz"
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_a_killed_primary_comes_back_as_an_equal_backup() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    position = pair.publish(a, "q", "abcdef")
    pair.until(lambda: pair.confirmed(a, position))
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    assert pair.contents(b, "q") == "abcdef"
    assert all(entry[1].redelivered for entry in b.running.vhost.queues["q"].ready)
    position = pair.publish(b, "q", "gh")
    assert pair.consume(b, "q", 2) == "ab"
    pair.run(0.1)
    assert pair.confirmed(b, position), "alone after the promotion"
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == "cdefgh"
    assert pair.fingerprint(a) == pair.fingerprint(b)
    assert not [k for k, _ in a.ledger.kinds if k == "quarantine"], (
        "what history dequeued is dropped silently"
    )


def test_keys_that_are_no_text_survive_a_failover_and_two_disks() -> None:
    keys = [as_text(octets) for octets in (b"\xff", b"\0", b"a.\x80", b"\xff" * 255, b"\xed\xa0\x80")]
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    vhost = a.running.vhost
    for key in keys:
        vhost.bind_queue("q", "amq.topic", key, owner=pair)
        vhost.publish(
            vhost.route("amq.topic", key), [raw("x")], persistent=True, channel=1, largest_frame=30,
            producer="p/1", first_tag=1,
        )  # fmt: skip
    pair.until(lambda: pair.confirmed(a, vhost.history.position))
    assert pair.fingerprint(a) == pair.fingerprint(b)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    pair.kill(b)
    assert pair.ask(a, "promote")["ok"]
    queue = a.running.vhost.queues["q"]
    held = [entry[1] for entry in queue.held_entries()]
    assert [envelope.routing_key for envelope in held] == keys
    assert all(envelope.deliver_tail.endswith(as_octets(envelope.routing_key) + b"\xce") for envelope in held)
    assert [a.running.vhost.route("amq.topic", key).queues for key in keys] == [(queue,)] * len(keys)
    lines = pair.ask(a, "definitions")["bindings"]
    assert {json.dumps(line["routing_key"]) for line in lines} >= {'{"$bytes": "/w=="}', '"\\u0000"'}


def test_only_what_is_missing_is_fetched() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "abcdefgh" * 1000)
    pair.run(0.5)
    pair.kill(b)
    pair.publish(a, "q", "xyz")
    pair.run(0.5)
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    backup = next(iter(a.running.core.primary.backups.values()))  # type: ignore[union-attr]
    assert backup.bytes_sent < 10_000
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_transient_messages_survive_the_primary() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    position = pair.publish(a, "q", "abc", persistent=False)
    pair.until(lambda: pair.confirmed(a, position, need=Need.APPLIED))
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    assert pair.contents(b, "q") == "abc"


def test_what_only_the_old_primary_held_goes_to_quarantine() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "ab")
    pair.run(0.2)
    pair.kill(b)
    pair.run(0.1)
    position = pair.publish(a, "q", "cd")
    pair.run(2.1)
    assert pair.confirmed(a, position), "the exclusion is recorded, so that it confirms alone"
    pair.kill(a)
    pair.start(b)
    pair.run(0.5)
    assert not pair.ask(b, "promote")["ok"]
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == pair.contents(b, "q") == "ab"
    assert pair.fingerprint(a) == pair.fingerprint(b)
    path = next(p for p in a.disk.list("/a/quarantine"))
    lines = a.disk.read(f"/a/quarantine/{path}").decode().splitlines()
    assert [line.split('"body": "')[1][0] for line in lines] == ["c", "d"]
    assert [f["first"] for k, f in a.ledger.kinds if k == "quarantine"] == [3]


def test_continue_confirms_alone_only_after_the_exclusion_is_on_disk() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    b.frozen = True
    position = pair.publish(a, "q", "x")
    pair.run(1.8)
    assert not pair.confirmed(a, position)
    pair.run(0.6)
    assert pair.confirmed(a, position)
    assert a.running.core.record is not None and not a.running.core.record.in_sync
    b.frozen = False
    pair.until(lambda: b.status == "ready" and pair.fingerprint(a) == pair.fingerprint(b))
    assert any("excluded" in line for line in b.log)


def test_block_holds_confirms_until_a_backup_is_back() -> None:
    pair = Pair(on_backup_loss="block")
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    pair.kill(b)
    position = pair.publish(a, "q", "x")
    pair.run(5.0)
    assert not pair.confirmed(a, position)
    assert "held" in a.running.status()["reason"]
    pair.start(b)
    pair.until(lambda: pair.confirmed(a, position))
    assert pair.contents(b, "q") == "x"


def test_block_holds_confirms_after_a_failover_until_a_backup_joins() -> None:
    pair = Pair(on_backup_loss="block")
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    pair.kill(a)
    pair.run(0.2)
    assert pair.ask(b, "promote")["ok"]
    position = pair.publish(b, "q", "x")
    pair.run(8.0)
    assert not pair.confirmed(b, position)
    assert not pair.confirmed(b, position, need=Need.APPLIED)
    pair.start(a)
    pair.until(lambda: pair.confirmed(b, position))
    assert pair.contents(a, "q") == "x"


def test_block_holds_the_confirms_of_the_last_copy_after_its_restart() -> None:
    pair = Pair(on_backup_loss="block")
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    pair.kill(b)
    pair.run(3.0)
    pair.kill(a, keep=True)
    pair.start(a)
    pair.run(0.3)
    assert pair.ask(a, "promote")["ok"]
    position = pair.publish(a, "q", "x")
    pair.run(8.0)
    assert not pair.confirmed(a, position)
    pair.start(b)
    pair.until(lambda: pair.confirmed(a, position))
    assert pair.contents(b, "q") == "x"


@pytest.mark.parametrize("policy", [{"min_backups": 1}, {"on_backup_loss": "block"}])
def test_the_policy_holds_from_the_start(policy: dict[str, Any]) -> None:
    pair = Pair(**policy)
    pair.start()
    pair.run(0.3)
    a, b = pair.hosts
    pair.kill(b)
    assert not pair.ask(a, "promote")["ok"], "the other is needed to know that it is empty"
    pair.start(b)
    pair.run(0.3)
    b.syncing = False
    assert pair.ask(a, "promote")["ok"]
    pair.declare(a, "q")
    position = pair.publish(a, "q", "x")
    pair.run(1.0)
    assert not pair.confirmed(a, position)
    b.syncing = True
    pair.until(lambda: pair.confirmed(a, position))


@pytest.mark.parametrize(("persistent", "early"), [([True, True], 0), ([True, False], 1)])
def test_what_is_for_the_disk_is_acknowledged_when_it_is_there(persistent: list[bool], early: int) -> None:
    """What is not is acknowledged at once, also in a batch with what is."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    primary, acks = a.running.core.primary, a.ledger.kinds
    assert primary is not None
    pair.until(lambda: primary._next_beat > pair.now + 0.1)  # a heartbeat is acknowledged at once
    pair.run(0.03)
    del acks[:]
    b.syncing = False
    for each in persistent:
        position = pair.publish(a, "q", "x", persistent=each)
    pair.run(0.05)
    assert [noted["reason"] for kind, noted in acks if kind == "replicated"] == ["applied"] * early
    assert pair.confirmed(a, position, need=Need.APPLIED) == bool(early)
    pair.run(0.05)
    assert pair.confirmed(a, position, need=Need.APPLIED), (
        "a disk that takes long does not hide what is applied"
    )
    b.syncing = True
    pair.until(lambda: pair.confirmed(a, position))
    found = [noted["reason"] for kind, noted in acks if kind == "replicated"]
    assert found == ["applied", "durable"]


def test_a_backup_with_a_dead_disk_is_excluded() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    b.syncing = False
    position = pair.publish(a, "q", "x")
    pair.run(2.5)
    assert pair.confirmed(a, position)
    assert b.status in ("joining", "catch-up")


def test_a_standalone_broker_serves_what_its_store_holds() -> None:
    pair = Pair(1)
    pair.start()
    a = pair[0]
    assert a.status == "standalone"
    pair.declare(a, "q")
    position = pair.publish(a, "q", "abc")
    assert not pair.confirmed(a, position)
    pair.run(0.1)
    assert pair.confirmed(a, position)
    epoch = a.running.status()["epoch"]
    pair.kill(a)
    pair.start(a)
    assert a.running.status()["epoch"] > epoch
    assert pair.contents(a, "q") == "abc"
    assert a.running.vhost.queues["q"].ready[0][1].redelivered
    assert not pair.ask(a, "demote")["ok"]


def test_a_pair_of_three_keeps_the_expected_member() -> None:
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    pair.declare(a, "q")
    position = pair.publish(a, "q", "abc")
    pair.until(lambda: pair.confirmed(a, position))
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
    pair.until(lambda: c.status == "ready" and b.status == "active")
    assert pair.fingerprint(b) == pair.fingerprint(c)
    assert not any("excluded from the in-sync set" in line for line in b.log)
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_joining_goes_on_while_publishers_publish() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.declare(a, "r")
    pair.kill(b)
    for _ in range(50):
        pair.publish(a, "q", "0123456789" * 100)
    pair.run(0.2)
    pair.start(b)
    seen = set()
    end = pair.now + 20
    while b.status != "ready" and pair.now < end:
        pair.publish(a, "q", "live")
        pair.publish(a, "r", "new")
        pair.consume(a, "q", 3)
        seen.add(b.status)
        pair.step()
        pair.now += 0.005
    assert b.status == "ready" and "catch-up" in seen
    pair.run(0.3)
    assert pair.fingerprint(a) == pair.fingerprint(b)
    assert pair.contents(a, "q") == pair.contents(b, "q")


def test_a_link_that_breaks_just_before_the_primary_dies_loses_nothing() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    pair.separate(a, b, reset=True)
    position = pair.publish(a, "q", "x")
    pair.run(0.1)
    assert not pair.confirmed(a, position), "b could still be promoted on the strength of its closed link"
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]


def test_a_link_that_breaks_and_returns_costs_only_an_exclusion() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.2)
    pair.separate(a, b, reset=True)
    position = pair.publish(a, "q", "x")
    pair.run(0.1)
    pair.heal()
    pair.until(lambda: pair.confirmed(a, position) and pair.fingerprint(a) == pair.fingerprint(b), 1.0)
    pair.until(lambda: b.status == "ready", 1.0)


def client_outcome(pair: Pair, host: Host, seconds: float) -> list[object]:
    """What an ordinary client of that node gets to see."""
    client = ClientConnection("guest", "guest", pair.now)
    conn = host.running.accept(Peer("127.0.0.1", 9, loopback=True), pair.now)
    seen: list[object] = []
    end = pair.now + seconds
    while pair.now < end and not seen:
        conn.receive(b"".join(client.take_output()), pair.now)
        pair.run(0.01)
        client.receive(b"".join(conn.take_output()), pair.now)
        seen += client.events()
    conn.lost(pair.now)
    return seen


def test_who_is_let_in() -> None:
    pair = Pair()
    pair.start()
    pair.run(0.3)
    a, b = pair.hosts
    assert client_outcome(pair, a, 2.0) == [], "held: no primary is known"
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: b.status == "ready")
    [opened] = client_outcome(pair, a, 2.0)
    assert isinstance(opened, Opened)
    [closed] = client_outcome(pair, b, 2.0)
    assert isinstance(closed, Closed) and closed.code == 320 and "a at 127.0.0.1:5000" in closed.text


def test_a_clean_end_leaves_everything_on_disk_and_in_the_ledger() -> None:
    pair = Pair(1)
    pair.start()
    a = pair[0]
    pair.declare(a, "q")
    pair.publish(a, "q", "abc")
    pair.run(0.01)
    pair.publish(a, "q", "d")
    a.running.stop(pair.now)
    assert [(f["first"], f["last"]) for k, f in a.ledger.kinds if k == "present"] == [(1, 4)]
    pair.kill(a)
    pair.start(a)
    assert pair.contents(a, "q") == "abcd"


def test_a_disk_that_fails_stops_the_node() -> None:
    pair = Pair()
    pair.up()
    a = pair[0]
    pair.declare(a, "q")
    pair.run(0.1)
    a.disk.failing["sync"] = errno.EIO
    position = pair.publish(a, "q", "x")
    pair.run(0.2)
    assert a.running.stopped is not None and not pair.confirmed(a, position)
    assert a.running.take_dirty() == []


def test_rubbish_on_the_link_costs_the_link_only() -> None:
    for method in (10, 12, 13, 21, 99):
        pair = Pair()
        pair.up()
        a, b = pair.hosts
        peer = next(iter(a.running.hooks.peers))
        a.running.core.method(peer, method, b"\xff" * 30, pair.now)
        if method == 12:
            a.running.core.method(peer, 13, b"{}", pair.now)
        pair.run(1.0)
        pair.until(lambda b=b: b.status == "ready")
        assert a.status == "active"


def test_queues_deleted_and_made_again_while_away() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    for name in ("gone", "again", "kept"):
        pair.declare(a, name)
        pair.publish(a, name, "ab")
    a.running.vhost.declare_exchange("x", "topic", durable=True)
    a.running.vhost.bind_queue("kept", "x", "k.#", {}, owner=pair)
    pair.run(0.3)
    pair.kill(b)
    for name in ("gone", "again"):
        a.running.vhost.delete_queue(name, owner=pair)
    pair.declare(a, "again")
    pair.publish(a, "again", "z")
    a.running.vhost.delete_exchange("x")
    pair.run(0.3)
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert pair.contents(b, "again") == "z"
    assert "gone" not in b.running.vhost.queues
    assert pair.fingerprint(a) == pair.fingerprint(b)

"""Queues with `x-dedup-window`: whoever serves next knows the ids of what it has and had, and no others."""

from __future__ import annotations

import pytest

from broker.amqp091.codec.content import write_content
from ha.adapter import codes
from tests.ha.election.test_no_way_back import halfway
from tests.ha.pair import Host, Pair
from tests.ha.replication.test_numbers import succeed

WINDOW = {"x-dedup-window": "100/1h"}


def send(pair: Pair, host: Host, texts: str, queue: str = "q", *, persistent: bool = True) -> None:
    """One message a letter, which is its id too."""
    vhost = host.running.vhost
    raws = [write_content({"message_id": text}, text.encode(), 4096).raw for text in texts]
    vhost.publish(
        vhost.route("", queue), raws, persistent=persistent, channel=1, largest_frame=60, by_id=True
    )
    pair.run(0.1)


def test_whoever_takes_over_leaves_out_what_it_has_and_had() -> None:
    pair = Pair(3)
    a, b, c = pair.hosts
    pair.up()
    pair.declare(a, "q", arguments=WINDOW)
    send(pair, a, "abc")
    assert pair.consume(a, "q", 1) == "a"
    pair.run(0.3)
    succeed(pair, a, b)
    send(pair, b, "abcd")
    assert pair.contents(b, "q") == "bcd"
    pair.start(a)
    pair.until(lambda: a.status == "ready" and c.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b) == pair.fingerprint(c)
    succeed(pair, b, a)
    send(pair, a, "abcde")
    assert pair.contents(a, "q") == "bcde"


def test_a_window_forgets_on_all_nodes_what_the_primary_forgets() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q", arguments={"x-dedup-window": "3/2s"})
    send(pair, a, "abcd")
    pair.run(0.3)
    assert pair.fingerprint(a) == pair.fingerprint(b)
    assert [len(host.running.vhost.queues["q"].recent or ()) for host in pair.hosts] == [3, 3]
    pair.run(2.5)
    send(pair, a, "d")
    pair.run(0.3)
    assert [len(host.running.vhost.queues["q"].recent or ()) for host in pair.hosts] == [1, 1]
    succeed(pair, a, b)
    send(pair, b, "cd")
    assert pair.contents(b, "q") == "abcddc"


def test_a_node_that_is_promoted_with_loss_takes_what_it_never_had() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q", arguments=WINDOW)
    send(pair, a, "ab")
    pair.run(0.2)
    pair.kill(b)
    send(pair, a, "cd")
    pair.kill(a)
    pair.start(b)
    pair.run(0.3)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    send(pair, b, "bcd")
    assert pair.contents(b, "q") == "abcd"
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)


@pytest.mark.parametrize("rolled", [False, True])
def test_a_restart_forgets_the_ids_of_what_was_in_memory_only(rolled: bool) -> None:
    pair = Pair(1)
    pair.start()
    a = pair[0]
    pair.declare(a, "q", arguments=WINDOW)
    send(pair, a, "a")
    send(pair, a, "b", persistent=False)
    send(pair, a, "c")
    for _ in range(2 if rolled else 1):  # at a start, the store begins a segment, with a base
        pair.kill(a)
        pair.start(a)
        pair.run(0.2)
    send(pair, a, "abcd")
    assert pair.contents(a, "q") == "acbd"


def joining(pair: Pair) -> tuple[Host, Host]:
    """b has the definitions, and of q, which comes behind `more`, nothing."""
    a, b = pair.hosts
    pair.start(a)
    pair.run(0.3)
    assert pair.ask(a, "promote", force_lossy=True)["ok"]
    pair.declare(a, "more")
    pair.declare(a, "q", arguments=WINDOW)
    pair.publish(a, "more", "0123456789")
    send(pair, a, "ab")
    pair.snapshots(a, 30)
    pair.start(b)
    pair.until(lambda: "more" in b.running.vhost.queues and pair.contents(b, "more") == "01")
    assert "q" in b.running.vhost.queues and pair.contents(b, "q") == ""
    return a, b


def test_a_node_promoted_with_loss_during_a_join_takes_again_what_has_not_come() -> None:
    pair = Pair()
    a, b = joining(pair)
    pair.kill(a)
    assert pair.ask(b, "promote", limit=12, force_lossy=True)["ok"]
    (said,) = b.told(codes.QUEUES_FORGOT)
    assert said.endswith(": 'q'")
    send(pair, b, "abc")
    assert pair.contents(b, "q") == "abc"
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_what_comes_during_a_join_is_known_beside_what_came_before() -> None:
    pair = Pair()
    a, b = joining(pair)
    send(pair, a, "da")
    send(pair, a, "c")
    pair.until(lambda: b.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)
    succeed(pair, a, b)
    assert not b.told(codes.QUEUES_FORGOT)
    send(pair, b, "abcde")
    assert pair.contents(b, "q") == "abdce"


def test_a_joined_node_that_restarts_alone_forgets_what_was_in_memory_only() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q", arguments=WINDOW)
    pair.run(0.1)
    pair.kill(b)
    for text, persistent in (("a", True), ("b", False), ("c", True)):
        send(pair, a, text, persistent=persistent)
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)
    for host in pair.hosts:
        pair.kill(host)
    pair.start(b)
    pair.run(0.3)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    send(pair, b, "abcd")
    assert pair.contents(b, "q") == "acbd"


def test_a_member_that_goes_back_to_what_it_held_knows_the_ids_of_that() -> None:
    """c had ab of q. From b, which took cd after them, it has the definitions and nothing of q."""
    pair = Pair(3, authority="register")
    pair.up()
    a, b, c = pair.hosts
    pair.declare(a, "more")
    pair.declare(a, "q", arguments=WINDOW)
    send(pair, a, "ab")
    pair.run(0.3)
    for one, other in ((a, b), (a, c), (b, c)):
        pair.separate(one, other)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.publish(b, "more", "0123456789")
    send(pair, b, "cd")
    halfway(pair)
    pair.separate(b, c, reset=True)
    pair.kill(b)
    assert pair.ask(c, "promote", limit=12)["ok"]
    send(pair, c, "abcd")
    assert pair.contents(c, "q") == "abcd"

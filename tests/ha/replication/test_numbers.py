"""Numbers of producers: whoever serves next leaves out what its queues had, and nothing else."""

from __future__ import annotations

import pytest

from broker.model.history.marks import gaps_of
from broker.model.vhost.producers import Claim
from ha.adapter import codes
from tests.ha.election.test_no_way_back import halfway
from tests.ha.pair import Host, Pair, raw


def send(pair: Pair, host: Host, first: int, texts: str, *queues: str, persistent: bool = True) -> None:
    """A session of the producer sends one message a letter, with numbers from `first` on."""
    vhost = host.running.vhost
    shared = vhost.shared
    session = shared.producers.begin(shared, "/", Claim("shop", 0, first), "guest", lambda why: None)
    for queue in queues or ("q",):
        vhost.publish(
            vhost.route("", queue), list(map(raw, texts)), persistent=persistent, channel=1,
            largest_frame=30, numbering=session.numbering(1),
        )  # fmt: skip
    pair.run(0.1)


def succeed(pair: Pair, old: Host, new: Host, **how: bool) -> None:
    pair.run(0.2)
    pair.kill(old)
    pair.run(0.3)
    answer = pair.ask(new, "promote", limit=12, **how)
    assert answer["ok"], answer


def test_whoever_takes_over_leaves_out_what_it_has_and_had() -> None:
    pair = Pair(3)
    a, b, c = pair.hosts
    pair.up()
    pair.declare(a, "q")
    send(pair, a, 1, "abc")
    assert pair.consume(a, "q", 1) == "a"
    pair.run(0.3)
    succeed(pair, a, b)
    send(pair, b, 1, "abcd")
    assert pair.contents(b, "q") == "bcd"
    pair.start(a)
    pair.until(lambda: a.status == "ready" and c.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b) == pair.fingerprint(c)
    succeed(pair, b, a)
    send(pair, a, 1, "abcde")
    assert pair.contents(a, "q") == "bcde"
    shop = {"vhost": "/", "name": "shop", "user": "guest", "epoch": 0, "connected": True}
    assert pair.ask(a, "list", kind="producers")["rows"] == [shop | {"last_number": 5, "queues": 1}]


def test_what_its_queue_never_had_is_taken_by_a_node_that_is_promoted_with_loss() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    send(pair, a, 1, "ab")
    pair.run(0.2)
    pair.kill(b)
    send(pair, a, 3, "cd")
    pair.kill(a)
    pair.start(b)
    pair.run(0.3)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    send(pair, b, 2, "bcd")
    assert pair.contents(b, "q") == "abcd"
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)


@pytest.mark.parametrize("rolled", [False, True])
def test_a_restart_forgets_the_numbers_of_what_was_in_memory_only(rolled: bool) -> None:
    pair = Pair(1)
    pair.start()
    a = pair[0]
    pair.declare(a, "q")
    send(pair, a, 1, "a")
    send(pair, a, 2, "b", persistent=False)
    send(pair, a, 3, "c")
    for _ in range(2 if rolled else 1):  # at a start, the store begins a segment, with a base
        pair.kill(a)
        pair.start(a)
        pair.run(0.2)
    send(pair, a, 1, "abcd")
    assert pair.contents(a, "q") == "acbd"


def joining(pair: Pair) -> tuple[Host, Host]:
    """b has the definitions, and of q, which comes behind `more`, nothing."""
    a, b = pair.hosts
    pair.start(a)
    pair.run(0.3)
    assert pair.ask(a, "promote", force_lossy=True)["ok"]
    for name in ("more", "q"):
        pair.declare(a, name)
    pair.publish(a, "more", "0123456789")
    send(pair, a, 1, "ab")
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
    send(pair, b, 1, "abc")
    assert pair.contents(b, "q") == "abc"
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_what_comes_during_a_join_is_marked_beside_what_came_before() -> None:
    pair = Pair()
    a, b = joining(pair)
    send(pair, a, 4, "d")
    send(pair, a, 3, "c")
    pair.until(lambda: b.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)
    succeed(pair, a, b)
    assert not b.told(codes.QUEUES_FORGOT)
    send(pair, b, 1, "abcde")
    assert pair.contents(b, "q") == "abdce"


def test_a_joined_node_that_restarts_alone_forgets_what_was_in_memory_only() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.1)
    pair.kill(b)
    for number, (text, persistent) in enumerate((("a", True), ("b", False), ("c", True)), 1):
        send(pair, a, number, text, persistent=persistent)
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)
    for host in pair.hosts:
        pair.kill(host)
    pair.start(b)
    pair.run(0.3)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    send(pair, b, 1, "abcd")
    assert pair.contents(b, "q") == "acbd"


def test_a_member_that_goes_back_to_what_it_held_has_the_numbers_of_that() -> None:
    """c had ab of q. From b, which took cd after them, it has the definitions and nothing of q."""
    pair = Pair(3, authority="register")
    pair.up()
    a, b, c = pair.hosts
    for name in ("more", "q"):
        pair.declare(a, name)
    send(pair, a, 1, "ab")
    pair.run(0.3)
    for one, other in ((a, b), (a, c), (b, c)):
        pair.separate(one, other)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.publish(b, "more", "0123456789")
    send(pair, b, 3, "cd")
    halfway(pair)
    pair.separate(b, c, reset=True)
    pair.kill(b)
    assert pair.ask(c, "promote", limit=12)["ok"]
    send(pair, c, 1, "abcd")
    assert pair.contents(c, "q") == "abcd"


def test_the_last_man_knows_the_numbers_of_what_it_wrote_later() -> None:
    pair = Pair(dequeue_lag=0.0, last_man="persist")
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    send(pair, a, 1, "abc", persistent=False)
    pair.kill(b)
    pair.until(lambda: a.running.status()["last_man"]["on_disk_since"] is not None)
    assert gaps_of(a.running.vhost.queues["q"].marks["shop"]).unstored == 0
    send(pair, a, 4, "d", persistent=False)
    pair.kill(a)
    pair.start(a)
    pair.run(0.3)
    assert pair.ask(a, "promote", fenced=True)["ok"]
    send(pair, a, 1, "abcde")
    assert pair.contents(a, "q") == "abcde"


def test_the_directory_forgets_on_all_nodes() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    send(pair, a, 1, "ab")
    a.running.vhosts.producers.most = 1
    shared = a.running.vhosts
    for session in list(shared.producers.sessions.values()):
        shared.producers.end(session)
    shared.producers.begin(shared, "/", Claim("other", 0, 1), "guest", lambda why: None)
    pair.run(0.3)
    assert not b.running.vhost.queues["q"].marks and pair.fingerprint(a) == pair.fingerprint(b)
    assert not b.running.vhosts.producers.queues_of("/", "shop")


def test_only_the_node_that_serves_forgets() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    send(pair, a, 1, "ab")
    producers = a.running.vhosts.producers
    for session in list(producers.sessions.values()):
        producers.end(session)
    answer = pair.ask(a, "switchover", limit=12)
    assert answer["ok"], answer
    for host in pair.hosts:
        host.running.vhosts.producers.idle = 5.0
    pair.run(3.0)
    assert a.running.vhosts.directory.producers and pair.fingerprint(a) == pair.fingerprint(b)
    pair.run(4.0)
    assert not a.running.vhosts.directory.producers and pair.fingerprint(a) == pair.fingerprint(b)
    assert (producers.forgotten, b.running.vhosts.producers.forgotten) == (0, 1)

"""A queue that a backup cannot trust is sent again: what may come in between."""

from __future__ import annotations

from broker.model.history.epoch_ends import EpochEnd
from broker.model.history.records import Dequeue, EnqueueRun
from ha.core import codes
from ha.core.wire.link import Method
from tests.builds import PURE_ONLY
from tests.ha.pair import Host, Pair
from tests.simulation.faults.spoiling import spoil

pytestmark = PURE_ONLY


def spoilt(queues: str = "q", *, texts: str = "abcdefgh", held: bool = False) -> tuple[Pair, Host, Host]:
    """b fetches its queues again, message by message; or, `held`, has asked for them, and a does not hear."""
    pair = Pair()
    pair.up()
    pair.run(0.2)
    a, b = pair.hosts
    for queue in queues:
        pair.declare(a, queue)
        pair.publish(a, queue, texts)
    pair.run(0.2)
    pair.snapshots(a, 1)
    if held:
        pair.held["b", "a"] = 0
    for queue in queues:
        spoil(b.running.vhosts, EnqueueRun, b.running.vhost.queues[queue].uuid)
        pair.publish(a, queue, "i")
        pair.run(0.01)
    assert b.status == "catch-up"
    return pair, a, b


def equal(pair: Pair) -> bool:
    return len({pair.fingerprint(host) for host in pair.hosts}) == 1


def links_lost(*hosts: Host) -> list[str]:
    ends = (codes.LINK_MISUSED, codes.LINK_CLOSED, codes.LINK_LOST)
    return [line for host in hosts for code in ends for line in host.told(code)]


def test_messages_and_dequeues_go_on_meanwhile() -> None:
    pair, a, b = spoilt()
    assert pair.consume(a, "q", 4) == "abcd"
    pair.publish(a, "q", "jk")
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert (pair.contents(b, "q"), equal(pair), links_lost(a, b)) == ("efghijk", True, [])
    assert a.running.status()["events"]["queue-reset"] == 1
    pair.kill(a, keep=True)
    pair.kill(b, keep=True)
    pair.start(b)
    assert pair.contents(b, "q") == "efghijk"


def test_two_queues_are_both_waited_for() -> None:
    pair, a, b = spoilt("qr")
    assert not b.running.status()["promotable"]
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert (pair.contents(b, "q"), pair.contents(b, "r"), equal(pair)) == ("abcdefghi",) * 2 + (True,)
    assert a.running.status()["events"]["queue-reset"] == 2 and links_lost(a, b) == []


def test_a_queue_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    pair, a, b = spoilt()
    a.running.vhost.delete_queue("q", owner=pair)
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert "q" not in b.running.vhost.queues and equal(pair) and links_lost(a, b) == []


def test_what_was_not_taken_and_is_consumed_before_it_comes_was_in_history() -> None:
    """Else a node that returns with it, while the other one serves, exports it for no need."""
    pair, a, b = spoilt(texts="", held=True)
    assert pair.consume(a, "q", 1) == "i"
    pair.run(0.01)
    pair.heal()
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert [host.running.vhost.queues["q"].ends() for host in pair.hosts] == [{65537: EpochEnd(1)}] * 2


def test_a_queue_that_goes_bad_again_costs_the_link() -> None:
    pair, a, b = spoilt()
    spoil(b.running.vhosts, EnqueueRun, b.running.vhost.queues["q"].uuid)
    pair.publish(a, "q", "j")
    pair.run(0.05)
    assert b.told(codes.LINK_MISUSED)
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert equal(pair)


def test_a_backup_that_takes_too_long_over_it_is_excluded_and_joins_anew() -> None:
    pair, a, b = spoilt()
    pair.publish(a, "q", "j")
    b.syncing = False
    pair.run(3.0)
    assert any(line.startswith("b ") for line in a.told(codes.BACKUP_EXCLUDED))
    b.syncing = True
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert equal(pair) and not b.running.core._local.replica.resetting


def test_only_a_backup_in_sync_may_ask_and_only_for_a_queue() -> None:
    pair = Pair()
    pair.up()
    pair.run(0.2)
    a, b = pair.hosts
    (peer,) = a.running.core.primary.peers() if a.running.core.primary is not None else ()
    a.running.core.method(peer, Method.RESET_QUEUE, b"short", pair.now)
    pair.run(0.05)
    assert any("sent again" in line for line in a.told(codes.LINK_MISUSED))
    pair.until(lambda: b.status == "ready")
    b.running.core.method(1, Method.RESET_QUEUE, bytes(16), pair.now)  # nobody asks a backup
    pair.run(0.05)
    assert b.running.stopped is None


def test_what_came_and_went_while_it_was_fetched_leaves_no_gap() -> None:
    """The next messages do not follow the last one that the new copy has: no second bad event."""
    pair, a, b = spoilt(held=True)
    pair.publish(a, "q", "jk")
    pair.run(0.02)
    spoil(b.running.vhosts, EnqueueRun, b.running.vhost.queues["q"].uuid)
    pair.publish(a, "q", "l")
    assert pair.consume(a, "q", 12) == "abcdefghijkl"
    pair.run(0.05)
    pair.heal()
    pair.until(lambda: b.status == "ready")
    pair.publish(a, "q", "m")
    pair.run(0.3)
    assert (pair.contents(b, "q"), equal(pair), links_lost(a, b)) == ("m", True, [])
    assert a.running.status()["events"]["queue-reset"] == 1


def test_what_was_not_taken_is_not_brought_back_by_the_disk() -> None:
    """The link is lost before the queue is whole; what its copy lacked is consumed while it is away."""
    pair, a, b = spoilt(held=True)
    pair.separate(a, b, reset=True)
    assert pair.consume(a, "q", 9) == "abcdefghi"
    pair.run(2.5)
    pair.heal()
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert pair.contents(b, "q") == ""
    pair.kill(b, keep=True)
    pair.start(b)
    assert pair.contents(b, "q") == ""


def test_dequeues_that_were_not_taken_are_not_taken_by_the_disk_either() -> None:
    """The primary crashes with them, before the queue is sent again: it has the messages still."""
    pair = Pair()
    pair.up()
    pair.run(0.2)
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "abcdefgh")
    pair.run(0.2)
    pair.held["b", "a"] = 0
    spoil(b.running.vhosts, Dequeue, b.running.vhost.queues["q"].uuid)
    a.syncing = False
    assert pair.consume(a, "q", 2) == "ab"
    pair.run(0.02)
    assert b.status == "catch-up"
    pair.kill(a)
    pair.heal()
    pair.start(a)
    pair.run(0.2)
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert pair.contents(a, "q") == pair.contents(b, "q") == "abcdefgh"
    pair.kill(b, keep=True)
    pair.start(b)
    assert pair.contents(b, "q") == "abcdefgh"


def half_fetched() -> tuple[Pair, Host, Host]:
    """b has fetched a part again, the message that it could not take among it, when the link is lost.
    Meanwhile some have come and some have gone, of the part that it has and of the one to come.
    """
    pair, a, b = spoilt(held=True)
    pair.publish(a, "q", "jklmnopqrstuvw")
    pair.run(0.02)
    pair.heal()
    pair.until(lambda: "i" in pair.contents(b, "q"))
    pair.publish(a, "q", "xy")
    queue = a.running.vhost.queues["q"]
    out = [entry for _ in range(23) if (entry := queue.pop(no_ack=False)) is not None]
    queue.acknowledge([out[at] for at in (0, 6, 22)])
    pair.run(0.03)
    half = pair.contents(b, "q")
    assert half.startswith("bcdefhi") and half.endswith("xy") and "v" not in half
    pair.separate(a, b, reset=True)
    pair.run(0.02)
    queue.requeue([entry for at, entry in enumerate(out) if at not in (0, 6, 22)])
    return pair, a, b


LEFT = "bcdefhijklmnopqrstuvxy"


def test_a_copy_that_was_half_fetched_is_the_old_one_with_all_that_came() -> None:
    pair, a, b = half_fetched()
    assert pair.contents(b, "q") == pair.contents(a, "q") == LEFT
    pair.kill(a)
    pair.run(0.1)
    pair.kill(b, keep=True)
    pair.start(b)
    assert pair.contents(b, "q") == LEFT
    pair.run(0.1)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    assert pair.contents(b, "q") == LEFT


def test_what_was_half_fetched_is_not_brought_back_by_the_disk() -> None:
    """It is consumed while the link is down: neither memory nor disk may keep what the other does not."""
    pair, a, b = half_fetched()
    assert pair.consume(a, "q", 22) == LEFT
    pair.run(2.5)
    pair.heal()
    pair.until(lambda: b.status == "ready")
    assert pair.contents(b, "q") == "" and equal(pair)
    pair.run(0.1)
    pair.kill(b, keep=True)
    pair.start(b)
    assert pair.contents(b, "q") == ""

"""What may happen to a queue between two pieces of its snapshot, and to whoever fetches it. b was away, and
fetches ten messages, about one a tick.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.model.queue.queue import Queue
from ha.core import codes
from tests.ha.pair import STEP, Host, Pair

TEXTS = "0123456789"


def between_pieces(*, away: Callable[[Pair, Host], None] | None = None) -> Pair:
    """b has some of the ten, and not all. `away`: what happens at a while b is gone."""
    pair = Pair(dequeue_lag=0.0)
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    if away is None:
        pair.kill(b)
    pair.publish(a, "q", TEXTS)
    pair.run(0.1)
    if away is not None:
        pair.kill(b)
        away(pair, a)
    pair.run(2.5)
    pair.snapshots(a, 40)
    pair.start(b)
    pair.until(lambda: b.status == "catch-up" and "q" in b.running.vhost.queues)
    if away is None:
        pair.until(lambda: 2 <= b.running.vhost.queues["q"].total_count < 6)
    return pair


def whole(pair: Pair) -> str:
    """b is ready and equal, also once it is restarted, and promoted alone: what it has then."""
    a, b = pair.hosts
    pair.until(lambda: b.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)
    assert not a.told(codes.LINK_MISUSED) and not b.told(codes.LINK_MISUSED), (a.log, b.log)
    assert all(" 0 of them" in line for line in b.told(codes.MESSAGES_DROPPED)), b.log
    held, ends = pair.contents(a, "q"), of(a).ends()
    pair.run(0.2)
    assert of(b).ends() == ends
    pair.kill(a)
    pair.kill(b, keep=True)
    pair.start(b)
    pair.run(0.2)
    answer = pair.ask(b, "promote", force_lossy=True)
    assert answer["ok"], answer
    assert pair.contents(b, "q") == held
    return held


def of(host: Host) -> Queue:
    return host.running.vhost.queues["q"]


def test_messages_are_dequeued_before_their_piece_and_after_it() -> None:
    pair = between_pieces()
    queue = of(pair[0])
    held = [queue.pop(no_ack=False) for _ in range(8)]
    taken = [entry for entry in held if entry is not None]
    queue.acknowledge([taken[0], taken[3], taken[6], taken[7]])
    assert whole(pair) == "124589"


def test_all_that_is_left_is_dequeued() -> None:
    pair = between_pieces()
    assert pair.consume(pair[0], "q", 10) == TEXTS
    assert whole(pair) == ""


def test_the_queue_is_purged_and_goes_on() -> None:
    pair = between_pieces()
    a = pair[0]
    a.running.vhost.purge_queue("q", owner=pair)
    pair.publish(a, "q", "xyz")
    assert whole(pair) == "xyz"


def test_the_queue_is_deleted() -> None:
    pair = between_pieces()
    a, b = pair.hosts
    a.running.vhost.delete_queue("q", owner=pair)
    pair.until(lambda: b.status == "ready")
    assert not a.told(codes.LINK_MISUSED) and not b.told(codes.LINK_MISUSED)
    assert "q" not in b.running.vhost.queues


def test_the_queue_is_deleted_and_made_again() -> None:
    pair = between_pieces()
    a = pair[0]
    a.running.vhost.delete_queue("q", owner=pair)
    pair.declare(a, "q")
    pair.publish(a, "q", "new")
    assert whole(pair) == "new"


def test_messages_go_out_and_come_back() -> None:
    """Requeued in front of where the snapshot is, and behind it: ids are walked, not places."""
    pair = between_pieces()
    queue = of(pair[0])
    out = [entry for _ in range(9) if (entry := queue.pop(no_ack=False)) is not None]
    pair.run(STEP)
    queue.requeue(out[1:3] + out[6:8])
    pair.run(STEP)
    queue.requeue([out[5]])
    assert whole(pair) == TEXTS


def test_messages_are_out_when_their_piece_is_read() -> None:
    pair = between_pieces()
    queue = of(pair[0])
    for _ in range(9):
        queue.pop(no_ack=False)
    assert whole(pair) == TEXTS


@pytest.mark.parametrize("persistent", [True, False])
def test_messages_are_published(persistent: bool) -> None:
    pair = between_pieces()
    a = pair[0]
    pair.publish(a, "q", "ab")
    pair.run(STEP)
    pair.consume(a, "q", 1)
    pair.publish(a, "q", "cd", persistent=persistent)
    pair.consume(a, "q", 1)
    held = pair.contents(a, "q")
    assert held == TEXTS[2:] + "abcd"
    if persistent:
        assert whole(pair) == held
    else:
        pair.until(lambda: pair[1].status == "ready")
        assert pair.contents(pair[1], "q") == held


@pytest.mark.parametrize("restarts", [True, False])
def test_the_joiner_is_lost_and_comes_back(restarts: bool) -> None:
    """What it has got it need not fetch again; what was dequeued meanwhile it drops."""
    pair = between_pieces()
    a, b = pair.hosts
    if restarts:
        pair.kill(b, keep=True)
    else:
        pair.separate(a, b, reset=True)
    pair.consume(a, "q", 1)
    pair.publish(a, "q", "x")
    pair.run(0.3)
    pair.heal()
    if restarts:
        pair.start(b)
    assert whole(pair) == TEXTS[1:] + "x"


def test_a_joiner_that_is_lost_is_not_promotable() -> None:
    pair = between_pieces()
    a, b = pair.hosts
    pair.kill(a)
    pair.run(0.1)
    assert not pair.ask(b, "promote")["ok"]


def test_what_a_joiner_holds_in_gaps_and_behind_the_last_piece_goes() -> None:
    """It has all ten; the first, one in the middle and the last were consumed, and nothing else came."""

    def consumed(pair: Pair, a: Host) -> None:
        queue = of(a)
        out = [entry for _ in range(10) if (entry := queue.pop(no_ack=False)) is not None]
        queue.acknowledge([out[0], out[5], out[9]])
        queue.requeue(out[1:5] + out[6:9])

    pair = between_pieces(away=consumed)
    assert whole(pair) == "1234678"
    assert codes.MESSAGES_DROPPED.say(queue="q", messages=3, kept=0) in pair[1].said


@pytest.mark.parametrize("lag", [1 << 20, 10])
def test_what_is_published_fills_the_window_and_the_joiner_gets_there(lag: int) -> None:
    """Where bandwidth times delay is more than the joiner's window, or more than what a lag may be, that much
    of the stream is on its way at every moment.
    """
    pair = between_pieces()
    a, b = pair.hosts
    pair.snapshots(a, 40, window=100, lag=lag)
    published = 0
    while b.status != "ready":
        pair.publish(a, "q", "x")
        pair.run(STEP)
        published += 1
        assert published < 200, "it does not catch up"
    pair.run(0.2)
    assert whole(pair).startswith(TEXTS)

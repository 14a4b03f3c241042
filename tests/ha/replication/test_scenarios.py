"""Scenarios that need every case of a kind: a transcript tells one, a loop here runs through all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.ha.pair import STEP, Host, Pair

TICKS = 24
"""A joiner with a few small snapshots is ready within so many ticks."""


def away(queues: str, letters: str) -> Pair:
    """A pair whose backup is away, and small pieces of each queue to fetch when it is back."""
    pair = Pair(dequeue_lag=0.0)
    pair.up()
    for queue in queues:
        pair.declare(pair[0], queue)
    pair.run(0.1)
    pair.kill(pair[1])
    for queue, letter in itertools.product(queues, letters):
        pair.publish(pair[0], queue, letter)
    pair.run(2.5)
    pair.snapshots(pair[0], 60)
    return pair


def joining(pair: Pair) -> Iterator[int]:
    """The ticks of b's way back, each before it is run; then until it is ready."""
    pair.start(pair[1])
    for tick in range(TICKS):
        yield tick
        pair.step()
        pair.now += STEP
    pair.until(lambda: pair[1].status == "ready")
    pair.run(0.1)


@pytest.mark.parametrize("gap", range(TICKS))
def test_what_is_published_in_any_gap_of_a_join_is_on_the_backup(gap: int) -> None:
    """QPID-4159. Of whatever is confirmed in that tick or later, nothing is missing after a failover."""
    pair = away("qr", "0123")
    a, b = pair.hosts
    for tick in joining(pair):
        if tick == gap:
            position = pair.publish(a, "q", "xy")
            pair.publish(a, "r", "z", persistent=False)
    assert pair.confirmed(a, position)
    assert pair.fingerprint(a) == pair.fingerprint(b)
    pair.kill(a)
    pair.run(0.01)
    assert pair.ask(b, "promote")["ok"]
    assert (pair.contents(b, "q"), pair.contents(b, "r")) == ("0123xy", "0123z")


@pytest.mark.parametrize("gap", range(TICKS))
@pytest.mark.parametrize("letters", ["0123", "3", "12", "5"])
def test_what_is_consumed_in_any_gap_of_a_join_does_not_come_back(gap: int, letters: str) -> None:
    """The dequeue overtakes its message, or follows it, or comes before its queue is cut."""
    pair = away("qr", "012345")
    a, b = pair.hosts
    for tick in joining(pair):
        if tick == gap:
            queue = a.running.vhost.queues["r"]
            entries = [e for e in (queue.pop(no_ack=False) for _ in range(6)) if e is not None]
            wanted = [e for e in entries if chr(e[2][-2]) in letters]
            queue.acknowledge(wanted)
            queue.requeue([e for e in entries if e not in wanted])
    left = "".join(c for c in "012345" if c not in letters)
    assert pair.contents(a, "r") == pair.contents(b, "r") == left
    assert pair.fingerprint(a) == pair.fingerprint(b)


# -- cold starts


def lose_power(pair: Pair) -> None:
    for host in pair.hosts:
        host.node = None
    for host in pair.hosts:
        pair.kill(host, clean=False)


def history(pair: Pair, lost: str) -> tuple[str, str]:
    """Backups are lost one by one in that order, with confirmed messages after each; then all lose power.
    What was confirmed, and who has it all: the nodes that are named by the last record.
    """
    a = pair[0]
    letters = iter("abcdefgh")
    said = next(letters)
    pair.declare(a, "q")
    position = pair.publish(a, "q", said)
    pair.until(lambda: pair.confirmed(a, position))
    for name in lost:
        pair.kill(host_of(pair, name))
        letter = next(letters)
        position = pair.publish(a, "q", letter)
        pair.until(lambda position=position: pair.confirmed(a, position))
        said += letter
    lose_power(pair)
    return said, "".join(h.name for h in pair.hosts if h.name not in lost)


def host_of(pair: Pair, name: str) -> Host:
    return next(h for h in pair.hosts if h.name == name)


CASES = [
    pytest.param(
        authority, count, lost, order, asked,
        marks=() if asked == order[::-1] else pytest.mark.system,
    )
    for authority in ("manual", "register")
    for count in (2, 3)
    for lost in ("", "b", "c", "bc", "cb")
    if count == 3 or "c" not in lost
    for order in map("".join, itertools.permutations("abc"[:count]))
    for asked in map("".join, itertools.permutations("abc"[:count]))
]  # fmt: skip


@pytest.mark.parametrize(("authority", "count", "lost", "order", "asked"), CASES)
def test_a_cold_start_in_any_order_serves_what_was_confirmed(
    authority: str, count: int, lost: str, order: str, asked: str
) -> None:
    """Started one after the other, each asked for a promotion as soon as it is up, then all again in another
    order: whoever is granted it has all, and nobody without all is granted it (invariants 11, 12).
    """
    pair = Pair(count, authority=authority)
    pair.up()
    said, complete = history(pair, lost)
    for name in [*order, *asked]:
        host = host_of(pair, name)
        if host.node is None:
            pair.start(host)
            pair.run(0.5)
        answer = pair.ask(host, "promote")
        if answer["ok"]:
            assert name in complete, (name, answer["reason"])
            assert pair.contents(host, "q") == said
            break
    else:
        raise AssertionError("nobody was promoted")
    for other in pair.hosts:
        if other.node is None:
            pair.start(other)
    pair.until(lambda: all(h.status == "ready" for h in pair.hosts if h is not host))
    assert {pair.fingerprint(h) for h in pair.hosts} == {pair.fingerprint(host)}
    assert pair.contents(host, "q") == said
    assert [h.name for h in pair.hosts if h.running.vhost.serving] == [host.name]

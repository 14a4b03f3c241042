"""What may happen between two parts of the definitions of a join: b was away, and is told of one object a
tick."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.model.history.epoch_ends import EpochEnds
from ha.core import codes
from tests.ha.pair import Host, Pair, retune

NAMES = [f"q{number}" for number in range(6)]
MANY = [f"q{number}" for number in range(500)]


def between_parts(*, disk: bool = True, window: int = 4 << 20, names: list[str] = NAMES) -> Pair:
    """b knows of some of the queues, and not of all. `disk`: it had all of them before, and one more."""
    pair = Pair(dequeue_lag=0.0)
    pair.up()
    a, b = pair.hosts
    for at, name in enumerate(names):
        pair.declare(a, name)
        a.running.vhost.bind_queue(name, "amq.direct", f"key {at}", owner=pair)
    for name in names[:6]:
        pair.publish(a, name, "abc")
    pair.declare(a, "gone")
    pair.publish(a, "gone", "xyz")
    pair.run(0.1)
    pair.kill(b, keep=disk)
    a.running.vhost.delete_queue("gone", owner=pair)
    a.running.vhost.unbind_queue(names[1], "amq.direct", "key 1", owner=pair)
    pair.run(2.5)
    pair.snapshots(a, 40, definitions=1, window=window)
    pair.start(b)
    pair.until(lambda: b.status == "catch-up" and behind(a) and told(b) >= 4)
    assert behind(a)
    return pair


def behind(a: Host) -> bool:
    primary = a.running.core.primary
    assert primary is not None
    return any(backup.behind for backup in primary.backups.values())


def told(b: Host) -> int:
    """Objects that b has been told of so far."""
    seen = b.running.replica._told
    return len(seen.queues) + len(seen._bindings)


def whole(pair: Pair) -> None:
    """b is ready and equal, also after a restart, promoted alone."""
    a, b = pair.hosts
    pair.until(lambda: b.status == "ready")
    assert pair.fingerprint(a) == pair.fingerprint(b)
    assert ends(a) == ends(b)
    for host in (a, b):
        assert not host.told(codes.LINK_MISUSED) and not host.told(codes.JOINER_GONE)
    fingerprint = pair.fingerprint(a)
    pair.run(0.2)
    pair.kill(a)
    pair.kill(b, keep=True)
    pair.start(b)
    pair.run(0.2)
    answer = pair.ask(b, "promote", force_lossy=True)
    assert answer["ok"], answer
    assert pair.fingerprint(b) == fingerprint


def ends(host: Host) -> dict[str, EpochEnds]:
    return {queue.name: queue.ends() for queue in host.running.vhosts.queues_by_uuid.values()}


def declare_and_delete(pair: Pair, a: Host) -> None:
    vhost = a.running.vhost
    vhost.delete_queue("q0", owner=pair)
    vhost.delete_queue("q5", owner=pair)
    for name in ("q0", "q5", "new"):
        pair.declare(a, name)
        pair.publish(a, name, "d")


def publish_and_consume(pair: Pair, a: Host) -> None:
    for name in NAMES:
        pair.publish(a, name, "de")
        pair.consume(a, name, 4)
    a.running.vhost.purge_queue("q3", owner=pair)
    pair.publish(a, "q3", "f")


def bind_and_unbind(pair: Pair, a: Host) -> None:
    vhost = a.running.vhost
    vhost.unbind_queue("q0", "amq.direct", "key 0", owner=pair)
    vhost.unbind_queue("q5", "amq.direct", "key 5", owner=pair)
    vhost.declare_exchange("x", "topic", durable=True)
    vhost.bind_queue("q1", "amq.direct", "key 1", owner=pair)
    vhost.bind_queue("q4", "x", "#", owner=pair)


@pytest.mark.parametrize("change", [declare_and_delete, publish_and_consume, bind_and_unbind])
@pytest.mark.parametrize("disk", [True, False])
def test_what_changes_between_two_parts(change: Callable[[Pair, Host], None], disk: bool) -> None:
    pair = between_parts(disk=disk)
    change(pair, pair[0])
    assert behind(pair[0])
    whole(pair)


def test_a_joiner_with_very_many_queues_is_not_given_up_while_it_works() -> None:
    """It takes longer than `ha.backup_timeout`, and each part is acknowledged."""
    pair = between_parts(names=MANY, window=1)
    a = pair[0]
    began = pair.now
    pair.until(lambda: not behind(a), limit=60)
    assert pair.now - began > a.running.core.tuning.backup_timeout
    whole(pair)


def test_a_joiner_for_whom_too_much_waits_is_dropped() -> None:
    pair = between_parts(names=MANY, window=1)
    a = pair[0]
    retune(a.running.core, joiner_max=2000)
    pair.publish(a, "q0", "x" * 2000)
    gone = codes.JOINER_GONE.say(backup="b", why="it cannot keep up")
    pair.until(lambda: gone in a.said)

"""A transaction on a pair, and on a disk: all of it or nothing, cut wherever it may be; and once commit-ok is
out, all of it (invariants 6, 7)."""

from __future__ import annotations

from copy import deepcopy

import pytest

from tests.ha.client import Client
from tests.ha.pair import STEP, Pair
from tests.simulation.harness.machines.virtual_disk import VirtualDisk
from tests.tiers import sweep

QUEUES = ("from", "one", "two")
BEFORE = ("abc", "", "")
AFTER = ("b", "xy", "z")


class Mover:
    """A client whose transaction acks two of the messages of one queue, one of them by reject, and
    publishes to two others. The commit has not been sent."""

    def __init__(self, pair: Pair, *, persistent: bool = True) -> None:
        self.pair = pair
        a = pair[0]
        for queue in QUEUES:
            pair.declare(a, queue)
        pair.publish(a, "from", "abc", persistent=persistent)
        pair.run(0.1)
        self.client = Client("x", a, pair.now)
        self.said: list[str] = []
        self.step()
        self.client.begin(pair.now, "tx")
        self.client.consume("from", 10, pair.now)
        self.run(0.05)
        assert [line for line in self.said if "got" in line] == [
            f"x: got {letter} as {tag}" for tag, letter in enumerate("abc", 1)
        ]
        self.client.publish("one", "xy", pair.now, persistent=persistent)
        self.client.ack(1, pair.now)
        self.client.publish("two", "z", pair.now, persistent=persistent)
        self.client.call("basic.reject", pair.now, delivery_tag=3, requeue=False)
        self.run(0.05)

    def step(self) -> None:
        self.pair.run(STEP)
        self.said += self.client.pump(self.pair.now)

    def run(self, seconds: float) -> None:
        end = self.pair.now + seconds
        while self.pair.now < end:
            self.step()

    def commit(self) -> None:
        self.client.call("tx.commit", self.pair.now)

    @property
    def committed(self) -> bool:
        return "x: tx.commit-ok" in self.said


def _up(*, persistent: bool = True) -> tuple[Pair, Mover]:
    pair = Pair()
    pair.up()
    return pair, Mover(pair, persistent=persistent)


def _held(pair: Pair, host: int = 1) -> tuple[str, ...]:
    return tuple(pair.contents(pair[host], queue) for queue in QUEUES)


def _on_its_way(pair: Pair) -> int:
    """Bytes that the primary has said to the backup, and that have not arrived."""
    (link,) = [wire for wire in pair.wires if wire.acceptor is pair[0] and wire.back]
    return len(link.back)


def _size_of_commit(*, persistent: bool) -> int:
    pair, mover = _up(persistent=persistent)
    pair.hold(pair[0], pair[1])
    mover.commit()
    mover.step()
    return _on_its_way(pair)


def test_nothing_of_it_is_replicated_before_the_commit() -> None:
    pair, mover = _up()
    mover.run(1.0)
    assert (_held(pair, 0), _held(pair)) == (BEFORE, BEFORE)
    assert not mover.committed


def test_commit_ok_waits_for_the_backup_and_both_hold_the_same() -> None:
    pair, mover = _up()
    pair.hold(pair[0], pair[1])
    mover.commit()
    mover.run(0.5)
    assert _held(pair, 0) == AFTER and not mover.committed
    pair.heal()
    mover.run(0.1)
    assert mover.committed and _held(pair) == AFTER
    assert pair.fingerprint(pair[0]) == pair.fingerprint(pair[1])


@sweep("step", sample=7, more=2)
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "transient"])
def test_a_failover_at_any_byte_of_the_commit_leaves_all_or_nothing(persistent: bool, step: int) -> None:
    """The client is told only in the case of all, and not even then if its primary dies first."""
    size = _size_of_commit(persistent=persistent)
    assert size > 150
    seen = []
    for cut in [*range(0, size, step), size]:
        pair, mover = _up(persistent=persistent)
        pair.hold(pair[0], pair[1], cut)
        mover.commit()
        mover.run(0.05)
        pair.kill(pair[0])
        assert not mover.committed or cut == size, cut
        answer = pair.ask(pair[1], "promote")
        assert answer["ok"], answer
        assert _held(pair) == (AFTER if cut == size else BEFORE), cut
        seen.append(_held(pair))
    assert set(seen) == {BEFORE, AFTER}


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "transient"])
def test_once_commit_ok_is_out_its_acks_are_not_undone(persistent: bool) -> None:
    pair, mover = _up(persistent=persistent)
    mover.commit()
    while not mover.committed:
        mover.step()
    pair.kill(pair[0])
    assert pair.ask(pair[1], "promote")["ok"]
    assert _held(pair) == AFTER
    pair.start(pair[0])
    pair.until(lambda: pair[0].status == "ready")
    assert _held(pair, 0) == AFTER


def test_a_transaction_known_only_to_a_dead_primary_is_lost_at_the_rejoin() -> None:
    """It has the commit on its own disk, and nobody else has; the other serves meanwhile."""
    pair, mover = _up()
    pair.hold(pair[0], pair[1])
    mover.commit()
    mover.run(0.05)
    pair.kill(pair[0])
    pair.heal()
    assert pair.ask(pair[1], "promote")["ok"]
    pair.start(pair[0])
    pair.until(lambda: pair[0].status == "ready")
    assert (_held(pair, 0), _held(pair)) == (BEFORE, BEFORE)


def test_a_restart_after_commit_ok_has_all_of_it() -> None:
    pair = Pair(1)
    pair.start()
    mover = Mover(pair)
    mover.commit()
    while not mover.committed:
        mover.step()
    pair.kill(pair[0])
    pair.start(pair[0])
    assert _held(pair, 0) == AFTER


def _segment(disk: VirtualDisk) -> str:
    return max(path for path in disk.contents() if path.endswith(".segment"))


def test_a_store_cut_at_any_byte_of_the_transaction_has_nothing_of_it() -> None:
    pair = Pair(1)
    pair.start()
    mover = Mover(pair)
    host = pair[0]
    path = _segment(host.disk)
    before = host.disk.size(path)
    mover.commit()
    while not mover.committed:
        mover.step()
    after = host.disk.size(path)
    assert _segment(host.disk) == path and after - before > 150
    pair.kill(host, keep=True)
    disk = host.disk
    for size in range(before, after + 1):
        host.disk = deepcopy(disk)
        host.disk.cut(path, size)
        pair.start(host)
        assert _held(pair, 0) == (AFTER if size == after else BEFORE), size
        pair.kill(host)


@pytest.mark.parametrize("end", ["demote", "switchover"])
@pytest.mark.parametrize("commits", [False, True], ids=["open", "committing"])
def test_a_planned_change_rolls_back_what_is_open_and_keeps_what_was_read(end: str, commits: bool) -> None:
    """A switchover waits until commit-ok is out; a demotion does not, and so leaves the client in doubt."""
    pair, mover = _up()
    if commits:
        mover.commit()
    answer = pair.ask(pair[0], end)
    assert answer["ok"], answer
    mover.said += mover.client.pump(pair.now)
    if end == "demote":
        assert pair.ask(pair[1], "promote")["ok"]
    pair.until(lambda: pair[1].status in ("active", "recovering"))
    pair.until(lambda: pair[0].status == "ready")
    assert mover.committed == (commits and end == "switchover")
    assert _held(pair, 0) == _held(pair) == (AFTER if commits else BEFORE)


def test_several_commits_in_one_tick_are_one_batch_and_each_is_whole() -> None:
    """Read at once, from one client: the first two are committed, the third is open."""
    pair, mover = _up()
    mover.commit()
    mover.client.publish("two", "v", pair.now)
    mover.client.ack(2, pair.now)
    mover.commit()
    mover.client.publish("two", "w", pair.now)
    mover.run(0.1)
    assert mover.said.count("x: tx.commit-ok") == 2
    pair.kill(pair[0])
    assert pair.ask(pair[1], "promote")["ok"]
    assert _held(pair) == ("", "xy", "zv")

"""A joiner's copy cut at every byte: whatever it has of the stream when its link and its primary are gone, it
is whole, or plainly not promotable, alone and after a restart; and it rejoins equal (invariants 11, 15, 19).

One primary lives through all of it. For each number of bytes a backup with the same old disk joins, gets so
many bytes, and is cut off: to it that is the death of its primary. `make test` tries some of the bytes.
"""

from __future__ import annotations

from copy import deepcopy

from broker.model.values import Position
from tests.ha.pair import STEP, Host, Pair
from tests.simulation.harness.machines.virtual_disk import VirtualDisk
from tests.tiers import sweep

IDENTITY = "/b/node.json"
REFUSALS = (
    "does not name this node, which may lack confirmed messages",
    "does not answer, and may hold later messages",
)


class Joins(list[str]):
    """The log of a primary; says when it takes a backup in: what it sends from then on is counted."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair
        self.passing = 0

    def append(self, sentence: str) -> None:
        super().append(sentence)
        if self.passing and "joins, holding" in sentence:
            self.pair.link_ends["a", "b"], self.passing = self.passing, 0


def parted() -> tuple[Pair, Joins, VirtualDisk]:
    """A pair whose backup is away: of the queues that it holds one has lost and won messages, one is deleted,
    one made again, one is new; and it lacks a transient one.
    """
    pair = Pair()
    a, b = pair.hosts
    joins = a.log = Joins(pair)
    pair.up()
    for queue in ("q", "gone", "again"):
        pair.declare(a, queue)
        pair.publish(a, queue, "abcd")
    pair.run(0.1)
    pair.kill(b)
    pair.consume(a, "q", 2)
    pair.publish(a, "q", "ef")
    for queue in ("gone", "again"):
        a.running.vhost.delete_queue(queue, owner=pair)
    for queue in ("again", "new"):
        pair.declare(a, queue)
        pair.publish(a, queue, "xy")
    pair.publish(a, "q", "t", persistent=False)
    pair.run(2.5)
    pair.snapshots(a, 30, definitions=2)
    return pair, joins, b.disk


def join_cut(pair: Pair, joins: Joins, disk: VirtualDisk, passing: int) -> bool:
    """b joins from that disk and is cut off after so many bytes; False if it was ready before."""
    b = pair[1]
    lives = b.disk.read(IDENTITY)
    b.disk, joins.passing = deepcopy(disk), passing
    b.disk.place(IDENTITY, lives)  # it was started so often, whatever disk it has
    pair.start(b)
    pair.until(lambda: bool(pair.cut) or b.status == "ready")
    pair.run(0.1 if not pair.cut else 0.0)
    return bool(pair.cut)


def equal(a: Host, b: Host) -> bool:
    return len({Pair.fingerprint(Pair(), host) for host in (a, b)}) == 1


def restart(pair: Pair, b: Host, *, keep: bool) -> None:
    """The machine, or (`keep`) only the process, dies and comes back."""
    pair.kill(b, keep=keep)
    pair.start(b)


@sweep("step", sample=29, more=5)
def test_a_joiners_copy_is_cut_at_every_byte(step: int) -> None:
    pair, joins, disk = parted()
    a, b = pair.hosts
    outcomes = {"refused": 0, "promoted": 0}
    passing = 1
    while join_cut(pair, joins, disk, passing):
        assert b.running.stopped is None, b.running.stopped
        answer = pair.ask(b, "promote")
        outcomes["promoted" if answer["ok"] else "refused"] += 1
        if answer["ok"]:
            assert equal(a, b), f"promoted after {passing} bytes, with another copy"
            pair, joins, disk = parted()
            a, b = pair.hosts
        else:
            assert any(why in answer["reason"] for why in REFUSALS), (passing, answer["reason"])
            restart(pair, b, keep=bool(passing // step % 2))
            pair.run(0.01)
            answer = pair.ask(b, "promote")
            assert any(why in answer["reason"] for why in REFUSALS), (passing, answer["reason"])
            pair.heal()
            restart(pair, b, keep=True)
            pair.until(lambda b=b: b.status == "ready")
            pair.run(0.02)
            assert equal(a, b), f"not equal after {passing} bytes and a rejoin"
            pair.kill(b)
        passing += step
    assert equal(a, b)
    print(f"cut at every {step}th byte of {passing - step}: {outcomes}")
    assert passing > 1000 and outcomes["refused"] and outcomes["promoted"]


# -- the live stream of a backup in sync


def at_work(pair: Pair) -> dict[str, Position]:
    """Some history of each kind, each in a tick of its own: the positions that its confirms wait for."""
    a = pair[0]
    vhost, said = a.running.vhost, {}
    pair.publish(a, "q", "abc")
    said["abc"] = tick(pair)
    pair.declare(a, "r")
    pair.publish(a, "r", "x")
    said["r"] = tick(pair)
    pair.consume(a, "q", 1)
    pair.publish(a, "q", "d", persistent=False)
    said["d"] = tick(pair)
    vhost.delete_queue("r", owner=pair)
    pair.publish(a, "q", "e")
    said["gone"] = tick(pair)
    pair.run(0.05)
    return said


def tick(pair: Pair) -> Position:
    pair.run(STEP)
    return pair[0].running.vhost.history.position


@sweep("step", sample=7, more=2)
def test_the_stream_of_a_backup_in_sync_is_cut_at_every_byte(step: int) -> None:
    """Whatever was confirmed when the link was cut is there when the backup serves (1, 6): no more may be
    missing than what nobody was promised.
    """
    passing, shown = 1 - step, set()
    while True:
        passing += step
        pair = Pair(dequeue_lag=0.0)
        a, b = pair.hosts
        pair.start()
        assert pair.ask(a, "promote", force_lossy=True)["ok"]  # nobody is asked first: that is quicker
        pair.declare(a, "q")
        pair.until(lambda b=b: b.status == "ready")
        pair.link_ends["a", "b"] = passing
        said = at_work(pair)
        if not pair.cut:
            break
        confirmed = {what for what, position in said.items() if pair.confirmed(a, position)}
        pair.kill(a)
        pair.heal()
        pair.run(0.01)
        answer = pair.ask(b, "promote", fenced=True)
        assert answer["ok"], (passing, answer["reason"])
        held = pair.contents(b, "q")
        assert "abcde".startswith(held) or "bcde".startswith(held), (passing, held)
        assert "abc" not in confirmed or "bc" in held, passing
        assert "d" not in confirmed or "d" in held, passing
        assert "gone" not in confirmed or ("e" in held and "r" not in b.running.vhost.queues), passing
        if "r" in confirmed and "r" in b.running.vhost.queues:
            assert pair.contents(b, "r") == "x", passing
        shown.add((held, "r" in b.running.vhost.queues, *sorted(confirmed)))
    print(f"cut at every {step}th byte of {passing - 1}: {len(shown)} different states")
    assert passing > 200 and len(shown) >= 5

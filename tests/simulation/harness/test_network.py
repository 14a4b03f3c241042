"""The virtual network keeps what TCP keeps, and breaks the rest; the clock keeps its order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import pytest

from tests.simulation.harness.clock import Clock
from tests.simulation.harness.network import Cut, End, Network, break_stream
from tests.simulation.harness.plan import NetworkPlan

ADDRESS = ("127.0.0.1", 5001)


class Listener:
    """Remembers what came."""

    def __init__(self) -> None:
        self.data = b""
        self.reads = 0
        self.end: bool | None = None

    def received(self, data: bytes) -> None:
        assert self.end is None
        self.data += data
        self.reads += 1

    def closed(self, clean: bool) -> None:
        assert self.end is None
        self.end = clean


PLAN = NetworkPlan(latency=0.0003, spread=0.003, cut=0.1, slow=0.01)


def connect(seed: int, plan: NetworkPlan = PLAN) -> tuple[Clock, Network, Listener, Listener, list[End]]:
    clock = Clock()
    network = Network(clock, plan, lambda purpose: Random(f"{seed}/{purpose}"))
    near, far, ends = Listener(), Listener(), list[End]()

    def accept(end: End) -> Listener:
        ends.append(end)
        return far

    def connected(end: End) -> Listener:
        ends.insert(0, end)
        return near

    network.listen(ADDRESS, accept, "there")
    network.connect("client", ADDRESS, connected, pytest.fail)
    clock.run(1.0)
    return clock, network, near, far, ends


def test_what_is_read_late_left_when_it_was_sent() -> None:
    clock, _, near, _, (end, other) = connect(1, replace(PLAN, cut=0.0))
    end.read(False)
    sent = clock.now
    other.send(b"early")
    clock.run(sent + 5.0)
    other.send(b"later")
    end.read(True)
    clock.run(clock.now + 1.0)
    assert near.data == b"earlylater" and end.left_at == sent
    other.send(b"last")
    now = clock.now
    clock.run(now + 1.0)
    assert near.data.endswith(b"last") and end.left_at == now


@pytest.mark.parametrize("seed", range(10))
def test_bytes_arrive_whole_and_in_order_before_a_fin(seed: int) -> None:
    clock, _, near, far, ends = connect(seed, replace(PLAN, cut=0.5, spread=0.0005))
    sent = [Random(n).randbytes(n) for n in range(60)]
    for n, data in enumerate(sent):
        clock.after(n * 0.0002, lambda data=data: ends[0].send(data))  # type: ignore[misc]
    clock.after(0.02, lambda: ends[0].close(clean=True))
    clock.run(10.0)
    assert far.data == b"".join(sent)
    assert far.end is True
    assert far.reads > 1
    assert near.end is None, "who closes is not told"


def test_a_reset_loses_a_tail_cut_at_any_byte() -> None:
    lengths = set()
    for seed in range(60):
        clock, _, _, far, ends = connect(seed)
        ends[0].send(b"0123456789")
        ends[0].close(clean=False)
        clock.run(10.0)
        assert b"0123456789".startswith(far.data)
        assert far.end is False
        lengths.add(len(far.data))
    assert {0, 10} < lengths


def test_a_broken_stream_tells_both_ends() -> None:
    clock, _, near, far, ends = connect(3)
    break_stream(ends[0])
    ends[0].send(b"into the void")
    clock.run(10.0)
    assert near.end is False
    assert far.end is False


def test_nobody_listening_is_a_refusal() -> None:
    clock = Clock()
    network = Network(clock, PLAN, Random)
    refusals: list[str] = []
    network.connect("client", ADDRESS, lambda end: pytest.fail("connected"), refusals.append)
    clock.run(1.0)
    assert refusals == ["connection refused"]


HERE, THERE = "client", "there"
BOTH_WAYS = (Cut(frozenset({HERE}), frozenset({THERE})), Cut(frozenset({THERE}), frozenset({HERE})))
PATIENT, HASTY = replace(PLAN, give_up=1000.0), replace(PLAN, give_up=0.5)


def test_what_is_sent_during_a_partition_arrives_in_order_when_it_is_mended() -> None:
    clock, network, near, far, ends = connect(1, PATIENT)
    network.apply(BOTH_WAYS[0])
    for n in range(5):
        clock.after(0.1 * n, partial(ends[0].send, b"%d" % n))
    ends[1].send(b"the other way is free")
    clock.run(clock.now + 5.0)
    assert (near.data, far.data) == (b"the other way is free", b"")
    network.mend(BOTH_WAYS[0])
    ends[0].send(b"5")
    clock.run(clock.now + 5.0)
    assert far.data == b"012345"
    assert near.end is far.end is None


def test_who_is_not_answered_gives_up_alone_and_the_other_learns_of_it_when_it_speaks() -> None:
    clock, network, near, far, ends = connect(2, HASTY)
    ends[0].keepalive = ends[1].keepalive = False
    for cut in BOTH_WAYS:
        network.apply(cut)
    ends[0].send(b"lost")
    clock.run(clock.now + 5.0)
    assert near.end is False
    assert ends[0].gave_up
    assert far.end is None, "half open"
    for cut in BOTH_WAYS:
        network.mend(cut)
    clock.run(clock.now + 5.0)
    assert far.end is None
    ends[1].send(b"is anybody there?")
    clock.run(clock.now + 5.0)
    assert far.end is False
    assert not ends[1].gave_up, "it was answered, by RST"
    assert far.data == b""


def test_keepalive_finds_a_half_open_connection() -> None:
    clock, network, near, far, ends = connect(2, HASTY)
    network.apply(BOTH_WAYS[0])
    ends[0].send(b"lost")
    clock.run(clock.now + 10.0)
    assert near.end is far.end is False


@pytest.mark.parametrize("up_again", [False, True])
def test_a_host_without_power_is_silent_until_it_is_up_again(up_again: bool) -> None:
    clock, network, near, _, ends = connect(4, HASTY if not up_again else PATIENT)
    for end in ends:
        end.keepalive = False
    ends[1].vanish()
    network.power(THERE, False)
    ends[0].send(b"anybody?")
    clock.run(clock.now + 0.1)
    assert near.end is None
    if up_again:
        network.power(THERE, True)
    clock.run(clock.now + 5.0)
    assert near.end is False
    assert ends[0].gave_up is not up_again, "RST is an answer, a timeout is none"


def test_a_dial_into_a_partition_is_answered_after_it_or_never() -> None:
    clock, network, *_ = connect(5)
    network.apply(BOTH_WAYS[1])
    got: list[str] = []

    def connected(end: End) -> Listener:
        got.append("connected")
        return Listener()

    network.connect(HERE, ADDRESS, connected, got.append)
    clock.run(clock.now + 2.0)
    assert got == []
    network.mend(BOTH_WAYS[1])
    clock.run(clock.now + 20.0)
    assert got == ["connected"]
    network.apply(BOTH_WAYS[1])
    network.connect(HERE, ADDRESS, connected, got.append)
    clock.run(clock.now + 60.0)
    assert got == ["connected", "timed out"]


def test_a_reader_that_stalls_hears_everything_later() -> None:
    clock, _, _, far, ends = connect(6)
    ends[1].read(False)
    ends[0].send(b"abc")
    clock.run(clock.now + 1.0)
    assert far.data == b""
    assert ends[1].waiting == 3
    ends[1].read(True)
    ends[0].close(clean=True)
    clock.run(clock.now + 1.0)
    assert (far.data, far.end) == (b"abc", True)


def test_events_of_one_instant_run_in_the_order_of_their_scheduling() -> None:
    clock = Clock()
    seen: list[int] = []
    for n in range(5):
        clock.after(0.5, lambda n=n: seen.append(n))  # type: ignore[misc]
    cancelled = clock.after(0.2, lambda: seen.append(99))
    cancelled.cancel()
    clock.run(0.6)
    assert seen == [0, 1, 2, 3, 4]
    assert clock.now == 0.6


def test_the_trace_hash_depends_on_every_line_and_its_time() -> None:
    def trace(lines: list[tuple[float, str]]) -> str:
        clock = Clock(keep=1)
        for when, line in lines:
            clock.at(when, lambda line=line: clock.note(line))  # type: ignore[misc]
        clock.run(10.0)
        return clock.trace_hash()

    base = trace([(1.0, "a"), (2.0, "b"), (3.0, "c")])
    assert base == trace([(1.0, "a"), (2.0, "b"), (3.0, "c")])
    assert base != trace([(1.0, "x"), (2.0, "b"), (3.0, "c")])
    assert base != trace([(1.0, "a"), (2.1, "b"), (3.0, "c")])

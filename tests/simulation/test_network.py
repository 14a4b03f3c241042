"""The virtual network keeps what TCP keeps, and breaks the rest; the clock keeps its order."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.simulation.clock import Clock
from tests.simulation.network import End, Network, break_stream
from tests.simulation.plan import NetworkPlan

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

    network.listen(ADDRESS, accept)
    network.connect("client", ADDRESS, connected, pytest.fail)
    clock.run(1.0)
    return clock, network, near, far, ends


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

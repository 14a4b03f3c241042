"""A serving queue read in pieces, compared with a plain list of ids, whatever happens to the queue in
between."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from broker.model.history.records import Entry, id_of
from broker.model.queue import cut
from broker.model.queue.consumer import Consumer
from broker.model.queue.cut import held_after
from broker.model.queue.queue import Queue
from tests.broker.model.helpers import OWNER, Sink, end_tick, publish, serving

COUNT = st.integers(1, 9)
ID = st.tuples(st.integers(0, 3), st.integers(-1, 30))


class AgainstList(RuleBasedStateMachine):
    """Two epochs of messages, delivered and returned in any order, and a walk over all of them in pieces."""

    @initialize(count=COUNT, width=st.sampled_from((1, 3, 4096)))
    def begin(self, count: int, width: int) -> None:
        cut.LEAST_WIDTH = width
        self.vhost = serving(1)
        self.vhost.declare_queue("q", owner=OWNER)
        self.publish(count)
        end_tick(self.vhost)
        self.vhost.shared.deactivate()
        self.vhost.shared.activate(2)
        self.out: list[Entry] = []
        self.at = (0, -1)

    def teardown(self) -> None:
        cut.LEAST_WIDTH = 4096

    @property
    def queue(self) -> Queue:
        return self.vhost.queues["q"]

    def held(self) -> list[tuple[int, int]]:
        return [id_of(entry) for entry in self.queue.held_entries()]

    @rule(count=COUNT)
    def publish(self, count: int) -> None:
        publish(self.vhost, "q", *[b"m"] * count)

    @rule(count=COUNT)
    def deliver(self, count: int) -> None:
        for _ in range(count):
            entry = self.queue.pop(no_ack=False)
            if entry is not None:
                self.out.append(entry)

    @rule(at=COUNT, requeue=st.booleans())
    def settle(self, at: int, requeue: bool) -> None:
        some, self.out = self.out[::at], [e for i, e in enumerate(self.out) if i % at]
        (self.queue.requeue if requeue else self.queue.acknowledge)(some)

    @rule(after=ID, most=COUNT)
    def any_piece(self, after: tuple[int, int], most: int) -> None:
        self.check(after, most)

    @rule(most=COUNT)
    def next_piece(self, most: int) -> None:
        upto = self.check(self.at, most)
        self.at = (0, -1) if upto is None else upto

    def check(self, after: tuple[int, int], most: int) -> tuple[int, int] | None:
        before = list(self.queue.ready)
        entries, upto = held_after(self.queue, after, most)
        assert list(self.queue.ready) == before
        assert len(entries) <= most and (upto is None or upto > after)
        assert [id_of(e) for e in entries] == [
            key for key in self.held() if key > after and (upto is None or key <= upto)
        ]
        return upto


TestAgainstList = AgainstList.TestCase


def test_a_piece_looks_no_further_than_its_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many unacknowledged messages, it examines as many as it may return, plus a few."""
    monkeypatch.setattr(cut, "LEAST_WIDTH", 8)
    vhost, sink = serving(1), Sink()
    vhost.declare_queue("q", owner=OWNER)
    publish(vhost, "q", *[b"m"] * 1000)
    queue = vhost.queues["q"]
    queue.consumers.add(Consumer("c", sink))
    queue.schedule()
    end_tick(vhost)
    assert queue.unacked_count == 1000
    looked: list[int] = []

    class Watched(dict[int, Any]):
        def __contains__(self, key: object) -> bool:
            looked.append(1)
            return super().__contains__(key)

        def items(self) -> Any:
            raise AssertionError("all of them")

    queue._unacked[1] = Watched(queue._unacked[1])
    at = (0, -1)
    for number in range(100):
        looked.clear()
        entries, upto = held_after(queue, at, 10)
        assert len(looked) <= 40 and len(entries) == 10, number
        assert upto is not None
        at = upto

"""Ready messages by priority, compared with a sorted list."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.model.history.records import Entry, Envelope, id_of
from broker.model.queue.priority_ready import PriorityReady

MOST = 4


def envelope(priority: int, epoch: int = 1) -> Envelope:
    return Envelope(
        epoch, "", "q", persistent=True, wall_ms=0, channel=1, largest_frame=100, priority=priority
    )  # fmt: skip


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (-min(entry[1].priority, MOST), id_of(entry)))


class AgainstASortedList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ready = PriorityReady(MOST)
        self.model: list[Entry] = []
        self.taken: list[Entry] = []
        self.epoch, self.next = 1, 1

    def new(self, priority: int, count: int) -> list[Entry]:
        run = envelope(priority, self.epoch)
        made = [(self.next + n, run, b"x") for n in range(count)]
        self.next += count
        return made

    @rule(runs=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), max_size=3))
    def extend(self, runs: list[tuple[int, int]]) -> None:
        entries = [entry for priority, count in runs for entry in self.new(priority, count)]
        self.ready.extend(iter(entries))
        self.model = in_order([*self.model, *entries])

    @rule(priority=st.integers(0, 255))
    def append(self, priority: int) -> None:
        (entry,) = self.new(priority, 1)
        self.ready.append(entry)
        self.model = in_order([*self.model, entry])

    @rule(count=st.integers(1, 6))
    def popleft(self, count: int) -> None:
        for _ in range(min(count, len(self.model))):
            entry = self.ready.popleft()
            assert entry == self.model.pop(0)
            self.taken.append(entry)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(self.taken), unique=True))
        self.taken = [entry for entry in self.taken if entry not in some]
        back = [(seq, envelope.as_redelivered(), raw) for seq, envelope, raw in some]
        self.ready.put_back(back)
        self.model = in_order([*self.model, *back])

    @rule()
    def another_epoch(self) -> None:
        self.epoch, self.next = self.epoch + 1, 1

    @rule()
    def clear(self) -> None:
        self.ready.clear()
        self.model.clear()

    @rule(epoch=st.integers(0, 3), seq=st.integers(0, 20), most=st.integers(1, 8))
    def after(self, epoch: int, seq: int, most: int) -> None:
        beyond = [entry for entry in self.model if id_of(entry) > (epoch, seq)]
        assert self.ready.after((epoch, seq), most) == sorted(beyond, key=id_of)[:most]

    @invariant()
    def the_same(self) -> None:
        assert list(self.ready) == self.model
        assert len(self.ready) == len(self.model)
        assert bool(self.ready) is bool(self.model)
        for at in range(-len(self.model), len(self.model)):
            assert self.ready[at] == self.model[at]
        assert self.ready.by_id() == sorted(self.model, key=id_of)
        held = {entry[1].epoch for entry in self.model}
        assert {n for n in range(self.epoch + 2) if self.ready.holds_epoch(n)} == held


TestAgainstASortedList = AgainstASortedList.TestCase
TestAgainstASortedList.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_nothing_is_ready() -> None:
    ready = PriorityReady(255)
    for at in (0, -1, 1):
        with pytest.raises(IndexError):
            ready[at]
    with pytest.raises(IndexError):
        ready.popleft()
    ready.put_back([])
    assert not ready and list(ready) == ready.by_id() == []


def test_it_is_created_with_entries() -> None:
    low, high = envelope(0), envelope(9)
    entries = [(1, low, b"a"), (2, high, b"b"), (3, low, b"c")]
    assert [seq for seq, _, _ in PriorityReady(MOST, entries)] == [2, 1, 3]

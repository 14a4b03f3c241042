"""A queue with paged-out messages behaves like one that keeps them in memory: the same steps, compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.hooks import Hooks
from broker.model.history.batch import Batch
from broker.model.history.history import History
from broker.model.history.records import Dequeue, Entry, Envelope
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.queue.consumer import Consumer
from broker.model.queue.cut import held_after
from broker.model.queue.queue import Queue
from broker.model.vhost.vhosts import VirtualHosts
from broker.paging import Paging
from broker.store.errors import StoreUnusable
from tests.builds import PURE_ONLY
from tests.simulation.harness.machines.virtual_overflow import VirtualOverflow


class Taker:
    """A consumer with a limited credit."""

    def __init__(self) -> None:
        self.credits = 0
        self.got: list[Entry] = []

    client = "a test"

    def credit(self, consumer: Consumer) -> int:
        return self.credits

    def deliver(self, consumer: Consumer, batch: list[Entry]) -> None:
        self.credits -= len(batch)
        self.got += batch

    def cancelled(self, consumer: Consumer) -> None: ...


class Side:
    """One queue, and its history."""

    def __init__(self, overflow: VirtualOverflow | None, arguments: dict[str, object] | None = None) -> None:
        self.overflow = overflow
        self.arguments = arguments
        self.epoch = 1
        self.gone: dict[int, ReplicationIdSet] = {}
        history = History(dequeue_lag=0.0)
        self.vhost = VirtualHosts(Hooks(), history, lambda: b"u" * 16).root
        history.sinks.append(self)
        if overflow is not None:
            self.vhost.shared.window = 3
        self.vhost.shared.activate(self.epoch)
        self.vhost.declare_queue("q", owner=None, durable=True, arguments=arguments)
        self.takers: list[Taker] = []

    @property
    def queue(self) -> Queue:
        return self.vhost.queues["q"]

    def batch(self, batch: Batch) -> None:
        for record in batch.records:
            if isinstance(record, Dequeue):
                for first, last in record.ranges:
                    self.gone.setdefault(record.epoch, ReplicationIdSet()).add_range(first, last)

    def consume(self) -> None:
        taker: Any = Taker()
        self.takers.append(taker)
        self.vhost.consume(self.queue, Consumer(f"c{len(self.takers)}", taker))

    def settle(self) -> None:
        while self.vhost.pending or self.vhost.removals.waiting:
            self.vhost.shared.dispatch()
        self.vhost.history.flush(0.0, 0, force=True)

    def turn(self) -> None:
        """Deactivate and activate again, in a new epoch."""
        self.settle()
        self.vhost.shared.deactivate()
        self.takers.clear()
        self.page(10**9)
        self.epoch += 1
        self.vhost.shared.activate(self.epoch)

    def page(self, most: int) -> None:
        if self.overflow is not None:
            self.vhost.shared.page_out(self.overflow, most)


class PagedAndNot(RuleBasedStateMachine):
    arguments: ClassVar[dict[str, object]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.overflow = VirtualOverflow()
        self.sides = (Side(None, self.arguments), Side(self.overflow, self.arguments))
        self.published = 0

    def both(self, action: Callable[[Side], Any]) -> Any:
        one, other = (action(side) for side in self.sides)
        assert one == other
        return one

    @rule(count=st.integers(1, 12), persistent=st.booleans())
    def publish(self, count: int, persistent: bool) -> None:
        raws = [b"%d" % n * (n % 4) for n in range(self.published, self.published + count)]
        self.published += count

        def act(side: Side) -> int:
            envelope = Envelope(
                side.epoch, "", "q", persistent=persistent, wall_ms=0, channel=1, largest_frame=9
            )
            return side.queue.enqueue_run(envelope, list(raws))

        self.both(act)

    @rule(most=st.sampled_from((1, 8, 10**9)))
    def page(self, most: int) -> None:
        self.sides[1].page(most)

    @rule(no_ack=st.booleans())
    def get(self, no_ack: bool) -> None:
        self.both(lambda side: _shown(side.queue.pop(no_ack=no_ack)))

    @rule()
    def consume(self) -> None:
        if len(self.sides[0].takers) < 3:
            self.both(Side.consume)

    @rule(credits=st.integers(1, 20), which=st.integers(0, 2))
    def give_credit(self, credits: int, which: int) -> None:
        if self.sides[0].takers:
            for side in self.sides:
                side.takers[which % len(side.takers)].credits += credits
                side.queue.schedule()
                side.settle()
            one, other = (sorted(_ids(e) for t in side.takers for e in t.got) for side in self.sides)
            assert one == other

    @rule(data=st.data(), how=st.sampled_from(("acknowledge", "requeue")))
    def back(self, data: st.DataObject, how: str) -> None:
        held = sorted((epoch, seq) for epoch, some in self.sides[0].queue._unacked.items() for seq in some)
        if not held:
            return
        chosen = data.draw(st.lists(st.sampled_from(held), unique=True))
        for side in self.sides:
            entries = [side.queue._unacked[epoch][seq] for epoch, seq in chosen]
            getattr(side.queue, how)(entries)
            side.settle()

    @rule()
    def purge(self) -> None:
        self.both(lambda side: side.queue.purge())

    @rule()
    def turn(self) -> None:
        self.both(Side.turn)

    @rule()
    def end(self) -> None:
        def act(side: Side) -> int:
            removed = side.vhost.delete_queue("q", owner=None)
            side.settle()
            side.takers.clear()
            side.vhost.declare_queue("q", owner=None, durable=True, arguments=self.arguments)
            return removed.messages

        self.both(act)
        assert not self.overflow.blocks

    @invariant()
    def same(self) -> None:
        self.both(lambda side: side.queue.message_count)
        self.both(lambda side: side.queue.total_count)
        self.both(lambda side: {e: ids.ranges() for e, ids in side.queue.snapshot().items()})
        self.both(lambda side: [_shown(entry) for entry in side.queue.held_entries()])
        self.both(lambda side: side.queue.history_checkpoint_due())
        self.both(lambda side: side.queue._other_epochs)
        self.both(lambda side: side.queue.ready_octets)
        self.both(lambda side: {e: ids.ranges() for e, ids in side.gone.items()})
        paged = self.sides[1].queue
        assert not paged.backlog.count or paged.ready
        assert 0 <= paged.backlog.paged_out <= paged.backlog.count

    @invariant()
    def pieces_are_the_same(self) -> None:
        def pieces(side: Side) -> list[Any]:
            found, after = [], (0, 0)
            while True:
                piece = held_after(side.queue, after, 5)
                found += [_shown(entry) for entry in piece.entries]
                if piece.upto is None:
                    return found
                after = piece.upto

        self.both(pieces)

    def teardown(self) -> None:
        for side in self.sides:
            side.vhost.delete_queue("q", owner=None)
        assert not self.overflow.blocks


def _ids(entry: Entry) -> tuple[int, int]:
    return entry[1].epoch, entry[0]


def _shown(entry: Entry | None) -> Any:
    return entry and (*_ids(entry), entry[1].redelivered, entry[1].persistent, bytes(entry[2]))


TestPagedAndNot = PagedAndNot.TestCase
TestPagedAndNot.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class PagedAndNotWithLimits(PagedAndNot):
    arguments: ClassVar[dict[str, object]] = {"x-max-length": 14, "x-max-length-bytes": 30}


TestPagedAndNotWithLimits = PagedAndNotWithLimits.TestCase
TestPagedAndNotWithLimits.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_a_deep_queue_is_served_from_paged_out_messages() -> None:
    overflow = VirtualOverflow()
    side = Side(overflow)
    for first in range(0, 5000, 100):
        envelope = Envelope(1, "", "q", persistent=True, wall_ms=0, channel=1, largest_frame=9)
        side.queue.enqueue_run(envelope, [b"%d" % n for n in range(first, first + 100)])
        side.page(10**9)
    assert len(side.queue.ready) == 3 and side.queue.backlog.paged_out == 4997
    side.consume()
    side.takers[0].credits = 10_000
    side.queue.schedule()
    side.settle()
    assert [int(raw) for _, _, raw in side.takers[0].got] == list(range(5000))
    assert not overflow.blocks and overflow.reads == 50


def test_messages_return_to_their_places_behind_paged_out_ones() -> None:
    side = Side(VirtualOverflow())
    envelope = Envelope(1, "", "q", persistent=True, wall_ms=0, channel=1, largest_frame=9)
    side.queue.enqueue_run(envelope, [b"%d" % n for n in range(1, 31)])
    taken = [side.queue.pop(no_ack=False) for _ in range(20)]
    held = [entry for entry in taken if entry is not None]
    side.queue.requeue(held[:8])
    side.page(10**9)
    side.queue.requeue(held[14:])
    side.queue.requeue(held[8:14])
    assert [seq for seq, _, _ in side.queue.held_entries()] == list(range(1, 31))
    piece = held_after(side.queue, (0, 0), 15)
    assert [seq for seq, _, _ in piece.entries] == list(range(1, 16))
    got = [side.queue.pop(no_ack=True) for _ in range(30)]
    assert [int(entry[2]) for entry in got if entry is not None] == list(range(1, 31))


def test_purged_messages_are_never_read_back() -> None:
    overflow = VirtualOverflow()
    side = Side(overflow)
    envelope = Envelope(1, "", "q", persistent=True, wall_ms=0, channel=1, largest_frame=9)
    side.queue.enqueue_run(envelope, [b"x"] * 1000)
    side.page(10**9)
    assert side.queue.purge() == 1000
    side.settle()
    assert side.gone[1].ranges() == [(1, 1000)]
    assert overflow.reads == 0 and not overflow.blocks


@PURE_ONLY
def test_unreadable_messages_stay_held_and_stop_the_broker() -> None:
    overflow = VirtualOverflow()
    side = Side(overflow)
    envelope = Envelope(1, "", "q", persistent=True, wall_ms=0, channel=1, largest_frame=9)
    side.queue.enqueue_run(envelope, [b"x"] * 10)
    side.page(10**9)
    overflow.broken = True
    taken = 0
    with pytest.raises(StoreUnusable):
        while side.queue.pop(no_ack=True):
            taken += 1
    overflow.broken = False
    left = side.queue.message_count
    assert taken < 3 and left + taken in (9, 10)  # one had been taken when the next could not be had
    assert [side.queue.pop(no_ack=True) is not None for _ in range(left)] == [True] * left
    assert side.queue.pop(no_ack=True) is None
    overflow.failed = "the disk is gone"
    paging = Paging(overflow)
    assert paging.due(0.0)
    with pytest.raises(StoreUnusable, match="the disk is gone"):
        paging.step(0.0, side.vhost)

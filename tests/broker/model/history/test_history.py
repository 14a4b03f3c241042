"""History: batches, positions, gathered dequeues and their order; completion over gates."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest

from broker.model.history.completion import Completion
from broker.model.history.history import History
from broker.model.history.records import Dequeue, EnqueueRun, Envelope, QueueDelete
from broker.model.values import FOREVER, Need, Position, Reason, Scope
from tests.broker.model.helpers import Recorder

Q = b"q" * 16


def history() -> tuple[History, Recorder]:
    made, recorder = History(1, dequeue_lag=0.01), Recorder()
    made.sinks.append(recorder)
    return made, recorder


def run() -> EnqueueRun:
    envelope = Envelope(1, "", "k", persistent=False, wall_ms=0, channel=1, largest_frame=9)
    return EnqueueRun([Q], [1], envelope, [b"m"], scope=Scope.LINK)


def test_one_batch_a_tick_and_its_position() -> None:
    made, recorder = history()
    assert made.flush(0.0, 0) is None
    assert made.position == (1, 0)
    made.append(run())
    made.append(run())
    assert made.position == (1, 1)
    batch = made.flush(0.0, 77)
    assert batch is not None
    assert (batch.position, batch.wall_ms, len(batch.records)) == ((1, 1), 77, 2)
    assert recorder.batches == [batch]
    assert made.flush(0.0, 0) is None
    assert made.position == (1, 1)
    made.append(run())
    assert made.position == (1, 2)


def test_dequeues_wait_for_the_lag_and_become_ranges() -> None:
    made, recorder = history()
    made.dequeue(Q, 1, [3, 1, 2], Reason.ACKED, Scope.LINK)
    made.dequeue(Q, 1, [9], Reason.ACKED, Scope.LINK)
    assert made.flush(5.0, 0) is None
    assert made.next_deadline() == 5.01
    made.dequeue(Q, 1, [4], Reason.ACKED, Scope.LINK)
    assert made.flush(5.009, 0) is None
    assert made.flush(5.01, 0) is not None
    assert recorder.batches[0].records == [Dequeue(Q, 1, Reason.ACKED, [(1, 4), (9, 9)], Scope.LINK)]
    assert made.next_deadline() is None
    made.dequeue(Q, 1, [5], Reason.ACKED, Scope.LINK)
    assert made.flush(6.0, 0) is None
    assert made.next_deadline() == 6.01


def test_dequeues_go_with_another_batch_after_half_of_the_lag() -> None:
    made, recorder = history()
    made.dequeue(Q, 1, [1], Reason.ACKED, Scope.LINK)
    assert made.wait(5.0) == made.wait(5.004) == made.next_deadline() == 5.01
    made.append(run())
    assert made.wait(5.004) is None, "a flush is due"
    made.flush(5.004, 0)
    made.append(run())
    made.flush(5.005, 0)
    assert [[type(record) for record in batch.records] for batch in recorder.batches] == [
        [EnqueueRun], [EnqueueRun, Dequeue],
    ]  # fmt: skip
    assert made.wait(5.005) == inf and made.next_deadline() is None


def test_enqueues_overtake_gathered_dequeues_but_a_deletion_does_not() -> None:
    made, recorder = history()
    made.dequeue(Q, 1, [1], Reason.ACKED, Scope.LINK)
    made.append(run())
    made.flush(0.0, 0)
    assert [type(r) for r in recorder.batches[0].records] == [EnqueueRun]
    made.append(QueueDelete(Q, "q", Scope.LINK))
    made.flush(0.0, 0)
    assert [type(r) for r in recorder.batches[1].records] == [Dequeue, QueueDelete]
    assert made.next_deadline() is None


def test_epochs_grow_and_begin_with_nothing_left_over() -> None:
    made, _ = history()
    made.append(run())
    with pytest.raises(ValueError, match="unflushed"):
        made.begin_epoch(2)
    made.flush(0.0, 0)
    for epoch in (0, 1):
        with pytest.raises(ValueError, match="does not follow"):
            made.begin_epoch(epoch)
    made.begin_epoch(7)
    assert made.position == (7, 0)
    made.append(run())
    assert made.position == (7, 1)


@dataclass
class FixedGate:
    applied: Position
    durable: Position


def test_completion_is_the_lowest_of_all_gates() -> None:
    completion = Completion()
    assert completion.reached(Position(1, 10), Need.DURABLE)
    store = FixedGate(FOREVER, Position(1, 5))
    backup = FixedGate(Position(1, 7), Position(1, 3))
    completion.gates += [store, backup]
    assert (completion.applied, completion.durable) == ((1, 7), (1, 3))
    assert completion.reached(Position(1, 7), Need.APPLIED)
    assert not completion.reached(Position(1, 8), Need.APPLIED)
    assert completion.reached(Position(1, 3), Need.DURABLE)
    assert not completion.reached(Position(1, 4), Need.DURABLE)
    completion.gates.remove(backup)
    assert completion.reached(Position(1, 5), Need.DURABLE)
    assert not completion.reached(Position(2, 1), Need.DURABLE)
    assert not completion.reached(
        Position(2, 0), Need.DURABLE
    )  # what was promoted is on disk only once the gate says so
    store.durable = Position(2, 0)
    assert completion.reached(Position(2, 0), Need.DURABLE)


def test_a_confirm_level_counts_as_far_as_the_floor_lets_it() -> None:
    completion = Completion()
    store = FixedGate(FOREVER, Position(1, 5))
    backup = FixedGate(Position(1, 7), Position(1, 3))
    completion.gates += [store, backup]
    completion.disk = store

    def upto(need: Need) -> int:
        return max(n for n in range(9) if completion.reached(Position(1, n), need))

    needs = [Need.APPLIED, Need.MEMORY, Need.OWN_DISK, Need.DURABLE]
    assert [upto(need) for need in needs] == [7, 3, 3, 3]
    completion.floor = Need.OWN_DISK
    assert [upto(need) for need in needs] == [7, 5, 5, 3]
    completion.floor = Need.MEMORY
    assert [upto(need) for need in needs] == [7, 7, 5, 3]
    backup.applied = Position(1, 4)
    assert [upto(need) for need in needs] == [4, 4, 4, 3]

"""The checkers of forced promotions, shown what they must object to, and what they must not."""

from __future__ import annotations

import pytest

from broker.model.history.records import Entry
from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.checkers import facade
from tests.simulation.checkers.primary.forced import Forced1
from tests.simulation.checkers.primary.promotions import LOSSY, Promotions11and19
from tests.simulation.checkers.records import Promotion
from tests.simulation.harness.inspection import RecordOnDisk, identity, vhost_of
from tests.simulation.harness.journal import Settled, Voiding


class Forced:
    """A pair whose backup B is forced beside its primary A."""

    def __init__(self, queue: str = "q1") -> None:
        self.pair = pair = Pair()
        self.forces: Forced1 = pair.checkers.forces
        self.queue = queue
        self.message = pair.in_queue(queue)[-1]
        pair.journal.forcing()
        pair.checkers.forced(pair.b)
        self.answers: list[bool] = []
        pair.world.operator.force(pair.b, self.answers.append)

    def go_on(self) -> None:
        """Until it is promoted, and has served a tick."""
        while not self.answers:
            self.pair.run(0.05)
        assert self.answers == [True] and self.pair.b.role() in ("active", "recovering")

    def take_away(self) -> Entry:
        """The last of the queue's messages, of B's copy, whatever it is used for."""
        queue = vhost_of(self.pair.b).queues[self.queue]
        entry = queue.held_entries()[-1]
        if self.pair.b.role() in ("active", "recovering"):
            queue.ready.pop()
        else:
            queue.replica.dequeue(entry[1].epoch, [(entry[0], entry[0])])
        return entry

    def at_the_promotion(self) -> Entry:
        """It is there after the last tick before, and is not in the first one of service."""
        before = self.forces._held(self.pair.b)
        self.go_on()
        self.forces._before["B"] = self.pair.b.life, before
        return self.take_away()


def test_1_who_is_promoted_by_force_keeps_what_it_held() -> None:
    forced = Forced()
    assert "B" in forced.forces._before
    forced.go_on()
    assert "B" not in forced.forces._before and forced.forces.checked >= 20
    forced = Forced()
    forced.at_the_promotion()
    with violates(1, f"B held {forced.message.key} of q1"):
        forced.forces.tick(forced.pair.b)


def test_1_what_is_exported_or_ended_by_a_client_may_be_gone() -> None:
    forced = Forced()
    entry = forced.at_the_promotion()
    forced.pair.b.running._quarantine.export(vhost_of(forced.pair.b).queues["q1"].uuid, "q1", [entry])
    forced.forces.tick(forced.pair.b)
    forced = Forced()
    forced.at_the_promotion()
    forced.pair.journal.settle("q1", forced.message, Settled.ACKED)
    forced.forces.tick(forced.pair.b)
    forced = Forced()
    forced.at_the_promotion()
    forced.pair.journal.voidings["q1"] = [Voiding("purge", "q1", forced.pair.clock.now)]
    forced.forces.tick(forced.pair.b)


def test_1_another_life_and_one_that_serves_already_have_nothing_to_keep() -> None:
    forced = Forced()
    forced.at_the_promotion()
    forced.forces._before["B"] = forced.pair.b.life - 1, forced.forces._before["B"][1]
    forced.forces.tick(forced.pair.b)
    forced.pair.checkers.forced(forced.pair.b)
    assert "B" not in forced.forces._before  # it serves already


@pytest.mark.parametrize("queue", ["q1", "q2"])
def test_1_what_it_began_with_is_not_lost_afterwards(queue: str) -> None:
    """q1 is durable, q2 in memory only."""
    forced = Forced(queue)
    forced.go_on()
    pair, at = forced.pair, forced.pair.clock.now
    forced.forces.end(pair.b, [at + 1])
    entry = forced.take_away()
    with violates(1, f"{forced.message.key}, with which epoch .* is lost from {queue}"):
        forced.forces.end(pair.b, [])
    if queue == "q1":
        with violates(1):
            forced.forces.end(pair.b, [at + 1])
    else:
        forced.forces.end(pair.b, [at + 1])
    forced.forces.end(pair.a, [])  # it goes on with another history
    pair.a.running._quarantine.export(vhost_of(pair.b).queues[queue].uuid, queue, [entry])
    forced.forces.end(pair.b, [])


def in_service(forced: Forced) -> Promotions11and19:
    """With what it was promoted by, and told of it."""
    forced.go_on()
    checker, epoch = forced.pair.checkers.promotions, forced.pair.b.running.core.epoch
    assert checker.how == ["bootstrap", "forced"] and epoch in checker.lossy
    assert checker.told[epoch] == LOSSY
    return checker


@pytest.mark.parametrize("told", ["unforced", "cold", None])
def test_11_a_promotion_that_needed_force_is_told_as_lossy(told: str | None) -> None:
    forced = Forced()
    checker, b = in_service(forced), forced.pair.b
    checker.tick(b)
    epoch = b.running.core.epoch
    del checker.told[epoch]
    if told is not None:
        checker.heard(b, f"promoted in epoch {epoch} ({told}): in the record")
    with violates(11, f"B was promoted by force, and calls it {told}: .* its link to A is up"):
        checker.tick(b)
    del checker.lossy[epoch]
    checker.tick(b)


def test_11_one_that_needed_no_force_may_be_told_as_what_it_is() -> None:
    pair = Pair(count=1)
    checker, records = pair.checkers.promotions, pair.checkers.records
    before = records.of(pair.a)
    record = RecordOnDisk(10**9, 1, identity(pair.a), frozenset())
    checker.force("A")
    checker.promoted(Promotion(pair.a, record.owner, record, before, before, pair.clock.now))
    assert checker.how[-1] == "forced" and not checker.lossy
    checker.force("B")  # the second: nobody knows any more what is in force
    checker.promoted(Promotion(pair.b, identity(pair.b), record, before, None, pair.clock.now))
    assert not checker.lossy


def test_11_the_ledgers_say_that_it_was_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facade, "KEPT", 1.0)
    forced = Forced()
    lossy, ledgers = in_service(forced).lossy, forced.pair.checkers.ledgers
    assert ledgers is not None
    ledgers.check_lossy_11(lossy)
    (epoch,) = lossy
    ledger = next(ledger for ledger in ledgers.every if epoch in ledger.promoted)
    assert ledger.owner == "B" and ledger.promoted[epoch] == LOSSY
    ledger.promoted[epoch] = "unforced"
    ledgers.check_lossy_11(())
    with violates(11, f"B began epoch {epoch} by force, and records it as unforced"):
        ledgers.check_lossy_11(lossy)

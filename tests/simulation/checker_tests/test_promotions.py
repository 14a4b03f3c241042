"""The checkers of promotions and of cold starts, each shown what it must object to, and what it must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ha.core.election.manual import ManualAuthority
from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.checkers.copies.divergent import held_ids
from tests.simulation.checkers.primary.promotions import Promotions11and19
from tests.simulation.checkers.records import Promotion
from tests.simulation.harness.inspection import RecordOnDisk, identity
from tests.simulation.harness.machines.machine import Death, Machine


class Judged:
    """Promotions of a pair of machines, by records made up."""

    def __init__(self) -> None:
        self.pair = Pair(count=1)
        self.records = self.pair.checkers.records
        self.checker = Promotions11and19(
            self.pair.world.machines, self.records, self.pair.journal, self.pair.checkers.promotions.links,
            self.pair.world.plan.timing, follows_silence=False,
        )  # fmt: skip
        self.a, self.b = identity(self.pair.a), identity(self.pair.b)

    def promote(self, machine: Machine, before: RecordOnDisk | None, own: RecordOnDisk | None = None) -> str:
        who = self.records.who(machine)
        record = RecordOnDisk(10**9, 1, who, frozenset())
        self.checker.promoted(Promotion(machine, who, record, before, own, self.pair.clock.now))
        return self.checker.how[-1]


def test_11_beside_a_forced_promotion_there_are_two_lines_but_no_half_copies() -> None:
    judged = Judged()
    before = RecordOnDisk(7, 1, judged.a, frozenset())
    with violates(11):
        judged.promote(judged.pair.b, before)
    judged.pair.journal.forcing()
    assert judged.promote(judged.pair.b, before) == "cold"
    with violates(19):
        judged.promote(judged.pair.b, before, replace(before, incomplete=True))


def test_11_a_member_and_the_owner_itself_may() -> None:
    judged = Judged()
    record = RecordOnDisk(7, 1, judged.a, frozenset({judged.b}))
    with violates(11):
        judged.promote(judged.pair.b, record)  # the link is up
    judged.pair.a.kill(Death.KILLED)
    judged.pair.run(0.1)
    assert judged.promote(judged.pair.b, record) == "member"
    assert judged.promote(judged.pair.a, record) == "owner"
    assert judged.promote(judged.pair.a, None) == "bootstrap"


def test_11_silence_is_no_end_but_an_answer_of_who_does_not_serve_is() -> None:
    judged = Judged()
    record = RecordOnDisk(7, 1, judged.a, frozenset({judged.b}))
    judged.pair.a.kill(Death.POWER)
    judged.pair.run(10)
    with violates(11):
        judged.promote(judged.pair.b, record)
    judged.pair.a.start()
    assert judged.promote(judged.pair.b, record) == "member"


def test_11_one_that_hung_may_have_been_excluded_before_its_link_closed() -> None:
    judged = Judged()
    record = RecordOnDisk(7, 1, judged.a, frozenset({judged.b}))
    judged.pair.b.pause()
    judged.pair.run(1.1 * judged.checker.timing.ack_timeout)
    judged.pair.a.kill(Death.KILLED)
    judged.pair.run(0.1)
    judged.pair.b.resume()
    judged.pair.run(0.1)
    with violates(11):
        judged.promote(judged.pair.b, record)


def test_11_who_is_not_in_the_record_may_not_while_its_owner_lives() -> None:
    judged = Judged()
    with violates(11):
        judged.promote(judged.pair.b, RecordOnDisk(7, 1, judged.a, frozenset()))
    judged.pair.b.kill()
    judged.pair.b.start()
    with violates(11):
        judged.promote(judged.pair.b, RecordOnDisk(7, 1, judged.a, frozenset({judged.b})))
    judged.checker.force("B")
    assert judged.promote(judged.pair.b, RecordOnDisk(7, 1, judged.a, frozenset())) == "forced"


def test_11_a_second_forcing_that_is_refused_does_not_make_the_first_an_unforced_one() -> None:
    """Found by the simulation (116150141): "another promotion is being decided"."""
    judged = Judged()
    judged.checker.force("B")
    judged.checker.force("B")
    judged.checker.force("B", over=True)
    assert judged.promote(judged.pair.b, RecordOnDisk(7, 1, judged.a, frozenset())) == "forced"
    judged.checker.force("B", over=True)
    judged.checker.force("B")
    judged.checker.force("B", over=True)
    with violates(11):
        judged.promote(judged.pair.b, RecordOnDisk(8, 1, judged.a, frozenset()))


def test_11_a_cold_start_waits_for_all_and_takes_the_longest() -> None:
    judged = Judged()
    pair = judged.pair
    record = RecordOnDisk(7, 1, judged.a, frozenset({judged.b}))
    pair.a.kill()
    pair.b.kill()
    pair.b.start()
    with violates(11):
        judged.promote(pair.b, record)  # A is down
    pair.a.start()
    assert judged.promote(pair.b, record) == "cold"
    for path, inode in pair.b.disk._kept.items():
        if "/store/" in path:
            inode.synced = bytearray()
    with violates(11):
        judged.promote(pair.b, record)  # A has more
    assert judged.promote(pair.a, record) == "cold"


def test_19_a_copy_marked_incomplete() -> None:
    judged = Judged()
    record = RecordOnDisk(7, 1, judged.a, frozenset({judged.b}))
    marked = RecordOnDisk(7, 1, judged.a, frozenset(), incomplete=True)
    with violates(19):
        judged.promote(judged.pair.b, record, marked)


def test_19_the_mark_is_about_the_disk_and_not_the_process_that_has_come_to_own_the_record() -> None:
    """It runs on, and goes back to what it held; once it has started again, it is another incarnation."""
    judged = Judged()
    owned = RecordOnDisk(7, 1, judged.b, frozenset(), incomplete=True)
    assert judged.promote(judged.pair.b, owned, owned) == "owner"
    earlier = replace(owned, owner=(judged.b[0], judged.b[1] - 1))
    with violates(19):
        judged.promote(judged.pair.b, earlier, earlier)


def test_19_a_catch_up_that_drops_is_marked_on_disk() -> None:
    judged = Judged()
    divergent, b = judged.pair.checkers.divergent, judged.pair.b
    assert not divergent.dropped(b)
    divergent._states["B"] = (b.life, "catching")
    divergent._before["B"] = (b.life, held_ids(b))
    assert not divergent.dropped(b)
    divergent._before["B"] = (b.life, {(b"q", 1, 1)})
    assert divergent.dropped(b)
    judged.checker.dies(b, True)  # its own record counts on it
    record = judged.records.of(b)
    assert record is not None
    judged.records._files["B"].record = replace(record, in_sync=frozenset())
    judged.checker.dies(b, False)
    with violates(19):
        judged.checker.dies(b, True)
    judged.records._files["B"].record = replace(record, in_sync=frozenset(), incomplete=True)
    judged.checker.dies(b, True)


def test_12_the_order_of_a_cold_start(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    cold = pair.checkers.cold_starts
    pair.b.kill()
    pair.run(5)
    pair.publisher.grant(10)
    pair.run(1)
    pair.a.kill()
    cold._try()
    judge = ManualAuthority._cold

    def hasty(self: Any, evidence: Any, newest: Any) -> Any:
        verdict = judge(self, evidence, newest)
        return type(verdict)(True, "whoever comes first", "cold")

    monkeypatch.setattr(ManualAuthority, "_cold", hasty)
    with violates(12):
        cold._try()

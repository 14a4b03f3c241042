"""The checkers of promotions and of who serves, each shown what it must object to, and what it must not."""

from __future__ import annotations

import importlib
import pkgutil
import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from ha.core.manual import ManualAuthority
from tests.simulation import checkers
from tests.simulation.checked import Pair, quiet_plan, stand_in, violates
from tests.simulation.checkers import events
from tests.simulation.checkers.divergent import held_ids
from tests.simulation.checkers.events import Events27
from tests.simulation.checkers.faults import Alone26, CutOff28, Failed25, Frozen28, Held26, Troubles
from tests.simulation.checkers.one_primary import Backwards10, Serving8and9, check_whole_27
from tests.simulation.checkers.outputs import Confirm, OutputReader
from tests.simulation.checkers.promotions import Promotions11and19
from tests.simulation.checkers.records import Promotion
from tests.simulation.checkers.terms import Terms4
from tests.simulation.clock import Clock
from tests.simulation.inspection import RecordOnDisk, identity
from tests.simulation.journal import Journal, Message
from tests.simulation.machine import Death, Machine
from tests.simulation.slow_disk import SlowDisk
from tests.simulation.topology import Topology
from tests.simulation.wire import method, publish

ACK = [Confirm(1, False)]


def new_journal() -> Journal:
    return Journal(Clock(), Topology())


def test_outputs_are_cut_into_confirms_and_other_service_at_any_byte() -> None:
    told: list[list[Confirm]] = []
    reader = OutputReader(lambda machine, connection, confirms, answers: told.append(confirms))
    data = method(1, "basic.ack", tag=7, multiple=True) + method(1, "channel.close-ok")
    data += publish(1, "", "q", b"x" * 50, persistent=True, frame_max=4096)
    data += method(1, "queue.declare-ok", queue="q")
    for at in range(len(data)):
        told.clear()
        reader.output(stand_in("A"), "p1#1", data[:at])
        reader.output(stand_in("A"), "p1#1", data[at:])
        assert [confirm for some in told for confirm in some] == [Confirm(7, True)]
        assert any(not some for some in told) or len(told) == 1
    told.clear()
    reader.output(stand_in("A"), "link-B#2", data)
    assert not told


def test_8_two_serve_in_one_epoch_or_after_a_later_one() -> None:
    a, b = stand_in("A", epoch=1), stand_in("B", epoch=2, role="ready")
    serving = Serving8and9([a, b], new_journal(), alone=False)
    serving.served(a, "c", ACK)
    serving.served(b, "c", ACK)
    serving.served(b, "c", ACK)
    with violates(8):
        serving.served(a, "c", ACK)
    with violates(8):
        serving.served(stand_in("C", epoch=2), "c", ACK)


def test_8_alone_is_alone() -> None:
    a, b = stand_in("A"), stand_in("B", role="recovering")
    Serving8and9([a, b], new_journal(), alone=False).served(a, "c", ACK)
    with violates(8):
        Serving8and9([a, b], new_journal(), alone=True).served(a, "c", ACK)


def test_8_beside_a_forced_promotion_two_may_serve_without_an_arbiter_each_in_its_own_epoch() -> None:
    a, b, journal = stand_in("A", epoch=1), stand_in("B", epoch=2), new_journal()
    journal.forcing()
    serving = Serving8and9([a, b], journal, alone=True)
    for machine in (a, b, a, stand_in("C", epoch=0)):
        serving.served(machine, "c", ACK)
    with violates(8):
        serving.served(stand_in("C", epoch=2), "c", ACK)
    arbitrated = Serving8and9([a, b], journal, alone=False)
    arbitrated.served(b, "c", ACK)
    with violates(9):
        arbitrated.served(a, "c", ACK)
    journal.whole_again()
    journal.clock.run(1.0)
    with violates(8):
        serving.served(a, "c", ACK)


def test_9_an_epoch_is_of_one_life_and_none_goes_back() -> None:
    serving = Serving8and9([], new_journal(), alone=False)
    serving.served(stand_in("A", epoch=5), "c", ACK)
    with violates(9):
        serving.served(stand_in("A", epoch=5, life=2), "c", ACK)
    with violates(9):
        serving.served(stand_in("B", epoch=4), "c", ACK)


def test_10_a_primary_that_knows_of_a_higher_epoch() -> None:
    backwards, a = Backwards10(), stand_in("A", epoch=5)
    backwards.tick(a)
    a.running.core.membership.members["b"] = SimpleNamespace(epoch=6)  # type: ignore[assignment]
    with violates(10):
        backwards.tick(a)


def test_10_neither_epoch_nor_position_goes_back_within_a_life() -> None:
    backwards = Backwards10()
    b: Any = stand_in("B", epoch=5, role="ready")
    b.running.replica.position = (5, 10)
    backwards.tick(b)
    b.running.replica.position = (5, 9)
    with violates(10):
        backwards.tick(b)
    b.life = 2
    backwards.tick(b)
    b.running.core.epoch = 4
    with violates(10):
        backwards.tick(b)


class Judged:
    """Promotions of a pair of machines, by records made up."""

    def __init__(self) -> None:
        self.pair = Pair(count=1)
        self.records = self.pair.checkers.records
        self.checker = Promotions11and19(
            self.pair.world.machines, self.records, self.pair.journal, self.pair.checkers.promotions.links,
            self.pair.world.plan.timing,
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


def test_27_one_serves_and_all_others_are_ready() -> None:
    pair = Pair(count=1)
    machines = pair.world.machines
    check_whole_27(pair.a, [pair.b], machines)
    with violates(27):
        check_whole_27(pair.b, [pair.a], machines)
    with violates(27):
        check_whole_27(pair.a, [], machines)
    pair.b.kill()
    with violates(27):
        check_whole_27(pair.a, [pair.b], machines)


def test_every_invariant_has_a_checker_with_its_number_or_waits_for_one_with_the_reason() -> None:
    names = [
        name for module in pkgutil.iter_modules(checkers.__path__, f"{checkers.__name__}.")
        for name in vars(importlib.import_module(module.name))
    ]  # fmt: skip
    checked = {int(n) for name in names if not name.isupper() for n in re.findall(r"[0-9]+", name)}
    pending = {int(what) for what in checkers.PENDING if what.isdigit()}
    assert not checked & pending
    assert checked | pending == set(range(1, 31))


def test_11_an_heir_and_the_owner_itself_may() -> None:
    judged = Judged()
    record = RecordOnDisk(7, 1, judged.a, frozenset({judged.b}))
    with violates(11):
        judged.promote(judged.pair.b, record)  # the link is up
    judged.pair.a.kill(Death.KILLED)
    judged.pair.run(0.1)
    assert judged.promote(judged.pair.b, record) == "heir"
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
    assert judged.promote(judged.pair.b, record) == "heir"


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


def test_25_a_node_whose_disk_has_failed_serves_no_more() -> None:
    disk = SimpleNamespace(failures=0)
    machine = stand_in("A", disk=disk)
    Failed25().served(machine, "c", ACK)
    disk.failures = 1
    with violates(25):
        Failed25().served(machine, "c", ACK)


def test_26_a_confirm_is_not_held_for_longer_than_a_loss_takes() -> None:
    machine = stand_in("A", network=SimpleNamespace(troubled=False), slow=SlowDisk())
    troubles = Troubles([machine])
    plan = quiet_plan()
    checker = Held26(plan, troubles)
    message = Message("p:1", b"", "p", 1, "", "q1", True, last_sent=100.0)
    limit = plan.timing.ack_timeout + checker.SLACK
    checker.confirm(machine, message, 100 + limit - 0.1)
    with violates(26):
        checker.confirm(machine, message, 100 + limit + 0.1)
    troubles.happened(101.0)
    checker.confirm(machine, message, 100 + limit + 0.1)
    machine.slow.begin(2.0, 100.2, 100.5)
    machine.slow.begin(0.05, 100.3, 101.0)
    checker.confirm(machine, message, 105 + limit)
    heir = SimpleNamespace(name="B", life=1, role=lambda: "recovering", slow=SlowDisk())
    checker.tick(heir, 300.0)  # type: ignore[arg-type]
    checker.tick(heir, 301.0)  # type: ignore[arg-type]
    within = 300.0 + plan.timing.backup_timeout
    message.last_sent = within - 0.1
    checker.confirm(machine, message, within - 0.1 + plan.timing.backup_timeout + limit - 0.1)
    message.last_sent = within + 0.1
    with violates(26):
        checker.confirm(machine, message, within + 0.1 + limit + 0.1)
    blocking = Held26(quiet_plan(on_backup_loss="block"), troubles)
    blocking.confirm(machine, message, 1000.0)


@pytest.mark.parametrize(
    ("policy", "least", "sizes", "confirmed"),
    [
        ("block", 0, [(5, 1, 1), (5, 2, 0)], False),
        ("block", 0, [(5, 1, 2), (5, 2, 1)], True),
        ("block", 0, [(5, 1, 1), (5, 2, 0), (5, 3, 1)], True),
        ("block", 0, [(5, 1, 1), (6, 1, 0)], False),
        ("block", 0, [(5, 1, 1), (6, 1, 0), (6, 2, 1)], True),
        ("block", 0, [(5, 1, 0)], False),
        ("block", 2, [(5, 1, 1)], False),
        ("continue", 0, [(5, 1, 1), (5, 2, 0)], True),
        ("continue", 1, [(5, 1, 1), (5, 2, 0)], False),
        ("continue", 1, [(5, 1, 0)], False),
        ("continue", 2, [(5, 1, 1)], False),
    ],
)
def test_26_nobody_goes_on_alone_where_the_policy_is_that_nobody_does(
    policy: str, least: int, sizes: list[tuple[int, int, int]], confirmed: bool
) -> None:
    """`sizes`: epoch, revision, and how many are in sync."""
    held: list[RecordOnDisk] = []
    records = SimpleNamespace(truth=lambda: held[-1])
    journal = SimpleNamespace(must_hold_in=lambda message: ["q1"] if message.persistent else [])
    clock = SimpleNamespace(now=0.0)
    plan = quiet_plan(on_backup_loss=policy, min_backups=least)
    checker = Alone26(plan, clock, records, journal)  # type: ignore[arg-type]
    machine = stand_in("A")
    for clock.now, (epoch, revision, size) in enumerate(sizes, 10):
        backups = frozenset((f"node {number}", 1) for number in range(size))
        held.append(RecordOnDisk(epoch, revision, ("a", 1), backups))
        checker.changed(machine)
    message = Message("p:1", b"", "p", 1, "", "q1", True, last_sent=clock.now)
    checker.confirm(machine, message)
    message.last_sent = 100.0
    with nullcontext() if confirmed else violates(26):
        checker.confirm(machine, message)
    message.persistent = False
    checker.confirm(machine, message)


def test_28_a_primary_frozen_past_its_lease_waits_for_an_answer() -> None:
    plan = quiet_plan()
    frozen, machine = Frozen28(plan), stand_in("A")
    lease, there_and_back = plan.timing.lease, 2 * plan.network.latency
    frozen.paused(machine, 10.0)
    frozen.resumed(machine, 10.0 + lease / 2)
    frozen.served(machine, 10.0 + lease / 2)
    frozen.paused(machine, 20.0)
    awake = 20.1 + lease
    frozen.resumed(machine, awake)
    with violates(28):
        frozen.served(machine, awake + 1.0)
    frozen.ticked(machine, awake + 1.0)
    with violates(28):
        frozen.served(machine, awake + 1.0)
    frozen.served(machine, awake + 1.0 + there_and_back)
    frozen.served(machine, awake)


def test_28_a_primary_that_nobody_reaches_serves_for_its_lease_only() -> None:
    plan = quiet_plan(authority="register")
    blocked: set[tuple[str, str]] = set()
    network: Any = SimpleNamespace(
        troubled=True, cuts=[object()], blocked=lambda source, target: (source, target) in blocked
    )
    a, b = (stand_in(name, network=network, paused=False) for name in "AB")
    reached = [True]
    register: Any = SimpleNamespace(history=[], could_answer=lambda host: reached[0])
    checker, lease = CutOff28(plan, [a, b], register), plan.timing.lease
    reached[0] = False
    checker.look(a, 10.0)
    checker.served(a, 11.0 + lease)  # B reaches it
    blocked.add(("B", "A"))
    checker.look(a, 20.0)
    checker.served(a, 19.9 + lease)
    with violates(28):
        checker.served(a, 20.1 + lease)
    blocked.clear()
    checker.served(a, 20.1 + lease)
    checker.look(a, 21.0 + lease)
    checker.served(a, 30.0 + lease)


def test_27_what_clients_are_told_of_the_pair_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(count=1)
    checker, a, b = pair.checkers.events, pair.a.running.me.node_id, pair.b.running.me.node_id
    epoch = pair.a.running.core.epoch
    checker.quiet(pair.a, [pair.b])
    assert not checker.checked  # nobody was bound when the first of all was promoted
    checker._first = 0
    told = [("promoted", a), ("joining", b), ("in-sync", b), ("excluded", b), ("joining", b), ("in-sync", b)]

    def tell(*events: tuple[str, str]) -> None:
        found = [{"event": event, "node_id": node, "epoch": epoch} for event, node in events]
        monkeypatch.setattr(checker, "_events", lambda primary: found)

    checker._excluded[epoch] = [b]
    tell(*told)
    checker.quiet(pair.a, [pair.b])
    assert checker.checked == 6
    for wrong in (
        told[1:],
        told[:-1],
        [event for event in told if event[0] != "excluded"],
        [*told, told[3], told[5]],
    ):
        tell(*wrong)
        with violates(27):
            checker.quiet(pair.a, [pair.b])


def test_27_is_not_asked_of_an_epoch_that_began_before_anybody_was_bound() -> None:
    pair = Pair(count=1)
    checker, epoch = Events27(pair.checkers.records), pair.a.running.core.epoch
    checker.promoted(SimpleNamespace(record=SimpleNamespace(epoch=epoch)))  # type: ignore[arg-type]
    assert checker._first == epoch
    checker.declared()
    checker.promoted(SimpleNamespace(record=SimpleNamespace(epoch=epoch + 1)))  # type: ignore[arg-type]
    assert checker._first == epoch


def test_27_finds_an_event_behind_frame_headers_with_braces(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(count=1)
    raw = b"\x02\x00{\x90\xce" + b'\x03\x00{\x00\x00\x00\x1e{"event": "lost", "epoch": 3}\xce'
    monkeypatch.setattr(events, "held", lambda machine, queue: [(1, None, raw)])
    assert pair.checkers.events._events(pair.a) == [{"event": "lost", "epoch": 3}]


def test_4_who_catches_up_is_configured_to_the_same() -> None:
    pair = Pair(count=1)
    checker = Terms4(pair.world.machines)
    with mock.patch.object(type(pair.b), "role", lambda self: "catch-up" if self is pair.b else "active"):
        checker.tick(pair.b)
        assert checker.checked == 1
        pair.b.settings = replace(pair.b.settings, lease=9.0)
        pair.b.life += 1
        with violates(4):
            checker.tick(pair.b)

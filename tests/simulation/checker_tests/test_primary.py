"""The checkers of who serves, and in which epoch, each shown what it must object to, and what it must not."""

from __future__ import annotations

import importlib
import pkgutil
import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation import checkers
from tests.simulation.checker_tests.checked import Pair, stand_in, violates
from tests.simulation.checkers.clients import events
from tests.simulation.checkers.clients.events import Events27
from tests.simulation.checkers.outputs import Confirm, OutputReader
from tests.simulation.checkers.primary.one_primary import Backwards10, Serving8and9, check_whole_27
from tests.simulation.clients.topology import Topology
from tests.simulation.clients.wire import method, publish
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.journal import Journal

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


def test_every_invariant_has_a_checker_with_its_number_or_waits_for_one_with_the_reason() -> None:
    names = [
        name for module in pkgutil.walk_packages(checkers.__path__, f"{checkers.__name__}.")
        for name in vars(importlib.import_module(module.name))
    ]  # fmt: skip
    checked = {int(n) for name in names if not name.isupper() for n in re.findall(r"[0-9]+", name)}
    pending = {int(what) for what in checkers.PENDING if what.isdigit()}
    assert not checked & pending
    assert checked | pending == set(range(1, 31))

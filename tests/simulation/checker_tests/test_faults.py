"""The checkers of what holds under faults, each shown what it must object to, and what it must not."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from ha.adapter.settings import HaSettings
from tests.simulation.checker_tests.checked import quiet_plan, stand_in, violates
from tests.simulation.checkers.faults import Alone26, CutOff28, Failed25, Frozen28, Held26, Troubles
from tests.simulation.checkers.outputs import Confirm
from tests.simulation.harness.inspection import RecordOnDisk
from tests.simulation.harness.journal import Message
from tests.simulation.harness.machines.slow_disk import SlowDisk

ACK = [Confirm(1, False)]


def test_25_a_node_whose_disk_has_failed_serves_no_more() -> None:
    disk = SimpleNamespace(failures=0)
    machine = stand_in("A", disk=disk)
    Failed25().served(machine, "c", ACK)
    disk.failures = 1
    with violates(25):
        Failed25().served(machine, "c", ACK)


def test_26_a_confirm_is_not_held_for_longer_than_a_loss_takes() -> None:
    network = SimpleNamespace(troubled=False)
    machine = stand_in("A", network=network, slow=SlowDisk(), settings=HaSettings())
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
    new_primary = SimpleNamespace(name="B", life=1, role=lambda: "recovering", slow=SlowDisk())
    checker.tick(new_primary, 300.0)  # type: ignore[arg-type]
    checker.tick(new_primary, 301.0)  # type: ignore[arg-type]
    within = 300.0 + plan.timing.backup_timeout
    message.last_sent = within - 0.1
    checker.confirm(machine, message, within - 0.1 + plan.timing.backup_timeout + limit - 0.1)
    message.last_sent = within + 0.1
    with violates(26):
        checker.confirm(machine, message, within + 0.1 + limit + 0.1)
    machine.settings = HaSettings(min_backups=1)  # against the plan
    checker.confirm(machine, message, within + 0.1 + limit + 0.1)
    machine.settings = HaSettings()
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

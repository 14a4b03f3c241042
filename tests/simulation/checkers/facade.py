"""`Checkers`: all checkers of a run behind one door. Owner: World, which reports and never asks.

started(machine)             a process life began; called after `node.start`, before its first tick
killed(machine)              a process is about to end by kill or power cut: memory and disk are still there
output(machine, name, data)  a machine hands bytes of one connection to its kernel (`Machine.tap`)
tick(machine)                after each `end_tick`, when its output was handed on
paused, resumed(machine)     the process is frozen: no tick, no timer, no read until it is resumed
isolated, rejoined(machine)  no byte passes between it and any other node or the register, until it does
forced(machine)              an operator is about to promote it with `force_lossy`
quiet_point(primary, backups)  nothing is on its way, `backups` are all ready and in the record
end(memory_lost)             the queues are drained; `memory_lost`: instants at which no node was running,
                             or at which the last that was in sync went
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tests.simulation.checkers.clients_see import Deliveries17and20and21and23
from tests.simulation.checkers.confirms import Confirms2and3
from tests.simulation.checkers.copies import check_copies_13
from tests.simulation.checkers.facts import OutputReader
from tests.simulation.checkers.no_loss import check_no_loss_1
from tests.simulation.checkers.one_primary import Serving8and9
from tests.simulation.clients import Publisher
from tests.simulation.clock import Clock
from tests.simulation.journal import Journal
from tests.simulation.machine import Machine


class Rules(Protocol):
    """What of the plan the checkers go by."""

    @property
    def authority(self) -> str:
        """`manual` or `register`."""

    @property
    def on_backup_loss(self) -> str: ...

    @property
    def min_backups(self) -> int: ...


class History(Protocol):
    """What of the register the checkers read, from outside the network."""

    @property
    def history(self) -> Sequence[tuple[float, dict[str, Any]]]:
        """Each record that it ever held with the instant of its swap, oldest first."""


class Checkers:
    """See the module. `counts` says what was looked into, for the report."""

    def __init__(
        self, clock: Clock, plan: Rules, machines: Sequence[Machine], journal: Journal,
        publishers: Mapping[str, Publisher], register: History | None = None,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.plan = plan
        self.machines = list(machines)
        self.journal = journal
        self.register = register
        self.counts: Counter[str] = Counter()
        self.serving = Serving8and9(self.machines)
        self.confirms = Confirms2and3(self.machines, journal, publishers)
        self.deliveries = Deliveries17and20and21and23(journal)
        self._reader = OutputReader([self.serving.output, self.confirms.output])

    def started(self, machine: Machine) -> None:
        self.confirms.started(machine)

    def killed(self, machine: Machine) -> None:
        self.confirms.died(machine)

    def output(self, machine: Machine, connection: str, data: bytes) -> None:
        self._reader.output(machine, connection, data)

    def tick(self, machine: Machine) -> None:
        """Nothing yet."""

    def paused(self, machine: Machine) -> None:
        """Nothing yet."""

    def resumed(self, machine: Machine) -> None:
        """Nothing yet."""

    def isolated(self, machine: Machine) -> None:
        """Nothing yet."""

    def rejoined(self, machine: Machine) -> None:
        """Nothing yet."""

    def forced(self, machine: Machine) -> None:
        """Nothing yet."""

    def quiet_point(self, primary: Machine, backups: Sequence[Machine]) -> None:
        for backup in backups:
            check_copies_13(primary, backup)
        self.counts["copies compared"] += len(backups)

    def end(self, memory_lost: Sequence[float]) -> None:
        self.counts["confirms looked into"] = self.confirms.checked
        check_no_loss_1(self.journal, list(memory_lost))

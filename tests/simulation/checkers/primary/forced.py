"""A forced promotion loses what its node had not, and nothing else (1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.checkers.copies.divergent import Divergent15
from tests.simulation.checkers.copies.quarantine import Id, quarantined
from tests.simulation.checkers.facts import SERVING
from tests.simulation.checkers.holdings import Holdings
from tests.simulation.harness.inspection import key_of, queue_of
from tests.simulation.harness.journal import Journal, Violation
from tests.simulation.harness.machines.machine import Machine

Held = dict[Id, tuple[str, str]]
"""By id: the queue's name and the message's key."""


@dataclass(slots=True, frozen=True)
class Kept:
    """What one who was promoted by force began to serve with."""

    at: float
    messages: Held
    on_disk: frozenset[Id]
    """Those that its disk had for good, and that survive on it."""


class Forced1:
    """1: what a node held when it was promoted by force is there when it serves, unless somebody who may has
    ended it in that very tick, or it is in quarantine, on disk. Nor is it lost afterwards: whoever goes on
    with that history at the end has it, or it was ended; in memory only, unless that was lost meanwhile.

    Of the queues of the topology, which messages leave for no other reason than clients'.
    """

    def __init__(self, machines: Sequence[Machine], journal: Journal, divergent: Divergent15) -> None:
        self.machines = machines
        self.journal = journal
        self.divergent = divergent
        self.checked = 0
        self._before: dict[str, tuple[int, Held]] = {}
        """Of each node that is to be promoted by force, its life and what it held after its last tick."""
        self._kept: dict[int, Kept] = {}
        """By epoch."""

    def force(self, machine: Machine, *, over: bool = False) -> None:
        """An operator asks; `over`: it was refused."""
        self._before.pop(machine.name, None)
        if not over and machine.role() not in SERVING:
            self._before[machine.name] = machine.life, self._held(machine)

    def tick(self, machine: Machine) -> None:
        """After each one."""
        if machine.name not in self._before:
            return
        life, before = self._before[machine.name]
        if machine.role() not in SERVING:
            self._before[machine.name] = machine.life, self._held(machine)
            return
        del self._before[machine.name]
        if life == machine.life:
            self._served(machine, before)

    def end(self, primary: Machine, memory_lost: Sequence[float]) -> None:
        """The queues are drained, and nothing is on its way."""
        line = self.divergent.line(primary)
        for epoch in [epoch for epoch in line if epoch in self._kept]:
            kept = self._kept[epoch]
            lost = any(at > kept.at for at in memory_lost)
            left = self._left(kept.messages, primary)
            for one in sorted(kept.on_disk & left if lost else left):
                queue, key = kept.messages[one]
                raise Violation(
                    1, f"{key}, with which epoch {epoch} was begun by force, is lost from {queue}"
                )

    # -- inside

    def _held(self, machine: Machine) -> Held:
        held: Held = {}
        for plan in self.journal.topology.queues:
            queue = queue_of(machine, plan.name)
            for sequence, envelope, raw in queue.held_entries() if queue is not None else ():
                held[queue.uuid, envelope.epoch, sequence] = plan.name, key_of(raw)  # type: ignore[union-attr]
        return held

    def _served(self, machine: Machine, before: Held) -> None:
        now = self._held(machine)
        self.checked += len(before)
        for one in sorted(self._left(before, machine)):
            queue, key = before[one]
            raise Violation(
                1,
                f"{machine.name} held {key} of {queue} when it was promoted by force, and serves without it",
            )
        holdings, messages = Holdings(machine), self.journal.messages
        on_disk = frozenset(
            one for one, (queue, key) in now.items()
            if key in messages and self.journal.lasting(messages[key], queue) and holdings.disk.has(key)
        )  # fmt: skip
        epoch = machine.running.core.epoch
        self._kept[epoch] = Kept(self.journal.clock.now, now, on_disk)

    def _left(self, held: Held, machine: Machine) -> set[Id]:
        """Those that are neither there, nor in anybody's quarantine, nor were ended by a client."""
        there, messages = self._held(machine), self.journal.messages
        exported = {one for each in self.machines for one in quarantined(each)}
        return {
            one for one, (queue, key) in held.items()
            if one not in there and one not in exported and key in messages
            and (queue, key) not in self.journal.settled and not self.journal.voided(messages[key], queue)
        }  # fmt: skip

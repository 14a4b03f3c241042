"""The register in a simulation of a pair with a witness: a real node on a machine of its own, which the nodes
of the pair ask over the virtual network.

It is `Register` for the checkers: `history` has every record that it has made durable. It is frozen, and
killed and started again, where the register of other seeds is slow or loses answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from broker.security.identity import WITNESS, User
from broker.store.node_files import RecordFile
from ha.adapter.settings import HaSettings
from ha.adapter.witness.place import WitnessPlace
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.machines.machine import Death, Machine
from tests.simulation.harness.machines.virtual_disk import VirtualDisk
from tests.simulation.harness.network import Address, Network
from tests.simulation.harness.plan import MachinePlan, RegisterPlan
from tests.simulation.harness.register import HOST, Record, Register

ADDRESS: Address = ("127.0.0.1", 4999)
PAIR, PASSWORD = "pair", "secret"
BACK = 3.0
"""Seconds until the nodes have found it again, at most."""


class _Watched(RecordFile):
    """The file of the pair's record, at the witness."""

    def __init__(self, disk: VirtualDisk, saved: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__(disk, f"/{HOST}", f"witness-{PAIR}.json")
        self._saved = saved

    def save(self, body: Mapping[str, Any]) -> None:
        super().save(body)
        self._saved(body)


class Witness(Register):
    """Owner: World. `machine` is not among the world's machines: nobody is a client there."""

    def __init__(
        self, clock: Clock, network: Network, plan: RegisterPlan, random: Callable[[str], Random],
        like: MachinePlan,
    ) -> None:  # fmt: skip
        super().__init__(clock, network, plan, random)
        place = MachinePlan(HOST, like.sync_time, 0.0, tick=like.tick)
        settings = HaSettings(witness_for=(PAIR,))
        self.machine = Machine(
            clock, network, random(f"machine/{HOST}"), place, ADDRESS, settings, lambda *_: None
        )  # fmt: skip
        self.machine.users = (User(PAIR, frozenset({WITNESS}), password=PASSWORD),)
        self.machine.on_started = self._started

    @staticmethod
    def place(lease: float) -> WitnessPlace:
        """Where the nodes of the pair find it."""
        return WitnessPlace.at(*ADDRESS, PAIR, PASSWORD, lease=lease)

    def start(self) -> None:
        self.machine.start()

    def could_answer(self, host: str) -> bool:
        running = self.machine.node is not None and not self.machine.paused
        return running and super().could_answer(host)

    def freeze(self, length: float) -> None:
        """Its process is stopped for that long."""
        self.slow_until = self.clock.now + length + BACK
        self.machine.pause()
        self.clock.after(length, self.machine.resume)

    def fail(self, length: float, death: Death) -> None:
        """Its process ends, and begins again after that long."""
        self.lossy_until = self.clock.now + length + BACK
        if self.machine.node is not None:
            self.machine.kill(death)
            self.clock.after(length, self._again)

    def _again(self) -> None:
        if self.machine.node is None:
            self.machine.start()

    def _started(self, machine: Machine) -> None:
        machine.running.witness._files[PAIR] = _Watched(machine.disk, self._saved)

    def _saved(self, body: Mapping[str, Any]) -> None:
        record: Record = json.loads(json.dumps(dict(body)))
        self.history.append((self.clock.now, record))
        self.on_swap()
        self._note(record)

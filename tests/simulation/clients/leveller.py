"""An operator who changes the level of confirms of all queues by a policy, and takes that back.

What is answered does not matter: the checkers go by the records of the nodes.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.harness.clock import Clock
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Network
from tests.simulation.harness.operator import SERVING, Question, Reply

LEVELS = ("primary-disk", "all-memory", "all-memory", "all-disks", None)
"""None: no policy."""


class Leveller:
    """`interval`: seconds between two changes, about; 0: it changes nothing."""

    def __init__(
        self, clock: Clock, network: Network, rng: Random, interval: float, machines: list[Machine]
    ) -> None:
        self.clock, self.network, self.rng = clock, network, rng
        self.interval = interval
        self.machines = machines
        self.finishing = interval <= 0
        self._asking = False

    @property
    def finished(self) -> bool:
        return self.finishing and not self._asking

    def start(self) -> None:
        if not self.finishing:
            self.clock.after(self.interval * (0.5 + self.rng.random()), self._next)

    def _next(self) -> None:
        serving = [m for m in self.machines if m.node is not None and m.role() in SERVING]
        if self.finishing or not serving:
            self.start()
            return
        self._asking = True
        Question(
            self.clock, self.network, self.rng.choice(serving), "define", self._answered,
            asker="operator of levels", args={"changes": [change_to(self.rng.choice(LEVELS))]},
        )  # fmt: skip

    def _answered(self, reply: Reply | None) -> None:
        self._asking = False
        self.start()


def change_to(level: str | None) -> dict[str, Any]:
    """Of the management command `define`."""
    policy = {"kind": "policy", "vhost": "/", "name": "level"}
    if level is None:
        return {"action": "delete", **policy}
    definition = {"ha-confirm": level}
    value = {"apply-to": "queues", "definition": definition, "pattern": ".*", "priority": 0}
    return {"action": "put", **policy, "value": value}

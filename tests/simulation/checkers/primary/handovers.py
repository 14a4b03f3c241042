"""To whom a primary hands over: to nobody but one that runs (6)."""

from __future__ import annotations

import struct

from tests.simulation.harness.clock import Clock
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine

_LINK = "link-"
_HANDOVER = struct.pack(">HH", 250, 31)
_SOON, _NOW = b'"position":null', b'"position":['


class Handovers6:
    """6: a primary stops for a target that runs: one that has ended a tick since it was told that it is about
    to be handed over to. Else nobody serves until somebody gives that target up.

    Read off the wire: HANDOVER without a position, and with one.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.checked = 0
        self._told: dict[tuple[str, str], float] = {}
        """(primary, target) -> when it was told last that it is about to be."""
        self._ticked: dict[str, float] = {}

    def ticked(self, machine: Machine) -> None:
        self._ticked[machine.name] = self.clock.now

    def output(self, machine: Machine, connection: str, data: bytes) -> None:
        """Of a connection by whomever: links are named after who dialed, and the target has."""
        if _HANDOVER not in data or not connection.startswith(_LINK):
            return
        target = connection.removeprefix(_LINK).partition("#")[0]
        at = data.find(_HANDOVER)
        while at >= 0:
            size = int.from_bytes(data[at - 4 : at], "big")
            notice = data[at : at + size]
            if _SOON in notice:
                self._told[machine.name, target] = self.clock.now
            elif _NOW in notice:
                self._handed(machine.name, target)
            at = data.find(_HANDOVER, at + 1)

    def _handed(self, primary: str, target: str) -> None:
        since, last = self._told.get((primary, target), 0.0), self._ticked.get(target, -1.0)
        self.checked += 1
        if last <= since:
            raise Violation(
                6, f"{primary} hands over to {target}, which has not run since {since - last:.6f} s before "
                "it was asked to take over",
            )  # fmt: skip

"""How the links of nodes that follow ended, read off the wire: what a promotion without an arbiter may go by.

Owner: Checkers. Judges nothing itself. Cuts the frames of a link by their lengths alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.clients.wire import PREAMBLE
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import End

LINK = 250
JOIN, ACK = 13, 21
_HEAD, _OVERHEAD = 7, 8


@dataclass(slots=True)
class LinkEnd:
    """The newest link of one node as a backup. `answered`: ended by FIN or RST, from the other kernel."""

    life: int
    stream: str
    host: str
    """Whom it followed."""
    last_ack: float
    """When it last handed an acknowledgement, or its request to join, to its kernel."""
    ended: float | None = None
    answered: bool = False

    def lacks(self, host: str, ack_timeout: float) -> str:
        """Why it does not prove that the primary on `host` had not excluded this node; empty if it does."""
        if self.host != host:
            return f"its last link was to {self.host}"
        if self.ended is None:
            return f"its link to {host} is up"
        if not self.answered:
            return f"its link to {host} went silent"
        if (age := self.ended - self.last_ack) >= ack_timeout:
            return f"its last acknowledgement to {host} was {age:.3f} s old when the link closed"
        return ""


class LinkEnds:
    """`said` after each output of a dial, `ended` when it is closed by whomever."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._newest: dict[str, LinkEnd] = {}

    def said(self, machine: Machine, end: End, data: bytes) -> None:
        for number in _methods(data):
            if number in (JOIN, ACK):
                link = self._newest.get(machine.name)
                if link is None or (link.life, link.stream) != (machine.life, end.stream):
                    link = LinkEnd(machine.life, end.stream, end.peer.host, 0.0)
                    self._newest[machine.name] = link
                link.last_ack = self.clock.now

    def ended(self, machine: Machine, end: End, answered: bool) -> None:
        """`answered`: not given up by this node or its kernel for want of an answer."""
        link = self._newest.get(machine.name)
        if link is not None and link.stream == end.stream and link.ended is None:
            link.ended, link.answered = self.clock.now, answered

    def of(self, machine: Machine) -> LinkEnd | None:
        """Of its present life; None if it has followed nobody in it."""
        link = self._newest.get(machine.name)
        return link if link is not None and link.life == machine.life else None


def _methods(data: bytes) -> Iterator[int]:
    """Numbers of the link's methods in what a node hands to its kernel at once: whole frames."""
    at = len(PREAMBLE) if data.startswith(PREAMBLE) else 0
    while at + _HEAD + 4 <= len(data):
        if data[at] == 1 and int.from_bytes(data[at + _HEAD : at + _HEAD + 2], "big") == LINK:
            yield int.from_bytes(data[at + _HEAD + 2 : at + _HEAD + 4], "big")
        at += _OVERHEAD + int.from_bytes(data[at + 3 : at + _HEAD], "big")
